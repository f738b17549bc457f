package store

import "encoding/json"

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
