package app_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// usersAgent edits where it may, and says what it tried where it may only read.
const usersAgent = `prompt=$(cat)
case $prompt in
Review*) touch intruder 2>&1 && echo "I could write"; exit 0 ;;
esac
mkdir -p made/deep
id -u > made/deep/who
id -g >> made/deep/who
grep NoNewPrivs /proc/self/status | cut -f2 >> made/deep/who
echo fixed > state
printf '#!/bin/sh\n' > made/tool.sh
chmod 755 made/tool.sh
echo done
`

// worker is a user that laufwerk runs as.
type worker struct{ uid, gid int }

func (u worker) String() string { return fmt.Sprintf("%d:%d", u.uid, u.gid) }

// newUsersWorld is a world that belongs to a user who may use the engine, as a member of the group of its socket.
func newUsersWorld(t *testing.T, endpoint string, u worker) *world {
	t.Helper()
	w := newWorld(t)
	w.becomes(endpoint, u)
	return w
}

// becomes gives the world to a user, with a binary and an agent of its own.
func (w *world) becomes(endpoint string, u worker) {
	t := w.t
	t.Helper()
	if err := os.RemoveAll(w.project); err != nil {
		t.Fatal(err)
	}
	w.program = filepath.Join(w.dir, "laufwerk")
	b, err := os.ReadFile(testkit.Binary(t))
	if err == nil {
		err = os.WriteFile(w.program, b, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	w.env = []string{"DOCKER_HOST=" + endpoint}
	for name, content := range map[string]string{"agent.sh": usersAgent, "state": "broken\n"} {
		w.write(filepath.Join(w.project, name), content)
	}
	if os.Getuid() != u.uid || os.Getgid() != u.gid {
		if _, err := exec.LookPath("setpriv"); err != nil || os.Getuid() != 0 {
			testkit.Need(t, "root and setpriv", false, "it runs laufwerk as other users")
		}
		socket, err := os.Stat(strings.TrimPrefix(endpoint, "unix://"))
		if err != nil {
			t.Fatal(err)
		}
		docker := socket.Sys().(*syscall.Stat_t).Gid
		w.user = []string{"setpriv", "--reuid", strconv.Itoa(u.uid), "--regid", strconv.Itoa(u.gid), "--groups", strconv.Itoa(int(docker)), "--"}
		if err := os.Chmod(filepath.Dir(w.dir), 0o755); err != nil {
			t.Fatal(err)
		}
		w.give(u)
	}
}

// give gives a user all that is in the world.
func (w *world) give(u worker) {
	w.t.Helper()
	err := filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, u.uid, u.gid)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// belongs holds that everything below a directory belongs to a user.
func belongs(t *testing.T, dir string, u worker) {
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
		if s := info.Sys().(*syscall.Stat_t); int(s.Uid) != u.uid || int(s.Gid) != u.gid {
			t.Errorf("%s belongs to %d:%d, not to %s", path, s.Uid, s.Gid, u)
		}
		return nil
	})
	if err != nil || n < 5 {
		t.Errorf("%d files below %s: %v", n, dir, err)
	}
}

// exampleRuns runs the example that init writes to its end, with a command as agent, its writer and its reviewer.
func exampleRuns(t *testing.T, endpoint string, u worker, rootless bool) {
	t.Helper()
	w := newUsersWorld(t, endpoint, u)
	within, outside := u, u
	switch {
	case rootless: // the user that runs the engine is root in its containers
		within = worker{0, 0}
	case u.uid == 0: // a root worker works as nobody
		within = worker{65534, 65534}
		outside = within
	}
	w.must([]int{0}, "init", "--execution", "docker", "--example", "issue-to-fix", "--agent-command", "bash agent.sh", "--no-prepare")
	w.change("laufwerk/execution.ts", `  resources: {`, `  image: "`+engine.Base+`", network: "none",`+"\n  resources: {")
	if rootless {
		w.change("laufwerk/execution.ts", "    cpus: 2,\n    memoryBytes: 4 * 1024 ** 3,\n    swapBytes: 0,\n    pids: 512,\n", "")
	}
	if u.uid != os.Getuid() {
		if err := os.Lchown(filepath.Join(w.project, "laufwerk/execution.ts"), u.uid, u.gid); err != nil {
			t.Fatal(err)
		}
	}
	input := `{"issue":"it is broken","check":"grep fixed state && test $(id -u) = ` + strconv.Itoa(within.uid) + `"}`
	code, out, errs := w.laufwerk(nil, "run", "issue-to-fix", "--no-input", "--input", input)
	if code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	run := w.onlyRun().ID
	shown := w.must([]int{0}, "runs", "show", run)
	if !strings.Contains(shown, "> touch: cannot touch 'intruder': Read-only file system\n") {
		t.Errorf("what the reviewer could do: %s", shown)
	}
	copies, _ := filepath.Glob(filepath.Join(w.home, "workspaces/*/*/agent.sh"))
	more, _ := filepath.Glob(filepath.Join(w.home, "workspaces/*/agent.sh"))
	if copies = append(copies, more...); len(copies) == 0 {
		t.Error("there is no workspace")
	}
	for _, c := range copies {
		belongs(t, filepath.Dir(c), outside)
	}
	answered := w.must([]int{0}, "answer", run, "write-back", "yes", "--json")
	var done struct{ Output struct{ Paths []string } }
	if err := json.Unmarshal([]byte(answered), &done); err != nil || strings.Join(done.Output.Paths, " ") != "made made/deep made/deep/who made/tool.sh state" {
		t.Errorf("%v: %s", err, answered)
	}
	belongs(t, w.project, u)
	if b, err := os.ReadFile(filepath.Join(w.project, "made/deep/who")); err != nil || string(b) != fmt.Sprintf("%d\n%d\n1\n", within.uid, within.gid) {
		t.Errorf("the agent ran as %q, %v", b, err)
	}
	if info, err := os.Stat(filepath.Join(w.project, "made/tool.sh")); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	w.must([]int{0}, "cleanup", "--all")
	w.nothingIsLeft()
	if left := engine.Containers(t, endpoint, owned.LabelOwner+"="+w.owner()); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}

// Of whoever starts laufwerk the agent has the user and the group, also those that the image does not know, and one that it
// has another name for. What comes out belongs to them.
func TestContainersWorkAsTheUser(t *testing.T) {
	t.Parallel()
	endpoint := engine.Endpoint(t)
	for _, u := range []worker{{0, 0}, {1000, 1000}, {1234, 20}} {
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
	for _, u := range []worker{{0, 0}, {1234, 20}} {
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
	exampleRuns(t, e.Endpoint, worker{uid, gid}, true)
}

// The work that a reviewer fails over is not lost: its check succeeded, and a person decides with the failure in sight.
func TestAFailedReviewIsForThePerson(t *testing.T) {
	t.Parallel()
	w := newUsersWorld(t, engine.Endpoint(t), worker{os.Getuid(), os.Getgid()})
	w.write(filepath.Join(w.project, "agent.sh"), "case $(cat) in Review*) echo no review from me >&2; exit 3 ;; esac\necho fixed > state\n")
	w.must([]int{0}, "init", "--execution", "docker", "--example", "issue-to-fix", "--agent-command", "bash agent.sh", "--no-prepare")
	w.change("laufwerk/execution.ts", `  resources: {`, `  image: "`+engine.Base+`", network: "none",`+"\n  resources: {")
	w.must([]int{8}, "run", "issue-to-fix", "--no-input", "--input", `{"issue":"it is broken","check":"grep fixed state"}`)
	run := w.onlyRun().ID
	if shown := w.must([]int{0}, "runs", "show", run); !strings.Contains(shown, "the reviewing agent failed:\n  \n  > ask: bash exited with status 3: no review from me\n") {
		t.Error(shown)
	}
	w.must([]int{0}, "answer", run, "write-back", "yes")
	w.must([]int{0}, "cleanup", "--all")
}
