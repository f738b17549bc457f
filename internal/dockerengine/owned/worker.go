package owned

import (
	"strconv"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
)

// NobodyID is the user and the group that work in the containers of a root worker.
const NobodyID = 65534

// ContainerUser is who works in the containers of a worker.
type ContainerUser struct {
	User   string // uid:gid inside
	Nobody bool   // it is not the worker: files of this host have to be given to Nobody
	UserNS string // the mode of user namespaces, "" is the engine's
}

// ContainerUserFor says who works in the containers that an engine runs for a worker with these ids. Files come out as the worker's,
// or as Nobody's.
func ContainerUserFor(f dockerengine.Facts, uid, gid int) ContainerUser {
	if f.Rootless { // the container's root is the user that runs the engine
		return ContainerUser{User: "0:0"}
	}
	w := ContainerUser{User: strconv.Itoa(uid) + ":" + strconv.Itoa(gid)}
	if uid == 0 {
		w.User, w.Nobody = strconv.Itoa(NobodyID)+":"+strconv.Itoa(NobodyID), true
	}
	if f.UserNS { // files must come out with the same ids
		w.UserNS = "host"
	}
	return w
}
