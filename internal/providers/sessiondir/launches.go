package sessiondir

import (
	"errors"
	"io/fs"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// launches has an empty file for each attempt that was launched. It is never inside a sandbox: the times of its files are true.
const launches = "launches"

// NoteLaunch leaves behind that an attempt is launched now. It need not be durable: after the end of this host nothing runs.
func NoteLaunch(dir, name string) error {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(launches, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	f, err := root.Create(launches+"/"+name, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return f.Close()
}

// Launched is when an attempt was launched.
func Launched(dir, name string) (time.Time, error) {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return time.Time{}, err
	}
	defer root.Close()
	info, err := root.Lstat(launches + "/" + name)
	if err != nil {
		return time.Time{}, err
	}
	return time.Unix(0, info.MTimeNS), nil
}
