//go:build !linux

package system

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// Ancestry is this process and its parent. Whether an ancestor carries the variable can only be said of this process here.
func Ancestry(variable string) (chain []string, carries bool) {
	_, carries = os.LookupEnv(variable)
	return []string{fmt.Sprint(os.Getpid()), fmt.Sprint(os.Getppid())}, carries
}

// Terminal is not known here.
func Terminal() string { return "" }

// Landlock is Linux's alone.
func Landlock() (version int, err error) { return 0, errors.ErrUnsupported }

// DiscardTypeahead is not to be had here.
func DiscardTypeahead(io.Reader) {}
