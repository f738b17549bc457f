package workflow

import (
	"context"
	"encoding/json"
	"math"
	"time"
)

func runClockNow(_ context.Context, op *Op) (any, any, error) {
	return op.engine.now().UnixMilli(), nil, nil
}

// recheckInterval is how often a sleep compares its time with the clock: a timer alone is wrong after the machine was suspended or its
// clock was set.
const recheckInterval = 30 * time.Second

// maxSleep bounds a sleep, in ms: about a thousand years.
const maxSleep = 1 << 45

// runClockSleep is durable: the time to wake up is journaled, so that a sleep passes while the run has no worker.
func runClockSleep(ctx context.Context, op *Op) (any, any, error) {
	var wake struct {
		At int64 `json:"wake"` // ms since 1970
	}
	if _, data := op.Attempts(); len(data) > 0 {
		if err := json.Unmarshal(data, &wake); err != nil {
			return nil, nil, err
		}
	} else {
		var a struct {
			Duration float64 `json:"duration"` // ms
		}
		if err := json.Unmarshal(op.Call.Args, &a); err != nil {
			return nil, nil, err
		}
		wake.At = op.engine.now().UnixMilli() + int64(math.Ceil(max(0, min(a.Duration, maxSleep))))
		if err := op.Start(wake); err != nil {
			return nil, nil, err
		}
	}
	for {
		left := wake.At - op.engine.now().UnixMilli()
		if left <= 0 {
			return nil, nil, nil
		}
		timer := time.NewTimer(time.Duration(min(left, recheckInterval.Milliseconds())) * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, context.Cause(ctx)
		}
	}
}
