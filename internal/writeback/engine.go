package writeback

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// engine carries a plan out, or back, in the open source root.
type engine struct {
	*Plan
	root *safefs.Root
}

func (p *Plan) open() (*engine, error) {
	root, err := openSource(p.doc.Source, p.doc.Root)
	if err != nil {
		return nil, err
	}
	return &engine{Plan: p, root: root}, nil
}

func (e *engine) close() { _ = e.root.Close() }

// The three names of step i in the staging directory.
func (e *engine) newSlot(i int) string      { return e.stagingPath("n", i) }
func (e *engine) originalSlot(i int) string { return e.stagingPath("o", i) }
func (e *engine) removedSlot(i int) string  { return e.stagingPath("x", i) }

func (e *engine) stagingPath(kind string, i int) string {
	return e.doc.Staging + "/" + kind + strconv.Itoa(i)
}

// phase is how far a step has come, as its names in the staging directory tell.
type phase int

const (
	phaseWaiting phase = iota // nothing was done
	exchanged                 // the new content is in place, the displaced original was not verified yet
	aside                     // without exchange: the original is aside, nothing is in place
	finished                  // in place, and what was displaced is o<i>
	unwanted                  // the source had it already
	lost                      // neither name is there: somebody removed them
)

func (e *engine) stepPhase(i int) (phase, error) {
	s := &e.doc.Steps[i]
	if s.Do == Chmod {
		return phaseWaiting, nil
	}
	n, err := e.root.Exists(e.newSlot(i))
	if err != nil {
		return 0, err
	}
	o, err := e.root.Exists(e.originalSlot(i))
	if err != nil {
		return 0, err
	}
	x, err := e.root.Exists(e.removedSlot(i))
	if err != nil {
		return 0, err
	}
	switch {
	case x:
		return unwanted, nil
	case s.Do == Remove && o, s.Do == Create && !n, s.Do == Replace && o && !n:
		return finished, nil
	case s.Do == Remove, s.Do == Create:
		return phaseWaiting, nil
	case n && o:
		return aside, nil
	case !n:
		return lost, nil
	case e.doc.NoExchange:
		return phaseWaiting, nil
	}
	in, err := read(e.root, e.newSlot(i))
	if err != nil {
		return 0, err
	}
	if in.sameContent(s.After) {
		return phaseWaiting, nil
	}
	return exchanged, nil
}

// imageAt is the image of a path of the source; where its directory is no longer one, nothing is there.
func (e *engine) imageAt(path rawPath) (*image, error) {
	i, err := read(e.root, string(path))
	if errors.Is(err, safefs.ErrNotDir) || errors.Is(err, safefs.ErrLink) {
		return nil, nil
	}
	return i, err
}

// matches says whether a path holds exactly want; a directory must be empty, for nothing else can be moved whole.
func (e *engine) matches(path string, want *image) (bool, error) {
	got, err := read(e.root, path)
	if err != nil || !got.equals(want) {
		return false, err
	}
	if got.isDir() {
		return isEmpty(e.root, path)
	}
	return true, nil
}

// move renames and never replaces. Without exchange, a file system that cannot promise that is looked at before.
func (e *engine) move(from, to string) error {
	err := e.root.RenameNoReplace(from, to)
	if !errors.Is(err, safefs.ErrNotSupported) || !e.doc.NoExchange {
		return err
	}
	there, err := e.root.Exists(to)
	if err != nil {
		return err
	}
	if there {
		return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
	}
	return e.root.Rename(from, to)
}

// exchangeVerified exchanges a path of the source with a name in the staging directory, where want must come out. If anything else
// does, somebody changed the path in between: it is exchanged back, and false comes. Should that bring out something newer
// still, the newest stays in the source and the other bytes are rescued when the staging directory goes.
func (e *engine) exchangeVerified(path, slot string, want, gave *image) (bool, error) {
	e.crashPoint("before-exchange")
	if err := e.root.Exchange(path, slot); err != nil {
		return false, err
	}
	e.crashPoint("after-exchange")
	return e.wasExchanged(path, slot, want, gave)
}

func (e *engine) wasExchanged(path, slot string, want, gave *image) (bool, error) {
	ok, err := e.matches(slot, want)
	if ok || err != nil {
		return ok, err
	}
	now, err := read(e.root, path)
	if err != nil || !now.sameContent(gave) {
		return false, err
	}
	e.crashPoint("before-exchange-back")
	if err := e.root.Exchange(path, slot); err != nil {
		return false, err
	}
	e.crashPoint("after-exchange-back")
	out, err := read(e.root, slot)
	if err == nil && !out.sameContent(gave) {
		err = e.root.Exchange(path, slot)
	}
	return false, err
}

// touchedDirs are the directories of the source whose names a plan changes.
func (e *engine) touchedDirs() []string {
	var out []string
	seen := map[string]bool{}
	for _, s := range e.doc.Steps {
		if d := parent(string(s.Path)); !seen[d] {
			seen[d] = true
			out = append(out, d)
		}
	}
	return out
}

// sync makes all renames durable. A directory that is gone again needs nothing.
func (e *engine) sync() error {
	for _, d := range append(e.touchedDirs(), e.doc.Staging) {
		if err := e.root.SyncDir(d); err != nil && !isVanished(err) {
			return err
		}
	}
	return nil
}

// ioFailure turns an error of the file system into a failure that says what became of the source. It is the machine that is not
// ready: the run waits for it, with what was approved.
func ioFailure(err error, path, outcome string) error {
	if e := failure.As(err); e != nil {
		return err
	}
	e := failure.New(failure.NotReady, "cannot write %q to the source: %v; %s", path, err, outcome).WithHint("laufwerk resume RUN").WithPaths(path)
	e.Conditions = []failure.Condition{{ID: path, Message: fmt.Sprint(rootCause(err))}}
	return e
}
