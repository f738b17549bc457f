package workspace

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// SkippedPath is a path of the source that was not copied.
type SkippedPath struct {
	Path   []byte `json:"path"`
	Why    string `json:"why"`              // for people
	Secret bool   `json:"secret,omitempty"` // an untracked file that looks like a secret: `include` copies it
}

// OpenRecord is what is known of a workspace since it was opened.
type OpenRecord struct {
	Mode    string        `json:"mode"`   // ModeCopy or ModeDirect
	Source  string        `json:"source"` // canonical absolute path
	Root    RootID        `json:"root"`   // of the source
	Tree    RootID        `json:"tree"`   // of the workspace: the copy, or the source itself
	Git     bool          `json:"git"`    // git said which files belong to it
	Skipped []SkippedPath `json:"skipped,omitempty"`
	Nested  [][]byte      `json:"nested,omitempty"` // submodules and other repositories inside a git source, whose contents are not copied; of another source, directories whose .git was left out
	Rules   Rules         `json:"rules"`
	// NoRepository says why the copy of a git source has no repository of its own.
	NoRepository string   `json:"noRepository,omitempty"`
	Base         Manifest `json:"-"` // of the copy
}

// Progress is how far a copy is.
type Progress struct {
	Files int64
	Bytes int64
}

// CopyRequest asks for a copy of a source.
type CopyRequest struct {
	Source   string   // directory
	Include  []string // patterns as in a .gitignore that add ignored paths, and files that look like secrets
	Dest     string   // the copy; it must not exist, its parent must
	State    string   // laufwerk's own state: never copied, and no source
	Owner    *Owner   // to whom the copy belongs with everything in it; nil: to this process
	Bounds   Bounds
	Progress func(Progress) // called now and then, by any goroutine; may be nil
}

// Owner is a user and a group, where that is not the worker's.
type Owner = safefs.Owner

// Copy copies a source into a new directory and lists what it wrote. Of a git source these are the tracked files and the
// untracked ones that are not ignored, as they lie in the work tree; of any other source everything. A ".git" is never
// copied. Modes, links (never followed) and empty directories are kept; hard links become separate files. Each file is
// consistent with its hash, also if the source is written meanwhile. What cannot be read fails as a whole, and is named.
func Copy(ctx context.Context, req CopyRequest) (OpenRecord, error) {
	source, err := canonical(req.Source)
	if err != nil {
		return OpenRecord{}, err
	}
	src, err := safefs.OpenRoot(source)
	if err != nil {
		return OpenRecord{}, sourceError(source, err)
	}
	defer src.Close()
	c := &copyOperation{req: req, src: src, opened: OpenRecord{Mode: ModeCopy, Source: source}}
	c.opened.Root = idOf(src)
	if err := c.refuseOwnState(); err != nil {
		return OpenRecord{}, err
	}
	if err := c.listTracked(ctx); err != nil {
		return OpenRecord{}, err
	}
	parent, err := safefs.OpenRoot(filepath.Dir(req.Dest))
	if err != nil {
		return OpenRecord{}, failure.Wrap(err, failure.Failed, "make the workspace")
	}
	defer parent.Close()
	name := filepath.Base(req.Dest)
	if err := parent.Mkdir(name, 0o700); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return OpenRecord{}, failure.New(failure.AlreadyExists, "%s exists already, and was not changed", redact.Line(req.Dest)).WithPaths(req.Dest)
		}
		return OpenRecord{}, failure.Wrap(err, failure.Failed, "make the workspace")
	}
	crash.Point("workspace/after-make-tree")
	c.dst, err = parent.OpenRoot(name)
	if err == nil {
		err = c.run(ctx)
		_ = c.dst.Close()
	}
	if err != nil {
		// Not on ctx: it may be what ended the copy.
		if refused, e := parent.RemoveAll(context.Background(), name); e != nil || len(refused) > 0 {
			return OpenRecord{}, failure.Wrap(err, failure.Failed, "copy %s (and the half copy %s could not be removed)", redact.Line(source), redact.Line(req.Dest))
		}
		return OpenRecord{}, failure.Wrap(err, failure.Failed, "copy %s", redact.Line(source))
	}
	if err := parent.SyncDir("."); err != nil {
		return OpenRecord{}, failure.Wrap(err, failure.Failed, "make the workspace durable")
	}
	return c.opened, nil
}

func idOf(r *safefs.Root) RootID {
	dev, ino := r.ID()
	return RootID{Dev: dev, Ino: ino}
}

func canonical(source string) (string, error) {
	abs, err := filepath.Abs(source)
	if err == nil {
		abs, err = filepath.EvalSymlinks(abs)
	}
	if err != nil {
		return "", sourceError(source, err)
	}
	return abs, nil
}

func sourceError(source string, err error) error {
	kind, why := failure.NotReady, err.Error()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind, why = failure.InputInvalid, "there is no such directory"
	case errors.Is(err, safefs.ErrNotDir):
		kind, why = failure.InputInvalid, "it is not a directory"
	case errors.Is(err, fs.ErrPermission):
		why = "it may not be read"
	}
	return failure.New(kind, "the source %s cannot be opened: %s", redact.Line(source), redact.Line(why)).WithPaths(source).
		WithHint("name a readable directory as `source` of Workspace.open")
}

type copyOperation struct {
	req    CopyRequest
	src    *safefs.Root
	dst    *safefs.Root
	opened OpenRecord
	git    *gitSource
	ignore *ignorer
	state  RootID // of our own state, zero where there is none

	dirs    []*Entry // those made, in order
	entries []*Entry
	files   atomic.Int64
	bytes   atomic.Int64

	mu         sync.Mutex
	unreadable []string
}

// refuseOwnState refuses a source inside our own state, and remembers the state's directory, so that it is left out of a source
// that contains it.
func (c *copyOperation) refuseOwnState() error {
	if c.req.State == "" {
		return nil
	}
	state, err := canonical(c.req.State)
	if err != nil {
		return nil //nolint:nilerr // no state yet: nothing to keep out
	}
	if c.opened.Source == state || strings.HasPrefix(c.opened.Source, state+"/") {
		return failure.New(failure.InputInvalid, "the source %s is inside laufwerk's own state %s", redact.Line(c.opened.Source), redact.Line(state)).
			WithHint("name a directory of your own as `source` of Workspace.open")
	}
	r, err := safefs.OpenRoot(state)
	if err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "open laufwerk's state")
	}
	defer r.Close()
	c.state = idOf(r)
	return nil
}

// listTracked asks git what belongs to the source, if it is a repository's.
func (c *copyOperation) listTracked(ctx context.Context) error {
	c.opened.Rules.Include = c.req.Include
	top := repositoryOf(c.opened.Source)
	if top == "" {
		c.ignore = newIgnorer(c.opened.Rules)
		return nil
	}
	g, err := readGitSource(ctx, c.opened.Source, top)
	if err != nil {
		return err
	}
	rules := Rules{Include: c.req.Include, Prefix: []byte(g.prefix), Exclude: g.exclude, Files: g.parents()}
	ignore := newIgnorer(rules)
	if g.prefix != "" && len(g.tracked) == 0 && ignore.decide(g.prefix, true) {
		c.ignore = newIgnorer(c.opened.Rules) // a directory that the repository around it ignores is a source of its own
		return nil
	}
	c.git, c.opened.Git, c.opened.Rules, c.ignore = g, true, rules, ignore
	return nil
}

func (c *copyOperation) run(ctx context.Context) error {
	r := startReaders(ctx, func(copier *safefs.Copier, e *Entry) error {
		copier.SetOwner(c.req.Owner)
		return c.copyFile(copier, e)
	})
	c.readIgnore("")
	if err := r.end(c.src.Walk(r.ctx, func(path string, info safefs.Info, err error) error { return c.visit(path, info, err, r.files) })); err != nil {
		return err
	}
	if len(c.unreadable) > 0 {
		sort.Strings(c.unreadable)
		return failure.New(failure.NotReady, "%s of the source cannot be read: %s", countNoun(len(c.unreadable), "path", "paths"), joinPaths(c.unreadable, 10)).
			WithPaths(c.unreadable...).WithHint("make them readable (chmod u+r), or ignore them in a .gitignore")
	}
	if err := c.makeRepository(ctx); err != nil {
		return err
	}
	if err := c.giveRepository(ctx); err != nil {
		return err
	}
	return c.finish()
}

// readIgnore takes over a directory's .gitignore, before anything in the directory is looked at.
func (c *copyOperation) readIgnore(dir string) {
	name := ".gitignore"
	if dir != "" {
		name = dir + "/.gitignore"
	}
	text, _, err := c.src.ReadFile(name, maxIgnoreFile)
	if err != nil {
		return
	}
	full := strings.TrimSuffix(c.ignore.prefix+dir, "/")
	c.ignore.add(full, text)
	c.opened.Rules.Files = append(c.opened.Rules.Files, IgnoreFile{Dir: []byte(full), Text: text})
}

func (c *copyOperation) visit(path string, info safefs.Info, err error, files chan<- *Entry) error {
	isDir := info.Type == safefs.Dir
	if base := path[strings.LastIndexByte(path, '/')+1:]; strings.EqualFold(base, ".git") {
		if dir := strings.TrimSuffix(path, base); dir != "" && (c.git == nil || !c.git.nested[strings.TrimSuffix(dir, "/")]) {
			c.opened.Nested = append(c.opened.Nested, []byte(strings.TrimSuffix(dir, "/")))
		}
		return safefs.SkipDir
	}
	if isTransient(path) {
		c.recordSkipped(path, "laufwerk is at work there, or was", false)
		if isDir {
			return safefs.SkipDir
		}
		return nil
	}
	if err != nil {
		return c.recordUnreadable(path, isDir, err)
	}
	if isDir && (RootID{info.Dev, info.Ino}) == c.state && c.state != (RootID{}) {
		c.recordSkipped(path, "laufwerk's own state", false)
		return safefs.SkipDir
	}
	if c.git != nil && c.git.nested[path] && isDir {
		c.opened.Nested = append(c.opened.Nested, []byte(path))
		return c.makeDir(path, info, safefs.SkipDir) // an empty directory, as in a clone without submodules
	}
	if isDir {
		return c.visitDir(path, info)
	}
	return c.visitFile(path, info, files)
}

func (c *copyOperation) visitDir(path string, info safefs.Info) error {
	if info.Mount {
		c.recordSkipped(path, "something is mounted there", false)
		return safefs.SkipDir
	}
	if c.git != nil && !c.ignore.included(path, true) && c.ignore.ignored(path, true) && !c.holdsTracked(path) {
		if len(c.ignore.include) == 0 {
			return safefs.SkipDir
		}
		return nil // made when something below it is included
	}
	if c.git == nil || !c.ignore.ignored(path, true) {
		c.readIgnore(path)
	}
	return c.makeDir(path, info, nil)
}

func (c *copyOperation) visitFile(path string, info safefs.Info, files chan<- *Entry) error {
	included := c.ignore.included(path, false)
	tracked := c.git != nil && c.git.tracked[path]
	if c.git != nil && !tracked && !c.git.untracked[path] && !included {
		return nil
	}
	if why := secretReason(path); why != "" && !tracked && !included {
		c.recordSkipped(path, "looks like a secret: "+why, true)
		return nil
	}
	switch {
	case info.Mount:
		c.recordSkipped(path, "something is mounted there", false)
		return nil
	case info.Type != safefs.File && info.Type != safefs.Symlink:
		c.recordSkipped(path, "a "+info.Type.String(), false)
		return nil
	}
	if err := c.makeParents(path); err != nil {
		return err
	}
	if len(c.entries) >= c.req.Bounds.orDefaults().Entries {
		return failure.New(failure.LimitExceeded, "the source has more than %d paths", c.req.Bounds.orDefaults().Entries)
	}
	e := &Entry{Path: path, Type: File}
	c.entries = append(c.entries, e)
	if info.Type == safefs.Symlink {
		return c.copyLink(e)
	}
	files <- e
	return nil
}

// isTransient says that something in the source's root is a write-back's staging directory or an init's: it is there for a moment,
// and belongs to nobody's work.
func isTransient(path string) bool {
	return !strings.Contains(path, "/") && (strings.HasPrefix(path, ".laufwerk-writeback-") || strings.HasPrefix(path, ".laufwerk-init"))
}

// holdsTracked says whether an ignored directory holds tracked files.
func (c *copyOperation) holdsTracked(dir string) bool { return c.git.trackedDirs[dir] }

func (c *copyOperation) recordSkipped(path, why string, secret bool) {
	c.opened.Skipped = append(c.opened.Skipped, SkippedPath{Path: []byte(path), Why: why, Secret: secret})
}

func (c *copyOperation) recordUnreadable(path string, isDir bool, err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	if c.git != nil && !c.ignore.included(path, isDir) && c.ignore.ignored(path, isDir) && !c.holdsTracked(path) {
		return nil
	}
	c.mu.Lock()
	c.unreadable = append(c.unreadable, path)
	c.mu.Unlock()
	return nil
}

// makeDir makes a directory that can be filled; finish gives it its mode.
func (c *copyOperation) makeDir(path string, info safefs.Info, then error) error {
	if err := c.makeParents(path); err != nil {
		return err
	}
	if err := c.dst.Mkdir(path, 0o700); err != nil {
		return err
	}
	c.dirs = append(c.dirs, &Entry{Path: path, Type: Dir, Mode: info.Mode})
	return then
}

// makeParents makes the ignored directories above an included path.
func (c *copyOperation) makeParents(path string) error {
	if c.git == nil || len(c.ignore.include) == 0 {
		return nil
	}
	for i := range len(path) {
		if path[i] != '/' {
			continue
		}
		if _, err := c.dst.Lstat(path[:i]); err == nil {
			continue
		}
		info, err := c.src.Lstat(path[:i])
		if err != nil {
			return err
		}
		if err := c.dst.Mkdir(path[:i], 0o700); err != nil {
			return err
		}
		c.dirs = append(c.dirs, &Entry{Path: path[:i], Type: Dir, Mode: info.Mode})
	}
	return nil
}

func (c *copyOperation) copyLink(e *Entry) error {
	target, err := c.src.Readlink(e.Path)
	if errors.Is(err, fs.ErrNotExist) {
		e.Type = vanished
		return nil
	}
	if err != nil {
		return err
	}
	e.Type, e.Mode, e.Link = Symlink, 0o777, target
	if err := c.dst.Symlink(string(target), e.Path); err != nil {
		return err
	}
	return c.setOwner(c.dst, e.Path)
}

func (c *copyOperation) copyFile(copier *safefs.Copier, e *Entry) error {
	got, err := copier.Copy(c.src, e.Path, c.dst, e.Path, nil, false)
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		e.Type = vanished
		return nil
	case errors.Is(err, fs.ErrPermission):
		c.mu.Lock()
		c.unreadable = append(c.unreadable, e.Path)
		c.mu.Unlock()
		e.Type = vanished
		return nil
	case errors.Is(err, safefs.ErrLink), errors.Is(err, safefs.ErrNotRegular), errors.Is(err, safefs.ErrNotDir):
		return failure.New(failure.NotReady, "%s changed its type while it was copied", redact.Line(e.Path)).WithPaths(e.Path).
			WithHint("wait until nothing changes the source, then run the command again")
	default:
		return err
	}
	e.Mode, e.Size, e.SHA256 = got.Now.Mode, got.Size, got.Sum.String()
	e.MTime, e.CTime, e.Inode = got.Now.MTimeNS, got.Now.CTimeNS, got.Now.Ino
	files, bytes := c.files.Add(1), c.bytes.Add(got.Size)
	if c.req.Progress != nil && (files%512 == 0 || got.Size >= 16<<20) {
		c.req.Progress(Progress{Files: files, Bytes: bytes})
	}
	return nil
}

// setOwner gives a path of the copy to whom it is to belong. That clears setuid and setgid of files.
func (c *copyOperation) setOwner(r *safefs.Root, path string) error {
	if c.req.Owner == nil {
		return nil
	}
	return r.Lchown(path, c.req.Owner.UID, c.req.Owner.GID)
}

// giveRepository gives away what makeRepository and git have written.
func (c *copyOperation) giveRepository(ctx context.Context) error {
	if c.req.Owner == nil || !c.opened.Rules.Repository {
		return nil
	}
	r, err := c.dst.OpenRoot(gitDir)
	if err != nil {
		return err
	}
	defer r.Close()
	err = r.Walk(ctx, func(path string, _ safefs.Info, err error) error { return errors.Join(err, c.setOwner(r, path)) })
	return errors.Join(err, c.setOwner(r, "."))
}

// finish gives directories their owner and modes, lowest first, makes everything durable, and lists it.
func (c *copyOperation) finish() error {
	sort.Slice(c.dirs, func(i, j int) bool { return c.dirs[i].Path < c.dirs[j].Path })
	for i := len(c.dirs) - 1; i >= 0; i-- {
		d := c.dirs[i]
		if err := c.setOwner(c.dst, d.Path); err != nil {
			return err
		}
		if d.Mode != 0o700 {
			if err := c.dst.Chmod(d.Path, d.Mode); err != nil {
				return err
			}
			if d.Mode&0o7000 != 0 { // the system may drop these
				info, err := c.dst.Lstat(d.Path)
				if err != nil {
					return err
				}
				d.Mode = info.Mode
			}
		}
	}
	all := make([]*Entry, 0, len(c.dirs)+len(c.entries))
	all = append(append(all, c.dirs...), c.entries...)
	sort.Slice(all, func(i, j int) bool { return all[i].Path < all[j].Path })
	var newest int64
	entries := make([]Entry, 0, len(all))
	for _, e := range all {
		if e.Type != vanished {
			entries = append(entries, *e)
			newest = max(newest, e.CTime)
		}
	}
	if err := c.setOwner(c.dst, "."); err != nil {
		return err
	}
	crash.Point("workspace/before-sync-tree")
	if err := c.dst.Sync(); err != nil {
		return err
	}
	if err := c.waitForClockTick(newest); err != nil {
		return err
	}
	c.opened.Tree = idOf(c.dst)
	c.opened.Base = Manifest{Root: c.opened.Tree, Entries: entries}
	if c.req.Progress != nil {
		c.req.Progress(Progress{Files: c.files.Load(), Bytes: c.bytes.Load()})
	}
	return nil
}

// waitForClockTick waits until the file system's clock is past the newest file: whatever is changed from now on gets another time
// than the base has, so that a time that is the same proves that nothing was changed.
func (c *copyOperation) waitForClockTick(newest int64) error {
	name := ".laufwerk-tick"
	for {
		_, err := c.dst.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			break
		}
		if err != nil {
			return err
		}
		name += "-"
	}
	for range 1000 {
		f, err := c.dst.Create(name, 0o600)
		if err != nil {
			return err
		}
		_ = f.Close()
		info, err := c.dst.Lstat(name)
		if e := c.dst.Remove(name); err == nil {
			err = e
		}
		if err != nil {
			return err
		}
		if info.CTimeNS > newest {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
