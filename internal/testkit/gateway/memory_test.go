package gateway

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

func reason(s *wire.Sandbox) string { return s.GetStatus().GetConditions()[0].GetReason() }

func TestASandboxFromItsMakingToItsEnd(t *testing.T) {
	g := Memory(t, Options{})
	c := dial(t, g)
	health, err := c.Health(bounded(t), &wire.HealthRequest{})
	must(t, err)
	info, err := c.GetGatewayInfo(bounded(t), &wire.GetGatewayInfoRequest{})
	must(t, err)
	if health.GetVersion() != "0.0.116" || len(info.GetComputeDrivers()) != 1 || info.GetComputeDrivers()[0].GetName() != "docker" {
		t.Errorf("%v %v", health, info)
	}
	s := c.ready("one", nil)
	if reason(s) != "DependenciesReady" || len(s.GetMetadata().GetId()) != 36 || s.GetMetadata().GetWorkspace() != "default" {
		t.Errorf("%v", s)
	}
	_, err = c.CreateSandbox(bounded(t), request("one"))
	code(t, codes.AlreadyExists, err)
	_, err = c.GetSandbox(bounded(t), &wire.GetSandboxRequest{Name: "one", Workspace: "nope"})
	if code(t, codes.NotFound, err); status.Convert(err).Message() != "workspace 'nope' not found" {
		t.Errorf("%v", err)
	}
	seen := holdMoment(t, g, Vanishing)
	for range 2 {
		if !c.delete("one") {
			t.Error("it is not deleted")
		}
	}
	_, err = c.CreateSandbox(bounded(t), request("one"))
	code(t, codes.AlreadyExists, err)
	seen()
	c.gone("one")
	_, err = c.get("one")
	if status.Convert(err).Message() != "sandbox not found" {
		t.Errorf("%v", err)
	}
	if len(g.InMemory()) != 0 || g.Calls()["DeleteSandbox"] != 2 {
		t.Errorf("%v %v", g.InMemory(), g.Calls())
	}
}

func TestWhatIsRefusedAndWhatIsTakenSilently(t *testing.T) {
	c := dial(t, Memory(t, Options{}))
	policy := func(change func(p *wire.SandboxPolicy, e *wire.NetworkEndpoint)) func(r *wire.CreateSandboxRequest) {
		return func(r *wire.CreateSandboxRequest) {
			e := &wire.NetworkEndpoint{Host: "example.com", Port: 443, Protocol: "rest", Access: "full", Enforcement: "enforce"}
			r.Spec.Policy = &wire.SandboxPolicy{Version: 1, NetworkPolicies: map[string]*wire.NetworkPolicyRule{
				"a": {Endpoints: []*wire.NetworkEndpoint{e}, Binaries: []*wire.NetworkBinary{{Path: "/usr/bin/curl"}}},
			}}
			change(r.Spec.Policy, e)
		}
	}
	driver := func(mount map[string]any) func(r *wire.CreateSandboxRequest) {
		return func(r *wire.CreateSandboxRequest) {
			r.Spec.Template.DriverConfig = object(t, map[string]any{"docker": map[string]any{"mounts": []any{mount}}})
		}
	}
	resources := func(v map[string]any) func(r *wire.CreateSandboxRequest) {
		return func(r *wire.CreateSandboxRequest) { r.Spec.Template.Resources = object(t, v) }
	}
	name := func(n string) func(r *wire.CreateSandboxRequest) {
		return func(r *wire.CreateSandboxRequest) { r.Name = n }
	}
	for i, at := range []struct {
		code   codes.Code
		text   string
		change func(r *wire.CreateSandboxRequest)
	}{
		{codes.InvalidArgument, "spec is required", func(r *wire.CreateSandboxRequest) { r.Spec = nil }},
		{codes.InvalidArgument, "20 > 19", name(strings.Repeat("a", 20))},
		{codes.OK, "", name(strings.Repeat("a", 19))},
		{codes.OK, "", name("")},
		{codes.InvalidArgument, "", name("-a")},
		{codes.InvalidArgument, "", name("a--b")},
		{codes.InvalidArgument, "", name("A")},
		{codes.InvalidArgument, "", name("a_b")},
		{codes.NotFound, "workspace 'w' not found", func(r *wire.CreateSandboxRequest) { r.Workspace = "w" }},
		{codes.InvalidArgument, "labels", func(r *wire.CreateSandboxRequest) { r.Labels = map[string]string{"a": strings.Repeat("x", 64)} }},
		{codes.InvalidArgument, "labels", func(r *wire.CreateSandboxRequest) { r.Labels = map[string]string{"a b": ""} }},
		{codes.InvalidArgument, "template.labels", func(r *wire.CreateSandboxRequest) { r.Spec.Template.Labels = map[string]string{"a": "a/b"} }},
		{codes.InvalidArgument, "reserved", func(r *wire.CreateSandboxRequest) { r.Spec.Environment = map[string]string{"OPENSHELL_X": "1"} }},
		{codes.FailedPrecondition, "provider 'p' not found", func(r *wire.CreateSandboxRequest) { r.Spec.Providers = []string{"p"} }},
		{codes.FailedPrecondition, "must be an absolute path", driver(map[string]any{"type": "bind", "source": "a", "target": "/b"})},
		{codes.FailedPrecondition, "reserved", driver(map[string]any{"type": "bind", "source": "/", "target": "/opt"})},
		{codes.InvalidArgument, "invalid docker driver_config", driver(map[string]any{"type": "bind", "source": "/", "target": "/a", "x": 1})},
		{codes.FailedPrecondition, "template.platform_config", resources(map[string]any{"limits": map[string]any{"cpu": 1}})},
		{codes.FailedPrecondition, "requests", resources(map[string]any{"requests": map[string]any{"cpu": "1"}})},
		{codes.FailedPrecondition, "cpu_limit", resources(map[string]any{"limits": map[string]any{"cpu": "a"}})},
		{codes.InvalidArgument, "run_as_user", policy(func(p *wire.SandboxPolicy, _ *wire.NetworkEndpoint) { p.Process = &wire.ProcessPolicy{RunAsUser: "0"} })},
		{codes.InvalidArgument, "run_as_group", policy(func(p *wire.SandboxPolicy, _ *wire.NetworkEndpoint) {
			p.Process = &wire.ProcessPolicy{RunAsGroup: "root"}
		})},
		{codes.InvalidArgument, "unsafe content", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) { e.Protocol = "rst" })},
		{codes.InvalidArgument, "requires rules or access", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) { e.Access = "" })},
		{codes.InvalidArgument, "host", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) { e.Host = "" })},
		{codes.InvalidArgument, "port", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) { e.Port = 0 })},
		{codes.InvalidArgument, "port", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) { e.Port = 70000 })},
		{codes.InvalidArgument, "too wide", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) { e.Host = "*.com" })},
		{codes.OK, "", policy(func(_ *wire.SandboxPolicy, e *wire.NetworkEndpoint) {
			e.Enforcement, e.Access, e.Tls = "enforced", "red-only", "sikp"
		})},
		{codes.OK, "", policy(func(p *wire.SandboxPolicy, e *wire.NetworkEndpoint) {
			e.Host, e.AllowedIps, p.NetworkPolicies["a"].Binaries = "https://example.com", []string{"127.0.0.1"}, nil
		})},
		{codes.OK, "", func(r *wire.CreateSandboxRequest) {
			r.Spec.Template.DriverConfig = object(t, map[string]any{"Docker": "anything"})
		}},
		{codes.OutOfRange, "", func(r *wire.CreateSandboxRequest) {
			r.Annotations = map[string]string{"a": strings.Repeat("x", maxMessage)}
		}},
	} {
		req := request(fmt.Sprintf("s%d", i))
		at.change(req)
		_, err := c.CreateSandbox(bounded(t), req)
		if status.Code(err) != at.code || !strings.Contains(status.Convert(err).Message(), at.text) {
			t.Errorf("%d: %v; want %v %q", i, err, at.code, at.text)
		}
	}
}

func TestWhatGoesWrongWithASandboxStays(t *testing.T) {
	g := Memory(t, Options{Images: []string{"image"}, Run: func(p Process) int {
		if p.Main && p.Argv[0] == "exits" {
			return 143
		}
		<-p.Killed
		return 0
	}})
	c := dial(t, g)
	mounted := func(source, target string) func(r *wire.CreateSandboxRequest) {
		return func(r *wire.CreateSandboxRequest) {
			r.Spec.Template.DriverConfig = object(t, map[string]any{"docker": map[string]any{"mounts": []any{map[string]any{"type": "bind", "source": source, "target": target}}}})
		}
	}
	for name, at := range map[string]struct {
		reason string
		change func(r *wire.CreateSandboxRequest)
	}{
		"no-image":  {"ImagePullFailed", func(r *wire.CreateSandboxRequest) { r.Spec.Template.Image = "nosuch" }},
		"no-source": {"ContainerCreateFailed", mounted("/nosuch", "/sandbox/work")},
		"on-root":   {"ContainerCreateFailed", mounted("/", "/sandbox")},
	} {
		if s := c.create(name, at.change); s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_ERROR || reason(s) != at.reason {
			t.Errorf("%s: %v", name, s.GetStatus())
		}
	}
	made, err := c.CreateSandbox(bounded(t), func() *wire.CreateSandboxRequest {
		r := request("exits")
		r.Spec.Command = []string{"exits"}
		return r
	}())
	must(t, err)
	eventually(t, "ERROR", func() bool {
		s, _ := c.get("exits")
		return s.GetStatus().GetPhase() == wire.SandboxPhase_SANDBOX_PHASE_ERROR
	})
	_, _, _, err = c.exec(&wire.ExecSandboxRequest{SandboxId: made.GetSandbox().GetMetadata().GetId(), Command: []string{"true"}})
	if code(t, codes.FailedPrecondition, err); status.Convert(err).Message() != "sandbox is not ready" {
		t.Errorf("%v", err)
	}
	g.Restart()
	c.back()
	for name := range g.Rows() {
		if s, err := c.get(name); err != nil || s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_ERROR {
			t.Errorf("%s: %v %v", name, s.GetStatus(), err)
		}
	}
	c.delete("exits")
	c.gone("exits")
}

func TestListing(t *testing.T) {
	g := Memory(t, Options{})
	c := dial(t, g)
	for i := range 150 {
		req := request(fmt.Sprintf("s%03d", i))
		req.Labels["odd"] = fmt.Sprint(i % 2)
		_, err := c.CreateSandbox(bounded(t), req)
		must(t, err)
	}
	for _, at := range []struct {
		req   *wire.ListSandboxesRequest
		n     int
		first string
	}{
		{&wire.ListSandboxesRequest{}, 100, "s000"},
		{&wire.ListSandboxesRequest{Limit: 5000, Offset: 140}, 10, "s140"},
		{&wire.ListSandboxesRequest{LabelSelector: "of=tests, odd=1,"}, 75, "s001"},
		{&wire.ListSandboxesRequest{LabelSelector: "of=nobody"}, 0, ""},
	} {
		got, err := c.ListSandboxes(bounded(t), at.req)
		must(t, err)
		first := ""
		if len(got.GetSandboxes()) > 0 {
			first = got.GetSandboxes()[0].GetMetadata().GetName()
		}
		if len(got.GetSandboxes()) != at.n || first != at.first {
			t.Errorf("%v: %d from %q", at.req, len(got.GetSandboxes()), first)
		}
	}
	_, err := c.ListSandboxes(bounded(t), &wire.ListSandboxesRequest{LabelSelector: "a"})
	code(t, codes.InvalidArgument, err)
	_, err = c.ListSandboxes(bounded(t), &wire.ListSandboxesRequest{AllWorkspaces: true, Workspace: "default"})
	code(t, codes.InvalidArgument, err)
}

// What a client is not told: a container that nobody knows of, and a row that nobody ends.
func TestDeletesThatAreNotWhatTheySay(t *testing.T) {
	g := Memory(t, Options{})
	c := dial(t, g)
	landed := holdMoment(t, g, Landing)
	_, err := c.CreateSandbox(bounded(t), request("early"))
	must(t, err)
	if !c.delete("early") {
		t.Error("deleted is false")
	}
	c.gone("early")
	landed()
	eventually(t, "an orphan", func() bool { return len(g.InMemory()) == 1 && g.InMemory()[0].State == created })
	g.Reconcile()
	if len(g.InMemory()) != 1 {
		t.Error("the gateway has found the orphan")
	}

	c.ready("stuck", nil)
	g.Fault(Vanishing, Before(g.Kill))
	if _, err := c.DeleteSandbox(bounded(t), &wire.DeleteSandboxRequest{Name: "stuck"}); err != nil {
		code(t, codes.Unavailable, err) // or the reply came before
	}
	eventually(t, "the gateway is dead", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.life == nil })
	g.Start()
	c.back()
	if !c.delete("stuck") || g.Rows()["stuck"] != wire.SandboxPhase_SANDBOX_PHASE_DELETING || len(g.InMemory()) != 1 {
		t.Errorf("%v %v", g.Rows(), g.InMemory())
	}
	_, err = c.CreateSandbox(bounded(t), request("stuck"))
	code(t, codes.AlreadyExists, err)
	g.Reconcile()
	c.gone("stuck")

	c.ready("forgotten", nil)
	g.Fault("DeleteSandbox", ForgetDelete())
	if !c.delete("forgotten") || g.Rows()["forgotten"] != wire.SandboxPhase_SANDBOX_PHASE_READY {
		t.Errorf("%v", g.Rows())
	}
}

func TestRestarts(t *testing.T) {
	var started atomic.Int32
	g := Memory(t, Options{Run: func(p Process) int { started.Add(1); <-p.Killed; return 0 }})
	c := dial(t, g)
	before := c.ready("one", nil)
	id := before.GetMetadata().GetId()
	g.Kill()
	if g.InMemory()[0].State != running {
		t.Error("a kill has stopped a container")
	}
	g.Start()
	c.back()
	c.settled("one")
	if started.Load() != 1 {
		t.Errorf("started %d times", started.Load())
	}
	g.Stop()
	if g.InMemory()[0].State != exited {
		t.Error("a stop has not stopped the container")
	}
	g.Start()
	c.back()
	if s := c.settled("one"); s.GetStatus().GetPhase() != wire.SandboxPhase_SANDBOX_PHASE_READY || s.GetMetadata().GetId() != id || started.Load() != 2 {
		t.Errorf("%v, started %d times", s, started.Load())
	}
	// A container that goes behind the gateway's back.
	_, err := g.back.remove(id)
	must(t, err)
	c.gone("one")
	// One that never came: the gateway was killed before it asked for it.
	g.Fault(Landing, Before(g.Kill))
	_, _ = c.CreateSandbox(bounded(t), request("two"))
	eventually(t, "the gateway is dead", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return g.life == nil })
	g.Start()
	c.back()
	if s := c.settled("two"); reason(s) != "BackendResourceMissing" {
		t.Errorf("%v", s.GetStatus())
	}
	g.Reconcile()
	c.gone("two")
}

func TestFaults(t *testing.T) {
	g := Memory(t, Options{Run: func(p Process) int {
		if !p.Main {
			_, _ = io.WriteString(p.Stdout, "done\n")
			return 3
		}
		<-p.Killed
		return 0
	}})
	c := dial(t, g)
	for name, at := range map[string]struct {
		fault  Fault
		code   codes.Code
		exists bool
	}{
		"lost-request": {LoseRequest(), codes.Unavailable, false},
		"lost-reply":   {LoseReply(), codes.Unavailable, true},
		"failed":       {Fail(codes.Internal, "x"), codes.Internal, false},
		"failed-after": {FailAfter(codes.Internal, "x"), codes.Internal, true},
	} {
		g.Fault("CreateSandbox", at.fault)
		_, err := c.CreateSandbox(bounded(t), request(name))
		code(t, at.code, err)
		if _, there := g.Rows()[name]; there != at.exists {
			t.Errorf("%s: %v", name, g.Rows())
		}
	}
	g.Fault("GetSandbox", Hang().Times(2))
	for range 2 {
		ctx, cancel := context.WithTimeout(bounded(t), 20*time.Millisecond)
		_, err := c.GetSandbox(ctx, &wire.GetSandboxRequest{Name: "lost-reply"})
		cancel()
		code(t, codes.DeadlineExceeded, err)
	}
	// A client that gives up in the middle of a create leaves a row that nothing provisions.
	ctx, cancel := context.WithCancel(bounded(t))
	given := make(chan struct{})
	g.Fault(Stored, Before(func() { cancel(); <-given }))
	_, err := c.CreateSandbox(ctx, request("half"))
	code(t, codes.Canceled, err)
	c.back() // a later call on the same connection: the gateway knows of the cancellation
	close(given)
	eventually(t, "nothing provisions it", func() bool { g.mu.Lock(); defer g.mu.Unlock(); return !g.rows["half"].busy })
	if g.Rows()["half"] != wire.SandboxPhase_SANDBOX_PHASE_PROVISIONING {
		t.Errorf("%v", g.Rows())
	}
	s := c.settled("lost-reply")
	req := &wire.ExecSandboxRequest{SandboxId: s.GetMetadata().GetId(), Command: []string{"x"}}
	for _, at := range []struct {
		fault  Fault
		code   codes.Code
		exit   int
		stdout string
	}{
		{Before(func() {}), codes.OK, 3, "done\n"}, {CutExec(), codes.Unavailable, -1, "done\n"}, {EndExec(), codes.OK, -1, "done\n"},
		{LoseReply(), codes.Unavailable, -1, ""}, {LoseRequest(), codes.Unavailable, -1, ""},
	} {
		g.Fault("ExecSandbox", at.fault)
		exit, stdout, _, err := c.exec(req)
		if code(t, at.code, err); exit != at.exit || stdout != at.stdout {
			t.Errorf("%d %q %v; want %+v", exit, stdout, err, at)
		}
	}
}

func TestExecInMemory(t *testing.T) {
	g := Memory(t, Options{Run: func(p Process) int {
		switch {
		case p.Main || p.Argv[0] == "hang":
			<-p.Killed
			return 0
		case p.Argv[0] == "much":
			_, _ = p.Stderr.Write(bytes.Repeat([]byte("x"), 3*maxEvent+1))
			return 0
		default:
			_, _ = fmt.Fprint(p.Stdout, p.Argv, p.Dir, string(p.Stdin), p.Env[len(p.Env)-1])
			return 126
		}
	}})
	c := dial(t, g)
	id := c.ready("one", nil).GetMetadata().GetId()
	exit, stdout, _, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"a", "b c"}, Workdir: "/w", Stdin: []byte("in"), Environment: map[string]string{"K": "v"}})
	if err != nil || exit != 126 || stdout != "[a b c]/winK=v" {
		t.Errorf("%d %q %v", exit, stdout, err)
	}
	if _, _, stderr, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"much"}}); err != nil || len(stderr) != 3*maxEvent+1 {
		t.Errorf("%d %v", len(stderr), err)
	}
	if exit, _, _, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"hang"}, TimeoutSeconds: 1}); err != nil || exit != 124 {
		t.Errorf("%d %v", exit, err)
	}
	for want, req := range map[codes.Code]*wire.ExecSandboxRequest{
		codes.NotFound: {SandboxId: "nosuch", Command: []string{"a"}}, codes.InvalidArgument: {SandboxId: id, Command: []string{"a"}, Environment: map[string]string{"OPENSHELL_A": ""}},
		codes.OutOfRange: {SandboxId: id, Command: []string{"a"}, Stdin: make([]byte, maxMessage)},
	} {
		_, _, _, err := c.exec(req)
		code(t, want, err)
	}
}

// The engine of the containers in memory is one to laufwerk.
func TestTheEngineInMemory(t *testing.T) {
	g := Memory(t, Options{Images: []string{"image"}})
	c := dial(t, g)
	dir := t.TempDir()
	id := c.ready("one", func(r *wire.CreateSandboxRequest) {
		r.Spec.Template.Labels = map[string]string{"of": "tests"}
		r.Spec.Template.DriverConfig = object(t, map[string]any{"docker": map[string]any{"mounts": []any{map[string]any{"type": "bind", "source": dir, "target": "/sandbox/work"}}}})
		r.Spec.Template.Resources = object(t, map[string]any{"limits": map[string]any{"cpu": "1500m", "memory": "268435456"}})
	}).GetMetadata().GetId()
	e, err := dockerengine.Connect(bounded(t), dockerengine.Endpoint{Host: g.Engine(), Origin: "tests"})
	must(t, err)
	defer e.Close()
	list, err := e.List(bounded(t), map[string]string{"openshell.ai/sandbox-id": id, "of": "tests"})
	must(t, err)
	if len(list) != 1 {
		t.Fatalf("%v", list)
	}
	got, _, err := e.Inspect(bounded(t), list[0].ID)
	must(t, err)
	if got.HostConfig.NanoCPUs != 1500000000 || got.HostConfig.MemorySwap != 536870912 || len(got.Mounts) != 1 || got.Mounts[0].RW || got.Mounts[0].Source != dir {
		t.Errorf("%+v %+v", got.HostConfig.Resources, got.Mounts)
	}
	if _, presence, err := e.Image(bounded(t), "image"); err != nil || presence != resource.Present {
		t.Errorf("%v %v", presence, err)
	}
	_, err = e.Remove(bounded(t), list[0].ID)
	must(t, err)
	c.gone("one")
}

func TestProvidersAndProfiles(t *testing.T) {
	g := Memory(t, Options{})
	c := dial(t, g)
	_, err := c.GetProviderProfile(bounded(t), &wire.GetProviderProfileRequest{Id: "codex"})
	if code(t, codes.NotFound, err); status.Convert(err).Message() != "provider profile not found" {
		t.Errorf("%v", err)
	}
	got, err := c.GetProviderProfile(bounded(t), &wire.GetProviderProfileRequest{Id: "codex", Workspace: "default"})
	must(t, err)
	p := got.GetProfile()
	p.Id = "laufwerk-codex"
	item := &wire.ImportProviderProfilesRequest{Workspace: "default", Profiles: []*wire.ProviderProfileImportItem{{Profile: p, Source: "tests"}}}
	for i, imported := range []bool{true, false} {
		out, err := c.ImportProviderProfiles(bounded(t), item)
		must(t, err)
		if out.GetImported() != imported || (len(out.GetDiagnostics()) > 0) == imported {
			t.Errorf("%d: %v", i, out)
		}
	}
	_, err = c.GetProvider(bounded(t), &wire.GetProviderRequest{Name: "p"})
	if code(t, codes.NotFound, err); status.Convert(err).Message() != "provider not found" {
		t.Errorf("%v", err)
	}
	values := map[string]string{"CODEX_AUTH_ACCESS_TOKEN": "secret", "CODEX_AUTH_ACCOUNT_ID": "account"}
	create := &wire.CreateProviderRequest{Provider: &wire.Provider{Metadata: &wire.ObjectMeta{Name: "p"}, Type: "laufwerk-codex", Credentials: values}}
	_, err = c.CreateProvider(bounded(t), create)
	must(t, err)
	_, err = c.CreateProvider(bounded(t), create)
	code(t, codes.AlreadyExists, err)
	told, err := c.GetProvider(bounded(t), &wire.GetProviderRequest{Name: "p"})
	must(t, err)
	if told.GetProvider().GetCredentials()["CODEX_AUTH_ACCESS_TOKEN"] != "REDACTED" || len(told.GetProvider().GetCredentials()) != 2 {
		t.Errorf("%v", told)
	}
	env := func() string {
		g.mu.Lock()
		defer g.mu.Unlock()
		return strings.Join(g.life.environment(g.rows["one"]), "\n") + "\n"
	}
	c.ready("one", func(r *wire.CreateSandboxRequest) { r.Spec.Providers = []string{"p"} })
	if !strings.Contains(env(), "CODEX_AUTH_ACCESS_TOKEN=openshell:resolve:env:v1_CODEX_AUTH_ACCESS_TOKEN\n") || strings.Contains(env(), "secret") {
		t.Error(env())
	}
	_, err = c.UpdateProvider(bounded(t), &wire.UpdateProviderRequest{
		Provider:              &wire.Provider{Metadata: &wire.ObjectMeta{Name: "p"}},
		CredentialExpiresAtMs: map[string]int64{"CODEX_AUTH_ACCESS_TOKEN": time.Now().Add(-time.Second).UnixMilli()},
	})
	must(t, err)
	if strings.Contains(env(), "ACCESS_TOKEN") || !strings.Contains(env(), "v2_CODEX_AUTH_ACCOUNT_ID") {
		t.Error(env())
	}
}

func TestPolicyIsEnlargedAndSaysWhoseItIs(t *testing.T) {
	for global, want := range map[bool]wire.PolicySource{false: wire.PolicySource_POLICY_SOURCE_SANDBOX, true: wire.PolicySource_POLICY_SOURCE_GLOBAL} {
		c := dial(t, Memory(t, Options{GlobalPolicy: global}))
		s := c.ready("one", func(r *wire.CreateSandboxRequest) {
			r.Spec.Policy = &wire.SandboxPolicy{Version: 1, Filesystem: &wire.FilesystemPolicy{ReadOnly: []string{"/usr", "/lib", "/etc", "/proc", "/dev/urandom"}, ReadWrite: []string{"/tmp"}},
				NetworkPolicies: map[string]*wire.NetworkPolicyRule{"a": {Endpoints: []*wire.NetworkEndpoint{{Host: "example.com", Port: 443}}}}}
		})
		got, err := c.GetSandboxConfig(bounded(t), &wire.GetSandboxConfigRequest{SandboxId: s.GetMetadata().GetId()})
		must(t, err)
		if got.GetPolicySource() != want || got.GetVersion() != 2 || fmt.Sprint(got.GetPolicy().GetFilesystem().GetReadOnly()) != "[/usr /lib /etc /proc /dev/urandom /var/log]" {
			t.Errorf("%v", got)
		}
	}
}

func TestNobodyElseIsLetIn(t *testing.T) {
	g := Memory(t, Options{})
	c := dial(t, g)
	g.Rotate()
	g.Restart()
	ctx, cancel := context.WithTimeout(bounded(t), 300*time.Millisecond)
	defer cancel()
	if _, err := c.Health(ctx, &wire.HealthRequest{}); err == nil {
		t.Error("an old certificate is taken")
	}
	_, err := dial(t, g).Health(bounded(t), &wire.HealthRequest{})
	must(t, err)
}
