package supervise

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// wire is a connection to a supervisor that is told by a test.
type wire struct {
	in     bytes.Buffer
	out    *io.PipeReader
	say    *io.PipeWriter
	ended  chan struct{}
	closed sync.Once
	given  chan struct{} // closed once the input was closed
}

func newWire() *wire {
	w := &wire{ended: make(chan struct{}), given: make(chan struct{})}
	w.out, w.say = io.Pipe()
	return w
}

func (w *wire) Write(b []byte) (int, error) { return w.in.Write(b) }
func (w *wire) Close() error                { w.closed.Do(func() { close(w.given) }); return nil }

func (w *wire) pipe(context.Context, []byte) (Pipe, error) {
	return Pipe{In: w, Out: w.out, Exited: w.ended, Close: func() { _ = w.out.Close() }}, nil
}

// What is known after a handshake, and what is not.
func TestHandshake(t *testing.T) {
	started := func(t *testing.T, dir string) {
		r, err := openRecords(dir)
		if err != nil {
			t.Error(err)
			return
		}
		defer r.close()
		if err := r.write(startedName, StartRecord{Mark: "s/o"}); err != nil {
			t.Error(err)
		}
	}
	for name, c := range map[string]struct {
		plays   func(t *testing.T, w *wire, dir string)
		cancel  bool
		refused bool
		unknown bool
		says    string
	}{
		"it runs":    {plays: func(_ *testing.T, w *wire, _ string) { <-w.given; _, _ = w.say.Write([]byte("{\"started\":true}\n")) }},
		"it refuses": {refused: true, says: "no such place", plays: func(_ *testing.T, w *wire, _ string) { _, _ = w.say.Write([]byte("{\"reason\":\"no such place\"}\n")) }},
		"it ends without a word": {refused: true, says: "last words", plays: func(t *testing.T, w *wire, dir string) {
			if err := os.WriteFile(LogPath(dir), []byte(strings.Repeat("x", 1000)+"last words\n"), 0o600); err != nil {
				t.Error(err)
			}
			close(w.ended)
			_ = w.say.Close()
		}},
		"it ends without a word, but ran": {plays: func(t *testing.T, w *wire, dir string) {
			started(t, dir)
			close(w.ended)
			_ = w.say.Close()
		}},
		"the connection is lost":         {unknown: true, plays: func(_ *testing.T, w *wire, _ string) { _ = w.say.CloseWithError(errors.New("reset")) }},
		"the answer is garbage":          {unknown: true, plays: func(_ *testing.T, w *wire, _ string) { _, _ = w.say.Write([]byte("OCI runtime exec failed\n")) }},
		"nothing is heard until the end": {unknown: true, cancel: true, plays: func(*testing.T, *wire, string) {}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, w := here().dir(t), newWire()
			ctx, cancel := context.WithCancel(bounded(t))
			defer cancel()
			if c.cancel {
				cancel()
			}
			go c.plays(t, w, dir)
			err := Handshake(ctx, dir, bash(t, "true"), w.pipe)
			if errors.Is(err, ErrRefused) != c.refused || failure.Is(err, failure.OutcomeUnknown) != c.unknown || (err == nil) != (!c.refused && !c.unknown) {
				t.Fatalf("%v", err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not say %q", err, c.says)
			}
			if _, err := w.say.Write([]byte("x")); err == nil {
				t.Error("the connection is still read")
			}
		})
	}
}

func TestASupervisorThatCannotBeStarted(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		refused bool
	}{
		"certainly not": {errors.Join(errors.New("no such container"), ErrRefused), true},
		"perhaps":       {errors.New("connection reset"), false},
		"unknown":       {failure.New(failure.OutcomeUnknown, "timeout"), false},
	} {
		err := Handshake(bounded(t), here().dir(t), bash(t, "true"), func(context.Context, []byte) (Pipe, error) { return Pipe{}, c.err })
		if errors.Is(err, ErrRefused) != c.refused || failure.Is(err, failure.OutcomeUnknown) == c.refused || !strings.Contains(err.Error(), strings.Split(c.err.Error(), "\n")[0]) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An agent may have made the log a link to what the worker can read.
func TestLastWordsAreNotSomebodyElses(t *testing.T) {
	dir := here().dir(t)
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(secret, LogPath(dir)); err != nil {
		t.Fatal(err)
	}
	w := newWire()
	close(w.ended)
	_ = w.say.Close()
	if err := Handshake(bounded(t), dir, bash(t, "true"), w.pipe); err == nil || strings.Contains(err.Error(), "secret") {
		t.Fatal(err)
	}
}

func TestSettled(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		after  func(t *testing.T, p *Process)
		want   bool
	}{
		"over":              {"true", func(t *testing.T, p *Process) { wait(t, p) }, true},
		"in the background": {"sleep 1000 >/dev/null 2>&1 &", func(t *testing.T, p *Process) { wait(t, p) }, false},
		"running":           {"sleep 1000", func(*testing.T, *Process) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			p := start(t, bash(t, c.script))
			c.after(t, p)
			if c.want {
				eventually(t, "the supervisor has left", func() bool { v, err := ReadState(p.Dir()); return err == nil && !v.Locked })
			}
			f, ok := NeedsNoFence(p.Dir())
			if ok != c.want || f.Sure != c.want || c.want && f.How == "" {
				t.Errorf("%+v %t", f, ok)
			}
		})
	}
	if f, ok := NeedsNoFence(here().dir(t)); !ok || !f.Sure || f.How != HowNothing {
		t.Errorf("nothing started: %+v %t", f, ok)
	}
	dir := here().dir(t)
	r, err := openRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	id := Identity{PID: 2, StartTime: 1, BootID: "the sandbox's own kernel's", PIDNS: "pid:[1]"}
	if err := r.write(startedName, StartRecord{Supervisor: id, Mark: "s/o"}); err != nil {
		t.Fatal(err)
	}
	if f, ok := NeedsNoFence(dir); ok {
		t.Errorf("another boot, seen from outside: %+v", f)
	}
}
