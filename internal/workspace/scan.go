package workspace

import (
	"context"
	"errors"
	"io/fs"
	"runtime"
	"sort"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// What the Link of an Other says besides the names of fifos, sockets and devices.
const (
	Mounted        = "mount"
	UnreadableFile = "unreadable file"
	UnreadableDir  = "unreadable directory"
	TooLong        = "path longer than 4095 bytes"
)

// MaxPath is the longest path that is listed, in bytes: no longer one can be named in a system call.
const MaxPath = 4095

// Bounds of a manifest and a freeze; zero fields mean the defaults.
type Bounds struct {
	Entries int   // of a manifest: 2,000,000
	Files   int   // changed paths of a freeze: 100,000
	Bytes   int64 // of a freeze: 8 GiB
}

func (b Bounds) orDefaults() Bounds {
	if b.Entries <= 0 {
		b.Entries = 2_000_000
	}
	if b.Files <= 0 {
		b.Files = 100_000
	}
	if b.Bytes <= 0 {
		b.Bytes = 8 << 30
	}
	return b
}

// OpenTree opens a directory that must be the one it was: gone, or replaced by a link or another directory, is WorkspaceLost.
func OpenTree(path string, want RootID) (*safefs.Root, error) {
	r, err := safefs.OpenRoot(path)
	if err != nil {
		return nil, lostError(path, err)
	}
	if idOf(r) != want {
		_ = r.Close()
		return nil, lostError(path, safefs.ErrRootReplaced)
	}
	return r, nil
}

func lostError(path string, err error) error {
	if files.MachineFailed(err) {
		return failure.Wrap(err, failure.NotReady, "open the workspace %s", redact.Line(path))
	}
	why := "it cannot be opened"
	switch {
	case errors.Is(err, fs.ErrNotExist):
		why = "it is gone"
	case errors.Is(err, safefs.ErrLink):
		why = "it was replaced by a link"
	case errors.Is(err, safefs.ErrNotDir):
		why = "it was replaced by something else"
	case errors.Is(err, safefs.ErrRootReplaced):
		why = "it was replaced by another directory"
	}
	return failure.New(failure.WorkspaceLost, "the workspace %s is lost: %s", redact.Line(path), why).WithPaths(path).
		WithHint("laufwerk cleanup RUN --discard-changes").WithCause(err)
}

// ScanOptions say what counts as a workspace's content.
type ScanOptions struct {
	Rules  Rules
	Base   *Manifest // its paths always count; unchanged files (size, times and inode the same) are not hashed again
	Bounds Bounds    // Bytes counts only where there is a Base
}

// Scan lists a tree. Ignored paths that are neither in the base nor included are only counted (directories not). Fifos,
// sockets, devices, mounts and what cannot be read are entries of type Other, so that they can be refused by name. A file
// that is written meanwhile fails with WorkspaceBusy; a root that is gone or was replaced with WorkspaceLost.
func Scan(ctx context.Context, root *safefs.Root, opt ScanOptions) (Manifest, int, error) {
	if err := root.Check(root.Path()); err != nil {
		return Manifest{}, 0, lostError(root.Path(), err)
	}
	bounds := opt.Bounds.orDefaults()
	s := &scan{
		root: root, repository: opt.Rules.Repository, ignore: newIgnorer(opt.Rules), base: opt.Base, bounded: opt.Base != nil,
		max: bounds.Entries, bytes: bounds.Bytes, below: map[string]Entry{},
	}
	if s.base == nil {
		s.base = &Manifest{}
	}
	r := startReaders(ctx, s.hash)
	err := r.end(root.Walk(r.ctx, func(path string, info safefs.Info, err error) error { return s.visit(path, info, err, r.files) }))
	if err == nil {
		if e := root.Check(root.Path()); e != nil {
			err = lostError(root.Path(), e)
		}
	}
	if err != nil {
		return Manifest{}, 0, failure.Wrap(err, failure.Failed, "list %s", redact.Line(root.Path()))
	}
	m := Manifest{Root: idOf(root), Entries: make([]Entry, 0, len(s.entries))}
	sort.Slice(s.entries, func(i, j int) bool { return s.entries[i].Path < s.entries[j].Path })
	for _, e := range s.entries {
		if e.Type != vanished {
			m.Entries = append(m.Entries, *e)
		}
	}
	return m, s.ignored, nil
}

// vanished marks an entry whose file went away between the listing and the reading.
const vanished Type = ""

type scan struct {
	root       *safefs.Root
	repository bool
	ignore     *ignorer
	base       *Manifest
	max        int
	bytes      int64 // that may have changed, where there is a base
	bounded    bool
	changed    int64 // bytes of files that are certainly not as they were
	at         int   // position in base: both are in path order
	entries    []*Entry
	ignored    int
	below      map[string]Entry // ignored directories that were not listed: they are if something below them is
}

func (s *scan) visit(path string, info safefs.Info, err error, files chan<- *Entry) error {
	for s.at < len(s.base.Entries) && s.base.Entries[s.at].Path < path {
		s.at++
	}
	var was *Entry
	if s.at < len(s.base.Entries) && s.base.Entries[s.at].Path == path {
		was = &s.base.Entries[s.at]
	}
	if err != nil {
		return s.unreadable(path, info, err)
	}
	e := Entry{Path: path, Mode: info.Mode}
	isDir := info.Type == safefs.Dir
	if s.repository && path == gitDir && isDir && !info.Mount {
		return safefs.SkipDir
	}
	if was == nil && s.ignore.ignored(path, isDir) && !s.ignore.included(path, isDir) {
		if !isDir {
			s.ignored++
		} else if e.Type = Dir; !info.Mount {
			s.below[path] = e
		}
		return nil
	}
	if len(path) > MaxPath {
		s.list(otherEntry(e, TooLong))
		return safefs.SkipDir
	}
	switch {
	case info.Mount:
		s.list(otherEntry(e, Mounted))
	case info.Type == safefs.Dir:
		e.Type = Dir
		s.list(e)
	case info.Type == safefs.Symlink:
		target, err := s.root.Readlink(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		e.Type, e.Link, e.Mode = Symlink, target, 0o777
		s.list(e)
	case info.Type == safefs.File:
		if err := s.file(e, info, was, files); err != nil {
			return err
		}
	default:
		s.list(otherEntry(e, info.Type.String()))
	}
	if len(s.entries) > s.max {
		return failure.New(failure.LimitExceeded, "%s has more than %d paths", redact.Line(s.root.Path()), s.max)
	}
	return nil
}

// file lists a regular file, and has it read unless it certainly is as it was.
func (s *scan) file(e Entry, info safefs.Info, was *Entry, files chan<- *Entry) error {
	e.Type, e.Size, e.MTime, e.CTime, e.Inode = File, info.Size, info.MTimeNS, info.CTimeNS, info.Ino
	if was != nil && was.Type == File && was.CTime != 0 && was.Size == e.Size && was.MTime == e.MTime && was.CTime == e.CTime && was.Inode == e.Inode {
		e.SHA256 = was.SHA256
		s.list(e)
		return nil
	}
	if was == nil || was.Type != File || was.Size != e.Size {
		s.changed += min(e.Size, s.bytes+1)
	}
	if s.bounded && s.changed > s.bytes { // before reading it: what has no end in size would be read without end
		return failure.New(failure.LimitExceeded, "the workspace has more than %d changed bytes, %s among them", s.bytes, redact.Line(e.Path)).
			WithPaths(e.Path).WithHint("laufwerk cleanup RUN --discard-changes")
	}
	files <- s.list(e)
	return nil
}

func otherEntry(e Entry, what string) Entry {
	e.Type, e.Link = Other, []byte(what)
	return e
}

// list adds an entry, and before it the ignored directories above it.
func (s *scan) list(e Entry) *Entry {
	if len(s.below) > 0 {
		for i := range len(e.Path) {
			if e.Path[i] == '/' {
				if d, ok := s.below[e.Path[:i]]; ok {
					delete(s.below, e.Path[:i])
					s.entries = append(s.entries, &d)
				}
			}
		}
	}
	s.entries = append(s.entries, &e)
	return &e
}

// unreadable notes what the walk could not list or look at. A directory was told before, and listed if it counts.
func (s *scan) unreadable(path string, info safefs.Info, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if errors.Is(err, safefs.ErrMount) || errors.Is(err, safefs.ErrLink) || errors.Is(err, safefs.ErrNotDir) || errors.Is(err, safefs.ErrChanged) {
		return busyError(path, err)
	}
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	for i := len(s.entries) - 1; i >= 0 && s.entries[i].Path >= path; i-- {
		if s.entries[i].Path == path {
			*s.entries[i] = otherEntry(*s.entries[i], UnreadableDir)
			return nil
		}
	}
	if s.ignore.ignored(path, info.Type == safefs.Dir) && !s.base.hasEntriesBelow(path) {
		s.ignored++
		return nil
	}
	s.list(otherEntry(Entry{Path: path, Mode: info.Mode}, UnreadableFile))
	return nil
}

func busyError(path string, err error) error {
	return failure.New(failure.WorkspaceBusy, "%s changed while it was read: something still writes into the workspace", redact.Line(path)).
		WithPaths(path).WithHint("end the process that writes there, then run the command again").WithCause(err)
}

func (s *scan) hash(c *safefs.Copier, e *Entry) error {
	var err error
	for range 3 {
		var got safefs.Copied
		if got, err = c.Hash(s.root, e.Path); err == nil {
			e.Size, e.SHA256, e.Mode = got.Size, got.Sum.String(), got.Now.Mode
			e.MTime, e.CTime, e.Inode = got.Now.MTimeNS, got.Now.CTimeNS, got.Now.Ino
			return nil
		}
		if !errors.Is(err, safefs.ErrChanged) {
			break
		}
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		e.Type = vanished
		return nil
	case errors.Is(err, fs.ErrPermission):
		e.Type, e.Link, e.Size = Other, []byte(UnreadableFile), 0 // not the path: the walk reads it meanwhile
		return nil
	case errors.Is(err, safefs.ErrChanged), errors.Is(err, safefs.ErrNotRegular), errors.Is(err, safefs.ErrLink), errors.Is(err, safefs.ErrMount):
		return busyError(e.Path, err)
	}
	return err
}

// joinPaths joins paths for a message: the first ones, each on one line, and how many more there are.
func joinPaths(paths []string, most int) string {
	shown := make([]string, 0, most)
	for i, p := range paths {
		if i == most {
			return strings.Join(shown, ", ") + ", …"
		}
		shown = append(shown, redact.Line(p))
	}
	return strings.Join(shown, ", ")
}

// readers read the contents of files while a walk goes on finding more.
type readers struct {
	files chan *Entry
	ctx   context.Context //nolint:containedctx // that of the walk, which ends with the first error of either
	stop  context.CancelCauseFunc
	all   sync.WaitGroup
}

// startReaders has each called with every entry that is sent to files, by one goroutine for each processor and at least two.
func startReaders(ctx context.Context, each func(*safefs.Copier, *Entry) error) *readers {
	r := &readers{files: make(chan *Entry, 256)}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	for range max(2, runtime.NumCPU()) {
		r.all.Go(func() {
			c := safefs.NewCopier()
			for e := range r.files {
				if r.ctx.Err() != nil {
					continue // the walk must not wait for us
				}
				if err := each(c, e); err != nil {
					r.stop(err)
				}
			}
		})
	}
	return r
}

// end waits for the readers after the walk, and returns the first error of all.
func (r *readers) end(walked error) error {
	if walked != nil {
		r.stop(walked)
	}
	close(r.files)
	r.all.Wait()
	err := context.Cause(r.ctx)
	r.stop(nil)
	return err
}
