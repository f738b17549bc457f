package journal_test

import (
	"encoding/json"
	"os"
	"os/signal"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

func TestIdentity(t *testing.T) {
	for want, c := range map[string]protocol.Call{
		"session.ask[main]:fix":     {Op: "session.ask", Scope: "main", Key: "fix", Branch: "0"},
		"workspace.open":            {Op: "workspace.open", Branch: "0"},
		"workspace.open:second":     {Op: "workspace.open", Key: "second", Branch: "0.0.1"},
		"clock.now#3":               {Op: "clock.now", Branch: "0", Ordinal: 2},
		"clock.now@0.1.2#3":         {Op: "clock.now", Branch: "0.1.2", Ordinal: 2},
		"session.close[a%5D:b%25]":  {Op: "session.close", Scope: "a]:b%", Branch: "0"},
		"session.ask[a]:b]:c":       {Op: "session.ask", Scope: "a", Key: "b]:c", Branch: "0"},
		"session.ask[a%5D:b]:c":     {Op: "session.ask", Scope: "a]:b", Key: "c", Branch: "0"},
		"human:a#2":                 {Op: "human", Key: "a#2", Branch: "0"},
		"session.readFile[s]@0.0.0": {Op: "session.readFile", Scope: "s", Branch: "0.0.0"},
	} {
		if got := journal.Identity(c); got != want {
			t.Errorf("%+v is %s, want %s", c, got, want)
		}
	}
}

// Two operations that differ in what makes their identity never have the same.
func TestIdentitiesAreUnique(t *testing.T) {
	part := rapid.StringOfN(rapid.RuneFrom([]rune("ab]:[%#@.05D")), 0, 4, -1)
	call := rapid.Custom(func(t *rapid.T) protocol.Call {
		c := protocol.Call{Op: rapid.SampledFrom([]string{"session.ask", "clock.now"}).Draw(t, "op"), Scope: part.Draw(t, "scope"), Key: part.Draw(t, "key")}
		if c.Key == "" {
			c.Branch = rapid.SampledFrom([]string{"0", "0.0", "0.1.2", "0.1"}).Draw(t, "branch")
			c.Ordinal = rapid.IntRange(0, 12).Draw(t, "ordinal")
		}
		return c
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := call.Draw(t, "a"), call.Draw(t, "b")
		if same := reflect.DeepEqual(a, b); same != (journal.Identity(a) == journal.Identity(b)) {
			t.Fatalf("%+v and %+v: %s and %s", a, b, journal.Identity(a), journal.Identity(b))
		}
	})
}

// Every field can be large; the log itself stays small, and damage is seen.
func TestLargeRecordsAreBlobs(t *testing.T) {
	big := strings.Repeat("x", 5<<20)
	args, _ := json.Marshal(map[string]string{"prompt": big})
	want := []journal.Record{
		{Type: journal.Begin, Version: journal.Version, Run: "r"},
		{Type: journal.Started, Op: "a", Attempt: 1, Call: &protocol.Call{Op: "test", Key: "a", Branch: "0", Args: args}, Digest: "d", Data: args},
		{Type: journal.Completed, Op: "a", Error: &protocol.Error{Class: "X", Code: "x", Message: big}, Meta: args},
		{Type: journal.Started, Op: "b", Attempt: 1},
	}
	dir := t.TempDir()
	j := journal.Open(dir)
	w, _, err := j.Open()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range want {
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	_ = w.Close()
	if st, err := os.Stat(filepath.Join(dir, "journal")); err != nil || st.Size() > 4096 {
		t.Errorf("%v, %v", st.Size(), err)
	}
	w, got, err := j.Open()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	if !reflect.DeepEqual(got, want) {
		t.Error("the records are other ones")
	}
	blobs, _ := filepath.Glob(filepath.Join(dir, "blobs", "*"))
	if len(blobs) != 2 {
		t.Fatalf("%d blobs", len(blobs))
	}
	for _, damage := range []func() error{
		func() error { return os.WriteFile(blobs[0], []byte("{}"), 0o600) },
		func() error { return os.Remove(blobs[0]) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		if _, err := j.Read(); !failure.Is(err, failure.JournalInvalid) {
			t.Errorf("got %v", err)
		}
	}
}

// An append that fails in the middle of its frame, as on a full disk: the record is no part of the log, the writer says no
// to everything after it, and the next writer goes on.
func TestAFailedAppendLeavesNothing(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	dir := t.TempDir()
	j := journal.Open(dir)
	w, _, err := j.Open()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Append(journal.Record{Type: journal.Begin, Version: journal.Version}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "journal")
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	limited := was
	limited.Cur = uint64(len(before) + 20)
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limited); err != nil {
		t.Fatal(err)
	}
	failed := w.Append(journal.Record{Type: journal.Started, Op: "a", Attempt: 1})
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	if !failure.Is(failed, failure.NotReady) || !strings.Contains(failure.As(failed).Hint, "laufwerk resume "+filepath.Base(dir)) {
		t.Fatalf("got %v", failed)
	}
	if err := w.Append(journal.Record{Type: journal.Started, Op: "b"}); !failure.Is(err, failure.NotReady) {
		t.Errorf("after a failure: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("%d bytes are left of it, %v", len(after)-len(before), err)
	}
	_ = w.Close()
	w, records, err := j.Open()
	if err != nil || len(records) != 1 {
		t.Fatalf("%d records, %v", len(records), err)
	}
	if err := w.Append(journal.Record{Type: journal.Started, Op: "c"}); err != nil {
		t.Error(err)
	}
	_ = w.Close()
}

// A line that a killed worker left torn takes no other with it.
func TestATornEventIsPassedOver(t *testing.T) {
	dir := t.TempDir()
	j := journal.Open(dir)
	for i, torn := range []string{`{"kind":"operation","te`, ``, "\n"} {
		f, err := os.OpenFile(j.EventsPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = f.WriteString(torn)
		_ = f.Close()
		e, err := j.OpenEvents()
		if err != nil {
			t.Fatal(err)
		}
		e.Append(journal.Event{Kind: "message", Text: "first\nsecond"})
		_ = e.Close()
		b, err := os.ReadFile(j.EventsPath())
		if err != nil {
			t.Fatal(err)
		}
		events, rest := journal.ParseEvents(b)
		if len(events) != i+1 || len(rest) != 0 || events[i].Text != "first\nsecond" {
			t.Errorf("%d events, %q left", len(events), rest)
		}
	}
}
