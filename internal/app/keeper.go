package app

import (
	"context"
	"sync"

	"golang.org/x/sync/singleflight"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// keeper keeps one connection to each of the things that a process meets, by a key that tells them apart. All who want one that is
// being made wait for it together: of something that hangs, that is one wait for all. A failure is not kept.
type keeper[T any] struct {
	open   sync.Map // from key to T
	making singleflight.Group
}

// get is the connection that is kept, or what connect comes to. It does not wait longer than ctx; what is a name for people.
func (k *keeper[T]) get(ctx context.Context, key, what string, connect func(ctx context.Context) (T, error)) (T, error) {
	if kept, ok := k.open.Load(key); ok {
		return kept.(T), nil
	}
	made := k.making.DoChan(key, func() (any, error) {
		if kept, ok := k.open.Load(key); ok { // made between the question above and this call
			return kept, nil
		}
		made, err := connect(context.WithoutCancel(ctx)) // who asks first may leave before the others
		if err == nil {
			k.open.Store(key, made)
		}
		return made, err
	})
	select {
	case r := <-made:
		return r.Val.(T), r.Err
	case <-ctx.Done():
		var none T
		return none, failure.Wrap(context.Cause(ctx), failure.Failed, "connect to %s", what)
	}
}
