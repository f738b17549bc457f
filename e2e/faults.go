package e2e

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// FaultyCommand is a command of which each call to the operating system is made to fail in turn (see internal/system/fault), in
// its own process or in one that it has started.
type FaultyCommand struct {
	// Prepare makes what the command needs, and says how it is called.
	Prepare func(w *Machine) (env, args []string)
	// Code is how it ends where no call fails.
	Code int
	// Finish types what a person would afterwards, and checks that the end is the one without a failure.
	Finish func(w *Machine, env []string)
}

// faultErrors are what the operating system answers to an operation where it fails; of the clock, how wrong it is.
func faultErrors(site string) []string {
	op, _, _ := strings.Cut(site, " ")
	errors := map[string]string{
		"access": "EACCES", "chdir": "EACCES", "chmod": "EPERM", "chown": "EPERM", "clock": "-24h 24h", "close": "EIO",
		"connect": "ECONNREFUSED", "create": "ENOSPC EMFILE EACCES", "exchange": "EIO", "exec": "EAGAIN ENOMEM EACCES", "kill": "EPERM",
		"link": "ENOSPC EIO", "listen": "EACCES", "lock": "ENOLCK", "mkdir": "ENOSPC EACCES", "open": "EMFILE EIO EACCES",
		"pidfd": "EMFILE", "pipe": "EMFILE", "prctl": "EPERM", "query": "ENOLCK", "read": "EIO", "readdir": "EIO", "readlink": "EIO",
		"remove": "EIO EACCES", "rlimit": "EPERM", "rename": "ENOSPC EIO", "rmdir": "EIO", "setsid": "EPERM", "signal": "EPERM", "stat": "EIO EACCES",
		"statfs": "EIO", "symlink": "ENOSPC", "sync": "EIO ENOSPC", "truncate": "EIO", "write": "ENOSPC EIO",
	}
	return slices.DeleteFunc(strings.Fields(errors[op]), func(e string) bool {
		// What may not be read is content of a workspace, and that a look which may, once more, finds another one is right.
		return e == "EACCES" && strings.Contains(site, " workspace/")
	})
}

func errnoOf(name string) syscall.Errno {
	for n := syscall.Errno(1); n < 256; n++ {
		if unix.ErrnoName(n) == name {
			return n
		}
	}
	return 0
}

// sites are those that the command passes, in the order in which it does, and how often it passes each.
func (c FaultyCommand) sites(t *testing.T) (sites []string, calls map[string]int) {
	t.Helper()
	w := NewMachine(t)
	env, args := c.Prepare(w)
	log := filepath.Join(w.Dir, "calls.log")
	if code, out, errs := w.Run(append(env, "LAUFWERK_FAULT_LOG="+log), args...); code != c.Code {
		t.Fatalf("%v: exit %d\n%s%s", args, code, out, errs)
	}
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	calls = map[string]int{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		site, nth, _ := strings.Cut(lines.Text(), "#")
		n, err := strconv.Atoi(nth)
		if err != nil {
			t.Fatalf("%q: %v", lines.Text(), err)
		}
		if calls[site] == 0 {
			sites = append(sites, site)
		}
		calls[site] = max(calls[site], n)
	}
	c.Finish(w, env)
	return sites, calls
}

// fail has the nth call of a site fail, and finishes. It is false where that call was not made, as one beside the run may not be.
func (c FaultyCommand) fail(t *testing.T, site string, n int, with string) bool {
	w := NewMachine(t)
	env, args := c.Prepare(w)
	once := filepath.Join(w.Dir, "failed")
	code, out, errs := w.Run(append(env, fmt.Sprintf("LAUFWERK_FAULT=%s#%d", site, n), "LAUFWERK_FAULT_ERROR="+with, "LAUFWERK_FAULT_ONCE="+once), args...)
	if _, err := os.Lstat(once); err != nil {
		return false
	}
	said := ""
	if errno := errnoOf(with); errno != 0 && errno != syscall.EACCES && errno != syscall.EPERM { // permissions are told in words of our own
		said = errno.Error()
	}
	switch {
	case strings.Contains(errs, "panic") || strings.Contains(errs, "goroutine "):
		t.Error("it panicked")
	case code == c.Code: // and whatever failed did no harm, as the end shows
	case code < 1 || code > 9:
		t.Errorf("no documented exit code: %d", code)
	case !strings.Contains(errs, "error: ") || !strings.Contains(errs, said):
		t.Errorf("exit %d, and it is not told what failed: %q", code, said)
	case !strings.Contains(errs, "next: "):
		t.Errorf("exit %d, and no next command is told", code)
	}
	w.MustRun([]int{0, 4}, "doctor")
	c.Finish(w, env)
	if t.Failed() {
		t.Logf("%s fails with %s: exit %d\n%s%s", site, with, code, out[:min(len(out), 500)], errs[max(0, len(errs)-3000):])
	}
	return true
}

// FailEach makes the command once for each of its sites, or for as many samples of them, the first call of which fails; of every
// fourth site any call that it makes.
func (c FaultyCommand) FailEach(t *testing.T, samples int) {
	sites, calls := c.sites(t)
	random := testkit.NewRandom(t)
	t.Logf("%d sites", len(sites))
	if !testkit.TakesEverySample() {
		random.Shuffle(len(sites), func(i, j int) { sites[i], sites[j] = sites[j], sites[i] })
		sites = sites[:min(samples, len(sites))]
	}
	var ran, failed atomic.Int32
	t.Run("at", func(t *testing.T) {
		for i, site := range sites {
			errors := faultErrors(site)
			if len(errors) == 0 {
				t.Fatalf("no errors are known of %q", site)
			}
			with, n := errors[random.IntN(len(errors))], 1
			if i%4 == 3 {
				n += random.IntN(calls[site])
			}
			t.Run(strings.ReplaceAll(fmt.Sprintf("%s#%d %s", site, n, with), "/", "."), func(t *testing.T) {
				t.Parallel()
				ran.Add(1)
				if c.fail(t, site, n, with) {
					failed.Add(1)
				}
			})
		}
	})
	t.Logf("%d of %d calls failed", failed.Load(), ran.Load())
	if failed.Load() < ran.Load()*8/10 {
		t.Errorf("only %d of %d calls failed", failed.Load(), ran.Load())
	}
}

// FinishAfterFault is FinishAndCheck of a run that a failure may have ended: then nothing of it is left, and the next run does what
// it was to do.
func (w *Machine) FinishAfterFault() {
	w.T.Helper()
	if r := w.Finish(); r.State == "failed" {
		w.MustRun([]int{0}, "cleanup", "--all", "--discard-changes")
		w.CheckNothingLeft()
		w.CheckSource(SourceBefore())
		w.MustRun([]int{0}, "runs", "prune", r.ID)
		w.WriteFile(filepath.Join(w.Counts, "ran"), "")
	}
	w.FinishAndCheck(2)
}
