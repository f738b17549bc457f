package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

const (
	frameHead = 8
	maxRecord = 4 << 20 // far above what a record with blobs needs; a larger length is damage
)

// frameSum covers the length too, so that a damaged length is seen as damage.
func frameSum(length uint32, payload []byte) uint32 {
	table := crc32.MakeTable(crc32.Castagnoli)
	var head [4]byte
	binary.LittleEndian.PutUint32(head[:], length)
	return crc32.Update(crc32.Update(0, table, head[:]), table, payload)
}

// frameAt reads the frame at the start of b; size 0 means that there is none.
func frameAt(b []byte) (payload []byte, size int) {
	if len(b) < frameHead {
		return nil, 0
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > maxRecord || int64(n)+frameHead > int64(len(b)) {
		return nil, 0
	}
	payload = b[frameHead : frameHead+int(n)]
	if frameSum(n, payload) != binary.LittleEndian.Uint32(b[4:]) {
		return nil, 0
	}
	return payload, frameHead + int(n)
}

// parse returns the records of a log and the length of its good part. Only the last frame can be torn, since every append
// is fsynced before the next: so a good frame anywhere behind a bad one means damage.
func parse(path string, b []byte) (records []Record, good int64, err error) {
	off := 0
	for off < len(b) {
		payload, size := frameAt(b[off:])
		if size == 0 {
			for i := off + 1; i+frameHead < len(b); i++ {
				if _, later := frameAt(b[i:]); later > 0 {
					return nil, 0, damaged(path, "record %d (at byte %d) is damaged and records follow it", len(records)+1, off)
				}
			}
			break
		}
		var r Record
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, 0, damaged(path, "record %d (at byte %d) is no record: %v", len(records)+1, off, err)
		}
		records = append(records, r)
		off += size
	}
	if len(records) > 0 {
		if records[0].Type != Begin {
			return nil, 0, damaged(path, "it does not start with a %q record", Begin)
		}
		if v := records[0].Version; major(v) != major(Version) {
			return nil, 0, failure.New(failure.StoreNewer, "%s has format %s and this laufwerk reads %s", path, v, Version).
				WithHint("use the laufwerk that started this run, or a newer one")
		}
	}
	return records, int64(off), nil
}

func major(v string) string {
	for i := range v {
		if v[i] == '.' {
			return v[:i]
		}
	}
	return v
}

func damaged(path, format string, args ...any) error {
	e := failure.New(failure.JournalInvalid, format, args...)
	e.Message = "the journal " + path + " is damaged: " + e.Message
	return e.WithHint("laufwerk claims list shows what the run still holds; laufwerk runs cancel RUN and laufwerk cleanup RUN end it")
}

// Journal is one run's log, blobs and inbox, in its folder.
type Journal struct {
	dir string
}

// At is the journal in a run's folder; nothing is opened.
func At(runDir string) *Journal { return &Journal{dir: runDir} }

func (j *Journal) logPath() string { return filepath.Join(j.dir, "journal") }

// Read returns the records without changing anything; a torn tail is left out. A missing log has none.
func (j *Journal) Read() ([]Record, error) {
	b, err := files.Read(j.logPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, failure.Wrap(err, failure.JournalInvalid, "read the journal")
	}
	records, _, err := parse(j.logPath(), b)
	return records, err
}

// Writer appends records. It is safe for concurrent use.
type Writer struct {
	j  *Journal
	mu sync.Mutex
	f  *files.File
	// broken is set when an append failed: what is on disk is then unknown, and nothing may be appended any more.
	broken  error
	appends int
}

// Open opens the log for its one writer, who holds the run's lease: it cuts a torn tail and returns the records.
func (j *Journal) Open() (*Writer, []Record, error) {
	fresh := !files.Exists(j.logPath())
	f, err := files.Append(j.logPath())
	if err != nil {
		return nil, nil, failure.Wrap(err, failure.JournalInvalid, "open the journal")
	}
	b, err := files.Read(j.logPath())
	if err == nil && fresh {
		err = files.SyncDir(j.dir)
	}
	if err != nil {
		_ = f.Close()
		return nil, nil, failure.Wrap(err, failure.JournalInvalid, "open the journal")
	}
	records, good, err := parse(j.logPath(), b)
	if err != nil {
		_ = f.Close()
		return nil, nil, err
	}
	if good < int64(len(b)) {
		if err = f.Truncate(good); err == nil {
			err = files.Datasync(f)
		}
		if err != nil {
			_ = f.Close()
			return nil, nil, failure.Wrap(err, failure.JournalInvalid, "cut the torn end of the journal")
		}
	}
	return &Writer{j: j, f: f}, records, nil
}

// Append makes one record durable.
func (w *Writer) Append(r Record) error {
	payload, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if len(payload) > maxRecord {
		return failure.New(failure.Internal, "a record of %d bytes is too large for the journal", len(payload))
	}
	frame := make([]byte, frameHead+len(payload))
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	binary.LittleEndian.PutUint32(frame[4:], frameSum(uint32(len(payload)), payload))
	copy(frame[frameHead:], payload)

	w.mu.Lock()
	defer w.mu.Unlock()
	if w.broken != nil {
		return w.broken
	}
	crash.Point("journal/before-" + string(r.Type))
	if _, err = w.f.Write(frame); err == nil {
		err = files.Datasync(w.f)
	}
	if err != nil {
		w.broken = failure.Wrap(err, failure.Failed, "append to the journal (nothing was executed after the last good record)")
		return w.broken
	}
	w.appends++
	crash.Point("journal/after-" + string(r.Type))
	return nil
}

// Appends counts the records that this writer made durable, one fsync each.
func (w *Writer) Appends() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.appends
}

// Close closes the log. Nothing is lost without it.
func (w *Writer) Close() error { return w.f.Close() }
