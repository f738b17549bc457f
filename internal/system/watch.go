package system

import (
	"sync"
	"time"
)

// Watch bounds stretches of work that follow each other quickly. A timer for each would cost more than a short stretch does,
// since setting one may wake a thread: so the timer of one stretch is left to run over those that follow.
type Watch struct {
	late func()

	mu    sync.Mutex
	until time.Time // of the present stretch, zero between them
	fires time.Time // zero while the timer is not set
	timer *time.Timer
	fired bool
}

// NewWatch makes one that calls late once a stretch has taken longer than it may. The stretch does not end while late runs.
func NewWatch(late func()) *Watch { return &Watch{late: late} }

// Begin begins a stretch, which ends the one before.
func (w *Watch) Begin(limit time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until, w.fired = time.Now().Add(limit), false
	if w.fires.IsZero() || w.until.Before(w.fires) {
		w.set(limit)
	}
}

func (w *Watch) set(after time.Duration) {
	w.fires = time.Now().Add(after)
	if w.timer == nil {
		w.timer = time.AfterFunc(after, w.check)
	} else {
		w.timer.Reset(after)
	}
}

func (w *Watch) check() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fires = time.Time{}
	if w.until.IsZero() {
		return
	}
	if left := time.Until(w.until); left > 0 {
		w.set(left)
		return
	}
	w.until, w.fired = time.Time{}, true
	w.late()
}

// IsLate says whether the stretch has taken too long already.
func (w *Watch) IsLate() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.fired
}

// End ends the stretch and says whether it was late.
func (w *Watch) End() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Time{}
	return w.fired
}

// Stop ends the stretch, and lets go of the timer.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until, w.fires = time.Time{}, time.Time{}
	if w.timer != nil {
		w.timer.Stop()
	}
}
