package store

import (
	"bytes"
	"encoding/json"

	bolt "go.etcd.io/bbolt"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// boltTx is a transaction over the open file. What it reads was verified, or is verified again record by record.
type boltTx struct {
	s     *Store
	tx    *bolt.Tx
	dirty bool
	count uint64 // changes to the totals of the format record, modulo 2^64
	sum   uint64
	err   error // a broken store that fn may have swallowed
}

func (t *boltTx) noteError(err error) error {
	t.err = t.s.txError(err)
	return t.err
}

// get is the JSON of a record, copied out of the mapped file; nil where there is none.
func (t *boltTx) get(b Bucket, key string) (value json.RawMessage, sum uint32, err error) {
	err = guardBolt(func() error {
		bucket := t.tx.Bucket([]byte(b))
		if bucket == nil {
			return nil
		}
		sealed := bucket.Get([]byte(key))
		if sealed == nil {
			return nil
		}
		v, s, err := unseal([]byte(b), []byte(key), sealed)
		if err != nil {
			return &boltDamage{what: recordError{b, key, err}}
		}
		value, sum = bytes.Clone(v), s
		return nil
	})
	if err != nil {
		return nil, 0, t.noteError(err)
	}
	return value, sum, nil
}

func (t *boltTx) Get(b Bucket, key string, into any) (bool, error) {
	value, _, err := t.get(b, key)
	if err != nil || value == nil {
		return false, err
	}
	if err := json.Unmarshal(value, into); err != nil {
		return true, t.noteError(&boltDamage{what: recordError{b, key, err}})
	}
	return true, nil
}

func (t *boltTx) Put(b Bucket, key string, v any) error {
	if err := t.writable(b, key); err != nil {
		return err
	}
	stored, oldSum, err := t.get(b, key)
	if err != nil {
		return err
	}
	value, err := merge(stored, v)
	if err != nil {
		return failure.Wrap(err, failure.Internal, "encode the record %s/%s", b, key)
	}
	if len(value) == 0 || value[0] != '{' {
		return failure.New(failure.Internal, "the record %s/%s is no JSON object", b, key)
	}
	if stored != nil && bytes.Equal(stored, value) {
		return nil
	}
	err = guardBolt(func() error {
		bucket, err := t.tx.CreateBucketIfNotExists([]byte(b))
		if err != nil {
			return err
		}
		return bucket.Put([]byte(key), seal([]byte(b), []byte(key), value))
	})
	if err != nil {
		return t.noteError(err)
	}
	if stored == nil {
		t.count++
	}
	t.sum += uint64(checksum([]byte(b), []byte(key), value)) - uint64(oldSum)
	t.dirty = true
	return nil
}

func (t *boltTx) Delete(b Bucket, key string) error {
	if err := t.writable(b, key); err != nil {
		return err
	}
	stored, oldSum, err := t.get(b, key)
	if err != nil || stored == nil {
		return err
	}
	if err := guardBolt(func() error { return t.tx.Bucket([]byte(b)).Delete([]byte(key)) }); err != nil {
		return t.noteError(err)
	}
	t.count--
	t.sum -= uint64(oldSum)
	t.dirty = true
	return nil
}

// Each hands out copies of the records as they were when it was called, so fn may change them.
func (t *boltTx) Each(b Bucket, prefix string, fn func(key string, raw json.RawMessage) error) error {
	type pair struct {
		key   string
		value json.RawMessage
	}
	var pairs []pair
	err := guardBolt(func() error {
		bucket := t.tx.Bucket([]byte(b))
		if bucket == nil {
			return nil
		}
		c := bucket.Cursor()
		for k, sealed := c.Seek([]byte(prefix)); k != nil && bytes.HasPrefix(k, []byte(prefix)); k, sealed = c.Next() {
			v, _, err := unseal([]byte(b), k, sealed)
			if err != nil {
				return &boltDamage{what: recordError{b, string(k), err}}
			}
			pairs = append(pairs, pair{string(k), bytes.Clone(v)})
		}
		return nil
	})
	if err != nil {
		return t.noteError(err)
	}
	for _, p := range pairs {
		if err := fn(p.key, p.value); err != nil {
			return err
		}
	}
	return nil
}

func (t *boltTx) writable(b Bucket, key string) error {
	switch {
	case !t.tx.Writable():
		return readOnlyError(b, key)
	case key == "" || len(key) > bolt.MaxKeySize || b == "" || b == formatBucket:
		return failure.New(failure.Internal, "the record %q/%q cannot be written: it has no valid name", b, key)
	default:
		return nil
	}
}

func (t *boltTx) close() error {
	err := guardBolt(func() error {
		bucket := t.tx.Bucket([]byte(formatBucket))
		if bucket == nil {
			return &boltDamage{what: "it has no format record"}
		}
		value, _, err := unseal([]byte(formatBucket), []byte(formatKey), bucket.Get([]byte(formatKey)))
		if err != nil {
			return &boltDamage{what: recordError{formatBucket, formatKey, err}}
		}
		var f format
		if err := json.Unmarshal(value, &f); err != nil {
			return &boltDamage{what: recordError{formatBucket, formatKey, err}}
		}
		f.Count += t.count
		f.Sum += t.sum
		return putFormat(t.tx, f)
	})
	if err != nil {
		return t.noteError(err)
	}
	return nil
}

func readOnlyError(b Bucket, key string) error {
	return failure.New(failure.Internal, "the record %s/%s cannot be written: this transaction only reads", b, key)
}

type recordError struct {
	bucket Bucket
	key    string
	err    error
}

func (e recordError) Error() string {
	return "record " + string(e.bucket) + "/" + e.key + ": " + e.err.Error()
}

// emptyTx is a view of a store that does not exist yet.
type emptyTx struct{}

func (emptyTx) Get(Bucket, string, any) (bool, error) { return false, nil }
func (emptyTx) Put(b Bucket, key string, _ any) error { return readOnlyError(b, key) }
func (emptyTx) Delete(b Bucket, key string) error     { return readOnlyError(b, key) }
func (emptyTx) Each(Bucket, string, func(string, json.RawMessage) error) error {
	return nil
}

// Bucket is one kind of record. Keys are ids; values are JSON objects of which unknown fields survive a Put.
type Bucket string

// The buckets.
const (
	Runs   Bucket = "runs"
	Keys   Bucket = "keys"  // run keys: project scope + key → run
	Locks  Bucket = "holds" // durable rights: "workspace/<id>", "source/<dev>:<ino>", "slot/<project>/<run>"
	Claims Bucket = "claims"
	Notes  Bucket = "notes" // small facts: endpoint identities that were accepted, probe results
)

// Tx is one transaction. It is only valid inside the function that it was given to.
type Tx interface {
	// Get decodes a record; false where there is none.
	Get(b Bucket, key string, into any) (bool, error)
	// Put writes a record. Fields of the stored record that v's type does not know are kept.
	Put(b Bucket, key string, v any) error
	// Delete removes a record; a missing one is no error.
	Delete(b Bucket, key string) error
	// Each calls fn for the records whose key starts with prefix, in key order, until fn fails.
	Each(b Bucket, prefix string, fn func(key string, raw json.RawMessage) error) error
}
