package openshell

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// whole is an intent with all that one can ask for.
func whole(t *testing.T) (resource.Intent, spec) {
	t.Helper()
	network, err := policy.Parse(json.RawMessage(`{
		"a":{"endpoints":[{"host":"a.example.com","ports":[443,80],"protocol":"rest","access":"read-only","enforcement":"enforce"},{"host":"b.example.com","port":22}],"binaries":[{"path":"/usr/bin/git"}]},
		"b":{"endpoints":[{"allowedIps":["10.0.0.0/8"],"port":5000}],"binaries":[{"path":"/usr/bin/x"},{"path":"/usr/bin/y"}]}}`))
	must(t, err)
	return resource.Intent{Claim: "c", Owner: "o", Run: "r", Resource: "id"}, spec{
		Dir: "/s", Workspace: "/w", ReadOnly: true, Image: "i", UID: 1234, GID: 1235, Provider: "held", Binary: "/b/laufwerk", Policy: network,
		Resources: targets.Resources{CPUs: 1.5, MemoryBytes: 1 << 28},
	}
}

// Nothing that a gateway has of a sandbox may be otherwise than it was asked for, but for what it adds by itself: paths that can
// be read, and the form of a port.
func TestWhatAGatewayHasOfASandboxIsCompared(t *testing.T) {
	t.Parallel()
	in, s := whole(t)
	asked, err := s.request(in)
	must(t, err)
	is := func() *wire.Sandbox {
		return &wire.Sandbox{
			Metadata: &wire.ObjectMeta{Id: "id", Name: client.Name("c"), Labels: client.Labels("o", "c", "r")},
			Spec:     proto.CloneOf(asked.GetSpec()), Status: &wire.SandboxStatus{Phase: wire.SandboxPhase_SANDBOX_PHASE_READY},
		}
	}
	rule := func(sb *wire.Sandbox, name string) *wire.NetworkPolicyRule {
		return sb.Spec.Policy.NetworkPolicies[name]
	}
	for name, change := range map[string]func(sb *wire.Sandbox){
		"nothing": func(*wire.Sandbox) {},
		"more to read": func(sb *wire.Sandbox) {
			sb.Spec.Policy.Filesystem.ReadOnly = append(sb.Spec.Policy.Filesystem.ReadOnly, "/var/log")
		},
		"its version": func(sb *wire.Sandbox) { sb.Spec.Policy.Version = 2 },
		"a port in both forms": func(sb *wire.Sandbox) {
			rule(sb, "a").Endpoints[0].Port, rule(sb, "a").Endpoints[0].Ports = 80, []uint32{80, 443}
			rule(sb, "a").Endpoints[1].Ports = []uint32{22}
		},
		"another order": func(sb *wire.Sandbox) {
			e := rule(sb, "a").Endpoints
			e[0], e[1] = e[1], e[0]
		},
	} {
		sb := is()
		change(sb)
		if why := difference(sb, in, s); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	for says, change := range map[string]func(sb *wire.Sandbox){
		"its id":                         func(sb *wire.Sandbox) { sb.Metadata.Id = "other" },
		"its name":                       func(sb *wire.Sandbox) { sb.Metadata.Name = "lw-x" },
		"its phase":                      func(sb *wire.Sandbox) { sb.Status.Phase = wire.SandboxPhase_SANDBOX_PHASE_STOPPED },
		"its label " + client.LabelOwner: func(sb *wire.Sandbox) { sb.Metadata.Labels[client.LabelOwner] = "x" },
		"its label " + client.LabelClaim: func(sb *wire.Sandbox) { delete(sb.Metadata.Labels, client.LabelClaim) },
		"its label " + client.LabelRun:   func(sb *wire.Sandbox) { sb.Metadata.Labels[client.LabelRun] = "x" },
		"its image":                      func(sb *wire.Sandbox) { sb.Spec.Template.Image = "x" },
		"its user":                       func(sb *wire.Sandbox) { sb.Spec.Policy.Process.RunAsUser = "sandbox" },
		"its group":                      func(sb *wire.Sandbox) { sb.Spec.Policy.Process = &wire.ProcessPolicy{RunAsUser: "1234"} },
		"the strictness of its file system rules": func(sb *wire.Sandbox) { sb.Spec.Policy.Landlock.Compatibility = "best_effort" },
		"its credentials":                         func(sb *wire.Sandbox) { sb.Spec.Providers = append(sb.Spec.Providers, "another") },
		"its number of network rules":             func(sb *wire.Sandbox) { sb.Spec.Policy.NetworkPolicies["c"] = rule(sb, "a") },
		`it has no network rule "a"`: func(sb *wire.Sandbox) {
			sb.Spec.Policy.NetworkPolicies["c"] = rule(sb, "a")
			delete(sb.Spec.Policy.NetworkPolicies, "a")
		},
		policy.Root + " can be written in it": func(sb *wire.Sandbox) { sb.Spec.Policy.Filesystem.IncludeWorkdir = true },
		policy.Work + " can be written in it": func(sb *wire.Sandbox) {
			sb.Spec.Policy.Filesystem.ReadWrite = append(sb.Spec.Policy.Filesystem.ReadWrite, policy.Work)
		},
	} {
		sb := is()
		change(sb)
		if why := difference(sb, in, s); !strings.HasPrefix(why, says) {
			t.Errorf("%q instead of %q", why, says)
		}
	}
	for name, change := range map[string]func(sb *wire.Sandbox){
		"another host":    func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[0].Host = "*.example.com" },
		"another port":    func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[0].Ports[1] = 8080 },
		"one port more":   func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[1].Ports = []uint32{22, 23} },
		"only logged":     func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[0].Enforcement = "audit" },
		"more access":     func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[0].Access = "full" },
		"not looked into": func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[0].Protocol = "" },
		"a rule more":     func(sb *wire.Sandbox) { rule(sb, "a").Endpoints[0].Rules = []*wire.L7Rule{{}} },
		"an endpoint more": func(sb *wire.Sandbox) {
			rule(sb, "a").Endpoints = append(rule(sb, "a").Endpoints, &wire.NetworkEndpoint{Host: "x", Port: 1})
		},
		"an endpoint less": func(sb *wire.Sandbox) { rule(sb, "a").Endpoints = rule(sb, "a").Endpoints[:1] },
		"other addresses":  func(sb *wire.Sandbox) { rule(sb, "b").Endpoints[0].AllowedIps[0] = "0.0.0.0/1" },
		"a program more": func(sb *wire.Sandbox) {
			rule(sb, "b").Binaries = append(rule(sb, "b").Binaries, &wire.NetworkBinary{Path: "/**"})
		},
		"another program":    func(sb *wire.Sandbox) { rule(sb, "b").Binaries[0].Path = "/usr/bin/z" },
		"a rule for nothing": func(sb *wire.Sandbox) { sb.Spec.Policy.NetworkPolicies["b"] = &wire.NetworkPolicyRule{} },
	} {
		sb := is()
		change(sb)
		if why := difference(sb, in, s); !strings.Contains(why, "does not permit what was requested") {
			t.Errorf("%s: %q", name, why)
		}
	}
}

func TestWhatTheEngineHasOfASandboxIsCompared(t *testing.T) {
	t.Parallel()
	_, s := whole(t)
	is := func() container.InspectResponse {
		c := container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{HostConfig: &container.HostConfig{}}}
		c.HostConfig.Memory, c.HostConfig.NanoCPUs = 1<<28, 1_500_000_000
		c.Mounts = []container.MountPoint{{Type: "bind", Source: "/etc/openshell", Destination: "/opt/openshell", RW: true}}
		for _, m := range s.mounts() {
			c.Mounts = append(c.Mounts, container.MountPoint{Type: "bind", Source: m.source, Destination: m.target, RW: !m.readOnly})
		}
		return c
	}
	at := func(c *container.InspectResponse, target string) *container.MountPoint {
		for i := range c.Mounts {
			if c.Mounts[i].Destination == target {
				return &c.Mounts[i]
			}
		}
		panic(target)
	}
	if why := containerDiffers(is(), s); why != "" {
		t.Error(why)
	}
	more := func(target string) func(c *container.InspectResponse) {
		return func(c *container.InspectResponse) {
			c.Mounts = append(c.Mounts, container.MountPoint{Type: "bind", Source: "/x", Destination: target})
		}
	}
	for name, c := range map[string]struct {
		change func(c *container.InspectResponse)
		says   string
	}{
		"not described":             {func(c *container.InspectResponse) { c.HostConfig = nil }, "does not describe"},
		"no limit of memory":        {func(c *container.InspectResponse) { c.HostConfig.Memory = 0 }, "memory limit"},
		"more CPUs":                 {func(c *container.InspectResponse) { c.HostConfig.NanoCPUs++ }, "limit of CPUs"},
		"no workspace":              {func(c *container.InspectResponse) { at(c, policy.Work).Destination = "/elsewhere" }, "nothing is mounted at " + policy.Work},
		"no mounts at all":          {func(c *container.InspectResponse) { c.Mounts = nil }, "nothing is mounted at " + policy.Work},
		"another workspace":         {func(c *container.InspectResponse) { at(c, policy.Work).Source = "/x" }, "is mounted /x instead of /w"},
		"a volume":                  {func(c *container.InspectResponse) { at(c, policy.Home).Type = "volume" }, "at " + policy.Home},
		"one that can be written":   {func(c *container.InspectResponse) { at(c, policy.Work).RW = true }, "does not have the access"},
		"a supervisor of anybody's": {func(c *container.InspectResponse) { at(c, guest.Binary).RW = true }, "does not have the access"},
		"no records":                {func(c *container.InspectResponse) { at(c, policy.Ops).RW = false }, "does not have the access"},
		"over all":                  {more(policy.Root), "something else is mounted at " + policy.Root},
		"over the agent's program":  {more(policy.Root + "/.harness-bootstrap"), "something else is mounted at"},
		"over the supervisor":       {more(filepath.Dir(guest.Binary)), "something else is mounted at"},
	} {
		got := is()
		c.change(&got)
		if why := containerDiffers(got, s); !strings.Contains(why, c.says) {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// A gateway takes a driver_config without the mounts: a sandbox of ours, by all that its labels say, is not used without them.
func TestASandboxWithoutItsMountsIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.intent()
	w.stranger(in, func(*wire.CreateSandboxRequest) {})
	r := k.Create(bounded(t), in)
	if r.Outcome != resource.NotDone || !failure.Is(r.Err, failure.NotReady) || !strings.Contains(r.Err.Error(), "nothing is mounted at "+policy.Work) {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
}

// A gateway that passes for one of this host, and mounts the files of another: what its sandboxes write is not seen here, or their
// locks are not. Nothing is run there.
func TestASandboxOnAnotherHostIsNotEntered(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	in := w.made(k, w.intent())
	k.Provider.w.ready = 100 * time.Millisecond
	proof := filepath.Join(w.sessionDir(in), "ops", readyFile)
	for _, c := range []struct{ proof, says string }{
		{"", "is not visible on this host: the gateway \"here\" seems to be on another one"},
		{"another", "is not visible on this host"},
		{"n", "has this host's files, but not their locks"},
	} {
		if c.proof != "" {
			must(t, os.WriteFile(proof, []byte(c.proof), 0o600))
		}
		if _, err := k.Enter(bounded(t), in, coding); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v", c.proof, err)
		}
	}
	if n := w.g.Calls()["ExecSandbox"]; n > 0 {
		t.Errorf("%d commands", n)
	}
	if r := k.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("%v %v", r.Outcome, r.Err)
	}
	w.ended(k, in)
}

// An image that was made from a sandbox's container passes its labels on: what carries them is not ours by that, and is said.
func TestContainersThatOnlyCarryLabels(t *testing.T) {
	t.Parallel()
	now := time.Now()
	labels := func(id, owner, claim string) map[string]string {
		return map[string]string{owned.LabelSandbox: id, client.LabelOwner: owner, client.LabelClaim: claim}
	}
	p := New(Config{Now: time.Now})
	for name, c := range map[string]struct {
		resource     string
		one          container.Summary
		ours, others int
	}{
		"ours":                      {"id", container.Summary{ImageID: "i", Created: 1, Labels: labels("id", "o", "c")}, 1, 0},
		"of another sandbox":        {"id", container.Summary{ImageID: "i", Created: 1, Labels: labels("other", "o", "c")}, 0, 0},
		"of another image":          {"id", container.Summary{ImageID: "x", Created: 1, Labels: labels("id", "o", "c")}, 0, 1},
		"of another store":          {"id", container.Summary{ImageID: "i", Created: 1, Labels: labels("id", "x", "c")}, 0, 1},
		"of another claim":          {"id", container.Summary{ImageID: "i", Created: 1, Labels: labels("id", "o", "x")}, 0, 1},
		"without an id":             {"", container.Summary{ImageID: "i", Created: now.Unix(), Labels: labels("id", "o", "c")}, 1, 0},
		"without an id, and before": {"", container.Summary{ImageID: "i", Created: now.Add(-time.Hour).Unix(), Labels: labels("id", "o", "c")}, 0, 1},
	} {
		l := location{p: p, intent: resource.Intent{Claim: "c", Owner: "o", Resource: c.resource, At: now}, s: spec{Image: "i", Engine: "engine"}}
		ours, others := l.splitContainers([]container.Summary{c.one})
		if len(ours) != c.ours || len(others) != c.others {
			t.Errorf("%s: %d ours, %d others", name, len(ours), len(others))
		}
		o := l.combine(sighting{presence: resource.Absent}, ours, others, nil)
		want := map[bool]resource.Presence{true: resource.Present, false: resource.Absent}[c.ours > 0]
		if c.others > 0 {
			want = resource.Unobserved
		}
		if o.Presence != want || (o.Err != nil) != (c.others > 0) || c.others > 0 && !failure.Is(o.Err, failure.Retained) {
			t.Errorf("%s: %v %v", name, o.Presence, o.Err)
		}
	}
	if o := (location{p: p}).combine(sighting{presence: resource.Absent}, nil, nil, context.DeadlineExceeded); o.Presence != resource.Unobserved || o.Err == nil {
		t.Errorf("an engine that does not answer: %v %v", o.Presence, o.Err)
	}
}
