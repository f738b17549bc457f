// Package writeback brings to the source exactly the bytes that were frozen and, where the workflow asks, approved.
//
// Check compares base, freeze and source path by path and refuses what may never be written; it changes nothing. Apply
// carries the resulting plan out. The plan is a file, and what has been done of it is read off the file system, so that a
// kill at any point leaves something that Continue or Abort brings to an end.
//
// How a plan moves:
//
//	planned   the plan is on disk and names the staging directory; the source is untouched
//	staged    new bytes and originals are on disk; the source is untouched
//	applying  the source changes
//	applied   everything is in place and verified; only the staging directory is left to be removed
//	done
//	aborting  what was changed is being put back
//	aborted
//
// Each changed path has a number i, and in the staging directory up to three names that say how far it has come: n<i> the
// new content, waiting; o<i> the original, displaced; x<i> new content that was not needed. One atomic rename leads from
// each state to the next.
//
// A conflict or an error while the source changes puts everything back by itself, if every path written so far still
// holds what was written; otherwise the write-back stays half applied and a person decides. Between the first change and
// the end the context is not asked: stopping there would leave what nobody wants.
//
// The caller holds the durable right to the source root around Check and Apply, and around Continue and Abort.
package writeback

import (
	"context"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// Request says what to write back, where to, and what is permitted.
type Request struct {
	Freeze     workspace.Freeze
	Source     string            // the source root, absolute; "" is the freeze's own
	Dir        string            // private folder of this write-back in the run's folder: plan and originals, kept until prune
	Allow      []string          // paths from the root, below a project's laufwerk/, that may change; a directory means all in it
	Approved   bool              // a person's answer is bound to the freeze's digest
	NoExchange bool              // do without the atomic exchange: a path is missing for a moment while it is replaced
	MaxFiles   int               // changed paths at most; the settings have the usual number
	MaxBytes   int64             // of new contents at most
	Vars       map[string]string // the environment: where git's configuration lies, which may name a hooks directory
	Now        func() time.Time
}

// Check compares and changes nothing. Failures: WriteBackRefused or WriteBackConflict with every path concerned in Paths and
// one condition per finding; HalfApplied where Dir holds a plan that Continue or Abort has to end first. A path that
// already holds what was frozen is no conflict and no step.
func Check(ctx context.Context, req Request) (*Plan, error) {
	if req.Source == "" {
		req.Source = req.Freeze.Source
	}
	if pending, err := Pending(req.Dir); err != nil {
		return nil, err
	} else if pending != nil {
		return nil, halfAppliedError(pending, nil)
	}
	root, err := openSource(req.Source, req.Freeze.Root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	c := newChecker(req, root)
	steps, err := c.run(ctx)
	if err != nil {
		return nil, err
	}
	return newPlan(req, steps)
}

// openSource opens the source root, which must still be the directory that the workspace was copied from.
func openSource(path string, want workspace.RootID) (*safefs.Root, error) {
	root, err := safefs.OpenRoot(path)
	if err != nil {
		return nil, failure.Wrap(err, failure.WriteBackConflict, "cannot open the source; nothing was changed")
	}
	dev, ino := root.ID()
	if (workspace.RootID{Dev: dev, Ino: ino}) != want {
		_ = root.Close()
		return nil, failure.New(failure.WriteBackConflict, "%s is another directory than the one that the workspace was opened from; nothing was changed. Restore the original directory, and resume", path).
			WithHint("laufwerk resume RUN")
	}
	return root, nil
}
