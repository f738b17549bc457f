//go:build !linux

package safefs

import "golang.org/x/sys/unix"

func renameNoReplace(fromDir int, from string, toDir int, to string) error {
	return unsupportedFlags(unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_EXCL))
}

func exchange(fromDir int, from string, toDir int, to string) error {
	return unsupportedFlags(unix.RenameatxNp(fromDir, from, toDir, to, unix.RENAME_SWAP))
}
