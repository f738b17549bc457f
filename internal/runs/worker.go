package runs

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// Hooks are how a worker is followed.
type Hooks struct {
	Ask        workflow.Asker      // asks at the terminal; nil where nobody is
	Event      func(journal.Event) // every event, after it is in the log
	NoExchange bool
}

// Result is how a worker left a run.
type Result struct {
	Run     Run
	Value   json.RawMessage
	Err     error // the failure that decides the exit code; nil when it succeeded
	Kept    []KeptWorkspace
	Resumed bool
}

// RunWorker executes a run until it ends, waits for a person or is stopped: cancel ctx with session.ErrInterrupted or
// session.ErrDetached as the cause. The lease is released at the end.
func (s *Service) RunWorker(ctx context.Context, st StartedRun, h Hooks) (Result, error) {
	for {
		res, err := s.runLeased(ctx, st, h)
		res.Err = fillRunID(res.Err, st.Run.ID)
		if err != nil || !s.hasAwaitedMessage(res.Run) {
			return res, fillRunID(err, st.Run.ID)
		}
		// A message came between the last look into the inbox and the release of the lease. Whoever left it saw a worker, and
		// relies on it.
		r, l, err := s.acquireRun(ctx, st.Run.ID)
		if err != nil || r.Terminal() {
			l.Release()
			return res, nil //nolint:nilerr // another worker has it, or the next one takes it
		}
		st.Run, st.Lease, st.Drift = r, l, ""
	}
}

// hasAwaitedMessage says whether the inbox holds what a waiting run waits for.
func (s *Service) hasAwaitedMessage(r Run) bool {
	if r.State != Waiting {
		return false
	}
	ms, err := s.Journal(r.ID).Messages()
	return err == nil && slices.ContainsFunc(ms, func(m journal.Message) bool {
		return m.Kind == journal.Cancel || slices.ContainsFunc(r.Waiting, func(q workflow.Question) bool { return q.Key == m.Key })
	})
}

// placeholder is what packages that do not know their run write into hints.
var placeholder = lazyregexp.Regexp{Pattern: `\bRUN\b`}

func fillRunID(err error, run string) error {
	f := failure.As(err)
	if f == nil || !placeholder.MatchString(f.Hint) {
		return err
	}
	out := *f
	out.Hint, out.Message, out.Err = placeholder.ReplaceAllString(f.Hint, run), err.Error(), nil
	return &out
}

func (s *Service) runLeased(ctx context.Context, st StartedRun, h Hooks) (Result, error) {
	defer st.Lease.Release()
	r := st.Run
	if r.State != Running || r.Reason != "" || len(r.Waiting) > 0 {
		r.State, r.Reason, r.Code, r.Waiting = Running, "", "", nil
		if err := s.storeRun(context.WithoutCancel(ctx), r); err != nil {
			return Result{Run: r}, err
		}
	}
	j := s.Journal(r.ID)
	w, records, err := j.Open()
	if err != nil {
		return Result{Run: r}, err
	}
	defer w.Close()
	if end := endRecord(records); end != nil { // killed between the last record and the store
		return s.recordOutcome(context.WithoutCancel(ctx), r, workflow.Outcome{State: end.State, Value: loadValue(j, end.Value), Err: recordedError(end.Error)})
	}
	resumed := len(records) > 1
	if resumed {
		if err := w.Append(journal.Record{Type: journal.Resumed, At: s.now(), Build: s.Build}); err != nil {
			return Result{Run: r}, err
		}
	}
	events, err := j.OpenEvents()
	if err != nil {
		return Result{Run: r}, failure.Wrap(err, failure.HomeInvalid, "open the event log")
	}
	defer events.Close()
	tell := func(ev journal.Event) {
		events.Append(ev)
		if h.Event != nil {
			h.Event(ev)
		}
	}
	if st.Drift != "" {
		tell(journal.Event{At: s.now(), Kind: "notice", Text: st.Drift + "; the run continues with the code that it was started with"})
	}
	out, err := s.execute(ctx, worker{StartedRun: st, journal: j, log: w, records: records, events: tell, hooks: h})
	if err != nil {
		reason := err.Error()
		r.State, r.Reason, r.Code = Running, reason, string(failure.KindOf(err))
		_ = s.storeRun(context.WithoutCancel(ctx), r)
		return Result{Run: r}, err
	}
	if out.State == workflow.Interrupted && out.Err == nil {
		r.Reason = "a person stopped its worker"
		if errors.Is(context.Cause(ctx), session.ErrDetached) {
			r.Reason = "its worker stopped; running commands continue under their supervisors"
		}
	}
	res, err := s.recordOutcome(context.WithoutCancel(ctx), r, out)
	res.Resumed = resumed
	return res, err
}

// worker is what this process has of the run that it works on.
type worker struct {
	StartedRun
	journal *journal.Journal
	log     *journal.Writer
	records []journal.Record // that were in the journal when it was opened
	events  func(journal.Event)
	hooks   Hooks
}

func (s *Service) execute(ctx context.Context, w worker) (workflow.Outcome, error) {
	r := w.Run
	var bundle protocol.Bundle
	if err := files.ReadJSON(runFile(s.Dir(r.ID), "bundle.json"), &bundle); err != nil {
		return workflow.Outcome{}, failure.Wrap(err, failure.JournalInvalid, "read the code of run %s", r.ID)
	}
	var input json.RawMessage
	if err := files.ReadJSON(runFile(s.Dir(r.ID), "input.json"), &input); err != nil {
		return workflow.Outcome{}, failure.Wrap(err, failure.JournalInvalid, "read the input of run %s", r.ID)
	}
	child, err := s.Script.Start(context.WithoutCancel(ctx), protocol.Start{
		Mode: "workflow", Root: r.Root, Bundle: &bundle, Export: "workflow", Input: input, Seed: r.ID, Now: r.CreatedAt.UnixMilli(),
	})
	if err != nil {
		return workflow.Outcome{}, err
	}
	defer child.Close()

	config := s.operations(w.StartedRun, w.journal, w.hooks)
	config.Secrets = redact.NewSecrets()
	ops := workflow.NewOperations(config)
	changed, stop := s.watch(w.journal)
	defer stop()
	program, err := checkOutput(child, bundle.Output)
	if err != nil {
		return workflow.Outcome{}, err
	}
	e, err := workflow.New(workflow.Config{
		Journal: w.journal, Log: workflow.CleanLog(w.log, config.Secrets), Records: w.records, Program: program, Handlers: ops.Handlers(), Inbox: w.journal, Changed: changed,
		Now: s.Now, Events: workflow.CleanEvents(config.Secrets, w.events), Stay: w.hooks.Ask != nil, Ending: ops.End,
	})
	if err != nil {
		return workflow.Outcome{}, err
	}
	return e.Run(ctx)
}

func (s *Service) operations(st StartedRun, j *journal.Journal, h Hooks) workflow.OperationsConfig {
	targets := map[string]targets.Definition{}
	r := st.Run
	for _, d := range st.Targets {
		targets[d.ID] = d
	}
	offsets := eventOffsets(j)
	return workflow.OperationsConfig{
		Run: r.ID, RunDir: s.Dir(r.ID), Root: r.Root, Scope: r.Scope, HomeDir: s.HomeDir, State: s.Home.Dir(), Driver: s.Driver,
		Targets: targets, Provider: s.Provider, Programs: s.Programs, HostVars: s.HostVars, Now: s.Now,
		WorkspaceDir: s.Home.WorkspaceDir, Ask: h.Ask, NoExchange: h.NoExchange, MaxFiles: s.MaxFiles, MaxBytes: s.MaxBytes,
		EventsFrom: func(op string) int64 { return offsets[op] },
	}
}

// eventOffsets is how much of each operation's output is in the event log already.
func eventOffsets(j *journal.Journal) map[string]int64 {
	offsets := map[string]int64{}
	f, err := files.Open(j.EventsPath())
	if err != nil {
		return offsets
	}
	defer f.Close()
	_ = readEvents(f, func(ev journal.Event) error {
		switch {
		case ev.Kind == "attempt":
			offsets[ev.Op] = 0
		case ev.Upto > 0:
			offsets[ev.Op] = ev.Upto
		}
		return nil
	})
	return offsets
}

// How often the inbox is looked into: where the system tells nothing of new files, and where it should, since some file
// systems accept a watch and never tell anything.
const (
	inboxPollInterval    = 500 * time.Millisecond
	fallbackPollInterval = 3 * time.Second
)

// watch says when something may have come into the inbox.
func (s *Service) watch(j *journal.Journal) (<-chan struct{}, func()) {
	changed := make(chan struct{}, 1)
	tell := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	every := fallbackPollInterval
	w, err := watchDir(j.InboxDir())
	if err != nil {
		every = inboxPollInterval
		w = &fsnotify.Watcher{} // of which nothing ever comes
	}
	t := time.NewTicker(every)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-t.C:
			case <-w.Events:
			case <-w.Errors: //nolint:errcheck // events were lost: all the more reason to look
			case <-done:
				return
			}
			tell()
		}
	}()
	return changed, func() {
		close(done)
		t.Stop()
		if err == nil {
			_ = w.Close()
		}
	}
}

func watchDir(dir string) (*fsnotify.Watcher, error) {
	if err := files.MkdirAll(dir); err != nil {
		return nil, err
	}
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := w.Add(dir); err != nil {
		_ = w.Close()
		return nil, err
	}
	return w, nil
}

func endRecord(records []journal.Record) *journal.Record {
	for i := range records {
		if records[i].Type == journal.End {
			return &records[i]
		}
	}
	return nil
}

func loadValue(j *journal.Journal, v *journal.Value) json.RawMessage {
	b, err := j.LoadValue(v)
	if err != nil {
		return nil
	}
	return b
}

func recordedError(e *protocol.Error) error {
	if e == nil {
		return nil
	}
	return workflow.Failure(e)
}

// recordOutcome writes into the store how the worker left the run, and gives up what a finished run does not need.
func (s *Service) recordOutcome(ctx context.Context, r Run, out workflow.Outcome) (Result, error) {
	res := Result{Run: r, Value: out.Value, Err: out.Err}
	switch out.State {
	case workflow.Waits:
		r.State, r.Waiting = Waiting, out.Waiting
		res.Err = waitingError(r)
	case workflow.Interrupted:
		r.State = Running // nobody holds the lease: interrupted
		if out.Err != nil {
			r.Reason, r.Code = out.Err.Error(), string(failure.KindOf(out.Err))
		}
	default:
		r.State, r.EndedAt = out.State, s.now()
		if out.Err != nil {
			r.Reason, r.Code = out.Err.Error(), string(failure.KindOf(out.Err))
		}
		if err := s.releaseLocks(ctx, r.ID); err != nil && out.Ending == nil {
			out.Ending = err
		}
		kept, err := s.releaseWorkspaces(ctx, r)
		if err != nil && out.Ending == nil {
			out.Ending = err
		}
		res.Kept = kept
	}
	crash.Point("runs/before-settle")
	if err := s.storeRun(ctx, r); err != nil {
		return res, err
	}
	crash.Point("runs/after-settle")
	res.Run = s.runAfterWorker(r)
	switch {
	case out.Ending == nil:
	case res.Err == nil:
		res.Err = failure.Wrap(out.Ending, failure.Retained, "run %s %s, and not all of its resources could be removed", r.ID, r.State)
	default:
		res.Err = withCondition(res.Err, failure.Condition{ID: string(failure.Retained), Message: out.Ending.Error(), Hint: "laufwerk cleanup " + r.ID})
	}
	return res, nil
}

// withCondition is a failure with one more thing that has to be told of it.
func withCondition(err error, c failure.Condition) error {
	out := &failure.Error{Kind: failure.KindOf(err), Err: err}
	if f := failure.As(err); f != nil {
		out.Hint, out.Paths, out.Fields, out.Conditions = f.Hint, f.Paths, f.Fields, f.Conditions
	}
	out.Conditions = append(slices.Clone(out.Conditions), c)
	return out
}

// releaseLocks gives up the source that a write-back of a run that is over holds still, since its worker was killed in it and
// the next one had no need of it. One that is half applied keeps it.
func (s *Service) releaseLocks(ctx context.Context, run string) error {
	pending, err := s.HalfApplied(run)
	if err != nil || pending != "" {
		return err
	}
	return s.releaseSource(ctx, run, "")
}

// runAfterWorker is a run as it is once this worker is gone.
func (s *Service) runAfterWorker(r Run) Run {
	if r.State == Running {
		r.State = Interrupted
	}
	return r
}

func waitingError(r Run) error {
	if len(r.Waiting) == 0 {
		return failure.New(failure.Waiting, "run %s waits", r.ID)
	}
	titles := make([]string, 0, len(r.Waiting))
	commands := make([]string, 0, len(r.Waiting))
	for _, q := range r.Waiting {
		titles = append(titles, q.Title)
		commands = append(commands, AnswerCommand(r.ID, q))
	}
	return failure.New(failure.Waiting, "run %s waits for a person: %s", r.ID, strings.Join(titles, "; ")).
		WithHint("%s", strings.Join(commands, "\n"))
}

// AnswerCommand is what to type to answer a question. Keys and values may come from an agent: each is one word of the shell.
func AnswerCommand(run string, q workflow.Question) string {
	cmd := "laufwerk answer " + run + " " + failure.Quote(q.Key)
	switch {
	case q.Type == workflow.Confirm:
		cmd += " yes"
	case q.Type == workflow.Select && len(q.Options) > 0:
		cmd += " " + failure.Quote(q.Options[0].Value)
	default:
		cmd += " 'TEXT'"
	}
	if q.Digest != "" {
		return "laufwerk diff " + run + "\n" + cmd
	}
	return cmd
}

func writeBackDirs(dir string) ([]string, error) {
	names, err := files.Names(filepath.Join(dir, "writebacks"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var out []string
	for _, n := range names {
		out = append(out, filepath.Join(dir, "writebacks", n))
	}
	return out, nil
}
