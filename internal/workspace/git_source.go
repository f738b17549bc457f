package workspace

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // the checksum that git's index ends with
	"encoding/binary"
	"errors"
	"io"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// gitSource is what git knows of a source: the only question that is ever asked of git, and of the source only.
type gitSource struct {
	tracked     map[string]bool // by the index
	trackedDirs map[string]bool // that hold tracked files, at any depth
	untracked   map[string]bool // and not ignored
	nested      map[string]bool // submodules and other repositories inside: their contents are not copied
	prefix      string          // of the source within the repository
	top         string          // directory of the repository's work tree
	exclude     []byte
}

// maxIgnoreFile bounds one ignore file.
const maxIgnoreFile = 1 << 20

// repositoryOf is the nearest directory from source upwards that holds a ".git"; "" where there is none.
func repositoryOf(source string) string {
	for dir := source; ; dir = filepath.Dir(dir) {
		if files.Exists(filepath.Join(dir, ".git")) {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// git runs one command on the source. No configuration but the repository's own is read, and of that nothing that starts a
// program: no monitor, no hook, no filter (none of the commands used runs one), no transport, no fetch of missing objects.
func git(ctx context.Context, dir string, read func(io.Reader) error, args ...string) error {
	return gitWith(ctx, dir, nil, read, args...)
}

// gitWith is git with an input. The repository is the one that was found, with its own directory as the work tree: neither a directory in the shape of a bare
// repository on the way to it, nor core.worktree, nor core.bare says otherwise.
func gitWith(ctx context.Context, dir string, input io.Reader, read func(io.Reader) error, args ...string) error {
	t := process.Tool{
		Name: "git", Dir: dir, Stdin: input,
		Args: append([]string{"-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.untrackedCache=false",
			"-c", "core.excludesFile=/dev/null", "-c", "safe.directory=*", "--no-pager", "--literal-pathspecs"}, args...),
		Env: []string{"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_SYSTEM=/dev/null", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_ATTR_NOSYSTEM=1",
			"GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_ALLOW_PROTOCOL=none", "GIT_NO_LAZY_FETCH=1", "GIT_NO_REPLACE_OBJECTS=1", "LC_ALL=C"},
	}
	if top := repositoryOf(dir); top != "" {
		t.Env = append(t.Env, "GIT_DIR="+filepath.Join(top, ".git"), "GIT_WORK_TREE="+top)
	}
	err := process.RunTool(ctx, t, read)
	var ended *process.ToolError
	switch {
	case errors.Is(err, process.ErrNoTool):
		return failure.New(failure.NotReady, "%s is a git repository, and git is not on PATH, and is needed to find out which files are ignored", redact.Line(dir)).
			WithHint("install git, or use a copy of the directory without its .git")
	case errors.As(err, &ended):
		return failure.New(failure.NotReady, "git cannot read the source %s: %s", redact.Line(dir), redact.Line(strings.TrimSpace(ended.Stderr))).
			WithHint("git -C %s status", redact.Line(dir))
	}
	return err
}

func readGitSource(ctx context.Context, source, top string) (*gitSource, error) {
	g := &gitSource{tracked: map[string]bool{}, trackedDirs: map[string]bool{}, untracked: map[string]bool{}, nested: map[string]bool{}, top: top}
	if rel, err := filepath.Rel(top, source); err == nil && rel != "." {
		g.prefix = filepath.ToSlash(rel)
	}
	err := git(ctx, source, func(r io.Reader) error {
		return eachRecord(r, func(line string) {
			about, path, _ := strings.Cut(line, "\t")
			if strings.HasPrefix(about, "160000 ") {
				g.nested[path] = true
			} else {
				g.tracked[path] = true
				for i := strings.LastIndexByte(path, '/'); i >= 0 && !g.trackedDirs[path[:i]]; i = strings.LastIndexByte(path[:i], '/') {
					g.trackedDirs[path[:i]] = true
				}
			}
		})
	}, "ls-files", "-z", "--stage")
	if err != nil {
		return nil, err
	}
	err = git(ctx, source, func(r io.Reader) error {
		return eachRecord(r, func(path string) {
			if dir, ok := strings.CutSuffix(path, "/"); ok {
				g.nested[dir] = true
			} else {
				g.untracked[path] = true
			}
		})
	}, "ls-files", "-z", "--others", "--exclude-standard")
	if err != nil {
		return nil, err
	}
	var exclude string
	err = git(ctx, source, func(r io.Reader) error {
		b, err := io.ReadAll(io.LimitReader(r, 64<<10))
		exclude = strings.TrimSuffix(string(b), "\n")
		return err
	}, "rev-parse", "--git-path", "info/exclude")
	if err != nil {
		return nil, err
	}
	if !filepath.IsAbs(exclude) {
		exclude = filepath.Join(source, exclude)
	}
	if dir, err := openDir(filepath.Dir(exclude)); err == nil {
		defer dir.Close()
		g.exclude, _, _ = dir.ReadFile(filepath.Base(exclude), maxIgnoreFile)
	}
	return g, nil
}

// openDir opens a directory of the source's repository, which may lie behind links: they are its owner's.
func openDir(path string) (*safefs.Root, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	return safefs.OpenRoot(real)
}

func eachRecord(r io.Reader, do func(string)) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 1<<20)
	s.Split(func(data []byte, eof bool) (int, []byte, error) {
		if i := bytes.IndexByte(data, 0); i >= 0 {
			return i + 1, data[:i], nil
		}
		if eof && len(data) > 0 {
			return 0, nil, io.ErrUnexpectedEOF
		}
		return 0, nil, nil
	})
	for s.Scan() {
		do(s.Text())
	}
	return s.Err()
}

// parents reads the .gitignore files between the top of the repository and the source.
func (g *gitSource) parents() []IgnoreFile {
	var out []IgnoreFile
	if g.prefix == "" {
		return nil
	}
	r, err := safefs.OpenRoot(g.top)
	if err != nil {
		return nil
	}
	defer r.Close()
	dir := ""
	for _, name := range append([]string{""}, strings.Split(g.prefix, "/")...) {
		if name != "" {
			dir = strings.TrimPrefix(dir+"/"+name, "/")
		}
		if dir == g.prefix {
			break // the source itself: read with the rest of it
		}
		if text, _, err := r.ReadFile(strings.TrimPrefix(dir+"/.gitignore", "/"), maxIgnoreFile); err == nil {
			out = append(out, IgnoreFile{Dir: []byte(dir), Text: text})
		}
	}
	return out
}

// indexWriter encodes git's index: see gitformat-index(5). It is of version 2, or 3 where an entry has extended flags.
type indexWriter struct{ b bytes.Buffer }

func newIndexWriter(entries []indexEntry) *indexWriter {
	w := &indexWriter{}
	version := uint32(2)
	for _, e := range entries {
		if e.extendedFlags() != 0 {
			version = 3
		}
	}
	w.b.WriteString("DIRC")
	w.u32(version)
	w.u32(uint32(len(entries)))
	return w
}

// extendedFlags are the flags that stand in an entry's second 16 bits.
func (e indexEntry) extendedFlags() uint16 {
	return uint16(e.flags & (intentToAdd | skipWorktree) >> 16)
}

const hasExtended = 1 << 14

func (w *indexWriter) u32(v uint32) { _ = binary.Write(&w.b, binary.BigEndian, v) }

// add appends an entry. The zero stat makes git look at the file's content the next time it is asked.
func (w *indexWriter) add(e indexEntry, id []byte, stat safefs.Info) {
	start := w.b.Len()
	w.u32(uint32(stat.CTimeNS / 1e9))
	w.u32(uint32(stat.CTimeNS % 1e9))
	w.u32(uint32(stat.MTimeNS / 1e9))
	w.u32(uint32(stat.MTimeNS % 1e9))
	w.u32(uint32(stat.Dev))
	w.u32(uint32(stat.Ino))
	w.u32(e.mode)
	w.u32(stat.UID)
	w.u32(stat.GID)
	w.u32(uint32(stat.Size))
	w.b.Write(id)
	flags := uint16(e.stage)<<12 | uint16(min(len(e.path), 0xfff))
	if more := e.extendedFlags(); more != 0 {
		_ = binary.Write(&w.b, binary.BigEndian, [2]uint16{flags | hasExtended, more})
	} else {
		_ = binary.Write(&w.b, binary.BigEndian, flags)
	}
	w.b.WriteString(e.path)
	// One to eight NULs, so that the entry's length is a multiple of eight.
	w.b.Write(make([]byte, 8-(w.b.Len()-start)%8))
}

func (w *indexWriter) finish() []byte {
	sum := sha1.Sum(w.b.Bytes()) //nolint:gosec // the checksum that git's index ends with
	w.b.Write(sum[:])
	return w.b.Bytes()
}
