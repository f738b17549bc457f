package workspace

import (
	"bytes"
	"crypto/sha1" //nolint:gosec // the checksum that git's index ends with
	"encoding/binary"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// indexWriter encodes git's index: see gitformat-index(5). It is of version 2, or 3 where an entry has extended flags.
type indexWriter struct{ b bytes.Buffer }

func newIndexWriter(entries []indexEntry) *indexWriter {
	w := &indexWriter{}
	version := uint32(2)
	for _, e := range entries {
		if e.extendedFlags() != 0 {
			version = 3
		}
	}
	w.b.WriteString("DIRC")
	w.u32(version)
	w.u32(uint32(len(entries)))
	return w
}

// extendedFlags are the flags that stand in an entry's second 16 bits.
func (e indexEntry) extendedFlags() uint16 {
	return uint16(e.flags & (intentToAdd | skipWorktree) >> 16)
}

// hasExtended says that an entry has them.
const hasExtended = 1 << 14

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
	if more := e.extendedFlags(); more != 0 {
		_ = binary.Write(&w.b, binary.BigEndian, [2]uint16{flags | hasExtended, more})
	} else {
		_ = binary.Write(&w.b, binary.BigEndian, flags)
	}
	w.b.WriteString(e.path)
	// One to eight NULs, so that the entry's length is a multiple of eight.
	w.b.Write(make([]byte, 8-(w.b.Len()-start)%8))
}

func (w *indexWriter) finish() []byte {
	sum := sha1.Sum(w.b.Bytes()) //nolint:gosec // the checksum that git's index ends with
	w.b.Write(sum[:])
	return w.b.Bytes()
}
