package dockerengine

import (
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/process"
)

// silenceLimit is how long a call about a container may have no answer before what holds the engine up is looked for.
const silenceLimit = 2 * time.Second

// idLength is that of a container's id. Shorter words could be in the path of a stranger's control group.
const idLength = 64

// unblockEngine, until its result is called, ends what may keep the engine from answering about a container. A command that is being
// started in a container is, for a moment, a process of the runtime (`runc init`) with the container's user, and whatever runs
// inside as the same user can stop it. The engine waits for it then, and everything else about this container waits for the
// engine: looking, killing and removing too (Docker 20.10). The container's processes are this host's, and the worker's user
// may signal them.
func unblockEngine(id string) (stop func()) {
	if len(id) != idLength {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(silenceLimit)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				process.KillStopped(id, "runc", "crun")
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}
