package openshell

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Provider looks at a provider of credentials. The gateway shows the names of its credentials and when they expire, in
// milliseconds since 1970 (0 and none: it does not know), never their values.
func (g *Gateway) Provider(ctx context.Context, name string) (*wire.Provider, resource.Presence, error) {
	c, cancel := beginCall(ctx, g.limits.query)
	defer cancel()
	answer, err := g.client().GetProvider(c.ctx, &wire.GetProviderRequest{Name: name, Workspace: Workspace})
	if c.isAbsent(err, "provider not found") {
		return nil, resource.Absent, nil
	}
	if err == nil && answer.GetProvider() == nil {
		err = errors.New("the gateway's answer is empty")
	}
	if err != nil {
		return nil, resource.Unobserved, g.endRead(c, err, "read the provider %s", name)
	}
	return answer.GetProvider(), resource.Present, nil
}

// Profile looks at a profile of providers, built in or imported.
func (g *Gateway) Profile(ctx context.Context, id string) (*wire.ProviderProfile, resource.Presence, error) {
	c, cancel := beginCall(ctx, g.limits.query)
	defer cancel()
	answer, err := g.client().GetProviderProfile(c.ctx, &wire.GetProviderProfileRequest{Id: id, Workspace: Workspace})
	if c.isAbsent(err, "provider profile not found") {
		return nil, resource.Absent, nil
	}
	if err == nil && answer.GetProfile() == nil {
		err = errors.New("the gateway's answer is empty")
	}
	if err != nil {
		return nil, resource.Unobserved, g.endRead(c, err, "read the provider profile %s", id)
	}
	return answer.GetProfile(), resource.Present, nil
}

// ImportProfile adds a profile. One that the gateway does not take is NotDone, with its diagnostics as conditions; one whose id is
// taken is a failure of kind AlreadyExists. Source is what diagnostics call it.
func (g *Gateway) ImportProfile(ctx context.Context, profile *wire.ProviderProfile, source string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, g.limits.effect)
	defer cancel()
	r := &wire.ImportProviderProfilesRequest{Workspace: Workspace, Profiles: []*wire.ProviderProfileImportItem{{Profile: profile, Source: source}}}
	if err := checkSize(r); err != nil {
		return resource.NotDone, failure.Wrap(err, failure.Failed, "import the provider profile %s", profile.GetId())
	}
	crash.Point("openshell/before-import-profile")
	answer, err := g.client().ImportProviderProfiles(c.ctx, r)
	crash.Point("openshell/after-import-profile")
	if err != nil {
		return g.endUniqueEffect(c, err, "import the provider profile %s", profile.GetId())
	}
	if answer.GetImported() {
		return resource.Done, nil
	}
	out := failure.New(failure.Failed, "the gateway does not accept the provider profile %s", profile.GetId())
	for _, d := range answer.GetDiagnostics() {
		at := strings.Trim(d.GetProfileId()+" "+d.GetField(), " ")
		out.Conditions = append(out.Conditions, failure.Condition{ID: at, Message: d.GetMessage()})
		if strings.Contains(strings.ToLower(d.GetMessage()), "already exists") {
			out.Kind = failure.AlreadyExists
		}
	}
	return resource.NotDone, out
}

// CreateProvider makes a provider with its credentials; expires is when they do, by name, in milliseconds since 1970. A name that
// is taken is NotDone, of kind AlreadyExists. No error has a credential's value in it.
func (g *Gateway) CreateProvider(ctx context.Context, p *wire.Provider) (resource.Outcome, error) {
	return g.putProvider(ctx, p, "create", func(c *call) error {
		_, err := g.client().CreateProvider(c.ctx, &wire.CreateProviderRequest{Provider: p, Workspace: Workspace})
		return err
	})
}

// UpdateProvider replaces the credentials of a provider that p names, and what is known of when they expire.
func (g *Gateway) UpdateProvider(ctx context.Context, p *wire.Provider) (resource.Outcome, error) {
	return g.putProvider(ctx, p, "update", func(c *call) error {
		_, err := g.client().UpdateProvider(c.ctx, &wire.UpdateProviderRequest{Provider: p, CredentialExpiresAtMs: p.GetCredentialExpiresAtMs(), Workspace: Workspace})
		return err
	})
}

func (g *Gateway) putProvider(ctx context.Context, p *wire.Provider, verb string, do func(c *call) error) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, g.limits.effect)
	defer cancel()
	c.secrets = slices.Collect(maps.Values(p.GetCredentials()))
	what := verb + " the provider " + p.GetMetadata().GetName()
	if err := checkSize(p); err != nil {
		return resource.NotDone, failure.Wrap(err, failure.Failed, "%s", what)
	}
	crash.Point("openshell/before-" + verb + "-provider")
	err := do(c)
	crash.Point("openshell/after-" + verb + "-provider")
	return g.endUniqueEffect(c, err, "%s", what)
}

// endUniqueEffect is effect for what has a name that is given once: one that is taken was certainly not given again.
func (g *Gateway) endUniqueEffect(c *call, err error, format string, args ...any) (resource.Outcome, error) {
	done, failed := g.endEffect(c, err, format, args...)
	if c.hasAnswer(err, codes.AlreadyExists, "") {
		done = resource.NotDone
	}
	return done, failed
}
