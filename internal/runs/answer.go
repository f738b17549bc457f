package runs

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// Answer leaves a person's answer for the run. The run is resumed by the caller where no worker lives.
type Answer struct {
	Run    string
	Key    string
	Value  string // as it was typed: yes or no, an option's value, a text
	Digest string // of the content that was looked at; "" means: as the question shows it
	Who    journal.Sender
}

// Answer checks an answer against the open question and leaves it in the run's inbox.
func (s *Service) Answer(ctx context.Context, a Answer) (Run, error) {
	r, err := s.Get(ctx, a.Run)
	if err != nil {
		return r, err
	}
	if r.Terminal() {
		return r, failure.New(failure.RunState, "run %s has ended: %s", r.ID, r.State).WithHint("laufwerk runs show %s", r.ID)
	}
	q, err := s.findQuestion(r.ID, a.Key)
	if err != nil {
		return r, err
	}
	value, err := parseAnswer(q, a.Value)
	if err != nil {
		return r, failure.New(failure.InputInvalid, "%v", err).WithHint("%s", AnswerCommand(r.ID, q))
	}
	if a.Digest != "" && !strings.HasPrefix(q.Digest, a.Digest) {
		return r, failure.New(failure.ChangedSinceApproval, "the question %q is about the content %s, and --digest is %s", q.Key, q.Digest, a.Digest).
			WithHint("laufwerk diff %s", r.ID)
	}
	// One at a time: of two people who answer at the same moment the second one is told.
	l, err := lock.Acquire(ctx, filepath.Join(s.Dir(r.ID), "answering"), lock.Exclusive, deliverTimeout, s.Command)
	if err != nil {
		return r, err
	}
	defer l.Release()
	j := s.Journal(r.ID)
	if left, err := s.hasPendingAnswer(r.ID, a.Key); err != nil {
		return r, err
	} else if left {
		return r, failure.New(failure.RunState, "the question %q of run %s was answered already; the run has not read the answer yet", a.Key, r.ID).
			WithHint("laufwerk resume %s", r.ID)
	}
	return r, j.Send(journal.Message{Kind: journal.Answer, At: s.now(), Key: a.Key, Value: value, Digest: q.Digest, Who: a.Who})
}

// deliverTimeout is how long TakeUp waits for a live worker to take an answer: its next look into the inbox is a moment away,
// unless the run has not come to its question yet.
const deliverTimeout = 5 * time.Second

// DeliverAnswer sees to it that an answer that was left does not lie there: it resumes the run, unless another worker takes the
// answer. That worker may be about to leave, so the lease that it still holds proves nothing. False says that it is the
// other worker's.
func (s *Service) DeliverAnswer(ctx context.Context, id, key string) (StartedRun, bool, error) {
	for tries := deliverTimeout / deliverPoll; ; tries-- {
		st, err := s.Resume(ctx, id)
		if err == nil {
			return st, true, nil
		}
		left, leftErr := s.hasPendingAnswer(id, key)
		switch {
		case leftErr != nil:
			return st, false, leftErr
		case !left: // also where that worker has brought the run to its end
			return st, false, nil
		case !failure.Is(err, failure.LeaseBusy):
			return st, false, err
		case tries <= 0:
			return st, false, nil
		}
		select {
		case <-ctx.Done():
			return st, false, ctx.Err()
		case <-time.After(deliverPoll):
		}
	}
}

const deliverPoll = 20 * time.Millisecond

func (s *Service) hasPendingAnswer(id, key string) (bool, error) {
	waiting, err := s.Journal(id).Messages()
	for _, m := range waiting {
		if m.Kind == journal.Answer && m.Key == key {
			return true, nil
		}
	}
	return false, err
}

// Questions are the open ones of a run, as its journal knows them.
func (s *Service) Questions(id string) ([]workflow.Question, error) {
	records, err := s.Journal(id).Read()
	if err != nil {
		return nil, err
	}
	return workflow.OpenQuestions(records), nil
}

func (s *Service) findQuestion(run, key string) (workflow.Question, error) {
	records, err := s.Journal(run).Read()
	if err != nil {
		return workflow.Question{}, err
	}
	var open []string
	for _, q := range workflow.OpenQuestions(records) {
		if q.Key == key {
			return q, nil
		}
		open = append(open, AnswerCommand(run, q))
	}
	for _, r := range records {
		if r.Type == journal.Completed && r.Op == workflow.QuestionID(key) {
			return workflow.Question{}, failure.New(failure.RunState, "the question %q of run %s was answered already", key, run).WithHint("laufwerk runs show %s", run)
		}
	}
	if len(open) > 0 {
		return workflow.Question{}, failure.New(failure.NotFound, "run %s does not ask %q", run, key).WithHint("%s", strings.Join(open, "\n"))
	}
	return workflow.Question{}, failure.New(failure.NotFound, "run %s does not ask %q; it asks no question now", run, key).WithHint("laufwerk runs show %s", run)
}

func parseAnswer(q workflow.Question, typed string) (json.RawMessage, error) {
	if q.Type == workflow.Confirm {
		switch strings.ToLower(strings.TrimSpace(typed)) {
		case "yes", "y", "true":
			return json.RawMessage("true"), nil
		case "no", "n", "false":
			return json.RawMessage("false"), nil
		}
		return nil, failure.New(failure.InputInvalid, "the question %q is answered by yes or no, not %q", q.Key, typed)
	}
	if q.Type == workflow.Select {
		typed = strings.TrimRight(typed, "\r\n") // of a file; no option could be told from another by it
	}
	value, err := json.Marshal(typed)
	if err != nil {
		return nil, err
	}
	return value, q.Check(value)
}
