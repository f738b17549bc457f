package owned

import (
	"path"
	"slices"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
)

// Bind mounts a path of this host. The engine fails where it is not there, and makes nothing.
func Bind(from, to string, readOnly bool) mount.Mount {
	return mount.Mount{Type: mount.TypeBind, Source: from, Target: to, ReadOnly: readOnly, BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate}}
}

// Volumes are the paths at which an image would get volumes, sorted: something else is mounted there, so that the engine
// makes none that nobody knows of.
func Volumes(i image.InspectResponse) (out []string) {
	if i.Config != nil {
		for v := range i.Config.Volumes {
			out = append(out, path.Clean(v))
		}
		slices.Sort(out)
	}
	return out
}
