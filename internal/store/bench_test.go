package store_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/store"
)

func BenchmarkStore(b *testing.B) {
	h, err := store.OpenHome(filepath.Join(b.TempDir(), "home"), true)
	if err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	s := store.Open(h, time.Now, "bench")
	n := 0
	put := func(tx store.Tx) error {
		n++
		return tx.Put(store.Claims, "c", counter{n})
	}
	get := func(tx store.Tx) error { _, err := tx.Get(store.Claims, "c", new(counter)); return err }
	b.Run("update", func(b *testing.B) {
		for b.Loop() {
			if err := s.Update(ctx, put); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("view", func(b *testing.B) {
		for b.Loop() {
			if err := s.View(ctx, get); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("first view of a process", func(b *testing.B) { // with the whole check
		for b.Loop() {
			if err := store.Open(h, time.Now, "bench").View(ctx, get); err != nil {
				b.Fatal(err)
			}
		}
	})
}
