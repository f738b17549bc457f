package openshell_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// A gateway that is killed between the end of a container and the end of its row lists a sandbox of which nothing can run. The
// workspace is free then, and the claim is told of, with exit 6, until a later look finds the row gone.
func TestOpenShellResidue(t *testing.T) {
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
	run := s.OnlyRunIn("interrupted")

	g.Fault(gateway.Vanishing, gateway.Before(g.Kill))
	_, _, _ = s.Run(nil, "runs", "cancel", run)
	g.Start()
	for _, when := range []string{"once", "again"} {
		code, out, errs := s.Run(nil, "cleanup", run, "--discard-changes", "--json")
		if code != 6 || !strings.Contains(out, `"residue"`) {
			t.Errorf("%s: exit %d\n%s%s", when, code, out, errs)
		}
		if rows, containers := s.Sandboxes(); len(rows) != 1 || containers != 0 {
			t.Errorf("%s: %d rows, %d containers", when, len(rows), containers)
		}
		if left, _ := filepath.Glob(filepath.Join(s.Home, "workspaces/*/*")); len(left) > 0 {
			t.Errorf("%s: the workspace is not free: %v", when, left)
		}
		if list := s.MustRun([]int{0}, "claims", "list"); !strings.Contains(list, "residue") {
			t.Errorf("%s: %s", when, list)
		}
		if code, out, errs := s.Run(nil, "runs", "prune", run); code == 0 {
			t.Errorf("%s: a run with residue is pruned\n%s%s", when, out, errs)
		}
	}
	g.Reconcile()
	s.MustRun([]int{0}, "cleanup", run)
	s.CheckSandboxes(0, "in the end")
	s.CheckNothingLeft()
	s.MustRun([]int{0}, "runs", "prune", run)
}
