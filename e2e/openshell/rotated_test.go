package openshell_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// A gateway gets new certificates while an agent is in its turn, and nobody laufwerk is there. It is not taken for the one that
// claims name until a person says so; then the same turn is joined, and all is cleaned up.
func TestOpenShellCertificatesAreRotated(t *testing.T) {
	t.Parallel()
	s, g := e2e.NewOpenShellMachine(t)
	s.WriteLogin()
	s.RegisterGateway(g)
	s.WriteTarget()
	s.WriteFile(filepath.Join(s.Project, "agent.sh"), e2e.SandboxAgent)
	s.WriteFile(filepath.Join(s.Project, "hold"), "")
	s.WriteWorkflow("job", e2e.SandboxWorkflow)
	s.GiveToWorker()
	s.MustRun([]int{0}, "provision", "openshell")
	s.PrepareImage()

	r := s.Start(nil, "run", "job", "--no-input")
	e2e.Eventually(t, "the agent begins", func() bool { return strings.Contains(s.ReadInWorkspace("ran"), "begin") })
	r.Signal(syscall.SIGKILL)
	r.Wait()
	was := s.Gateway.Registration().Identity()
	rotate(s, g)
	now := s.Gateway.Registration().Identity()
	if was == now {
		t.Fatal("it is the same gateway")
	}

	run := s.OnlyRunIn("interrupted")
	pair := was + "=" + now
	code, out, errs := s.Run(nil, "resume", run, "--no-input")
	if code != 4 || !strings.Contains(errs, "laufwerk resume "+run+" --accept-identity "+failure.Quote(pair)) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	s.CheckSandboxes(1, "while nobody has said that it is the same gateway")

	found, _ := filepath.Glob(filepath.Join(s.Home, "workspaces/*/*/hold"))
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	if err := os.Remove(found[0]); err != nil {
		t.Fatal(err)
	}
	s.MustRun([]int{0}, "resume", run, "--no-input", "--accept-identity", pair)
	ran, err := os.ReadFile(filepath.Join(s.Project, "ran"))
	if err != nil || strings.Count(string(ran), "begin") != 1 || strings.Count(string(ran), "count") != 1 {
		t.Errorf("%q, %v", ran, err)
	}
	s.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
	s.CheckSandboxes(0, "in the end")
}

// rotate gives a gateway another authority and other certificates, and registers it anew.
func rotate(s *e2e.OpenShellMachine, g *gateway.Gateway) {
	s.T.Helper()
	g.Kill()
	g.Rotate()
	g.Start()
	s.RegisterGateway(g)
	s.Connect(g)
}
