package owned

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// CheckLimits says which limits of a target an engine would drop without an error, or refuse when a container is made.
func CheckLimits(f dockerengine.Facts, limits targets.Resources) error {
	if wanted, _ := UnenforcedLimits(f, limits); len(wanted) > 0 {
		return failure.New(failure.NotReady, "the engine cannot enforce %s of the target: the kernel's control group for it is not available to it", joinWords(wanted)).
			WithHint("docker info")
	}
	if f.CPUs > 0 && limits.CPUs > float64(f.CPUs) {
		return failure.New(failure.NotReady, "`resources.cpus` is %g, and the engine has %d and gives no more", limits.CPUs, f.CPUs).WithHint("docker info --format '{{.NCPU}}'")
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

// joinWords is a list in words.
func joinWords(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " and " + list[len(list)-1]
}
