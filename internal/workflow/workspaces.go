package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/workspace"
	"github.com/laufwerk/laufwerk/internal/writeback"
)

// The modes of a workspace.
const (
	Copy   = workspace.ModeCopy
	Direct = workspace.ModeDirect
)

// WorkspaceProvider is the provider of claims on workspaces.
const WorkspaceProvider = "workspace"

type workspaces struct {
	c     OperationsConfig
	quiet func(ctx context.Context, workspace string, fn func() error) error // runs fn while no session can write
	mu    sync.Mutex
	byID  map[string]*openedWorkspace
}

// openedWorkspace is a workspace of this run, as the completion of workspace.open keeps it.
type openedWorkspace struct {
	ID     string         `json:"id"`
	Mode   string         `json:"mode"`
	Dir    string         `json:"dir"` // what sessions see: the copy's tree, or the source
	Source string         `json:"source"`
	Target session.Target `json:"target"`
	binds  *boundApproval // the last question that was bound to its content
}

// boundApproval is a question's answer to exact content.
type boundApproval struct {
	digest   string
	approved bool
	refused  bool
}

func newWorkspaces(c OperationsConfig) *workspaces {
	return &workspaces{c: c, byID: map[string]*openedWorkspace{}}
}

type openArgs struct {
	Source    string             `json:"source"`
	Mode      string             `json:"mode"`
	Include   []string           `json:"include"`
	Execution targets.Definition `json:"execution"`
}

func (w *workspaces) open(ctx context.Context, op *Op) (any, any, error) {
	a, err := decode[openArgs](op)
	if err != nil {
		return nil, nil, err
	}
	if a.Mode == "" {
		a.Mode = Copy
	}
	def, p, err := w.target(a.Execution)
	if err != nil {
		return nil, nil, err
	}
	if a.Mode == Direct && !p.Info().Direct {
		return nil, nil, failure.New(failure.Unsupported, "Workspace.open: mode: \"direct\" is refused on %s targets, whose sandboxes only see copies", def.Kind)
	}
	if missing := p.Ready(ctx, def, providers.Need{Workspace: true}); len(missing) > 0 {
		return nil, nil, targets.NotReady(def, missing)
	}
	o := &openedWorkspace{
		ID: claims.ID(w.c.Run, op.ID), Mode: a.Mode, Source: w.resolvePath(a.Source),
		Target: session.Target{Kind: def.Kind, ID: def.ID, Fingerprint: def.Fingerprint},
	}
	spec := workspace.Spec{Dir: w.c.WorkspaceDir(o.ID), Source: o.Source, Include: a.Include, Mode: o.Mode}
	if spec.Owner, err = workspaceOwner(ctx, p, def); err != nil {
		return nil, nil, err
	}
	if err := w.allocate(ctx, op, o, spec); err != nil {
		return nil, nil, err
	}
	w.remember(o)
	return map[string]string{"id": o.ID, "mode": o.Mode}, o, nil
}

// workspaceOwner is the user who must own a workspace's files for a target; nil for the worker's own.
func workspaceOwner(ctx context.Context, p providers.Provider, def targets.Definition) (*workspace.Owner, error) {
	uid, gid, ok, err := p.Owner(ctx, def)
	if err != nil || !ok {
		return nil, err
	}
	return &workspace.Owner{UID: uid, GID: gid}, nil
}

// discard releases a workspace whose opening was cancelled before it was journaled.
func (w *workspaces) discard(ctx context.Context, op *Op) error {
	c, ok, err := w.c.Driver.ByOperation(ctx, w.c.Run, op.ID)
	if err != nil || !ok {
		return err
	}
	_, err = w.c.Driver.Release(ctx, c.ID)
	return err
}

// allocate makes the workspace's directory, with the copy in it, as a claim. A direct workspace locks its source for this run.
func (w *workspaces) allocate(ctx context.Context, op *Op, o *openedWorkspace, spec workspace.Spec) error {
	doc, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	req := claims.Request{
		ID: o.ID, Kind: claims.KindWorkspace, Provider: WorkspaceProvider, Target: o.Target.ID, Fingerprint: o.Target.Fingerprint,
		Run: w.c.Run, Operation: op.ID, Project: w.c.Scope,
		Intent: resource.Intent{Name: o.ID, Endpoint: "local", Spec: doc},
	}
	if o.Mode == Direct {
		source, err := workspace.OpenDirect(o.Source, w.c.State)
		if err != nil {
			return err
		}
		req.Locks = []claims.LockRequest{{Key: sourceLock(source.Root), Mode: claims.Exclusive, Run: w.c.Run, What: "direct workspace", Busy: failure.WorkspaceBusy}}
	}
	if _, err := w.c.Driver.Allocate(ctx, req); err != nil {
		return err
	}
	made, err := workspace.LoadOpenRecord(spec.Dir)
	if err != nil {
		return err
	}
	o.Dir, o.Source = workspace.TreePath(spec.Dir, made), made.Source
	if made.NoRepository != "" {
		op.Event(noticef("the copy has no git repository of its own: %s", made.NoRepository))
	}
	for _, n := range made.Nested {
		op.Event(noticef("a repository inside the source was not copied: %s", redact.Line(string(n))))
	}
	for _, s := range made.Skipped {
		op.Event(noticef("not copied: %s (%s)", redact.Line(string(s.Path)), s.Why))
	}
	return nil
}

// withoutDefinition keeps the target's id, kind and fingerprint, not its options, which may hold values of variables.
func withoutDefinition(args json.RawMessage) (json.RawMessage, error) {
	var a map[string]json.RawMessage
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, err
	}
	var t session.Target
	if err := json.Unmarshal(a["execution"], &t); err != nil {
		return nil, err
	}
	b, err := json.Marshal(t)
	a["execution"] = b
	if err != nil {
		return nil, err
	}
	return json.Marshal(a)
}

func (w *workspaces) target(d targets.Definition) (targets.Definition, providers.Provider, error) {
	def, ok := w.c.Targets[d.ID]
	if !ok {
		return def, nil, failure.New(failure.ProjectInvalid, "Workspace.open: the target %q is not registered", d.ID).
			WithHint("add it to `executions` in laufwerk/laufwerk.config.ts")
	}
	if def.Fingerprint != d.Fingerprint || def.Kind != d.Kind {
		return def, nil, failure.New(failure.DefinitionChanged, "Workspace.open: the workflow's target %q is not the one that the config registers", d.ID).
			WithHint("import it from the module that laufwerk/laufwerk.config.ts imports it from")
	}
	p, ok := w.c.Provider(d.Kind)
	if !ok {
		return def, nil, failure.New(failure.Unsupported, "the provider %q is not part of this build", d.Kind)
	}
	return def, p, nil
}

// resolvePath resolves a path of a workflow: relative ones start at the project's root, "~/" is the user's home.
func (w *workspaces) resolvePath(p string) string {
	switch {
	case strings.HasPrefix(p, "~/"):
		return filepath.Join(w.c.HomeDir, p[2:])
	case filepath.IsAbs(p):
		return filepath.Clean(p)
	default:
		return filepath.Join(w.c.Root, p)
	}
}

func sourceLock(id workspace.RootID) string { return fmt.Sprintf("source/%d:%d", id.Dev, id.Ino) }

func (w *workspaces) remember(o *openedWorkspace) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.byID[o.ID] = o
}

func (w *workspaces) restoreWorkspace(_ protocol.Call, c Completion) error {
	if c.Error != nil {
		return nil
	}
	var o openedWorkspace
	if err := json.Unmarshal(c.Meta, &o); err != nil {
		return failure.Wrap(err, failure.JournalInvalid, "read how a workspace was opened")
	}
	w.remember(&o)
	return nil
}

func (w *workspaces) find(id string) (*openedWorkspace, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.byID[id]; o != nil {
		return o, nil
	}
	return nil, failure.New(failure.WorkspaceLost, "the workspace %s is not one of this run", id)
}

func (w *workspaces) sessionWorkspace(id string) (session.Workspace, bool) {
	o, err := w.find(id)
	if err != nil {
		return session.Workspace{}, false
	}
	return session.Workspace{ID: o.ID, Dir: o.Dir, Target: o.Target, Direct: o.Mode == Direct}, true
}

// freeze makes a private copy of the workspace's changes while no session can write.
func (w *workspaces) freeze(ctx context.Context, o *openedWorkspace) (f workspace.Freeze, err error) {
	if o.Mode == Direct {
		return f, failure.New(failure.Unsupported, "a direct workspace is the source itself: it has no difference and no write-back")
	}
	err = w.quiet(ctx, o.ID, func() error {
		f, err = workspace.FreezeDirectory(ctx, w.c.WorkspaceDir(o.ID), freezesDir(w.c.RunDir), w.c.Now)
		return err
	})
	return f, err
}

func freezesDir(runDir string) string { return filepath.Join(runDir, "freezes") }

// FreezeDir is where a run keeps the frozen content with a digest.
func FreezeDir(runDir, digest string) string {
	return filepath.Join(freezesDir(runDir), filepath.Base(digest))
}

func (w *workspaces) freezeForQuestion(ctx context.Context, id string) (string, error) {
	o, err := w.find(id)
	if err != nil {
		return "", err
	}
	f, err := w.freeze(ctx, o)
	return f.Digest, err
}

func (w *workspaces) bind(id, digest, kind string, answer json.RawMessage) {
	o, err := w.find(id)
	if err != nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	o.binds = &boundApproval{digest: digest}
	if kind == Confirm {
		o.binds.approved = string(answer) == "true"
		o.binds.refused = !o.binds.approved
	}
}

// opened is the workspace that an operation is about, and what it is allowed to write.
func (w *workspaces) opened(op *Op) (o *openedWorkspace, allow []string, err error) {
	a, err := decode[struct {
		Workspace string   `json:"workspace"`
		Allow     []string `json:"allow"`
	}](op)
	if err == nil {
		o, err = w.find(a.Workspace)
	}
	return o, a.Allow, err
}

func (w *workspaces) diff(ctx context.Context, op *Op) (any, any, error) {
	o, _, err := w.opened(op)
	if err != nil {
		return nil, nil, err
	}
	f, err := w.freeze(ctx, o)
	if err != nil {
		return nil, nil, err
	}
	text, err := workspace.Render(f)
	if err != nil {
		return nil, nil, err
	}
	return map[string]any{"digest": f.Digest, "changes": workspace.PublicChanges(f.Changes), "text": text, "ignored": f.Ignored}, nil, nil
}

// writeBackStart is the data of a write-back's attempt in the journal.
type writeBackStart struct {
	Dir      string `json:"dir"` // of the plan, relative to the run's folder
	Digest   string `json:"digest"`
	Approved bool   `json:"approved"`
}

func (w *workspaces) writeBack(ctx context.Context, op *Op) (any, any, error) {
	o, allow, err := w.opened(op)
	if err != nil {
		return nil, nil, err
	}
	at := writeBackStart{Dir: filepath.Join("writebacks", operationFolder(op.ID))}
	f, err := w.apply(ctx, op, o, allow, &at)
	if err != nil {
		return nil, nil, err
	}
	if err := workspace.MarkWritten(w.c.WorkspaceDir(o.ID), f.Digest); err != nil {
		return nil, nil, err
	}
	if !at.Approved {
		op.Event(noticef("written back unapproved: no answer was bound to this content"))
	}
	return map[string]any{"digest": f.Digest, "approved": at.Approved, "changes": workspace.PublicChanges(f.Changes)}, at, nil
}

// apply writes the frozen content to the source. A write-back that an earlier worker started is completed with the content of that
// time, even if workspace or source were changed since.
func (w *workspaces) apply(ctx context.Context, op *Op, o *openedWorkspace, allow []string, at *writeBackStart) (f workspace.Freeze, err error) {
	dir := filepath.Join(w.c.RunDir, at.Dir)
	begun, err := writeback.Pending(dir)
	if err != nil {
		return f, err
	}
	finished := false
	if _, data := op.Attempts(); begun == nil && len(data) > 0 {
		var was writeBackStart
		if begun, err = writeback.Finished(dir); err != nil {
			return f, err
		}
		if err := json.Unmarshal(data, &was); err != nil {
			return f, failure.Wrap(err, failure.JournalInvalid, "read what %s was about to write", op.ID)
		}
		if finished = begun != nil && begun.Digest() == was.Digest; !finished {
			begun = nil
		}
	}
	if begun != nil {
		at.Digest, at.Approved = begun.Digest(), !begun.Unapproved()
		f, err = workspace.LoadFreeze(FreezeDir(w.c.RunDir, at.Digest))
	} else if f, at.Approved, err = w.approvedContent(ctx, o); err == nil {
		at.Digest = f.Digest
	}
	if err != nil {
		return f, err
	}
	return f, w.withSourceLock(ctx, f, op.ID, dir, func() error {
		switch {
		case finished: // its worker was killed before the completion was journaled
			return nil
		case begun != nil:
			op.Event(noticef("a write-back that was begun before is continued"))
			return writeback.Continue(ctx, dir, w.c.NoExchange)
		}
		if err := files.MkdirAll(dir); err != nil {
			return failure.Wrap(err, failure.HomeInvalid, "make the write-back's folder")
		}
		plan, err := writeback.Check(ctx, writeback.Request{
			Freeze: f, Source: o.Source, Dir: dir, Allow: allow, Approved: at.Approved, NoExchange: w.c.NoExchange,
			MaxFiles: w.c.MaxFiles, MaxBytes: w.c.MaxBytes, Vars: w.c.HostVars, Now: w.c.Now,
		})
		if err != nil {
			return err
		}
		if err := op.Start(at); err != nil {
			return err
		}
		return plan.Apply(ctx)
	})
}

// approvedContent is the freeze to write, and whether a person approved it: the approved one if the workspace is unchanged since, or a new
// one where no question was bound to the workspace or the answer was no to other content.
func (w *workspaces) approvedContent(ctx context.Context, o *openedWorkspace) (workspace.Freeze, bool, error) {
	now, err := w.freeze(ctx, o)
	if err != nil {
		return now, false, err
	}
	w.mu.Lock()
	b := o.binds
	w.mu.Unlock()
	switch {
	case b == nil:
		return now, false, nil
	case b.refused && b.digest == now.Digest:
		return now, false, failure.New(failure.NotApproved, "this content (%s) was answered no", shortDigest(now.Digest))
	case b.refused:
		return now, false, nil
	case b.digest != now.Digest:
		return now, false, failure.New(failure.ChangedSinceApproval, "the workspace changed since the question: it was %s and is %s", shortDigest(b.digest), shortDigest(now.Digest)).
			WithHint("laufwerk diff %s", w.c.Run)
	}
	approved, err := workspace.LoadFreeze(FreezeDir(w.c.RunDir, b.digest))
	return approved, b.approved, err
}

// withSourceLock calls fn with the source locked against other write-backs. The lock is kept, over a kill too, until the plan is applied
// or undone.
func (w *workspaces) withSourceLock(ctx context.Context, f workspace.Freeze, op, dir string, fn func() error) error {
	holder := WriteBackLockHolder(w.c.Run, op)
	err := w.c.Driver.TakeLock(ctx, claims.LockRequest{
		Key: sourceLock(f.Root), Mode: claims.Exclusive, Holder: holder, Run: w.c.Run, What: "write-back", Busy: failure.WriteBackConflict,
	})
	if err != nil {
		return err
	}
	err = fn()
	if left, lookErr := writeback.Pending(dir); left != nil || lookErr != nil {
		return errors.Join(err, lookErr)
	}
	if dropErr := w.c.Driver.DropLocks(context.WithoutCancel(ctx), holder); err == nil {
		err = dropErr
	}
	return err
}

// WriteBackLockHolder is the holder of the lock on a source while a write-back of a run is in progress.
func WriteBackLockHolder(run, op string) string { return run + "/" + op }

// IsWriteBackLockHolder says whether a holder is the write-back of the run whose plan is in the folder; with "", any write-back of the
// run.
func IsWriteBackLockHolder(holder, run, folder string) bool {
	op, ok := strings.CutPrefix(holder, run+"/")
	return ok && (folder == "" || operationFolder(op) == folder)
}

func shortDigest(digest string) string {
	if len(digest) > 12 {
		return digest[:12]
	}
	return digest
}

func operationFolder(id string) string { return sha256hex.Of(id)[:12] }

// refreeze freezes the workspace of a question again where the frozen content is damaged. If the workspace is unchanged, that is the
// same content with the same digest. If not, the question keeps its digest, and an approval of the lost content is refused by the
// write-back.
func (w *workspaces) refreeze(ctx context.Context, id, digest string) error {
	if workspace.CheckFreeze(FreezeDir(w.c.RunDir, digest)) == nil {
		return nil
	}
	_, err := w.freezeForQuestion(ctx, id)
	return err
}
