package workspace

import "time"

// Type of a path.
type Type string

// The types that a manifest knows. Others (devices, sockets, fifos) are recorded so that they can be refused by name.
const (
	File    Type = "file"
	Dir     Type = "dir"
	Symlink Type = "symlink"
	Other   Type = "other" // Link says what
)

// Entry is one path of a manifest.
type Entry struct {
	Path   string `json:"-"`                // raw bytes, slash separated, relative to the root; "" never
	Type   Type   `json:"type"`             //
	Mode   uint32 `json:"mode"`             // permission bits with setuid, setgid and sticky
	Link   []byte `json:"link,omitempty"`   // target of a symlink; kind of an Other
	Size   int64  `json:"size,omitempty"`   // of a file
	SHA256 string `json:"sha256,omitempty"` // of a file, hexadecimal
	MTime  int64  `json:"mtime,omitempty"`  // ns; a hint that saves hashing, never proof
	CTime  int64  `json:"ctime,omitempty"`
	Inode  uint64 `json:"inode,omitempty"`
}

// Same says whether two entries have the same content, type and mode.
func (e Entry) Same(o Entry) bool {
	return e.Type == o.Type && e.Mode == o.Mode && string(e.Link) == string(o.Link) && e.Size == o.Size && e.SHA256 == o.SHA256
}

// RootID recognises a directory whatever its path says.
type RootID struct {
	Dev uint64 `json:"dev"`
	Ino uint64 `json:"ino"`
}

// Manifest is the list of a tree's paths, sorted by path bytes.
type Manifest struct {
	Root    RootID
	Entries []Entry
}

// ChangeKind is what happened to a path between base and now.
type ChangeKind string

// The kinds of changes.
const (
	Added    ChangeKind = "added"
	Modified ChangeKind = "modified"
	Deleted  ChangeKind = "deleted"
	ModeOnly ChangeKind = "mode"
	Link     ChangeKind = "link" // a symlink's target, or a change to or from a symlink
)

// Change is one changed path. Before and After are nil where the path was not, or is not, there.
type Change struct {
	Path       string
	Kind       ChangeKind
	RunsOnHost bool   // it is of the class that can make code run on this host
	Why        string // why it is of that class, for people
	Before     *Entry
	After      *Entry
}

// Freeze is the private, durable copy of a workspace's changes. Dir holds `freeze.json` and `blobs/<sha256>` for every file
// content of an After (and, for the difference, of a Before). Digest is sha256 over the canonical list of changes.
type Freeze struct {
	Digest  string    `json:"digest"`
	Dir     string    `json:"-"`
	At      time.Time `json:"at"`
	Source  string    `json:"source"` // the source root, absolute
	Root    RootID    `json:"root"`   // of the source
	Changes []Change  `json:"-"`      // in freeze.json as a list with raw paths kept
	Ignored int       `json:"ignored"`
}
