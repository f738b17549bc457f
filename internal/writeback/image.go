package writeback

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/workspace"
)

// image is what is at a path. nil is nothing.
type image struct {
	Type   workspace.Type `json:"type"`
	Mode   uint32         `json:"mode"`
	Size   int64          `json:"size,omitempty"`
	SHA256 string         `json:"sha256,omitempty"`
	Link   rawPath        `json:"link,omitempty"` // target of a symlink, kind of an Other
}

func imageOf(e *workspace.Entry) *image {
	if e == nil {
		return nil
	}
	return &image{Type: e.Type, Mode: e.Mode, Size: e.Size, SHA256: e.SHA256, Link: rawPath(e.Link)}
}

// sameContent says whether both are of one type and content, whatever their modes.
func (i *image) sameContent(o *image) bool {
	if i == nil || o == nil {
		return i == o
	}
	if i.Type != o.Type {
		return false
	}
	switch i.Type {
	case workspace.File:
		return i.Size == o.Size && i.SHA256 == o.SHA256
	case workspace.Symlink:
		return i.Link == o.Link
	default:
		return i.Type == workspace.Dir
	}
}

// equals says whether both are the same, the mode of a file included.
func (i *image) equals(o *image) bool {
	return i.sameContent(o) && (i == nil || i.Type != workspace.File || i.Mode == o.Mode)
}

func (i *image) isDir() bool { return i != nil && i.Type == workspace.Dir }

// read takes the image of a path. A path that is not there is nil; one below something that is no directory of this file
// system is safefs's refusal.
func read(root *safefs.Root, path string) (*image, error) {
	info, err := root.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if info.Mount {
		return nil, &fs.PathError{Op: "read", Path: path, Err: safefs.ErrMount}
	}
	switch info.Type {
	case safefs.Dir:
		return &image{Type: workspace.Dir, Mode: info.Mode}, nil
	case safefs.Symlink:
		target, err := root.Readlink(path)
		return &image{Type: workspace.Symlink, Link: rawPath(target)}, err
	case safefs.File:
		return readFile(root, path, io.Discard)
	default:
		return &image{Type: workspace.Other, Link: rawPath(info.Type.String())}, nil
	}
}

// readFile copies a regular file's bytes to w and tells what they were.
func readFile(root *safefs.Root, path string, w io.Writer) (*image, error) {
	f, info, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(sum, w), f)
	if err != nil {
		return nil, err
	}
	return &image{Type: workspace.File, Mode: info.Mode, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}, nil
}

// isEmpty says whether a directory has no names.
func isEmpty(root *safefs.Root, path string) (bool, error) {
	names, err := root.ReadDir(path)
	return len(names) == 0, err
}

const execBits = 0o111

func executable(mode uint32) bool { return mode&execBits != 0 }

// newMode is the mode of a path that was not there.
func newMode(mode uint32) uint32 {
	if executable(mode) {
		return 0o755
	}
	return 0o644
}

// mergeMode is the source's mode with the executable bits that the change asks for. Whether a file can be executed is one
// bit between base and workspace: where the workspace left it alone, the source's stays. Who may read it may then execute
// it. Setuid, setgid and sticky never survive new content.
func mergeMode(source, base, frozen uint32) uint32 {
	mode := source & 0o777
	switch {
	case executable(base) == executable(frozen) || executable(source) == executable(frozen):
		return mode
	case executable(frozen):
		return mode | (mode&0o444)>>2
	default:
		return mode &^ execBits
	}
}

// rawPath is a path or link target of any bytes. In JSON it is a readable string where it is UTF-8, else its base64 after a
// prefix: Go's encoder would make `a\xff` and `a\xfe` the same name.
type rawPath string

const rawPrefix = "base64:"

// MarshalJSON implements json.Marshaler.
func (r rawPath) MarshalJSON() ([]byte, error) {
	s := string(r)
	if !utf8.ValidString(s) || strings.HasPrefix(s, rawPrefix) {
		s = rawPrefix + base64.StdEncoding.EncodeToString([]byte(s))
	}
	return json.Marshal(s)
}

// UnmarshalJSON implements json.Unmarshaler.
func (r *rawPath) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	if enc, ok := strings.CutPrefix(s, rawPrefix); ok {
		dec, err := base64.StdEncoding.DecodeString(enc)
		if err != nil {
			return err
		}
		s = string(dec)
	}
	*r = rawPath(s)
	return nil
}
