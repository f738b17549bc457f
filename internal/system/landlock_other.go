//go:build !linux

package system

import "errors"

// Landlock is Linux's alone.
func Landlock() (version int, err error) { return 0, errors.ErrUnsupported }
