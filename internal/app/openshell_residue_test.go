package app_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// A gateway that is killed between the end of a container and the end of its row lists a sandbox of which nothing can run. The
// workspace is free then, and the claim is told of, with exit 6, until a later look finds the row gone.
func TestOpenShellResidue(t *testing.T) {
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
	run := s.only("interrupted")

	g.Fault(gateway.Vanishing, gateway.Before(g.Kill))
	_, _, _ = s.laufwerk(nil, "runs", "cancel", run)
	g.Start()
	for _, when := range []string{"once", "again"} {
		code, out, errs := s.laufwerk(nil, "cleanup", run, "--discard-changes", "--json")
		if code != 6 || !strings.Contains(out, `"residue"`) {
			t.Errorf("%s: exit %d\n%s%s", when, code, out, errs)
		}
		if rows, containers := s.there(); len(rows) != 1 || containers != 0 {
			t.Errorf("%s: %d rows, %d containers", when, len(rows), containers)
		}
		if left, _ := filepath.Glob(filepath.Join(s.home, "workspaces/*/*")); len(left) > 0 {
			t.Errorf("%s: the workspace is not free: %v", when, left)
		}
		if list := s.must([]int{0}, "claims", "list"); !strings.Contains(list, "residue") {
			t.Errorf("%s: %s", when, list)
		}
		if code, out, errs := s.laufwerk(nil, "runs", "prune", run); code == 0 {
			t.Errorf("%s: a run with residue is pruned\n%s%s", when, out, errs)
		}
	}
	g.Reconcile()
	s.must([]int{0}, "cleanup", run)
	s.has(0, "in the end")
	s.nothingIsLeft()
	s.must([]int{0}, "runs", "prune", run)
}
