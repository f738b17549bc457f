package local_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// It says so if one that was started before it lives still; one that waits to be reaped does not.
const hostProgram = `
for f in COUNTS/pid-*; do
  [ -e "$f" ] || continue
  case "$(sed -n 's/^State:[[:space:]]*//p' "/proc/$(cat "$f")/status" 2>/dev/null)" in ""|Z*|X*) ;; *) echo twice >> COUNTS/ran ;; esac
done
echo $$ > COUNTS/pid-$$
echo begin >> COUNTS/ran
while [ -e COUNTS/hold ]; do sleep 0.02; done
rm COUNTS/pid-$$
echo ended >> COUNTS/ran
`

// A program of Host.exec outlives its worker and is joined. Where its supervisor is killed too, it is ended before it is run
// once more; and whoever cancels the run ends it.
func TestHostProgramsAreNeverTwoAtOnce(t *testing.T) {
	for _, how := range []string{"worker killed", "supervisor killed", "both killed", "cancelled"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			if (how == "supervisor killed" || how == "both killed") && !w.HasControlGroups() {
				t.Skip("no control groups (cgroup v2) can be made here, so a killed supervisor leaves the run in doubt")
			}
			program := filepath.Join(w.Dir, "program.sh")
			w.WriteFile(program, strings.ReplaceAll(hostProgram, "COUNTS", w.Counts))
			w.WriteWorkflow("host", fmt.Sprintf(`
import { defineWorkflow, Host } from "@laufwerk/sdk";
export const workflow = defineWorkflow<unknown, number>({
  name: "host",
  *run() { return (yield* Host.exec({ key: "long", command: ["bash", %q] })).exitCode; },
});
`, program))
			w.Mark(e2e.HoldFile)
			worker := w.Start(nil, "run", "host", "--no-input")
			w.AwaitRan("begin", 1)
			id := w.OnlyRun().ID
			times := 1
			switch how {
			case "worker killed":
				worker.Kill()
				worker = w.Start(nil, "resume", id, "--no-input")
				e2e.Eventually(t, "it is joined", func() bool { return w.HasAttached(id) })
			case "supervisor killed":
				times = 2
				w.KillSupervisor()
				w.AwaitRan("begin", 2)
			case "both killed":
				times = 2
				worker.Kill()
				w.KillSupervisor()
				worker = w.Start(nil, "resume", id, "--no-input")
				w.AwaitRan("begin", 2)
			case "cancelled":
				worker.Kill()
				w.MustRun([]int{0}, "runs", "cancel", id)
				w.MustRun([]int{0}, "cleanup", id)
				w.CheckNothingLeft()
				if n := w.CountRan(); n["begin"] != 1 || n["ended"] != 0 {
					t.Errorf("%v", n)
				}
				return
			}
			w.Unmark(e2e.HoldFile)
			worker.CheckExit(0)
			if n := w.CountRan(); n["begin"] != times || n["ended"] != 1 || n["twice"] != 0 {
				t.Errorf("%v", n)
			}
			if j := w.CountRecords(); j["cut host.exec:long"] != times-1 || j["completed host.exec:long"] != 1 {
				t.Errorf("%v", j)
			}
			w.MustRun([]int{0}, "cleanup", "--all")
			w.CheckNothingLeft()
		})
	}
}
