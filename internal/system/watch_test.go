package system_test

import (
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/system"
)

func TestWatch(t *testing.T) {
	late := make(chan struct{}, 1)
	w := system.NewWatch(func() { late <- struct{}{} })
	fired := func(when string) {
		t.Helper()
		select {
		case <-late:
		case <-time.After(time.Minute):
			t.Fatalf("%s: nobody was told", when)
		}
		if !w.IsLate() || !w.End() {
			t.Errorf("%s: it was not late", when)
		}
	}

	w.Begin(time.Hour)
	w.Begin(time.Millisecond) // shorter than what the timer is set to
	fired("a shorter stretch")

	w.Begin(time.Millisecond)
	for range 100 { // the timer of the first runs out during a later one
		w.Begin(time.Hour)
		time.Sleep(100 * time.Microsecond)
		if w.End() {
			t.Fatal("a stretch of an hour was late")
		}
	}

	w.Begin(20 * time.Millisecond)
	w.End()
	w.Begin(60 * time.Millisecond) // the timer runs out, and is set once more
	fired("a stretch that began while the timer ran")

	w.Begin(time.Hour)
	w.Stop()
	w.Begin(time.Millisecond)
	fired("after a stop")
}
