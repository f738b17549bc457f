package app_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// A gateway gets new certificates while an agent is in its turn, and nobody laufwerk is there. It is not taken for the one that
// claims name until a person says so; then the same turn is joined, and all is cleaned up.
func TestOpenShellCertificatesAreRotated(t *testing.T) {
	t.Parallel()
	s, g := newSandboxed(t)
	s.login()
	s.register(g)
	s.target()
	s.write(filepath.Join(s.project, "agent.sh"), boxedAgent)
	s.write(filepath.Join(s.project, "hold"), "")
	s.workflow("job", boxedWorkflow)
	s.own()
	s.must([]int{0}, "provision", "openshell")
	s.prepare()

	r := s.start(nil, "run", "job", "--no-input")
	eventually(t, "the agent begins", func() bool { return strings.Contains(s.inWorkspace("ran"), "begin") })
	r.signal(syscall.SIGKILL)
	r.wait()
	was := s.look.Registration().Identity()
	rotate(s, g)
	now := s.look.Registration().Identity()
	if was == now {
		t.Fatal("it is the same gateway")
	}

	run := s.only("interrupted")
	pair := was + "=" + now
	code, out, errs := s.laufwerk(nil, "resume", run, "--no-input")
	if code != 4 || !strings.Contains(errs, "laufwerk resume "+run+" --accept-identity "+failure.Quote(pair)) {
		t.Errorf("exit %d\n%s%s", code, out, errs)
	}
	s.has(1, "while nobody has said that it is the same gateway")

	found, _ := filepath.Glob(filepath.Join(s.home, "workspaces/*/*/hold"))
	if len(found) != 1 {
		t.Fatalf("%v", found)
	}
	if err := os.Remove(found[0]); err != nil {
		t.Fatal(err)
	}
	s.must([]int{0}, "resume", run, "--no-input", "--accept-identity", pair)
	ran, err := os.ReadFile(filepath.Join(s.project, "ran"))
	if err != nil || strings.Count(string(ran), "begin") != 1 || strings.Count(string(ran), "count") != 1 {
		t.Errorf("%q, %v", ran, err)
	}
	s.must([]int{0}, "cleanup", "--all", "--discard-changes")
	s.has(0, "in the end")
}

// rotate gives a gateway another authority and other certificates, and registers it anew.
func rotate(s *sandboxed, g *gateway.Gateway) {
	s.t.Helper()
	g.Kill()
	g.Rotate()
	g.Start()
	s.register(g)
	s.connect(g)
}
