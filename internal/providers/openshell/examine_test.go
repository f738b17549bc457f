package openshell

import (
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

const given = `{"id":"box","gateway":"here","credentials":{"kind":"codex-subscription","provider":"held"},"policy":{},"image":"own:1"}`

func target(t *testing.T) targets.Definition {
	t.Helper()
	def, err := validate([]byte(given))
	must(t, err)
	return def
}

func of(list []checks.Check, id string) (out []checks.Check) {
	for _, c := range list {
		if c.ID == id {
			out = append(out, c)
		}
	}
	return out
}

func TestTheLoginThatTheGatewayHolds(t *testing.T) {
	t.Parallel()
	whole := map[string]string{codex.GatewayAccess: "a", codex.GatewayRefresh: "r", codex.GatewayAccount: "i"}
	in := func(d time.Duration) map[string]int64 {
		return map[string]int64{codex.GatewayAccess: time.Now().Add(d).UnixMilli()}
	}
	for name, c := range map[string]struct {
		profile  []string // its binaries; nil is no profile
		provider *wire.Provider
		status   checks.Status
		says     string
		fix      string
	}{
		"whole, without an end": {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: codex.Profile, Credentials: whole}, checks.Pass, "whose expiry it does not know", ""},
		"whole":                 {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: codex.Profile, Credentials: whole, CredentialExpiresAtMs: in(48 * time.Hour)}, checks.Pass, "valid for 4", ""},
		"soon over":             {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: codex.Profile, Credentials: whole, CredentialExpiresAtMs: in(30 * time.Minute)}, checks.Warn, "only", "--rotate"},
		"all but over":          {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: codex.Profile, Credentials: whole, CredentialExpiresAtMs: in(4 * time.Minute)}, checks.Fail, "expires in", "--rotate"},
		"over":                  {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: codex.Profile, Credentials: whole, CredentialExpiresAtMs: in(-time.Hour)}, checks.Fail, "expired 1h", "--rotate"},
		"none":                  {[]string{policy.Binaries(codex.Name)}, nil, checks.Fail, `no provider "held"`, "laufwerk provision openshell --target box"},
		"of another type":       {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: "codex", Credentials: whole}, checks.Fail, `is of type "codex"`, "openshell provider get held"},
		"without the account": {[]string{policy.Binaries(codex.Name)}, &wire.Provider{Type: codex.Profile, Credentials: map[string]string{codex.GatewayAccess: "a", codex.GatewayRefresh: "r"}}, checks.Fail,
			"lacks " + codex.GatewayAccount, "--rotate"},
		"a profile without the glob": {[]string{"/usr/bin/codex"}, &wire.Provider{Type: codex.Profile, Credentials: whole}, checks.Fail, "does not name " + policy.Binaries(codex.Name), "openshell provider profile delete"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGatewayFixture(t, gateway.Options{Images: []string{"own:1"}})
			k := w.worker()
			g, err := k.gateway(bounded(t), here)
			must(t, err)
			if c.profile != nil {
				p, _, err := g.Profile(bounded(t), "codex")
				must(t, err)
				p.Id, p.Binaries = codex.Profile, nil
				for _, b := range c.profile {
					p.Binaries = append(p.Binaries, &wire.NetworkBinary{Path: b})
				}
				_, err = g.ImportProfile(bounded(t), p, "test")
				must(t, err)
			}
			if c.provider != nil {
				c.provider.Metadata = &wire.ObjectMeta{Name: "held"}
				_, err := g.CreateProvider(bounded(t), c.provider)
				must(t, err)
			}
			before := w.g.Calls()
			list := k.Examine(bounded(t), target(t))
			got := of(list, "provider")
			if len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Message, c.says) || !strings.Contains(got[0].Hint, c.fix) || (c.fix == "") != (got[0].Hint == "") {
				t.Errorf("%+v", got)
			}
			for _, c := range list {
				if strings.Contains(c.Message+strings.Join(c.Evidence, ""), "REDACTED") {
					t.Errorf("%+v", c)
				}
			}
			if n := w.g.Calls(); n["Health"] != 1 || n["GetProvider"]-before["GetProvider"] != 1 || n["CreateSandbox"] != 0 {
				t.Errorf("%v", n)
			}
			// A session that needs no login is none the worse for it.
			failed := 0
			for _, m := range k.Ready(bounded(t), target(t), providers.Need{Program: codex.Name}) {
				if m.ID == "openshell.provider" {
					failed++
				}
			}
			if (failed > 0) != (c.status == checks.Fail) {
				t.Errorf("Ready names %d failures of the login", failed)
			}
			for _, m := range k.Ready(bounded(t), target(t), providers.Need{Program: command.Name}) {
				if m.ID == "openshell.provider" {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}

func TestWhatIsExamined(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{Version: "0.0.112-dev.3+gabc", Images: []string{"own:1"}})
	k := w.worker()
	list := k.Examine(bounded(t), target(t))
	for _, c := range []struct {
		id     string
		status checks.Status
		says   string
	}{
		{"host", checks.Pass, "1234:1234"}, {"gateway", checks.Warn, "qualified with 0.0.116"}, {"engine", checks.Pass, "Docker 20.10.24 answers"},
		{"limits", checks.Pass, ""}, {"image", checks.Fail, "not a prepared image"}, {"codex.program", checks.Skip, ""}, {"provider", checks.Fail, "no provider"},
	} {
		if got := of(list, c.id); len(got) != 1 || got[0].Status != c.status || !strings.Contains(got[0].Message, c.says) {
			t.Errorf("%s: %+v", c.id, got)
		}
	}
	if got := of(list, "landlock"); len(got) != 1 || got[0].Status != checks.Pass {
		t.Errorf("%+v", got)
	}
	missing := k.Ready(bounded(t), target(t), providers.Need{Workspace: true})
	if len(missing) != 1 || missing[0].ID != "openshell.image" || missing[0].Hint == "" {
		t.Errorf("%+v", missing)
	}
	// Without Landlock no sandbox would come up: a run is told before it makes one.
	k.Provider.landlock = func() (int, error) { return 0, errors.New("function not implemented") }
	if got := of(k.Examine(bounded(t), target(t)), "landlock"); len(got) != 1 || got[0].Status != checks.Fail || got[0].Hint == "" {
		t.Errorf("%+v", got)
	}
	if missing := k.Ready(bounded(t), target(t), providers.Need{}); len(missing) == 0 || missing[0].ID != "openshell.landlock" || missing[0].Hint == "" {
		t.Errorf("%+v", missing)
	}
	w.g.Kill()
	k = w.worker()
	list = k.Examine(bounded(t), target(t))
	for id, status := range map[string]checks.Status{"gateway": checks.Fail, "engine": checks.Pass, "provider": checks.Skip} {
		if got := of(list, id); len(got) != 1 || got[0].Status != status {
			t.Errorf("without a gateway, %s: %+v", id, got)
		}
	}
	if missing := k.Ready(bounded(t), target(t), providers.Need{}); len(missing) != 1 || missing[0].ID != "openshell.gateway" {
		t.Errorf("%+v", missing)
	}
}

// What the gateway does not say of a login is not taken for a login, nor for none.
func TestALoginThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newGatewayFixture(t, gateway.Options{Images: []string{"own:1"}})
	k := w.worker()
	g, err := k.gateway(bounded(t), here)
	must(t, err)
	own, _, err := g.Profile(bounded(t), "codex")
	must(t, err)
	own.Id, own.Binaries = codex.Profile, []*wire.NetworkBinary{{Path: policy.Binaries(codex.Name)}}
	_, err = g.ImportProfile(bounded(t), own, "test")
	must(t, err)
	_, err = g.CreateProvider(bounded(t), &wire.Provider{
		Metadata: &wire.ObjectMeta{Name: "held"}, Type: codex.Profile, Credentials: map[string]string{codex.GatewayAccess: "a", codex.GatewayRefresh: "r", codex.GatewayAccount: "i"},
	})
	must(t, err)
	for _, c := range []struct {
		call  string
		fault gateway.Fault
		says  string
		fix   string
	}{
		{"GetProvider", gateway.LoseReply(), `read the provider "held"`, ""},
		{"GetProvider", gateway.Fail(codes.NotFound, "workspace 'default' not found"), `read the provider "held"`, ""},
		{"GetProviderProfile", gateway.Fail(codes.Internal, "x"), "read the profile " + codex.Profile, ""},
		{"GetProviderProfile", gateway.Fail(codes.NotFound, "provider profile not found"), "has no profile " + codex.Profile, "laufwerk provision openshell --target box"},
	} {
		w.g.Fault(c.call, c.fault)
		if got := of(k.Examine(bounded(t), target(t)), "provider"); len(got) != 1 || got[0].Status != checks.Fail || !strings.Contains(got[0].Message, c.says) || c.fix != "" && got[0].Hint != c.fix {
			t.Errorf("%s: %+v", c.call, got)
		}
	}
	if got := of(k.Examine(bounded(t), target(t)), "provider"); len(got) != 1 || got[0].Status != checks.Pass {
		t.Errorf("%+v", got)
	}
}
