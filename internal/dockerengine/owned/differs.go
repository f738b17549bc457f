package owned

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/strslice"

	"github.com/laufwerk/laufwerk/internal/resource"
)

// difference says in which point a container is not what was wanted, "" if in none. It looks at what matters for safety: an
// engine that cannot enforce a limit drops it with no more than a warning, and an image can bring volumes of its own.
func difference(got container.InspectResponse, image string, w ContainerSpec, in resource.Intent) string {
	if got.ContainerJSONBase == nil || got.Config == nil || got.HostConfig == nil {
		return "the engine does not describe it"
	}
	for _, p := range append(comparisons(got, w, in), comparison{"the image", got.Image, image}) {
		if p.got != p.want {
			return fmt.Sprintf("%s is %q instead of %q", p.what, p.got, p.want)
		}
	}
	for _, kv := range w.Config.Env {
		if !slices.Contains(got.Config.Env, kv) {
			name, _, _ := strings.Cut(kv, "=")
			return "the variable " + name + " is missing"
		}
	}
	return mounts(got, w.Host)
}

type comparison struct{ what, got, want string }

func comparisons(got container.InspectResponse, w ContainerSpec, in resource.Intent) []comparison {
	c, h, wc, wh := got.Config, got.HostConfig, w.Config, w.Host
	show := func(v any) string { return fmt.Sprint(v) }
	out := []comparison{
		{"the user", c.User, wc.User},
		{"the network", network(h.NetworkMode), network(wh.NetworkMode)},
		{"the memory limit", show(h.Memory), show(wh.Memory)},
		{"the number of CPUs", show([]int64{h.NanoCPUs, h.CPUPeriod, h.CPUQuota}), show([]int64{wh.NanoCPUs, wh.CPUPeriod, wh.CPUQuota})},
		{"the limit of processes", pids(h.PidsLimit), pids(wh.PidsLimit)},
		{"privileged", show(h.Privileged), show(wh.Privileged)},
		{"the read-only root file system", show(h.ReadonlyRootfs), show(wh.ReadonlyRootfs)},
		{"the list of dropped capabilities", capabilities(h.CapDrop), capabilities(wh.CapDrop)},
		{"the list of added capabilities", capabilities(h.CapAdd), capabilities(wh.CapAdd)},
		{"the list of security options", show(h.SecurityOpt), show(wh.SecurityOpt)},
		{"the user namespace", string(h.UsernsMode), string(wh.UsernsMode)},
		{"the list of devices", show(len(h.Devices) + len(h.DeviceRequests)), show(len(wh.Devices) + len(wh.DeviceRequests))},
		{"the list of published ports", show(len(h.PortBindings)), show(len(wh.PortBindings))},
		{"the restart policy", string(cmp.Or(h.RestartPolicy.Name, "no")), string(cmp.Or(wh.RestartPolicy.Name, "no"))},
		{"removing it at its end", show(h.AutoRemove), show(wh.AutoRemove)},
	}
	if wc.Entrypoint != nil { // else the image's counts
		out = append(out, comparison{"the entry point", show([]string(c.Entrypoint)), show([]string(wc.Entrypoint))},
			comparison{"the command", show([]string(c.Cmd)), show([]string(wc.Cmd))})
	}
	if wh.MemorySwap != 0 { // where none is wanted, an engine sets one of its own
		out = append(out, comparison{"the limit of memory and swap", show(h.MemorySwap), show(wh.MemorySwap)})
	}
	for _, name := range []string{LabelOwner, LabelClaim, LabelRun} {
		out = append(out, comparison{"the label " + name, c.Labels[name], labels(in)[name]})
	}
	for path, options := range wh.Tmpfs {
		out = append(out, comparison{"the tmpfs " + path, h.Tmpfs[path], options})
	}
	return out
}

func mounts(got container.InspectResponse, wanted *container.HostConfig) string {
	asked := map[string]mount.Mount{}
	for _, m := range got.HostConfig.Mounts {
		asked[m.Target] = m
	}
	seen := map[string]container.MountPoint{}
	for _, m := range got.Mounts {
		seen[m.Destination] = m
	}
	want := map[string]bool{}
	for _, m := range wanted.Mounts {
		want[m.Target] = true
		if m.Type != asked[m.Target].Type || m.Source != asked[m.Target].Source || m.ReadOnly != asked[m.Target].ReadOnly {
			return fmt.Sprintf("the mount at %q is not the requested one", m.Target)
		}
		s, ok := seen[m.Target]
		if !ok || s.Type != m.Type || (m.Type != mount.TypeTmpfs && s.RW == m.ReadOnly) {
			return fmt.Sprintf("the mount at %q is missing, or does not have the access that was requested", m.Target)
		}
	}
	for _, m := range got.Mounts {
		if !want[m.Destination] && m.Type != mount.TypeTmpfs {
			return fmt.Sprintf("something else is mounted at %q", m.Destination)
		}
	}
	if n := len(got.HostConfig.Binds) + len(got.HostConfig.VolumesFrom); n > len(wanted.Binds)+len(wanted.VolumesFrom) {
		return "it has mounts that were not requested"
	}
	return ""
}

// network is a network's name; the engine's default has two.
func network(m container.NetworkMode) string {
	if m == "" || m == "default" {
		return "bridge"
	}
	return string(m)
}

func pids(n *int64) string {
	if n == nil || *n <= 0 {
		return "none"
	}
	return fmt.Sprint(*n)
}

// capabilities is a list of them; engines write them with and without CAP_.
func capabilities(list strslice.StrSlice) string {
	var out []string
	for _, c := range list {
		out = append(out, strings.TrimPrefix(strings.ToUpper(c), "CAP_"))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
