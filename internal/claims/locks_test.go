package claims_test

import (
	"context"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
)

func TestLocks(t *testing.T) {
	t.Parallel()
	type try struct {
		holder string
		mode   claims.LockMode
		ok     bool
	}
	tests := map[string][]try{
		"one writer":                         {{"a", claims.Exclusive, true}, {"b", claims.Exclusive, false}, {"b", claims.Shared, false}},
		"many readers":                       {{"a", claims.Shared, true}, {"b", claims.Shared, true}, {"c", claims.Exclusive, false}},
		"again":                              {{"a", claims.Exclusive, true}, {"a", claims.Exclusive, true}, {"a", claims.Shared, true}, {"b", claims.Shared, false}},
		"the only reader becomes the writer": {{"a", claims.Shared, true}, {"a", claims.Exclusive, true}, {"b", claims.Shared, false}},
		"one of two readers does not":        {{"a", claims.Shared, true}, {"b", claims.Shared, true}, {"a", claims.Exclusive, false}},
	}
	for name, tries := range tests {
		d := driver(newMemory(), newFakeProvider())
		for i, try := range tries {
			err := d.TakeLock(context.Background(), claims.LockRequest{Key: "workspace/w", Mode: try.mode, Holder: try.holder, Run: "r-" + try.holder, What: "session " + try.holder})
			if (err == nil) != try.ok {
				t.Errorf("%s: try %d: %v", name, i, err)
			}
			if err == nil {
				continue
			}
			wantFailure(t, err, failure.WorkspaceBusy, "workspace/w is in use by session ", " of run r-", "laufwerk runs show r-")
			if h, ok := failure.As(err).Fields["holder"].(string); !ok || strings.HasSuffix(h, " of run r-"+try.holder) || !strings.Contains(h, " of run r-") {
				t.Errorf("%s: the field holder is %v", name, failure.As(err).Fields["holder"])
			}
		}
	}
}

func TestDropLocks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	d := driver(newMemory(), newFakeProvider())
	take := func(key, holder string) error {
		return d.TakeLock(ctx, claims.LockRequest{Key: key, Mode: claims.Shared, Holder: holder, Busy: failure.AdmissionFull})
	}
	for _, k := range []string{"slot/p/r1", "workspace/w", "workspace/v"} {
		if err := take(k, "a"); err != nil {
			t.Fatal(err)
		}
	}
	if err := take("workspace/w", "b"); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, d.TakeLock(ctx, claims.LockRequest{Key: "slot/p/r1", Mode: claims.Exclusive, Holder: "b", Busy: failure.AdmissionFull}), failure.AdmissionFull)
	for range 2 { // twice is no error
		if err := d.DropLocks(ctx, "a"); err != nil {
			t.Fatal(err)
		}
	}
	locks, err := d.ListLocks(ctx, "")
	if err != nil || len(locks) != 1 || locks[0].Key != "workspace/w" || len(locks[0].Holders) != 1 || locks[0].Holders[0].ID != "b" {
		t.Fatalf("%+v, %v", locks, err)
	}
	wantFailure(t, take("", "a"), failure.Internal)
}

// Intent and locks are one commit: who cannot have the workspace has begun nothing.
func TestHoldsAreTakenWithTheIntent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	mem, w := newMemory(), newFakeProvider()
	d := driver(mem, w)
	first := allocate(t, d, "a")
	second := request("b")
	second.Locks = append(second.Locks, claims.LockRequest{Key: "workspace/a", Mode: claims.Exclusive, What: "session b"})
	calls := len(w.calls)
	_, err := d.Allocate(ctx, second)
	wantFailure(t, err, failure.WorkspaceBusy, "session a")
	if _, ok, err := d.ByOperation(ctx, "r1", "b"); ok || err != nil || len(w.calls) != calls {
		t.Fatalf("something was begun: %v, %v", ok, err)
	}
	if locks, err := d.ListLocks(ctx, "workspace/b"); err != nil || len(locks) > 0 {
		t.Fatalf("%v, %v", locks, err)
	}
	if _, err := d.Release(ctx, first.ID); err != nil {
		t.Fatal(err)
	}
	if c, err := d.Allocate(ctx, second); err != nil || len(c.Locks) != 2 {
		t.Fatalf("%+v, %v", c, err)
	}
	err = mem.Update(ctx, func(tx store.Tx) error {
		return d.TakeLockTx(tx, claims.LockRequest{Key: "workspace/b", Mode: claims.Shared, Holder: "x"})
	})
	wantFailure(t, err, failure.WorkspaceBusy)
}
