package openshell

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Create makes the session's directory and its sandbox, waits until it is ready and compares it with the intent. A sandbox that does
// not get ready, or differs, is deleted.
func (p *Provider) Create(ctx context.Context, in resource.Intent) resource.Result {
	s, err := readSpec(in)
	if err == nil {
		err = p.host()
	}
	if err == nil && (s.UID != p.c.UID || s.GID != p.c.GID) {
		err = errors.New("the intent was written by another user")
	}
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	l, err := p.locate(ctx, in, s)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: p.evidence("nothing was requested: %v", err)}
	}
	return p.directory(in, s).Make(ctx, nil, []string{sessiondir.Home, sessiondir.Ops}, func(at *sessiondir.Folder) resource.Result {
		return l.create(ctx, at)
	})
}

func (l location) create(ctx context.Context, at *sessiondir.Folder) resource.Result {
	no := func(err error) resource.Result {
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: l.p.evidence("nothing was requested: %v", err)}
	}
	req, err := l.s.request(l.intent)
	if err != nil {
		return no(err)
	}
	crash.Point("openshell/before-note")
	if err := at.WriteNote(requestNote); err != nil {
		return no(fmt.Errorf("record that a sandbox is requested: %w", err))
	}
	crash.Point("openshell/after-note")
	made, done, err := l.g.Create(ctx, req)
	switch {
	case done == resource.Done && made.GetMetadata().GetId() != "":
		l.intent.Resource = made.GetMetadata().GetId()
		return l.acceptOrDelete(ctx, made)
	case failure.Is(err, failure.AlreadyExists):
		return l.resolveNameTaken(ctx, err)
	case done == resource.NotDone:
		if f := failure.As(err); f != nil && f.Hint == "" && strings.Contains(err.Error(), bindMounts) {
			f.Kind = failure.NotReady // once it is set, the run can go on
			f.Hint = bindMounts + " = true   # in [openshell.drivers.docker] of the gateway's gateway.toml; then restart the gateway"
		}
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: l.p.evidence("the gateway refused to create %s: %v", req.GetName(), err)}
	}
	return resource.Result{Err: errors.Join(err, errUnanswered(done)), Evidence: l.p.evidence("the creation of %s was requested, and not answered: %v", req.GetName(), err)}
}

// errUnanswered is the error of a reply without a sandbox.
func errUnanswered(done resource.Outcome) error {
	if done == resource.Done {
		return errors.New("the gateway's answer has no sandbox")
	}
	return nil
}

// resolveNameTaken finds out whether the sandbox that has our name is ours.
func (l location) resolveNameTaken(ctx context.Context, refusal error) resource.Result {
	f := l.find(ctx)
	switch f.presence {
	case resource.Present:
		l.intent.Resource = f.sandbox.GetMetadata().GetId()
		return l.acceptOrDelete(ctx, f.sandbox)
	case resource.Foreign:
		return resource.Result{Outcome: resource.NotDone, Err: f.err, Evidence: f.evidence}
	}
	return resource.Result{Err: errors.Join(refusal, f.err), Evidence: f.evidence}
}

// Resolve resolves a Create and never creates again, since a request may still be in flight. Without a request the sandbox is absent;
// a requested one that is not listed stays unknown.
func (p *Provider) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	s, err := readSpec(in)
	if err != nil {
		return resource.Result{Err: err}
	}
	at, err := sessiondir.Open(s.Dir, p.directory(in, s).ID)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return resource.Result{Err: err}
	}
	defer at.Close()
	requested, whole := false, false
	if at != nil {
		if requested, err = at.HasNote(requestNote); err != nil {
			return resource.Result{Err: err}
		}
		presence, _ := at.Identify()
		whole = presence == resource.Present
	}
	l, err := p.locate(ctx, in, s)
	switch {
	case err != nil && whole && !requested && in.Resource == "": // it needs no gateway to tell that
		return p.neverRequestedResult(ctx, in, s, at)
	case err != nil:
		return resource.Result{Resource: in.Resource, Err: err}
	}
	f := l.findSettled(ctx, requested)
	switch {
	case f.presence == resource.Present:
		l.intent.Resource = f.sandbox.GetMetadata().GetId()
		return p.removeLeftovers(ctx, in, s, at, l.acceptOrDelete(ctx, f.sandbox))
	case f.presence == resource.Absent && in.Resource != "":
		return p.removeLeftovers(ctx, in, s, at, l.vanishedResult(ctx))
	case f.presence != resource.Unobserved && !requested && in.Resource == "":
		return p.neverRequestedResult(ctx, in, s, at)
	case f.presence == resource.Absent:
		f.err = unansweredError(in, s)
	}
	return resource.Result{Resource: in.Resource, Err: f.err, Evidence: f.evidence}
}

// unansweredError says why a sandbox that is not listed may still appear.
func unansweredError(in resource.Intent, s spec) error {
	return failure.New(failure.OutcomeUnknown, "the creation of the sandbox %s was requested and not answered, and the gateway %q does not have it now: it may still appear", client.Name(in.Claim), s.Gateway).
		WithHint("laufwerk claims abandon %s --reason '…'   # when it is certain that it was not created", in.Claim)
}

// neverRequestedResult is the result where no sandbox was requested.
func (p *Provider) neverRequestedResult(ctx context.Context, in resource.Intent, s spec, at *sessiondir.Folder) resource.Result {
	return p.removeLeftovers(ctx, in, s, at, resource.Result{
		Outcome: resource.NotDone, Err: failure.New(failure.SessionLost, "no sandbox was requested"),
		Evidence: p.evidence("no sandbox was requested: %s has no record of a request", s.Dir),
	})
}

// removeLeftovers removes the directory of a session whose sandbox is absent for certain.
func (p *Provider) removeLeftovers(ctx context.Context, in resource.Intent, s spec, at *sessiondir.Folder, r resource.Result) resource.Result {
	if at == nil {
		return r
	}
	return p.directory(in, s).RemoveUnmade(ctx, at, r)
}

// acceptOrDelete waits until a sandbox of ours is ready, compares it with the intent, and deletes one that must not be used.
func (l location) acceptOrDelete(ctx context.Context, made *wire.Sandbox) resource.Result {
	id := made.GetMetadata().GetId()
	up, err := l.awaitReady(ctx, made)
	if err == nil {
		err = l.p.verifySandbox(ctx, l.g, l.e, l.intent, l.s, up)
	}
	var unfit *unusableError
	switch {
	case err == nil:
		return resource.Result{Outcome: resource.Done, Resource: id, Evidence: l.p.evidence("the sandbox %s is ready, and matches the request", id)}
	case errors.As(err, &unfit):
		return l.deleteUnusable(ctx, unfit.error)
	}
	return resource.Result{Resource: id, Err: err, Evidence: l.p.evidence("the sandbox %s exists, and could not be inspected: %v", id, err)}
}

// unusableError is why a sandbox must not be used: it failed to start, or differs from its intent.
type unusableError struct{ error }

func (u *unusableError) Unwrap() error { return u.error }

func (l location) awaitReady(ctx context.Context, sb *wire.Sandbox) (*wire.Sandbox, error) {
	end := l.p.c.Now().Add(l.p.w.ready)
	for pause := l.p.newBackoff(); ; {
		switch phase := sb.GetStatus().GetPhase(); phase {
		case wire.SandboxPhase_SANDBOX_PHASE_READY:
			return sb, nil
		case wire.SandboxPhase_SANDBOX_PHASE_ERROR, wire.SandboxPhase_SANDBOX_PHASE_STOPPING, wire.SandboxPhase_SANDBOX_PHASE_STOPPED,
			wire.SandboxPhase_SANDBOX_PHASE_DELETING:
			return nil, &unusableError{failure.New(failure.NotReady, "the sandbox did not become ready: %s", condition(sb)).WithHint("laufwerk doctor")}
		}
		if l.p.c.Now().After(end) {
			return nil, &unusableError{failure.New(failure.NotReady, "the sandbox did not become ready within %s: %s", l.p.w.ready, condition(sb)).WithHint("laufwerk doctor")}
		}
		if err := pause(ctx); err != nil {
			return nil, err
		}
		f := l.find(ctx)
		switch f.presence {
		case resource.Present:
			sb = f.sandbox
		case resource.Unobserved:
			return nil, f.err
		default:
			return nil, &unusableError{failure.New(failure.NotReady, "the sandbox disappeared before it was ready").WithHint("laufwerk doctor")}
		}
	}
}

// condition is a sandbox's state in one line; a gateway's message can have a whole log in it.
func condition(sb *wire.Sandbox) string {
	const longest = 1000
	out := phaseName(sb)
	for _, c := range sb.GetStatus().GetConditions() {
		if c.GetStatus() != "True" {
			out += ", " + c.GetReason() + ": " + c.GetMessage()
		}
	}
	if len(out) > longest {
		out = strings.ToValidUTF8(out[:longest], "") + " …"
	}
	return redact.Line(out)
}

// newBackoff makes pauses between polls, each a fraction of the time so far.
func (p *Provider) newBackoff() func(ctx context.Context) error {
	pause := p.w.pause
	return func(ctx context.Context) error {
		timer := time.NewTimer(pause)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			pause = min(pause+max(pause/32, time.Millisecond/2), time.Second)
			return nil
		}
	}
}

// deleteUnusable deletes a sandbox that must not be used, also after ctx has ended.
func (l location) deleteUnusable(ctx context.Context, why error) resource.Result {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*l.p.w.absent)
	defer cancel()
	r := l.deleteAndWait(ctx)
	if r.Outcome == resource.Done {
		if o := l.observe(ctx); o.Presence == resource.Absent {
			return resource.Result{Outcome: resource.NotDone, Err: why, Evidence: append(r.Evidence, o.Evidence...)}
		} else {
			r.Err, r.Evidence = errors.Join(r.Err, o.Err), append(r.Evidence, o.Evidence...)
		}
	}
	return resource.Result{Resource: l.intent.Resource, Err: errors.Join(why, r.Err), Evidence: r.Evidence}
}

// vanishedResult is the result for a sandbox that was created and is no longer listed.
func (l location) vanishedResult(ctx context.Context) resource.Result {
	return l.deleteUnusable(ctx, failure.New(failure.SessionLost, "the sandbox %s was made, and is gone", client.Name(l.intent.Claim)))
}

// Observe looks for the sandbox at the gateway and on the engine, and for the session's directory. A requested sandbox without an id
// that is not listed is unobserved rather than absent.
func (p *Provider) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	s, err := readSpec(in)
	if err != nil {
		return resource.Observation{Err: err}
	}
	l, err := p.locate(ctx, in, s)
	if err != nil {
		return resource.Observation{Err: err, Evidence: p.evidence("nothing could be observed: %v", err)}
	}
	o := l.observe(ctx)
	if o.Presence == resource.Absent && in.Resource == "" {
		requested, err := p.wasRequested(in, s)
		if requested {
			err = unansweredError(in, s)
		}
		if err != nil {
			return resource.Observation{Err: err, Evidence: o.Evidence}
		}
	}
	if o.Presence == resource.Absent || o.Presence == resource.Residue {
		return p.directory(in, s).Observe(o, in.Resource)
	}
	return o
}

// wasRequested says whether the session's directory has the note of a request.
func (p *Provider) wasRequested(in resource.Intent, s spec) (bool, error) {
	at, err := sessiondir.Open(s.Dir, p.directory(in, s).ID)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer at.Close()
	return at.HasNote(requestNote)
}

// Delete deletes the sandbox and, once nothing of it can run, the directory.
func (p *Provider) Delete(ctx context.Context, in resource.Intent) resource.Result {
	s, err := readSpec(in)
	if err != nil {
		return resource.Result{Err: err}
	}
	l, err := p.locate(ctx, in, s)
	if err != nil {
		return resource.Result{Err: err}
	}
	r := l.deleteAndWait(ctx)
	if r.Outcome == resource.Done && r.Resource == "" { // none was found: the note of one that may still appear has to stay
		requested, err := p.wasRequested(in, s)
		if requested {
			err = unansweredError(in, s)
		}
		if err != nil {
			return resource.Result{Err: err, Evidence: r.Evidence}
		}
	}
	if r.Outcome != resource.Done {
		return r
	}
	return p.directory(in, s).Clear(ctx, r)
}
