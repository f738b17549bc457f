package writeback

import (
	"context"
	"errors"
	"io/fs"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// UntouchedPath is a path that Abort did not touch, and why.
type UntouchedPath struct {
	Path string
	Why  string
}

// AbortReport says what an abort did.
type AbortReport struct {
	Restored []string        // paths that hold again what they held before
	Left     []UntouchedPath // paths that somebody changed since; their originals are in the plan's folder
	Rescued  []string        // files with bytes that somebody wrote meanwhile and that are in no other place
}

// Abort puts back what the write-back in dir changed, each path only if it still holds what was written. A write-back
// whose changes are all in place cannot be aborted any more: it is finished, and the failure (RunState) says so. NotFound
// where nothing is pending.
func Abort(ctx context.Context, dir string) (AbortReport, error) {
	p, err := loadPending(dir)
	if err != nil {
		return AbortReport{}, err
	}
	return p.abort(ctx)
}

func (p *Plan) abort(ctx context.Context) (AbortReport, error) {
	e, err := p.open()
	if err != nil {
		return AbortReport{}, err
	}
	defer e.close()
	switch p.doc.State {
	case Planned, Staged:
		if err := e.removeStaging(ctx); err != nil {
			return AbortReport{}, halfAppliedCause(p, err)
		}
		return AbortReport{}, p.setState(Aborted)
	case Applied:
		if err := e.removeStaging(ctx); err != nil {
			return AbortReport{}, halfAppliedCause(p, err)
		}
		if err := p.setState(Done); err != nil {
			return AbortReport{}, err
		}
		return AbortReport{}, failure.New(failure.RunState, "every change was already in place when the write-back was interrupted; it is done and cannot be aborted any more. The originals are in %s", p.dir).
			WithHint("laufwerk runs show RUN")
	}
	if err := e.restage(ctx); err != nil {
		return AbortReport{}, halfAppliedCause(p, err)
	}
	if p.doc.State != Aborting {
		if err := p.setState(Aborting); err != nil {
			return AbortReport{}, err
		}
	}
	return e.finishAbort(ctx)
}

// finishAbort undoes the steps in reverse and removes the staging directory.
func (e *engine) finishAbort(ctx context.Context) (AbortReport, error) {
	var r AbortReport
	if err := e.restage(ctx); err != nil {
		return r, halfAppliedCause(e.Plan, err)
	}
	for i := len(e.doc.Steps) - 1; i >= 0; i-- {
		path := string(e.doc.Steps[i].Path)
		did, why, err := e.undo(i)
		switch {
		case isVanished(err):
			r.Left = append(r.Left, UntouchedPath{path, "its directory was removed or replaced since"})
		case err != nil:
			return r, halfAppliedCause(e.Plan, err)
		case why != "":
			r.Left = append(r.Left, UntouchedPath{path, why})
		case did:
			r.Restored = append(r.Restored, path)
		}
	}
	if err := e.sync(); err != nil {
		return r, halfAppliedCause(e.Plan, err)
	}
	if err := e.removeStaging(ctx); err != nil {
		return r, halfAppliedCause(e.Plan, err)
	}
	r.Rescued = e.doc.Rescued
	return r, e.setState(Aborted)
}

const changedSinceText = "it was changed after it was written"

// undo brings step i back to where nothing was done. did says that the source was changed; why that it was left.
func (e *engine) undo(i int) (did bool, why string, err error) {
	s := &e.doc.Steps[i]
	if s.Do == Chmod {
		return e.undoChmod(s)
	}
	ph, err := e.stepPhase(i)
	if err != nil || ph == phaseWaiting || ph == unwanted {
		return false, "", err
	}
	switch s.Do {
	case Create:
		return e.undoCreate(i)
	case Replace:
		return e.undoReplace(i, ph)
	default:
		return e.undoRemove(i)
	}
}

func (e *engine) undoChmod(s *step) (bool, string, error) {
	now, err := e.imageAt(s.Path)
	if err != nil || now.equals(s.Before) {
		return false, "", err
	}
	if !now.equals(s.After) {
		return false, changedSinceText, nil
	}
	e.crashPoint("undo-before-chmod")
	err = e.root.Chmod(string(s.Path), s.Before.Mode)
	e.crashPoint("undo-after-chmod")
	return err == nil, "", err
}

func (e *engine) undoCreate(i int) (bool, string, error) {
	s := &e.doc.Steps[i]
	path := string(s.Path)
	now, err := e.imageAt(s.Path)
	if err != nil || now == nil {
		return false, "", err
	}
	ok, err := e.matches(path, s.After)
	if err != nil || !ok {
		return false, changedSinceText, err
	}
	e.crashPoint("undo-before-create")
	if err := e.move(path, e.newSlot(i)); err != nil {
		return false, "", err
	}
	e.crashPoint("undo-after-create")
	ok, err = e.matches(e.newSlot(i), s.After)
	if err != nil || ok {
		return ok, "", err
	}
	if err := e.move(e.newSlot(i), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, "", err
	}
	return false, changedSinceText, nil
}

func (e *engine) undoReplace(i int, ph phase) (bool, string, error) {
	s := &e.doc.Steps[i]
	path := string(s.Path)
	now, err := e.imageAt(s.Path)
	if err != nil {
		return false, "", err
	}
	if ph == aside {
		return e.undoMoveAside(i, now)
	}
	if now != nil && now.equals(s.Before) {
		return false, "", nil
	}
	ok, err := e.matches(path, s.After)
	if err != nil || !ok || ph == lost {
		return false, changedSinceText, err
	}
	if e.doc.NoExchange {
		return e.undoInTwo(i)
	}
	if ph == finished {
		e.crashPoint("undo-before-unsettle")
		if err := e.root.Rename(e.originalSlot(i), e.newSlot(i)); err != nil {
			return false, "", err
		}
		e.crashPoint("undo-after-unsettle")
	}
	ok, err = e.exchangeVerified(path, e.newSlot(i), s.After, s.Before)
	if err != nil || ok {
		return ok, "", err
	}
	return false, changedSinceText, nil
}

func (e *engine) undoInTwo(i int) (bool, string, error) {
	s := &e.doc.Steps[i]
	path := string(s.Path)
	e.crashPoint("undo-before-aside")
	if err := e.move(path, e.newSlot(i)); err != nil {
		return false, "", err
	}
	e.crashPoint("undo-after-aside")
	ok, err := e.matches(e.newSlot(i), s.After)
	if err != nil {
		return false, "", err
	}
	if !ok {
		if err := e.move(e.newSlot(i), path); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, "", err
		}
		return false, changedSinceText, nil
	}
	return e.undoMoveAside(i, nil)
}

// undoMoveAside moves the original back to where nothing is.
func (e *engine) undoMoveAside(i int, now *image) (bool, string, error) {
	if now != nil {
		return false, "something was created there since", nil
	}
	e.crashPoint("undo-before-restore")
	err := e.move(e.originalSlot(i), string(e.doc.Steps[i].Path))
	e.crashPoint("undo-after-restore")
	if errors.Is(err, fs.ErrExist) {
		return false, "something was created there since", nil
	}
	return err == nil, "", err
}

func (e *engine) undoRemove(i int) (bool, string, error) {
	now, err := e.imageAt(e.doc.Steps[i].Path)
	if err != nil {
		return false, "", err
	}
	return e.undoMoveAside(i, now)
}
