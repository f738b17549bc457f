//go:build crashpoints

package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// points are the crash points that a whole, undisturbed operation reaches, in the process that runs with env.
func points(t *testing.T, run func(env []string)) []string {
	t.Helper()
	log := filepath.Join(t.TempDir(), "points")
	run([]string{"LAUFWERK_CRASH_LOG=" + log})
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(b))
}

// settle does what a resume does with an attempt, and says how often the command has begun in all: the attempt either
// counts (then it has an end or is fenced), or certainly never ran.
func settle(t *testing.T, at LocalLauncher, dir, ran string) {
	t.Helper()
	status, err := Abandon(dir)
	if err != nil {
		t.Fatal(err)
	}
	switch status {
	case NotStarted:
		if _, err := os.Stat(ran); err == nil {
			t.Fatal("it ran, and counts as not started")
		}
		return
	case Running, Ended:
		exit, err := Attach(at, dir, 1<<20).Wait(bounded(t))
		if err == nil {
			if exit.Code != 0 || exit.StdoutBytes != 3 {
				t.Fatalf("%+v", exit)
			}
			if b, err := os.ReadFile(ran); err != nil || string(b) != "x" {
				t.Fatalf("it ran %q: %v", b, err)
			}
			return
		}
		if !errors.Is(err, ErrLost) {
			t.Fatal(err)
		}
	}
	if b, err := os.ReadFile(ran); err == nil && len(b) > 1 {
		t.Fatalf("it ran %q", b)
	}
}

func TestTheSupervisorMayBeKilledAnywhere(t *testing.T) {
	word := unique(t)
	attempt := func(t *testing.T, env []string) (dir, ran string) {
		dir, ran = here().dir(t), filepath.Join(t.TempDir(), "ran")
		at := here().LocalLauncher
		at.Env = env
		spec := bash(t, "printf x >>"+ran+"; echo hi; env -i setsid bash -c 'exec -a "+word+" sleep 1000' & sleep 0.02")
		_, err := Start(bounded(t), at, dir, spec)
		if err == nil {
			_, _ = Attach(at, dir, 1<<20).Wait(bounded(t))
		} else if !errors.Is(err, ErrRefused) {
			t.Fatal(err)
		}
		return dir, ran
	}
	all := points(t, func(env []string) {
		dir, _ := attempt(t, env)
		if f := here().Fence(bounded(t), dir); !f.Sure {
			t.Fatalf("%+v", f)
		}
	})
	if len(all) < 10 {
		t.Fatalf("only %v", all)
	}
	for _, point := range all {
		t.Run(point, func(t *testing.T) {
			dir, ran := attempt(t, []string{"LAUFWERK_CRASH=" + point})
			settle(t, here().LocalLauncher, dir, ran)
			v, err := ReadState(dir)
			if err != nil {
				t.Fatal(err)
			}
			f := here().Fence(bounded(t), dir)
			if cgroup := v.Started == nil || v.Started.Cgroup != ""; f.Sure != cgroup {
				t.Fatalf("%+v", f)
			} else if cgroup && len(living(t, word)) > 0 {
				t.Fatalf("%v live after %+v", living(t, word), f)
			}
			if cgroup := v.Started; cgroup != nil && cgroup.Cgroup != "" {
				if _, err := os.Stat(cgroup.Cgroup); err == nil {
					t.Fatal("the control group is still there")
				}
			}
		})
	}
}

func TestTheWorkerMayBeKilledAnywhere(t *testing.T) {
	attempt := func(t *testing.T, env ...string) (dir, ran string, err error) {
		dir, ran = here().dir(t), filepath.Join(t.TempDir(), "ran")
		t.Cleanup(func() { here().Fence(context.Background(), dir) })
		cmd := exec.CommandContext(bounded(t), here().Executable, "printf x >>"+ran+"; sleep 0.02; echo hi")
		cmd.Env = append(env, workerVariable+"="+dir)
		return dir, ran, cmd.Run()
	}
	all := points(t, func(env []string) {
		if _, _, err := attempt(t, env...); err != nil {
			t.Fatal(err)
		}
	})
	if len(all) < 2 {
		t.Fatalf("only %v", all)
	}
	for _, point := range all {
		t.Run(point, func(t *testing.T) {
			dir, ran, err := attempt(t, "LAUFWERK_CRASH="+point)
			if err == nil {
				t.Fatal("it was not killed")
			}
			settle(t, here().LocalLauncher, dir, ran)
		})
	}
}
