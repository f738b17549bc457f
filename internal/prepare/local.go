package prepare

import (
	"context"
	"errors"
	"maps"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

// DefaultWait bounds how long one preparation waits for another: a slow network has to fetch some 170 MB.
const DefaultWait = 20 * time.Minute

const stagePrefix = ".stage"

// LocalRequest says what is installed for local targets.
type LocalRequest struct {
	Dir     string // where the search for the project starts
	Project string // the project's root, where the user names it
	Target  string // that the project has to have, "" for none: all local targets share what is prepared
	// Own are the user's binaries of programs, absolute, by the programs' names: they are used, and nothing is installed.
	Own map[string]string
}

// Local installs the programs for local targets: with the failures of Local, and those of the project where a target is named.
func (s *Service) Local(ctx context.Context, r LocalRequest) ([]LocalResult, error) {
	dir, err := s.Home()
	if err != nil {
		return nil, err
	}
	if r.Target != "" {
		root, err := project.Find(r.Dir, r.Project, dir)
		if err != nil {
			return nil, err
		}
		p, err := s.Project(ctx, root)
		if err != nil {
			return nil, err
		}
		if _, err := p.TargetsOf(localKind, r.Target, "laufwerk prepare local"); err != nil {
			return nil, err
		}
	}
	opened, err := s.Open(ctx, true)
	if err != nil {
		return nil, err
	}
	vars := maps.Clone(s.Vars)
	for _, name := range s.Programs.APIKeys() {
		delete(vars, name)
	}
	var out []LocalResult
	for _, p := range s.Programs.Installable() {
		binary := r.Own[p.Name()]
		if binary == "" && len(r.Own) > 0 {
			continue
		}
		one, err := Local(ctx, LocalOptions{Program: p, Home: opened.Home, Vars: vars, Now: s.Now, Command: s.Command, Wait: DefaultWait, Say: s.Say, Binary: binary})
		if err != nil {
			return out, err
		}
		out = append(out, one)
	}
	return out, nil
}

// localKind is the kind of the targets that share what is installed on this machine.
const localKind = "local"

// LocalOptions of an installation on this machine.
type LocalOptions struct {
	Program agent.Program // it has a recipe
	Home    *store.Home   // made
	Vars    map[string]string
	Now     func() time.Time
	Command string // how this process was called, for the lock
	Wait    time.Duration
	Binary  string // an own binary of the program, absolute; "" installs the pinned one
	// Say tells what takes its time.
	Say func(format string, args ...any)
}

// LocalResult is what is prepared now.
type LocalResult struct {
	Program string `json:"program"`
	Version string `json:"version"`
	Path    string `json:"path"`
	Receipt string `json:"manifestPath"`
	Recipe  string `json:"recipe"`
	Reused  bool   `json:"reused"` // nothing was done, nothing was written
	Pinned  string `json:"pinnedVersion"`
}

// Local installs a program for local targets. Failures: NotReady (Node, the network, the disk: what to do is said), LockHeld
// with the holder, InputInvalid for an own binary that is none.
func Local(ctx context.Context, o LocalOptions) (LocalResult, error) {
	if o.Binary != "" {
		return o.recordOwn(ctx)
	}
	if r, err := o.installed(); err == nil && r.Recipe != agent.OwnBinary {
		return o.result(r, true), nil
	}
	l, err := o.lock(ctx)
	if err != nil {
		return LocalResult{}, err
	}
	defer l.Release()
	if r, err := o.installed(); err == nil && r.Recipe != agent.OwnBinary {
		return o.result(r, true), nil // somebody else was quicker
	}
	if err := o.sweep(); err != nil {
		return LocalResult{}, err
	}
	tree := o.tree()
	path, err := o.binary(tree)
	if err != nil {
		return LocalResult{}, err
	}
	if err := o.verify(ctx, path); err != nil {
		if err := o.install(ctx, tree); err != nil {
			return LocalResult{}, err
		}
	}
	r, err := o.record(path, o.Program.Recipe().Version, o.Program.Recipe().Digest())
	if err != nil {
		return LocalResult{}, err
	}
	o.dropOthers(tree)
	return o.result(r, false), nil
}

func (o LocalOptions) recordOwn(ctx context.Context) (LocalResult, error) {
	name := o.Program.Name()
	wrong := func(err error, format string, args ...any) error {
		return failure.New(failure.InputInvalid, format, args...).WithPaths(o.Binary).WithHint("laufwerk prepare local").WithCause(err)
	}
	info, err := files.Stat(o.Binary)
	switch {
	case err != nil:
		return LocalResult{}, wrong(err, "--%s cannot be used", name)
	case !info.Mode().IsRegular() || info.Mode()&0o111 == 0:
		return LocalResult{}, wrong(nil, "--%s %s is no program that can be started", name, o.Binary)
	}
	if why := projectfs.Untrusted(o.Binary); why != "" {
		return LocalResult{}, wrong(nil, "--%s %s is refused, since it would run as you: %s", name, o.Binary, why)
	}
	tmp, err := files.TempDir("laufwerk-version-")
	if err != nil {
		return LocalResult{}, failure.Wrap(err, failure.Failed, "make a temporary directory")
	}
	defer func() { _ = files.RemoveAll(tmp) }()
	version, err := o.versionOf(ctx, o.Binary, tmp)
	if err != nil {
		return LocalResult{}, wrong(err, "--%s %s does not print its version", name, o.Binary)
	}
	same := func() (agent.Receipt, bool) {
		r, err := o.installed()
		return r, err == nil && r.Recipe == agent.OwnBinary && r.Path == o.Binary && r.Version == version
	}
	if r, ok := same(); ok {
		return o.result(r, true), nil
	}
	l, err := o.lock(ctx)
	if err != nil {
		return LocalResult{}, err
	}
	defer l.Release()
	if r, ok := same(); ok {
		return o.result(r, true), nil
	}
	if err := o.sweep(); err != nil {
		return LocalResult{}, err
	}
	r, err := o.record(o.Binary, version, agent.OwnBinary)
	return o.result(r, false), err
}

func (o LocalOptions) result(r agent.Receipt, reused bool) LocalResult {
	return LocalResult{
		Program: o.Program.Name(), Version: r.Version, Path: r.Path, Recipe: r.Recipe, Reused: reused, Pinned: o.Program.Recipe().Version,
		Receipt: agent.ReceiptPath(o.Home.Dir(), o.Program.Name()),
	}
}

func (o LocalOptions) installed() (agent.Receipt, error) {
	return agent.ReadInstalled(o.Home.Dir(), o.Program, "")
}

func (o LocalOptions) folder() string { return agent.Folder(o.Home.Dir(), o.Program.Name()) }

func (o LocalOptions) tree() string {
	return filepath.Join(o.folder(), strings.TrimPrefix(o.Program.Recipe().Digest(), "sha256:")[:16])
}

// binary is the native executable in an installed tree.
func (o LocalOptions) binary(tree string) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	path := o.Program.Recipe().Binary(platform)
	if path == "" {
		return "", failure.New(failure.NotReady, "agents run on this host only on Linux; this is %s", platform)
	}
	return filepath.Join(tree, filepath.FromSlash(path)), nil
}

func (o LocalOptions) lock(ctx context.Context) (*lock.Lock, error) {
	path := o.Home.LockFile("prepare-" + o.Program.Name())
	l, err := lock.Acquire(ctx, path, lock.Exclusive, 0, o.Command)
	if failure.Is(err, failure.LockBusy) {
		h, _, _ := lock.Query(path)
		o.Say("waiting for %s\n", h)
		l, err = lock.Acquire(ctx, path, lock.Exclusive, o.Wait, o.Command)
	}
	if e := failure.As(err); e != nil {
		e.Hint = "laufwerk prepare local"
	}
	return l, err
}

// mark is what every process that installs for this home carries.
func (o LocalOptions) mark() string { return "prepare:" + o.Home.Dir() }

// sweep ends and removes what a killed preparation left. The lock is held, so nothing of it belongs to a living one.
func (o LocalOptions) sweep() error {
	left, err := process.FindMarked(supervise.MarkVariable, func(v string) bool { return v == o.mark() })
	if err == nil {
		for _, id := range left {
			_ = process.Signal(id, syscall.SIGKILL)
		}
	}
	if err := files.MkdirAll(o.folder()); err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "make %s", o.folder())
	}
	names, err := files.Names(o.folder())
	if err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "read %s", o.folder())
	}
	for _, n := range names {
		if strings.HasPrefix(n, stagePrefix) {
			// What cannot go now, because an installer that was just killed still wrote, goes the next time.
			_ = files.RemoveAll(filepath.Join(o.folder(), n))
		}
	}
	return nil
}

// verify fails where an installed tree, of which a killed preparation has written no receipt, does not hold what it should.
func (o LocalOptions) verify(ctx context.Context, path string) error {
	info, err := files.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return errors.New("it is no program")
	}
	tmp, err := files.Stage(o.folder(), stagePrefix)
	if err != nil {
		return err
	}
	defer func() { _ = files.RemoveAll(tmp) }()
	version, err := o.versionOf(ctx, path, tmp)
	if pinned := o.Program.Recipe().Version; err == nil && version != pinned {
		err = failure.New(failure.NotReady, "it is %s %s, and not %s", o.Program.Title(), version, pinned)
	}
	return err
}

func (o LocalOptions) install(ctx context.Context, tree string) (err error) {
	title, recipe := o.Program.Title(), o.Program.Recipe()
	m, err := findManager(ctx, o.Program, o.Vars)
	if err != nil {
		return err
	}
	if free, err := files.Space(o.folder()); err == nil && free.Bytes < recipe.Space {
		return failure.New(failure.NotReady, "installing %s needs %d MiB in %s, and %d MiB are free", title, recipe.Space>>20, o.Home.Dir(), free.Bytes>>20).
			WithHint("df -h %s", failure.Quote(o.Home.Dir()))
	}
	o.Say("installing %s %s with %s\n", title, recipe.Version, m.path)
	crash.Point("prepare/before-stage")
	stage, err := files.Stage(o.folder(), stagePrefix)
	if err != nil {
		return failure.Wrap(err, failure.HomeInvalid, "make a directory in %s", o.folder())
	}
	defer func() { _ = files.RemoveAll(stage) }() // nothing is there any more once it was published
	for _, f := range recipe.Files() {
		if err := files.Create(filepath.Join(stage, f.Name), f.Content); err != nil {
			return failure.Wrap(err, failure.Failed, "write the recipe")
		}
	}
	crash.Point("prepare/before-install")
	if err := m.install(ctx, o.Program, stage, supervise.MarkVariable+"="+o.mark(), o.Vars); err != nil {
		return err
	}
	crash.Point("prepare/after-install")
	path, err := o.binary(stage)
	if err != nil {
		return err
	}
	if err := o.verify(ctx, path); err != nil {
		return failure.New(failure.NotReady, "%s installed %s, but %s cannot be used: %v", m.name, title, strings.TrimPrefix(path, stage+"/"), err).
			WithHint("laufwerk prepare local\n%s", withOwn(o.Program))
	}
	if err := files.SyncAll(stage); err != nil {
		return failure.Wrap(err, failure.Failed, "make the installed files durable")
	}
	if files.Exists(tree) { // it is not whole: a program that starts from it fails either way
		if err := files.Rename(tree, filepath.Join(stage, "replaced")); err != nil {
			return failure.Wrap(err, failure.Failed, "move the damaged %s away", tree)
		}
	}
	crash.Point("prepare/before-publish")
	if err := files.Rename(stage, tree); err != nil {
		return failure.Wrap(err, failure.Failed, "put %s in its place", tree)
	}
	crash.Point("prepare/after-publish")
	return files.RemoveAll(filepath.Join(tree, "replaced"))
}

func (o LocalOptions) record(path, version, recipe string) (agent.Receipt, error) {
	r := agent.Receipt{Format: agent.ReceiptFormat, Program: o.Program.Name(), Version: version, Path: path, Recipe: recipe, At: o.Now().UTC()}
	crash.Point("prepare/before-receipt")
	if err := files.WriteJSON(agent.ReceiptPath(o.Home.Dir(), o.Program.Name()), r); err != nil {
		return r, failure.Wrap(err, failure.HomeInvalid, "write the receipt")
	}
	crash.Point("prepare/after-receipt")
	return r, nil
}

// dropOthers removes the trees of other recipes from which nothing runs.
func (o LocalOptions) dropOthers(tree string) {
	names, err := files.Names(o.folder())
	if err != nil {
		return
	}
	for _, n := range names {
		dir := filepath.Join(o.folder(), n)
		info, err := files.Lstat(dir)
		if err != nil || !info.IsDir() || dir == tree || len(process.Executing(dir)) > 0 {
			continue
		}
		crash.Point("prepare/before-drop")
		// Under a name that no receipt has: what a kill leaves of it is swept.
		aside := filepath.Join(o.folder(), stagePrefix+"-"+n)
		if files.Rename(dir, aside) == nil {
			_ = files.RemoveAll(aside)
		}
	}
}
