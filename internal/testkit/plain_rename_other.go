//go:build !linux

package testkit

import "errors"

// PlainRenames needs seccomp.
func PlainRenames() error { return errors.ErrUnsupported }
