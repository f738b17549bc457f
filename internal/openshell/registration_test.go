package openshell

import (
	"crypto/x509"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func TestRegistration(t *testing.T) {
	a := newAuthority(t)
	config := registered(t, a, "lab", "https://127.0.0.1:17670/")
	r := find(t, config, "lab")
	if r.Endpoint != "https://127.0.0.1:17670" || r.Alias != "lab" || r.Dir != filepath.Join(config, "openshell/gateways/lab") {
		t.Errorf("found %+v", r)
	}
	if want := "openshell gateway lab at https://127.0.0.1:17670, CA sha256:" + r.CA; r.Identity() != want || len(r.CA) != 64 {
		t.Errorf("it is %q", r.Identity())
	}
	if other := find(t, registered(t, newAuthority(t), "lab", "https://127.0.0.1:17670"), "lab"); other.Identity() == r.Identity() {
		t.Error("a gateway that was set up anew is taken for the old one")
	}
	if same := find(t, registered(t, a, "lab", "https://127.0.0.1:17670"), "lab"); same.Identity() != r.Identity() {
		t.Error("the same gateway with another client certificate is taken for another")
	}
	for _, verb := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(verb, r); strings.Contains(text, "PrivateKey") || len(text) > 1000 {
			t.Errorf("%s shows the key: %s", verb, text)
		}
	}
}

// The user's configuration is where XDG says, and where it says nothing, in the home.
func TestRegistrationFolder(t *testing.T) {
	home := t.TempDir()
	from := registered(t, newAuthority(t), "lab", "https://localhost:1")
	if err := os.Rename(from, filepath.Join(home, ".config")); err != nil {
		t.Fatal(err)
	}
	for name, vars := range map[string]map[string]string{
		"unset": {}, "empty": {"XDG_CONFIG_HOME": ""}, "relative": {"XDG_CONFIG_HOME": ".config"}, "absolute": {"XDG_CONFIG_HOME": filepath.Join(home, ".config")},
	} {
		if _, err := (Registrations{Vars: vars, Home: home}).Find("lab"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": t.TempDir()}, Home: home}).Find("lab"); !failure.Is(err, failure.NotReady) {
		t.Errorf("with another folder: %v", err)
	}
	for _, home := range []string{"", "relative"} {
		if _, err := (Registrations{Home: home}).Find("lab"); !failure.Is(err, failure.NotReady) {
			t.Errorf("with the home %q: %v", home, err)
		}
	}
}

func TestAliasesDoNotClimb(t *testing.T) {
	config := registered(t, newAuthority(t), "lab", "https://127.0.0.1:1")
	for _, alias := range []string{"", ".", "..", "../lab", "../gateways/lab", "lab/", "lab/.", "/lab", `..\lab`, "lab\x00", "lab\n", filepath.Join(config, "openshell/gateways/lab")} {
		_, err := Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}}.Find(alias)
		if !failure.Is(err, failure.SettingsInvalid) {
			t.Errorf("%q: %v", alias, err)
		}
	}
}

// Every refusal has its own sentence and a next step.
func TestRefusedRegistrations(t *testing.T) {
	metadata := func(text string) func(t *testing.T, dir string, a *authority) {
		return func(t *testing.T, dir string, _ *authority) { put(t, filepath.Join(dir, "metadata.json"), text) }
	}
	mode := func(name string, mode os.FileMode) func(t *testing.T, dir string, a *authority) {
		return func(t *testing.T, dir string, _ *authority) {
			if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	without := func(name string) func(t *testing.T, dir string, a *authority) {
		return func(t *testing.T, dir string, _ *authority) {
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	link := func(name string) func(t *testing.T, dir string, a *authority) {
		return func(t *testing.T, dir string, _ *authority) {
			path := filepath.Join(dir, name)
			away := filepath.Join(t.TempDir(), "away")
			if err := os.Rename(path, away); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(away, path); err != nil {
				t.Fatal(err)
			}
		}
	}
	file := func(name, text string) func(t *testing.T, dir string, a *authority) {
		return func(t *testing.T, dir string, _ *authority) { put(t, filepath.Join(dir, name), text) }
	}
	for name, c := range map[string]struct {
		change func(t *testing.T, dir string, a *authority)
		kind   failure.Kind
		says   string
	}{
		"remote":            {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","is_remote":true}`), failure.NotReady, "as a remote one"},
		"remote host":       {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","remote_host":"me@elsewhere"}`), failure.NotReady, "as a remote one"},
		"plain text":        {metadata(`{"gateway_endpoint":"http://127.0.0.1:1"}`), failure.NotReady, "in plain text"},
		"plaintext mode":    {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","auth_mode":"plaintext"}`), failure.NotReady, "in plain text"},
		"edge":              {metadata(`{"gateway_endpoint":"https://gw.example.com","auth_mode":"cloudflare_jwt"}`), failure.NotReady, "token for an edge proxy"},
		"edge of old":       {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","cf_team_domain":"team"}`), failure.NotReady, "token for an edge proxy"},
		"oidc":              {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","auth_mode":"oidc"}`), failure.NotReady, "OpenID"},
		"oidc without mode": {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","oidc_issuer":"https://id.example.com"}`), failure.NotReady, "OpenID"},
		"unknown mode":      {metadata(`{"gateway_endpoint":"https://127.0.0.1:1","auth_mode":"magic"}`), failure.NotReady, `"magic"`},
		"another machine":   {metadata(`{"gateway_endpoint":"https://192.0.2.1:17670","auth_mode":"mtls"}`), failure.NotReady, "not this machine's loopback"},
		"a name":            {metadata(`{"gateway_endpoint":"https://gw.example.com"}`), failure.NotReady, "not this machine's loopback"},
		"a name like it":    {metadata(`{"gateway_endpoint":"https://localhost.example.com"}`), failure.NotReady, "not this machine's loopback"},
		"all addresses":     {metadata(`{"gateway_endpoint":"https://0.0.0.0:17670"}`), failure.NotReady, "not this machine's loopback"},
		"no endpoint":       {metadata(`{}`), failure.NotReady, "not https://host:port"},
		"no address":        {metadata(`{"gateway_endpoint":"https://:17670"}`), failure.NotReady, "not https://host:port"},
		"a path":            {metadata(`{"gateway_endpoint":"https://127.0.0.1:1/x"}`), failure.NotReady, "not https://host:port"},
		"a user":            {metadata(`{"gateway_endpoint":"https://me:pw@127.0.0.1:1"}`), failure.NotReady, "not https://host:port"},
		"a socket":          {metadata(`{"gateway_endpoint":"unix:///run/gw.sock"}`), failure.NotReady, "not https://host:port"},
		"no port":           {metadata(`{"gateway_endpoint":"https://127.0.0.1:0"}`), failure.NotReady, "not https://host:port"},
		"too high a port":   {metadata(`{"gateway_endpoint":"https://127.0.0.1:99999"}`), failure.NotReady, "not https://host:port"},
		"null":              {metadata(`null`), failure.NotReady, "not https://host:port"},
		"empty":             {metadata(``), failure.NotReady, "is not its JSON"},
		"torn":              {metadata(`{"gateway_endpoint":"https://127.0`), failure.NotReady, "is not its JSON"},
		"a byte order mark": {metadata("\ufeff{}"), failure.NotReady, "is not its JSON"},
		"large":             {metadata(strings.Repeat(" ", 2<<20)), failure.NotReady, "larger than 1 MiB"},
		"no metadata":       {without("metadata.json"), failure.NotReady, "has no metadata.json"},
		"metadata a folder": {func(t *testing.T, dir string, a *authority) {
			without("metadata.json")(t, dir, a)
			put(t, filepath.Join(dir, "metadata.json/x"), "")
		}, failure.NotReady, "not a regular file"},
		"no certificates":   {without("mtls"), failure.NotReady, "no client certificates"},
		"no authority":      {without("mtls/ca.crt"), failure.NotReady, "ca.crt is missing"},
		"no certificate":    {without("mtls/tls.crt"), failure.NotReady, "tls.crt is missing"},
		"no key":            {without("mtls/tls.key"), failure.NotReady, "tls.key is missing"},
		"a key for all":     {mode("mtls/tls.key", 0o644), failure.NotReady, "other users can read it"},
		"a key for a group": {mode("mtls/tls.key", 0o640), failure.NotReady, "other users can read it"},
		"an open authority": {mode("mtls/ca.crt", 0o666), failure.NotReady, "other users can write it"},
		"an open folder":    {mode("mtls", 0o777), failure.NotReady, "other users can write it"},
		"an open alias":     {mode(".", 0o770), failure.NotReady, "other users can write it"},
		"open metadata":     {mode("metadata.json", 0o620), failure.NotReady, "other users can write it"},
		"a linked key":      {link("mtls/tls.key"), failure.NotReady, "not a regular file"},
		"a linked folder":   {link("mtls"), failure.NotReady, "is not a directory"},
		"a linked metadata": {link("metadata.json"), failure.NotReady, "not a regular file"},
		"a linked alias":    {link("."), failure.NotReady, "is not a directory"},
		"no pair": {func(t *testing.T, dir string, a *authority) {
			_, key := a.sign(t)
			put(t, filepath.Join(dir, "mtls/tls.key"), string(key))
		}, failure.NotReady, "do not belong together"},
		"a key that is none": {file("mtls/tls.key", "x"), failure.NotReady, "do not belong together"},
		"an empty authority": {file("mtls/ca.crt", ""), failure.NotReady, "has no certificate"},
		"a torn authority":   {file("mtls/ca.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), failure.NotReady, "cannot be read"},
		"expired": {func(t *testing.T, dir string, a *authority) {
			crt, key := a.sign(t, expired)
			put(t, filepath.Join(dir, "mtls/tls.crt"), string(crt))
			put(t, filepath.Join(dir, "mtls/tls.key"), string(key))
		}, failure.NotReady, "client certificate"},
		"expired authority": {func(t *testing.T, dir string, _ *authority) {
			put(t, filepath.Join(dir, "mtls/ca.crt"), string(newAuthority(t, expired).pem))
		}, failure.NotReady, "authority's certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAuthority(t)
			config := registered(t, a, "lab", "https://127.0.0.1:17670")
			c.change(t, filepath.Join(config, "openshell/gateways/lab"), a)
			_, err := Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}}.Find("lab")
			f := failure.As(err)
			if f == nil || f.Kind != c.kind || !strings.Contains(f.Message, c.says) || f.Hint == "" {
				t.Errorf("it says %#v", f)
			}
		})
	}
}

func TestCertificatesOfOthersDoNotMatter(t *testing.T) {
	a := newAuthority(t)
	config := registered(t, a, "lab", "https://127.0.0.1:1")
	crt, key := newAuthority(t).sign(t, func(c *x509.Certificate) { c.ExtKeyUsage = nil }) // the gateway says whom it trusts
	put(t, filepath.Join(config, "openshell/gateways/lab/mtls/tls.crt"), string(crt))
	put(t, filepath.Join(config, "openshell/gateways/lab/mtls/tls.key"), string(key))
	find(t, config, "lab")
}

func TestUnregistered(t *testing.T) {
	config := registered(t, newAuthority(t), "lab", "https://127.0.0.1:1")
	system := t.TempDir()
	put(t, filepath.Join(system, "gateways/shared/metadata.json"), `{"gateway_endpoint":"https://127.0.0.1:1"}`)
	all := Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config, "OPENSHELL_SYSTEM_GATEWAY_DIR": system}}

	_, err := all.Find("lob")
	if f := failure.As(err); f == nil || f.Kind != failure.NotReady || !strings.Contains(f.Message, "registered there: lab") || !strings.Contains(f.Hint, "--name lob") {
		t.Errorf("an alias that is not there: %#v", f)
	}
	_, err = all.Find("shared")
	if f := failure.As(err); f == nil || f.Kind != failure.NotReady || !strings.Contains(f.Message, "for the whole system only") {
		t.Errorf("an alias of the system: %#v", f)
	}
	put(t, filepath.Join(config, "openshell/gateways/shared/mtls/ca.crt"), "") // the user's certificates alone
	_, err = all.Find("shared")
	if f := failure.As(err); f == nil || f.Kind != failure.NotReady {
		t.Errorf("an alias of the system with the user's certificates: %#v", f)
	}
}

func TestRegistrationOfAnotherUser(t *testing.T) {
	testkit.Need(t, "root", os.Getuid() == 0, "it gives a file away")
	for _, name := range []string{".", "metadata.json", "mtls", "mtls/ca.crt", "mtls/tls.key"} {
		config := registered(t, newAuthority(t), "lab", "https://127.0.0.1:1")
		if err := os.Chown(filepath.Join(config, "openshell/gateways/lab", name), 1234, -1); err != nil {
			t.Fatal(err)
		}
		_, err := Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}}.Find("lab")
		if f := failure.As(err); f == nil || f.Kind != failure.NotReady || !strings.Contains(f.Message, "belongs to the user 1234") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestName(t *testing.T) {
	seen := map[string]bool{}
	for i := range 1000 {
		claim := fmt.Sprint("claim-", i)
		n := Name(claim)
		if len(n) != 19 || strings.Trim(n, "abcdefghijklmnopqrstuvwxyz234567-") != "" || strings.Contains(n, "--") || strings.HasSuffix(n, "-") || seen[n] || n != Name(claim) {
			t.Fatalf("%s has the name %s", claim, n)
		}
		seen[n] = true
	}
	if n := Name("x"); n != "lw-fvyrmqvxe2yeialc" {
		t.Errorf("a claim's name has changed: %s", n)
	}
}
