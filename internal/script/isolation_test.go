package script

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// waiting is a started child that waits for an answer, and its process.
func waiting(t *testing.T) (*Child, int) {
	t.Helper()
	c := flow(t, `yield* op("a"); for (;;) {}`)
	said(t, c, nil)
	return c, c.talk.proc.PID()
}

func TestChildGetsNothingOfItsParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it is read from /proc")
	}
	t.Setenv("LAUFWERK_TEST_SECRET", "canary")
	// A descriptor without close-on-exec, as a shell leaves them.
	fd, err := syscall.Open(t.TempDir(), syscall.O_RDONLY, 0)
	must(t, err)
	defer syscall.Close(fd)
	_, pid := waiting(t)
	proc := fmt.Sprintf("/proc/%d/", pid)

	environ, err := os.ReadFile(proc + "environ")
	must(t, err)
	if got := string(environ); got != "TZ=UTC\x00" {
		t.Errorf("environment = %q", got)
	}
	fds, err := os.ReadDir(proc + "fd")
	must(t, err)
	for _, fd := range fds {
		// The event descriptors and the cgroup's files are the Go runtime's own.
		to, _ := os.Readlink(proc + "fd/" + fd.Name())
		n := fd.Name()
		if (n == "0" || n == "1" || n == "2") && strings.HasPrefix(to, "pipe:") || strings.HasPrefix(to, "anon_inode:[event") || strings.HasPrefix(to, "/sys/fs/cgroup/") {
			continue
		}
		t.Errorf("descriptor %s → %s", n, to)
	}
	status, err := os.ReadFile(proc + "status")
	must(t, err)
	if !slices.Contains(strings.Split(string(status), "\n"), "NoNewPrivs:\t1") {
		t.Error("the child may gain privileges")
	}
	limits, err := os.ReadFile(proc + "limits")
	must(t, err)
	for _, name := range []string{"Max core file size", "Max file size"} {
		i := strings.Index(string(limits), name)
		if got := strings.Fields(string(limits)[i+len(name):])[0]; got != "0" {
			t.Errorf("%s = %s", name, got)
		}
	}
	if dir, _ := os.Readlink(proc + "cwd"); dir != "/" {
		t.Errorf("working directory = %s", dir)
	}
}

func TestChildEndsWithItsParent(t *testing.T) {
	c, pid := waiting(t)
	// Even in the middle of a loop: closing stdin is what the death of the parent does.
	must(t, c.talk.send(result(id("a"), ok(""))))
	must(t, c.talk.proc.Stdin.Close())
	done := make(chan error, 1)
	go func() { done <- c.talk.proc.Wait() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("process %d goes on without its parent", pid)
	}
}

func TestCloseEndsAComputingChild(t *testing.T) {
	c, pid := waiting(t)
	must(t, c.talk.send(result(id("a"), ok(""))))
	c.Close()
	c.Close()
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d is still there: %v", pid, err)
	}
}

func TestLimitsOfAWorkflow(t *testing.T) {
	for name, c := range map[string]struct{ body, message, place string }{
		"loop":   {`yield* op("a"); const spin = () => { for (;;) {} }; spin();`, "it ran for more than 300ms without waiting for anything", "laufwerk/workflows/w/workflow.ts:8:"},
		"memory": {`yield* op("a"); const all = []; for (;;) all.push("x".repeat(1e6) + all.length);`, "it needs more than 64 MiB of memory", "laufwerk/workflows/w/workflow.ts:8:"},
		"caught": {`yield* op("a"); try { const all = []; for (;;) all.push("x".repeat(1e6) + all.length); } finally { }`, "it needs more than 64 MiB of memory", "laufwerk/workflows/w/workflow.ts:8:"},
	} {
		t.Run(name, func(t *testing.T) {
			limits := Limits{MemoryBytes: 64 << 20, StepMillis: 300}
			if name != "loop" {
				limits.StepMillis = 30_000
			}
			c := limited(t, c.body, limits, c.message, c.place)
			if _, err := c.Step(t.Context(), result("x", "1")); err == nil {
				t.Error("a workflow that ended took another step")
			}
		})
	}
}

func limited(t *testing.T, body string, limits Limits, message, place string) *Child {
	t.Helper()
	root := project(t, map[string]string{"laufwerk/workflows/w/workflow.ts": header + `const op = (key: string) => Host.exec({ key, command: ["true"] });
export const workflow = defineWorkflow<unknown, any>({ name: "w", *run() {
` + body + `
}});`})
	r := testRunner(t)
	_, bundle, err := r.Evaluate(t.Context(), root, "laufwerk/workflows/w/workflow.ts", EvalOptions{Export: "workflow"})
	must(t, err)
	r.WorkflowLimits = limits
	c, err := r.Start(t.Context(), protocol.Start{Bundle: &bundle, Seed: "s"})
	must(t, err)
	t.Cleanup(c.Close)
	said(t, c, nil)
	ms, err := c.Step(t.Context(), result(id("a"), ok("")))
	must(t, err)
	e := ms[len(ms)-1].Error
	if e == nil || e.Code != string(failure.LimitExceeded) || e.Message != message {
		t.Fatalf("error = %+v", e)
	}
	if len(e.Frames) == 0 || !strings.HasPrefix(e.Frames[0], place) {
		t.Errorf("frames = %q, want the first at %s", e.Frames, place)
	}
	return c
}

func TestAChildThatIsKilledIsAnError(t *testing.T) {
	c, pid := waiting(t)
	must(t, syscall.Kill(pid, syscall.SIGSEGV))
	_, err := c.Step(t.Context(), result(id("a"), ok("")))
	if !failure.Is(err, failure.Internal) {
		t.Errorf("err = %v", err)
	}
}

func TestAWorkflowRunsFromItsBundleAlone(t *testing.T) {
	root := project(t, map[string]string{"laufwerk/workflows/w/workflow.ts": header + `
export const workflow = defineWorkflow<unknown, any>({ name: "w", *run() {
  const first = [Date.now(), Math.random(), crypto.randomUUID()];
  yield* Clock.now();
  return [...first, Date.now(), Math.random()];
}});`})
	r := testRunner(t)
	value, bundle, err := r.Evaluate(t.Context(), root, "laufwerk/workflows/w/workflow.ts", EvalOptions{Export: "workflow"})
	must(t, err)
	if string(value) != `{"name":"w"}` {
		t.Errorf("described as %s", value)
	}
	must(t, os.RemoveAll(filepath.Join(root, "laufwerk")))
	var ends []string
	for range 2 {
		c := started(t, r, bundle, "null")
		wants(t, said(t, c, nil), "clock.now:@0#0", "idle")
		ends = append(ends, strings.Join(said(t, c, result("clock.now:@0#0", "5")), ""))
	}
	if ends[0] != ends[1] || !strings.HasPrefix(ends[0], "done [1000000,0.") || !strings.Contains(ends[0], ",2000000,0.") {
		t.Errorf("two runs ended with\n%s\n%s", ends[0], ends[1])
	}
}

func TestAnAnswerToNothingIsAnError(t *testing.T) {
	c, _ := waiting(t)
	wants(t, said(t, c, result("nothing", "1")), "error Error workflow_failed: Error: an answer came for nothing, which was not asked for")
}

func TestRunMustBeAGenerator(t *testing.T) {
	c := program(t, header+`
export const workflow = defineWorkflow<unknown, any>({ name: "w", async run() { return 1; } } as any);
`, "null")
	wants(t, said(t, c, nil), "error LaufwerkError usage: the workflow's run must be a generator function (`*run(input) { … }`); calling it gave an object")
}
