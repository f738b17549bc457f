package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// initialise is the first process of a sandbox. One that serves keeps a supervisor standing by, the first one before it says
// that it is ready. One that does not starts nothing, and what loses its parent is reaped by the kernel, because it ignores
// the ends of children.
func initialise(env *system.Env, ready, nonce string, mounts []string, serves bool) int {
	catch, before := process.IgnoreSignals, func() {}
	if serves {
		catch, before = process.CatchSignals, func() { serveStandby(env, filepath.Join(filepath.Dir(ready), StandbyName)) }
	}
	catch()
	code := failure.ExitFailed
	var err error
	switch err = requireNoLinks(mounts); {
	case err != nil:
		code = ExitLinks
	case slices.ContainsFunc(system.Groups(), func(g int) bool { return g != system.GID() }):
		err, code = fmt.Errorf("besides its own group %d it has others: %v", system.GID(), system.Groups()), ExitGroups
	default:
		before()
		err = blockForever(ready, nonce)
	}
	_, _ = fmt.Fprintf(env.Err, "laufwerk %s init: %v\n", Argument, err)
	return code
}

// serveStandby sees to it that a supervisor stands by, and returns when one does, or need not be waited for any more.
func serveStandby(env *system.Env, socket string) {
	process.SpareThreads()
	stands := make(chan struct{})
	go keepStandby(env, socket, sync.OnceFunc(func() { close(stands) }))
	select {
	case <-stands:
	case <-time.After(standbyStartLimit):
	}
}

// standbyStartLimit bounds what a sandbox waits for its first supervisor to stand by: it can be used without.
const standbyStartLimit = 2 * time.Second

// runHold is the main process of a sandbox. It starts nothing.
func runHold(env *system.Env, ready, nonce string) int {
	process.IgnoreSignals()
	err := blockForever(ready, nonce)
	_, _ = fmt.Fprintf(env.Err, "laufwerk %s hold: %v\n", Argument, err)
	return failure.ExitFailed
}

// blockForever announces that this process runs, and then does nothing else for as long as it lives. It returns only with an error.
func blockForever(ready, nonce string) error {
	held, err := announce(ready, nonce)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1) // but near the limit that Main has set
	debug.FreeOSMemory()
	process.KeepOpen(held)
	return nil
}

// requireNoLinks makes sure that the paths lead where they say.
func requireNoLinks(paths []string) error {
	for _, path := range paths {
		for i := 1; i <= len(path); i++ {
			if i < len(path) && path[i] != '/' {
				continue
			}
			info, err := files.Lstat(path[:i])
			if err != nil {
				return err
			}
			if info.Mode()&fs.ModeSymlink != 0 {
				return fmt.Errorf("%s is a link", path[:i])
			}
		}
	}
	return nil
}

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

// Seen without Locked: its files are this host's, but locks do not reach from there to here.
const (
	Unobserved Proof = iota // no such file, or another nonce in it
	Seen                    // the nonce is there
	Locked                  // and the file is locked
)

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
	_, held, err := lock.QueryFile(f)
	if err != nil || !held {
		return Seen, err
	}
	return Locked, nil
}
