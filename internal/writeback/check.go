package writeback

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// checker compares base, freeze and source, and collects every finding.
type checker struct {
	req         Request
	root        *safefs.Root
	changes     []*pathChange // by path bytes, so that a directory comes before what is in it
	byPath      map[string]*pathChange
	byDirectory map[string][]*pathChange // by the directory that holds them
	listing     map[string][]string
	folds       map[string]bool
	findings    findings
}

// pathChange is one path of the freeze with what the source holds there.
type pathChange struct {
	path          string
	before, after *image
	source        *image
	info          safefs.Info
	barred        bool // has a finding of its own, or was not looked at
	do            Action
	result        *image // what the source will hold, with the mode that it gets; for a step that is not Remove
}

func newChecker(req Request, root *safefs.Root) *checker {
	return &checker{req: req, root: root, byPath: map[string]*pathChange{}, byDirectory: map[string][]*pathChange{}, listing: map[string][]string{}, folds: map[string]bool{}}
}

func (c *checker) run(ctx context.Context) ([]step, error) {
	if err := c.loadChanges(); err != nil {
		return nil, err
	}
	for _, ch := range c.changes {
		if err := ctx.Err(); err != nil {
			return nil, failure.Wrap(err, failure.Interrupted, "the write-back was interrupted before it changed anything")
		}
		c.checkChange(ch)
	}
	c.checkEmptied()
	c.checkLinks()
	c.repositories()
	c.checkHooks()
	c.checkProjects()
	c.collisions()
	if e := c.findings.failure("nothing was changed"); e != nil {
		return nil, e
	}
	return c.orderSteps(), nil
}

// loadChanges takes the freeze's changes and holds them against the bounds.
func (c *checker) loadChanges() error {
	var bytes int64
	for i := range c.req.Freeze.Changes {
		ch := &c.req.Freeze.Changes[i]
		if ch.Before == nil && ch.After == nil {
			continue
		}
		n := &pathChange{path: ch.Path, before: imageOf(ch.Before), after: imageOf(ch.After)}
		if c.byPath[n.path] != nil {
			return failure.New(failure.Internal, "the freeze names %q twice", n.path)
		}
		c.byPath[n.path] = n
		c.byDirectory[parent(n.path)] = append(c.byDirectory[parent(n.path)], n)
		c.changes = append(c.changes, n)
		if n.after != nil && n.after.Type == workspace.File && !n.after.sameContent(n.before) {
			bytes += n.after.Size
		}
	}
	slices.SortFunc(c.changes, func(a, b *pathChange) int { return strings.Compare(a.path, b.path) })
	if len(c.changes) <= c.req.MaxFiles && bytes <= c.req.MaxBytes {
		return nil
	}
	e := failure.New(failure.WriteBackRefused, "the write-back is refused: %d changed paths with %d bytes of new content, where at most %d paths and %d bytes are permitted; nothing was changed. The settings are writeback.maxFiles and writeback.maxBytes",
		len(c.changes), bytes, c.req.MaxFiles, c.req.MaxBytes).
		WithHint("laufwerk diff RUN")
	for _, ch := range c.changes {
		e.Paths = append(e.Paths, ch.path)
	}
	return e
}

// refuse records why a path may never be written; conflict why it cannot be now.
func (c *checker) refuse(ch *pathChange, format string, args ...any) {
	ch.barred = true
	c.findings.refuse(ch.path, format, args...)
}

func (c *checker) conflict(ch *pathChange, format string, args ...any) {
	ch.barred = true
	c.findings.conflict(ch.path, format, args...)
}

// checkChange judges a change by itself.
func (c *checker) checkChange(ch *pathChange) {
	if why := refusedName(ch.path); why != "" {
		c.refuse(ch, "%s", why)
		return
	}
	for _, i := range []*image{ch.before, ch.after} {
		if i != nil && i.Type != workspace.File && i.Type != workspace.Dir && i.Type != workspace.Symlink {
			c.refuse(ch, "it is a %s", i.Link)
			return
		}
	}
	switch c.parentsOf(ch) {
	case parentsRefused:
		return
	case parentsPresent:
		var err error
		if ch.source, err = read(c.root, ch.path); err == nil && ch.source != nil {
			ch.info, err = c.root.Lstat(ch.path)
		}
		if errors.Is(err, safefs.ErrMount) {
			c.refuse(ch, "something is mounted there in the source")
			return
		}
		if err != nil {
			c.conflict(ch, "it cannot be read in the source: %v", rootCause(err))
			return
		}
	}
	c.compare(ch)
}

// parents is what the directories above a change's path are in the source.
type parents int

const (
	parentsPresent parents = iota
	parentsAbsent          // so the path is absent as well
	parentsRefused         // the change cannot be applied, and was reported
)

// parentsOf examines the directories above a change's path.
func (c *checker) parentsOf(ch *pathChange) parents {
	for _, dir := range ancestors(ch.path) {
		info, err := c.root.Lstat(dir)
		missing := errors.Is(err, fs.ErrNotExist)
		d := c.byPath[dir]
		switch {
		case err != nil && !missing:
			c.conflict(ch, "its directory %q cannot be read in the source: %v", dir, rootCause(err))
			return parentsRefused
		case !missing && info.Mount:
			c.refuse(ch, "something is mounted at its directory %q in the source", dir)
			return parentsRefused
		case d != nil && !d.after.isDir() && ch.after != nil:
			c.refuse(ch, "its directory %q is not a directory in the workspace", dir)
			return parentsRefused
		case !missing && info.Type == safefs.Dir:
		case d != nil: // becomes a directory, or stops being one; what the source has instead is d's own affair
			return parentsAbsent
		case !missing && info.Type == safefs.Symlink:
			c.refuse(ch, "its directory %q is a link in the source", dir)
			return parentsRefused
		case ch.after == nil: // gone already
			return parentsAbsent
		case missing:
			c.conflict(ch, "its directory %q is no longer in the source", dir)
			return parentsRefused
		default:
			c.conflict(ch, "its directory %q is a %s in the source", dir, info.Type)
			return parentsRefused
		}
	}
	return parentsPresent
}

// compare holds base, freeze and source of one path against each other.
func (c *checker) compare(ch *pathChange) {
	base, frozen, source := ch.before, ch.after, ch.source
	switch {
	case frozen == nil && source == nil:
	case frozen == nil && source.sameContent(base):
		ch.do = Remove
	case source == nil && base == nil:
		ch.do, ch.result = Create, c.resultingImage(frozen, newMode(frozen.Mode))
	case source == nil:
		c.conflict(ch, "it is no longer in the source")
	case source.sameContent(frozen):
		c.sameContent(ch)
	case frozen != nil && source.sameContent(base):
		mode := newMode(frozen.Mode)
		if source.Type == workspace.File && frozen.Type == workspace.File {
			mode = mergeMode(source.Mode, base.Mode, frozen.Mode)
		}
		ch.do, ch.result = Replace, c.resultingImage(frozen, mode)
	case base == nil:
		c.conflict(ch, "the source has a %s there now", source.describe())
	case source.Type != base.Type:
		c.conflict(ch, "it was a %s and is a %s in the source now", base.describe(), source.describe())
	default:
		c.conflict(ch, "it was changed in the source after the workspace was opened")
	}
}

// sameContent: nothing is to be written, but perhaps the executable bits are to be set.
func (c *checker) sameContent(ch *pathChange) {
	source, frozen := ch.source, ch.after
	if source.Type != workspace.File || executable(source.Mode) == executable(frozen.Mode) {
		return
	}
	if ch.before == nil || ch.before.Type != workspace.File {
		c.conflict(ch, "the source has the same file now, with other executable bits")
		return
	}
	if mode := mergeMode(source.Mode, ch.before.Mode, frozen.Mode); executable(mode) != executable(source.Mode) {
		ch.do, ch.result = Chmod, c.resultingImage(source, mode)
	}
}

func (c *checker) resultingImage(of *image, mode uint32) *image {
	n := *of
	n.Mode = mode
	switch n.Type {
	case workspace.Dir:
		n.Mode, n.Size = 0o755, 0
	case workspace.Symlink:
		n.Mode, n.Size = 0, 0
	}
	return &n
}

func (i *image) describe() string {
	if i.Type == workspace.Other {
		return string(i.Link)
	}
	return map[workspace.Type]string{workspace.File: "file", workspace.Dir: "directory", workspace.Symlink: "link"}[i.Type]
}

// checkEmptied finds directories that are to go, or to become something else, and still hold something in the source.
func (c *checker) checkEmptied() {
	for _, ch := range c.changes {
		if ch.barred || !ch.source.isDir() || ch.do != Remove && ch.do != Replace {
			continue
		}
		names, err := c.listNames(ch.path)
		if err != nil {
			c.conflict(ch, "it cannot be read in the source: %v", rootCause(err))
			continue
		}
		var left []string
		for _, n := range names {
			if in := c.byPath[join(ch.path, n)]; in == nil || in.after != nil {
				left = append(left, fmt.Sprintf("%q", n))
			}
		}
		if len(left) > 0 {
			c.conflict(ch, "the source's directory also has %s", strings.Join(left, ", "))
		}
	}
}

// listNames lists a directory of the source; one that is not there is empty.
func (c *checker) listNames(dir string) ([]string, error) {
	if l, ok := c.listing[dir]; ok {
		return l, nil
	}
	l, err := c.root.ReadDir(dir)
	if isVanished(err) {
		l, err = nil, nil
	}
	if err == nil {
		c.listing[dir] = l
	}
	return l, err
}

// orderSteps puts the changes into the order in which they can be carried out: directories from the top, then files and links,
// then removals from the bottom, and last what takes the place of an emptied directory.
func (c *checker) orderSteps() []step {
	var phases [4][]step
	for _, ch := range c.changes {
		if ch.do == "" {
			continue
		}
		s := step{Path: rawPath(ch.path), Do: ch.do, Before: ch.source, After: ch.result, Note: c.describeSideEffects(ch)}
		phase := 1
		switch {
		case ch.do == Remove:
			phase = 2
		case ch.result.isDir():
			phase = 0
		case ch.source.isDir():
			phase = 3
		}
		phases[phase] = append(phases[phase], s)
	}
	slices.Reverse(phases[2])
	return slices.Concat(phases[:]...)
}

// describeSideEffects says what changes beside the path itself.
func (c *checker) describeSideEffects(ch *pathChange) string {
	if ch.source == nil || ch.source.Type != workspace.File || ch.do == Remove {
		return ""
	}
	var notes []string
	if n := ch.info.Nlink; n > 1 && ch.do == Chmod {
		notes = append(notes, fmt.Sprintf("the file has %d names, and all change", n))
	} else if n > 1 {
		notes = append(notes, fmt.Sprintf("the file has %d names, and only this one gets the new content", n))
	}
	if ch.do == Replace {
		if me := uint32(system.UID()); ch.info.UID != me {
			notes = append(notes, fmt.Sprintf("its owner changes from user %d to %d", ch.info.UID, me))
		}
		if ch.source.Mode&^0o777 != 0 {
			notes = append(notes, "setuid, setgid and sticky are dropped")
		}
	}
	return strings.Join(notes, "; ")
}

// rootCause is what went wrong without the operation and the path, which the finding names already.
func rootCause(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}
