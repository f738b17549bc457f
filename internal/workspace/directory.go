package workspace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// The modes of a workspace.
const (
	ModeCopy   = "copy"
	ModeDirect = "direct"
)

// What is in a workspace's directory. The identity is there from the first moment on, and goes last: it is what tells our
// directory from a stranger's of the same name. `opened` is written when everything else is complete.
const (
	identityFile = "identity"
	baseFile     = "base"
	openedFile   = "opened"
	treeDir      = "tree"
)

// Spec is what the Intent of a workspace says.
type Spec struct {
	Dir     string   `json:"dir"`    // $LAUFWERK_HOME/workspaces/<name>
	Source  string   `json:"source"` // absolute
	Include []string `json:"include,omitempty"`
	Mode    string   `json:"mode"` // ModeCopy or ModeDirect
	// Owner of a copy; nil is the worker. The directory and what else is in it stay the worker's.
	Owner *Owner `json:"owner,omitempty"`
}

// TreePath is where the workspace's files are, for an opened workspace in dir.
func TreePath(dir string, o OpenRecord) string {
	if o.Mode == ModeDirect {
		return o.Source
	}
	return filepath.Join(dir, treeDir)
}

// LoadOpenRecord reads what is known of the workspace in dir since it was opened, with its base. A workspace that was not
// completed is fs.ErrNotExist.
func LoadOpenRecord(dir string) (OpenRecord, error) {
	var o OpenRecord
	if err := files.ReadJSON(filepath.Join(dir, openedFile), &o); err != nil {
		return o, failure.Wrap(err, failure.StoreInvalid, "read what is known of the workspace %s", dir)
	}
	if o.Mode == ModeDirect {
		return o, nil
	}
	var err error
	o.Base, err = LoadManifest(filepath.Join(dir, baseFile))
	return o, err
}

// Resources makes and ends the directories of workspaces. Everything is worked out from the intent.
type Resources struct {
	state    string
	bounds   Bounds
	now      func() time.Time
	progress func(Progress)
}

var _ resource.Manager = (*Resources)(nil)

// NewResources serves workspaces below a state directory ($LAUFWERK_HOME). Progress may be nil.
func NewResources(state string, bounds Bounds, now func() time.Time, progress func(Progress)) *Resources {
	return &Resources{state: state, bounds: bounds, now: now, progress: progress}
}

// directoryIdentity is what our directory says about itself.
type directoryIdentity struct {
	Claim string `json:"claim"`
	Owner string `json:"owner"`
	Name  string `json:"name"`
}

// intentDir is an intent's directory, and its twin: where the directory is put together before, and taken apart after, so that
// under its own name it always has its identity.
type intentDir struct {
	spec   Spec
	id     directoryIdentity
	parent *safefs.Root
	name   string
	twin   string
}

func (r *Resources) intentDir(in resource.Intent) (*intentDir, error) {
	p := &intentDir{id: directoryIdentity{Claim: in.Claim, Owner: in.Owner, Name: in.Name}}
	if err := json.Unmarshal(in.Spec, &p.spec); err != nil {
		return nil, failure.Wrap(err, failure.Internal, "read the intent of a workspace")
	}
	p.name = filepath.Base(p.spec.Dir)
	p.twin = "." + p.name + ".part"
	if !filepath.IsAbs(p.spec.Dir) || !safefs.Valid(p.name) || strings.HasPrefix(p.name, ".") {
		return nil, failure.New(failure.Internal, "the intent of a workspace names the directory %q", p.spec.Dir)
	}
	var err error
	p.parent, err = safefs.OpenRoot(filepath.Dir(p.spec.Dir))
	return p, err
}

// identify says what is at a name: our directory (Present), nothing (Absent) or something else (NotOurs).
func (p *intentDir) identify(name string) (resource.Presence, error) {
	info, err := p.parent.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return resource.Absent, nil
	case err != nil:
		return resource.Unobserved, err
	case info.Type != safefs.Dir || info.Mount:
		return resource.Foreign, nil
	}
	b, _, err := p.parent.ReadFile(name+"/"+identityFile, 4096)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, safefs.ErrNotRegular), errors.Is(err, safefs.ErrLink):
		return resource.Foreign, nil
	case err != nil:
		return resource.Unobserved, err
	}
	var id directoryIdentity
	if json.Unmarshal(b, &id) != nil || id != p.id {
		return resource.Foreign, nil //nolint:nilerr // whoever wrote it, we did not
	}
	return resource.Present, nil
}

// identifyTwin is whose for the twin, which is ours as well while it holds nothing, or nothing but temporary files.
func (p *intentDir) identifyTwin() (resource.Presence, error) {
	got, err := p.identify(p.twin)
	if got != resource.Foreign || err != nil {
		return got, err
	}
	ns, err := p.parent.ReadDir(p.twin)
	if err != nil {
		return resource.Foreign, nil //nolint:nilerr // not a directory of ours
	}
	for _, n := range ns {
		if !strings.HasPrefix(n, ".tmp-") {
			return resource.Foreign, nil
		}
	}
	return resource.Present, nil
}

func (r *Resources) evidence(format string, args ...any) []resource.Evidence {
	return resource.Seen(r.now(), format, args...)
}

// Lister is nil: directories are observed one by one.
func (*Resources) Lister() resource.Lister { return nil }

// Create makes the directory, copies the source into it, and records what it copied. What is half made after a failure is
// removed again. A directory of ours that is complete already is left as it is; one that a kill left half made is filled anew.
func (r *Resources) Create(ctx context.Context, in resource.Intent) resource.Result {
	parent := filepath.Dir(specDir(in))
	if err := files.MkdirAll(parent); err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: failure.Wrap(err, failure.HomeInvalid, "make %s", parent), Evidence: r.evidence("%s could not be made", parent)}
	}
	p, err := r.intentDir(in)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: r.evidence("nothing was made")}
	}
	defer p.parent.Close()
	got, err := p.identify(p.name)
	switch {
	case err != nil:
		return resource.Result{Err: err}
	case got == resource.Foreign:
		return r.foreignResult(p, p.name)
	case got == resource.Absent:
		if res, ok := r.publishIdentity(ctx, p); !ok {
			return res
		}
		return r.complete(ctx, p)
	}
	o, err := LoadOpenRecord(p.spec.Dir)
	switch {
	case err == nil:
		return resource.Result{Outcome: resource.Done, Resource: resourceID(o), Evidence: r.evidence("%s holds our identity and is complete", p.spec.Dir)}
	case errors.Is(err, fs.ErrNotExist): // killed half-way: no one has worked in it
		return r.complete(ctx, p)
	default:
		return resource.Result{Err: err}
	}
}

func specDir(in resource.Intent) string {
	var s Spec
	_ = json.Unmarshal(in.Spec, &s)
	return s.Dir
}

func (r *Resources) foreignResult(p *intentDir, name string) resource.Result {
	path := filepath.Join(p.parent.Path(), name)
	return resource.Result{
		Outcome:  resource.NotDone,
		Err:      failure.New(failure.AlreadyExists, "%s exists and does not belong to laufwerk; it was not changed", redact.Line(path)).WithPaths(path).WithHint("move %s away, then run the command again", redact.Line(path)),
		Evidence: r.evidence("something that is not ours is at %s", path),
	}
}

// publishIdentity puts the directory with its identity in place, in one step.
func (r *Resources) publishIdentity(ctx context.Context, p *intentDir) (resource.Result, bool) {
	switch got, err := p.identifyTwin(); {
	case err != nil:
		return resource.Result{Err: err}, false
	case got == resource.Foreign:
		return r.foreignResult(p, p.twin), false
	case got == resource.Present:
		if refused, err := p.parent.RemoveAll(ctx, p.twin); err != nil || len(refused) > 0 {
			return resource.Result{Err: errors.Join(err, refusedError(refused))}, false
		}
	}
	fail := func(err error) (resource.Result, bool) {
		return resource.Result{Err: failure.Wrap(err, failure.Failed, "make the workspace's directory %s", p.spec.Dir)}, false
	}
	crash.Point("workspace/before-make-directory")
	if err := p.parent.Mkdir(p.twin, 0o700); err != nil {
		return fail(err)
	}
	crash.Point("workspace/before-identity")
	doc, err := json.Marshal(p.id)
	if err != nil {
		return fail(err)
	}
	if err := files.Write(filepath.Join(p.parent.Path(), p.twin, identityFile), doc); err != nil {
		return fail(err)
	}
	crash.Point("workspace/after-identity")
	err = p.parent.RenameNoReplace(p.twin, p.name)
	if errors.Is(err, safefs.ErrNotSupported) {
		if _, e := p.parent.Lstat(p.name); errors.Is(e, fs.ErrNotExist) {
			err = p.parent.Rename(p.twin, p.name)
		}
	}
	if errors.Is(err, fs.ErrExist) {
		return r.foreignResult(p, p.name), false
	}
	if err == nil {
		err = p.parent.SyncDir(".")
	}
	if err != nil {
		return fail(err)
	}
	crash.Point("workspace/after-make-directory")
	return resource.Result{}, true
}

// complete makes our directory complete: what a killed attempt left in it is removed first.
func (r *Resources) complete(ctx context.Context, p *intentDir) resource.Result {
	if err := p.clear(ctx, p.name); err != nil {
		return resource.Result{Err: failure.Wrap(err, failure.Failed, "remove a half-made workspace")}
	}
	var o OpenRecord
	var err error
	if p.spec.Mode == ModeDirect {
		o, err = OpenDirect(p.spec.Source, r.state)
	} else {
		o, err = Copy(ctx, CopyRequest{Source: p.spec.Source, Include: p.spec.Include, Dest: filepath.Join(p.spec.Dir, treeDir), State: r.state, Bounds: r.bounds, Progress: r.progress, Owner: p.spec.Owner})
		crash.Point("workspace/before-save-base")
		if err == nil {
			err = SaveManifest(filepath.Join(p.spec.Dir, baseFile), o.Base)
		}
	}
	if err == nil {
		crash.Point("workspace/before-opened")
		err = files.WriteJSON(filepath.Join(p.spec.Dir, openedFile), o)
	}
	if err != nil {
		return r.undo(p, err)
	}
	crash.Point("workspace/after-opened")
	return resource.Result{Outcome: resource.Done, Resource: resourceID(o), Evidence: r.evidence("%s holds our identity and a complete copy", p.spec.Dir)}
}

func resourceID(o OpenRecord) string { return fmt.Sprintf("%d:%d", o.Tree.Dev, o.Tree.Ino) }

// undo removes what a failed attempt made. It does not depend on the context, which may be what ended the attempt.
func (r *Resources) undo(p *intentDir, err error) resource.Result {
	if e := p.remove(context.Background()); e != nil {
		return resource.Result{Err: errors.Join(err, e)}
	}
	return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: r.evidence("%s is absent again", p.spec.Dir)}
}

// clear removes everything in our directory but its identity.
func (p *intentDir) clear(ctx context.Context, name string) error {
	ns, err := p.parent.ReadDir(name)
	if err != nil {
		return err
	}
	var refused []safefs.Refused
	for _, n := range ns {
		if n == identityFile {
			continue
		}
		more, err := p.parent.RemoveAll(ctx, name+"/"+n)
		if err != nil {
			return err
		}
		refused = append(refused, more...)
	}
	if len(refused) == 0 {
		return nil
	}
	return p.removalError(refused)
}

func (p *intentDir) removalError(refused []safefs.Refused) error {
	paths := make([]string, 0, len(refused))
	var reasons []string
	for i, x := range refused {
		path := filepath.Join(p.parent.Path(), x.Path)
		paths = append(paths, path)
		if i < 10 {
			reasons = append(reasons, redact.Line(path)+": "+x.Why)
		}
	}
	if len(refused) > len(reasons) {
		reasons = append(reasons, fmt.Sprintf("and %d more", len(refused)-len(reasons)))
	}
	return failure.New(failure.Retained, "%s of the workspace could not be removed: %s", countNoun(len(refused), "path", "paths"), strings.Join(reasons, "; ")).
		WithPaths(paths...).WithHint("unmount what is mounted there, remove as root what belongs to others (sudo rm -rf %s), then laufwerk cleanup", redact.Line(p.spec.Dir))
}

// remove removes our directory: its contents, then, under the twin's name, its identity and itself.
func (p *intentDir) remove(ctx context.Context) error {
	if got, err := p.identify(p.name); err != nil {
		return err
	} else if got == resource.Present {
		if err := p.clear(ctx, p.name); err != nil {
			return err
		}
		crash.Point("workspace/before-remove-directory")
		if got, err := p.identifyTwin(); err != nil || got == resource.Foreign {
			return errors.Join(err, failure.New(failure.AlreadyExists, "%s is in the way", redact.Line(p.twin)))
		} else if got == resource.Present {
			if refused, err := p.parent.RemoveAll(ctx, p.twin); err != nil || len(refused) > 0 {
				return errors.Join(err, refusedError(refused))
			}
		}
		if err := p.parent.Rename(p.name, p.twin); err != nil {
			return err
		}
		crash.Point("workspace/after-remove-rename")
	}
	got, err := p.identifyTwin()
	if err != nil || got != resource.Present {
		return err
	}
	refused, err := p.parent.RemoveAll(ctx, p.twin)
	if err != nil {
		return err
	}
	if len(refused) > 0 {
		return p.removalError(refused)
	}
	crash.Point("workspace/after-remove-directory")
	return p.parent.SyncDir(".")
}

// Resolve finds out how far a Create came, and finishes what it began: a complete workspace is kept, anything less is made
// anew. Where nothing is there, nothing was made, and nothing will be: only the holder of the run's lease creates.
func (r *Resources) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	if o := r.Observe(ctx, in); o.Presence == resource.Absent {
		return resource.Result{
			Outcome: resource.NotDone, Err: failure.New(failure.WorkspaceLost, "the workspace %s was never made", redact.Line(specDir(in))), Evidence: o.Evidence,
		}
	}
	return r.Create(ctx, in)
}

// Observe looks whether the directory is there. A directory of our name without our identity is NotOurs.
func (r *Resources) Observe(_ context.Context, in resource.Intent) resource.Observation {
	p, err := r.intentDir(in)
	if errors.Is(err, fs.ErrNotExist) {
		return resource.Observation{Presence: resource.Absent, Evidence: r.evidence("%s does not exist", filepath.Dir(specDir(in)))}
	}
	if err != nil {
		return resource.Observation{Err: err}
	}
	defer p.parent.Close()
	got, err := p.identify(p.name)
	if err == nil && got == resource.Absent {
		if twin, e := p.identifyTwin(); e != nil || twin == resource.Present {
			got, err = twin, e
		}
	}
	if err != nil {
		return resource.Observation{Err: err, Evidence: r.evidence("%s could not be inspected", p.spec.Dir)}
	}
	out := resource.Observation{Presence: got}
	switch got {
	case resource.Present:
		out.Resource, out.Evidence = in.Resource, r.evidence("%s holds our identity", p.spec.Dir)
	case resource.Absent:
		out.Evidence = r.evidence("directory absent at %s", p.spec.Dir)
	default:
		out.Evidence = r.evidence("something that is not ours is at %s", p.spec.Dir)
	}
	return out
}

// Delete removes the directory and, of a copy, everything in it. What cannot be removed is named; our identity then stays,
// so that it can be tried again. The source of a direct workspace is never touched.
func (r *Resources) Delete(ctx context.Context, in resource.Intent) resource.Result {
	p, err := r.intentDir(in)
	if errors.Is(err, fs.ErrNotExist) {
		return resource.Result{Outcome: resource.Done, Evidence: r.evidence("%s does not exist", filepath.Dir(specDir(in)))}
	}
	if err != nil {
		return resource.Result{Err: err}
	}
	defer p.parent.Close()
	crash.Point("workspace/before-delete")
	if err := p.remove(ctx); err != nil {
		done := resource.Unknown
		if failure.Is(err, failure.Retained) {
			done = resource.NotDone
		}
		return resource.Result{Outcome: done, Err: err, Evidence: r.evidence("%s could not be removed completely", p.spec.Dir)}
	}
	crash.Point("workspace/after-delete")
	return resource.Result{Outcome: resource.Done, Resource: in.Resource, Evidence: r.evidence("%s was removed", p.spec.Dir)}
}

// OpenDirect opens the source itself as the workspace: nothing is copied, listed or written back.
func OpenDirect(source, state string) (OpenRecord, error) {
	path, err := canonical(source)
	if err != nil {
		return OpenRecord{}, err
	}
	r, err := safefs.OpenRoot(path)
	if err != nil {
		return OpenRecord{}, sourceError(path, err)
	}
	defer r.Close()
	c := &copyOperation{req: CopyRequest{State: state}, opened: OpenRecord{Mode: ModeDirect, Source: path, Root: idOf(r), Tree: idOf(r)}}
	if err := c.refuseOwnState(); err != nil {
		return OpenRecord{}, err
	}
	if c.state == idOf(r) {
		return OpenRecord{}, failure.New(failure.InputInvalid, "%s is laufwerk's own state", redact.Line(path))
	}
	return c.opened, nil
}
