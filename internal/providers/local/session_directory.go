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
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
)

func readSpec(in resource.Intent) (s spec, id sessiondir.Identity, err error) {
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return s, id, fmt.Errorf("the intent's spec: %w", err)
	}
	return s, sessiondir.Identity{Claim: in.Claim, Name: in.Name, Owner: in.Owner, Mark: s.Mark}, nil
}

// Lister is nil: directories are observed one by one.
func (*Provider) Lister() resource.Lister { return nil }

// Create makes the session's directory.
func (p *Provider) Create(ctx context.Context, in resource.Intent) resource.Result {
	return p.Resolve(ctx, in)
}

// Resolve finishes what a Create began: a directory is either not there yet, or whole.
func (p *Provider) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	at, err := sessiondir.OpenOrCreateParent(s.Dir, id)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: fmt.Errorf("make the session's directory: %w", err)}
	}
	defer at.Close()
	found, err := at.Make(ctx, nil, sessiondir.Home, sessiondir.Ops)
	switch {
	case failure.Is(err, failure.OutcomeUnknown):
		return resource.Result{Err: err}
	case err != nil:
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	what := "made"
	if found {
		what = "found"
	}
	return resource.Result{Outcome: resource.Done, Resource: s.Dir, Evidence: p.evidence("%s %s", what, s.Dir)}
}

// Observe looks for the directory, for what an interrupted making or ending has left, and for processes of the session.
func (p *Provider) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	if endpoint, err := p.Endpoint(ctx, targets.Definition{}); err != nil || endpoint != in.Endpoint {
		return resource.Observation{Err: fmt.Errorf("it was made on %q, and this is %q", in.Endpoint, endpoint)}
	}
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Observation{Err: err}
	}
	at, err := sessiondir.Open(s.Dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		return p.absentObservation(s)
	}
	if err != nil {
		return resource.Observation{Err: err}
	}
	defer at.Close()
	presence, err := at.Identify()
	if presence == resource.Absent {
		return p.absentObservation(s)
	}
	return resource.Observation{Presence: presence, Resource: s.Dir, Err: err, Evidence: p.evidence("%s is %s", s.Dir, presence)}
}

// absentObservation is said of a missing directory only where no process of the session is found either.
func (p *Provider) absentObservation(s spec) resource.Observation {
	found, err := supervise.FindRemaining(s.Mark)
	if err != nil {
		return resource.Observation{Err: err}
	}
	if len(found) > 0 {
		return resource.Observation{
			Err:      fmt.Errorf("its directory is gone, but %s still lives", strings.Join(found, ", ")),
			Evidence: p.evidence("directory absent at %s; %s", s.Dir, strings.Join(found, ", ")),
		}
	}
	return resource.Observation{
		Presence: resource.Absent, Evidence: p.evidence("directory absent at %s; no process and no control group of %s", s.Dir, s.Mark),
	}
}

// Delete ends everything that runs in the session, and only when that is certain removes its directory.
func (p *Provider) Delete(ctx context.Context, in resource.Intent) resource.Result {
	if endpoint, err := p.Endpoint(ctx, targets.Definition{}); err != nil || endpoint != in.Endpoint {
		return resource.Result{Outcome: resource.NotDone, Err: fmt.Errorf("it was made on %q, and this is %q", in.Endpoint, endpoint)}
	}
	s, id, err := readSpec(in)
	if err != nil {
		return resource.Result{Err: err}
	}
	at, err := sessiondir.Open(s.Dir, id)
	if errors.Is(err, fs.ErrNotExist) {
		p.launcher().EndRemaining(ctx, s.Mark) // whoever removed it may have been one of its processes
		return resource.Result{Outcome: resource.Done, Evidence: p.evidence("nothing at %s", filepath.Dir(s.Dir))}
	}
	if err != nil {
		return resource.Result{Err: err}
	}
	defer at.Close()
	var evidence []resource.Evidence
	if presence, _ := at.Identify(); presence == resource.Present {
		f := fenceSession(ctx, p.launcher(), s.Dir)
		evidence = p.evidence("fenced by %s: sure %t %s", f.How, f.Sure, f.Why)
		if !f.Sure {
			return resource.Result{Outcome: resource.NotDone, Evidence: evidence, Err: failure.New(failure.OutcomeUnknown,
				"it could not be confirmed that all processes of the session have ended: %s", f.Why).WithField("survivors", f.Survivors)}
		}
	}
	p.launcher().EndRemaining(ctx, s.Mark) // what ran without a record
	switch err := at.Remove(ctx); {
	case failure.Is(err, failure.AlreadyExists), failure.Is(err, failure.Retained):
		return resource.Result{Outcome: resource.NotDone, Evidence: evidence, Err: err}
	case err != nil:
		return resource.Result{Evidence: evidence, Err: err}
	}
	return resource.Result{Outcome: resource.Done, Evidence: append(evidence, p.evidence("removed %s", s.Dir)...)}
}

// fenceSession ends what the supervisors of a session's directory may still own.
func fenceSession(ctx context.Context, l supervise.Launcher, dir string) supervise.FenceResult {
	ops, err := sessiondir.Operations(dir)
	if err != nil {
		return supervise.FenceResult{Why: err.Error()}
	}
	return supervise.FenceAll(ctx, l, ops)
}

func (p *Provider) evidence(format string, args ...any) []resource.Evidence {
	return resource.Seen(p.now(), format, args...)
}

func (s *sandbox) tree() sessiondir.Tree {
	return sessiondir.Tree{Host: s.spec.Workspace, Seen: s.spec.Workspace}
}

// ReadFile reads a file of the workspace.
func (s *sandbox) ReadFile(_ context.Context, name string) ([]byte, error) {
	return s.tree().ReadFile(name)
}

// WriteFile puts a file into the workspace.
func (s *sandbox) WriteFile(_ context.Context, name string, data []byte) error {
	return s.tree().WriteFile(name, data)
}
