package script

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// Bundling takes as long as all the rest of reading a config. So a bundle is remembered together with the conversation that it
// came from: what the bundler asked about the project's files, and what it was told. Where all of that would be answered in the
// same way today, by the same rules and from the files as they are now, the bundle is what bundling would give. Nothing else
// makes one good: whoever can change a file of the project changes an answer.
//
// A file of the memory tells by itself whether it is whole, is of use to one binary only, and can be removed at any time.

const (
	maxRemembered      = 64      // bundles
	maxRememberedBytes = 4 << 20 // of one of them
)

// rememberedBundle is a bundle without the SDK, which is the binary's own.
type rememberedBundle struct {
	Exchanges []fileExchange  `json:"said"`
	Bundle    protocol.Bundle `json:"bundle"`
}

type fileExchange struct {
	Ask     protocol.File `json:"ask"`
	Answer  protocol.File `json:"answer"`            // without the content
	Content string        `json:"content,omitempty"` // sha256 of it, hexadecimal
}

func newFileExchange(ask, answer protocol.File) fileExchange {
	s := fileExchange{Ask: ask, Answer: answer}
	if s.Answer.Content = nil; answer.Content != nil {
		s.Content = sha256hex.Of(answer.Content)
	}
	return s
}

// bundleMemory is the place of one entry's bundle; "" remembers nothing.
type bundleMemory string

func (r *Runner) bundleMemory(root, entry string) bundleMemory {
	if r.Bundles == "" || r.Overlay != nil {
		return ""
	}
	info, err := files.Stat(r.Executable)
	if err != nil {
		return ""
	}
	binary := fmt.Sprint(files.Inode(info), " ", info.Size(), " ", info.ModTime().UnixNano())
	return bundleMemory(filepath.Join(r.Bundles, projectPrefix(root)+sha256hex.Of(binary+"\x00"+root+"\x00"+entry)))
}

// projectPrefix is how the names of a project's bundles begin.
func projectPrefix(root string) string {
	return sha256hex.Of(root)[:16] + "-"
}

// ForgetOtherBundles removes what is remembered in dir of projects other than those at roots. Who bundles at the same time loses nothing
// but the memory of it.
func ForgetOtherBundles(dir string, roots []string) error {
	names, err := files.Names(dir)
	if err != nil {
		return err
	}
	left, err := files.TemporaryFiles(dir)
	if err != nil {
		return err
	}
	for _, name := range append(names, left...) {
		if slices.ContainsFunc(roots, func(root string) bool { return strings.HasPrefix(name, projectPrefix(root)) }) {
			continue
		}
		if err := files.Remove(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// recall is the bundle that bundling would give, nil where that is not known. The files are the server's.
func (m bundleMemory) recall(from *fileServer) *protocol.Bundle {
	if m == "" {
		return nil
	}
	b, err := files.Read(string(m))
	if err != nil || len(b) < sha256.Size {
		return nil
	}
	sum := sha256.Sum256(b[sha256.Size:])
	var known rememberedBundle
	if !slices.Equal(sum[:], b[:sha256.Size]) || json.Unmarshal(b[sha256.Size:], &known) != nil {
		return nil
	}
	for _, s := range known.Exchanges {
		now := newFileExchange(s.Ask, *from.answer(s.Ask))
		if now.Content != s.Content || now.Answer.Path != s.Answer.Path || now.Answer.Kind != s.Answer.Kind ||
			now.Answer.Real != s.Answer.Real || now.Answer.Reason != s.Answer.Reason {
			return nil
		}
	}
	return &known.Bundle
}

// RecallBundle is what a module would be bundled to now, without the SDK; false where that is not known without bundling it.
func (r *Runner) RecallBundle(root, entry string) (protocol.Bundle, bool) {
	fs, err := projectfs.Open(root)
	if err != nil {
		return protocol.Bundle{}, false
	}
	defer fs.Close()
	known := r.bundleMemory(root, entry).recall(&fileServer{fs: fs})
	if known == nil {
		return protocol.Bundle{}, false
	}
	return *known, true
}

// keep remembers a bundle. That it cannot be kept is nobody's concern.
func (m bundleMemory) keep(conversation []fileExchange, made protocol.Bundle) {
	if m == "" {
		return
	}
	b, err := json.Marshal(rememberedBundle{conversation, protocol.Bundle{Code: made.Code, Map: made.Map, Digest: made.Digest}})
	if err != nil || len(b) > maxRememberedBytes || files.MkdirAll(filepath.Dir(string(m))) != nil {
		return
	}
	sum := sha256.Sum256(b)
	if files.WriteVolatile(string(m), append(sum[:], b...)) == nil {
		pruneRemembered(filepath.Dir(string(m)))
	}
}

func pruneRemembered(dir string) {
	names, err := files.Names(dir)
	if err != nil || len(names) <= maxRemembered {
		return
	}
	age := map[string]int64{}
	for _, name := range names {
		if info, err := files.Lstat(filepath.Join(dir, name)); err == nil {
			age[name] = info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Compare(age[a], age[b]) })
	for _, name := range names[:len(names)-maxRemembered] {
		_ = files.Remove(filepath.Join(dir, name))
	}
}
