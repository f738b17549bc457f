package writeback

import (
	"context"
	"errors"
	"io/fs"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// Left is a path that Abort did not touch, and why.
type Left struct {
	Path string
	Why  string
}

// Report says what an abort did.
type Report struct {
	Restored []string // paths that hold again what they held before
	Left     []Left   // paths that somebody changed since; their originals are in the plan's folder
	Rescued  []string // files with bytes that somebody wrote meanwhile and that are in no other place
}

// Abort puts back what the write-back in dir changed, each path only if it still holds what was written. A write-back
// whose changes are all in place cannot be aborted any more: it is finished, and the failure (RunState) says so. NotFound
// where nothing is pending.
func Abort(ctx context.Context, dir string) (Report, error) {
	p, err := needPending(dir)
	if err != nil {
		return Report{}, err
	}
	return p.abort(ctx)
}

func (p *Plan) abort(ctx context.Context) (Report, error) {
	e, err := p.open()
	if err != nil {
		return Report{}, err
	}
	defer e.close()
	switch p.doc.State {
	case Planned, Staged:
		if err := e.sweep(ctx); err != nil {
			return Report{}, halfAppliedBecause(p, err)
		}
		return Report{}, p.to(Aborted)
	case Applied:
		if err := e.sweep(ctx); err != nil {
			return Report{}, halfAppliedBecause(p, err)
		}
		if err := p.to(Done); err != nil {
			return Report{}, err
		}
		return Report{}, failure.New(failure.RunState, "every change was already in place when the write-back was interrupted; it is done and cannot be aborted any more. The originals are in %s", p.dir).
			WithHint("laufwerk runs show RUN")
	}
	if err := e.restage(ctx); err != nil {
		return Report{}, halfAppliedBecause(p, err)
	}
	if p.doc.State != Aborting {
		if err := p.to(Aborting); err != nil {
			return Report{}, err
		}
	}
	return e.finishAbort(ctx)
}

// finishAbort undoes the steps in reverse and removes the staging directory.
func (e *engine) finishAbort(ctx context.Context) (Report, error) {
	var r Report
	if err := e.restage(ctx); err != nil {
		return r, halfAppliedBecause(e.Plan, err)
	}
	for i := len(e.doc.Steps) - 1; i >= 0; i-- {
		path := string(e.doc.Steps[i].Path)
		did, why, err := e.undo(i)
		switch {
		case vanished(err):
			r.Left = append(r.Left, Left{path, "its directory was removed or replaced since"})
		case err != nil:
			return r, halfAppliedBecause(e.Plan, err)
		case why != "":
			r.Left = append(r.Left, Left{path, why})
		case did:
			r.Restored = append(r.Restored, path)
		}
	}
	if err := e.sync(); err != nil {
		return r, halfAppliedBecause(e.Plan, err)
	}
	if err := e.sweep(ctx); err != nil {
		return r, halfAppliedBecause(e.Plan, err)
	}
	r.Rescued = e.doc.Rescued
	return r, e.to(Aborted)
}

const changedSince = "it was changed after it was written"

// undo brings step i back to where nothing was done. did says that the source was changed; why that it was left.
func (e *engine) undo(i int) (did bool, why string, err error) {
	s := &e.doc.Steps[i]
	if s.Do == Chmod {
		return e.undoChmod(s)
	}
	ph, err := e.phase(i)
	if err != nil || ph == waiting || ph == unwanted {
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
	now, err := e.at(s.Path)
	if err != nil || now.is(s.Before) {
		return false, "", err
	}
	if !now.is(s.After) {
		return false, changedSince, nil
	}
	e.point("undo-before-chmod")
	err = e.root.Chmod(string(s.Path), s.Before.Mode)
	e.point("undo-after-chmod")
	return err == nil, "", err
}

func (e *engine) undoCreate(i int) (bool, string, error) {
	s := &e.doc.Steps[i]
	path := string(s.Path)
	now, err := e.at(s.Path)
	if err != nil || now == nil {
		return false, "", err
	}
	ok, err := e.matches(path, s.After)
	if err != nil || !ok {
		return false, changedSince, err
	}
	e.point("undo-before-create")
	if err := e.move(path, e.fresh(i)); err != nil {
		return false, "", err
	}
	e.point("undo-after-create")
	ok, err = e.matches(e.fresh(i), s.After)
	if err != nil || ok {
		return ok, "", err
	}
	if err := e.move(e.fresh(i), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return false, "", err
	}
	return false, changedSince, nil
}

func (e *engine) undoReplace(i int, ph phase) (bool, string, error) {
	s := &e.doc.Steps[i]
	path := string(s.Path)
	now, err := e.at(s.Path)
	if err != nil {
		return false, "", err
	}
	if ph == aside {
		return e.undoAside(i, now)
	}
	if now != nil && now.is(s.Before) {
		return false, "", nil
	}
	ok, err := e.matches(path, s.After)
	if err != nil || !ok || ph == lost {
		return false, changedSince, err
	}
	if e.doc.NoExchange {
		return e.undoInTwo(i)
	}
	if ph == finished {
		e.point("undo-before-unsettle")
		if err := e.root.Rename(e.displaced(i), e.fresh(i)); err != nil {
			return false, "", err
		}
		e.point("undo-after-unsettle")
	}
	ok, err = e.swap(path, e.fresh(i), s.After, s.Before)
	if err != nil || ok {
		return ok, "", err
	}
	return false, changedSince, nil
}

func (e *engine) undoInTwo(i int) (bool, string, error) {
	s := &e.doc.Steps[i]
	path := string(s.Path)
	e.point("undo-before-aside")
	if err := e.move(path, e.fresh(i)); err != nil {
		return false, "", err
	}
	e.point("undo-after-aside")
	ok, err := e.matches(e.fresh(i), s.After)
	if err != nil {
		return false, "", err
	}
	if !ok {
		if err := e.move(e.fresh(i), path); err != nil && !errors.Is(err, fs.ErrExist) {
			return false, "", err
		}
		return false, changedSince, nil
	}
	return e.undoAside(i, nil)
}

// undoAside moves the original back to where nothing is.
func (e *engine) undoAside(i int, now *image) (bool, string, error) {
	if now != nil {
		return false, "something was made there since", nil
	}
	e.point("undo-before-restore")
	err := e.move(e.displaced(i), string(e.doc.Steps[i].Path))
	e.point("undo-after-restore")
	if errors.Is(err, fs.ErrExist) {
		return false, "something was made there since", nil
	}
	return err == nil, "", err
}

func (e *engine) undoRemove(i int) (bool, string, error) {
	now, err := e.at(e.doc.Steps[i].Path)
	if err != nil {
		return false, "", err
	}
	return e.undoAside(i, now)
}
