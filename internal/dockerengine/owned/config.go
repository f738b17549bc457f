package owned

import (
	"math"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// HardenedHostConfig is where the configuration of every container of ours begins: within its limits, without capabilities and without
// a way to new ones, never started again by the engine, with no process of the engine's inside, and with no log, since
// nothing of ours writes to its streams.
func HardenedHostConfig(limits targets.Resources) *container.HostConfig {
	off, none := false, int64(0)
	h := &container.HostConfig{
		CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, Init: &off, LogConfig: container.LogConfig{Type: "none"},
		RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled}, Tmpfs: map[string]string{},
		Resources: container.Resources{Memory: limits.MemoryBytes, PidsLimit: &none},
	}
	switch thousandths := int64(math.Round(limits.CPUs * 1000)); {
	case thousandths >= 10:
		h.NanoCPUs = thousandths * 1_000_000
	case thousandths > 0: // the engine refuses less than 0.01 in NanoCPUs: within its 100 ms, the kernel's least share is 1 ms
		h.CPUPeriod, h.CPUQuota = maxQuotaPeriod, thousandths*1000
	}
	if limits.SwapBytes != nil {
		h.MemorySwap = limits.MemoryBytes + *limits.SwapBytes
	}
	if limits.PIDs > 0 {
		h.PidsLimit = &limits.PIDs
	}
	return h
}

// maxQuotaPeriod is the longest period that the kernel takes for a quota, in µs.
const maxQuotaPeriod = 1_000_000

// CheckLimits says which limits of a target an engine would drop without an error, or refuse when a container is made.
func CheckLimits(f dockerengine.Facts, limits targets.Resources) error {
	if wanted, _ := UnenforcedLimits(f, limits); len(wanted) > 0 {
		return failure.New(failure.NotReady, "the engine cannot enforce %s of the target: the kernel's control group for it is not available to it", joinWords(wanted)).
			WithHint("docker info")
	}
	if f.CPUs > 0 && limits.CPUs > float64(f.CPUs) {
		return failure.New(failure.NotReady, "`resources.cpus` is %g, and the engine has only %d", limits.CPUs, f.CPUs).WithHint("docker info --format '{{.NCPU}}'")
	}
	return nil
}

// UnenforcedLimits are the limits that a target has and an engine cannot enforce, and all that it cannot.
func UnenforcedLimits(f dockerengine.Facts, limits targets.Resources) (wanted, all []string) {
	for _, l := range []struct {
		option   string
		has, can bool
	}{
		{"cpus", limits.CPUs > 0, f.CPU}, {"memoryBytes", limits.MemoryBytes > 0, f.Memory},
		{"swapBytes", limits.SwapBytes != nil, f.Swap}, {"pids", limits.PIDs > 0, f.Pids},
	} {
		if l.can {
			continue
		}
		all = append(all, "`resources."+l.option+"`")
		if l.has {
			wanted = append(wanted, "`resources."+l.option+"`")
		}
	}
	return wanted, all
}

func joinWords(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}

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
