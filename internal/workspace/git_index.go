package workspace

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the checksum that git's index ends with
	"encoding/binary"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// indexWriter encodes git's index, version 2: see gitformat-index(5).
type indexWriter struct{ b bytes.Buffer }

func newIndexWriter(entries int) *indexWriter {
	w := &indexWriter{}
	w.b.WriteString("DIRC")
	w.u32(2)
	w.u32(uint32(entries))
	return w
}

func (w *indexWriter) u32(v uint32) { _ = binary.Write(&w.b, binary.BigEndian, v) }

// add appends an entry. The zero stat makes git look at the file's content the next time it is asked.
func (w *indexWriter) add(e indexEntry, id []byte, stat safefs.Info) {
	start := w.b.Len()
	w.u32(uint32(stat.CTimeNS / 1e9))
	w.u32(uint32(stat.CTimeNS % 1e9))
	w.u32(uint32(stat.MTimeNS / 1e9))
	w.u32(uint32(stat.MTimeNS % 1e9))
	w.u32(uint32(stat.Dev))
	w.u32(uint32(stat.Ino))
	w.u32(e.mode)
	w.u32(stat.UID)
	w.u32(stat.GID)
	w.u32(uint32(stat.Size))
	w.b.Write(id)
	flags := uint16(e.stage)<<12 | uint16(min(len(e.path), 0xfff))
	_ = binary.Write(&w.b, binary.BigEndian, flags)
	w.b.WriteString(e.path)
	// One to eight NULs, so that the entry's length is a multiple of eight.
	w.b.Write(make([]byte, 8-(w.b.Len()-start)%8))
}

func (w *indexWriter) finish() []byte {
	sum := sha1.Sum(w.b.Bytes()) //nolint:gosec // the checksum that git's index ends with
	w.b.Write(sum[:])
	return w.b.Bytes()
}
