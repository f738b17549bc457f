package lock_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

const hang = 30 * time.Second

// TestMain also plays a process that holds a lock until its stdin ends.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "hold" {
		mode := lock.Exclusive
		if os.Args[3] == "shared" {
			mode = lock.Shared
		}
		if _, err := lock.Acquire(context.Background(), os.Args[2], mode, hang, "the holder"); err != nil {
			os.Exit(1)
		}
		os.Stdout.WriteString("held\n")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		os.Exit(0)
	}
	os.Exit(m.Run())
}

type holder struct {
	cmd *exec.Cmd
	end func()
}

func hold(t *testing.T, path, mode string) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0], "hold", path, mode)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process did not get the lock: %q, %v", line, err)
	}
	h := &holder{cmd: cmd, end: func() { _ = in.Close(); _ = cmd.Wait() }}
	t.Cleanup(h.end)
	return h
}

func file(t *testing.T) string { return filepath.Join(t.TempDir(), "lock") }

func TestTheHolderIsNamed(t *testing.T) {
	for _, mode := range []string{"exclusive", "shared"} {
		t.Run(mode, func(t *testing.T) {
			path := file(t)
			h := hold(t, path, mode)
			_, err := lock.Acquire(t.Context(), path, lock.Exclusive, 0, "me")
			if !failure.Is(err, failure.LockBusy) {
				t.Fatalf("got %v", err)
			}
			got, ok := failure.As(err).Fields["holder"].(lock.Holder)
			if !ok || got.PID != h.cmd.Process.Pid || got.Process.PID != got.PID {
				t.Errorf("holder %+v, want process %d", got, h.cmd.Process.Pid)
			}
			if mode == "exclusive" && (got.Command != "the holder" || got.Since.IsZero()) {
				t.Errorf("holder %+v", got)
			}
		})
	}
}

// A description that a killed process has left must not be taken for that of who holds the lock now.
func TestAKilledHolderIsNotNamedForTheNextOne(t *testing.T) {
	path := file(t)
	dead := hold(t, path, "exclusive")
	if err := dead.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = dead.cmd.Wait()
	if _, held, err := lock.Query(path); held || err != nil {
		t.Fatalf("held after its holder was killed: %v", err)
	}
	next := hold(t, path, "shared")
	if got := lock.Who(path); got.PID != next.cmd.Process.Pid {
		t.Errorf("%s is named, the holder is %d", got, next.cmd.Process.Pid)
	}
}

func TestSharedHoldersExcludeOnlyExclusiveOnes(t *testing.T) {
	path := file(t)
	hold(t, path, "shared")
	second, err := lock.Acquire(t.Context(), path, lock.Shared, 0, "me")
	if err != nil {
		t.Fatal(err)
	}
	second.Release()
	if _, err := lock.Acquire(t.Context(), path, lock.Exclusive, 10*time.Millisecond, "me"); !failure.Is(err, failure.LockBusy) {
		t.Errorf("got %v", err)
	}
}

func TestAWaiterGetsTheLockAndOneThatGaveUpDoesNot(t *testing.T) {
	path := file(t)
	h := hold(t, path, "exclusive")
	ctx, cancel := context.WithCancel(t.Context())
	gaveUp := make(chan error, 1)
	go func() {
		_, err := lock.Acquire(ctx, path, lock.Exclusive, hang, "impatient")
		gaveUp <- err
	}()
	cancel()
	if err := <-gaveUp; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	got := make(chan error, 1)
	go func() {
		l, err := lock.Acquire(t.Context(), path, lock.Exclusive, hang, "patient")
		if err == nil {
			l.Release()
		}
		got <- err
	}()
	h.end()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	l, err := lock.Acquire(t.Context(), path, lock.Exclusive, hang, "last")
	if err != nil {
		t.Fatal(err)
	}
	l.Release()
}

// A child that is being started has the parent's files open until it becomes its program; here it never does.
func TestAReleasedLockIsFreeAlsoWhereAChildHasItsFileOpen(t *testing.T) {
	path := file(t)
	l, err := lock.Acquire(t.Context(), path, lock.Exclusive, 0, "me")
	if err != nil {
		t.Fatal(err)
	}
	fds, _ := filepath.Glob("/proc/self/fd/*")
	dup := 0
	for _, fd := range fds {
		if at, _ := os.Readlink(fd); at != path {
			continue
		}
		n, err := strconv.Atoi(filepath.Base(fd))
		if err != nil {
			t.Fatal(err)
		}
		if dup, err = syscall.Dup(n); err != nil { // the same open file, as a child has it
			t.Fatal(err)
		}
	}
	if dup == 0 {
		t.Skip("no /proc: which descriptor the lock has cannot be told")
	}
	defer syscall.Close(dup)
	l.Release()
	if h, held, err := lock.Query(path); held || err != nil {
		t.Errorf("still held: %+v, %v", h, err)
	}
	if b, err := os.ReadFile(path); err != nil || len(b) != 0 {
		t.Errorf("the description outlives the hold: %q, %v", b, err)
	}
	l.Release()
}

func TestGarbageInAFreeLockFileIsNobody(t *testing.T) {
	for _, content := range []string{"", "0", "garbage\n", `{"pid":1,"command":"init"}` + "\n", "\x00\x00"} {
		path := file(t)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if h, held, err := lock.Query(path); held || err != nil || h.PID != 0 {
			t.Errorf("%q: %+v %v %v", content, h, held, err)
		}
		l, err := lock.Acquire(t.Context(), path, lock.Exclusive, 0, "me")
		if err != nil {
			t.Fatalf("%q: %v", content, err)
		}
		if h := lock.Who(path); h.PID != os.Getpid() || h.Command != "me" {
			t.Errorf("%q: %+v", content, h)
		}
		l.Release()
	}
}

func TestLinksAndFifosAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	link, fifo := filepath.Join(dir, "link"), filepath.Join(dir, "fifo")
	if err := os.Symlink(precious, link); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Acquire(t.Context(), link, lock.Exclusive, 0, "me"); err == nil {
		t.Error("a link was followed")
	}
	if b, _ := os.ReadFile(precious); string(b) != "precious" {
		t.Errorf("%q", b)
	}
	done := make(chan struct{})
	go func() { _, _, _ = lock.Query(fifo); close(done) }()
	select {
	case <-done:
	case <-time.After(hang):
		t.Error("waits for the other side of a fifo")
	}
}

func TestAgeIsNeverNegative(t *testing.T) {
	now := time.Now()
	h := lock.Holder{PID: 1, Command: "x", Since: now.Add(time.Hour)}
	if h.Age(now) != 0 || strings.Contains(h.String(), "-") {
		t.Errorf("%v %s", h.Age(now), h)
	}
}
