package gateway

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// upstream answers with what it was sent.
func upstream(t *testing.T) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = fmt.Fprintf(w, "%s %s %s %q %q", r.Method, r.Host, r.URL, r.Header.Get("Authorization"), body)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestWhatGetsOut(t *testing.T) {
	g := Containers(t, Options{})
	c, dir := dial(t, g), shared(t)
	url := upstream(t)
	for _, host := range []string{"chatgpt.com", "other.example.com", "unbound.example.com"} {
		g.Lead(host, 443, url)
	}
	g.Lead("plain.example.com", 80, url)
	_, err := c.CreateProvider(bounded(t), &wire.CreateProviderRequest{Provider: &wire.Provider{
		Metadata: &wire.ObjectMeta{Name: "login"}, Type: "codex", Credentials: map[string]string{"CODEX_AUTH_ACCESS_TOKEN": "the real one"},
	}})
	must(t, err)
	at := func(host string, port uint32, access string) *wire.NetworkEndpoint {
		return &wire.NetworkEndpoint{Host: host, Port: port, Protocol: "rest", Enforcement: "enforce", Access: access}
	}
	lax := at("unbound.example.com", 443, "read-only")
	lax.Enforcement = "Enforce"
	id := c.ready("one", boxed(t, dir, func(r *wire.CreateSandboxRequest) {
		r.Spec.Providers = []string{"login"}
		r.Spec.Policy.NetworkPolicies = map[string]*wire.NetworkPolicyRule{
			"curl": {Binaries: []*wire.NetworkBinary{{Path: "/usr/bin/cu*"}}, Endpoints: []*wire.NetworkEndpoint{
				at("chatgpt.com", 443, "read-write"), at("*.example.com", 443, "read-only"), at("plain.example.com", 80, "full"), lax, at("nowhere.org", 443, "full"),
			}},
			"perl": {Binaries: []*wire.NetworkBinary{{Path: "/usr/bin/perl"}}, Endpoints: []*wire.NetworkEndpoint{at("only-perl.com", 443, "full")}},
		}
	})).GetMetadata().GetId()
	g.Lead("only-perl.com", 443, url)
	const auth = ` -H "Authorization: Bearer $CODEX_AUTH_ACCESS_TOKEN" `
	for _, at := range []struct {
		script string
		code   int
		want   string
	}{
		{"curl -sS https://evil.com", 56, "curl: (56) CONNECT tunnel failed, response 403\n"},
		{"curl -sS http://evil.com", 0, `{"error":"policy_denied"}` + "\n"},
		{"curl -sS --noproxy '*' --connect-timeout 5 http://192.0.2.1", 7, "curl: (7) Failed to connect to 192.0.2.1 port 80 after 0 ms: Couldn't connect to server\n"},
		{"curl -sS https://chatgpt.com/a -d x" + auth, 0, `POST chatgpt.com /a "Bearer the real one" "x"`},
		{"echo $CODEX_AUTH_ACCESS_TOKEN", 0, "openshell:resolve:env:v1_CODEX_AUTH_ACCESS_TOKEN\n"},
		{"curl -sS https://chatgpt.com/a -X DELETE", 0, `{"error":"policy_denied"}` + "\n"},
		{"curl -sS https://other.example.com/" + auth, 0, `{"error":"credential_endpoint_mismatch"}` + "\n"},
		{"curl -sS https://other.example.com/ -H 'Authorization: openshell:resolve:env:v1_NOSUCH'", 0, `{"error":"credential_unavailable"}` + "\n"},
		{"curl -sS https://other.example.com/", 0, `GET other.example.com / "" ""`},
		{"curl -sS https://other.example.com/ -d x", 0, `{"error":"policy_denied"}` + "\n"},
		{"curl -sS https://unbound.example.com/ -d x", 0, `POST unbound.example.com / "" "x"`}, // enforcement misspelt
		{"curl -sS http://plain.example.com/b", 0, `GET plain.example.com /b "" ""`},
		{"curl -sS https://nowhere.org/", 0, `{"error":"upstream_unreachable"}` + "\n"},
		{"curl -sS https://only-perl.com/", 56, "curl: (56) CONNECT tunnel failed, response 403\n"},
		{`perl -e 'system("curl -sS https://only-perl.com/; true")'`, 0, `GET only-perl.com / "" ""`}, // an ancestor's right
	} {
		code, out := c.sh(id, at.script)
		out = regexp.MustCompile(`after \d+ ms`).ReplaceAllString(out, "after 0 ms")
		if code != at.code || out != at.want {
			t.Errorf("%s: %d %q; want %d %q", at.script, code, out, at.code, at.want)
		}
	}
	_, out := c.sh(id, "env")
	if !strings.Contains(out, "HTTPS_PROXY=http://127.0.0.1:3128") || strings.Contains(out, "the real one") {
		t.Error(out)
	}
}

func TestGlobs(t *testing.T) {
	for _, at := range []struct {
		pattern, path string
		want          bool
	}{
		{"/a/**", "/a/b/c", true}, {"/a/*", "/a/b/c", false}, {"/a/*", "/a/b", true}, {"/a.b", "/aXb", false}, {"a", "/a", false},
		{"/sandbox/.harness-bootstrap/codex/node_modules/**", "/sandbox/.harness-bootstrap/codex/node_modules/@openai/codex", true},
	} {
		if globs(at.pattern, at.path) != at.want {
			t.Errorf("%q %q", at.pattern, at.path)
		}
	}
}
