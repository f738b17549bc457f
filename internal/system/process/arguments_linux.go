package process

import (
	"fmt"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Arguments are those that a process was started with, its name first; nil where they cannot be read. A process can write
// over its own: they tell who something is that has no reason to lie.
func Arguments(pid int) []string {
	b, err := files.Read(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || len(b) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
}
