//go:build !linux

package process

import (
	"os/exec"
	"syscall"
)

func childAttr() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func startUnprivileged(cmd *exec.Cmd) error { return cmd.Start() }

// Confine does nothing here: the limits of the script engine and the parent's deadline are all there is.
func Confine(uint64) error { return nil }
