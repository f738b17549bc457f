package owned

import (
	"strconv"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
)

// Nobody is the user and the group that work in the containers of a root worker.
const Nobody = 65534

// Worker is who works in the containers of a worker.
type Worker struct {
	User   string // uid:gid inside
	Nobody bool   // it is not the worker: files of this host have to be given to Nobody
	UserNS string // the mode of user namespaces, "" is the engine's
}

// WorkerOn says who works in the containers that an engine runs for a worker with these ids. Files come out as the worker's,
// or as Nobody's.
func WorkerOn(f dockerengine.Facts, uid, gid int) Worker {
	if f.Rootless { // the container's root is the user that runs the engine
		return Worker{User: "0:0"}
	}
	w := Worker{User: strconv.Itoa(uid) + ":" + strconv.Itoa(gid)}
	if uid == 0 {
		w.User, w.Nobody = strconv.Itoa(Nobody)+":"+strconv.Itoa(Nobody), true
	}
	if f.UserNS { // files must come out with the same ids
		w.UserNS = "host"
	}
	return w
}
