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

// announce makes the file ready with nonce in it. The file is locked before it gets its name, so that whoever reads the nonce sees
// the lock too. After a restart of the sandbox an agent may have written in the directory.
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

// createBeside makes a new, empty file beside name.
func createBeside(dir *safefs.Root, name string, mode uint32) (*process.File, string, error) {
	at, base := filepath.Split(name)
	tmp := at + ".new-" + base
	if err := removeName(dir, tmp); err != nil {
		return nil, "", err
	}
	f, err := dir.Create(tmp, mode)
	return f, tmp, err
}

// replaceName renames tmp to name, and removes what is there.
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

// Proof is what the host has seen of an Init.
type Proof int

// Seen without Locked: the sandbox sees this host's files, but not its locks.
const (
	Unobserved Proof = iota // no such file, or another nonce in it
	Seen                    // the nonce is there
	Locked                  // and the file is locked
)

func (s Proof) String() string { return [...]string{"unseen", "seen", "locked"}[s] }

// askInterval is how often AwaitProof asks for the state of a sandbox.
const askInterval = time.Second

// AwaitProof polls until it has enough, and returns the last proof. It ends with ctx, or with an error of ask, which it calls once a
// second for the state of the sandbox. Pauses grow by an eighth, so that it overshoots the 5 to 50 ms that an Init takes by an
// eighth at most.
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

// Observe reads what an Init wrote to ready, a path on the host. Before an agent ran there, Locked proves that the sandbox sees this
// host's files and locks, so that records and locks of supervisors can be trusted.
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
