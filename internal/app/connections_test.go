package app

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestKeeperConnectsOnceForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var k keeper[*int]
		var calls atomic.Int32
		answer := make(chan error)
		connect := func(ctx context.Context) (*int, error) {
			calls.Add(1)
			err := <-answer
			return new(int), errors.Join(err, ctx.Err())
		}
		first, leave := context.WithCancel(t.Context())
		var results [3]error
		var all sync.WaitGroup
		for i, ctx := range []context.Context{first, t.Context(), t.Context()} {
			all.Go(func() { _, results[i] = k.get(ctx, "key", "an engine", connect) })
			synctest.Wait()
		}
		leave() // the one who asked first does not take the connection from the others
		synctest.Wait()
		answer <- nil
		all.Wait()
		if !errors.Is(results[0], context.Canceled) || results[1] != nil || results[2] != nil || calls.Load() != 1 {
			t.Errorf("%v after %d calls, want canceled, nil, nil after one", results, calls.Load())
		}
		if _, err := k.get(first, "key", "an engine", connect); err != nil || calls.Load() != 1 {
			t.Errorf("a kept connection is made again, or not given to who has no time: %v, %d calls", err, calls.Load())
		}
	})
}

func TestKeeperForgetsFailures(t *testing.T) {
	var k keeper[*int]
	broken := errors.New("broken")
	if _, err := k.get(t.Context(), "key", "an engine", func(context.Context) (*int, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
	if _, err := k.get(t.Context(), "key", "an engine", func(context.Context) (*int, error) { return new(int), nil }); err != nil {
		t.Error(err)
	}
}
