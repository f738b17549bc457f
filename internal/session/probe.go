package session

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Prober runs a command on a target as a session does: with a claim of no run, which clean-up sweeps if this process dies.
type Prober struct {
	Driver *claims.Driver
	Home   string // the directory of the store
	Now    func() time.Time
}

// Probe allocates a sandbox, runs the provider's probing command in it, and releases it. The checks say what the command found,
// with the claim as evidence. It fails where that could not be done, with Retained where the sandbox could not be released.
func (pr Prober) Probe(ctx context.Context, p providers.Provider, def targets.Definition) ([]checks.Check, error) {
	operation := "probe-" + strconv.FormatInt(pr.Now().UnixNano(), 36)
	id := claims.ID("", def.ID+"/"+operation)
	dir := filepath.Join(pr.Home, "probes", id)
	endpoint, err := p.Endpoint(ctx, def)
	if err != nil {
		return nil, err
	}
	plan, missing, err := p.Plan(ctx, def, providers.Need{}, providers.SessionSpec{Key: "probe", Dir: dir, Workspace: filepath.Join(dir, "home"), Mark: id})
	if err != nil {
		return nil, err
	}
	if len(missing) > 0 {
		f := failure.New(failure.NotReady, "%s", missing[0].Message).WithHint("%s", missing[0].Hint)
		f.Conditions = missing
		return nil, f
	}
	c, err := pr.Driver.Allocate(ctx, claims.Request{
		ID: id, Kind: claims.KindSession, Provider: def.Kind, Target: def.ID, Fingerprint: def.Fingerprint, Operation: operation, Image: plan.Image,
		Intent: resource.Intent{Name: p.Name(id), Endpoint: endpoint, Spec: plan.Spec},
	})
	if err != nil {
		return nil, err
	}
	out, err := probe(ctx, p, def, c, dir)
	if _, rerr := pr.Driver.Release(context.WithoutCancel(ctx), c.ID); rerr != nil {
		err = errors.Join(err, failure.Wrap(rerr, failure.Retained, "remove the probe's session"))
	}
	if err != nil {
		return nil, err
	}
	for i := range out {
		out[i] = out[i].WithEvidence("claim " + c.ID)
	}
	return out, nil
}

func probe(ctx context.Context, p providers.Provider, def targets.Definition, c claims.Claim, dir string) ([]checks.Check, error) {
	sb, err := p.Enter(ctx, c.Intent, def)
	if err != nil {
		return nil, err
	}
	probe := p.Probe(c.Intent, def)
	at, err := supervise.Start(ctx, sb.Launcher(), filepath.Join(dir, "ops", "probe-1"), supervise.Spec{
		Argv: probe.Argv, Env: sb.BaseEnv(), Dir: sb.Home(), MaxOutput: 64 << 10,
		Timeout: time.Minute, Grace: time.Second, Mark: supervise.Mark(c.ID, "probe"),
	})
	if err != nil {
		return nil, err
	}
	exit, err := at.Wait(ctx)
	if err != nil {
		return nil, err
	}
	stdout, _, err := at.Output(supervise.Stdout)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("the command ended with %d: %s", exit.Code, exit.Error)
	}
	if err != nil {
		return nil, err
	}
	return probe.Read(stdout), nil
}
