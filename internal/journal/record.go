// Package journal keeps what a run did: an append-only log of records, the large values beside it, and the inbox through
// which other processes speak to the worker. Only the holder of the run's lease writes the log, one fsync a record.
//
// The log is a sequence of frames: length (4 bytes, little endian), CRC-32C of length and payload (4 bytes), payload (JSON).
// A torn last frame is cut when the log is opened for writing; a bad frame with a good one after it is refused.
package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Version of the format, major.minor. Minor versions only add fields.
const Version = "1.0"

// Type of a record.
type Type string

// The record types.
const (
	Begin     Type = "begin"     // the first record: whose journal this is
	Started   Type = "started"   // an effect may happen from here on; again for every further attempt
	Cut       Type = "cut"       // what an attempt ran was ended before it finished
	Completed Type = "completed" // the operation's value or failure, as the workflow sees it
	Reopened  Type = "reopened"  // a completion that nobody caught is taken back: the operation is tried again
	Resumed   Type = "resumed"   // another worker took over
	End       Type = "end"       // the run is over
)

// Record is one line of the log. Type says which fields count.
type Record struct {
	Type    Type            `json:"type"`
	At      time.Time       `json:"at"`
	Version string          `json:"version,omitempty"` // begin
	Run     string          `json:"run,omitempty"`     // begin
	Op      string          `json:"op,omitempty"`      // identity of the operation: see Identity
	Call    *protocol.Call  `json:"call,omitempty"`    // of the first record of an operation: secrets are hashed
	Digest  string          `json:"digest,omitempty"`  // sha256 over the call's arguments
	Attempt int             `json:"attempt,omitempty"` // started, cut: from 1
	Data    json.RawMessage `json:"data,omitempty"`    // started: what a later worker needs to find the effect
	Reason  string          `json:"reason,omitempty"`  // cut, resumed, end
	Value   *Value          `json:"value,omitempty"`   // completed, end
	Error   *protocol.Error `json:"error,omitempty"`   // completed, end
	Meta    json.RawMessage `json:"meta,omitempty"`    // completed: what the engine remembers and the workflow does not see
	State   string          `json:"state,omitempty"`   // end: succeeded, failed or cancelled
	Build   string          `json:"build,omitempty"`   // begin, resumed: the version of laufwerk
	Whole   *Value          `json:"whole,omitempty"`   // in the log alone: the rest of the record is in this blob
}

// Value is JSON in the record, or a blob where it is larger than BlobThreshold.
type Value struct {
	JSON json.RawMessage `json:"json,omitempty"`
	Blob string          `json:"blob,omitempty"` // sha256 of the JSON, a file below blobs/
	Size int64           `json:"size,omitempty"`
}

// BlobThreshold is the size in bytes above which a value becomes a blob. A record that is nevertheless larger than
// WholeThreshold (arguments, errors and what an attempt left can be large too) is a blob as a whole.
const (
	BlobThreshold  = 16 << 10
	WholeThreshold = 64 << 10
)

// Identity names an operation within its run. It is equal at every replay, no two operations of a run share one, and it is
// what `runs show` and messages call the operation:
//
//	session.ask[main]:fix   by its key, in the session "main"; "%" and "]" in a session's key are escaped
//	workspace.open          keyless, the first one of its kind
//	clock.now#3             the third one of its kind
//	clock.now@0.1.2#3       the third one in the branch 0.1.2 of an `all`
func Identity(c protocol.Call) string {
	id := c.Op
	if c.Scope != "" {
		id += "[" + strings.NewReplacer("%", "%25", "]", "%5D").Replace(c.Scope) + "]"
	}
	if c.Key != "" {
		return id + ":" + c.Key
	}
	if c.Branch != mainBranch {
		id += "@" + c.Branch
	}
	if c.Ordinal > 0 {
		id += "#" + strconv.Itoa(c.Ordinal+1)
	}
	return id
}

// mainBranch is the workflow itself.
const mainBranch = "0"

func (j *Journal) blobDir() string { return filepath.Join(j.dir, "blobs") }

// StoreValue makes a value ready for a record: large ones are durable as a blob before the record that names them.
func (j *Journal) StoreValue(v json.RawMessage) (*Value, error) {
	if len(v) <= BlobThreshold {
		return &Value{JSON: v}, nil
	}
	name := sha256hex.Of(v)
	if err := files.MkdirAll(j.blobDir()); err != nil {
		return nil, j.writeError(err, "the folder of large values could not be created: correct that")
	}
	crash.Point("journal/before-blob")
	err := files.Create(filepath.Join(j.blobDir(), name), v)
	if errors.Is(err, fs.ErrExist) { // the one who made it may have been killed before its name was durable
		err = files.SyncDir(j.blobDir())
	}
	if err != nil {
		return nil, j.writeError(err, fmt.Sprintf("a value of %d bytes could not be stored: correct that", len(v)))
	}
	crash.Point("journal/after-blob")
	return &Value{Blob: name, Size: int64(len(v))}, nil
}

// LoadValue is the JSON of a value; nil is null.
func (j *Journal) LoadValue(v *Value) (json.RawMessage, error) {
	switch {
	case v == nil:
		return json.RawMessage("null"), nil
	case v.Blob == "":
		return v.JSON, nil
	}
	b, err := files.Read(filepath.Join(j.blobDir(), filepath.Base(v.Blob)))
	if err != nil {
		return nil, j.damagedError("the value %s cannot be read: %v", v.Blob, err)
	}
	if sha256hex.Of(b) != v.Blob {
		return nil, j.damagedError("the value %s in %s is not what was recorded", v.Blob, j.blobDir())
	}
	return b, nil
}
