package store_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
)

func TestRecordsComeBack(t *testing.T) {
	t.Parallel()
	s := open(t, newHome(t))
	update(t, s, func(tx store.Tx) error {
		for _, k := range []string{"b/2", "a/1", "b/1"} {
			if err := tx.Put(store.Runs, k, map[string]string{"key": k}); err != nil {
				return err
			}
		}
		return nil
	})
	update(t, s, func(tx store.Tx) error {
		return errors.Join(tx.Delete(store.Runs, "a/1"), tx.Delete(store.Runs, "never there"), tx.Delete("no bucket", "x"))
	})
	err := s.View(context.Background(), func(tx store.Tx) error {
		var keys []string
		err := tx.Each(store.Runs, "b/", func(key string, raw json.RawMessage) error {
			keys = append(keys, key)
			return nil
		})
		if want := []string{"b/1", "b/2"}; !slices.Equal(keys, want) {
			t.Errorf("keys %q, want %q", keys, want)
		}
		var got map[string]string
		ok, gerr := tx.Get(store.Runs, "b/2", &got)
		if !ok || got["key"] != "b/2" {
			t.Errorf("b/2 is %v, %v", got, ok)
		}
		ok, gerr2 := tx.Get(store.Runs, "a/1", &got)
		if ok {
			t.Error("a/1 is still there")
		}
		return errors.Join(err, gerr, gerr2)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestFailedUpdateWritesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, newHome(t))
	update(t, s, func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{1}) })
	boom := errors.New("boom")
	err := s.Update(context.Background(), func(tx store.Tx) error {
		if err := tx.Put(store.Runs, "r", counter{2}); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = s.Update(context.Background(), func(tx store.Tx) error {
			_ = tx.Put(store.Runs, "r", counter{3})
			panic("a fault of the caller's is no damage")
		})
	}()
	var c counter
	update(t, s, func(tx store.Tx) error { _, err := tx.Get(store.Runs, "r", &c); return err })
	if c.N != 1 {
		t.Fatalf("the record is %d", c.N)
	}
}

func TestUnknownFieldsSurvive(t *testing.T) {
	t.Parallel()
	type inner struct {
		A int `json:"a,omitempty"`
	}
	type base struct {
		Base string `json:"base,omitempty"`
	}
	type record struct {
		base
		Inner *inner    `json:"inner,omitempty"`
		At    time.Time `json:"at,omitzero"`
		Name  string    `json:"name,omitempty"`
		Map   map[string]int
	}
	s := open(t, newHome(t))
	put := func(v any) {
		t.Helper()
		update(t, s, func(tx store.Tx) error { return tx.Put(store.Runs, "r", v) })
	}
	put(json.RawMessage(`{"name":"old","base":"b","at":"2026-01-02T03:04:05Z","inner":{"a":1,"newer":[1]},"Map":{"gone":1},"newer":{"x":true}}`))
	put(record{Inner: &inner{}, Map: map[string]int{"kept": 2}})
	var raw json.RawMessage
	update(t, s, func(tx store.Tx) error { _, err := tx.Get(store.Runs, "r", &raw); return err })
	// Known fields that became empty are gone; fields of a newer version are there, also inside an object.
	if want := `{"Map":{"kept":2},"inner":{"newer":[1]},"newer":{"x":true}}`; string(raw) != want {
		t.Fatalf("got  %s\nwant %s", raw, want)
	}
}

func TestNamesAndShapesOfRecords(t *testing.T) {
	t.Parallel()
	s := open(t, newHome(t))
	update(t, s, func(tx store.Tx) error {
		for _, err := range []error{
			tx.Put(store.Runs, "", counter{}), tx.Put("laufwerk", "format", counter{}), tx.Put(store.Runs, "list", []int{1}),
			tx.Put(store.Runs, strings.Repeat("k", 1<<16), counter{}), tx.Put(store.Runs, "func", func() {}), tx.Delete("laufwerk", "format"),
		} {
			if !failure.Is(err, failure.Internal) {
				t.Errorf("accepted: %v", err)
			}
		}
		return nil
	})
	err := s.View(context.Background(), func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{}) })
	if !failure.Is(err, failure.Internal) {
		t.Errorf("a view wrote: %v", err)
	}
}

func TestLookingCreatesNothing(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	h, err := store.OpenHome(home, false)
	if err != nil {
		t.Fatal(err)
	}
	s := store.Open(h, time.Now, "test")
	err = s.View(context.Background(), func(tx store.Tx) error {
		ok, err := tx.Get(store.Runs, "r", new(counter))
		if ok || !failure.Is(tx.Put(store.Runs, "r", counter{}), failure.Internal) || !failure.Is(tx.Delete(store.Runs, "r"), failure.Internal) {
			t.Error("an empty store has records")
		}
		return errors.Join(err, tx.Each(store.Runs, "", func(string, json.RawMessage) error { return errors.New("a record") }))
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(home); !os.IsNotExist(err) {
		t.Fatalf("the home was made: %v", err)
	}
}

func TestReadersLeaveTheStoreByteIdentical(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	s := open(t, home)
	update(t, s, func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{7}) })
	before := snapshot(t, home)

	other := open(t, home)
	if _, err := other.ID(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := other.View(context.Background(), func(tx store.Tx) error { _, err := tx.Get(store.Runs, "r", new(counter)); return err }); err != nil {
			t.Fatal(err)
		}
		// Updates that change nothing are reads.
		update(t, other, func(tx store.Tx) error {
			return errors.Join(tx.Put(store.Runs, "r", counter{7}), tx.Delete(store.Runs, "none"))
		})
	}
	for path, was := range before {
		if now := snapshot(t, home)[path]; !bytes.Equal(now, was) {
			t.Errorf("%s changed", path)
		}
	}
}

// snapshot is every file of a home, the gate aside.
func snapshot(t *testing.T, home string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.Walk(home, func(path string, st os.FileInfo, err error) error {
		if err != nil || st.IsDir() || path == filepath.Join(home, "locks", "state") {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = b
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestIDIsMadeWithTheStoreAndPlainInTheOwnerFile(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	id, err := open(t, home).ID(context.Background())
	if err != nil || len(id) != 32 {
		t.Fatalf("id %q, %v", id, err)
	}
	if again, err := open(t, home).ID(context.Background()); err != nil || again != id {
		t.Fatalf("the id was %s and is %s, %v", id, again, err)
	}
	if b, err := os.ReadFile(filepath.Join(home, "owner")); err != nil || string(b) != id+"\n" {
		t.Fatalf("owner file %q, %v", b, err)
	}
	if other, _ := open(t, newHome(t)).ID(context.Background()); other == id {
		t.Fatal("two stores have one id")
	}
}

func TestFilesArePrivate(t *testing.T) {
	t.Parallel()
	home := newHome(t)
	update(t, open(t, home), func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{1}) })
	err := filepath.Walk(home, func(path string, st os.FileInfo, err error) error {
		if err == nil && st.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, st.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestStoreReplacedUnderACommandIsRefused(t *testing.T) {
	t.Parallel()
	home, other := newHome(t), newHome(t)
	s, o := open(t, home), open(t, other)
	for _, x := range []*store.Store{s, o} {
		update(t, x, func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{1}) })
	}
	for _, f := range []string{"state.db", "owner", "locks/state.mark"} {
		b, err := os.ReadFile(filepath.Join(other, f))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, f), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	wantKind(t, s.Update(context.Background(), func(store.Tx) error { return nil }), failure.StoreInvalid, "replaced")
}

func TestCancelledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	home := newHome(t)
	if err := open(t, home).Update(ctx, func(store.Tx) error { t.Error("ran"); return nil }); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(home, "state.db")); !os.IsNotExist(err) {
		t.Fatal("a cancelled update made the store")
	}
}
