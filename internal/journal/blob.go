package journal

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

func (j *Journal) blobDir() string { return filepath.Join(j.dir, "blobs") }

// StoreValue makes a value ready for a record: large ones are durable as a blob before the record that names them.
func (j *Journal) StoreValue(v json.RawMessage) (*Value, error) {
	if len(v) <= BlobThreshold {
		return &Value{JSON: v}, nil
	}
	name := sha256hex.Of(v)
	if err := files.MkdirAll(j.blobDir()); err != nil {
		return nil, j.writeError(err, "the folder of large values could not be made: mend that")
	}
	crash.Point("journal/before-blob")
	err := files.Create(filepath.Join(j.blobDir(), name), v)
	if errors.Is(err, fs.ErrExist) { // the one who made it may have been killed before its name was durable
		err = files.SyncDir(j.blobDir())
	}
	if err != nil {
		return nil, j.writeError(err, fmt.Sprintf("a value of %d bytes could not be kept: mend that", len(v)))
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
