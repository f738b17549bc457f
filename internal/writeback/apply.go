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
	return e.goOn(ctx)
}

// Continue brings the write-back in dir to its end after a kill. If everything was being put back, that is what it ends,
// and the failure says why. NotFound where nothing is pending. noExchange does without the atomic exchange also where that was
// not asked for when the write-back began, if it had not come so far as to try it.
func Continue(ctx context.Context, dir string, noExchange bool) error {
	p, err := needPending(dir)
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
	return e.goOn(ctx)
}

func needPending(dir string) (*Plan, error) {
	p, err := Pending(dir)
	if err == nil && p == nil {
		err = failure.New(failure.NotFound, "no write-back is half applied here").WithHint("laufwerk runs list --all")
	}
	return p, err
}

// goOn does what is left from the state that the plan is in.
func (e *engine) goOn(ctx context.Context) error {
	if e.doc.State == Aborting {
		_, err := e.finishAbort(ctx)
		if err != nil {
			return err
		}
		return e.whyAborted()
	}
	if e.doc.State == Planned {
		if err := e.prepare(ctx); err != nil {
			return err
		}
	}
	if e.doc.State == Staged || e.doc.State == Applying {
		if err := e.change(ctx); err != nil {
			return err
		}
	}
	if err := e.sweep(ctx); err != nil {
		return halfAppliedBecause(e.Plan, err)
	}
	return e.to(Done)
}

// prepare stages; what fails leaves nothing behind.
func (e *engine) prepare(ctx context.Context) error {
	if err := e.sweep(ctx); err != nil {
		return halfAppliedBecause(e.Plan, err)
	}
	err := e.stage(ctx)
	if err == nil {
		err = e.to(Staged)
	}
	if err == nil {
		return nil
	}
	if e.sweep(ctx) == nil {
		e.doc.Cause, e.doc.CauseKind = err.Error(), failure.KindOf(err)
		_ = e.to(Aborted) // on a full disk it stays planned, with nothing changed, and Continue or Abort ends it
	}
	return err
}

// change makes the source what the plan says.
func (e *engine) change(ctx context.Context) error {
	if err := e.restage(ctx); err != nil {
		return halfAppliedBecause(e.Plan, err)
	}
	if e.doc.State == Staged {
		if err := e.to(Applying); err != nil {
			return err
		}
	}
	for i := range e.doc.Steps {
		path := string(e.doc.Steps[i].Path)
		why, err := e.apply(i)
		if err != nil {
			why = "" // nothing is known of the source then
		}
		if vanished(err) {
			why, err = "it or its directory was removed or replaced in the source while the write-back was under way", nil
		}
		if why != "" || err != nil {
			return e.putBack(ctx, path, why, err)
		}
	}
	if path, why, err := e.verify(); why != "" || err != nil {
		return e.putBack(ctx, path, why, err)
	}
	e.point("before-sync")
	if err := e.sync(); err != nil {
		return e.putBack(ctx, e.doc.Source, "", err)
	}
	return e.to(Applied)
}

// vanished says that a path, or what leads to it, is not what it was a moment ago.
func vanished(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, safefs.ErrNotDir) || errors.Is(err, safefs.ErrLink)
}

// apply does step i, or what is left of it. why is a conflict: the source is not what was compared.
func (e *engine) apply(i int) (why string, err error) {
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
	changedMeanwhile = "it was changed in the source while the write-back was under way"
	takenMeanwhile   = "something was made there in the source while the write-back was under way"
)

func (e *engine) create(i int) (string, error) {
	ph, err := e.phase(i)
	if err != nil || ph != waiting {
		return "", err
	}
	s := &e.doc.Steps[i]
	e.point("before-create")
	err = e.move(e.fresh(i), string(s.Path))
	e.point("after-create")
	if !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	now, err := e.at(s.Path)
	if err != nil {
		return "", err
	}
	if now.is(s.After) {
		return "", e.root.Rename(e.fresh(i), e.unneeded(i))
	}
	return takenMeanwhile, nil
}

func (e *engine) replace(i int) (string, error) {
	ph, err := e.phase(i)
	if err != nil {
		return "", err
	}
	s := &e.doc.Steps[i]
	path := string(s.Path)
	switch ph {
	case finished, unwanted:
		return "", nil
	case lost:
		return "its place in the staging directory was emptied by somebody", nil
	case aside:
		return e.install(i)
	case exchanged:
		ok, err := e.swapped(path, e.fresh(i), s.Before, s.After)
		if err != nil || !ok {
			return changedMeanwhile, err
		}
		return e.settle(i)
	}
	now, err := e.at(s.Path)
	if err != nil {
		return "", err
	}
	if now.is(s.After) {
		return "", e.root.Rename(e.fresh(i), e.unneeded(i))
	}
	if ok, err := e.matches(path, s.Before); err != nil || !ok {
		return changedMeanwhile, err
	}
	if e.doc.NoExchange {
		return e.replaceInTwo(i)
	}
	ok, err := e.swap(path, e.fresh(i), s.Before, s.After)
	if err != nil || !ok {
		return changedMeanwhile, err
	}
	return e.settle(i)
}

// settle notes that what came out of an exchange was the original.
func (e *engine) settle(i int) (string, error) {
	e.point("before-settle")
	err := e.root.Rename(e.fresh(i), e.displaced(i))
	e.point("after-settle")
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
	e.point("before-install")
	err := e.move(e.fresh(i), string(s.Path))
	e.point("after-install")
	if errors.Is(err, fs.ErrExist) {
		return takenMeanwhile, nil
	}
	return "", err
}

// moveAside renames a path of the source into the staging directory and looks at what was moved.
func (e *engine) moveAside(i int, want *image) (string, error) {
	path, slot := string(e.doc.Steps[i].Path), e.displaced(i)
	e.point("before-aside")
	if err := e.move(path, slot); err != nil {
		return "", err
	}
	e.point("after-aside")
	ok, err := e.matches(slot, want)
	if ok || err != nil {
		return "", err
	}
	if err := e.move(slot, path); err != nil && !errors.Is(err, fs.ErrExist) { // what is there now is newer; the other is rescued
		return "", err
	}
	return changedMeanwhile, nil
}

func (e *engine) chmod(i int) (string, error) {
	s := &e.doc.Steps[i]
	now, err := e.at(s.Path)
	if err != nil || now.is(s.After) {
		return "", err
	}
	if !now.is(s.Before) {
		return changedMeanwhile, nil
	}
	e.point("before-chmod")
	err = e.root.Chmod(string(s.Path), s.After.Mode)
	e.point("after-chmod")
	return "", err
}

func (e *engine) remove(i int) (string, error) {
	ph, err := e.phase(i)
	if err != nil || ph != waiting {
		return "", err
	}
	s := &e.doc.Steps[i]
	now, err := e.at(s.Path)
	if err != nil || now == nil {
		return "", err
	}
	ok, err := e.matches(string(s.Path), s.Before)
	if err != nil || !ok {
		return changedMeanwhile, err
	}
	return e.moveAside(i, s.Before)
}

// verify looks at every displaced original once more: an editor that held the file open may have written into it after it
// was displaced.
func (e *engine) verify() (path, why string, err error) {
	e.point("before-verify")
	for i := range e.doc.Steps {
		s := &e.doc.Steps[i]
		there, err := e.root.Exists(e.displaced(i))
		if err != nil {
			return string(s.Path), "", err
		}
		if !there {
			continue
		}
		ok, err := e.matches(e.displaced(i), s.Before)
		if err != nil {
			return string(s.Path), "", err
		}
		if !ok {
			return string(s.Path), "something that had it open wrote into it while the write-back was under way", nil
		}
	}
	return "", "", nil
}

// putBack answers a conflict or an error in the middle of the change. If every path written so far still holds what was
// written, all of it is put back and the source is as it was. Otherwise nothing more is touched.
func (e *engine) putBack(ctx context.Context, path, why string, cause error) error {
	var found findings
	if why != "" {
		found.conflict(path, "%s", why)
	}
	foreign, err := e.foreign()
	if err != nil || len(foreign) > 0 {
		return halfApplied(e.Plan, append(found, foreign...))
	}
	e.doc.Why = found
	if cause != nil {
		b := broken(cause, path, "everything was put back")
		e.doc.Cause, e.doc.CauseKind = b.Error(), failure.KindOf(b)
	}
	if err := e.to(Aborting); err != nil {
		return halfAppliedBecause(e.Plan, err)
	}
	if _, err := e.finishAbort(ctx); err != nil {
		return err
	}
	return e.whyAborted()
}

// foreign are the paths that were written and changed by somebody since.
func (e *engine) foreign() (findings, error) {
	var out findings
	for i := range e.doc.Steps {
		s := &e.doc.Steps[i]
		if s.After == nil {
			continue
		}
		ph, err := e.phase(i)
		if err != nil {
			return nil, err
		}
		if ph != finished && ph != exchanged {
			continue
		}
		now, err := e.at(s.Path)
		if err != nil {
			return nil, err
		}
		if !now.is(s.After) {
			out.conflict(string(s.Path), "it was changed in the source after it was written")
		}
	}
	return out, nil
}

// whyAborted is the failure of a write-back that put everything back.
func (e *engine) whyAborted() error {
	outcome := "everything was put back"
	if f := e.doc.Why.failure(outcome); f != nil {
		return f
	}
	if e.doc.Cause != "" {
		return failure.New(e.doc.CauseKind, "%s", e.doc.Cause).WithHint("laufwerk resume RUN")
	}
	return failure.New(failure.NotApproved, "the write-back was aborted")
}

func halfAppliedBecause(p *Plan, err error) error {
	if failure.Is(err, failure.HalfApplied) {
		return err
	}
	e := halfApplied(p, nil)
	e.Err = fmt.Errorf("it cannot go on: %w", err)
	return e
}
