package local_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
)

// doctorCheck is one of the checks of `laufwerk doctor`, on a clock that is wrong by an offset.
func doctorCheck(w *e2e.Machine, offset time.Duration, id string, args ...string) e2e.DoctorCheck {
	w.T.Helper()
	code, out, errs := runAt(w, offset, append([]string{"doctor", "--json"}, args...)...)
	var doc struct{ Checks []e2e.DoctorCheck }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		w.T.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	for _, c := range doc.Checks {
		if c.ID == id {
			return c
		}
	}
	w.T.Fatalf("there is no check %s: %s", id, out)
	return e2e.DoctorCheck{}
}

// A question that waits for more than a day is named, and a write-back that stopped half-way, with what to type.
func TestDoctorOfWhatWaitsForAPerson(t *testing.T) {
	w := e2e.NewMachine(t)
	w.MustRun([]int{8}, "run", "job", "--no-input")
	run := w.OnlyRun().ID
	if c := doctorCheck(w, 23*time.Hour, "runs.waiting"); c.Status != "pass" {
		t.Errorf("after 23 hours: %v", c)
	}
	if c := doctorCheck(w, 25*time.Hour, "runs.waiting"); c.Status != "warn" || c.Fix != "laufwerk runs show "+run || !strings.Contains(fmt.Sprint(c.Evidence), "Write back?") {
		t.Errorf("after 25 hours: %v", c)
	}

	if c := doctorCheck(w, 0, "writebacks"); c.Status != "pass" {
		t.Errorf("nothing is half-applied: %v", c)
	}
	dir := filepath.Join(w.Home, "runs", run, "writebacks")
	w.WriteFile(filepath.Join(dir, "x", "plan.json"), `{"format":"1.0","id":"x","state":"applying","steps":[]}`)
	if c := doctorCheck(w, 0, "writebacks"); c.Status != "fail" || c.Fix != "laufwerk writeback continue "+run+"\nlaufwerk writeback abort "+run || !strings.Contains(fmt.Sprint(c.Evidence), w.Project) {
		t.Errorf("half-applied: %v", c)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.FinishAndCheck(1)
}

// Processes that carry the mark of a session which has ended are a failure; those with a mark of nobody's are listed where that
// is asked for. Neither is ended.
func TestDoctorOfProcesses(t *testing.T) {
	w := e2e.NewMachine(t)
	w.MustRun([]int{8}, "run", "job", "--no-input")
	session := ""
	for _, c := range w.ListClaims("--all") {
		if c.Kind == "session" {
			session = c.ID
		}
	}
	marked := func(mark string) (named func(c e2e.DoctorCheck) bool) {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{"LAUFWERK_MARK=" + mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return func(c e2e.DoctorCheck) bool {
			if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Error("it was ended")
			}
			all := strings.Join(c.Evidence, "\n") // of tests beside this one, too, and not all of many
			return strings.Contains(all, fmt.Sprintf("process %d", cmd.Process.Pid)) || strings.Contains(all, "more")
		}
	}
	if c := doctorCheck(w, 0, "orphans.processes"); c.Status != "pass" {
		t.Errorf("%v", c)
	}
	left, strange := marked(session+"/turn-1"), marked("cnosuch/turn-1")
	if c := doctorCheck(w, 0, "orphans.processes"); c.Status != "fail" || !left(c) || len(c.Evidence) != 1 || !strings.Contains(c.Evidence[0], session+", which is released") {
		t.Errorf("%v", c)
	}
	if c := doctorCheck(w, 0, "scan", "--scan"); c.Status != "warn" || !strange(c) || strings.Contains(fmt.Sprint(c.Evidence), session) {
		t.Errorf("%v", c)
	}
}
