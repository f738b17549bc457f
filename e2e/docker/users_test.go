package docker_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// belongs holds that everything below a directory belongs to a user.
func belongs(t *testing.T, dir string, u e2e.User) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		n++
		if s := info.Sys().(*syscall.Stat_t); int(s.Uid) != u.UID || int(s.Gid) != u.GID {
			t.Errorf("%s belongs to %d:%d, not to %s", path, s.Uid, s.Gid, u)
		}
		return nil
	})
	if err != nil || n < 5 {
		t.Errorf("%d files below %s: %v", n, dir, err)
	}
}

// exampleRuns runs the example that init writes to its end, with a command as agent, its writer and its reviewer.
func exampleRuns(t *testing.T, endpoint string, u e2e.User, rootless bool) {
	t.Helper()
	w := e2e.NewUserMachine(t, endpoint, u)
	within, outside := u, u
	switch {
	case rootless: // the user that runs the engine is root in its containers
		within = e2e.User{UID: 0, GID: 0}
	case u.UID == 0: // a root worker works as nobody
		within = e2e.User{UID: 65534, GID: 65534}
		outside = within
	}
	w.MustRun([]int{0}, "init", "--execution", "docker", "--example", "issue-to-fix", "--agent-command", "bash agent.sh", "--no-prepare")
	w.ReplaceInFile("laufwerk/execution.ts", `  resources: {`, `  image: "`+engine.Base+`", network: "none",`+"\n  resources: {")
	if rootless {
		w.ReplaceInFile("laufwerk/execution.ts", "    cpus: 2,\n    memoryBytes: 4 * 1024 ** 3,\n    swapBytes: 0,\n    pids: 512,\n", "")
	}
	if u.UID != os.Getuid() {
		if err := os.Lchown(filepath.Join(w.Project, "laufwerk/execution.ts"), u.UID, u.GID); err != nil {
			t.Fatal(err)
		}
	}
	input := `{"issue":"it is broken","check":"grep fixed state && test $(id -u) = ` + strconv.Itoa(within.UID) + `"}`
	code, out, errs := w.Run(nil, "run", "issue-to-fix", "--no-input", "--input", input)
	if code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	run := w.OnlyRun().ID
	shown := w.MustRun([]int{0}, "runs", "show", run)
	if !strings.Contains(shown, "> touch: cannot touch 'intruder': Read-only file system\n") {
		t.Errorf("what the reviewer could do: %s", shown)
	}
	copies, _ := filepath.Glob(filepath.Join(w.Home, "workspaces/*/*/agent.sh"))
	more, _ := filepath.Glob(filepath.Join(w.Home, "workspaces/*/agent.sh"))
	if copies = append(copies, more...); len(copies) == 0 {
		t.Error("there is no workspace")
	}
	for _, c := range copies {
		belongs(t, filepath.Dir(c), outside)
	}
	answered := w.MustRun([]int{0}, "answer", run, "write-back", "yes", "--json")
	var done struct{ Output struct{ Paths []string } }
	if err := json.Unmarshal([]byte(answered), &done); err != nil || strings.Join(done.Output.Paths, " ") != "made made/deep made/deep/who made/tool.sh state" {
		t.Errorf("%v: %s", err, answered)
	}
	belongs(t, w.Project, u)
	if b, err := os.ReadFile(filepath.Join(w.Project, "made/deep/who")); err != nil || string(b) != fmt.Sprintf("%d\n%d\n1\n", within.UID, within.GID) {
		t.Errorf("the agent ran as %q, %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(w.Project, "made/tool.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	w.MustRun([]int{0}, "cleanup", "--all")
	w.CheckNothingLeft()
	if left := engine.Containers(t, endpoint, owned.LabelOwner+"="+w.StoreOwner()); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// Of whoever starts laufwerk the agent has the user and the group, also those that the image does not know, and one that it
// has another name for. What comes out belongs to them.
func TestContainersWorkAsTheUser(t *testing.T) {
	t.Parallel()
	endpoint := engine.Endpoint(t)
	for _, u := range []e2e.User{{UID: 0, GID: 0}, {UID: 1000, GID: 1000}, {UID: 1234, GID: 20}} {
		t.Run(u.String(), func(t *testing.T) {
			t.Parallel()
			exampleRuns(t, endpoint, u, false)
		})
	}
}

// An engine that maps users leaves our containers unmapped: files come out with the worker's ids.
func TestContainersOfAUserNamespacedEngine(t *testing.T) {
	t.Parallel()
	e := engine.UserNamespaced(t, engine.Base)
	if info, err := engine.Client(t, e.Endpoint).Info(t.Context()); err != nil || !slices.Contains(info.SecurityOptions, "name=userns") {
		t.Fatalf("the engine maps nobody: %v, %v", info.SecurityOptions, err)
	}
	for _, u := range []e2e.User{{UID: 0, GID: 0}, {UID: 1234, GID: 20}} {
		t.Run(u.String(), func(t *testing.T) { exampleRuns(t, e.Endpoint, u, false) })
	}
}

// An engine without root has its user as root in its containers, and no way to limit them here.
func TestContainersOfARootlessEngine(t *testing.T) {
	t.Parallel()
	e, uid, gid := engine.Rootless(t, engine.Base)
	if info, err := engine.Client(t, e.Endpoint).Info(t.Context()); err != nil || !slices.Contains(info.SecurityOptions, "name=rootless") {
		t.Fatalf("the engine has root: %v, %v", info.SecurityOptions, err)
	}
	exampleRuns(t, e.Endpoint, e2e.User{UID: uid, GID: gid}, true)
}

// The work that a reviewer fails over is not lost: its check succeeded, and a person decides with the failure in sight.
func TestAFailedReviewIsForThePerson(t *testing.T) {
	t.Parallel()
	w := e2e.NewUserMachine(t, engine.Endpoint(t), e2e.User{UID: os.Getuid(), GID: os.Getgid()})
	w.WriteFile(filepath.Join(w.Project, "agent.sh"), "case $(cat) in Review*) echo no review from me >&2; exit 3 ;; esac\necho fixed > state\n")
	w.MustRun([]int{0}, "init", "--execution", "docker", "--example", "issue-to-fix", "--agent-command", "bash agent.sh", "--no-prepare")
	w.ReplaceInFile("laufwerk/execution.ts", `  resources: {`, `  image: "`+engine.Base+`", network: "none",`+"\n  resources: {")
	w.MustRun([]int{8}, "run", "issue-to-fix", "--no-input", "--input", `{"issue":"it is broken","check":"grep fixed state"}`)
	run := w.OnlyRun().ID
	if shown := w.MustRun([]int{0}, "runs", "show", run); !strings.Contains(shown, "the reviewing agent failed:\n  \n  > ask: bash exited with status 3: no review from me\n") {
		t.Error(shown)
	}
	w.MustRun([]int{0}, "answer", run, "write-back", "yes")
	w.MustRun([]int{0}, "cleanup", "--all")
}
