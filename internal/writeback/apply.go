package writeback

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// Apply carries the plan out. Failures: WriteBackConflict where the source was changed since Check and NotReady where it
// cannot be written, both with the source as it was; HalfApplied where that could not be had. RUN stands for the run in hints.
func (p *Plan) Apply(ctx context.Context) error {
	if len(p.doc.Steps) == 0 {
		return nil
	}
	e, err := p.open()
	if err != nil {
		return err
	}
	defer e.close()
	if err := p.start(); err != nil {
		return err
	}
	return e.continueFromState(ctx)
}

// Continue brings the write-back in dir to its end after a kill. If everything was being put back, that is what it ends,
// and the failure says why. NotFound where nothing is pending. noExchange does without the atomic exchange also where that was
// not asked for when the write-back began, if it had not come so far as to try it.
func Continue(ctx context.Context, dir string, noExchange bool) error {
	p, err := loadPending(dir)
	if err != nil {
		return err
	}
	if noExchange && p.doc.State == Planned {
		p.doc.NoExchange = true
	}
	return p.resume(ctx)
}

func (p *Plan) resume(ctx context.Context) error {
	e, err := p.open()
	if err != nil {
		return err
	}
	defer e.close()
	return e.continueFromState(ctx)
}

func loadPending(dir string) (*Plan, error) {
	p, err := Pending(dir)
	if err == nil && p == nil {
		err = failure.New(failure.NotFound, "no write-back is half applied here").WithHint("laufwerk runs list --all")
	}
	return p, err
}

func (e *engine) continueFromState(ctx context.Context) error {
	if e.doc.State == Aborting {
		_, err := e.finishAbort(ctx)
		if err != nil {
			return err
		}
		return e.abortedError()
	}
	if e.doc.State == Planned {
		if err := e.prepare(ctx); err != nil {
			return err
		}
	}
	if e.doc.State == Staged || e.doc.State == Applying {
		if err := e.applySteps(ctx); err != nil {
			return err
		}
	}
	if err := e.removeStaging(ctx); err != nil {
		return halfAppliedCause(e.Plan, err)
	}
	return e.setState(Done)
}

// prepare stages; what fails leaves nothing behind.
func (e *engine) prepare(ctx context.Context) error {
	if err := e.removeStaging(ctx); err != nil {
		return halfAppliedCause(e.Plan, err)
	}
	err := e.stage(ctx)
	if err == nil {
		err = e.setState(Staged)
	}
	if err == nil {
		return nil
	}
	if e.removeStaging(ctx) == nil {
		e.doc.Cause, e.doc.CauseKind = err.Error(), failure.KindOf(err)
		_ = e.setState(Aborted) // on a full disk it stays planned, with nothing changed, and Continue or Abort ends it
	}
	return err
}

func (e *engine) applySteps(ctx context.Context) error {
	if err := e.restage(ctx); err != nil {
		return halfAppliedCause(e.Plan, err)
	}
	if e.doc.State == Staged {
		if err := e.setState(Applying); err != nil {
			return err
		}
	}
	for i := range e.doc.Steps {
		path := string(e.doc.Steps[i].Path)
		why, err := e.applyStep(i)
		if err != nil {
			why = "" // nothing is known of the source then
		}
		if isVanished(err) {
			why, err = "it or its directory was removed or replaced in the source during the write-back", nil
		}
		if why != "" || err != nil {
			return e.rollBack(ctx, path, why, err)
		}
	}
	if path, why, err := e.verify(); why != "" || err != nil {
		return e.rollBack(ctx, path, why, err)
	}
	e.crashPoint("before-sync")
	if err := e.sync(); err != nil {
		return e.rollBack(ctx, e.doc.Source, "", err)
	}
	return e.setState(Applied)
}

// isVanished says that a path, or what leads to it, is not what it was a moment ago.
func isVanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefs.ErrNotDir) || errors.Is(err, safefs.ErrLink)
}

// applyStep does step i, or what is left of it. why is a conflict: the source is not what was compared.
func (e *engine) applyStep(i int) (why string, err error) {
	switch e.doc.Steps[i].Do {
	case Create:
		return e.create(i)
	case Replace:
		return e.replace(i)
	case Chmod:
		return e.chmod(i)
	default:
		return e.remove(i)
	}
}

const (
	changedMeanwhileText = "it was changed in the source during the write-back"
	createdMeanwhileText = "something was created there in the source during the write-back"
)

func (e *engine) create(i int) (string, error) {
	ph, err := e.stepPhase(i)
	if err != nil || ph != phaseWaiting {
		return "", err
	}
	s := &e.doc.Steps[i]
	e.crashPoint("before-create")
	err = e.move(e.newSlot(i), string(s.Path))
	e.crashPoint("after-create")
	if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	now, err := e.imageAt(s.Path)
	if err != nil {
		return "", err
	}
	if now.equals(s.After) {
		return "", e.root.Rename(e.newSlot(i), e.removedSlot(i))
	}
	return createdMeanwhileText, nil
}

func (e *engine) replace(i int) (string, error) {
	ph, err := e.stepPhase(i)
	if err != nil {
		return "", err
	}
	s := &e.doc.Steps[i]
	path := string(s.Path)
	switch ph {
	case finished, unwanted:
		return "", nil
	case lost:
		return "its file in the staging directory was removed by another process", nil
	case aside:
		return e.install(i)
	case exchanged:
		ok, err := e.wasExchanged(path, e.newSlot(i), s.Before, s.After)
		if err != nil || !ok {
			return changedMeanwhileText, err
		}
		return e.recordVerified(i)
	}
	now, err := e.imageAt(s.Path)
	if err != nil {
		return "", err
	}
	if now.equals(s.After) {
		return "", e.root.Rename(e.newSlot(i), e.removedSlot(i))
	}
	if ok, err := e.matches(path, s.Before); err != nil || !ok {
		return changedMeanwhileText, err
	}
	if e.doc.NoExchange {
		return e.replaceInTwo(i)
	}
	ok, err := e.exchangeVerified(path, e.newSlot(i), s.Before, s.After)
	if err != nil || !ok {
		return changedMeanwhileText, err
	}
	return e.recordVerified(i)
}

// recordVerified notes that what came out of an exchange was the original.
func (e *engine) recordVerified(i int) (string, error) {
	e.crashPoint("before-settle")
	err := e.root.Rename(e.newSlot(i), e.originalSlot(i))
	e.crashPoint("after-settle")
	return "", err
}

// replaceInTwo is for file systems that cannot exchange: the original is moved aside and verified, then the new content
// moved in.
func (e *engine) replaceInTwo(i int) (string, error) {
	s := &e.doc.Steps[i]
	why, err := e.moveAside(i, s.Before)
	if why != "" || err != nil {
		return why, err
	}
	return e.install(i)
}

func (e *engine) install(i int) (string, error) {
	s := &e.doc.Steps[i]
	e.crashPoint("before-install")
	err := e.move(e.newSlot(i), string(s.Path))
	e.crashPoint("after-install")
	if errors.Is(err, fs.ErrExist) {
		return createdMeanwhileText, nil
	}
	return "", err
}

// moveAside renames a path of the source into the staging directory and looks at what was moved.
func (e *engine) moveAside(i int, want *image) (string, error) {
	path, slot := string(e.doc.Steps[i].Path), e.originalSlot(i)
	e.crashPoint("before-aside")
	if err := e.move(path, slot); err != nil {
		return "", err
	}
	e.crashPoint("after-aside")
	ok, err := e.matches(slot, want)
	if ok || err != nil {
		return "", err
	}
	if err := e.move(slot, path); err != nil && !errors.Is(err, fs.ErrExist) { // what is there now is newer; the other is rescued
		return "", err
	}
	return changedMeanwhileText, nil
}

func (e *engine) chmod(i int) (string, error) {
	s := &e.doc.Steps[i]
	now, err := e.imageAt(s.Path)
	if err != nil || now.equals(s.After) {
		return "", err
	}
	if !now.equals(s.Before) {
		return changedMeanwhileText, nil
	}
	e.crashPoint("before-chmod")
	err = e.root.Chmod(string(s.Path), s.After.Mode)
	e.crashPoint("after-chmod")
	return "", err
}

func (e *engine) remove(i int) (string, error) {
	ph, err := e.stepPhase(i)
	if err != nil || ph != phaseWaiting {
		return "", err
	}
	s := &e.doc.Steps[i]
	now, err := e.imageAt(s.Path)
	if err != nil || now == nil {
		return "", err
	}
	ok, err := e.matches(string(s.Path), s.Before)
	if err != nil || !ok {
		return changedMeanwhileText, err
	}
	return e.moveAside(i, s.Before)
}

// verify looks at every displaced original once more: an editor that held the file open may have written into it after it
// was displaced.
func (e *engine) verify() (path, why string, err error) {
	e.crashPoint("before-verify")
	for i := range e.doc.Steps {
		s := &e.doc.Steps[i]
		there, err := e.root.Exists(e.originalSlot(i))
		if err != nil {
			return string(s.Path), "", err
		}
		if !there {
			continue
		}
		ok, err := e.matches(e.originalSlot(i), s.Before)
		if err != nil {
			return string(s.Path), "", err
		}
		if !ok {
			return string(s.Path), "a process that had it open wrote to it during the write-back", nil
		}
	}
	return "", "", nil
}

// rollBack answers a conflict or an error in the middle of the change. If every path written so far still holds what was
// written, all of it is put back and the source is as it was. Otherwise nothing more is touched.
func (e *engine) rollBack(ctx context.Context, path, why string, cause error) error {
	var found findings
	if why != "" {
		found.conflict(path, "%s", why)
	}
	foreign, err := e.changedSinceWrite()
	if err != nil || len(foreign) > 0 {
		return halfAppliedError(e.Plan, append(found, foreign...))
	}
	e.doc.Why = found
	if cause != nil {
		b := ioFailure(cause, path, "all changes were undone")
		e.doc.Cause, e.doc.CauseKind = b.Error(), failure.KindOf(b)
	}
	if err := e.setState(Aborting); err != nil {
		return halfAppliedCause(e.Plan, err)
	}
	if _, err := e.finishAbort(ctx); err != nil {
		return err
	}
	return e.abortedError()
}

// changedSinceWrite are the paths that were written and changed by somebody since.
func (e *engine) changedSinceWrite() (findings, error) {
	var out findings
	for i := range e.doc.Steps {
		s := &e.doc.Steps[i]
		if s.After == nil {
			continue
		}
		ph, err := e.stepPhase(i)
		if err != nil {
			return nil, err
		}
		if ph != finished && ph != exchanged {
			continue
		}
		now, err := e.imageAt(s.Path)
		if err != nil {
			return nil, err
		}
		if !now.equals(s.After) {
			out.conflict(string(s.Path), "it was changed in the source after it was written")
		}
	}
	return out, nil
}

// abortedError is the failure of a write-back that put everything back.
func (e *engine) abortedError() error {
	outcome := "all changes were undone"
	if f := e.doc.Why.failure(outcome); f != nil {
		return f
	}
	if e.doc.Cause != "" {
		return failure.New(e.doc.CauseKind, "%s", e.doc.Cause).WithHint("laufwerk resume RUN")
	}
	return failure.New(failure.NotApproved, "the write-back was aborted")
}

func halfAppliedCause(p *Plan, err error) error {
	if failure.Is(err, failure.HalfApplied) {
		return err
	}
	e := halfAppliedError(p, nil)
	e.Err = fmt.Errorf("it cannot continue: %w", err)
	return e
}
