//go:build !linux

package writeback

import "testing"

func denyRenameFlags(t *testing.T) { t.Skip("needs seccomp") }
