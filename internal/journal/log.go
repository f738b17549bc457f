package journal

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

const (
	frameHead = 8
	maxRecord = 4 << 20 // far above WholeThreshold; a larger length is damage
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
func (j *Journal) parse(b []byte) (records []Record, good int64, err error) {
	off := 0
	for off < len(b) {
		payload, size := frameAt(b[off:])
		if size == 0 {
			for i := off + 1; i+frameHead < len(b); i++ {
				if _, later := frameAt(b[i:]); later > 0 {
					return nil, 0, j.damagedError("record %d (at byte %d) is damaged and records follow it", len(records)+1, off)
				}
			}
			break
		}
		var r Record
		if err := json.Unmarshal(payload, &r); err != nil {
			return nil, 0, j.damagedError("record %d (at byte %d) is no record: %v", len(records)+1, off, err)
		}
		if r.Whole != nil {
			if r, err = j.resolveWhole(r); err != nil {
				return nil, 0, err
			}
		}
		records = append(records, r)
		off += size
	}
	if len(records) > 0 {
		if records[0].Type != Begin {
			return nil, 0, j.damagedError("it does not start with a %q record", Begin)
		}
		if v := records[0].Version; majorVersion(v) != majorVersion(Version) {
			return nil, 0, failure.New(failure.StoreNewer, "%s has format %s and this laufwerk reads %s", j.logPath(), v, Version).
				WithHint("use the laufwerk that started this run, or a newer one")
		}
	}
	return records, int64(off), nil
}

func majorVersion(v string) string {
	major, _, _ := strings.Cut(v, ".")
	return major
}

// damagedError is the failure of a log that cannot be read. The run can still be given up: its claims are in the store.
func (j *Journal) damagedError(format string, args ...any) error {
	run := filepath.Base(j.dir)
	e := failure.New(failure.JournalInvalid, format, args...)
	e.Message = "the journal " + j.logPath() + " is damaged: " + e.Message
	return e.WithPaths(j.logPath()).WithHint("laufwerk claims list\nlaufwerk runs cancel %s && laufwerk cleanup %s", run, run)
}

// unusableError is the failure of a log that is perhaps only out of reach: full disk, permissions.
func (j *Journal) unusableError(err error, doing string) error {
	e := &failure.Error{Kind: failure.JournalInvalid, Message: doing, Err: err}
	if f := failure.As(err); f != nil {
		e.Kind, e.Hint, e.Paths, e.Fields, e.Conditions = f.Kind, f.Hint, f.Paths, f.Fields, f.Conditions
	}
	run := filepath.Base(j.dir)
	switch {
	case e.Hint != "" || files.NoSpace(err):
	case errors.Is(err, fs.ErrNotExist): // with its folder: it can only be given up
		e.Hint = "laufwerk runs cancel " + run + " && laufwerk cleanup " + run
	default:
		e.Hint = "ls -la " + failure.Quote(j.logPath())
	}
	return e
}

// Journal is one run's log, blobs and inbox, in its folder.
type Journal struct {
	dir string
}

// Open is the journal in a run's folder; nothing is opened.
func Open(runDir string) *Journal { return &Journal{dir: runDir} }

func (j *Journal) logPath() string { return filepath.Join(j.dir, "journal") }

// Read returns the records without changing anything; a torn tail is left out. A missing log has none.
func (j *Journal) Read() ([]Record, error) {
	b, err := files.Read(j.logPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, j.unusableError(err, "read the journal")
	}
	records, _, err := j.parse(b)
	return records, err
}

// Writer appends records. It is safe for concurrent use.
type Writer struct {
	j  *Journal
	mu sync.Mutex
	f  *files.File
	// end is the length of what is durable. broken is set when an append failed: nothing may be appended any more then.
	end     int64
	broken  error
	appends int
}

// Open opens the log for its one writer, who holds the run's lease: it cuts a torn tail and returns the records.
func (j *Journal) Open() (*Writer, []Record, error) {
	f, err := files.Append(j.logPath())
	if err != nil {
		return nil, nil, j.unusableError(err, "open the journal")
	}
	records, good, err := j.recover(f)
	if err != nil {
		_ = f.Close()
		return nil, nil, j.unusableError(err, "open the journal")
	}
	return &Writer{j: j, f: f, end: good}, records, nil
}

func (j *Journal) recover(f *files.File) ([]Record, int64, error) {
	b, err := files.Read(j.logPath())
	if err != nil {
		return nil, 0, err
	}
	records, good, err := j.parse(b)
	if err != nil {
		return nil, 0, err
	}
	if good < int64(len(b)) {
		if err = f.Truncate(good); err == nil {
			err = files.Datasync(f)
		}
		if err != nil {
			return nil, 0, failure.Wrap(err, failure.Failed, "remove its incomplete last record")
		}
	}
	if len(records) == 0 { // it may have been made this moment: its name has to be durable before its records are
		err = files.SyncDir(j.dir)
	}
	return records, good, err
}

// Append makes one record durable. When that fails, the record certainly is not part of the log, and the writer is of no
// use any more: the run goes on with another one.
func (w *Writer) Append(r Record) error {
	frame, err := w.j.encodeFrame(r)
	if err != nil {
		return err
	}
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
		_ = w.f.Truncate(w.end) // or it is torn, which the next writer finds out
		w.broken = w.j.writeError(err, "the journal could not be written: correct that")
		return w.broken
	}
	w.end += int64(len(frame))
	w.appends++
	crash.Point("journal/after-" + string(r.Type))
	return nil
}

// encodeFrame is a record as it stands in the log. A large one is durable as a blob when this returns.
func (j *Journal) encodeFrame(r Record) ([]byte, error) {
	payload, err := json.Marshal(r)
	if err == nil && len(payload) > WholeThreshold {
		var v *Value
		if v, err = j.StoreValue(payload); err == nil {
			payload, err = json.Marshal(Record{Type: r.Type, At: r.At, Op: r.Op, Whole: v})
		}
	}
	if err != nil {
		return nil, err
	}
	if len(payload) > maxRecord {
		return nil, failure.New(failure.Internal, "a record of %d bytes is too large for the journal", len(payload))
	}
	frame := make([]byte, frameHead+len(payload))
	binary.LittleEndian.PutUint32(frame, uint32(len(payload)))
	binary.LittleEndian.PutUint32(frame[4:], frameSum(uint32(len(payload)), payload))
	copy(frame[frameHead:], payload)
	return frame, nil
}

// resolveWhole is the record that a frame stands for.
func (j *Journal) resolveWhole(head Record) (r Record, err error) {
	b, err := j.LoadValue(head.Whole)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, j.damagedError("the record in the blob %s is none: %v", head.Whole.Blob, err)
	}
	return r, nil
}

func (j *Journal) writeError(err error, what string) error {
	if files.NoSpace(err) {
		what = "the disk of " + j.dir + " is full; " + what
	}
	return failure.New(failure.NotReady, "%s, then the run continues from its last record", what).WithHint("laufwerk resume %s", filepath.Base(j.dir)).WithCause(err)
}

// Appends counts the records that this writer made durable, one fsync each.
func (w *Writer) Appends() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.appends
}

// Close closes the log. Nothing is lost without it.
func (w *Writer) Close() error { return w.f.Close() }
