package runs

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/system/lock"
)

// The holder of a lease for TestAWorkerThatDoesNotAnswer: this test binary with a variable set.
func holdLease(path string) {
	if _, err := lock.Acquire(context.Background(), path, lock.Exclusive, 0, "a worker that hangs"); err != nil {
		os.Exit(1)
	}
	os.Stdout.WriteString("held\n")
	time.Sleep(time.Hour)
}

func TestHoldLease(t *testing.T) {
	path := os.Getenv("LAUFWERK_TEST_LEASE")
	if path == "" {
		t.Skip("only a part of TestAWorkerThatDoesNotAnswer")
	}
	holdLease(path)
}

// Only the process that was found to hold the lease is killed, whatever a lock file says.
func TestAWorkerThatDoesNotAnswer(t *testing.T) {
	home, err := store.OpenHome(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	s := &Service{Home: home, Now: time.Now, Command: "test"}
	const id = "260101-hangs"
	hold := func() *exec.Cmd {
		cmd := exec.Command(os.Args[0], "-test.run=^TestHoldLease$")
		cmd.Env = append(os.Environ(), "LAUFWERK_TEST_LEASE="+s.leasePath(id))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		if line, err := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
			t.Fatalf("%q, %v", line, err)
		}
		return cmd
	}
	first := hold()
	worker, live := s.Worker(id)
	if !live || worker.PID != first.Process.Pid {
		t.Fatalf("%+v %v", worker, live)
	}
	// Another worker has taken over since we looked: it is not the one that did not answer.
	_ = first.Process.Kill()
	_ = first.Wait()
	second := hold()
	if err := s.endWorker(t.Context(), id, worker); !failure.Is(err, failure.LeaseBusy) {
		t.Errorf("got %v", err)
	}
	// A description that does not say beyond doubt who it is: somebody else may have that id.
	bystander := exec.Command("sleep", "1000")
	if err := bystander.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- bystander.Wait() }()
	defer func() { _ = bystander.Process.Kill() }()
	worker, _ = s.Worker(id)
	was, err := os.ReadFile(s.leasePath(id))
	if err != nil {
		t.Fatal(err)
	}
	forged := fmt.Sprintf("{\"pid\":%d,\"command\":\"x\"}\n%s", bystander.Process.Pid, strings.Repeat(" ", len(was)))
	if err := os.WriteFile(s.leasePath(id), []byte(forged), 0o600); err != nil {
		t.Fatal(err)
	}
	named, _ := s.Worker(id)
	if err := s.endWorker(t.Context(), id, named); !failure.Is(err, failure.LeaseBusy) {
		t.Errorf("got %v", err)
	}
	select {
	case <-ended:
		t.Fatal("a bystander was killed")
	default:
	}
	if err := os.WriteFile(s.leasePath(id), was, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.endWorker(t.Context(), id, worker); err != nil {
		t.Fatal(err)
	}
	if err := second.Wait(); err == nil {
		t.Error("the worker ended by itself")
	}
	if _, live := s.Worker(id); live {
		t.Error("the lease is still held")
	}
}
