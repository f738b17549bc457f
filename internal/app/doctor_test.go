package app_test

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
)

// examines is one of the checks of `laufwerk doctor`, on a clock that is wrong by an offset.
func (w *world) examines(offset time.Duration, id string, args ...string) check {
	w.t.Helper()
	code, out, errs := w.at(offset, append([]string{"doctor", "--json"}, args...)...)
	var doc struct{ Checks []check }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		w.t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	for _, c := range doc.Checks {
		if c.ID == id {
			return c
		}
	}
	w.t.Fatalf("there is no check %s: %s", id, out)
	return check{}
}

// A question that waits for more than a day is named, and a write-back that stopped half-way, with what to type.
func TestDoctorOfWhatWaitsForAPerson(t *testing.T) {
	w := newWorld(t)
	w.must([]int{8}, "run", "job", "--no-input")
	run := w.onlyRun().ID
	if c := w.examines(23*time.Hour, "runs.waiting"); c.Status != "pass" {
		t.Errorf("after 23 hours: %v", c)
	}
	if c := w.examines(25*time.Hour, "runs.waiting"); c.Status != "warn" || c.Fix != "laufwerk runs show "+run || !strings.Contains(fmt.Sprint(c.Evidence), "Write back?") {
		t.Errorf("after 25 hours: %v", c)
	}

	if c := w.examines(0, "writebacks"); c.Status != "pass" {
		t.Errorf("nothing is half-applied: %v", c)
	}
	dir := filepath.Join(w.home, "runs", run, "writebacks")
	w.write(filepath.Join(dir, "x", "plan.json"), `{"format":"1.0","id":"x","state":"applying","steps":[]}`)
	if c := w.examines(0, "writebacks"); c.Status != "fail" || c.Fix != "laufwerk writeback continue "+run+"\nlaufwerk writeback abort "+run || !strings.Contains(fmt.Sprint(c.Evidence), w.project) {
		t.Errorf("half-applied: %v", c)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	w.done(1)
}

// Processes that carry the mark of a session which has ended are a failure; those with a mark of nobody's are listed where that
// is asked for. Neither is ended.
func TestDoctorOfProcesses(t *testing.T) {
	w := newWorld(t)
	w.must([]int{8}, "run", "job", "--no-input")
	session := ""
	for _, c := range w.claims("--all") {
		if c.Kind == "session" {
			session = c.ID
		}
	}
	marked := func(mark string) (named func(c check) bool) {
		t.Helper()
		cmd := exec.Command("sleep", "1000")
		cmd.Env = []string{"LAUFWERK_MARK=" + mark}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return func(c check) bool {
			if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
				t.Error("it was ended")
			}
			all := strings.Join(c.Evidence, "\n") // of tests beside this one, too, and not all of many
			return strings.Contains(all, fmt.Sprintf("process %d", cmd.Process.Pid)) || strings.Contains(all, "more")
		}
	}
	if c := w.examines(0, "orphans.processes"); c.Status != "pass" {
		t.Errorf("%v", c)
	}
	left, strange := marked(session+"/turn-1"), marked("cnosuch/turn-1")
	if c := w.examines(0, "orphans.processes"); c.Status != "fail" || !left(c) || len(c.Evidence) != 1 || !strings.Contains(c.Evidence[0], session+", which is released") {
		t.Errorf("%v", c)
	}
	if c := w.examines(0, "scan", "--scan"); c.Status != "warn" || !strange(c) || strings.Contains(fmt.Sprint(c.Evidence), session) {
		t.Errorf("%v", c)
	}
}
