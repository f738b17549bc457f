package openshell

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// verifySandbox compares a READY sandbox with its intent: the gateway's record, the enforced policy and the container on the recorded
// engine, which proves that gateway and worker use the same engine and host. A difference is an *unusableError; other errors are
// those of queries.
func (p *Provider) verifySandbox(ctx context.Context, g *client.Gateway, e *dockerengine.Engine, in resource.Intent, s spec, sb *wire.Sandbox) error {
	different := func(format string, args ...any) error {
		return &unusableError{failure.New(failure.NotReady, "the sandbox %s does not match the request: %s", client.Name(in.Claim), fmt.Sprintf(format, args...))}
	}
	if why := difference(sb, in, s); why != "" {
		return different("%s", why)
	}
	var source wire.PolicySource
	var own, others []container.Summary
	var looks errgroup.Group
	looks.Go(func() (err error) { source, err = g.PolicySource(ctx, in.Resource); return err })
	looks.Go(func() (err error) {
		own, others, err = location{p: p, intent: in, s: s, g: g, e: e}.containers(ctx)
		return err
	})
	if err := looks.Wait(); err != nil {
		return err
	}
	if source != wire.PolicySource_POLICY_SOURCE_SANDBOX {
		return &unusableError{failure.New(failure.Unsupported, "the gateway %q has a policy of its own, which replaces that of every sandbox, the target's included", s.Gateway).
			WithHint("openshell policy get --global --gateway %s   # it has to be deleted for this target", failure.Quote(s.Gateway))}
	}
	switch {
	case len(own)+len(others) == 0:
		return &unusableError{failure.New(failure.NotReady, "the sandbox runs, and the %s has no container of it: the gateway %q works with another engine, or on another host", s.Engine, s.Gateway).
			WithHint("export LAUFWERK_DOCKER_HOST=unix:///…   # the socket of the gateway's engine")}
	case len(own) == 0:
		return different("its container %s was made from the image %s, or does not have its labels", others[0].ID, others[0].ImageID)
	case len(own)+len(others) > 1:
		return different("%d containers have its id", len(own)+len(others))
	}
	got, presence, err := e.Inspect(ctx, own[0].ID)
	if presence != resource.Present {
		return failure.Wrap(err, failure.NotReady, "inspect the container %s of the sandbox", own[0].ID)
	}
	if why := containerDiffers(got, s); why != "" {
		return different("%s", why)
	}
	p.compared.Store(in.Resource, true)
	return nil
}

// difference says how the gateway's record differs from the request, "" if not. A gateway adds read-only paths that its own programs
// need.
func difference(sb *wire.Sandbox, in resource.Intent, s spec) string {
	want, got := s.policy(), sb.GetSpec().GetPolicy()
	labels := sb.GetMetadata().GetLabels()
	template := sb.GetSpec().GetTemplate()
	points := []struct{ what, got, want string }{
		{"its id", sb.GetMetadata().GetId(), in.Resource},
		{"its name", sb.GetMetadata().GetName(), client.Name(in.Claim)},
		{"its phase", phaseName(sb), "READY"},
		{"its image", template.GetImage(), s.Image},
		{"its user", got.GetProcess().GetRunAsUser(), want.GetProcess().GetRunAsUser()},
		{"its group", got.GetProcess().GetRunAsGroup(), want.GetProcess().GetRunAsGroup()},
		{"the strictness of its file system rules", got.GetLandlock().GetCompatibility(), want.GetLandlock().GetCompatibility()},
		{"its credentials", strings.Join(sb.GetSpec().GetProviders(), " "), s.Provider},
		{"its number of network rules", strconv.Itoa(len(got.GetNetworkPolicies())), strconv.Itoa(len(want.GetNetworkPolicies()))},
	}
	for name, value := range client.Labels(in.Owner, in.Claim, in.Run) {
		points = append(points, struct{ what, got, want string }{"its label " + name, labels[name], value})
	}
	for _, p := range points {
		if p.got != p.want {
			return fmt.Sprintf("%s is %q instead of %q", p.what, p.got, p.want)
		}
	}
	for name, rule := range want.GetNetworkPolicies() {
		switch there := got.GetNetworkPolicies()[name]; {
		case there == nil:
			return fmt.Sprintf("it has no network rule %q", name)
		case !slices.Equal(ruleReach(there), ruleReach(rule)):
			return fmt.Sprintf("its network rule %q does not permit what was requested", name)
		}
	}
	if got.GetFilesystem().GetIncludeWorkdir() {
		return policy.Root + " can be written in it"
	}
	for _, dir := range got.GetFilesystem().GetReadWrite() {
		if !slices.Contains(want.GetFilesystem().GetReadWrite(), dir) {
			return fmt.Sprintf("%s can be written in it", dir)
		}
	}
	return ""
}

// ruleReach is a network rule in a normal form: gateways reorder rules, and move a port into a list.
func ruleReach(rule *wire.NetworkPolicyRule) []string {
	var out []string
	for _, e := range rule.GetEndpoints() {
		ports := slices.DeleteFunc(append(slices.Clone(e.GetPorts()), e.GetPort()), func(n uint32) bool { return n == 0 })
		slices.Sort(ports)
		addresses := slices.Sorted(slices.Values(e.GetAllowedIps()))
		out = append(out, fmt.Sprintf("%q %v %q: %q %q %q %q, %d permitted and %d denied", strings.ToLower(e.GetHost()), slices.Compact(ports), addresses,
			e.GetProtocol(), e.GetEnforcement(), e.GetAccess(), e.GetPath(), len(e.GetRules()), len(e.GetDenyRules())))
	}
	for _, b := range rule.GetBinaries() {
		out = append(out, b.GetPath())
	}
	slices.Sort(out)
	return out
}

// containerDiffers says how the container differs from the intent. OpenShell's own mounts are ignored.
func containerDiffers(got container.InspectResponse, s spec) string {
	if got.HostConfig == nil {
		return "the engine does not describe its container"
	}
	for _, l := range []struct {
		what      string
		got, want int64
	}{
		{"memory limit", got.HostConfig.Memory, s.Resources.MemoryBytes}, {"limit of CPUs", got.HostConfig.NanoCPUs, s.nanoCPUs()},
	} {
		if l.got != l.want {
			return fmt.Sprintf("the %s of its container is %d instead of %d", l.what, l.got, l.want)
		}
	}
	seen := map[string]container.MountPoint{}
	for _, m := range got.Mounts {
		seen[m.Destination] = m
	}
	for _, w := range s.mounts() {
		m, ok := seen[w.target]
		delete(seen, w.target)
		switch {
		case !ok:
			return fmt.Sprintf("nothing is mounted at %s", w.target)
		case m.Type != "bind" || path.Clean(m.Source) != path.Clean(w.source):
			return fmt.Sprintf("at %s is mounted %s instead of %s", w.target, m.Source, w.source)
		case m.RW == w.readOnly:
			return fmt.Sprintf("the mount at %s does not have the access that was requested", w.target)
		}
	}
	for at := range seen {
		if at == policy.Root || strings.HasPrefix(at, policy.Root+"/") || strings.HasPrefix(s.mounts()[3].target+"/", at+"/") {
			return fmt.Sprintf("something else is mounted at %s", at)
		}
	}
	return ""
}
