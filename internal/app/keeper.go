package app

import (
	"context"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// keeper keeps one connection to each of the things that a process meets, by a key that tells them apart.
type keeper[T any] struct {
	mu     sync.Mutex
	open   map[string]T
	making map[string]*connecting[T]
}

// connecting is a connection that is being made. All who want it meanwhile get what it comes to: of something that hangs, that
// is one wait for all.
type connecting[T any] struct {
	done chan struct{}
	to   T
	err  error
}

// get is the connection that is kept, or what connect comes to. It does not wait longer than ctx; what is a name for people.
func (k *keeper[T]) get(ctx context.Context, key, what string, connect func(ctx context.Context) (T, error)) (T, error) {
	k.mu.Lock()
	if there, ok := k.open[key]; ok {
		k.mu.Unlock()
		return there, nil
	}
	c, busy := k.making[key]
	if !busy {
		c = &connecting[T]{done: make(chan struct{})}
		if k.making == nil {
			k.open, k.making = map[string]T{}, map[string]*connecting[T]{}
		}
		k.making[key] = c
		go k.connect(context.WithoutCancel(ctx), key, c, connect)
	}
	k.mu.Unlock()
	select {
	case <-c.done:
		return c.to, c.err
	case <-ctx.Done():
		var none T
		return none, failure.Wrap(context.Cause(ctx), failure.Failed, "connect to %s", what)
	}
}

func (k *keeper[T]) connect(ctx context.Context, key string, c *connecting[T], connect func(ctx context.Context) (T, error)) {
	c.to, c.err = connect(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	if delete(k.making, key); c.err == nil {
		k.open[key] = c.to
	}
	close(c.done)
}
