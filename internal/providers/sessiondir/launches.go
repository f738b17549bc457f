package sessiondir

import (
	"errors"
	"io/fs"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

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
