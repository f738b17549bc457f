//go:build !crashpoints

package fault

import (
	"os"
	"time"
)

// Enabled says whether this build can be told to let calls fail.
const Enabled = false

// File is an open file.
type File = os.File

// Point does nothing in ordinary builds.
func Point(op, path string) error { return nil }

// Open takes what the operating system's open answered.
func Open(f *os.File, err error) (*File, error) { return f, err }

// Unwrap is the operating system's own file.
func Unwrap(f *File) *os.File { return f }

// Environment is nothing in ordinary builds.
func Environment() []string { return nil }

// Now is the time.
func Now() time.Time { return time.Now() }
