package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// A session's directory:
//
//	session.json   whose it is
//	home           the agent program's private home; the agent writes it
//	ops/<attempt>  the records of supervisors
//
// It appears under its name whole, by a rename from <name>.making, and leaves it whole, by a rename to <name>.ending: a
// directory of our name without our identity is therefore never ours.
const (
	identityName = "session.json"
	homeName     = "home"
	opsName      = "ops"
	making       = ".making"
	ending       = ".ending"
)

// maxIdentity bounds what is read of an identity, in bytes.
const maxIdentity = 64 << 10

// identity says whose a directory is.
type identity struct {
	Claim string `json:"claim"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Mark  string `json:"mark"`
}

// place is a session's directory, by its parent, which is trusted.
type place struct {
	dir    string
	name   string
	id     identity
	parent *safefs.Root
}

func open(in providers.Intent) (*place, error) {
	var s spec
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return nil, fmt.Errorf("the intent's spec: %w", err)
	}
	if !filepath.IsAbs(s.Dir) || s.Mark == "" {
		return nil, errors.New("the intent's spec has no absolute directory or no mark")
	}
	p := &place{dir: s.Dir, name: filepath.Base(s.Dir), id: identity{Claim: in.Claim, Name: in.Name, Owner: in.Owner, Mark: s.Mark}}
	var err error
	p.parent, err = safefs.OpenRoot(filepath.Dir(s.Dir))
	return p, err
}

func (p *place) close() {
	if p != nil {
		_ = p.parent.Close()
	}
}

// whose says what is under a name: ours, a stranger's, or nothing.
func (p *place) whose(name string) (providers.Presence, error) {
	info, err := p.parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return providers.Absent, nil
	}
	if err != nil {
		return providers.Unseen, err
	}
	if info.Type != safefs.Dir {
		return providers.Foreign, fmt.Errorf("%s is a %s", p.dir, info.Type)
	}
	b, _, err := p.parent.ReadFile(name+"/"+identityName, maxIdentity)
	if errors.Is(err, fs.ErrNotExist) {
		return providers.Foreign, fmt.Errorf("%s has no %s", filepath.Join(filepath.Dir(p.dir), name), identityName)
	}
	if err != nil {
		return providers.Unseen, err
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil || id != p.id {
		return providers.Foreign, fmt.Errorf("%s belongs to another session", filepath.Join(filepath.Dir(p.dir), name))
	}
	return providers.Present, nil
}

// Create makes the session's directory.
func (p *Provider) Create(ctx context.Context, in providers.Intent) providers.Result {
	if err := makeParent(in); err != nil {
		return providers.Result{Done: providers.No, Err: err}
	}
	return p.Resolve(ctx, in)
}

func makeParent(in providers.Intent) error {
	var s spec
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return fmt.Errorf("the intent's spec: %w", err)
	}
	return files.MkdirAll(filepath.Dir(s.Dir))
}

// Resolve finishes what a Create began: a directory is either not there yet, or whole.
func (p *Provider) Resolve(ctx context.Context, in providers.Intent) providers.Result {
	failed := func(err error) providers.Result {
		return providers.Result{Done: providers.No, Err: fmt.Errorf("make the session's directory: %w", err)}
	}
	if err := makeParent(in); err != nil {
		return failed(err)
	}
	at, err := open(in)
	defer at.close()
	if err != nil {
		return failed(err)
	}
	done := func(what string) providers.Result {
		return providers.Result{Done: providers.Yes, Resource: at.dir, Evidence: p.saw("%s %s", what, at.dir)}
	}
	switch presence, err := at.whose(at.name); presence {
	case providers.Present:
		return done("found")
	case providers.Foreign:
		return failed(failure.New(failure.AlreadyExists, "%v, and is left alone", err).WithPaths(at.dir))
	case providers.Unseen:
		return providers.Result{Err: err}
	}
	if err := at.make(ctx); err != nil {
		presence, _ := at.whose(at.name)
		if presence == providers.Present { // it is there, and only its durability is not certain
			return providers.Result{Err: err}
		}
		return failed(err)
	}
	return done("made")
}

func (p *place) make(ctx context.Context) error {
	tmp := p.name + making
	if err := p.remove(ctx, making); err != nil {
		return err
	}
	crash.Point("local/before-mkdir")
	for _, d := range []string{tmp, tmp + "/" + homeName, tmp + "/" + opsName} {
		if err := p.parent.Mkdir(d, 0o700); err != nil {
			return err
		}
	}
	b, err := json.Marshal(p.id)
	if err != nil {
		return err
	}
	f, err := p.parent.Create(tmp+"/"+identityName, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Write(append(b, '\n')); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if err := p.parent.SyncDir(tmp); err != nil {
		return err
	}
	crash.Point("local/before-rename")
	if err := p.rename(tmp, p.name); err != nil {
		return err
	}
	crash.Point("local/after-rename")
	return p.parent.SyncDir(".")
}

// rename replaces nothing, also where the file system cannot promise that: nobody but us works in the parent.
func (p *place) rename(from, to string) error {
	err := p.parent.RenameNoReplace(from, to)
	if errors.Is(err, safefs.ErrNotSupported) {
		if _, e := p.parent.Lstat(to); !errors.Is(e, fs.ErrNotExist) {
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
		err = p.parent.Rename(from, to)
	}
	return err
}

// remove removes what an interrupted making or ending has left, or the ending itself.
func (p *place) remove(ctx context.Context, suffix string) error {
	refused, err := p.parent.RemoveAll(ctx, p.name+suffix)
	if err == nil && len(refused) > 0 {
		err = failure.New(failure.Retained, "%s cannot be removed: %s", refused[0].Path, refused[0].Why).WithPaths(refused[0].Path)
	}
	return err
}

// Observe looks for the directory, for what an interrupted making or ending has left, and for processes of the session.
func (p *Provider) Observe(ctx context.Context, in providers.Intent) providers.Observation {
	if endpoint, err := p.Endpoint(ctx, providers.Definition{}); err != nil || endpoint != in.Endpoint {
		return providers.Observation{Err: fmt.Errorf("it was made on %q, and this is %q", in.Endpoint, endpoint)}
	}
	at, err := open(in)
	defer at.close()
	if errors.Is(err, fs.ErrNotExist) {
		return p.absent(in)
	}
	if err != nil {
		return providers.Observation{Err: err}
	}
	presence, err := at.whose(at.name)
	if presence != providers.Absent {
		return providers.Observation{Presence: presence, Resource: at.dir, Err: err, Evidence: p.saw("%s is %s", at.dir, presence)}
	}
	for _, suffix := range []string{making, ending} {
		if _, err := at.parent.Lstat(at.name + suffix); !errors.Is(err, fs.ErrNotExist) {
			return providers.Observation{Err: err, Evidence: p.saw("%s%s is still there", at.dir, suffix)}
		}
	}
	return p.absent(in)
}

// absent is said of a missing directory only where no process of the session is found either.
func (p *Provider) absent(in providers.Intent) providers.Observation {
	var s spec
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return providers.Observation{Err: err}
	}
	found, err := supervise.Remains(s.Mark)
	if err != nil {
		return providers.Observation{Err: err}
	}
	if len(found) > 0 {
		return providers.Observation{
			Err:      fmt.Errorf("its directory is gone, but %s still lives", strings.Join(found, ", ")),
			Evidence: p.saw("directory absent at %s; %s", s.Dir, strings.Join(found, ", ")),
		}
	}
	return providers.Observation{
		Presence: providers.Absent, Evidence: p.saw("directory absent at %s; no process and no control group of %s", s.Dir, s.Mark),
	}
}

// Delete ends everything that runs in the session, and only when that is certain removes its directory.
func (p *Provider) Delete(ctx context.Context, in providers.Intent) providers.Result {
	if endpoint, err := p.Endpoint(ctx, providers.Definition{}); err != nil || endpoint != in.Endpoint {
		return providers.Result{Done: providers.No, Err: fmt.Errorf("it was made on %q, and this is %q", in.Endpoint, endpoint)}
	}
	at, err := open(in)
	defer at.close()
	if errors.Is(err, fs.ErrNotExist) {
		return providers.Result{Done: providers.Yes, Evidence: p.saw("nothing at %s", filepath.Dir(at.dir))}
	}
	if err != nil {
		return providers.Result{Err: err}
	}
	var evidence []providers.Evidence
	switch presence, err := at.whose(at.name); presence {
	case providers.Foreign:
		return providers.Result{Done: providers.No, Err: failure.New(failure.AlreadyExists, "%v, and is left alone", err).WithPaths(at.dir)}
	case providers.Unseen:
		return providers.Result{Err: err}
	case providers.Present:
		f := fence(ctx, p.launcher(), at.dir)
		evidence = p.saw("fenced by %s: sure %t %s", f.How, f.Sure, f.Why)
		if !f.Sure {
			return providers.Result{Done: providers.No, Evidence: evidence, Err: failure.New(failure.OutcomeUnknown,
				"it cannot be made sure that nothing of the session runs any more: %s", f.Why).WithField("survivors", f.Survivors)}
		}
		if err := at.remove(ctx, ending); err != nil {
			return providers.Result{Done: providers.No, Evidence: evidence, Err: err}
		}
		crash.Point("local/before-ending")
		if err := at.rename(at.name, at.name+ending); err != nil {
			return providers.Result{Done: providers.No, Evidence: evidence, Err: err}
		}
		crash.Point("local/after-ending")
	}
	for _, suffix := range []string{making, ending} {
		if err := at.remove(ctx, suffix); err != nil {
			return providers.Result{Evidence: evidence, Err: err}
		}
	}
	crash.Point("local/after-remove")
	return providers.Result{Done: providers.Yes, Evidence: append(evidence, p.saw("removed %s", at.dir)...), Err: at.parent.SyncDir(".")}
}

// fence ends what the supervisors of a session's directory may still own.
func fence(ctx context.Context, l supervise.Launcher, dir string) supervise.Fenced {
	names, err := files.Names(filepath.Join(dir, opsName))
	if err != nil {
		return supervise.Fenced{Why: err.Error()}
	}
	for i, n := range names {
		names[i] = filepath.Join(dir, opsName, n)
	}
	return supervise.FenceAll(ctx, l, names)
}

func (p *Provider) saw(format string, args ...any) []providers.Evidence {
	return []providers.Evidence{{At: p.now().UTC(), What: fmt.Sprintf(format, args...)}}
}
