package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"reflect"
	"strings"
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

// A value on disk is `<checksum as 8 hexadecimal digits> <JSON>`, where the checksum covers bucket, key and JSON: bbolt itself
// has checksums for its two meta pages only.
const sealLen = 9

func checksum(parts ...[]byte) uint32 {
	var sum uint32
	table := crc32.MakeTable(crc32.Castagnoli)
	for i, p := range parts {
		if i > 0 {
			sum = crc32.Update(sum, table, []byte{0})
		}
		sum = crc32.Update(sum, table, p)
	}
	return sum
}

func seal(bucket, key, value []byte) []byte {
	return append(fmt.Appendf(make([]byte, 0, sealLen+len(value)), "%08x ", checksum(bucket, key, value)), value...)
}

// unseal is the JSON of a sealed value, and the checksum that goes into the total.
func unseal(bucket, key, sealed []byte) ([]byte, uint32, error) {
	if len(sealed) < sealLen {
		return nil, 0, errors.New("the record is truncated")
	}
	value := sealed[sealLen:]
	sum := checksum(bucket, key, value)
	if string(sealed[:sealLen]) != fmt.Sprintf("%08x ", sum) {
		return nil, 0, errors.New("the record's checksum does not match")
	}
	return value, sum, nil
}

// merge encodes v and keeps the fields of the stored object that v's type does not know: a newer minor version wrote them.
// The same goes for the objects inside it, but not for those inside lists and maps.
func merge(stored json.RawMessage, v any) (json.RawMessage, error) {
	encoded, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return mergeInto(stored, encoded, reflect.TypeOf(v))
}

func mergeInto(stored, encoded json.RawMessage, t reflect.Type) (json.RawMessage, error) {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if len(stored) == 0 || bytes.Equal(stored, encoded) || t == nil || t.Kind() != reflect.Struct ||
		t.Implements(marshaler()) || reflect.PointerTo(t).Implements(marshaler()) {
		return encoded, nil
	}
	var old, out map[string]json.RawMessage
	if stored[0] != '{' || encoded[0] != '{' {
		return encoded, nil // one of them is no object: there is nothing to keep
	}
	if err := errors.Join(json.Unmarshal(stored, &old), json.Unmarshal(encoded, &out)); err != nil {
		return nil, err
	}
	known := map[string]reflect.Type{}
	fieldsOf(t, known)
	for name, raw := range old {
		ft, ok := known[name]
		if !ok {
			out[name] = raw
			continue
		}
		if now, ok := out[name]; ok {
			m, err := mergeInto(raw, now, ft)
			if err != nil {
				return nil, err
			}
			out[name] = m
		}
	}
	return json.Marshal(out)
}

func marshaler() reflect.Type { return reflect.TypeFor[json.Marshaler]() }

func fieldsOf(t reflect.Type, into map[string]reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		ft := f.Type
		for ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		switch {
		case name == "-" || (!f.IsExported() && !f.Anonymous):
		case f.Anonymous && name == "" && ft.Kind() == reflect.Struct:
			fieldsOf(ft, into)
		case name == "":
			into[f.Name] = f.Type
		default:
			into[name] = f.Type
		}
	}
}
