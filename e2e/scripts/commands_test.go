package scripts_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/client"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// setup gives a script a home of its own, and checks at its end that it left no process behind.
func setup(e *testscript.Env) error {
	home := filepath.Join(e.WorkDir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return err
	}
	e.Setenv("HOME", home)
	e.Setenv("LAUFWERK_CI", os.Getenv("LAUFWERK_CI"))
	e.Setenv("TERM", "xterm")
	e.Setenv("ENGINE", strings.TrimPrefix(os.Getenv("LAUFWERK_TEST_DOCKER"), "unix://"))
	e.Defer(func() {
		unmountBelow(e.WorkDir)
		if err := removeContainersOf(home); err != nil {
			e.T().Log(err)
		}
		deadline := time.Now().Add(10 * time.Second)
		for {
			left := e2e.FindProcesses(e.WorkDir)
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				for pid := range left {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				e.T().Fatal(fmt.Sprintf("processes outlived the script: %v", left))
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
	return nil
}

// condition adds [root], [crashpoints] and [docker] to testscript's own. Where LAUFWERK_CI=1 promises a complete machine, a
// missing engine is an error.
func condition(name string) (bool, error) {
	switch name {
	case "docker":
		there := strings.HasPrefix(os.Getenv("LAUFWERK_TEST_DOCKER"), "unix:///")
		if !there && os.Getenv("LAUFWERK_CI") == "1" {
			return false, errors.New("LAUFWERK_TEST_DOCKER names no engine, which a machine with LAUFWERK_CI=1 must have")
		}
		return there, nil
	case "root":
		return os.Geteuid() == 0, nil
	case "crashpoints":
		return crash.Enabled, nil
	}
	return false, fmt.Errorf("unknown condition %q", name)
}

// scriptCommands are what scripts have beside testscript's own:
//
//	exits CODE COMMAND...          run it and require this exit code
//	nonroot CODE COMMAND...        the same as an ordinary user, who then owns $WORK
//	json FILE PATH [VALUE]         a value in the last JSON document of a file (stdout, stderr), see jsonCommand
//	bashproject DIR                a project whose agent is bash, see bashProject; files that are there stay
//	hint CODE [N]                  type the N-th line (from 1) of the hint that the last command ended with
//	unchanged CODE DIR COMMAND...  like exits, and every file below DIR, its mode and its bytes, is the same afterwards
//	waitfor exists|absent PATH     until it is so
//	waitfor match FILE REGEXP      until the file has a match
//	waitfor run COMMAND...         until the command succeeds
//	sendsignal NAME PIDFILE        to the process whose id the file holds
//	project DIR                    a project with the workflow job, see scriptProject
//	jsonenv NAME FILE PATH         keep a value of a JSON document in a variable
//	peak NAME CODE COMMAND...      run it, require this exit code, keep its peak of memory, in MiB, in a variable
//	atmost NUMBER LIMIT
//	storeformat FILE FORMAT        make a store one of another version
//	journalformat FILE FORMAT      the same with a run's journal
//	gateway ALIAS                  an OpenShell gateway, registered for the user
//	codexlogin                     log Codex in, for an hour
func scriptCommands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"exits": exitsCommand, "nonroot": nonrootCommand, "json": jsonCommand,
		"bashproject": bashprojectCommand, "hint": hintCommand, "unchanged": unchangedCommand, "waitfor": waitforCommand, "sendsignal": sendsignalCommand,
		"project": projectCommand, "jsonenv": jsonenvCommand, "peak": peakCommand, "atmost": atmostCommand, "storeformat": storeformatCommand, "journalformat": journalformatCommand,
		"gateway": gatewayCommand, "codexlogin": codexloginCommand,
	}
}

func exitsCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	err := ts.Exec(args[1], args[2:]...)
	code := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		ts.Fatalf("%v", err)
	}
	if strconv.Itoa(code) != args[0] {
		ts.Fatalf("exit code %d, want %s\n[stdout]\n%s[stderr]\n%s", code, args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func nonrootCommand(ts *testscript.TestScript, neg bool, args []string) {
	if os.Geteuid() != 0 {
		exitsCommand(ts, neg, args)
		return
	}
	if neg || len(args) < 2 {
		ts.Fatalf("usage: nonroot CODE COMMAND...")
	}
	if _, err := exec.LookPath("setpriv"); err != nil {
		ts.Fatalf("nonroot needs setpriv: %v", err)
	}
	work := ts.Getenv("WORK")
	ts.Check(filepath.WalkDir(work, func(path string, _ os.DirEntry, err error) error {
		if errors.Is(err, syscall.ENAMETOOLONG) { // an agent can make what no path leads to, and made it as that user
			return nil
		}
		if err != nil {
			return err
		}
		if err := os.Lchown(path, 65534, 65534); !errors.Is(err, syscall.ENAMETOOLONG) {
			return err
		}
		return nil
	}))
	// The directories of testscript are private to root: let others pass through, not look.
	program, err := exec.LookPath(args[1])
	ts.Check(err)
	for _, dir := range []string{filepath.Dir(work), filepath.Dir(filepath.Dir(work)), filepath.Dir(program), filepath.Dir(filepath.Dir(program))} {
		if st, err := os.Stat(dir); err == nil && st.Mode().Perm()&0o001 == 0 {
			ts.Check(os.Chmod(dir, st.Mode().Perm()|0o011))
		}
	}
	exitsCommand(ts, false, append([]string{args[0], "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", program}, args[2:]...))
}

// jsonCommand reads the last line of a file that holds JSON, or the whole file where that is one document. PATH is
// .field, [index] and .len() in any sequence; `.` is the whole. Without VALUE the path must be there; VALUE is
// compared with a string, or with the compact JSON of anything else, and ~REGEXP matches.
func jsonCommand(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 2 && len(args) != 3 {
		ts.Fatalf("usage: json FILE PATH [VALUE]")
	}
	text, doc := lastDocument(ts, args[0])
	value, found := dig(doc, args[1])
	got := compact(value)
	ok := found
	if ok && len(args) == 3 {
		if re, isRegexp := strings.CutPrefix(args[2], "~"); isRegexp {
			ok = regexp.MustCompile(re).MatchString(got)
		} else {
			ok = got == args[2]
		}
	}
	if ok == neg {
		ts.Fatalf("%s in %s is %s (there: %t), in\n%s", args[1], args[0], got, found, text)
	}
}

func lastDocument(ts *testscript.TestScript, file string) (text string, doc any) {
	text = strings.TrimSpace(ts.ReadFile(file))
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		lines := strings.Split(text, "\n")
		if err := json.Unmarshal([]byte(lines[len(lines)-1]), &doc); err != nil {
			ts.Fatalf("%s does not end with a JSON document: %v\n%s", file, err, text)
		}
	}
	return text, doc
}

var step = regexp.MustCompile(`^(?:\.(len\(\))|\.([A-Za-z0-9_~/-]+)|\[(\d+)\])`)

func dig(doc any, path string) (any, bool) {
	if path == "." {
		return doc, true
	}
	for path != "" {
		m := step.FindStringSubmatch(path)
		if m == nil {
			return nil, false
		}
		path = path[len(m[0]):]
		switch v := doc.(type) {
		case map[string]any:
			if m[1] != "" {
				doc = float64(len(v))
				continue
			}
			var ok bool
			if doc, ok = v[m[2]]; !ok {
				return nil, false
			}
		case []any:
			if m[1] != "" {
				doc = float64(len(v))
				continue
			}
			i, err := strconv.Atoi(m[3])
			if err != nil || i >= len(v) {
				return nil, false
			}
			doc = v[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

func compact(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func waitforCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: waitfor exists|absent PATH, match FILE REGEXP, run COMMAND...")
	}
	var ready func() bool
	switch {
	case args[0] == "exists" && len(args) == 2:
		ready = func() bool { _, err := os.Lstat(ts.MkAbs(args[1])); return err == nil }
	case args[0] == "absent" && len(args) == 2:
		ready = func() bool { _, err := os.Lstat(ts.MkAbs(args[1])); return errors.Is(err, os.ErrNotExist) }
	case args[0] == "match" && len(args) == 3:
		re := regexp.MustCompile(args[2])
		ready = func() bool { b, _ := os.ReadFile(ts.MkAbs(args[1])); return re.Match(b) }
	case args[0] == "run":
		ready = func() bool { return ts.Exec(args[1], args[2:]...) == nil }
	default:
		ts.Fatalf("waitfor: %q", args)
	}
	for deadline := time.Now().Add(e2e.HangLimit); !ready(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("waitfor %s: it did not come about in %s", strings.Join(args, " "), e2e.HangLimit)
		}
	}
}

func sendsignalCommand(ts *testscript.TestScript, neg bool, args []string) {
	signals := map[string]syscall.Signal{
		"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "KILL": syscall.SIGKILL, "STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT,
	}
	if neg || len(args) != 2 || signals[args[0]] == 0 {
		ts.Fatalf("usage: sendsignal INT|TERM|HUP|KILL|STOP|CONT PIDFILE")
	}
	pid, err := strconv.Atoi(strings.TrimSpace(ts.ReadFile(args[1])))
	ts.Check(err)
	if pid <= 1 {
		ts.Fatalf("%s holds %d, which is no process to signal", args[1], pid)
	}
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}

// plainRenamesCommand is the program that scripts start as
//
//	exits CODE plainrenames COMMAND...
//
// It becomes the command, for which no file system can exchange two files in one step.
func plainRenamesCommand() {
	err := testkit.PlainRenames()
	if err == nil {
		var program string
		if program, err = exec.LookPath(os.Args[1]); err == nil {
			err = syscall.Exec(program, os.Args[1:], os.Environ())
		}
	}
	fmt.Fprintln(os.Stderr, "plainrenames:", err)
	os.Exit(99)
}

func TestDig(t *testing.T) {
	var doc any
	if err := json.Unmarshal([]byte(`{"runs":[{"id":"a"},{"id":"b","n":null}],"error":{"code":"usage"}}`), &doc); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{".runs[1].id": "b", ".runs.len()": "2", ".runs[1].n": "null", ".error.code": "usage", ".error": `{"code":"usage"}`} {
		if got, ok := dig(doc, path); !ok || compact(got) != want {
			t.Errorf("%s is %s (%t), want %s", path, compact(got), ok, want)
		}
	}
	for _, path := range []string{".nosuch", ".runs[2]", ".runs.id", ".error.code.x", "runs"} {
		if got, ok := dig(doc, path); ok {
			t.Errorf("%s is there: %v", path, got)
		}
	}
}

// removeContainersOf removes what the store in home has left on the engine of [docker].
func removeContainersOf(home string) error {
	owner, err := os.ReadFile(filepath.Join(home, ".laufwerk", "owner"))
	endpoint := os.Getenv("LAUFWERK_TEST_DOCKER")
	if err != nil || endpoint == "" {
		return nil //nolint:nilerr // there is no store
	}
	c, err := client.NewClientWithOpts(client.WithHost(endpoint), client.WithAPIVersionNegotiation())
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), e2e.HangLimit)
	defer cancel()
	left, err := c.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", owned.LabelOwner+"="+strings.TrimSpace(string(owner))))})
	for _, one := range left {
		err = errors.Join(err, c.ContainerRemove(ctx, one.ID, container.RemoveOptions{Force: true, RemoveVolumes: true}))
	}
	return err
}
