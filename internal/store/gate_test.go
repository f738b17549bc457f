package store_test

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

func TestFourProcessesContend(t *testing.T) {
	t.Parallel()
	const writers, each = 4, 50
	home := newHome(t)
	look := child(t, home, "look")
	stdin, err := look.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := look.Start(); err != nil {
		t.Fatal(err)
	}
	errs := make(chan error, writers)
	for range writers {
		cmd := child(t, home, fmt.Sprintf("count:%d", each))
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() { errs <- cmd.Wait() }()
	}
	for range writers {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	_ = stdin.Close()
	if err := look.Wait(); err != nil {
		t.Errorf("the reader: %v", err)
	}
	if n := count(t, home); n != writers*each {
		t.Fatalf("%d updates are there, %d were made", n, writers*each)
	}
}

func count(t *testing.T, home string) (n int) {
	t.Helper()
	err := open(t, home).View(context.Background(), func(tx store.Tx) (err error) {
		n, err = consistent(tx)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestLockedGateNamesItsHolder(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	cmd := holder(t, home)
	s := open(t, home)
	s.SetWait(50 * time.Millisecond)
	for name, do := range map[string]func() error{
		"update": func() error { return s.Update(context.Background(), func(store.Tx) error { return nil }) },
		"view":   func() error { return s.View(context.Background(), func(store.Tx) error { return nil }) },
	} {
		err := do()
		wantKind(t, err, failure.LockBusy, strconv.Itoa(cmd.Process.Pid), "test hold", "for ")
		if h, ok := failure.As(err).Fields["holder"].(lock.Holder); !ok || h.PID != cmd.Process.Pid {
			t.Errorf("%s: the field holder is %v", name, failure.As(err).Fields["holder"])
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	s.SetWait(time.Hour)
	if err := s.Update(ctx, func(store.Tx) error { return nil }); !failure.Is(err, failure.Cancelled) {
		t.Errorf("a context that ended while waiting: %v", err)
	}
}

func TestWaiterGetsTheGateWhenItsHolderDies(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	cmd := holder(t, home)
	got := make(chan error, 1)
	s := open(t, home)
	go func() {
		got <- s.Update(context.Background(), func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{1}) })
	}()
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// What a lock file says never counts, only whether it is locked: pids are reused, and in containers everyone is process 1.
func TestForeignWordsInTheLockFile(t *testing.T) {
	t.Parallel()
	for _, words := range []string{"", "0", "garbage", `{"pid":1,"command":"init"}`, fmt.Sprintf(`{"pid":%d}`, os.Getpid()), strings.Repeat("x", 1<<16)} {
		home := newHome(t)
		s := open(t, home)
		if err := os.WriteFile(filepath.Join(home, "locks", "state"), []byte(words), 0o600); err != nil {
			t.Fatal(err)
		}
		s.SetWait(0)
		update(t, s, func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{1}) })
	}
}

func TestProgramThatBypassesTheGate(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	s := open(t, home)
	update(t, s, func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{1}) })
	db, err := bolt.Open(filepath.Join(home, "state.db"), 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	wantKind(t, s.View(context.Background(), func(store.Tx) error { return nil }), failure.LockBusy, "bypasses")
}

func TestKilledBetweenWrites(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	last := 0
	for range 25 {
		cmd := child(t, home, "count:1000000")
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		until := rand.IntN(8) // 0: somewhere in the beginning, creation included
		kill := func() { _ = cmd.Process.Signal(syscall.SIGKILL) }
		if until == 0 {
			time.AfterFunc(time.Duration(rand.IntN(20_000))*time.Microsecond, kill)
		}
		lines := bufio.NewScanner(out)
		for i := 1; lines.Scan(); i++ {
			if last, err = strconv.Atoi(lines.Text()); err != nil {
				t.Fatal(err)
			}
			if i == until {
				time.AfterFunc(time.Duration(rand.IntN(1500))*time.Microsecond, kill)
			}
		}
		_ = cmd.Wait()
		n := count(t, home)
		if n < last || n > last+1 {
			t.Fatalf("%d commits were reported, %d are there", last, n)
		}
		last = n // the next child may be killed before it reports anything
	}
}
