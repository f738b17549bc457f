package process

import (
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Executing are the processes, as far as they can be seen, whose program lies below dir (absolute, links resolved).
func Executing(dir string) []int {
	es, err := files.Names("/proc")
	if err != nil {
		return nil
	}
	var out []int
	for _, e := range es {
		pid, err := strconv.Atoi(e)
		if err != nil {
			continue
		}
		if exe, err := files.Readlink("/proc/" + e + "/exe"); err == nil && strings.HasPrefix(exe, strings.TrimSuffix(dir, "/")+"/") {
			out = append(out, pid)
		}
	}
	return out
}
