package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/guest"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// openshellImage is a prepared one, which tests of OpenShell targets leave on the engine.
const openshellImage = "laufwerk-test/codex-openshell:1"

const openshellOptions = `{"id":"bench","gateway":"` + gatewayAlias + `","image":"` + openshellImage + `","policy":{},"credentials":{"kind":"codex-subscription","provider":"bench"}}`

const openshellTarget = `
import { defineConfig } from "@laufwerk/sdk";
import { createOpenShellExecution } from "@laufwerk/execution/openshell";

export default defineConfig({ projectId: "bench", executions: [createOpenShellExecution(` + openshellOptions + `)] });
`

// sandboxes are the rows of OpenShell targets: on the gateway for tests, which runs beside this process, and has its sandboxes
// in containers of the engine LAUFWERK_TEST_DOCKER, where it takes the time of a real one, and for cleaning up in memory.
func sandboxes(b *bench) ([]row, error) {
	host, skipped := os.Getenv("LAUFWERK_TEST_DOCKER"), row{work: "openshell targets, beside the same calls made bare", hold: "≤ 1.1 ×"}
	if host == "" {
		skipped.verdict = `SKIPPED: no engine (eval "$(.ci/engine start)")`
		return []row{skipped}, nil
	}
	for _, program := range []string{gatewayProgram, supervisorProgram} {
		if _, err := os.Stat(filepath.Join(b.tools, program)); err != nil {
			skipped.verdict = "SKIPPED: " + err.Error() + " (make bench builds it)"
			return []row{skipped}, nil
		}
	}
	if os.Getuid() == 0 { // whose workers sandboxes are not for
		return b.asOrdinaryUser("openshell", host)
	}
	e, err := dockerengine.Connect(b, dockerengine.Endpoint{Host: host, Origin: "bench"})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	image, presence, _ := e.Image(b, openshellImage)
	if presence != resource.Present {
		skipped.verdict = "SKIPPED: no image " + openshellImage + " (go test ./e2e/openshell)"
		return []row{skipped}, nil
	}
	g, err := b.serve(host)
	if err != nil {
		return nil, err
	}
	defer g.stop()
	if err := hold(b, g.client); err != nil {
		return nil, err
	}
	rows, err := besideBare(b, g, e, image.ID)
	if err != nil {
		return nil, err
	}
	doctor, err := doctorOfAGateway(b, host)
	if err != nil {
		return nil, err
	}
	cleanup, err := cleanupOfSandboxes(b)
	return append(append(rows, doctor), cleanup...), err
}

const mostOfBare = 1.1

// hold gives the gateway a login, as `laufwerk provision openshell` does.
func hold(ctx context.Context, g *client.Gateway) error {
	own, _, err := g.Profile(ctx, "codex")
	if err != nil {
		return err
	}
	own.Id, own.Source, own.Scope, own.ResourceVersion = codex.Profile, "", "", 0
	own.Binaries = append(own.Binaries, &wire.NetworkBinary{Path: policy.Binaries(codex.Name)})
	if _, err := g.ImportProfile(ctx, own, "bench"); err != nil {
		return err
	}
	_, err = g.CreateProvider(ctx, &wire.Provider{
		Metadata: &wire.ObjectMeta{Name: "bench"}, Type: codex.Profile,
		Credentials: map[string]string{"CODEX_AUTH_ACCESS_TOKEN": "an access token", "CODEX_AUTH_REFRESH_TOKEN": "a refresh token", "CODEX_AUTH_ACCOUNT_ID": "an account"},
	})
	return err
}

// provider is as workers have it.
func (b *bench) provider(g *client.Gateway, e *dockerengine.Engine, dir string) *openshell.Provider {
	return openshell.New(openshell.Config{
		Executable: b.binary, Home: filepath.Join(b.dir, "home"), Now: time.Now, UID: os.Getuid(), GID: os.Getgid(), State: dir,
		Gateway: func(context.Context, string) (*client.Gateway, error) { return g, nil },
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return e, nil }, Programs: agent.Programs{codex.New()},
	})
}

// besideBare is what becoming, using and ending a session takes, beside the calls that this comes to, without claims, looks,
// records and a supervisor.
func besideBare(b *bench, g *gateway, e *dockerengine.Engine, image string) ([]row, error) {
	dir, err := b.scratch("openshell")
	if err != nil {
		return nil, err
	}
	p := b.provider(g.client, e, dir)
	def, err := p.Validate([]byte(openshellOptions))
	if err != nil {
		return nil, err
	}
	ours, err := newSessions(b, dir, filepath.Join(dir, "home"), def, p, client.Name)
	if err != nil {
		return nil, err
	}
	bare, err := newBare(b, g.client, dir, image)
	if err != nil {
		return nil, err
	}
	var asked [3]map[string]int
	do := func(i int, what func() error) func() (cost, error) {
		return func() (cost, error) {
			if _, err := g.calls(); err != nil { // those of the one before are not counted
				return cost{}, err
			}
			c, err := within(what)
			if err == nil && i < len(asked) {
				asked[i], err = g.calls()
			}
			return c, err
		}
	}
	s, err := inTurn(max(5, b.rounds/2), do(0, ours.open), do(1, ours.exec), do(2, ours.close), do(3, bare.create), do(3, bare.exec), do(3, bare.remove))
	if err != nil {
		_ = ours.close()
		return nil, err
	}
	whole, same := s[0].and(s[1]).and(s[2]), s[3].and(s[4]).and(s[5])
	beside := func(name string, a, b series) row {
		r := compare(name, a, b, mostOfBare)
		r.judge(float64(a.wall()) <= mostOfBare*float64(b.wall()), false, a.noisy() || b.noisy()) // others do the work: no processor time of ours says it
		return r
	}
	rows := []row{beside("openshell open + exec + close, beside the same calls made bare", whole, same)}
	for i, name := range []string{"open, beside CreateSandbox and looks until READY", "exec, beside ExecSandbox", "close, beside DeleteSandbox and looks until NOT_FOUND"} {
		rows = append(rows, beside("  "+name, s[i], s[i+3]), row{work: "    its calls", measured: said(asked[i])})
	}
	return rows, nil
}

// said are calls by name.
func said(calls map[string]int) string {
	out := ""
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		out += fmt.Sprintf("%d %s ", calls[name], name)
	}
	return out
}

// bare makes sandboxes by calls alone.
type bare struct {
	b       *bench
	g       *client.Gateway
	request *wire.CreateSandboxRequest
	id      string
	n       int
}

func newBare(b *bench, g *client.Gateway, dir, image string) (*bare, error) {
	var mounts []any
	for target, source := range map[string]string{policy.Work: "work", policy.Home: "home", policy.Ops: "ops"} {
		source = filepath.Join(dir, "bare", source)
		if err := os.MkdirAll(source, 0o700); err != nil {
			return nil, err
		}
		mounts = append(mounts, map[string]any{"type": "bind", "source": source, "target": target, "read_only": false})
	}
	mounts = append(mounts, map[string]any{"type": "bind", "source": b.binary, "target": guest.Binary, "read_only": true})
	driver, err := structpb.NewStruct(map[string]any{"docker": map[string]any{"mounts": mounts}})
	return &bare{b: b, g: g, request: &wire.CreateSandboxRequest{Spec: &wire.SandboxSpec{
		Template: &wire.SandboxTemplate{Image: image, DriverConfig: driver}, Providers: []string{"bench"},
		Policy: policy.Sandbox(nil, true, os.Getuid(), os.Getgid()), Command: guest.MainProcess(policy.Ops+"/ready", "bare"),
	}}}, err
}

func (r *bare) create() error {
	r.n++
	r.request.Name = fmt.Sprintf("bare-%d", r.n)
	made, _, err := r.g.Create(r.b, r.request)
	for err == nil && made.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY {
		if made.GetStatus().GetPhase() == wire.SandboxPhase_SANDBOX_PHASE_ERROR {
			return fmt.Errorf("the sandbox did not become ready: %v", made.GetStatus())
		}
		time.Sleep(pollInterval)
		made, _, err = r.g.Get(r.b, r.request.GetName())
	}
	r.id = made.GetMetadata().GetId()
	return err
}

// pollInterval is the pause between looks at what becomes of a sandbox.
const pollInterval = 5 * time.Millisecond

func (r *bare) exec() error {
	code, _, err := r.g.Exec(r.b, r.id, client.Command{Argv: []string{"true"}}, os.Stderr, os.Stderr)
	if err == nil && code != 0 {
		err = fmt.Errorf("the command ended with %d", code)
	}
	return err
}

func (r *bare) remove() error {
	_, err := r.g.Delete(r.b, r.request.GetName())
	for err == nil {
		var presence resource.Presence
		if _, presence, err = r.g.Get(r.b, r.request.GetName()); presence == resource.Absent {
			return nil
		}
		time.Sleep(pollInterval)
	}
	return err
}

const doctorTime = 50 * time.Millisecond

// doctorOfAGateway is the whole command, of a project with one OpenShell target.
func doctorOfAGateway(b *bench, host string) (row, error) {
	root, err := b.scratch("openshell-project")
	if err != nil {
		return row{}, err
	}
	if err := write(filepath.Join(root, "laufwerk", "laufwerk.config.ts"), openshellTarget); err != nil {
		return row{}, err
	}
	s, err := inTurn(b.rounds, b.laufwerk(root, "doctor", "--json", "--set", "docker.host="+host))
	if err != nil {
		return row{}, err
	}
	out := row{work: "doctor with a gateway", measured: s[0].String(), hold: "≤ " + short(doctorTime)}
	out.judge(s[0].wall() <= doctorTime, s[0].cpu() <= doctorTime, s[0].noisy())
	return out, nil
}

// cleanupOfSandboxes is the end of 1,000 claims of no run, beside four times that of 250, with sandboxes in memory.
func cleanupOfSandboxes(b *bench) ([]row, error) {
	const many, part = 1000, 4
	in := *b // with a home of its own
	in.dir = filepath.Join(b.dir, "cleanup")
	g, err := in.serve("")
	if err != nil {
		return nil, err
	}
	defer g.stop()
	e, err := dockerengine.Connect(b, dockerengine.Endpoint{Host: g.engine, Origin: "bench"})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	s, err := newSessions(&in, in.dir, filepath.Join(in.dir, "home", ".laufwerk"), targets.Definition{Kind: openshell.Kind, ID: "bench"}, in.provider(g.client, e, in.dir), client.Name)
	if err != nil {
		return nil, err
	}
	var asked map[string]int
	end := func(n, times int) func() (cost, error) {
		return func() (cost, error) {
			if err := s.dangling(n, g.client, e); err != nil {
				return cost{}, err
			}
			if _, err := g.calls(); err != nil {
				return cost{}, err
			}
			out, c, err := in.command(in.dir, []int{0}, in.binary, "cleanup", "--all", "--json", "--set", "docker.host="+g.engine)
			var doc struct{ Released []any }
			if err == nil {
				err = json.Unmarshal([]byte(out), &doc)
			}
			if err == nil && len(doc.Released) != n {
				err = fmt.Errorf("%d of %d claims were released", len(doc.Released), n)
			}
			if err == nil {
				asked, err = g.calls()
			}
			c.wall, c.cpu = time.Duration(times)*c.wall, time.Duration(times)*c.cpu
			return c, err
		}
	}
	costs, err := inTurn(3, end(many/part, part), end(many, 1))
	if err != nil {
		return nil, err
	}
	out := compare(fmt.Sprintf("clean-up of %d sandboxes, beside %d times that of %d", many, part, many/part), costs[1], costs[0], flat)
	return []row{out, {work: "  its calls", measured: said(asked)}}, nil
}

// dangling makes n sessions that belong to no run.
func (s *sessions) dangling(n int, g *client.Gateway, e *dockerengine.Engine) error {
	var making errgroup.Group
	making.SetLimit(16)
	for range n {
		s.n++
		id := claims.ID("", fmt.Sprintf("session:%d", s.n))
		spec, err := json.Marshal(map[string]any{
			"dir": filepath.Join(s.dir, "sessions", id), "workspace": s.workspace, "mark": id, "gateway": gatewayAlias, "engine": e.Facts().Identity(), "socket": e.Endpoint().Host,
			"image": "sha256:00", "uid": os.Getuid(), "gid": os.Getgid(), "policy": policy.Policies{}, "binary": s.b.binary, "nonce": "bench",
		})
		if err != nil {
			return err
		}
		making.Go(func() error {
			_, err := s.driver.Allocate(s.b, claims.Request{
				ID: id, Kind: claims.KindSession, Provider: s.def.Kind, Target: s.def.ID, Operation: id,
				Intent: resource.Intent{Name: s.name(id), Endpoint: g.Registration().Identity(), Spec: spec},
			})
			return err
		})
	}
	return making.Wait()
}
