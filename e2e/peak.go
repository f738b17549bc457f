package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

// MeasurePeak runs a command to its end: its exit code, the peak of its resident memory in KiB, and all that it said. A process that
// this one starts itself has this one's own peak at least (the kernel counts what a process had before its exec), which is that
// of all tests before: a small process is put between.
func MeasurePeak(cmd *exec.Cmd) (code int, peak int64, out string, err error) {
	if cmd.Err != nil {
		return 0, 0, "", cmd.Err
	}
	between, err := exec.LookPath("measured")
	if err != nil {
		return 0, 0, "", err
	}
	to, err := os.CreateTemp("", "peak-")
	if err != nil {
		return 0, 0, "", err
	}
	defer os.Remove(to.Name())
	defer to.Close()
	cmd.Args = append([]string{between, to.Name(), cmd.Path}, cmd.Args...)
	cmd.Path = between
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return 0, 0, "", err
	}
	if _, err := fmt.Fscan(to, &peak); err != nil {
		return 0, 0, "", fmt.Errorf("the peak of %s is not known: %w\n%s", cmd.Args[2], err, text)
	}
	return cmd.ProcessState.ExitCode(), peak, string(text), nil
}

// measuredCommand is the process between. Its arguments are the file for the peak in KiB, the program, and the program's own,
// what it is called before them.
func measuredCommand() {
	cmd := &exec.Cmd{Path: os.Args[2], Args: os.Args[3:]}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	if cmd.ProcessState != nil {
		if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
			err = os.WriteFile(os.Args[1], []byte(fmt.Sprintln(usage.Maxrss)), 0o600)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measured:", err)
		os.Exit(99)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}
