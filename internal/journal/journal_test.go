package journal_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
)

func write(t *testing.T, n int) (dir, log string) {
	t.Helper()
	dir = t.TempDir()
	w, old, err := journal.Open(dir).Open()
	if err != nil || len(old) != 0 {
		t.Fatalf("open: %v, %d records", err, len(old))
	}
	for i := range n {
		r := journal.Record{Type: journal.Started, At: time.Unix(int64(i), 0).UTC(), Op: strings.Repeat("x", i+1)}
		if i == 0 {
			r = journal.Record{Type: journal.Begin, Version: journal.Version, Run: "r"}
		}
		if err := w.Append(r); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.Appends(); got != n {
		t.Fatalf("%d appends for %d records: one fsync each", got, n)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, "journal")
}

func TestEveryTornTailIsCutAndEveryEarlierDamageIsRefused(t *testing.T) {
	_, log := write(t, 4)
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var ends []int // where each record ends
	for off := 0; off < len(whole); {
		off += 8 + int(whole[off]) + int(whole[off+1])<<8
		ends = append(ends, off)
	}
	last := ends[len(ends)-2]

	for cut := 0; cut <= len(whole); cut++ {
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, "journal"), whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		want := 0
		for _, e := range ends {
			if e <= cut {
				want++
			}
		}
		got, err := journal.Open(d).Read()
		if err != nil || len(got) != want {
			t.Fatalf("cut at %d: %d records, %v; want %d", cut, len(got), err, want)
		}
		w, got, err := journal.Open(d).Open()
		if err != nil || len(got) != want {
			t.Fatalf("open, cut at %d: %d records, %v; want %d", cut, len(got), err, want)
		}
		if err := w.Append(journal.Record{Type: journal.Begin, Version: journal.Version}); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		if got, err = journal.Open(d).Read(); err != nil || len(got) != want+1 {
			t.Fatalf("append after a cut at %d: %d records, %v", cut, len(got), err)
		}
	}
	for i := range whole {
		b := append([]byte{}, whole...)
		b[i] ^= 0x40
		d := t.TempDir()
		if err := os.WriteFile(filepath.Join(d, "journal"), b, 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := journal.Open(d).Read()
		switch {
		case i < last && !failure.Is(err, failure.JournalInvalid):
			t.Fatalf("byte %d flipped before the last record: %d records, %v; want a refusal", i, len(got), err)
		case i >= last && (err != nil || len(got) != 3):
			t.Fatalf("byte %d flipped in the last record: %d records, %v; want 3", i, len(got), err)
		}
	}
}

func TestAZeroFilledTailIsTorn(t *testing.T) {
	dir, log := write(t, 3)
	f, _ := os.OpenFile(log, os.O_APPEND|os.O_WRONLY, 0)
	_, _ = f.Write(make([]byte, 4096))
	_ = f.Close()
	if got, err := journal.Open(dir).Read(); err != nil || len(got) != 3 {
		t.Fatalf("%d records, %v", len(got), err)
	}
}

func TestANewerFormatIsRefused(t *testing.T) {
	dir := t.TempDir()
	w, _, err := journal.Open(dir).Open()
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Append(journal.Record{Type: journal.Begin, Version: "2.0"})
	if _, err := journal.Open(dir).Read(); !failure.Is(err, failure.StoreNewer) {
		t.Fatalf("got %v", err)
	}
}

func TestLargeValuesAreBlobsAndDamageIsSeen(t *testing.T) {
	j := journal.Open(t.TempDir())
	small := json.RawMessage(`"x"`)
	big := json.RawMessage(`"` + strings.Repeat("y", journal.BlobThreshold) + `"`)
	for _, v := range []json.RawMessage{small, big, big} {
		k, err := j.StoreValue(v)
		if err != nil {
			t.Fatal(err)
		}
		if (k.Blob != "") != (len(v) > journal.BlobThreshold) {
			t.Fatalf("a value of %d bytes: blob %q", len(v), k.Blob)
		}
		got, err := j.LoadValue(k)
		if err != nil || string(got) != string(v) {
			t.Fatalf("%v", err)
		}
	}
	k, _ := j.StoreValue(big)
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(j.InboxDir()), "blobs", "*"))
	if len(names) != 1 {
		t.Fatalf("%d blobs for one value", len(names))
	}
	_ = os.WriteFile(names[0], []byte(`"z"`), 0o600)
	if _, err := j.LoadValue(k); !failure.Is(err, failure.JournalInvalid) {
		t.Fatalf("a damaged blob: %v", err)
	}
}

func TestInboxKeepsOrderAndRemovesOnlyWhatIsDone(t *testing.T) {
	j := journal.Open(t.TempDir())
	for i, key := range []string{"a", "b", "c"} {
		if err := j.Send(journal.Message{Kind: journal.Answer, Key: key, At: time.Unix(int64(i), 0)}); err != nil {
			t.Fatal(err)
		}
	}
	_ = os.WriteFile(filepath.Join(j.InboxDir(), "0-garbage.json"), []byte("{"), 0o600)
	ms, err := j.Messages()
	if err != nil || len(ms) != 3 || ms[0].Key != "a" || ms[2].Key != "c" {
		t.Fatalf("%v %v", ms, err)
	}
	if err := j.RemoveMessage(ms[0]); err != nil {
		t.Fatal(err)
	}
	if ms, _ = j.Messages(); len(ms) != 2 || ms[0].Key != "b" {
		t.Fatalf("%v", ms)
	}
}
