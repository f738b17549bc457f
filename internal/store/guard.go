package store

import (
	"fmt"
	"runtime/debug"
)

// fault is a panic inside bbolt, which is how it answers damage that it did not expect.
type fault struct{ what any }

func (f *fault) Error() string { return fmt.Sprintf("it is damaged: %v", f.what) }

// guard calls into bbolt. Panics, and reads of the mapped file that the system refuses, become errors.
func guard(call func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = &fault{what: r}
		}
	}()
	return call()
}
