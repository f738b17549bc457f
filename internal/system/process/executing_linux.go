package process

import (
	"os"
	"strconv"
	"strings"
)

// Executing are the processes, as far as they can be seen, whose program lies below dir (absolute, links resolved).
func Executing(dir string) []int {
	es, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range es {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if exe, err := os.Readlink("/proc/" + e.Name() + "/exe"); err == nil && strings.HasPrefix(exe, strings.TrimSuffix(dir, "/")+"/") {
			out = append(out, pid)
		}
	}
	return out
}
