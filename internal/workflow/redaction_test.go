package workflow

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/session"
)

const canary = "canary-0123456789"

func knowing() *redact.Secrets {
	s := redact.NewSecrets()
	s.Add(canary)
	return s
}

// A secret that is split over events is found; what is held back counts as told only with the event that tells it.
func TestEventsOfACommandHoldNoSecret(t *testing.T) {
	var told []journal.Event
	tell := CleanEvents(knowing(), func(ev journal.Event) { told = append(told, ev) })
	out := func(text string, upto int64) { tell(journal.Event{Kind: "output", Op: "x", Text: text, Upto: upto}) }
	out("before canary-01", 16)
	out("23456789 after", 30)
	tell(journal.Event{Kind: "output", Op: "y", Text: "canary", Upto: 6})
	out(" and can", 38)
	tell(journal.Event{Kind: "operation", Op: "x", Text: "failed: " + canary})
	tell(journal.Event{Kind: "agent", Op: "x", Data: json.RawMessage(`{"payload":{"output":"` + canary + `"}}`)})
	want := []journal.Event{
		{Kind: "output", Op: "x", Text: "before ", Upto: 7},
		{Kind: "output", Op: "x", Text: "[secret] after", Upto: 30},
		{Kind: "output", Op: "x", Text: " and ", Upto: 35},
		{Kind: "output", Op: "x", Text: "can", Upto: 38},
		{Kind: "operation", Op: "x", Text: "failed: [secret]"},
		{Kind: "agent", Op: "x", Data: json.RawMessage(`{"payload":{"output":"[secret]"}}`)},
	}
	got, _ := json.Marshal(told)
	if wanted, _ := json.Marshal(want); string(got) != string(wanted) {
		t.Errorf("told %s\nwant %s", got, wanted)
	}
}

type kept []journal.Record

func (k *kept) Append(r journal.Record) error { *k = append(*k, r); return nil }

func TestRecordsHoldNoSecret(t *testing.T) {
	var log kept
	call := protocol.Call{Args: json.RawMessage(`{"prompt":"` + canary + `"}`)}
	if err := CleanLog(&log, knowing()).Append(journal.Record{Reason: canary, Data: json.RawMessage(`"` + canary + `"`), Call: &call}); err != nil {
		t.Fatal(err)
	}
	b, _ := json.Marshal(log)
	if strings.Contains(string(b), canary) {
		t.Errorf("%s", b)
	}
	if !strings.Contains(string(call.Args), canary) {
		t.Error("the call itself was changed: its digest would be another one")
	}
}

func TestFailuresHoldNoSecret(t *testing.T) {
	s := knowing()
	f := failure.New(failure.AgentFailed, "it said %s", canary).WithHint("try %s", canary).WithPaths("a/"+canary).WithField("holder", canary)
	f.Err = errors.New("because " + canary)
	f.Conditions = []failure.Condition{{ID: "x", Message: canary}}
	clean := failure.As(cleanError(s, f))
	b, _ := json.Marshal([]any{clean.Message, clean.Hint, clean.Paths, clean.Fields, clean.Conditions, clean.Error()})
	if clean.Kind != failure.AgentFailed || strings.Contains(string(b), canary) || !strings.Contains(clean.Message, "because [secret]") {
		t.Errorf("%s", b)
	}
	for _, err := range []error{session.ErrInterrupted, failure.Wrap(session.ErrDetached, failure.Failed, "x")} {
		if cleanError(s, err) != err { //nolint:errorlint // the very same one
			t.Errorf("%v was changed", err)
		}
	}
}
