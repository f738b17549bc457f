package gateway

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// The real Codex has nothing but placeholders, the proxy and its authority, and reaches its model with the real login.
//
// Its own provider could not be used: see agent.Turn's Placeholders.
func TestCodexReachesItsModelThroughTheProxy(t *testing.T) {
	binary := testkit.CodexBinary(t)
	model := testkit.NewModel(t, testkit.Shell("echo made >/sandbox/work/by-codex"), testkit.Say("done"))
	_, secrets := testkit.CodexLogin("gateway", time.Now().Add(24*time.Hour))
	access := secrets[1]
	var mu sync.Mutex
	accounts := map[string]bool{}
	to, err := url.Parse(model.URL)
	must(t, err)
	chatgpt := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		accounts[r.Header.Get("Chatgpt-Account-Id")] = true
		mu.Unlock()
		(&httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(to) }}).ServeHTTP(w, r)
	}))
	t.Cleanup(chatgpt.Close)
	g := Containers(t, Options{})
	g.Lead("chatgpt.com", 443, chatgpt.URL)
	c, dir := dial(t, g), shared(t)
	_, err = c.CreateProvider(bounded(t), &wire.CreateProviderRequest{Provider: &wire.Provider{
		Metadata: &wire.ObjectMeta{Name: "login"}, Type: "codex", Credentials: map[string]string{codex.GatewayAccess: access, codex.GatewayAccount: "acct-gateway"},
	}})
	must(t, err)
	id := c.ready("one", boxed(t, dir, func(r *wire.CreateSandboxRequest) {
		r.Spec.Providers = []string{"login"}
		r.Spec.Template.DriverConfig = object(t, map[string]any{"docker": map[string]any{"mounts": []any{
			map[string]any{"type": "bind", "source": dir, "target": "/sandbox/work", "read_only": false},
			map[string]any{"type": "bind", "source": binary, "target": "/opt/codex/codex"},
		}}})
		r.Spec.Policy.NetworkPolicies = map[string]*wire.NetworkPolicyRule{"codex": {
			Binaries:  []*wire.NetworkBinary{{Path: "/opt/codex/**"}},
			Endpoints: []*wire.NetworkEndpoint{{Host: "chatgpt.com", Port: 443, Protocol: "rest", Enforcement: "enforce", Access: "read-write"}},
		}}
	})).GetMetadata().GetId()
	_, held := c.sh(id, "printf '%s %s' $CODEX_AUTH_ACCESS_TOKEN $CODEX_AUTH_ACCOUNT_ID")
	token, account, _ := strings.Cut(held, " ")
	auth, err := codex.New().Credential().Profile.Placeholders(map[string]string{codex.GatewayAccess: token, codex.GatewayAccount: account}, time.Now())
	must(t, err)
	code, _, stderr, err := c.exec(&wire.ExecSandboxRequest{SandboxId: id, Command: []string{"sh", "-c", "mkdir -p /tmp/home/codex && cat >/tmp/home/codex/auth.json"}, Stdin: auth[0].Content})
	if err != nil || code != 0 {
		t.Fatalf("%d %s %v", code, stderr, err)
	}
	turn, err := codex.New().Turn(agent.Turn{
		Options: json.RawMessage(`{}`), Prompt: "hello", PermissionMode: agent.AllowAll, Placeholders: true,
		Binary: "/opt/codex/codex", Home: "/tmp/home/codex", Workdir: "/sandbox/work",
	})
	must(t, err)
	code, out, stderr, err := c.exec(&wire.ExecSandboxRequest{
		SandboxId: id, Command: append(append([]string{"env", "HOME=/tmp/home"}, turn.Env...), turn.Argv...), Stdin: turn.Stdin,
	})
	if err != nil || code != 0 || !strings.Contains(out, `"text":"done"`) {
		t.Errorf("%v, %d %s %s", err, code, out, stderr)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "by-codex")); err != nil || string(b) != "made\n" {
		t.Errorf("%q %v", b, err)
	}
	asked := 0
	for thread := range model.Threads() {
		for _, r := range model.Requests(thread) {
			if asked++; r.Auth != "Bearer "+access {
				t.Errorf("the model was sent %q", r.Auth)
			}
		}
	}
	if mu.Lock(); asked != 2 || len(accounts) != 1 || !accounts["acct-gateway"] {
		t.Errorf("%d requests of the accounts %v", asked, accounts)
	}
	mu.Unlock()
}
