//go:build !linux

package safefs

import "golang.org/x/sys/unix"

// chmodAt: without O_PATH the file must be readable to be pinned; a directory or file of mode 000 is changed by name, which
// here can be told not to follow a link.
func (r *Root) chmodAt(dir int, name string, mode uint32) error {
	info, err := r.statAt(dir, name)
	if err != nil {
		return err
	}
	if err := info.ordinary(); err != nil {
		return err
	}
	if info.Mount {
		return ErrMount
	}
	return unix.Fchmodat(dir, name, mode&0o7777, unix.AT_SYMLINK_NOFOLLOW)
}
