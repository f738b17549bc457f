//go:build !linux

package system

import (
	"fmt"
	"os"
)

// Ancestry is this process and its parent. Whether an ancestor carries the variable can only be said of this process here.
func Ancestry(variable string) (chain []string, carries bool) {
	_, carries = os.LookupEnv(variable)
	return []string{fmt.Sprint(os.Getpid()), fmt.Sprint(os.Getppid())}, carries
}

// Terminal is not known here.
func Terminal() string { return "" }
