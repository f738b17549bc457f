package app_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// sandboxed is a world whose sessions run in the sandboxes of an OpenShell gateway. Its worker is not root.
type sandboxed struct {
	*world
	worker   worker
	endpoint string // of the engine
	alias    string
	provider string             // of the login, at the gateway
	images   string             // the cache of prepared images
	image    string             // of the target's own, "" is the prepared one
	model    string             // "https://host": of a model server of one's own, "" is OpenAI's
	look     *openshell.Gateway // the test's own connection
}

// The user that workers are where the tests are root's.
const ordinary = 1234

// kept is a world that stays where a test fails, with all that it could not give up; vars are of every command in it.
func kept(t *testing.T, endpoint string, vars ...string) *sandboxed {
	t.Helper()
	base, err := os.MkdirTemp("", "laufwerk-openshell-")
	if err != nil {
		t.Fatal(err)
	}
	s := &sandboxed{endpoint: endpoint, alias: "laufwerk-local", provider: openshell.CodexProfile, worker: worker{os.Getuid(), os.Getgid()}}
	t.Cleanup(func() {
		if !t.Failed() {
			if err := os.RemoveAll(base); err != nil {
				t.Error(err)
			}
			return
		}
		t.Logf("%s is kept, and the resources that its runs have. Gone through, they are given up by:\ncd %s && %s %s cleanup --all --cancel --discard-changes && rm -r %s",
			base, s.project, strings.Join(s.command(nil).Env[1:], " "), s.program, base)
	})
	if s.worker.uid == 0 {
		s.worker = worker{ordinary, ordinary}
	}
	s.world = newWorldIn(t, filepath.Join(base, "world"))
	s.becomes(endpoint, s.worker)
	s.env = append(s.env, vars...)
	s.images = filepath.Join(s.home, "images/openshell")
	return s
}

// newSandboxed is a world with a gateway of its own on the tests' engine. The worker has a login, and nobody else has it yet.
func newSandboxed(t *testing.T) (*sandboxed, *gateway.Gateway) {
	t.Helper()
	s, g := kept(t, engine.Endpoint(t)), gateway.Containers(t, gateway.Options{})
	s.connect(g)
	return s, g
}

// connect lets the test itself look at a gateway.
func (s *sandboxed) connect(g *gateway.Gateway) {
	s.t.Helper()
	own := s.t.TempDir() // the worker's registration is another user's
	g.Register(own, s.alias)
	s.find(openshell.Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": own}})
}

func (s *sandboxed) find(r openshell.Registrations) {
	s.t.Helper()
	found, err := r.Find(s.alias)
	if err == nil {
		s.look, err = openshell.Connect(s.t.Context(), found)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.look.Close)
}

// register gives the worker a gateway.
func (s *sandboxed) register(g *gateway.Gateway) {
	s.t.Helper()
	g.Register(filepath.Join(s.dir, ".config"), s.alias)
	s.own()
}

// own gives the worker all that the test has written for it.
func (s *sandboxed) own() {
	s.t.Helper()
	if os.Getuid() != s.worker.uid {
		s.give(s.worker)
	}
}

// login is one of Codex that the worker has; secrets are its tokens.
func (s *sandboxed) login() (secrets []string) {
	s.t.Helper()
	content, secrets := testkit.CodexLogin("canary", time.Now().Add(24*time.Hour))
	path := filepath.Join(s.dir, ".codex/auth.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.t.Fatal(err)
	}
	s.own()
	return secrets
}

// hosts are those that the profile of a Codex login names.
func hosts() []string {
	return []string{"api.openai.com", "auth.openai.com", "chatgpt.com", "ab.chatgpt.com"}
}

// modelHost is where a model server of one's own is.
func (s *sandboxed) modelHost() (host string, port int) {
	s.t.Helper()
	u, err := url.Parse(s.model)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		s.t.Fatalf("a model server has an address such as https://models.example.com, not %q: logins do not go over a network in the clear", s.model)
	}
	port = 443
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			s.t.Fatal(err)
		}
	}
	return u.Hostname(), port
}

// target writes the project's target and its config.
func (s *sandboxed) target() {
	s.t.Helper()
	type endpoint struct {
		Host        string `json:"host"`
		Port        int    `json:"port"`
		Protocol    string `json:"protocol"`
		Access      string `json:"access"`
		Enforcement string `json:"enforcement"`
	}
	var to []endpoint
	for _, host := range hosts() {
		to = append(to, endpoint{host, 443, "rest", "read-write", "enforce"})
	}
	if s.model != "" {
		host, port := s.modelHost()
		to = append(to, endpoint{host, port, "rest", "read-write", "enforce"})
	}
	given := map[string]any{
		"id": "verified", "gateway": s.alias, "credentials": map[string]string{"kind": "codex-subscription", "provider": s.provider},
		"policy":    map[string]any{"codex": map[string]any{"endpoints": to, "binaries": []any{map[string]string{"path": openshell.CodexBinaries}}}},
		"resources": map[string]any{"cpus": 1, "memoryBytes": 2 << 30}, "imageCacheDirectory": s.images,
	}
	if s.image != "" {
		given["image"] = s.image
	}
	options, err := json.Marshal(given)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(filepath.Join(s.project, "laufwerk/execution.ts"), "import { createOpenShellExecution } from \"@laufwerk/execution/openshell\";\nexport const execution = createOpenShellExecution("+string(options)+");\n")
	s.write(filepath.Join(s.project, "laufwerk/laufwerk.config.ts"), "import { defineConfig } from \"@laufwerk/sdk\";\nimport { execution } from \"./execution\";\nexport default defineConfig({ projectId: \"verified\", executions: [execution] });\n")
	s.own()
}

// prepare makes the image as the worker does, in a cache that has what the last test has left: only the first one on a machine
// installs Codex.
func (s *sandboxed) prepare(args ...string) (made struct {
	Targets []struct {
		Target, Image string
		Reused        bool
		Probe         struct {
			Status  string
			Waiting []string
			Next    string
		}
	}
}) {
	s.t.Helper()
	preparing.Lock() // the first one takes long
	defer preparing.Unlock()
	began := time.Now()
	shared := fmt.Sprintf("%s-openshell-%d", preparedImages(s.t), s.worker.uid)
	if _, err := os.Stat(s.images); err != nil {
		if _, err := os.Stat(shared); err == nil {
			s.copies(shared, s.images)
		}
	}
	packages := engine.Packages(s.t, s.endpoint)
	ca := filepath.Join(s.dir, "registry-ca.crt")
	s.write(ca, string(packages.Authority))
	s.own()
	code, out, errs := s.start(nil, append([]string{"prepare", "openshell", "--image", engine.Base, "--registry", packages.URL, "--ca", ca, "--json"}, args...)...).within(10 * time.Minute)
	if code != 0 {
		s.t.Fatalf("prepare openshell: exit %d\n%s%s", code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || len(made.Targets) != 1 {
		s.t.Fatalf("%v: %s", err, out)
	}
	s.t.Logf("prepared in %s, reused %t", time.Since(began).Round(time.Millisecond), made.Targets[0].Reused)
	if !made.Targets[0].Reused {
		_ = os.RemoveAll(shared + ".new")
		s.copies(s.images, shared+".new")
		_ = os.RemoveAll(shared)
		if err := os.Rename(shared+".new", shared); err != nil {
			s.t.Fatal(err)
		}
	}
	// A name that `.ci/engine sweep` does not remove.
	if err := engine.Client(s.t, s.endpoint).ImageTag(s.t.Context(), made.Targets[0].Image, "laufwerk-test/codex-openshell:1"); err != nil {
		s.t.Fatal(err)
	}
	return made
}

// copies copies a directory with the modes of its files.
func (s *sandboxed) copies(from, to string) {
	s.t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		s.t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-aT", from, to).CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
}

// owner is the store's id.
func (s *sandboxed) owner() string {
	id, err := os.ReadFile(filepath.Join(s.home, "owner"))
	if err != nil {
		s.t.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// there are our sandboxes at the gateway, and how many containers of ours the engine has.
func (s *sandboxed) there() (sandboxes []*wire.Sandbox, containers int) {
	s.t.Helper()
	sandboxes, err := s.look.List(s.t.Context(), map[string]string{"dev.laufwerk.owner": s.owner()})
	if err != nil {
		s.t.Fatal(err)
	}
	return sandboxes, len(engine.Containers(s.t, s.endpoint, "dev.laufwerk.owner="+s.owner()))
}

// has checks how many sandboxes there are, for the gateway and for the engine.
func (s *sandboxed) has(n int, when string) {
	s.t.Helper()
	if list, containers := s.there(); len(list) != n || containers != n {
		s.t.Errorf("%s there are %d sandboxes, and %d containers of them, want %d: %v", when, len(list), containers, n, list)
	}
}

// inWorkspace is the content of a file in the only workspace; "" where it is not there.
func (s *sandboxed) inWorkspace(name string) string {
	for _, pattern := range []string{"workspaces/*/*", "workspaces/*"} {
		if found, _ := filepath.Glob(filepath.Join(s.home, pattern, name)); len(found) == 1 {
			b, _ := os.ReadFile(found[0])
			return string(b)
		}
	}
	return ""
}

// document is what a command with --json said.
func (s *sandboxed) document(into any, args ...string) {
	s.t.Helper()
	out := s.must([]int{0}, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.t.Fatalf("laufwerk %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// only is the id of the one run that is in a state.
func (s *sandboxed) only(state string) (id string) {
	s.t.Helper()
	list := s.runs()
	for _, r := range list {
		if r.State != state {
			continue
		}
		if id != "" {
			s.t.Fatalf("more than one run is %s: %v", state, list)
		}
		id = r.ID
	}
	if id == "" {
		s.t.Fatalf("no run is %s: %v", state, list)
	}
	return id
}
