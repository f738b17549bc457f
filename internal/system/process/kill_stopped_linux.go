package process

import (
	"bytes"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// KillStopped kills the processes of a control group whose path has name in it that are stopped or traced and that were started
// as one of programs, and says how many it killed. Those that may not be signalled are left.
func KillStopped(name string, programs ...string) (killed int) {
	es, err := files.Names("/proc")
	if err != nil {
		return 0
	}
	for _, e := range es {
		pid, err := strconv.Atoi(e)
		if err != nil {
			continue
		}
		id, err := IdentityOf(pid)
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err != nil || st.state != 'T' && st.state != 't' {
			continue
		}
		groups, err := files.Read("/proc/" + e + "/cgroup")
		if err != nil || !bytes.Contains(groups, []byte(name)) {
			continue
		}
		args := Arguments(pid)
		if len(args) == 0 || !slices.Contains(programs, filepath.Base(strings.TrimSpace(args[0]))) {
			continue
		}
		if Signal(id, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}
