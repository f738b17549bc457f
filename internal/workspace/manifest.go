package workspace

import (
	"strings"
	"time"
)

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

// Compare is what changed from base to now, in path order, each change classified.
func Compare(base, now Manifest) []Change {
	var out []Change
	c := newClassifier()
	b, n := base.Entries, now.Entries
	for len(b) > 0 || len(n) > 0 {
		switch {
		case len(n) == 0 || (len(b) > 0 && b[0].Path < n[0].Path):
			out = append(out, c.classify(Change{Path: b[0].Path, Kind: Deleted, Before: &b[0]}))
			b = b[1:]
		case len(b) == 0 || n[0].Path < b[0].Path:
			out = append(out, c.classify(Change{Path: n[0].Path, Kind: Added, After: &n[0]}))
			n = n[1:]
		default:
			if !b[0].Same(n[0]) {
				out = append(out, c.classify(Change{Path: n[0].Path, Kind: kindOf(b[0], n[0]), Before: &b[0], After: &n[0]}))
			}
			b, n = b[1:], n[1:]
		}
	}
	return out
}

func kindOf(b, n Entry) ChangeKind {
	switch {
	case b.Type == Symlink || n.Type == Symlink:
		return Link
	case b.Type == n.Type && b.Size == n.Size && b.SHA256 == n.SHA256 && string(b.Link) == string(n.Link):
		return ModeOnly
	default:
		return Modified
	}
}

func (c *classifier) classify(ch Change) Change {
	ch.Why = c.reasonFor(ch.Path)
	if ch.Why == "" && executable(ch.After) && !executable(ch.Before) {
		ch.Why = "new executable"
	}
	if ch.Why == "" && ch.After != nil && ch.After.Type == File && ch.After.Mode&0o6000 != 0 {
		ch.Why = "setuid or setgid"
	}
	// A link gives what it leads to another name, and so perhaps another meaning.
	if ch.Why == "" && ch.After != nil && ch.After.Type == Symlink {
		if why := c.reasonFor(strings.TrimLeft(string(ch.After.Link), "./")); why != "" {
			ch.Why = "link to: " + why
		}
	}
	ch.RunsOnHost = ch.Why != ""
	return ch
}

func executable(e *Entry) bool { return e != nil && e.Type == File && e.Mode&0o111 != 0 }
