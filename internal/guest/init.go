package guest

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
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

// runMainProcess is the main process of a sandbox. It starts nothing.
func runMainProcess(env *system.Env, ready, nonce string) int {
	process.IgnoreSignals()
	err := blockForever(ready, nonce)
	_, _ = fmt.Fprintf(env.Err, "laufwerk %s hold: %v\n", Argument, err)
	return failure.ExitFailed
}

// blockForever announces that this process runs, and then does nothing else for as long as it lives. It returns only with an error.
func blockForever(ready, nonce string) error {
	announcement, err := announce(ready, nonce)
	if err != nil {
		return err
	}
	debug.SetGCPercent(-1) // but near the limit that Main has set
	debug.FreeOSMemory()
	process.KeepOpen(announcement)
	return nil
}

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

// Seen without Locked: its files are this host's, but locks do not reach from there to here.
const (
	Unobserved Proof = iota // no such file, or another nonce in it
	Seen                    // the nonce is there
	Locked                  // and the file is locked
)
