package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// sound is a home whose store has inline buckets, buckets of several pages, records over several pages, and free pages.
func sound(t *testing.T) *Home {
	t.Helper()
	h, err := OpenHome(filepath.Join(t.TempDir(), "home"), true)
	if err != nil {
		t.Fatal(err)
	}
	s := Open(h, time.Now, "test")
	for round := range 3 {
		err := s.Update(context.Background(), func(tx Tx) error {
			for i := range 120 {
				v := map[string]any{"round": round, "text": strings.Repeat("x", i*7)}
				if i == 60 {
					v["text"] = strings.Repeat("y", 3*pageSize)
				}
				if err := tx.Put(Claims, fmt.Sprintf("c%03d", i), v); err != nil {
					return err
				}
			}
			if round == 2 {
				for i := range 40 {
					if err := tx.Delete(Claims, fmt.Sprintf("c%03d", 80+i)); err != nil {
						return err
					}
				}
			}
			return tx.Put(Runs, "r1", map[string]int{"round": round})
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return h
}

func dump(s *Store) (map[string]string, error) {
	all := map[string]string{}
	err := s.View(context.Background(), func(tx Tx) error {
		for _, b := range []Bucket{Runs, Keys, Locks, Claims, Notes} {
			if err := tx.Each(b, "", func(key string, raw json.RawMessage) error {
				all[string(b)+"/"+key] = string(raw)
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return all, err
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// newestPage is the number of the meta page of the newest commit.
func newestPage(b []byte) int {
	m0, _ := parseMeta(b[pageHeader:])
	m1, _ := parseMeta(b[pageSize+pageHeader:])
	if m1.txid > m0.txid {
		return 1
	}
	return 0
}

func zeroed(b []byte, pages ...int) []byte {
	b = bytes.Clone(b)
	for _, p := range pages {
		clear(b[p*pageSize : (p+1)*pageSize])
	}
	return b
}

func TestDamagedStoreIsRefusedAndLeftAlone(t *testing.T) {
	t.Parallel()
	h := sound(t)
	good := read(t, h.StateFile())
	newest := newestPage(good)
	m, _ := parseMeta(good[newest*pageSize+pageHeader:])
	tests := map[string]struct {
		bytes []byte
		says  string
	}{
		"0 bytes":          {nil, "empty"},
		"1 byte":           {good[:1], "truncated"},
		"100 bytes":        {good[:100], "truncated"},
		"4096 bytes":       {good[:4096], "truncated"},
		"8192 bytes":       {good[:8192], "truncated"},
		"half":             {good[:len(good)/2/pageSize*pageSize], "truncated"},
		"one page short":   {good[:int(highWater(good)-1)*pageSize], "truncated"},
		"one byte short":   {good[:int(highWater(good))*pageSize-1], "truncated"},
		"newest meta gone": {zeroed(good, newest), "older"},
		"both metas gone":  {zeroed(good, 0, 1), "both of its meta pages are bad"},
		"a page gone":      {zeroed(good, int(m.root)), "damaged"},
		"text":             {bytes.Repeat([]byte("not a store\n"), 2000), "both of its meta pages are bad"},
		"zeros":            {make([]byte, 32768), "both of its meta pages are bad"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			write(t, h.StateFile(), tt.bytes)
			s := Open(h, time.Now, "test")
			_, verr := dump(s)
			uerr := s.Update(context.Background(), func(tx Tx) error { return tx.Put(Runs, "r2", map[string]int{}) })
			for _, err := range []error{verr, uerr} {
				if !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), h.StateFile()) || failure.As(err).Hint == "" {
					t.Errorf("got %v (%s), want StoreInvalid that says %q", err, failure.KindOf(err), tt.says)
				}
			}
			if now := read(t, h.StateFile()); !bytes.Equal(now, tt.bytes) {
				t.Error("the refused file was changed")
			}
		})
	}
	// What was refused is a good store again once a good copy is back.
	write(t, h.StateFile(), good)
	if all, err := dump(Open(h, time.Now, "test")); err != nil || len(all) != 81 {
		t.Fatalf("%d records, %v", len(all), err)
	}
}

func highWater(b []byte) uint64 {
	m, _ := parseMeta(b[newestPage(b)*pageSize+pageHeader:])
	return m.high
}

// A commit that was cut while it wrote its meta page leaves one bad page. The other one counts, if nothing newer was committed.
func TestTornMetaPage(t *testing.T) {
	t.Parallel()
	h := sound(t)
	good := read(t, h.StateFile())
	want, err := dump(Open(h, time.Now, "test"))
	if err != nil {
		t.Fatal(err)
	}
	older := 1 - newestPage(good)

	write(t, h.StateFile(), zeroed(good, older))
	s := Open(h, time.Now, "test")
	if got, err := dump(s); err != nil || !maps.Equal(got, want) {
		t.Fatalf("the older page is bad, the newest is proved by the mark: %v", err)
	}
	if err := s.Update(context.Background(), func(tx Tx) error { return tx.Put(Runs, "r2", map[string]int{}) }); err != nil {
		t.Fatal(err)
	}
	if got, err := dump(Open(h, time.Now, "test")); err != nil || len(got) != len(want)+1 {
		t.Fatalf("after the next commit: %d records, %v", len(got), err)
	}

	mark := read(t, h.markFile())
	for name, words := range map[string]string{"none": "", "garbage": "laufwerk.mark 2 x", "flipped": strings.Replace(string(mark), "1 0", "1 1", 1)} {
		write(t, h.StateFile(), zeroed(good, older))
		write(t, h.markFile(), []byte(words))
		if _, err := dump(Open(h, time.Now, "test")); !failure.Is(err, failure.StoreInvalid) {
			t.Errorf("mark %s: one bad meta page was accepted without proof: %v", name, err)
		}
		write(t, h.StateFile(), good)
		if _, err := dump(Open(h, time.Now, "test")); err != nil {
			t.Errorf("mark %s: a sound store does not need it: %v", name, err)
		}
	}
}

func TestOlderCopyIsNotTakenSilently(t *testing.T) {
	t.Parallel()
	h := sound(t)
	old := read(t, h.StateFile())
	s := Open(h, time.Now, "test")
	if err := s.Update(context.Background(), func(tx Tx) error { return tx.Put(Runs, "r2", map[string]int{}) }); err != nil {
		t.Fatal(err)
	}
	write(t, h.StateFile(), old)
	_, err := dump(Open(h, time.Now, "test"))
	if !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), h.markFile()) {
		t.Fatal(err)
	}
	if err := os.Remove(h.markFile()); err != nil { // as the message says
		t.Fatal(err)
	}
	if err := Open(h, time.Now, "test").Update(context.Background(), func(Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := readMark(h.markFile()); !ok || err != nil {
		t.Fatal("the mark was not set again", err)
	}
}

// Whatever bit flips: the store is refused, or it holds exactly what it held.
func TestRandomFlips(t *testing.T) {
	t.Parallel()
	h := sound(t)
	good := read(t, h.StateFile())
	want, err := dump(Open(h, time.Now, "test"))
	if err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	var bits []int
	m, _ := parseMeta(good[newestPage(good)*pageSize+pageHeader:])
	for _, p := range []int{0, 1, int(m.root), int(m.freelist)} { // all heads, and both metas and the root's head whole
		for bit := range 100 * 8 {
			bits = append(bits, p*pageSize*8+bit)
		}
	}
	for p := range int(m.high) {
		for bit := range pageHeader * 8 {
			bits = append(bits, p*pageSize*8+bit)
		}
	}
	for range 1500 {
		bits = append(bits, rng.IntN(int(m.high)*pageSize*8))
	}
	if testing.Short() {
		rng.Shuffle(len(bits), func(i, j int) { bits[i], bits[j] = bits[j], bits[i] })
		bits = bits[:1000]
	}
	f, err := os.OpenFile(h.StateFile(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	refused, same := 0, 0
	for _, bit := range bits {
		flipped := []byte{good[bit/8] ^ 1<<(bit%8)}
		if _, err := f.WriteAt(flipped, int64(bit/8)); err != nil {
			t.Fatal(err)
		}
		got, err := dump(Open(h, time.Now, "test"))
		switch {
		case err == nil && maps.Equal(got, want):
			same++
		case failure.Is(err, failure.StoreInvalid):
			refused++
		default:
			t.Fatalf("seed %d, bit %d of page %d: %d records, %v", seed, bit%(pageSize*8), bit/8/pageSize, len(got), err)
		}
		if _, err := f.WriteAt(good[bit/8:bit/8+1], int64(bit/8)); err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 || same == 0 {
		t.Fatalf("%d refused, %d unharmed: the test does not reach both", refused, same)
	}
}

// What bbolt does with damage that the check would not know becomes a refusal too.
func TestPanicsOfBboltAreRefusals(t *testing.T) {
	t.Parallel()
	h := sound(t)
	b := read(t, h.StateFile())
	m, _ := parseMeta(b[newestPage(b)*pageSize+pageHeader:])
	binary.LittleEndian.PutUint64(b[m.root*pageSize:], 99)
	write(t, h.StateFile(), b)
	s := Open(h, time.Now, "test")
	err := s.transact(false, func(tx Tx) error { _, err := tx.Get(Runs, "r1", new(map[string]int)); return err })
	if !failure.Is(err, failure.StoreInvalid) {
		t.Fatalf("got %v", err)
	}

	// A file that is cut while it is mapped: the read faults, which would end the process.
	h = sound(t)
	s = Open(h, time.Now, "test")
	err = s.transact(false, func(tx Tx) error {
		if err := os.Truncate(h.StateFile(), 8192); err != nil {
			return err
		}
		return tx.Each(Claims, "", func(string, json.RawMessage) error { return nil })
	})
	if !failure.Is(err, failure.StoreInvalid) {
		t.Fatalf("got %v", err)
	}
}

func TestOtherThingsAtTheStoresPath(t *testing.T) {
	t.Parallel()
	for name, put := range map[string]func(path string) error{
		"directory":     func(p string) error { return os.Mkdir(p, 0o700) },
		"symbolic link": func(p string) error { return os.Symlink("/dev/null", p) },
		"fifo":          func(p string) error { return syscall.Mkfifo(p, 0o600) },
	} {
		h := sound(t)
		if err := os.Rename(h.StateFile(), h.StateFile()+".away"); err != nil {
			t.Fatal(err)
		}
		if err := put(h.StateFile()); err != nil {
			t.Fatal(err)
		}
		s := Open(h, time.Now, "test")
		_, verr := dump(s)
		uerr := s.Update(context.Background(), func(Tx) error { return nil })
		for _, err := range []error{verr, uerr} {
			if !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestLostStoreIsNotMadeAnew(t *testing.T) {
	t.Parallel()
	for _, left := range []string{"owner", "locks/state.mark"} {
		h := sound(t)
		for _, f := range []string{"state.db", "owner", "locks/state.mark"} {
			if f != left {
				if err := os.Remove(filepath.Join(h.Dir(), f)); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := Open(h, time.Now, "test")
		_, verr := dump(s)
		for _, err := range []error{verr, s.Update(context.Background(), func(Tx) error { return nil })} {
			if !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), left) {
				t.Errorf("only %s is left: %v", left, err)
			}
		}
	}
}

func TestOwnerFileOfAnotherStore(t *testing.T) {
	t.Parallel()
	h := sound(t)
	write(t, h.OwnerFile(), []byte("another\n"))
	_, err := dump(Open(h, time.Now, "test"))
	if !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), "another") {
		t.Fatal(err)
	}
	if err := os.Remove(h.OwnerFile()); err != nil {
		t.Fatal(err)
	}
	s := Open(h, time.Now, "test")
	if err := s.Update(context.Background(), func(Tx) error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(read(t, h.OwnerFile()))); got != s.cachedID() {
		t.Fatalf("the owner file says %q", got)
	}
}

func TestFormats(t *testing.T) {
	t.Parallel()
	tests := map[string]failure.Kind{
		"laufwerk.store 1.0": "", "laufwerk.store 1.7": "",
		"laufwerk.store 2.0": failure.StoreNewer, "laufwerk.store 10.3": failure.StoreNewer,
		"laufwerk.store 0.9": failure.StoreInvalid, "other 1.0": failure.StoreInvalid, "": failure.StoreInvalid,
	}
	for name, want := range tests {
		h := sound(t)
		db, err := bolt.Open(h.StateFile(), 0o600, nil)
		if err != nil {
			t.Fatal(err)
		}
		err = db.Update(func(tx *bolt.Tx) error {
			b := tx.Bucket([]byte(formatBucket))
			v, _, err := unseal([]byte(formatBucket), []byte(formatKey), b.Get([]byte(formatKey)))
			if err != nil {
				return err
			}
			var f map[string]any
			if err := json.Unmarshal(v, &f); err != nil {
				return err
			}
			f["format"], f["newer"] = name, true
			f["sum"] = json.Number(string(mustField(v, "sum")))
			v, err = json.Marshal(f)
			if err != nil {
				return err
			}
			return b.Put([]byte(formatKey), seal([]byte(formatBucket), []byte(formatKey), v))
		})
		if err != nil || db.Close() != nil {
			t.Fatal(err)
		}
		s := Open(h, time.Now, "test")
		err = s.Update(context.Background(), func(tx Tx) error { return tx.Put(Runs, "r9", map[string]int{"a": 1}) })
		if failure.KindOf(err) != want {
			t.Errorf("%q: %v", name, err)
		}
		if want != "" {
			continue
		}
		if err := s.View(context.Background(), func(tx Tx) error {
			v, _, err := unseal([]byte(formatBucket), []byte(formatKey), tx.(*boltTx).tx.Bucket([]byte(formatBucket)).Get([]byte(formatKey)))
			if !bytes.Contains(v, []byte(name)) || !bytes.Contains(v, []byte(`"newer":true`)) {
				t.Errorf("what a newer version wrote became %s", v)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func mustField(object []byte, name string) json.RawMessage {
	var m map[string]json.RawMessage
	_ = json.Unmarshal(object, &m)
	return m[name]
}

func TestBboltFileOfAnotherProgram(t *testing.T) {
	t.Parallel()
	h := sound(t)
	if err := os.Remove(h.StateFile()); err != nil {
		t.Fatal(err)
	}
	db, err := bolt.Open(h.StateFile(), 0o600, &bolt.Options{PageSize: pageSize})
	if err != nil || db.Close() != nil {
		t.Fatal(err)
	}
	if err := os.Remove(h.markFile()); err != nil {
		t.Fatal(err)
	}
	if _, err := dump(Open(h, time.Now, "test")); !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), "not one of laufwerk's") {
		t.Fatal(err)
	}
}

// A branch page that leads back to itself is the damage on which bbolt would recurse until the process ends.
func TestPageThatContainsItself(t *testing.T) {
	t.Parallel()
	h := sound(t)
	b := read(t, h.StateFile())
	le := binary.LittleEndian
	for p := 2; p < int(highWater(b)); p++ {
		page := b[p*pageSize:]
		if le.Uint64(page) == uint64(p) && le.Uint16(page[8:]) == flagBranch {
			le.PutUint64(page[pageHeader+8:], uint64(p))
		}
	}
	write(t, h.StateFile(), b)
	if _, err := dump(Open(h, time.Now, "test")); !failure.Is(err, failure.StoreInvalid) || !strings.Contains(err.Error(), "used twice") {
		t.Fatal(err)
	}
}

func TestMetaSumIsBbolts(t *testing.T) {
	t.Parallel()
	sum := fnv.New64a()
	b := read(t, sound(t).StateFile())
	_, _ = sum.Write(b[pageHeader : pageHeader+metaLen-8])
	if got := le64(b[pageHeader+metaLen-8:]); got != sum.Sum64() {
		t.Fatalf("bbolt wrote %x, we compute %x: its format has changed", got, sum.Sum64())
	}
}

func le64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
