package openshell

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	api "github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Examine looks at the host, the gateway and the engine, and at what the target has of them.
func (p *Provider) Examine(ctx context.Context, def targets.Definition) []checks.Check {
	c, err := decode(def)
	if err != nil {
		return []checks.Check{checks.Failed("options", err)}
	}
	if err := p.host(); err != nil {
		return []checks.Check{checks.Failed("host", err)}
	}
	out := []checks.Check{checks.New("host", checks.Pass, "sessions run as this process's user, %d:%d", p.c.UID, p.c.GID), p.examineLandlock()}
	gateway, engine := p.reachBoth(ctx, c)
	g, e := gateway.value, engine.value
	out = append(out, examineGateway(c, g, gateway.err), p.examineEngine(g, e, engine.err))
	if engine.err != nil {
		out = append(out, checks.New("limits", checks.Skip, "not checked: the engine cannot be reached"), checks.New("image", checks.Skip, "not checked: the engine cannot be reached"))
	} else {
		i, err := p.image(ctx, e, def, c)
		out = append(out, examineLimits(c, e.Facts()), p.examineImage(def, c, i, err))
		out = append(out, p.examinePrograms(def, c, err)...)
	}
	return append(out, p.examineProvider(ctx, g, def, c)...)
}

func (p *Provider) examineLandlock() checks.Check {
	version, err := p.landlockVersion()
	if err != nil {
		return checks.Failed("landlock", err)
	}
	return checks.New("landlock", checks.Pass, "the kernel enforces Landlock rules").WithEvidence(fmt.Sprintf("version %d", version))
}

func examineGateway(c config, g *client.Gateway, err error) checks.Check {
	const id = "gateway"
	if err != nil {
		return checks.Failed(id, err)
	}
	f, r := g.Facts(), g.Registration()
	out := checks.New(id, checks.Pass, "OpenShell %s answers at %s, with the driver %s", f.Version, r.Endpoint, f.Driver)
	if f.Warning != "" {
		out = checks.New(id, checks.Warn, "%s", f.Warning)
	}
	return out.WithEvidence(r.Identity(), r.Dir)
}

// examineEngine compares the engine of the settings with the one of the gateway, which says its version alone: that they are the
// same is proved by the container of each sandbox.
func (p *Provider) examineEngine(g *client.Gateway, e *dockerengine.Engine, err error) checks.Check {
	const id = "engine"
	if err == nil {
		err = checkEngine(e.Facts())
	}
	if err != nil {
		return checks.Failed(id, err)
	}
	f := e.Facts()
	out := checks.New(id, checks.Pass, "Docker %s answers at %s; each sandbox's container shows whether it is the gateway's engine", f.Version, e.Endpoint())
	if g != nil && g.Facts().DriverVersion != "" && g.Facts().DriverVersion != f.Version {
		out = checks.New(id, checks.Warn, "Docker %s answers at %s, and the gateway works with Docker %s: it may be another engine", f.Version, e.Endpoint(), g.Facts().DriverVersion).
			WithHint("export LAUFWERK_DOCKER_HOST=unix:///…   # the socket of the gateway's engine")
	}
	return out.WithEvidence(f.Identity())
}

func examineLimits(c config, f dockerengine.Facts) checks.Check {
	if err := owned.CheckLimits(f, c.Resources); err != nil {
		return checks.Failed("limits", err)
	}
	return checks.New("limits", checks.Pass, "the engine enforces the limits that the target has; those of processes and swap are the gateway's")
}

func (p *Provider) examineImage(def targets.Definition, c config, i api.InspectResponse, err error) checks.Check {
	switch {
	case err != nil:
		return checks.Failed("image", err)
	case c.Image != "":
		return checks.New("image", checks.Pass, "the image %s is on the engine, and is a prepared one", c.Image).WithEvidence(i.ID)
	}
	return checks.New("image", checks.Pass, "the prepared image is on the engine and matches its receipt").WithEvidence(i.ID, p.cache(def, c).StandardFile())
}

// examinePrograms says whether the agent programs are in the image that have to be.
func (p *Provider) examinePrograms(def targets.Definition, c config, imageErr error) (out []checks.Check) {
	for _, program := range p.c.Programs.Installable() {
		id := program.Name() + ".program"
		switch err := p.checkCarried(program, def, c); {
		case imageErr != nil:
			out = append(out, checks.New(id, checks.Skip, "not checked: the image is missing"))
		case err != nil:
			out = append(out, checks.New(id, checks.Skip, "%v", err))
		default:
			out = append(out, checks.New(id, checks.Pass, "%s %s is in the image", program.Title(), program.Recipe().Version))
		}
	}
	return out
}

// examineProvider looks at the login that the gateway holds, as far as it shows it.
func (p *Provider) examineProvider(ctx context.Context, g *client.Gateway, def targets.Definition, c config) []checks.Check {
	const id = "provider"
	if g == nil {
		return []checks.Check{checks.New(id, checks.Skip, "not checked: the gateway cannot be reached")}
	}
	h, failed := p.credentialProvider(ctx, g, def, c)
	var out []checks.Check
	for _, err := range failed {
		out = append(out, checks.Failed(id, err))
	}
	if len(out) > 0 {
		return out
	}
	one := checks.New(id, checks.Pass, "the gateway stores the login %q, of type %s, whose expiry it does not know", c.Credentials.Provider, h.GetType()).WithEvidence(credentialKeys(h)...)
	if at, known := expiry(h, p.c.Programs.Credential(c.Credentials.Kind).Profile); known {
		left := at.Sub(p.c.Now())
		one.Message = fmt.Sprintf("the gateway stores the login %q, of type %s, valid for %s", c.Credentials.Provider, h.GetType(), left.Round(time.Minute))
		if left < time.Hour {
			one.Status, one.Hint = checks.Warn, rotateHint(def)
			one.Message += " only"
		}
	}
	return []checks.Check{one}
}

// credentials are what keeps agents from the login that the gateway holds.
func (p *Provider) credentials(ctx context.Context, g *client.Gateway, def targets.Definition, c config) []error {
	_, failed := p.credentialProvider(ctx, g, def, c)
	return failed
}

// credentialProvider is the provider of a target's credentials at the gateway, and what is wrong with it. Providers that were made by hand are
// as good as others, and record no end.
func (p *Provider) credentialProvider(ctx context.Context, g *client.Gateway, def targets.Definition, c config) (*wire.Provider, []error) {
	name, alias := c.Credentials.Provider, c.Gateway
	program, ok := p.c.Programs.ByCredential(c.Credentials.Kind)
	if !ok {
		return nil, []error{failure.New(failure.Unsupported, "no agent program of this build runs with the credentials %q", c.Credentials.Kind)}
	}
	title, rules, binaries := program.Title(), program.Credential().Profile, policy.Binaries(program.Name())
	provision := "laufwerk provision openshell --target " + failure.Quote(def.ID)
	got, presence, err := g.Provider(ctx, name)
	switch {
	case presence == resource.Absent:
		return nil, []error{failure.New(failure.NotReady, "the gateway %q has no provider %q, which stores the login of the target %q", alias, name, def.ID).WithHint("%s", provision)}
	case presence != resource.Present:
		return nil, []error{failure.Wrap(err, failure.NotReady, "read the provider %q of the gateway %q", name, alias)}
	case got.GetType() != rules.ID:
		return got, []error{failure.New(failure.NotReady, "the provider %q of the gateway %q is of type %q, and not %s: the rules of that type do not let %s of the prepared image use it", name, alias, got.GetType(), rules.ID, title).
			WithHint("openshell provider get %s --gateway %s   # name another provider in the target, or delete this one and then\n%s", failure.Quote(name), failure.Quote(alias), provision)}
	}
	var out []error
	var missing []string
	for _, key := range rules.Required {
		if _, ok := got.GetCredentials()[key]; !ok {
			missing = append(missing, key)
		}
	}
	if len(missing) > 0 {
		out = append(out, failure.New(failure.NotReady, "the provider %q of the gateway %q lacks %s", name, alias, strings.Join(missing, ", ")).WithHint("%s", rotateHint(def)))
	}
	if at, known := expiry(got, rules); known {
		switch left := at.Sub(p.c.Now()); {
		case left <= 0:
			out = append(out, failure.New(failure.NotReady, "the login that the gateway %q stores as %q expired %s ago", alias, name, -left.Round(time.Minute)).WithHint("%s", rotateHint(def)))
		case left < agent.LeastValidity:
			out = append(out, failure.New(failure.NotReady, "the login that the gateway %q stores as %q expires in %s", alias, name, left.Round(time.Second)).WithHint("%s", rotateHint(def)))
		}
	}
	profile, presence, err := g.Profile(ctx, rules.ID)
	switch {
	case presence == resource.Absent:
		out = append(out, failure.New(failure.NotReady, "the gateway %q has no profile %s", alias, rules.ID).WithHint("%s", provision))
	case presence != resource.Present:
		out = append(out, failure.Wrap(err, failure.NotReady, "read the profile %s of the gateway %q", rules.ID, alias))
	case !slices.ContainsFunc(profile.GetBinaries(), func(b *wire.NetworkBinary) bool { return b.GetPath() == binaries }):
		out = append(out, failure.New(failure.NotReady, "the profile %s of the gateway %q does not name %s, where %s is in prepared images", rules.ID, alias, binaries, title).
			WithHint("openshell provider profile delete %s --gateway %s && %s", rules.ID, failure.Quote(alias), provision))
	}
	return got, out
}

func rotateHint(def targets.Definition) string {
	return "laufwerk provision openshell --target " + failure.Quote(def.ID) + " --rotate"
}

// expiry is when the first of a provider's required credentials expires, as far as the gateway knows.
func expiry(h *wire.Provider, rules *agent.Profile) (at time.Time, known bool) {
	for _, key := range rules.Shown {
		if ms := h.GetCredentialExpiresAtMs()[key]; ms > 0 && (!known || time.UnixMilli(ms).Before(at)) {
			at, known = time.UnixMilli(ms), true
		}
	}
	return at, known
}

func credentialKeys(h *wire.Provider) (out []string) {
	for key := range h.GetCredentials() {
		out = append(out, key)
	}
	slices.Sort(out)
	return out
}

// Probe asks our own program in the sandbox who it is.
func (p *Provider) Probe(resource.Intent, targets.Definition) providers.Probe {
	return providers.Probe{Argv: guest.Probe(), Read: func(stdout []byte) []checks.Check {
		got, err := guest.ReadProbe(stdout)
		if err != nil {
			return []checks.Check{checks.Failed("", err)}
		}
		return []checks.Check{checks.New("", checks.Pass, "a command ran in a sandbox on this host's engine with access to files and locks of this host, and everything was removed afterwards").
			WithEvidence(fmt.Sprintf("user %d:%d", got.UID, got.GID), "kernel "+got.Kernel)}
	}}
}
