package writeback

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// State of a plan; the package's comment says how they follow each other.
type State string

// The states.
const (
	Planned  State = "planned"
	Staged   State = "staged"
	Applying State = "applying"
	Applied  State = "applied"
	Done     State = "done"
	Aborting State = "aborting"
	Aborted  State = "aborted"
)

const (
	planFile   = "plan.json"
	planFormat = "1.0"
)

// Action is what a step does to its path.
type Action string

// The actions.
const (
	Create  Action = "create"  // nothing was there
	Replace Action = "replace" // exchanged with what was there
	Chmod   Action = "chmod"
	Remove  Action = "remove"
)

// Step is one change to the source, for listings.
type Step struct {
	Path   string         `json:"path"`
	Action Action         `json:"action"`
	Type   workspace.Type `json:"type"`           // of what will be there; of what was there for Remove
	Mode   uint32         `json:"mode,omitempty"` // that a file or directory will have; 0 for Remove and links
	Size   int64          `json:"size"`           // of a file's new content
	Note   string         `json:"note,omitempty"` // what a person may want to know: a hard link that breaks, an owner that changes
}

// Plan is one write-back, as it is kept in its folder.
type Plan struct {
	dir string
	doc document
	// observe is told each crash point in the order in which they are reached. Tests change the source there.
	observe func(point string)
}

type document struct {
	Format     string           `json:"format"`
	ID         string           `json:"id"`
	State      State            `json:"state"`
	Digest     string           `json:"digest"`
	Unapproved bool             `json:"unapproved,omitempty"`
	At         time.Time        `json:"at"`
	Source     string           `json:"source"`
	Root       workspace.RootID `json:"root"`
	Freeze     string           `json:"freeze"`  // folder of the freeze
	Staging    string           `json:"staging"` // name in the source's root
	NoExchange bool             `json:"noExchange,omitempty"`
	Steps      []step           `json:"steps"`               // in the order in which they are carried out
	Why        findings         `json:"why,omitempty"`       // what made it put everything back
	Rescued    []string         `json:"rescued,omitempty"`   // files in the plan's folder with bytes that somebody wrote meanwhile
	Cause      string           `json:"cause,omitempty"`     // the error that made it put everything back
	CauseKind  failure.Kind     `json:"causeKind,omitempty"` //
}

type step struct {
	Path   rawPath `json:"path"`
	Do     Action  `json:"do"`
	Before *image  `json:"before,omitempty"` // what the source held at the check
	After  *image  `json:"after,omitempty"`  // what it is to hold, with the mode that it gets
	Note   string  `json:"note,omitempty"`
}

func newPlan(req Request, steps []step) (*Plan, error) {
	id := make([]byte, 6)
	if _, err := rand.Read(id); err != nil {
		return nil, failure.Wrap(err, failure.Internal, "no random bytes for the write-back's name")
	}
	d := document{
		Format: planFormat, ID: hex.EncodeToString(id), Digest: req.Freeze.Digest, Unapproved: !req.Approved, At: req.Now().UTC(),
		Source: req.Source, Root: req.Freeze.Root, Freeze: req.Freeze.Dir, NoExchange: req.NoExchange, Steps: steps,
	}
	d.Staging = stagingPrefix + d.ID
	return &Plan{dir: req.Dir, doc: d}, nil
}

// Pending is the plan in dir that is neither done nor aborted, nil where there is none.
func Pending(dir string) (*Plan, error) {
	p, err := loadPlan(dir)
	if err != nil || p == nil || p.doc.State == Done || p.doc.State == Aborted {
		return nil, err
	}
	return p, nil
}

// Finished is the last plan in dir if it was carried out whole, nil otherwise.
func Finished(dir string) (*Plan, error) {
	p, err := loadPlan(dir)
	if err != nil || p == nil || p.doc.State != Done {
		return nil, err
	}
	return p, nil
}

func loadPlan(dir string) (*Plan, error) {
	p := &Plan{dir: dir}
	err := files.ReadJSON(filepath.Join(dir, planFile), &p.doc)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failure.Wrap(err, failure.StoreInvalid, "the write-back's plan cannot be read")
	}
	if major, _, _ := strings.Cut(p.doc.Format, "."); major != "1" {
		return nil, failure.New(failure.StoreNewer, "the write-back's plan in %s has format %q; this laufwerk reads 1.x", dir, p.doc.Format).
			WithHint("use the version of laufwerk that started it")
	}
	return p, nil
}

// Digest is the freeze's.
func (p *Plan) Digest() string { return p.doc.Digest }

// Unapproved says that no person's answer was bound to the digest.
func (p *Plan) Unapproved() bool { return p.doc.Unapproved }

// Steps are the changes in the order in which they are carried out; none where the source already holds what was frozen.
func (p *Plan) Steps() []Step {
	out := make([]Step, 0, len(p.doc.Steps))
	for _, s := range p.doc.Steps {
		of := s.After
		if of == nil {
			of = s.Before
		}
		st := Step{Path: string(s.Path), Action: s.Do, Type: of.Type, Note: s.Note}
		if s.Do != Remove {
			st.Size = of.Size
			if of.Type != workspace.Symlink {
				st.Mode = of.Mode
			}
		}
		out = append(out, st)
	}
	return out
}

// setState records the next state durably.
func (p *Plan) setState(s State) error {
	p.crashPoint("before-" + string(s))
	previous := p.doc.State
	p.doc.State = s
	if err := files.WriteJSON(filepath.Join(p.dir, planFile), &p.doc); err != nil {
		p.doc.State = previous
		return failure.Wrap(err, failure.HomeInvalid, "cannot record that the write-back is %s", s)
	}
	p.crashPoint("after-" + string(s))
	return nil
}

func (p *Plan) crashPoint(name string) {
	if p.observe != nil {
		p.observe(name)
	}
	crash.Point("writeback/" + name)
}

// start makes the plan durable for the first time; a plan that came to its end in the same folder keeps its record beside it.
func (p *Plan) start() error {
	if err := files.MkdirAll(p.dir); err != nil {
		return failure.Wrap(err, failure.Failed, "cannot make the write-back's folder")
	}
	old, err := loadPlan(p.dir)
	if err != nil {
		return err
	}
	if old != nil {
		if old.doc.State != Done && old.doc.State != Aborted {
			return halfAppliedError(old, nil)
		}
		if err := files.Rename(filepath.Join(p.dir, planFile), filepath.Join(p.dir, "plan-"+old.doc.ID+".json")); err != nil {
			return failure.Wrap(err, failure.Failed, "cannot put the earlier plan aside")
		}
	}
	return p.setState(Planned)
}

// halfAppliedError is the failure of a write-back that a person has to end.
func halfAppliedError(p *Plan, why findings) *failure.Error {
	e := failure.New(failure.HalfApplied, "a write-back to %s is %s and not finished", p.doc.Source, p.doc.State).
		WithHint("laufwerk writeback continue RUN\nlaufwerk writeback abort RUN")
	if len(why) > 0 {
		f := why.failure("")
		e.Paths, e.Conditions = f.Paths, f.Conditions
		e.Message += "; these paths have neither the previous nor the written content"
	}
	return e.WithField("state", string(p.doc.State))
}

// finding is one reason why one path cannot be written back.
type finding struct {
	Path    rawPath `json:"path"`
	Why     string  `json:"why"`
	Refused bool    `json:"refused,omitempty"` // may never be written, whatever the source holds
}

type findings []finding

func (f *findings) refuse(path, format string, args ...any) {
	*f = append(*f, finding{rawPath(path), fmt.Sprintf(format, args...), true})
}

func (f *findings) conflict(path, format string, args ...any) {
	*f = append(*f, finding{rawPath(path), fmt.Sprintf(format, args...), false})
}

func (f findings) paths() []string {
	var out []string
	for _, x := range f {
		out = append(out, string(x.Path))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// failure is the one failure that stands for all findings, nil where there are none. outcome says what became of the source.
func (f findings) failure(outcome string) *failure.Error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b finding) int { return strings.Compare(string(a.Path), string(b.Path)) })
	refused := slices.ContainsFunc(f, func(x finding) bool { return x.Refused })
	paths := f.paths()
	var e *failure.Error
	if refused {
		e = failure.New(failure.WriteBackRefused, "the write-back is refused because of %s; %s. Undo these changes in the workspace", countPaths(len(paths)), outcome).
			WithHint("laufwerk diff RUN")
	} else {
		e = failure.New(failure.WriteBackConflict,
			"the source and the workspace both changed %s; %s. Change the source back to what it was when the workspace was opened, or to what the workspace contains, and resume",
			countPaths(len(paths)), outcome).WithHint("laufwerk diff RUN\nlaufwerk resume RUN")
	}
	e.Paths = paths
	for _, x := range f {
		e.Conditions = append(e.Conditions, failure.Condition{ID: string(x.Path), Message: x.Why})
	}
	return e
}

func countPaths(n int) string {
	if n == 1 {
		return "1 path"
	}
	return fmt.Sprintf("%d paths", n)
}
