package provision

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

const secret = "SECRET-canary-0123456789"

// provisioning is a gateway, and what is asked of it.
func provisioning(t *testing.T) (*gateway.Gateway, OpenShellOptions) {
	t.Helper()
	g := gateway.Memory(t, gateway.Options{})
	config := t.TempDir()
	g.Register(config, "here")
	r, err := openshell.Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}}.Find("here")
	if err != nil {
		t.Fatal(err)
	}
	client, err := openshell.Connect(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return g, OpenShellOptions{
		Gateway: client, Program: codex.New(), Provider: "laufwerk-codex", Now: time.Now,
		Login: agent.GatewayLogin{Origin: "a file", Expires: time.Now().Add(time.Hour).Truncate(time.Second).UTC(), Values: map[string]string{
			codex.GatewayAccess: secret, codex.GatewayRefresh: secret + "r", codex.GatewayAccount: "account-1", codex.GatewayID: secret + "i",
		}},
	}
}

func (o OpenShellOptions) mustHave(t *testing.T, keys ...string) *wire.Provider {
	t.Helper()
	p, presence, err := o.Gateway.Provider(t.Context(), o.Provider)
	if presence != resource.Present {
		t.Fatalf("%s, %v", presence, err)
	}
	if got := slices.Sorted(maps.Keys(p.GetCredentials())); p.GetType() != codex.Profile || !slices.Equal(got, keys) {
		t.Errorf("%s has %v, want %v", p.GetType(), got, keys)
	}
	return p
}

var all = []string{codex.GatewayAccess, codex.GatewayAccount, codex.GatewayID, codex.GatewayRefresh} //nolint:gochecknoglobals // constant

func TestOpenShell(t *testing.T) {
	g, o := provisioning(t)
	dry := o
	dry.Dry = true
	r, err := OpenShell(t.Context(), dry)
	if err != nil || r.Profile.Done != Created || r.Provider.Done != Created || !r.DryRun {
		t.Fatalf("%+v, %v", r, err)
	}
	const want = "--- codex\n+++ laufwerk-codex\n@@ -1,4 +1,4 @@\n-id: codex\n+id: laufwerk-codex\n name: Codex\n"
	if !strings.HasPrefix(r.Profile.Diff, want) || !strings.Contains(r.Profile.Diff, "\n+  "+policy.Binaries(codex.Name)+"\n") || strings.Count(r.Profile.Diff, "\n-") != 1 {
		t.Error(r.Profile.Diff)
	}
	if calls := g.Calls(); calls["ImportProviderProfiles"]+calls["CreateProvider"]+calls["UpdateProvider"] > 0 {
		t.Errorf("a dry run changes something: %v", calls)
	}

	r, err = OpenShell(t.Context(), o)
	if err != nil || r.Profile.Done != Created || r.Provider.Done != Created || !r.Provider.ExpiresAt.Equal(o.Login.Expires) {
		t.Fatalf("%+v, %v", r, err)
	}
	p := o.mustHave(t, all...)
	if at := p.GetCredentialExpiresAtMs(); len(at) != 1 || at[codex.GatewayAccess] != o.Login.Expires.UnixMilli() {
		t.Errorf("%v", at)
	}
	own, _, _ := o.Gateway.Profile(t.Context(), "codex")
	ours, presence, err := o.Gateway.Profile(t.Context(), codex.Profile)
	if presence != resource.Present || len(ours.GetBinaries()) != len(own.GetBinaries())+1 || len(ours.GetEndpoints()) != 4 || len(ours.GetCredentials()) != 4 {
		t.Errorf("%v %v %v", ours, presence, err)
	}

	before := g.Calls()
	r, err = OpenShell(t.Context(), o)
	if err != nil || r.Profile.Done != Kept || r.Provider.Done != Kept || !r.Provider.ExpiresAt.Equal(o.Login.Expires) || !slices.Equal(r.Provider.Keys, all) {
		t.Fatalf("%+v, %v", r, err)
	}
	after := g.Calls()
	if after["CreateProvider"] != before["CreateProvider"] || after["UpdateProvider"] != before["UpdateProvider"] || after["ImportProviderProfiles"] != before["ImportProviderProfiles"] {
		t.Errorf("what is there was written again: %v, before %v", after, before)
	}
}

// A login without the optional value, and without an end, leaves nothing of the earlier one behind.
func TestRotate(t *testing.T) {
	_, o := provisioning(t)
	if _, err := OpenShell(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Rotate = true
	o.Login = agent.GatewayLogin{Origin: "the environment", Values: map[string]string{codex.GatewayAccess: secret + "2", codex.GatewayRefresh: secret + "r2", codex.GatewayAccount: "account-1"}}
	r, err := OpenShell(t.Context(), o)
	if err != nil || r.Provider.Done != Rotated || r.Profile.Done != Kept {
		t.Fatalf("%+v, %v", r, err)
	}
	if p := o.mustHave(t, codex.GatewayAccess, codex.GatewayAccount, codex.GatewayRefresh); p.GetCredentialExpiresAtMs()[codex.GatewayAccess] != 0 {
		t.Errorf("%v", p.GetCredentialExpiresAtMs())
	}
}

func TestWhatIsThereIsNotOverwritten(t *testing.T) {
	of := func(name, kind string, keys ...string) *wire.Provider {
		p := &wire.Provider{Metadata: &wire.ObjectMeta{Name: name}, Type: kind, Credentials: map[string]string{}}
		for _, k := range keys {
			p.Credentials[k] = "a value"
		}
		return p
	}
	for name, tt := range map[string]struct {
		there  *wire.Provider
		rotate bool
		want   string // of the error
	}{
		"another type":              {of("laufwerk-codex", "codex", codex.New().Credential().Profile.Required...), false, `of type "codex"`},
		"another type, with rotate": {of("laufwerk-codex", "codex", codex.New().Credential().Profile.Required...), true, `of type "codex"`},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := provisioning(t)
			if _, err := o.Gateway.CreateProvider(t.Context(), tt.there); err != nil {
				t.Fatal(err)
			}
			before := g.Calls()
			o.Rotate = tt.rotate
			_, err := OpenShell(t.Context(), o)
			if !failure.Is(err, failure.AlreadyExists) || !strings.Contains(err.Error(), tt.want) || failure.As(err).Hint == "" {
				t.Error(err)
			}
			if after := g.Calls(); after["ImportProviderProfiles"]+after["UpdateProvider"] > 0 || after["CreateProvider"] != before["CreateProvider"] {
				t.Errorf("%v", after)
			}
		})
	}
	t.Run("a value is missing", func(t *testing.T) {
		_, o := provisioning(t)
		dry := o
		dry.Provider = "other"
		if _, err := OpenShell(t.Context(), dry); err != nil { // brings the profile
			t.Fatal(err)
		}
		if _, err := o.Gateway.CreateProvider(t.Context(), of(o.Provider, codex.Profile, codex.GatewayAccess, codex.GatewayAccount)); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenShell(t.Context(), o); !failure.Is(err, failure.AlreadyExists) || !strings.Contains(err.Error(), codex.GatewayRefresh) || !strings.Contains(failure.As(err).Hint, "--rotate") {
			t.Error(err)
		}
		o.Rotate = true
		if _, err := OpenShell(t.Context(), o); err != nil {
			t.Error(err)
		}
		o.mustHave(t, all...)
	})
	t.Run("a profile of somebody's", func(t *testing.T) {
		_, o := provisioning(t)
		own, _, _ := o.Gateway.Profile(t.Context(), "codex")
		own.Id, own.ResourceVersion, own.Source = codex.Profile, 0, ""
		if _, err := o.Gateway.ImportProfile(t.Context(), own, "a test"); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenShell(t.Context(), o); !failure.Is(err, failure.AlreadyExists) || !strings.Contains(err.Error(), policy.Binaries(codex.Name)) {
			t.Error(err)
		}
	})
}

// Whatever a gateway answers, no value gets into an error, and another call finishes what was begun; a login that is replaced is
// whole afterwards, too.
func TestFaultsOfProvisioning(t *testing.T) {
	faults := map[string]func() gateway.Fault{
		"lost request": gateway.LoseRequest, "lost reply": gateway.LoseReply,
		"refused":     func() gateway.Fault { return gateway.Fail(codes.Internal, "cannot keep "+secret) },
		"refused too": func() gateway.Fault { return gateway.FailAfter(codes.Unavailable, "did keep "+secret) },
	}
	for _, call := range []string{"GetProvider", "GetProviderProfile", "ImportProviderProfiles", "CreateProvider", "UpdateProvider"} {
		for name, fault := range faults {
			t.Run(call+"/"+name, func(t *testing.T) {
				g, o := provisioning(t)
				keys, keeps := all, call == "CreateProvider" || call == "UpdateProvider"
				if call == "UpdateProvider" {
					if _, err := OpenShell(t.Context(), o); err != nil {
						t.Fatal(err)
					}
					o.Rotate, keys = true, []string{codex.GatewayAccess, codex.GatewayAccount, codex.GatewayRefresh}
					o.Login.Values = map[string]string{codex.GatewayAccess: secret + "2", codex.GatewayRefresh: secret + "r2", codex.GatewayAccount: "account-1"}
				}
				g.Fault(call, fault())
				r, err := OpenShell(t.Context(), o)
				if err != nil && ((r.Profile.Done != "") != keeps || r.Provider.Done != "") {
					t.Errorf("%v, and what was done is %+v", err, r)
				}
				if err != nil && keeps && strings.Contains(err.Error(), secret) {
					t.Errorf("the error tells a value: %v", err)
				}
				if keeps && (!failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(failure.As(err).Hint, "--rotate")) {
					t.Errorf("an answer that was lost is taken for one: %v", err)
				}
				if _, err := OpenShell(t.Context(), o); err != nil {
					t.Fatalf("once more: %v", err)
				}
				o.mustHave(t, keys...)
			})
		}
	}
}

// Somebody else provisions the gateway between a look and a call: what is there counts, if it will do.
func TestSomebodyElseIsQuicker(t *testing.T) {
	for name, tt := range map[string]struct {
		call string
		do   func(t *testing.T, o OpenShellOptions)
		want string // of the error, "" for none
	}{
		"the profile": {"ImportProviderProfiles", func(t *testing.T, o OpenShellOptions) {
			own, _, err := o.Gateway.Profile(t.Context(), "codex")
			if err == nil {
				_, err = o.Gateway.ImportProfile(t.Context(), o.adaptProfile(own), "somebody")
			}
			if err != nil {
				t.Error(err)
			}
		}, ""},
		"a profile that will not do": {"ImportProviderProfiles", func(t *testing.T, o OpenShellOptions) {
			own, _, err := o.Gateway.Profile(t.Context(), "codex")
			if err == nil {
				ours := o.adaptProfile(own)
				ours.Credentials = ours.Credentials[:1]
				_, err = o.Gateway.ImportProfile(t.Context(), ours, "somebody")
			}
			if err != nil {
				t.Error(err)
			}
		}, "knows no credential"},
		"the provider": {"CreateProvider", func(t *testing.T, o OpenShellOptions) {
			if _, err := OpenShell(t.Context(), o); err != nil {
				t.Error(err)
			}
		}, ""},
		"a provider of another type": {"CreateProvider", func(t *testing.T, o OpenShellOptions) {
			if _, err := o.Gateway.CreateProvider(t.Context(), &wire.Provider{Metadata: &wire.ObjectMeta{Name: o.Provider}, Type: "codex", Credentials: o.Login.Values}); err != nil {
				t.Error(err)
			}
		}, `of type "codex"`},
	} {
		t.Run(name, func(t *testing.T) {
			g, o := provisioning(t)
			g.Fault(tt.call, gateway.Before(func() { tt.do(t, o) }))
			r, err := OpenShell(t.Context(), o)
			if tt.want != "" {
				if !failure.Is(err, failure.AlreadyExists) || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), secret) {
					t.Errorf("%+v, %v", r, err)
				}
				return
			}
			if err != nil || tt.call == "CreateProvider" && r.Provider.Done != Kept {
				t.Errorf("%+v, %v", r, err)
			}
			o.mustHave(t, all...)
		})
	}
}

// Two who replace a login at once do not mix theirs.
func TestSomebodyElseRotates(t *testing.T) {
	g, o := provisioning(t)
	if _, err := OpenShell(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	o.Rotate = true
	g.Fault("UpdateProvider", gateway.Before(func() {
		if _, err := OpenShell(t.Context(), o); err != nil {
			t.Error(err)
		}
	}))
	if r, err := OpenShell(t.Context(), o); err == nil || r.Provider.Done != "" || strings.Contains(err.Error(), secret) {
		t.Errorf("%+v, %v", r, err)
	}
	if _, err := OpenShell(t.Context(), o); err != nil {
		t.Error(err)
	}
	o.mustHave(t, all...)
}

// A gateway whose own profile of Codex is not there, or that takes ours not, says so, and gets no login.
func TestAGatewayWithoutAFittingProfile(t *testing.T) {
	g, o := provisioning(t)
	g.Fault("GetProviderProfile", gateway.Fail(codes.NotFound, "provider profile not found").Times(2))
	if _, err := OpenShell(t.Context(), o); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "has no profile codex") || failure.As(err).Hint == "" {
		t.Error(err)
	}
	g.Fault("ImportProviderProfiles", gateway.Fail(codes.InvalidArgument, "profile is not valid"))
	if _, err := OpenShell(t.Context(), o); err == nil || !strings.Contains(err.Error(), "profile is not valid") {
		t.Error(err)
	}
	if c := g.Calls(); c["CreateProvider"] > 0 {
		t.Error("a login was handed over")
	}
}

func TestAnExpiredLoginIsNotHandedOver(t *testing.T) {
	g, o := provisioning(t)
	o.Login.Expires = time.Now().Add(-time.Minute)
	if _, err := OpenShell(t.Context(), o); !failure.Is(err, failure.NotReady) || failure.As(err).Hint != "codex login" {
		t.Error(err)
	}
	if c := g.Calls(); c["CreateProvider"]+c["ImportProviderProfiles"] > 0 {
		t.Error("it was")
	}
}
