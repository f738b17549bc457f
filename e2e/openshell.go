package e2e

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

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// OpenShellMachine is a machine whose sessions run in the sandboxes of an OpenShell gateway. Its worker is not root.
type OpenShellMachine struct {
	*Machine
	worker     User
	Endpoint   string // of the engine
	Alias      string
	Provider   string             // of the login, at the gateway
	ImageCache string             // the cache of prepared images
	Image      string             // of the target's own, "" is the prepared one
	ModelURL   string             // "https://host": of a model server of one's own, "" is OpenAI's
	Gateway    *openshell.Gateway // the test's own connection
}

// The user that workers are where the tests are root's.
const ordinaryUser = 1234

// NewKeptMachine is a machine that stays where a test fails, with all that it could not give up; vars are of every command in it.
func NewKeptMachine(t *testing.T, endpoint string, vars ...string) *OpenShellMachine {
	t.Helper()
	base, err := os.MkdirTemp("", "laufwerk-openshell-")
	if err != nil {
		t.Fatal(err)
	}
	s := &OpenShellMachine{Endpoint: endpoint, Alias: "laufwerk-local", Provider: codex.Profile, worker: User{os.Getuid(), os.Getgid()}}
	t.Cleanup(func() {
		if !t.Failed() {
			if err := os.RemoveAll(base); err != nil {
				t.Error(err)
			}
			return
		}
		t.Logf("%s is kept, and the resources that its runs have. Gone through, they are given up by:\ncd %s && %s %s cleanup --all --cancel --discard-changes && rm -r %s",
			base, s.Project, strings.Join(s.Command(nil).Env[1:], " "), s.Program, base)
	})
	if s.worker.UID == 0 {
		s.worker = User{ordinaryUser, ordinaryUser}
	}
	s.Machine = NewMachineIn(t, filepath.Join(base, "machine"))
	s.BecomeUser(endpoint, s.worker)
	s.Env = append(s.Env, vars...)
	s.ImageCache = filepath.Join(s.Home, "images/openshell")
	return s
}

// NewOpenShellMachine is a machine with a gateway of its own on the tests' engine. The worker has a login, and nobody else has it yet.
func NewOpenShellMachine(t *testing.T) (*OpenShellMachine, *gateway.Gateway) {
	t.Helper()
	s, g := NewKeptMachine(t, engine.Endpoint(t)), gateway.Containers(t, gateway.Options{})
	s.Connect(g)
	return s, g
}

// Connect lets the test itself look at a gateway.
func (s *OpenShellMachine) Connect(g *gateway.Gateway) {
	s.T.Helper()
	own := s.T.TempDir() // the worker's registration is another user's
	g.Register(own, s.Alias)
	s.FindGateway(openshell.Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": own}})
}

func (s *OpenShellMachine) FindGateway(r openshell.Registrations) {
	s.T.Helper()
	found, err := r.Find(s.Alias)
	if err == nil {
		s.Gateway, err = openshell.Connect(s.T.Context(), found)
	}
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(s.Gateway.Close)
}

// RegisterGateway gives the worker a gateway.
func (s *OpenShellMachine) RegisterGateway(g *gateway.Gateway) {
	s.T.Helper()
	g.Register(filepath.Join(s.Dir, ".config"), s.Alias)
	s.GiveToWorker()
}

// GiveToWorker gives the worker all that the test has written for it.
func (s *OpenShellMachine) GiveToWorker() {
	s.T.Helper()
	if os.Getuid() != s.worker.UID {
		s.giveTo(s.worker)
	}
}

// WriteLogin is one of Codex that the worker has; secrets are its tokens.
func (s *OpenShellMachine) WriteLogin() (secrets []string) {
	s.T.Helper()
	content, secrets := testkit.CodexLogin("canary", time.Now().Add(24*time.Hour))
	path := filepath.Join(s.Dir, ".codex/auth.json")
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.T.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		s.T.Fatal(err)
	}
	s.GiveToWorker()
	return secrets
}

// LoginHosts are those that the profile of a Codex login names.
func LoginHosts() []string {
	return []string{"api.openai.com", "auth.openai.com", "chatgpt.com", "ab.chatgpt.com"}
}

// ModelHost is where a model server of one's own is.
func (s *OpenShellMachine) ModelHost() (host string, port int) {
	s.T.Helper()
	u, err := url.Parse(s.ModelURL)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" {
		s.T.Fatalf("a model server has an address such as https://models.example.com, not %q: logins do not go over a network in the clear", s.ModelURL)
	}
	port = 443
	if p := u.Port(); p != "" {
		if port, err = strconv.Atoi(p); err != nil {
			s.T.Fatal(err)
		}
	}
	return u.Hostname(), port
}

// WriteTarget writes the project's target and its config.
func (s *OpenShellMachine) WriteTarget() {
	s.T.Helper()
	type endpoint struct {
		Host        string `json:"host"`
		Port        int    `json:"port"`
		Protocol    string `json:"protocol"`
		Access      string `json:"access"`
		Enforcement string `json:"enforcement"`
	}
	var to []endpoint
	for _, host := range LoginHosts() {
		to = append(to, endpoint{host, 443, "rest", "read-write", "enforce"})
	}
	if s.ModelURL != "" {
		host, port := s.ModelHost()
		to = append(to, endpoint{host, port, "rest", "read-write", "enforce"})
	}
	given := map[string]any{
		"id": "verified", "gateway": s.Alias, "credentials": map[string]string{"kind": "codex-subscription", "provider": s.Provider},
		"policy":    map[string]any{"codex": map[string]any{"endpoints": to, "binaries": []any{map[string]string{"path": policy.Binaries(codex.Name)}}}},
		"resources": map[string]any{"cpus": 1, "memoryBytes": 2 << 30}, "imageCacheDirectory": s.ImageCache,
	}
	if s.Image != "" {
		given["image"] = s.Image
	}
	options, err := json.Marshal(given)
	if err != nil {
		s.T.Fatal(err)
	}
	s.WriteFile(filepath.Join(s.Project, "laufwerk/execution.ts"), "import { createOpenShellExecution } from \"@laufwerk/execution/openshell\";\nexport const execution = createOpenShellExecution("+string(options)+");\n")
	s.WriteFile(filepath.Join(s.Project, "laufwerk/laufwerk.config.ts"), "import { defineConfig } from \"@laufwerk/sdk\";\nimport { execution } from \"./execution\";\nexport default defineConfig({ projectId: \"verified\", executions: [execution] });\n")
	s.GiveToWorker()
}

// PrepareImage makes the image as the worker does, in a cache that has what the last test has left: only the first one on a machine
// installs Codex.
func (s *OpenShellMachine) PrepareImage(args ...string) (made struct {
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
	s.T.Helper()
	defer LockPreparation(s.T)()
	began := time.Now()
	shared := fmt.Sprintf("%s-openshell-%d", PreparedImageCache(s.T), s.worker.UID)
	if _, err := os.Stat(s.ImageCache); err != nil {
		if _, err := os.Stat(shared); err == nil {
			s.CopyDir(shared, s.ImageCache)
		}
	}
	packages := engine.Packages(s.T, s.Endpoint)
	ca := filepath.Join(s.Dir, "registry-ca.crt")
	s.WriteFile(ca, string(packages.Authority))
	s.GiveToWorker()
	code, out, errs := s.Start(nil, append([]string{"prepare", "openshell", "--image", engine.Base, "--registry", packages.URL, "--ca", ca, "--json"}, args...)...).WaitWithin(10 * time.Minute)
	if code != 0 {
		s.T.Fatalf("prepare openshell: exit %d\n%s%s", code, out, errs)
	}
	if err := json.Unmarshal([]byte(out), &made); err != nil || len(made.Targets) != 1 {
		s.T.Fatalf("%v: %s", err, out)
	}
	s.T.Logf("prepared in %s, reused %t", time.Since(began).Round(time.Millisecond), made.Targets[0].Reused)
	if !made.Targets[0].Reused {
		_ = os.RemoveAll(shared + ".new")
		s.CopyDir(s.ImageCache, shared+".new")
		_ = os.RemoveAll(shared)
		if err := os.Rename(shared+".new", shared); err != nil {
			s.T.Fatal(err)
		}
	}
	// A name that `.ci/engine sweep` does not remove.
	if err := engine.Client(s.T, s.Endpoint).ImageTag(s.T.Context(), made.Targets[0].Image, "laufwerk-test/codex-openshell:1"); err != nil {
		s.T.Fatal(err)
	}
	return made
}

// CopyDir copies a directory with the modes of its files.
func (s *OpenShellMachine) CopyDir(from, to string) {
	s.T.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		s.T.Fatal(err)
	}
	if out, err := exec.Command("cp", "-aT", from, to).CombinedOutput(); err != nil {
		s.T.Fatalf("%v\n%s", err, out)
	}
}

// storeOwner is the store's id.
func (s *OpenShellMachine) storeOwner() string {
	id, err := os.ReadFile(filepath.Join(s.Home, "owner"))
	if err != nil {
		s.T.Fatal(err)
	}
	return strings.TrimSpace(string(id))
}

// Sandboxes are our sandboxes at the gateway, and how many containers of ours the engine has.
func (s *OpenShellMachine) Sandboxes() (sandboxes []*wire.Sandbox, containers int) {
	s.T.Helper()
	sandboxes, err := s.Gateway.List(s.T.Context(), map[string]string{"dev.laufwerk.owner": s.storeOwner()})
	if err != nil {
		s.T.Fatal(err)
	}
	return sandboxes, len(engine.Containers(s.T, s.Endpoint, "dev.laufwerk.owner="+s.storeOwner()))
}

// CheckSandboxes checks how many sandboxes there are, for the gateway and for the engine.
func (s *OpenShellMachine) CheckSandboxes(n int, when string) {
	s.T.Helper()
	if list, containers := s.Sandboxes(); len(list) != n || containers != n {
		s.T.Errorf("%s there are %d sandboxes, and %d containers of them, want %d: %v", when, len(list), containers, n, list)
	}
}

// ReadInWorkspace is the content of a file in the only workspace; "" where it is not there.
func (s *OpenShellMachine) ReadInWorkspace(name string) string {
	for _, pattern := range []string{"workspaces/*/*", "workspaces/*"} {
		if found, _ := filepath.Glob(filepath.Join(s.Home, pattern, name)); len(found) == 1 {
			b, _ := os.ReadFile(found[0])
			return string(b)
		}
	}
	return ""
}

// RunJSON is what a command with --json said.
func (s *OpenShellMachine) RunJSON(into any, args ...string) {
	s.T.Helper()
	out := s.MustRun([]int{0}, append(args, "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		s.T.Fatalf("laufwerk %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// OnlyRunIn is the id of the one run that is in a state.
func (s *OpenShellMachine) OnlyRunIn(state string) (id string) {
	s.T.Helper()
	list := s.ListRuns()
	for _, r := range list {
		if r.State != state {
			continue
		}
		if id != "" {
			s.T.Fatalf("more than one run is %s: %v", state, list)
		}
		id = r.ID
	}
	if id == "" {
		s.T.Fatalf("no run is %s: %v", state, list)
	}
	return id
}
