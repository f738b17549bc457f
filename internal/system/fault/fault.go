// Package fault is the one point that every call of internal/system to the operating system passes, if that call can fail: files,
// programs, locks, processes, the clock and connections. A test makes one call fail there, and looks at what the command makes of it.
// Ordinary builds compile the point away; builds with the tag `crashpoints` obey these variables:
//
//	LAUFWERK_FAULT=site#n      the n-th call (from 1, in each process) of a site fails
//	LAUFWERK_FAULT_ERROR=EIO   with this error; for the clock a duration, by which it is wrong from then on
//	LAUFWERK_FAULT_ONCE=file   only one process's call fails: that of the one that makes the file
//	LAUFWERK_FAULT_LOG=file    append a line `site#n` for every call
//
// A site is what is done and the way to it through the code above internal/system, nearest first:
// `write journal/log.go:251 workflow/operation.go:88`.
package fault

// Do is a call of op on path: it is made, or fails.
func Do(op, path string, call func() error) error {
	if err := Point(op, path); err != nil {
		return err
	}
	return call()
}

// Get is Do of a call that answers something about path.
func Get[T any](op, path string, call func(path string) (T, error)) (v T, err error) {
	if err := Point(op, path); err != nil {
		return v, err
	}
	return call(path)
}
