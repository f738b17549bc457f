package workspace

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// FreezeRequest asks for the private copy of a workspace's changes. The caller has made sure that nothing writes there.
type FreezeRequest struct {
	Root       *safefs.Root // of the workspace
	Base       Manifest
	Rules      Rules
	Source     string // absolute; where the contents before a change are read, if they still are what they were
	SourceRoot RootID
	Dir        string // the folder that holds freezes; the new one is named by its digest
	Bounds     Bounds
	Now        func() time.Time
}

const (
	freezeFormat  = "1.0"
	freezeFile    = "freeze.json"
	blobDir       = "blobs"
	halfFreeze    = ".half-freeze" // one at a time: the workspace has no writer, and its freezer holds the run's lease
	maxBeforeSize = maxShown       // larger contents are not shown, so that what they were is not needed
)

// MakeFreeze takes the manifest and every changed byte into private storage, durably. The same changes give the same
// digest and folder, however often they are frozen; a kill leaves nothing that counts.
func MakeFreeze(ctx context.Context, req FreezeRequest) (Freeze, error) {
	now, ignored, err := Scan(ctx, req.Root, ScanOptions{Rules: req.Rules, Base: &req.Base, Bounds: req.Bounds})
	if err != nil {
		return Freeze{}, err
	}
	f := Freeze{Source: req.Source, Root: req.SourceRoot, Ignored: ignored, Changes: Compare(req.Base, now), At: req.Now().UTC()}
	if err := f.withinBounds(req.Bounds.orDefaults()); err != nil {
		return Freeze{}, err
	}
	f.Digest = digest(f.Changes)
	f.Dir = filepath.Join(req.Dir, f.Digest)
	if files.Exists(f.Dir) {
		if f, err := LoadFreeze(f.Dir); err == nil && f.checkComplete() == nil {
			return f, nil
		}
	}
	if err := files.MkdirAll(req.Dir); err != nil {
		return Freeze{}, failure.Wrap(err, failure.Failed, "make the folder of freezes")
	}
	return f, f.store(ctx, req)
}

func (f *Freeze) withinBounds(b Bounds) error {
	var size int64
	for _, c := range f.Changes {
		if c.After != nil && c.After.Type == File {
			size += c.After.Size
		}
	}
	if len(f.Changes) > b.Files || size > b.Bytes {
		return failure.New(failure.LimitExceeded, "the workspace has %d changed paths with %d bytes; at most %d with %d bytes can be frozen", len(f.Changes), size, b.Files, b.Bytes).
			WithHint("remove what was created by mistake, or ignore it in the source's .gitignore before the next run")
	}
	return nil
}

// store writes the freeze into a half folder and renames it.
func (f *Freeze) store(ctx context.Context, req FreezeRequest) error {
	dir, err := safefs.OpenRoot(req.Dir)
	if err != nil {
		return failure.Wrap(err, failure.Failed, "open the folder of freezes")
	}
	defer dir.Close()
	for _, old := range []string{halfFreeze, f.Digest} { // what was killed, and a folder of this name that is not whole
		if refused, err := dir.RemoveAll(ctx, old); err != nil || len(refused) > 0 {
			return failure.Wrap(errors.Join(err, refusedError(refused)), failure.Failed, "remove a half freeze")
		}
	}
	if err := dir.Mkdir(halfFreeze, 0o700); err != nil {
		return failure.Wrap(err, failure.Failed, "freeze")
	}
	partial, err := dir.OpenRoot(halfFreeze)
	if err != nil {
		return failure.Wrap(err, failure.Failed, "freeze")
	}
	defer partial.Close()
	if err := partial.Mkdir(blobDir, 0o700); err != nil {
		return failure.Wrap(err, failure.Failed, "freeze")
	}
	crash.Point("workspace/before-freeze-blobs")
	if err := f.storeBlobs(ctx, req, partial); err != nil {
		return failure.Wrap(err, failure.Failed, "freeze the workspace")
	}
	doc, err := f.encode()
	if err != nil {
		return failure.Wrap(err, failure.Internal, "freeze")
	}
	out, err := partial.Create(freezeFile, 0o600)
	if err != nil {
		return failure.Wrap(err, failure.Failed, "freeze")
	}
	_, err = out.Write(doc)
	if err == nil {
		err = out.Sync()
	}
	err = errors.Join(err, out.Close(), partial.SyncDir(blobDir), partial.SyncDir("."))
	if err != nil {
		return failure.Wrap(err, failure.Failed, "freeze")
	}
	crash.Point("workspace/before-freeze-rename")
	if err := dir.Rename(halfFreeze, f.Digest); err != nil {
		return failure.Wrap(err, failure.Failed, "freeze")
	}
	crash.Point("workspace/after-freeze-rename")
	return failure.Wrap(dir.SyncDir("."), failure.Failed, "freeze")
}

// storeBlobs reads every changed file once. A content that is no longer what the manifest says means that something writes.
func (f *Freeze) storeBlobs(ctx context.Context, req FreezeRequest, partial *safefs.Root) error {
	c := safefs.NewCopier()
	mode := uint32(0o600)
	have := map[string]bool{}
	for _, ch := range f.Changes {
		if err := ctx.Err(); err != nil {
			return err
		}
		e := ch.After
		if e == nil || e.Type != File || have[e.SHA256] {
			continue
		}
		got, err := c.Copy(req.Root, e.Path, partial, blobDir+"/"+e.SHA256, &mode, true)
		if err == nil && (got.Sum.String() != e.SHA256 || got.Size != e.Size) {
			err = safefs.ErrChanged
		}
		if err != nil {
			if errors.Is(err, safefs.ErrChanged) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefs.ErrLink) || errors.Is(err, safefs.ErrNotRegular) {
				return busyError(e.Path, err)
			}
			return err
		}
		have[e.SHA256] = true
	}
	src, err := OpenTree(req.Source, req.SourceRoot)
	if err != nil {
		return nil //nolint:nilerr // the difference then says that it does not know what was there before
	}
	defer src.Close()
	for _, ch := range f.Changes {
		e := ch.Before
		if e == nil || e.Type != File || e.Size > maxBeforeSize || have[e.SHA256] {
			continue
		}
		name := blobDir + "/" + e.SHA256
		got, err := c.Copy(src, e.Path, partial, name, &mode, true)
		switch {
		case err == nil && got.Sum.String() == e.SHA256:
			have[e.SHA256] = true
		case err == nil:
			if err := partial.Remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// CheckFreeze says whether the freeze in dir is there with all its contents, and undamaged: nil, or what is wrong.
func CheckFreeze(dir string) error {
	f, err := LoadFreeze(dir)
	if err != nil {
		return err
	}
	return f.checkComplete()
}

// checkComplete says whether every content that write-back needs is there, and every one that is there is what its name says. What
// is not is frozen again: the workspace is still what it was.
func (f *Freeze) checkComplete() error {
	dir, err := safefs.OpenRoot(filepath.Join(f.Dir, blobDir))
	if err != nil {
		return err
	}
	defer dir.Close()
	c := safefs.NewCopier()
	for _, ch := range f.Changes {
		for _, e := range []*Entry{ch.Before, ch.After} {
			if e == nil || e.Type != File {
				continue
			}
			got, err := c.Hash(dir, e.SHA256)
			if errors.Is(err, fs.ErrNotExist) && e == ch.Before {
				continue // it is only kept to be shown
			}
			if err == nil && got.Sum.String() != e.SHA256 {
				err = errors.New("its content does not match")
			}
			if err != nil {
				return fmt.Errorf("the content of %s: %w", redact.Line(e.Path), err)
			}
		}
	}
	return nil
}

// BlobPath is where a content of the freeze lies.
func (f *Freeze) BlobPath(sha256 string) string { return filepath.Join(f.Dir, blobDir, sha256) }

// Blob reads a content of at most limit bytes and checks it; fs.ErrNotExist where the freeze does not hold it.
func (f *Freeze) Blob(sum string, limit int64) ([]byte, error) {
	dir, err := safefs.OpenRoot(filepath.Join(f.Dir, blobDir))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	b, _, err := dir.ReadFile(sum, limit)
	if err != nil {
		return nil, err
	}
	if sha256hex.Of(b) != sum {
		return nil, failure.New(failure.StoreInvalid, "the frozen content %s is damaged", f.BlobPath(sum)).WithHint("laufwerk resume RUN")
	}
	return b, nil
}

// Change is stored with its path's raw bytes; its class is worked out again when it is loaded.
type storedChange struct {
	Path   string       `json:"path,omitempty"`
	Raw    []byte       `json:"pathBase64,omitempty"` // instead of path, where that is not UTF-8
	Kind   ChangeKind   `json:"kind"`
	Before *storedEntry `json:"before,omitempty"`
	After  *storedEntry `json:"after,omitempty"`
}

type storedEntry struct {
	Type   Type   `json:"type"`
	Mode   uint32 `json:"mode"`
	Link   []byte `json:"link,omitempty"`
	Size   int64  `json:"size,omitempty"`
	SHA256 string `json:"sha256,omitempty"`
}

type storedFreeze struct {
	Format  string          `json:"format"`
	Digest  string          `json:"digest"`
	At      time.Time       `json:"at"`
	Source  []byte          `json:"source"`
	Root    RootID          `json:"root"`
	Ignored int             `json:"ignored"`
	Changes json.RawMessage `json:"changes"`
}

func canonicalChanges(changes []Change) []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i, c := range changes {
		if i > 0 {
			b.WriteByte(',')
		}
		s := storedChange{Path: c.Path, Kind: c.Kind, Before: storeEntry(c.Before), After: storeEntry(c.After)}
		if !utf8.ValidString(c.Path) {
			s.Path, s.Raw = "", []byte(c.Path)
		}
		one, _ := json.Marshal(s) //nolint:errchkjson // strings, numbers and bytes
		b.Write(one)
	}
	b.WriteByte(']')
	return b.Bytes()
}

func storeEntry(e *Entry) *storedEntry {
	if e == nil {
		return nil
	}
	return &storedEntry{Type: e.Type, Mode: e.Mode, Link: e.Link, Size: e.Size, SHA256: e.SHA256}
}

func (s *storedEntry) entry(path string) *Entry {
	if s == nil {
		return nil
	}
	return &Entry{Path: path, Type: s.Type, Mode: s.Mode, Link: s.Link, Size: s.Size, SHA256: s.SHA256}
}

// isValid says whether a hash is one: it names a file of the freeze.
func (s *storedEntry) isValid() bool {
	if s == nil || s.Type != File {
		return true
	}
	b, err := hex.DecodeString(s.SHA256)
	return err == nil && len(b) == sha256.Size
}

func digest(changes []Change) string {
	return sha256hex.Of(canonicalChanges(changes))
}

func (f *Freeze) encode() ([]byte, error) {
	b, err := json.Marshal(storedFreeze{Format: freezeFormat, Digest: f.Digest, At: f.At, Source: []byte(f.Source), Root: f.Root, Ignored: f.Ignored, Changes: canonicalChanges(f.Changes)})
	return append(b, '\n'), err
}

// LoadFreeze reads a freeze and checks that its changes are those of its digest.
func LoadFreeze(dir string) (Freeze, error) {
	damaged := func(err error) (Freeze, error) {
		return Freeze{}, failure.New(failure.StoreInvalid, "the freeze %s is damaged: %v", dir, err).
			WithHint("laufwerk resume RUN") // it freezes the workspace again
	}
	b, err := files.Read(filepath.Join(dir, freezeFile))
	if err != nil {
		return damaged(err)
	}
	var s storedFreeze
	if err := json.Unmarshal(b, &s); err != nil {
		return damaged(err)
	}
	if major, _, _ := bytes.Cut([]byte(s.Format), []byte(".")); string(major) != "1" {
		return Freeze{}, failure.New(failure.StoreNewer, "the freeze %s has format %q", dir, s.Format).WithHint("update laufwerk, then run the command again")
	}
	var stored []storedChange
	if err := json.Unmarshal(s.Changes, &stored); err != nil {
		return damaged(err)
	}
	f := Freeze{Digest: s.Digest, Dir: dir, At: s.At, Source: string(s.Source), Root: s.Root, Ignored: s.Ignored}
	class := newClassifier()
	for _, c := range stored {
		path := c.Path
		if len(c.Raw) > 0 {
			path = string(c.Raw)
		}
		if !safefs.Valid(path) || !c.Before.isValid() || !c.After.isValid() {
			return damaged(fmt.Errorf("path %q", path))
		}
		f.Changes = append(f.Changes, class.classify(Change{Path: path, Kind: c.Kind, Before: c.Before.entry(path), After: c.After.entry(path)}))
	}
	if digest(f.Changes) != f.Digest {
		return damaged(errors.New("its digest does not match"))
	}
	return f, nil
}

func refusedError(refused []safefs.Refused) error {
	if len(refused) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %s", redact.Line(refused[0].Path), refused[0].Why)
}
