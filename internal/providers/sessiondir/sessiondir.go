package sessiondir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// Session is the directory of an intent whose sandbox is elsewhere: it is made before the sandbox is asked for, and goes when
// the sandbox was seen to be gone.
type Session struct {
	Dir  string
	ID   Identity
	Now  func() time.Time
	What string // what evidence calls the sandbox: "container laufwerk-c…"
}

// Make makes the directory, and then the sandbox by create. Where that certainly made none, nothing is left behind: the claim
// ends with that answer.
func (s Session) Make(ctx context.Context, user *User, within []string, create func(*Folder) resource.Result) resource.Result {
	at, err := OpenOrCreateParent(s.Dir, s.ID)
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: fmt.Errorf("make the session's directory: %w", err)}
	}
	defer at.Close()
	if _, err := at.Make(ctx, user, within...); err != nil {
		// The sandbox cannot be there: it is asked for only when its directory is. What is left of that goes with the claim.
		return resource.Result{Err: err}
	}
	return s.RemoveUnmade(ctx, at, create(at))
}

// RemoveUnmade removes the directory after an answer that no sandbox was made.
func (s Session) RemoveUnmade(ctx context.Context, at *Folder, r resource.Result) resource.Result {
	if r.Outcome != resource.NotDone {
		return r
	}
	if err := at.Remove(context.WithoutCancel(ctx)); err != nil {
		return resource.Result{Err: errors.Join(r.Err, err), Evidence: r.Evidence}
	}
	r.Evidence = append(r.Evidence, s.evidence("removed %s", s.Dir)...)
	return r
}

// Observe is what is observed of a session whose sandbox cannot run any more, by o: it is there as long as its directory is.
func (s Session) Observe(o resource.Observation, id string) resource.Observation {
	at, err := Open(s.Dir, s.ID)
	if errors.Is(err, fs.ErrNotExist) {
		o.Evidence = append(o.Evidence, s.evidence("%s %s, and directory absent at %s", s.What, o.Presence, s.Dir)...)
		return o
	}
	if err != nil {
		return resource.Observation{Err: err, Evidence: o.Evidence}
	}
	defer at.Close()
	presence, err := at.Identify()
	o.Evidence = append(o.Evidence, s.evidence("%s %s, and directory %s at %s", s.What, o.Presence, presence, s.Dir)...)
	if presence == resource.Foreign || presence == resource.Absent { // ours is gone, whoever took its place
		return resource.Observation{Presence: o.Presence, Resource: id, Evidence: o.Evidence}
	}
	return resource.Observation{Presence: presence, Resource: id, Evidence: o.Evidence, Err: err}
}

// Clear removes the directory of a session whose sandbox is gone, by r.
func (s Session) Clear(ctx context.Context, r resource.Result) resource.Result {
	at, err := Open(s.Dir, s.ID)
	if errors.Is(err, fs.ErrNotExist) {
		return r
	}
	if err != nil {
		return resource.Result{Err: err, Evidence: r.Evidence}
	}
	defer at.Close()
	switch err := at.Remove(ctx); {
	case failure.Is(err, failure.AlreadyExists): // a stranger's, and it stays
		return r
	case failure.Is(err, failure.Retained):
		return resource.Result{Outcome: resource.NotDone, Err: err, Evidence: r.Evidence}
	case err != nil:
		return resource.Result{Err: err, Evidence: r.Evidence}
	}
	r.Evidence = append(r.Evidence, s.evidence("removed %s", s.Dir)...)
	return r
}

func (s Session) evidence(format string, args ...any) []resource.Evidence {
	return resource.Seen(s.Now(), format, args...)
}

// launchesDir has an empty file for each attempt whose supervisor has said that it runs. It is never inside a sandbox: what is in
// there is true, and so are the times.
const launchesDir = "launches"

// NoteLaunch leaves behind that a first attempt may run from now on.
func NoteLaunch(dir string) error {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(launchesDir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// NoteLaunched leaves behind that an attempt runs. It need not be durable: after the end of this host nothing does.
func NoteLaunched(dir, name string) error {
	if err := NoteLaunch(dir); err != nil {
		return err
	}
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	f, err := root.Create(launchesDir+"/"+name, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// HasLaunches says whether NoteLaunch was called: something of an agent may have been in the session's sandbox.
func HasLaunches(dir string) bool {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return false
	}
	defer root.Close()
	_, err = root.Lstat(launchesDir)
	return err == nil
}

// LaunchTime is when an attempt was noted; fs.ErrNotExist where it was not.
func LaunchTime(dir, name string) (time.Time, error) {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return time.Time{}, err
	}
	defer root.Close()
	info, err := root.Lstat(launchesDir + "/" + name)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, info.MTimeNS), nil
}
