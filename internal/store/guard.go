package store

import (
	"fmt"
	"runtime/debug"
)

// boltDamage is a panic inside bbolt, which is how it answers damage that it did not expect.
type boltDamage struct{ what any }

func (f *boltDamage) Error() string { return fmt.Sprintf("it is damaged: %v", f.what) }

// guardBolt calls into bbolt. Panics, and reads of the mapped file that the system refuses, become errors.
func guardBolt(call func() error) (err error) {
	old := debug.SetPanicOnFault(true)
	defer func() {
		debug.SetPanicOnFault(old)
		if r := recover(); r != nil {
			err = &boltDamage{what: r}
		}
	}()
	return call()
}
