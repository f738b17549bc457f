// Package provision gives an OpenShell gateway what sandboxes need and only an operator should hand over: a login, and the
// profile that says where it may go.
package provision

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aymanbagabas/go-udiff"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// OpenShellOptions say what to provision.
type OpenShellOptions struct {
	Gateway  *openshell.Gateway
	Program  agent.Program // whose login it is; a gateway can hold it
	Provider string        // its name at the gateway
	Login    agent.GatewayLogin
	Rotate   bool // replace the values of a provider that is there
	Dry      bool // change nothing
	Now      func() time.Time
}

// What became of a part. With Dry it is what would.
const (
	Kept    = "kept" // it was there, and is as it should be
	Created = "created"
	Rotated = "rotated"
)

// OpenShellResult is what is there now. A part that was not come to, or failed, is zero.
type OpenShellResult struct {
	Gateway  string   `json:"gateway"` // its alias
	DryRun   bool     `json:"dryRun"`
	Profile  Profile  `json:"profile,omitzero"`
	Provider Provider `json:"provider,omitzero"`
}

// Profile of providers.
type Profile struct {
	ID   string `json:"id"`
	Done string `json:"done"`           // Kept or Created
	Diff string `json:"diff,omitempty"` // against the gateway's own profile, where it is created
}

// Provider of credentials.
type Provider struct {
	Name      string    `json:"name"`
	Type      string    `json:"type"`
	Done      string    `json:"done"`   // Kept, Created or Rotated
	Keys      []string  `json:"keys"`   // of its credentials
	Origin    string    `json:"origin"` // whence their values are; "" where they were kept
	ExpiresAt time.Time `json:"expiresAt,omitzero"`
}

// OpenShell provisions a gateway: the profile, which is the built-in one with the program of prepared images as one binary more, then
// the provider with the login. What is there is looked at and not overwritten, whoever made it; it can be run again after
// whatever interrupted it. With a failure comes what was done before it. Failures: NotReady (the login, the gateway),
// AlreadyExists (another profile or provider has the name), OutcomeUnknown.
func OpenShell(ctx context.Context, o OpenShellOptions) (OpenShellResult, error) {
	out := OpenShellResult{Gateway: o.Gateway.Registration().Alias, DryRun: o.Dry}
	there, presence, err := o.Gateway.Provider(ctx, o.Provider)
	switch presence {
	case resource.Absent:
	case resource.Present:
		if err := o.checkProvider(there); err != nil { // before the profile is made that it would need
			return out, err
		}
	default:
		return out, err
	}
	if left := o.Login.Expires.Sub(o.Now()); (there == nil || o.Rotate) && !o.Login.Expires.IsZero() && left <= 0 {
		return out, failure.New(failure.NotReady, "the login of %s expired %s ago (using %s yourself renews it)", o.Login.Origin, -left.Round(time.Minute), o.Program.Title()).WithHint("%s", o.Program.Credential().Renew)
	}
	profile, err := o.profile(ctx)
	if err != nil {
		return out, err
	}
	out.Profile = profile
	provider, err := o.provider(ctx, there)
	if err != nil {
		return out, err
	}
	out.Provider = provider
	return out, nil
}

// checkProvider says why a provider that is there cannot be used, and is not overwritten.
func (o OpenShellOptions) checkProvider(p *wire.Provider) error {
	alias := failure.Quote(o.Gateway.Registration().Alias)
	login := o.loginProfile()
	if p.GetType() != login.ID {
		return failure.New(failure.AlreadyExists, "the gateway has a provider %q already, of type %q and not %s: others may use it, and it was not changed", o.Provider, p.GetType(), login.ID).
			WithHint("name another `credentials.provider` in the target, or remove that one: openshell provider delete %s --gateway %s", failure.Quote(o.Provider), alias)
	}
	if o.Rotate {
		return nil
	}
	for _, key := range login.Required {
		if _, ok := p.GetCredentials()[key]; !ok {
			return failure.New(failure.AlreadyExists, "the provider %q exists, and lacks %s", o.Provider, key).
				WithHint("laufwerk provision openshell --rotate   # replaces all of its values")
		}
	}
	return nil
}

func (o OpenShellOptions) profile(ctx context.Context) (Profile, error) {
	login := o.loginProfile()
	out := Profile{ID: login.ID, Done: Kept}
	there, presence, err := o.Gateway.Profile(ctx, login.ID)
	switch presence {
	case resource.Present:
		return out, o.checkProfile(there)
	case resource.Absent:
	default:
		return out, err
	}
	own, presence, err := o.Gateway.Profile(ctx, login.Own)
	switch presence {
	case resource.Present:
	case resource.Absent:
		return out, failure.New(failure.NotReady, "the gateway has no profile %s, on which laufwerk's own profile is based", login.Own).
			WithHint("openshell provider list-profiles --gateway %s", failure.Quote(o.Gateway.Registration().Alias))
	default:
		return out, err
	}
	adapted := o.adaptProfile(own)
	out.Done, out.Diff = Created, difference(own, adapted)
	if o.Dry {
		return out, nil
	}
	done, err := o.Gateway.ImportProfile(ctx, adapted, "laufwerk")
	if done != resource.Done { // somebody else was quicker, or the answer was lost: what counts is what is there
		if now, presence, _ := o.Gateway.Profile(ctx, login.ID); presence == resource.Present {
			return out, o.checkProfile(now)
		}
	}
	return out, err
}

// loginProfile is how the gateway stores the login.
func (o OpenShellOptions) loginProfile() *agent.Profile { return o.Program.Credential().Profile }

func (o OpenShellOptions) binaries() string { return policy.Binaries(o.Program.Name()) }

// adaptProfile is the gateway's own profile under our id, with the program of prepared images as one binary more. Credentials, endpoints and
// all else, known or not, stay.
func (o OpenShellOptions) adaptProfile(own *wire.ProviderProfile) *wire.ProviderProfile {
	p := proto.CloneOf(own)
	p.Id, p.Source, p.Scope, p.ResourceVersion = o.loginProfile().ID, "", "", 0
	p.Binaries = append(p.Binaries, &wire.NetworkBinary{Path: o.binaries()})
	return p
}

// checkProfile says why a profile with our id is not one that our providers need.
func (o OpenShellOptions) checkProfile(p *wire.ProviderProfile) error {
	wrong, login := "", o.loginProfile()
	if !slices.ContainsFunc(p.GetBinaries(), func(b *wire.NetworkBinary) bool { return b.GetPath() == o.binaries() }) {
		wrong = "does not name " + o.binaries()
	}
	for _, key := range login.Required {
		if !slices.ContainsFunc(p.GetCredentials(), func(c *wire.ProviderProfileCredential) bool { return slices.Contains(c.GetEnvVars(), key) }) {
			wrong = "knows no credential " + key
		}
	}
	if wrong == "" {
		return nil
	}
	alias := failure.Quote(o.Gateway.Registration().Alias)
	return failure.New(failure.AlreadyExists, "the gateway has a profile %s already, which %s: it was not changed", login.ID, wrong).
		WithHint("openshell provider profile export %s --gateway %s   # check it; then\nopenshell provider profile delete %s --gateway %s", login.ID, alias, login.ID, alias)
}

// provider sees to the provider; there is what was found of it, nil for nothing.
func (o OpenShellOptions) provider(ctx context.Context, there *wire.Provider) (Provider, error) {
	login := o.loginProfile()
	out := Provider{Name: o.Provider, Type: login.ID, Done: Kept}
	if there != nil && !o.Rotate {
		out.Keys = slices.Sorted(maps.Keys(there.GetCredentials()))
		if ms := there.GetCredentialExpiresAtMs()[login.Access]; ms > 0 {
			out.ExpiresAt = time.UnixMilli(ms).UTC()
		}
		return out, nil
	}
	p := &wire.Provider{Metadata: &wire.ObjectMeta{Name: o.Provider}, Type: login.ID, Credentials: o.Login.Values}
	p.CredentialExpiresAtMs = map[string]int64{login.Access: 0} // the gateway forgets an earlier one
	if at := o.Login.Expires; !at.IsZero() {
		p.CredentialExpiresAtMs[login.Access] = at.UnixMilli()
	}
	out.Keys, out.Origin, out.ExpiresAt = slices.Sorted(maps.Keys(o.Login.Values)), o.Login.Origin, o.Login.Expires
	keep := o.Gateway.CreateProvider
	out.Done = Created
	if there != nil {
		keep, out.Done = o.Gateway.UpdateProvider, Rotated
		p.Metadata.ResourceVersion = there.GetMetadata().GetResourceVersion() // nobody may have changed it since
		p.Credentials = maps.Clone(p.GetCredentials())
		for key := range there.GetCredentials() { // what is not in the new login must not be left: an empty value takes it away
			if _, ok := p.GetCredentials()[key]; !ok {
				p.Credentials[key] = ""
			}
		}
	}
	if o.Dry {
		return out, nil
	}
	done, err := keep(ctx, p)
	switch {
	case done == resource.Done:
		return out, nil
	case failure.Is(err, failure.AlreadyExists): // since it was looked at
		now, presence, lerr := o.Gateway.Provider(ctx, o.Provider)
		if presence != resource.Present {
			return out, errors.Join(err, lerr)
		}
		if lerr := o.checkProvider(now); lerr != nil {
			return out, lerr
		}
		return Provider{Name: out.Name, Type: out.Type, Done: Kept, Keys: slices.Sorted(maps.Keys(now.GetCredentials()))}, nil
	case done == resource.Unknown:
		return out, failure.New(failure.OutcomeUnknown, "it is not known whether the gateway %q received the values of the provider %q", o.Gateway.Registration().Alias, o.Provider).
			WithHint("laufwerk provision openshell --rotate   # sends them again, which is safe").WithCause(err)
	}
	return out, err
}

// Wants is what a target wants of a gateway.
type Wants struct {
	Gateway    string // alias
	Provider   string // name
	Credential string // the kind of login
}

// WantsOf reads a target's normalised options.
func WantsOf(normalised json.RawMessage) (Wants, error) {
	var c struct {
		Gateway     string `json:"gateway"`
		Credentials struct {
			Kind     string `json:"kind"`
			Provider string `json:"provider"`
		} `json:"credentials"`
	}
	err := json.Unmarshal(normalised, &c)
	return Wants{c.Gateway, c.Credentials.Provider, c.Credentials.Kind}, err
}

// difference is what a profile has otherwise than the one that it was made from, as a unified difference for people.
func difference(from, to *wire.ProviderProfile) string {
	return redact.Terminal(udiff.Unified(from.GetId(), to.GetId(), text(from), text(to)))
}

// text is a profile in lines. What a gateway adds itself is no part of it.
func text(p *wire.ProviderProfile) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("id: %s", p.GetId())
	line("name: %s", p.GetDisplayName())
	line("credentials:")
	for _, c := range p.GetCredentials() {
		need := "optional"
		if c.GetRequired() {
			need = "required"
		}
		line("  %s (%s): %s", c.GetName(), need, strings.Join(c.GetEnvVars(), " "))
	}
	line("endpoints:")
	for _, e := range p.GetEndpoints() {
		line("  %s:%d %s %s %s", e.GetHost(), e.GetPort(), e.GetProtocol(), e.GetAccess(), e.GetEnforcement())
	}
	line("binaries:")
	for _, n := range p.GetBinaries() {
		line("  %s", n.GetPath())
	}
	return b.String()
}
