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

// initialise is the first process of a sandbox. With serves a supervisor waits before it announces that it is ready. Without, it
// starts nothing and ignores SIGCHLD, so that the kernel reaps orphans.
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

// serveStandby keeps a supervisor waiting, and returns when the first one does or standbyStartLimit has passed.
func serveStandby(env *system.Env, socket string) {
	process.SpareThreads()
	stands := make(chan struct{})
	go keepStandby(env, socket, sync.OnceFunc(func() { close(stands) }))
	select {
	case <-stands:
	case <-time.After(standbyStartLimit):
	}
}

// standbyStartLimit bounds the wait for the first supervisor; the sandbox can be used without.
const standbyStartLimit = 2 * time.Second

// runMainProcess is the main process of a sandbox. It starts nothing.
func runMainProcess(env *system.Env, ready, nonce string) int {
	process.IgnoreSignals()
	err := blockForever(ready, nonce)
	_, _ = fmt.Fprintf(env.Err, "laufwerk %s hold: %v\n", Argument, err)
	return failure.ExitFailed
}

// blockForever announces this process and blocks. It returns only with an error.
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

// requireNoLinks fails where a path has a symbolic link in it.
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
