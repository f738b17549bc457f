package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// onDisk runs a program with a real journal.
func onDisk(t testing.TB, dir string, handlers map[string]workflow.Handler, p program) (workflow.Outcome, *journal.Writer, error) {
	t.Helper()
	j := journal.Open(dir)
	log, records, err := j.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if len(records) == 0 {
		if err := log.Append(journal.Record{Type: journal.Begin, Version: journal.Version, Run: "r"}); err != nil {
			t.Fatal(err)
		}
	}
	all := workflow.NewOperations(workflow.OperationsConfig{Run: "r", Now: time.Now}).Handlers()
	for k, h := range handlers {
		all[k] = h
	}
	f := newFake(p)
	defer f.close()
	e, err := workflow.New(workflow.Config{Journal: j, Log: log, Records: records, Program: f, Handlers: all, Inbox: j, Changed: make(chan struct{}), Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	out, err := e.Run(t.Context())
	return out, log, err
}

func sequence(n int) program {
	return func(s *strand) (any, error) {
		for i := range n {
			var err error
			if i%2 == 0 {
				_, err = s.op(protocol.Call{Op: protocol.OpClockNow})
			} else {
				_, err = s.do(protocol.OpHumanNotify, fmt.Sprint(i), map[string]string{"title": "x"})
			}
			if err != nil {
				return nil, err
			}
		}
		return n, nil
	}
}

// An operation without an effect costs one record, with one fsync; one with an effect two. A replay costs none.
func TestWhatAnOperationCosts(t *testing.T) {
	dir := t.TempDir()
	const n = 1000
	_, log, err := onDisk(t, dir, nil, sequence(n))
	if err != nil {
		t.Fatal(err)
	}
	if got := log.Appends(); got != n+2 { // and begin and end
		t.Errorf("%d records with an fsync each for %d operations", got, n)
	}
	effect := map[string]workflow.Handler{"test.effect": {Do: func(_ context.Context, op *workflow.Op) (any, any, error) { return nil, nil, op.Start(nil) }}}
	_, log, err = onDisk(t, t.TempDir(), effect, func(s *strand) (any, error) { return s.do("test.effect", "x", nil) })
	if err != nil {
		t.Fatal(err)
	}
	if got := log.Appends(); got != 4 {
		t.Errorf("%d records for an operation with an effect", got-2)
	}

	// The last record is lost: everything before it is replayed without a record.
	cut(t, dir, 1)
	_, log, err = onDisk(t, dir, nil, sequence(n))
	if err != nil {
		t.Fatal(err)
	}
	if got := log.Appends(); got != 1 {
		t.Errorf("a replay of %d operations wrote %d records", n, got-1)
	}
}

// cut takes the last records from a journal.
func cut(t *testing.T, dir string, n int) {
	t.Helper()
	path := filepath.Join(dir, "journal")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int
	for off := 0; off < len(b); {
		off += 8 + int(b[off]) + int(b[off+1])<<8 + int(b[off+2])<<16
		ends = append(ends, off)
	}
	if err := os.Truncate(path, int64(ends[len(ends)-1-n])); err != nil {
		t.Fatal(err)
	}
}

func TestThousandsAtOnce(t *testing.T) {
	const n = 3000
	w := newRunFixture(t)
	p := func(s *strand) (any, error) {
		items := make([]program, n)
		for i := range items {
			items[i] = func(s *strand) (any, error) { return s.do("test.do", fmt.Sprint(i), nil) }
		}
		list, err := s.all(items...)
		return len(list), err
	}
	w.kills = n
	if _, err := w.worker(p).run(t.Context()); !errors.Is(err, errKilled) {
		t.Fatal(err)
	}
	w.kills = 0
	wantValue(t, w.worker(p).leaves(workflow.Succeeded), fmt.Sprint(n))
	if len(w.effects) != n {
		t.Errorf("%d operations", len(w.effects))
	}
	for op, times := range w.effects {
		if times != 1 {
			t.Errorf("%s was executed %d times", op, times)
		}
	}
}

// Arguments, what an attempt leaves, values, failures: all of them can be larger than a record.
func TestHugeValues(t *testing.T) {
	huge := strings.Repeat("€", 2<<20)
	dir := t.TempDir()
	executed := 0
	handlers := map[string]workflow.Handler{
		"test.huge": {Do: func(_ context.Context, op *workflow.Op) (any, any, error) {
			executed++
			if err := op.Start(map[string]string{"place": huge}); err != nil {
				return nil, nil, err
			}
			return huge, map[string]string{"meta": huge}, nil
		}},
		"test.fails": {Do: func(context.Context, *workflow.Op) (any, any, error) {
			executed++
			return nil, nil, failure.New(failure.WriteBackConflict, "%s", huge).WithPaths(huge, huge)
		}},
	}
	p := func(s *strand) (any, error) {
		v, err := s.do("test.huge", "x", map[string]string{"prompt": huge})
		if err != nil {
			return nil, err
		}
		var text string
		if err := json.Unmarshal(v, &text); err != nil || text != huge {
			return nil, errors.New("the value is another one")
		}
		if _, err = s.do("test.fails", "y", nil); err == nil || err.Error() != huge {
			return nil, errors.New("the failure is another one")
		}
		return "fine", nil
	}
	for life := range 2 {
		out, _, err := onDisk(t, dir, handlers, p)
		if err != nil || out.State != workflow.Succeeded {
			t.Fatalf("life %d: %+v, %v", life, out, err)
		}
		if executed != 2 {
			t.Errorf("life %d: %d executions", life, executed)
		}
		cut(t, dir, 1)
	}
	if st, err := os.Stat(filepath.Join(dir, "journal")); err != nil || st.Size() > 64<<10 {
		t.Errorf("the journal itself has %d bytes, %v", st.Size(), err)
	}
}

// What is large is read when it is delivered and forgotten after that: a long run does not collect it.
func TestAReplayDoesNotCollectValues(t *testing.T) {
	const n, size = 40, 1 << 20
	big := strings.Repeat("x", size)
	handlers := map[string]workflow.Handler{"test.big": {Do: func(context.Context, *workflow.Op) (any, any, error) { return big, nil, nil }}}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var least, most uint64
	p := func(s *strand) (any, error) {
		for i := range n {
			if _, err := s.do("test.big", fmt.Sprint(i), nil); err != nil {
				return nil, err
			}
			s.answer = answer{}
			now := heap()
			if i == 0 {
				least, most = now, now
			}
			least, most = min(least, now), max(most, now)
		}
		return nil, nil
	}
	dir := t.TempDir()
	for range 2 {
		if _, _, err := onDisk(t, dir, handlers, p); err != nil {
			t.Fatal(err)
		}
		cut(t, dir, 1)
	}
	if most-least > n*size/2 {
		t.Errorf("the heap grew by %d MiB for values of %d MiB", (most-least)>>20, n*size>>20)
	}
}

func BenchmarkOperation(b *testing.B) {
	if _, _, err := onDisk(b, b.TempDir(), nil, sequence(b.N)); err != nil {
		b.Fatal(err)
	}
}
