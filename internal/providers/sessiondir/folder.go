// Package sessiondir is what providers that run on this host's file system keep of a session: its private directory, and the
// files of its workspace and of its programs' homes, from the host's side. Agents write in there, so nothing is followed.
//
//	session.json   whose it is; never inside a sandbox
//	home           the programs' private homes; the agent writes it
//	ops/<attempt>  the records of supervisors
//	tmp            where a sandbox has its own temporary files
//
// A directory appears under its name whole, by a rename from <name>.making, and leaves it whole, by a rename to
// <name>.ending: one of our name without our identity is therefore never ours.
package sessiondir

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// Names in a session's directory.
const (
	Home     = "home"
	Ops      = "ops"
	Tmp      = "tmp"
	identity = "session.json"
)

const (
	makingSuffix = ".making"
	endingSuffix = ".ending"
)

// maxIdentity bounds what is read of an identity, in bytes.
const maxIdentity = 64 << 10

// Identity says whose a directory is.
type Identity struct {
	Claim string `json:"claim"`
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Mark  string `json:"mark"`
}

// User is who works in a directory, where that is not the worker.
type User struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// Folder is a session's directory, by its parent, which is trusted.
type Folder struct {
	dir    string
	name   string
	id     Identity
	parent *safefs.Root
}

// Open is the folder dir, whether it is there or not; fs.ErrNotExist where not even its parent is.
func Open(dir string, id Identity) (*Folder, error) {
	if !filepath.IsAbs(dir) || id.Mark == "" {
		return nil, errors.New("the intent's spec has no absolute directory or no mark")
	}
	parent, err := safefs.OpenRoot(filepath.Dir(dir))
	if err != nil {
		return nil, err
	}
	return &Folder{dir: dir, name: filepath.Base(dir), id: id, parent: parent}, nil
}

// OpenOrCreateParent is Open that makes the parent first.
func OpenOrCreateParent(dir string, id Identity) (*Folder, error) {
	if err := files.MkdirAll(filepath.Dir(dir)); err != nil {
		return nil, err
	}
	return Open(dir, id)
}

// Close releases what Open took; a nil folder has nothing.
func (f *Folder) Close() {
	if f != nil {
		_ = f.parent.Close()
	}
}

// Identify says what is there: our directory, a stranger's (the error says why), or nothing. What an interrupted making or
// ending has left is Unobserved.
func (f *Folder) Identify() (resource.Presence, error) {
	presence, err := f.identify(f.name)
	if presence != resource.Absent {
		return presence, err
	}
	for _, suffix := range []string{makingSuffix, endingSuffix} {
		if _, err := f.parent.Lstat(f.name + suffix); err == nil {
			return resource.Unobserved, fmt.Errorf("%s%s is still there", f.dir, suffix)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return resource.Unobserved, err
		}
	}
	return resource.Absent, nil
}

func (f *Folder) identify(name string) (resource.Presence, error) {
	info, err := f.parent.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return resource.Absent, nil
	}
	if err != nil {
		return resource.Unobserved, err
	}
	at := filepath.Join(filepath.Dir(f.dir), name)
	if info.Type != safefs.Dir {
		return resource.Foreign, fmt.Errorf("%s is a %s", at, info.Type)
	}
	b, _, err := f.parent.ReadFile(name+"/"+identity, maxIdentity)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := f.parent.Lstat(name); errors.Is(err, fs.ErrNotExist) { // somebody else ends it, too
			return resource.Absent, nil
		}
		return resource.Foreign, fmt.Errorf("%s has no %s", at, identity)
	}
	if err != nil {
		return resource.Unobserved, err
	}
	var id Identity
	if err := json.Unmarshal(b, &id); err != nil || id != f.id {
		return resource.Foreign, fmt.Errorf("%s belongs to another session", at)
	}
	return resource.Present, nil
}

// Make makes the directory, or finds it whole; found tells which. What is in it for others to write belongs to user, nil is
// the worker. A stranger's is AlreadyExists. After an error whose failure is not OutcomeUnknown it is not there.
func (f *Folder) Make(ctx context.Context, user *User, within ...string) (found bool, err error) {
	switch presence, err := f.identify(f.name); presence {
	case resource.Present:
		return true, nil
	case resource.Foreign:
		return false, failure.New(failure.AlreadyExists, "%v, and was not changed", err).WithPaths(f.dir)
	case resource.Unobserved:
		return false, failure.Wrap(err, failure.OutcomeUnknown, "inspect %s", f.dir)
	}
	if err := f.make(ctx, user, within); err != nil {
		// It may be there, and only its durability not be certain; or the half of it.
		if presence, _ := f.identify(f.name); presence != resource.Absent || f.remove(ctx, makingSuffix) != nil {
			return false, failure.Wrap(err, failure.OutcomeUnknown, "make the session's directory")
		}
		return false, fmt.Errorf("make the session's directory: %w", err)
	}
	return false, nil
}

func (f *Folder) make(ctx context.Context, user *User, within []string) error {
	tmp := f.name + makingSuffix
	if err := f.remove(ctx, makingSuffix); err != nil {
		return err
	}
	crash.Point("sessiondir/before-mkdir")
	if err := f.parent.Mkdir(tmp, 0o700); err != nil {
		return err
	}
	for _, d := range within {
		if err := f.parent.Mkdir(tmp+"/"+d, 0o700); err != nil {
			return err
		}
		if user != nil {
			if err := f.parent.Lchown(tmp+"/"+d, user.UID, user.GID); err != nil {
				return err
			}
		}
	}
	b, err := json.Marshal(f.id)
	if err != nil {
		return err
	}
	file, err := f.parent.Create(tmp+"/"+identity, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Write(append(b, '\n')); err != nil {
		return err
	}
	if err := file.Sync(); err != nil {
		return err
	}
	if err := f.parent.SyncDir(tmp); err != nil {
		return err
	}
	crash.Point("sessiondir/before-rename")
	if err := f.rename(tmp, f.name); err != nil {
		return err
	}
	crash.Point("sessiondir/after-rename")
	return f.parent.SyncDir(".")
}

// rename replaces nothing, also where the file system cannot promise that: nobody but us works in the parent.
func (f *Folder) rename(from, to string) error {
	err := f.parent.RenameNoReplace(from, to)
	if errors.Is(err, safefs.ErrNotSupported) {
		if _, e := f.parent.Lstat(to); !errors.Is(e, fs.ErrNotExist) {
			return &fs.PathError{Op: "rename", Path: to, Err: fs.ErrExist}
		}
		err = f.parent.Rename(from, to)
	}
	return err
}

// Remove removes the directory and everything in it, and what an interrupted making or ending has left. What has our name
// and is not ours is AlreadyExists; what cannot be removed is named.
func (f *Folder) Remove(ctx context.Context) error {
	switch presence, err := f.identify(f.name); presence {
	case resource.Foreign:
		return failure.New(failure.AlreadyExists, "%v, and was not changed", err).WithPaths(f.dir)
	case resource.Unobserved:
		return err
	case resource.Present:
		if err := f.remove(ctx, endingSuffix); err != nil {
			return err
		}
		crash.Point("sessiondir/before-ending")
		if err := f.rename(f.name, f.name+endingSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) { // somebody else ends it, too
			return err
		}
		crash.Point("sessiondir/after-ending")
	}
	for _, suffix := range []string{makingSuffix, endingSuffix} {
		if err := f.remove(ctx, suffix); err != nil {
			return err
		}
	}
	crash.Point("sessiondir/after-remove")
	return f.parent.SyncDir(".")
}

// WriteNote leaves a note of this name in the directory, where nobody but the worker reaches it. It is durable then.
func (f *Folder) WriteNote(name string) error {
	file, err := f.parent.Create(f.name+"/"+name, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	if err := file.Sync(); err != nil {
		return err
	}
	return f.parent.SyncDir(f.name)
}

// HasNote says whether a note was left. Where there is no directory of ours, none was.
func (f *Folder) HasNote(name string) (bool, error) {
	presence, err := f.identify(f.name)
	if presence == resource.Absent || presence == resource.Foreign {
		return false, nil
	}
	if presence != resource.Present {
		return false, err
	}
	_, err = f.parent.Lstat(f.name + "/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (f *Folder) remove(ctx context.Context, suffix string) error {
	refused, err := f.parent.RemoveAll(ctx, f.name+suffix)
	if err == nil && len(refused) > 0 {
		err = failure.New(failure.Retained, "%s cannot be removed: %s", refused[0].Path, refused[0].Why).WithPaths(refused[0].Path)
	}
	return err
}

// MakeOperation makes the directory of an attempt's records, unless it is there, for user to write in.
func MakeOperation(dir, name string, user *User) error {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_ = root.Chmod(Ops, 0o700) // whoever works in there may have closed it
	return mkdir(root, Ops+"/"+name, 0o700, user)
}

// RestorePermissions gives the directories that others work in the permissions that they were made with.
func RestorePermissions(dir string) error {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for _, d := range []string{Home, Ops, Tmp} {
		if err := root.Chmod(d, 0o700); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Operations are the directories of the attempts whose records a session's directory holds.
func Operations(dir string) ([]string, error) {
	names, err := files.Names(filepath.Join(dir, Ops))
	if err != nil {
		return nil, err
	}
	for i, n := range names {
		names[i] = filepath.Join(dir, Ops, n)
	}
	return names, nil
}
