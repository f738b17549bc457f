package workflow_test

import (
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

func sleep(ms float64) program {
	return func(s *strand) (any, error) {
		if _, err := s.do(protocol.OpClockSleep, "nap", map[string]float64{"duration": ms}); err != nil {
			return nil, err
		}
		return "awake", nil
	}
}

// What is journaled is when to wake up: a sleep goes on while nobody works on the run, and while the machine is off.
func TestASleepGoesOnWhileNobodyWorks(t *testing.T) {
	for name, c := range map[string]struct {
		duration float64
		jump     time.Duration
		awake    bool
	}{
		"over":            {3_600_000, 2 * time.Hour, true},
		"not over":        {3_600_000, 30 * time.Minute, false},
		"clock set back":  {3_600_000, -24 * time.Hour, false},
		"as good as ever": {1e300, 1000 * 24 * time.Hour, false},
		"none":            {0, 0, true},
		"fraction":        {0.4, time.Second, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newRunFixture(t)
			k := w.worker(sleep(c.duration)).start()
			go func() {
				k.waitForEvent("operation", "begins")
				k.engine.Stop(session.ErrDetached)
			}()
			out, err := k.run(t.Context())
			if err != nil || out.State == workflow.Succeeded && c.duration > 1 {
				t.Fatalf("%+v, %v", out, err)
			}
			if out.State == workflow.Succeeded {
				return
			}
			w.mu.Lock()
			w.now = w.now.Add(c.jump)
			w.mu.Unlock()
			k = w.worker(sleep(c.duration)).start()
			if !c.awake {
				go func() {
					k.waitForEvent("operation", "begins")
					time.Sleep(20 * time.Millisecond)
					k.engine.Stop(session.ErrDetached)
				}()
				k.leaves(workflow.Interrupted)
				for _, r := range w.records {
					if r.Type == journal.Completed {
						t.Error("it woke up early")
					}
				}
				return
			}
			wantValue(t, k.leaves(workflow.Succeeded), `"awake"`)
		})
	}
}
