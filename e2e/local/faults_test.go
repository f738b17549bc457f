//go:build crashpoints

package local_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// Each call to the operating system fails in turn: nothing is lost, and what a person types next leads to the same end. With
// LAUFWERK_TEST_ALL=1 there are about 1,400 calls; in CI a sample.

func TestCallsOfRunFail(t *testing.T) {
	e2e.FaultyCommand{
		Prepare: func(*e2e.Machine) (env, args []string) { return nil, []string{"run", "job", "--no-input"} },
		Code:    8,
		Finish:  func(w *e2e.Machine, _ []string) { w.FinishAfterFault() },
	}.FailEach(t, 30)
}

func TestCallsOfAnswerFail(t *testing.T) {
	e2e.FaultyCommand{
		Prepare: func(w *e2e.Machine) (env, args []string) {
			w.MustRun([]int{8}, "run", "job", "--no-input")
			return nil, []string{"answer", w.OnlyRun().ID, "approve", "yes"}
		},
		Finish: func(w *e2e.Machine, _ []string) { w.FinishAfterFault() },
	}.FailEach(t, 20)
}

func TestCallsOfCleanupFail(t *testing.T) {
	cleanup := []string{"cleanup", "--all", "--cancel", "--discard-changes"}
	e2e.FaultyCommand{
		Prepare: func(w *e2e.Machine) (env, args []string) {
			w.MustRun([]int{8}, "run", "job", "--no-input")
			return nil, cleanup
		},
		Finish: func(w *e2e.Machine, _ []string) {
			w.MustRun([]int{0}, cleanup...)
			w.CheckNothingLeft()
			w.CheckSource(e2e.SourceBefore())
		},
	}.FailEach(t, 10)
}

func TestCallsOfPrepareFail(t *testing.T) {
	e2e.FaultyCommand{
		Prepare: func(w *e2e.Machine) (env, args []string) {
			env = append(writeScriptedNode(w), "NPM_TAKES=0", "PATH="+filepath.Join(w.Dir, "bin"))
			for _, tool := range []string{"chmod", "mkdir", "sleep"} { // and no npm of this machine, which would be found where ours is not
				path, err := exec.LookPath(tool)
				if err == nil {
					err = os.Symlink(path, filepath.Join(w.Dir, "bin", tool))
				}
				if err != nil {
					w.T.Fatal(err)
				}
			}
			return env, []string{"prepare", "local"}
		},
		Finish: func(w *e2e.Machine, env []string) {
			if code, _, errs := w.Run(env, "prepare", "local"); code != 0 {
				w.T.Errorf("prepare local: exit %d\n%s", code, errs)
			}
			if n := w.CountRan()["npm"]; n < 1 || n > 2 {
				w.T.Errorf("npm ran %d times", n)
			}
			w.CheckPrepared()
		},
	}.FailEach(t, 10)
}
