package writeback

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

const untouchedText = "nothing was changed"

// stage puts everything that the change needs on disk: the originals into the plan's folder, the new contents into the
// staging directory on the source's own file system. Whatever fails here, a full disk above all, changes nothing.
func (e *engine) stage(ctx context.Context) error {
	if err := e.makeStaging(e.doc.Staging); err != nil {
		return ioFailure(err, e.doc.Staging, untouchedText)
	}
	e.crashPoint("after-mkdir-staging")
	if err := e.probe(); err != nil {
		return err
	}
	if err := files.MkdirAll(filepath.Join(e.dir, "originals")); err != nil {
		return failure.Wrap(err, failure.Failed, "cannot keep the originals; %s", untouchedText)
	}
	var found findings
	for i := range e.doc.Steps {
		if err := ctx.Err(); err != nil {
			return failure.Wrap(err, failure.Interrupted, "the write-back was interrupted; %s", untouchedText)
		}
		s := &e.doc.Steps[i]
		e.crashPoint("before-stage")
		same, err := e.keepOriginal(s)
		if err != nil {
			return failure.Wrap(err, failure.Failed, "cannot keep the original of %q; %s", string(s.Path), untouchedText)
		}
		if !same {
			found.conflict(string(s.Path), "it was changed in the source while the write-back began")
			continue
		}
		if err := e.stageNew(e.doc.Staging, i); err != nil {
			return ioFailure(err, string(s.Path), untouchedText)
		}
		e.crashPoint("after-stage")
	}
	if f := found.failure(untouchedText); f != nil {
		return f
	}
	if err := e.syncStaging(e.doc.Staging); err != nil {
		return ioFailure(err, e.doc.Staging, untouchedText)
	}
	return nil
}

// makeStaging makes the staging directory, in which a file lets git ignore all of it.
func (e *engine) makeStaging(name string) error {
	e.crashPoint("before-mkdir-staging")
	if err := e.root.Mkdir(name, 0o700); err != nil {
		return err
	}
	f, err := e.root.Create(name+"/.gitignore", 0o600)
	if err != nil {
		return err
	}
	_, err = io.WriteString(f, "*\n")
	return errors.Join(err, f.Close())
}

func (e *engine) syncStaging(name string) error {
	if err := e.root.SyncDir(name); err != nil {
		return err
	}
	return e.root.SyncDir(".")
}

// probe tries the renames that the change needs on two files of ours.
func (e *engine) probe() error {
	a, b := e.doc.Staging+"/probe-a", e.doc.Staging+"/probe-b"
	for _, p := range []string{a, b} {
		f, err := e.root.Create(p, 0o600)
		if err != nil {
			return ioFailure(err, p, untouchedText)
		}
		_ = f.Close()
	}
	if !e.doc.NoExchange {
		err := e.exchangeProbe(a, b)
		if errors.Is(err, safefs.ErrNotSupported) {
			return failure.New(failure.NotReady, "the file system of %s cannot exchange two files in one step, so that a write-back could lose an edit made at the same moment; %s. Stop editing there, and use --no-exchange",
				e.doc.Source, untouchedText).WithHint("laufwerk resume RUN --no-exchange").WithPaths(e.doc.Source)
		}
		if err != nil {
			return ioFailure(err, a, untouchedText)
		}
	}
	return errors.Join(e.root.Remove(a), e.root.Remove(b))
}

func (e *engine) exchangeProbe(a, b string) error {
	if err := e.root.Exchange(a, b); err != nil {
		return err
	}
	if err := e.root.RenameNoReplace(a, b); !errors.Is(err, fs.ErrExist) {
		if err == nil {
			err = safefs.ErrNotSupported
		}
		return err
	}
	return nil
}

func (e *engine) original(i *image) string { return filepath.Join(e.dir, "originals", i.SHA256) }

// keepOriginal copies what a step will displace or remove into the plan's folder; false if it is no longer what was compared.
func (e *engine) keepOriginal(s *step) (bool, error) {
	now, err := e.imageAt(s.Path)
	if err != nil || !now.equals(s.Before) {
		return false, err
	}
	if s.Do == Chmod || s.Before == nil || s.Before.Type != workspace.File {
		return true, nil
	}
	if kept, err := isKept(e.original(s.Before)); kept || err != nil {
		return kept, err
	}
	f, _, err := e.root.Open(string(s.Path))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	sum, err := copyPrivate(e.original(s.Before), f)
	if err != nil || sum == s.Before.SHA256 {
		return err == nil, err
	}
	return false, files.Remove(e.original(s.Before))
}

// stageNew makes the new content of step i, durable, with the mode that it will have. The mode that the file system made
// of it is what later comparisons expect.
func (e *engine) stageNew(staging string, i int) error {
	s := &e.doc.Steps[i]
	if s.Do != Create && s.Do != Replace {
		return nil
	}
	name := staging + "/" + base(e.newSlot(i))
	switch s.After.Type {
	case workspace.Dir:
		if err := e.root.Mkdir(name, s.After.Mode); err != nil {
			return err
		}
		return e.root.SyncDir(name)
	case workspace.Symlink:
		return e.root.Symlink(string(s.After.Link), name)
	}
	mode, err := e.fill(name, filepath.Join(e.doc.Freeze, "blobs", s.After.SHA256), s.After)
	s.After.Mode = mode
	return err
}

// fill makes a file of the source's file system from a file of ours, whose bytes must be want's.
func (e *engine) fill(name, from string, want *image) (mode uint32, err error) {
	in, err := files.Open(from)
	if err != nil {
		return want.Mode, failure.Wrap(err, failure.StoreInvalid, "the frozen bytes are missing")
	}
	defer func() { _ = in.Close() }()
	out, err := e.root.Create(name, want.Mode)
	if err != nil {
		return want.Mode, err
	}
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(out, sum), in)
	if err == nil {
		err = out.Sync()
	}
	if e := out.Close(); err == nil {
		err = e
	}
	if err != nil {
		return want.Mode, err
	}
	if n != want.Size || hex.EncodeToString(sum.Sum(nil)) != want.SHA256 {
		return want.Mode, failure.New(failure.StoreInvalid, "%s no longer has the bytes that were frozen; they were not written to the source", from)
	}
	info, err := e.root.Lstat(name)
	return info.Mode, err
}

// restage makes the staging directory again after somebody removed it, as `git clean` may, while the source was half
// changed: what is not in place yet comes from the freeze, what was displaced from the originals. It is made under another
// name and renamed, so that a kill leaves none or all of it.
func (e *engine) restage(ctx context.Context) error {
	if there, err := e.root.Exists(e.doc.Staging); there || err != nil {
		return err
	}
	tmp := e.doc.Staging + ".new"
	if err := e.removeTree(ctx, tmp); err != nil {
		return err
	}
	if err := e.makeStaging(tmp); err != nil {
		return err
	}
	for i := range e.doc.Steps {
		if err := e.restageStep(tmp, i); err != nil {
			return err
		}
	}
	if err := e.syncStaging(tmp); err != nil {
		return err
	}
	return e.move(tmp, e.doc.Staging)
}

func (e *engine) restageStep(tmp string, i int) error {
	s := &e.doc.Steps[i]
	now, err := e.imageAt(s.Path)
	if err != nil {
		return err
	}
	switch {
	case s.Do == Chmod, s.Do == Create && now != nil, s.Do == Remove && now != nil:
		return nil
	case s.Do == Create, s.Do == Replace && now.equals(s.Before):
		return e.stageNew(tmp, i)
	}
	name := tmp + "/" + base(e.originalSlot(i))
	switch s.Before.Type {
	case workspace.Dir:
		return e.root.Mkdir(name, s.Before.Mode)
	case workspace.Symlink:
		return e.root.Symlink(string(s.Before.Link), name)
	}
	_, err = e.fill(name, e.original(s.Before), s.Before)
	return err
}

// removeStaging removes the staging directory. What is neither an original nor new content was written by somebody meanwhile, into
// a file that an editor held open for example: it is kept in the plan's folder and named.
func (e *engine) removeStaging(ctx context.Context) error {
	e.crashPoint("before-sweep")
	if s := e.doc.State; s != Planned && s != Staged {
		for i := range e.doc.Steps {
			for _, slot := range []string{e.newSlot(i), e.originalSlot(i), e.removedSlot(i)} {
				if err := e.rescueForeign(i, slot); err != nil {
					return err
				}
			}
		}
	}
	for _, name := range []string{e.doc.Staging, e.doc.Staging + ".new"} {
		if err := e.removeTree(ctx, name); err != nil {
			return err
		}
	}
	e.crashPoint("after-sweep")
	return e.root.SyncDir(".")
}

func (e *engine) rescueForeign(i int, slot string) error {
	s := &e.doc.Steps[i]
	got, err := read(e.root, slot)
	if err != nil || got == nil {
		return err
	}
	if got.isDir() {
		empty, err := isEmpty(e.root, slot)
		if err == nil && !empty {
			err = failure.New(failure.HalfApplied, "somebody wrote files into %q, which is now %q: move them to where they belong", string(s.Path), slot).
				WithPaths(slot).WithHint("laufwerk writeback continue RUN")
		}
		return err
	}
	if got.sameContent(s.Before) || got.sameContent(s.After) || got.Type != workspace.File {
		return nil
	}
	if err := files.MkdirAll(filepath.Join(e.dir, "rescued")); err != nil {
		return err
	}
	to := filepath.Join("rescued", got.SHA256+"-"+base(slot))
	kept, err := isKept(filepath.Join(e.dir, to))
	if err != nil {
		return err
	}
	if !kept {
		f, _, err := e.root.Open(slot)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		if _, err := copyPrivate(filepath.Join(e.dir, to), f); err != nil {
			return err
		}
	}
	if !slices.Contains(e.doc.Rescued, to) {
		e.doc.Rescued = append(e.doc.Rescued, to)
	}
	return nil
}

// isKept says whether copyPrivate has made path.
func isKept(path string) (bool, error) {
	_, err := files.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// copyPrivate copies r into a private file of ours, durable and whole or not there, and tells the bytes' sha256.
func copyPrivate(path string, r io.Reader) (string, error) {
	part := path + ".part"
	if err := files.Remove(part); err != nil {
		return "", err
	}
	f, err := files.Append(part)
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(f, sum), r)
	if err == nil {
		err = f.Sync()
	}
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = files.Rename(part, path)
	}
	if err != nil {
		return "", errors.Join(err, files.Remove(part))
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func (e *engine) removeTree(ctx context.Context, name string) error {
	refused, err := e.root.RemoveAll(context.WithoutCancel(ctx), name)
	if err == nil && len(refused) > 0 {
		err = failure.New(failure.HalfApplied, "the staging directory cannot be removed: %q: %s; remove what is in the way", refused[0].Path, refused[0].Why).
			WithPaths(refused[0].Path).WithHint("laufwerk writeback continue RUN")
	}
	return err
}
