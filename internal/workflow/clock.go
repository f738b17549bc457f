package workflow

import (
	"context"
	"encoding/json"
	"time"
)

func clockNow(_ context.Context, op *Op) (any, any, error) {
	return op.engine.now().UnixMilli(), nil, nil
}

// clockSleep is durable: what is journaled is when to wake up, so a sleep goes on while nobody works on the run.
func clockSleep(ctx context.Context, op *Op) (any, any, error) {
	var wake struct {
		At int64 `json:"wake"` // ms since 1970
	}
	if n, data := op.Attempts(); n > 0 {
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
		wake.At = op.engine.now().UnixMilli() + int64(a.Duration)
		if err := op.Start(wake); err != nil {
			return nil, nil, err
		}
	}
	timer := time.NewTimer(time.Duration(wake.At-op.engine.now().UnixMilli()) * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil, nil, nil
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
}
