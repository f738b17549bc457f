package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// announce puts nonce under the name ready. The file is locked before it has the name, so that whoever reads the nonce finds
// the lock too. The directory may be one that an agent writes: an earlier start of the same sandbox left it behind.
func announce(ready, nonce string) (*process.File, error) {
	if !filepath.IsAbs(ready) {
		return nil, fmt.Errorf("the file must be an absolute path, got %q", ready)
	}
	dir, err := safefs.OpenRoot(filepath.Dir(ready))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	f, tmp, err := createBeside(dir, filepath.Base(ready), 0o600)
	if err != nil {
		return nil, err
	}
	err = lock.LockFile(f)
	if err == nil {
		_, err = f.WriteString(nonce)
	}
	if err == nil {
		err = replaceName(dir, tmp, filepath.Base(ready))
	}
	if err != nil {
		_, _ = dir.Remove(tmp), f.Close()
		return nil, fmt.Errorf("announce that it runs: %w", err)
	}
	return f, nil
}

// createBeside is a new, empty file beside name, which nobody else has open.
func createBeside(dir *safefs.Root, name string, mode uint32) (*process.File, string, error) {
	at, base := filepath.Split(name)
	tmp := at + ".new-" + base
	if err := removeName(dir, tmp); err != nil {
		return nil, "", err
	}
	f, err := dir.Create(tmp, mode)
	return f, tmp, err
}

// replaceName gives tmp the name, whatever has it now.
func replaceName(dir *safefs.Root, tmp, name string) error {
	if err := dir.Rename(tmp, name); err == nil {
		return nil
	}
	if err := removeName(dir, name); err != nil { // a directory
		return err
	}
	return dir.Rename(tmp, name)
}

func removeName(dir *safefs.Root, name string) error {
	refused, err := dir.RemoveAll(context.Background(), name)
	if err == nil && len(refused) > 0 {
		err = fmt.Errorf("%s is in the way: %s", refused[0].Path, refused[0].Why)
	}
	return err
}

// Proof is what the host sees of an Init.
type Proof int

func (s Proof) String() string { return [...]string{"unseen", "seen", "locked"}[s] }

// askInterval is how often Await asks what has become of a sandbox.
const askInterval = time.Second

// AwaitProof looks until it sees enough, and returns the last that it saw. The wait ends with ctx, and with an error of ask, which
// is asked now and then what has become of the sandbox. Pauses grow by an eighth, so that no more than an eighth of what the
// process took, some 5 to 50 ms, is waited too long.
func AwaitProof(ctx context.Context, ready, nonce string, enough Proof, ask func(context.Context) error) (Proof, error) {
	asked := time.Duration(0)
	for pause := time.Millisecond; ; pause = min(pause+pause/8, 100*time.Millisecond) {
		seen, err := Observe(ready, nonce)
		if seen >= enough {
			return seen, nil
		}
		if asked += pause; asked > askInterval {
			asked = 0
			if err := ask(ctx); err != nil {
				return seen, err
			}
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if err == nil {
				err = ctx.Err()
			}
			return seen, err
		}
	}
}

// Observe looks for what an Init with this nonce wrote to the file that the host knows as ready. Locked proves, as long as no
// agent was in there, that the sandbox has this host's files and that locks reach across: then records and locks of
// supervisors can be trusted.
func Observe(ready, nonce string) (Proof, error) {
	dir, err := safefs.OpenRoot(filepath.Dir(ready))
	if errors.Is(err, fs.ErrNotExist) {
		return Unobserved, nil
	}
	if err != nil {
		return Unobserved, err
	}
	defer dir.Close()
	f, _, err := dir.Open(filepath.Base(ready))
	if errors.Is(err, fs.ErrNotExist) {
		return Unobserved, nil
	}
	if err != nil {
		return Unobserved, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, int64(len(nonce)+1)))
	if err != nil || string(b) != nonce {
		return Unobserved, err
	}
	_, locked, err := lock.QueryFile(f)
	if err != nil || !locked {
		return Seen, err
	}
	return Locked, nil
}
