package runs

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// CancelWait is how long a live worker may take to cancel its run.
const CancelWait = 30 * time.Second

// Cancel makes a run terminal: what it runs is fenced, what it allocated stays claimed until it is cleaned up. A live worker
// is asked to do it; with force one that does not answer is ended first.
func (s *Service) Cancel(ctx context.Context, id, reason string, force bool, by journal.Sender) (Run, error) {
	r, err := s.Get(ctx, id)
	if err != nil {
		return r, err
	}
	if r.Terminal() {
		return r, nil
	}
	if err := s.RequireNotHalfApplied(r.ID); err != nil {
		return r, err
	}
	if worker, live := s.Worker(r.ID); live {
		if err := s.Journal(r.ID).Send(journal.Message{Kind: journal.Cancel, At: s.now(), Reason: reason, Who: by}); err != nil {
			return r, err
		}
		acquired, err := s.awaitLease(ctx, r.ID, force)
		if err != nil {
			return r, err
		}
		if !acquired {
			if !force {
				return r, failure.New(failure.LeaseBusy, "the worker of run %s (%s) was asked to cancel it %s ago and is still running", r.ID, worker, CancelWait).
					WithHint("laufwerk runs cancel %s --force", r.ID)
			}
			if err := s.endWorker(ctx, r.ID, worker); err != nil {
				return r, err
			}
		}
		if r, err = s.Get(ctx, r.ID); err != nil || r.Terminal() {
			return r, err
		}
	}
	r, l, err := s.acquireRun(ctx, r.ID)
	if err != nil {
		return r, err
	}
	defer l.Release()
	if r.Terminal() {
		return r, nil
	}
	if err := s.RequireNotHalfApplied(r.ID); err != nil { // by another worker, since we looked
		return r, err
	}
	return s.cancelDead(ctx, r, reason)
}

func halfAppliedError(id string) error {
	return failure.New(failure.HalfApplied, "run %s has a half-applied write-back", id).
		WithHint("laufwerk writeback continue %s\nlaufwerk writeback abort %s", id, id)
}

func (s *Service) awaitLease(ctx context.Context, id string, force bool) (bool, error) {
	wait := CancelWait
	if force {
		wait = 5 * time.Second
	}
	l, err := lock.Acquire(ctx, s.leasePath(id), lock.Exclusive, wait, s.Command)
	if failure.Is(err, failure.LockBusy) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	l.Release()
	return true, nil
}

// endWorker kills a worker that does not answer: the process that holds the lock, and no other that has its id by now.
func (s *Service) endWorker(ctx context.Context, id string, worker lock.Holder) error {
	holder, live := s.Worker(id)
	if !live {
		return nil
	}
	if holder.Process != worker.Process {
		return failure.New(failure.LeaseBusy, "run %s has another worker now: %s", id, holder).WithHint("laufwerk runs cancel %s --force", id)
	}
	if holder.Process == (process.Identity{}) {
		return failure.New(failure.LeaseBusy, "the worker process of run %s cannot be identified with certainty (%s): end it, then repeat the command", id, holder).WithHint("laufwerk runs cancel %s", id)
	}
	if err := process.Signal(worker.Process, syscall.SIGKILL); err != nil && !errors.Is(err, process.ErrGone) {
		return failure.Wrap(err, failure.Failed, "end the worker of run %s (%s)", id, worker)
	}
	if acquired, err := s.awaitLease(ctx, id, false); err != nil || !acquired {
		return failure.New(failure.LeaseBusy, "the worker of run %s (%s) does not end", id, worker)
	}
	return nil
}

// cancelDead ends a run that nobody works on; the caller holds the lease.
func (s *Service) cancelDead(ctx context.Context, r Run, reason string) (Run, error) {
	ctx = context.WithoutCancel(ctx)
	doubt, err := s.fence(ctx, r.ID)
	if err != nil {
		return r, err
	}
	end, err := s.endJournal(r.ID, reason)
	if err != nil {
		return r, err
	}
	// A worker that was killed before its write-back changed anything holds the source still.
	if err := s.releaseSource(ctx, r.ID, ""); err != nil {
		return r, err
	}
	crash.Point("runs/before-cancelled")
	r.State, r.EndedAt, r.Waiting = end.State, s.now(), nil
	if end.Error != nil {
		r.Reason, r.Code = end.Error.Message, end.Error.Code
	}
	if err := s.storeRun(ctx, r); err != nil {
		return r, err
	}
	j := s.Journal(r.ID)
	ms, _ := j.Messages()
	for _, m := range ms {
		_ = j.RemoveMessage(m)
	}
	if doubt != nil {
		return r, failure.Wrap(doubt, failure.OutcomeUnknown, "run %s is %s", r.ID, r.State)
	}
	return r, nil
}

// endJournal makes the end durable, unless the journal has one. A journal that is damaged or gone is left as it is: the run
// could never be resumed, and the store knows what it allocated.
func (s *Service) endJournal(id, reason string) (*journal.Record, error) {
	text := "the run was cancelled"
	if reason != "" {
		text += ": " + reason
	}
	end := func() *journal.Record {
		return &journal.Record{Type: journal.End, At: s.now(), State: Cancelled, Reason: reason, Error: workflow.WireError(failure.New(failure.Cancelled, "%s", text))}
	}
	w, records, err := s.Journal(id).Open()
	if failure.Is(err, failure.JournalInvalid) && !files.NoSpace(err) && !files.NotWritable(err) {
		text += " (" + err.Error() + ")"
		return end(), nil
	}
	if err != nil {
		return nil, err
	}
	defer w.Close()
	if end := endRecord(records); end != nil {
		return end, nil
	}
	e := end()
	return e, w.Append(*e)
}

// fence ends everything that any session of the run may still be running; the sandboxes stay. What it cannot be sure of is a
// doubt, which keeps no run from its end: the session's claim stays, and with it its workspace.
func (s *Service) fence(ctx context.Context, run string) (doubt, err error) {
	list, err := s.Driver.List(ctx, claims.Filter{Run: run, Kind: claims.KindSession, Outstanding: true})
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		if err := s.fenceClaim(ctx, c); err != nil && doubt == nil {
			doubt = failure.New(failure.OutcomeUnknown, "it could not be confirmed that all of its processes have ended: %v", err).
				WithHint("laufwerk cleanup %s\nlaufwerk claims show %s", run, c.ID)
		}
	}
	return doubt, nil
}

func (s *Service) fenceClaim(ctx context.Context, c claims.Claim) error {
	if c.AllocatedAt.IsZero() {
		return nil // nobody starts anything in what is not recorded as made
	}
	p, ok := s.Provider(c.Provider)
	if !ok {
		return failure.New(failure.Unsupported, "the provider %q of claim %s is not part of this build", c.Provider, c.ID)
	}
	sb, err := p.Enter(ctx, c.Intent, targets.Definition{})
	if failure.Is(err, failure.SessionLost) {
		return nil // clean-up looks at it again
	}
	if err != nil {
		return err
	}
	if f := sb.Fence(ctx); !f.Sure {
		return errors.New(f.Why)
	}
	return nil
}
