package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// The format: major.minor. Minor versions add fields and buckets; only a migration changes the major.
const (
	formatBase  = "laufwerk.store"
	formatMajor = 1
	formatName  = "laufwerk.store 1.0"
)

const (
	formatBucket = "laufwerk"
	formatKey    = "format"
)

// format is the record that describes the store itself. Count and Sum are over all other records, so that a record that
// vanishes is noticed as well as one that changes.
type format struct {
	Format  string    `json:"format"`
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Count   uint64    `json:"records"`
	Sum     uint64    `json:"sum"` // of the records' checksums, modulo 2^64
}

func putFormat(tx *bolt.Tx, f format) error {
	b, err := tx.CreateBucketIfNotExists([]byte(formatBucket))
	if err != nil {
		return err
	}
	var stored json.RawMessage
	if sealed := b.Get([]byte(formatKey)); len(sealed) >= sealLen {
		stored = sealed[sealLen:]
	}
	value, err := merge(stored, f)
	if err != nil {
		return err
	}
	return b.Put([]byte(formatKey), seal([]byte(formatBucket), []byte(formatKey), value))
}

// major is the major version of a format record, false where it is none of ours.
func (f format) major() (int, bool) {
	var major, minor int
	if n, err := fmt.Sscanf(f.Format, formatBase+" %d.%d", &major, &minor); n != 2 || err != nil {
		return 0, false
	}
	return major, true
}

// The mark is the number of the newest transaction that is known to be committed, kept beside the gate. It is raised after
// every commit, so it is never ahead of a sound file: a file whose newest readable transaction is below it has lost one.

const markFormat = "laufwerk.mark 1 %016x"

func writeMark(path string, txid uint64) error {
	line := fmt.Sprintf(markFormat, txid)
	return files.Overwrite(path, fmt.Appendf(nil, "%s %08x\n", line, checksum([]byte(line))))
}

// readMark is the mark; false where there is none, or none that can be believed.
func readMark(path string) (uint64, bool, error) {
	b, err := files.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	var txid uint64
	var sum uint32
	n, _ := fmt.Sscanf(string(b), markFormat+" %08x", &txid, &sum)
	return txid, n == 2 && sum == checksum(fmt.Appendf(nil, markFormat, txid)), nil
}
