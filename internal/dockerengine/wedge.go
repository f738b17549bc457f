package dockerengine

import (
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/system/process"
)

// silence is how long a call about a container may have no answer before what holds the engine up is looked for.
const silence = 2 * time.Second

// idLength is that of a container's id. Shorter words could be in the path of a stranger's control group.
const idLength = 64

// unwedge, until its result is called, ends what may keep the engine from answering about a container. A command that is being
// started in a container is, for a moment, a process of the runtime (`runc init`) with the container's user, and whatever runs
// inside as the same user can stop it. The engine waits for it then, and everything else about this container waits for the
// engine: looking, killing and removing too (Docker 20.10). The container's processes are this host's, and the worker's user
// may signal them.
func unwedge(id string) (stop func()) {
	if len(id) != idLength {
		return func() {}
	}
	done := make(chan struct{})
	go func() {
		t := time.NewTicker(silence)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				process.EndStopped(id, "runc", "crun")
			}
		}
	}()
	return sync.OnceFunc(func() { close(done) })
}
