package store_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
)

// roles are what this test binary does when it is started again as another process.
func TestMain(m *testing.M) {
	role := os.Getenv("STORE_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	h, err := store.OpenHome(os.Getenv("STORE_TEST_HOME"), true)
	if err == nil {
		err = play(role, store.Open(h, time.Now, "test "+role))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, failure.KindOf(err), err)
		os.Exit(1)
	}
}

func play(role string, s *store.Store) error {
	ctx := context.Background()
	name, arg, _ := strings.Cut(role, ":")
	n, _ := strconv.Atoi(arg)
	switch name {
	case "count": // counts up n times, says each number once it is committed
		for range n {
			var c counter
			err := s.Update(ctx, func(tx store.Tx) error {
				if _, err := tx.Get(store.Notes, "counter", &c); err != nil {
					return err
				}
				c.N++
				if err := tx.Put(store.Notes, "counter", c); err != nil {
					return err
				}
				return tx.Put(store.Notes, fmt.Sprintf("n/%06d", c.N), counter{c.N})
			})
			if err != nil {
				return err
			}
			fmt.Println(c.N)
		}
		return nil
	case "look": // reads until its stdin closes, and fails when the store ever looks inconsistent
		done := make(chan struct{})
		go func() { _, _ = io.Copy(io.Discard, os.Stdin); close(done) }()
		for {
			if err := s.View(ctx, func(tx store.Tx) error { _, err := consistent(tx); return err }); err != nil {
				return err
			}
			select {
			case <-done:
				return nil
			case <-time.After(time.Millisecond):
			}
		}
	case "hold": // keeps the gate until it is killed
		return s.Update(ctx, func(store.Tx) error {
			fmt.Println("held")
			_, err := io.Copy(io.Discard, os.Stdin)
			return err
		})
	}
	return fmt.Errorf("no role %s", role)
}

type counter struct {
	N int `json:"n"`
}

// consistent checks what the role count keeps true in every commit: as many numbers as the counter says.
func consistent(tx store.Tx) (int, error) {
	var c counter
	if _, err := tx.Get(store.Notes, "counter", &c); err != nil {
		return 0, err
	}
	seen := 0
	err := tx.Each(store.Notes, "n/", func(key string, raw json.RawMessage) error {
		seen++
		var got counter
		if err := json.Unmarshal(raw, &got); err != nil || got.N != seen {
			return fmt.Errorf("record %s holds %s", key, raw)
		}
		return nil
	})
	if err == nil && seen != c.N {
		err = fmt.Errorf("%d numbers, the counter is at %d", seen, c.N)
	}
	return c.N, err
}

func child(t *testing.T, home, role string, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), append([]string{"STORE_TEST_ROLE=" + role, "STORE_TEST_HOME=" + home}, env...)...)
	cmd.Stderr = os.Stderr
	t.Cleanup(func() {
		if cmd.Process != nil && cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	})
	return cmd
}

// holder starts a process that keeps the gate of a home's store.
func holder(t *testing.T, home string) *exec.Cmd {
	t.Helper()
	cmd := child(t, home, "hold")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stdin.Close() })
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || line != "held\n" {
		t.Fatalf("the holder said %q, %v", line, err)
	}
	return cmd
}

func newHome(t *testing.T) string { t.Helper(); return filepath.Join(t.TempDir(), "home") }

func open(t *testing.T, home string) *store.Store {
	t.Helper()
	h, err := store.OpenHome(home, true)
	if err != nil {
		t.Fatal(err)
	}
	return store.Open(h, time.Now, "test")
}

func update(t *testing.T, s *store.Store, fn func(tx store.Tx) error) {
	t.Helper()
	if err := s.Update(context.Background(), fn); err != nil {
		t.Fatal(err)
	}
}

func wantKind(t *testing.T, err error, kind failure.Kind, words ...string) {
	t.Helper()
	if !failure.Is(err, kind) {
		t.Fatalf("got %q (%v), want %q", failure.KindOf(err), err, kind)
	}
	f := failure.As(err)
	if f.Hint == "" {
		t.Errorf("%v gives no hint", err)
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%v does not say %q", err, w)
		}
	}
}
