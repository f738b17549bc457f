//go:build linux

package process

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

const limit = 30 * time.Second

func sleeper(t *testing.T, env ...string) Identity {
	t.Helper()
	cmd := exec.Command("sleep", "1000")
	cmd.Env = env
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	id, err := IdentityOf(cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func TestStatOfAnyName(t *testing.T) {
	const rest = " S 42 3 3 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1 1"
	for _, name := range []string{"sleep", "a b", "a) S 1 2 (b", ")", "((", "new\nline", ") Z 9 9 9"} {
		st, err := parseStat([]byte("17 (" + name + ")" + rest))
		if err != nil || st.state != 'S' || st.parent != 42 || st.start != 987654 {
			t.Errorf("%q: %+v %v", name, st, err)
		}
	}
	for _, bad := range []string{"", "17", "17 (x)", "17 (x) S 42"} {
		if _, err := parseStat([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

func TestOnlyTheRecordedProcessIsSignalled(t *testing.T) {
	id := sleeper(t)
	for what, wrong := range map[string]func(*Identity){
		"start time": func(i *Identity) { i.StartTime++ },
		"boot":       func(i *Identity) { i.BootID = "another" },
		"namespace":  func(i *Identity) { i.PIDNS = "pid:[1]" },
	} {
		other := id
		wrong(&other)
		if err := Signal(other, syscall.SIGKILL); !errors.Is(err, ErrGone) {
			t.Errorf("another %s: %v", what, err)
		}
	}
	if Probe(id) != Alive {
		t.Fatal("it was signalled all the same")
	}
	if err := Signal(id, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(limit); Probe(id) != Dead; time.Sleep(time.Millisecond) { // a zombie counts as dead
		if time.Now().After(end) {
			t.Fatal("it lives")
		}
	}
}

func TestWhatIsKnownOfARecordedProcess(t *testing.T) {
	self, err := Self()
	if err != nil {
		t.Fatal(err)
	}
	boot, ns, start := self, self, self
	boot.BootID, ns.PIDNS = "another", "pid:[1]"
	start.StartTime++
	for want, id := range map[Liveness]Identity{Alive: self, OtherBoot: boot, OtherNamespace: ns, Dead: start} {
		if got := Probe(id); got != want {
			t.Errorf("%+v: %v, want %v", id, got, want)
		}
	}
}

func TestMarkedProcessesAreFoundByTheirWholeValue(t *testing.T) {
	ours := sleeper(t, "A=1", "PROCESS_TEST_MARK=one/two", "B=2")
	sleeper(t, "PROCESS_TEST_MARK=one/twofold")
	sleeper(t, "X=PROCESS_TEST_MARK=one/two")
	got, err := FindMarked("PROCESS_TEST_MARK", func(v string) bool { return v == "one/two" })
	if err != nil || len(got) != 1 || got[0] != ours {
		t.Fatalf("%v %v, want %v", got, err, ours)
	}
}

func TestAControlGroupEndsWithEverythingBelow(t *testing.T) {
	dir, why := CgroupPath("laufwerk-process-test")
	if dir == "" {
		t.Skipf("no control group can be had here: %s", why)
	}
	c, err := MakeCgroup(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	t.Cleanup(func() { _ = c.End(context.Background()) })
	null, err := fault.Open(os.OpenFile(os.DevNull, os.O_RDWR, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	pid, err := Spawn(Command{
		Path: "/bin/bash", Argv: []string{"bash", "-c", "mkdir " + dir + "/inner; (echo $BASHPID > " + dir + "/inner/cgroup.procs; exec sleep 1000) & setsid sleep 1000"},
		Env: os.Environ(), Dir: "/", Stdin: null, Stdout: null, Stderr: null, Cgroup: c,
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = syscall.Wait4(pid, nil, 0, nil) }()
	for len(c.PIDs()) < 3 {
		if ctx.Err() != nil {
			t.Fatal(c.PIDs())
		}
		time.Sleep(time.Millisecond)
	}
	if _, err := MakeCgroup(dir); err == nil {
		t.Fatal("a group in use was taken")
	}
	if found := FindCgroups("laufwerk-process-"); len(found) != 1 || found[0] != dir {
		t.Fatalf("%v", found)
	}
	if err := c.End(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Fatalf("it is still there: %v", err)
	}
	if _, err := OpenCgroup(filepath.Dir(dir)); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenCgroup(t.TempDir()); err == nil {
		t.Fatal("an ordinary directory was taken for a control group")
	}
}

func TestDrainGivesWhatWasWrittenBeforeIt(t *testing.T) {
	var got bytes.Buffer
	s, w, err := NewStream(func(b []byte) { got.Write(b) })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(bytes.Repeat([]byte("x"), 60000)); err != nil {
		t.Fatal(err)
	}
	s.Drain() // nobody reads yet, and the write end stays open
	if got.Len() != 60000 {
		t.Fatalf("%d bytes", got.Len())
	}
	go s.Run()
	if _, err := w.Write([]byte("end")); err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	select {
	case <-s.Done():
	case <-time.After(limit):
		t.Fatal("no end")
	}
	s.Drain()
	if !bytes.HasSuffix(got.Bytes(), []byte("xend")) || got.Len() != 60003 {
		t.Fatalf("%d bytes", got.Len())
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name, path, want string
		err              error
	}{
		{"run", "/nowhere:" + dir, filepath.Join(dir, "run"), nil},
		{"run", ":.:relative", "", os.ErrNotExist},
		{"plain", dir, "", os.ErrPermission},
		{"./run", "", filepath.Join(dir, "run"), nil},
		{dir + "/run", "", filepath.Join(dir, "run"), nil},
		{"", dir, "", os.ErrNotExist},
	} {
		got, err := Find(c.name, c.path, dir)
		if !errors.Is(err, c.err) || err == nil && got != c.want {
			t.Errorf("%+v: %q %v", c, got, err)
		}
	}
}
