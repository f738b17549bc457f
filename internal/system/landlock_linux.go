package system

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Landlock is the version of the kernel's Landlock interface, asked for with its own system call; an error says that rules
// cannot be enforced.
func Landlock() (version int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, fmt.Errorf("landlock_create_ruleset: %w", errno)
	}
	return int(n), nil
}
