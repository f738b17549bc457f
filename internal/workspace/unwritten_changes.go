package workspace

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

const writtenFile = "written"

// FreezeDirectory freezes the workspace in dir, below the folder of freezes. The caller has made sure that nothing writes there.
func FreezeDirectory(ctx context.Context, dir, freezes string, now func() time.Time) (Freeze, error) {
	o, err := LoadOpenRecord(dir)
	if errors.Is(err, fs.ErrNotExist) { // it was complete when it was opened
		return Freeze{}, lostError(dir, fs.ErrNotExist)
	}
	if err != nil {
		return Freeze{}, err
	}
	root, err := OpenTree(TreePath(dir, o), o.Tree)
	if err != nil {
		return Freeze{}, err
	}
	defer root.Close()
	return MakeFreeze(ctx, FreezeRequest{Root: root, Base: o.Base, Rules: o.Rules, Source: o.Source, SourceRoot: o.Root, Dir: freezes, Now: now})
}

// FreezeTemporarily freezes the workspace in dir into a temporary folder, which is gone again when fn has returned.
func FreezeTemporarily(ctx context.Context, dir string, now func() time.Time, fn func(Freeze) error) error {
	tmp, err := files.TempDir("laufwerk-diff-")
	if err != nil {
		return failure.Wrap(err, failure.Failed, "make a temporary folder")
	}
	defer func() { _ = files.RemoveAll(tmp) }()
	f, err := FreezeDirectory(ctx, dir, tmp, now)
	if err != nil {
		return err
	}
	return fn(f)
}

// MarkWritten records that the content with this digest was written back from the workspace in dir.
func MarkWritten(dir, digest string) error {
	return failure.Wrap(files.Write(filepath.Join(dir, writtenFile), []byte(digest+"\n")), failure.HomeInvalid, "record what was written back")
}

// UnwrittenChanges says what the workspace in dir holds that was never written back, "" if nothing. A direct workspace, one that was
// never completed and one that its agent removed hold nothing.
func UnwrittenChanges(ctx context.Context, dir string) (string, error) {
	o, err := LoadOpenRecord(dir)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && o.Mode == ModeDirect) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	root, err := OpenTree(TreePath(dir, o), o.Tree)
	if failure.Is(err, failure.WorkspaceLost) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	defer root.Close()
	now, _, err := Scan(ctx, root, ScanOptions{Rules: o.Rules, Base: &o.Base})
	if failure.Is(err, failure.LimitExceeded) {
		return "what was changed in it is more than can be written back", nil
	}
	if err != nil {
		return "", err
	}
	changes := Compare(o.Base, now)
	if len(changes) == 0 {
		return "", nil
	}
	if b, err := files.Read(filepath.Join(dir, writtenFile)); err == nil && strings.TrimSpace(string(b)) == digest(changes) {
		return "", nil
	}
	if len(changes) == 1 {
		return "1 changed path was not written back", nil
	}
	return fmt.Sprintf("%d changed paths were not written back", len(changes)), nil
}
