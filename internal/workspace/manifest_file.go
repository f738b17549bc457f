package workspace

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// A manifest file is a line that names format and version, the root's device and inode, records of a length and that many
// bytes, a zero length, and sha256 over everything before it. Numbers are varints; a record's fields follow each other in the
// order of encode, and a newer minor version may append more.
const (
	manifestMagic   = "laufwerk-manifest "
	manifestVersion = "1.0"
	maxRecord       = 1 << 20
)

// SaveManifest writes a manifest durably and whole: a kill or a full disk leaves what was there before.
func SaveManifest(file string, m Manifest) (err error) {
	dir, err := safefs.OpenRoot(filepath.Dir(file))
	if err != nil {
		return failure.Wrap(err, failure.Failed, "save the manifest")
	}
	defer dir.Close()
	name := filepath.Base(file)
	tmp := ".tmp-" + name
	_ = dir.Remove(tmp) // of one that was killed
	f, err := dir.Create(tmp, 0o600)
	if err != nil {
		return failure.Wrap(err, failure.Failed, "save the manifest")
	}
	defer func() {
		if err != nil {
			_ = f.Close()
			_ = dir.Remove(tmp)
			err = failure.Wrap(err, failure.Failed, "save the manifest %s", file)
		}
	}()
	if err = writeManifest(f, m); err != nil {
		return err
	}
	if err = f.Sync(); err != nil {
		return err
	}
	if err = f.Close(); err != nil {
		return err
	}
	if err = dir.Rename(tmp, name); err != nil {
		return err
	}
	return dir.SyncDir(".")
}

func writeManifest(w io.Writer, m Manifest) error {
	sum := sha256.New()
	b := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	head := []byte(manifestMagic + manifestVersion + "\n")
	head = binary.AppendUvarint(head, m.Root.Dev)
	head = binary.AppendUvarint(head, m.Root.Ino)
	_, _ = b.Write(head)
	var rec, length []byte
	for i := range m.Entries {
		rec = encode(rec[:0], &m.Entries[i])
		if len(rec) > maxRecord {
			return fmt.Errorf("the path %.64q… is too long", m.Entries[i].Path)
		}
		length = binary.AppendUvarint(length[:0], uint64(len(rec)))
		_, _ = b.Write(length)
		_, _ = b.Write(rec)
	}
	_ = b.WriteByte(0)
	if err := b.Flush(); err != nil {
		return err
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

func encode(b []byte, e *Entry) []byte {
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	sum, _ := hex.DecodeString(e.SHA256)
	str(e.Path)
	str(string(e.Type))
	b = binary.AppendUvarint(b, uint64(e.Mode))
	str(string(e.Link))
	b = binary.AppendVarint(b, e.Size)
	str(string(sum))
	b = binary.AppendVarint(b, e.MTime)
	b = binary.AppendVarint(b, e.CTime)
	return binary.AppendUvarint(b, e.Inode)
}

var errDamaged = errors.New("damaged")

func decodeEntry(b []byte) (e Entry, err error) {
	r := bytes.NewReader(b)
	str := func() string {
		n, e := binary.ReadUvarint(r)
		if e != nil || n > uint64(r.Len()) {
			err = errDamaged
			return ""
		}
		s := make([]byte, n)
		_, _ = io.ReadFull(r, s)
		return string(s)
	}
	num := func() (v int64) {
		v, e := binary.ReadVarint(r)
		if e != nil {
			err = errDamaged
		}
		return v
	}
	unum := func() (v uint64) {
		v, e := binary.ReadUvarint(r)
		if e != nil {
			err = errDamaged
		}
		return v
	}
	e.Path = str()
	e.Type = typeByName(str())
	e.Mode = uint32(unum())
	if l := str(); l != "" {
		e.Link = []byte(l)
	}
	e.Size = num()
	e.SHA256 = hex.EncodeToString([]byte(str()))
	e.MTime, e.CTime, e.Inode = num(), num(), unum()
	if !safefs.Valid(e.Path) {
		err = errDamaged
	}
	return e, err
}

func typeByName(s string) Type {
	for _, t := range []Type{File, Dir, Symlink} {
		if string(t) == s {
			return t
		}
	}
	return Other
}

// LoadManifest reads a manifest that SaveManifest wrote. A missing one is fs.ErrNotExist; a damaged or newer one is refused.
func LoadManifest(file string) (Manifest, error) {
	dir, err := safefs.OpenRoot(filepath.Dir(file))
	if err != nil {
		return Manifest{}, failure.Wrap(err, failure.Failed, "load the manifest")
	}
	defer dir.Close()
	f, _, err := dir.Open(filepath.Base(file))
	if err != nil {
		return Manifest{}, failure.Wrap(err, failure.Failed, "load the manifest")
	}
	defer f.Close()
	in := &failingReader{r: f}
	m, err := readManifest(in)
	switch {
	case in.err != nil: // nothing is said of the manifest
		return m, failure.Wrap(in.err, failure.Failed, "load the manifest")
	case errors.Is(err, errNewer):
		return m, failure.New(failure.StoreNewer, "%s was written by a newer laufwerk", file).WithHint("update laufwerk, then run the command again")
	case err != nil:
		return m, failure.New(failure.StoreInvalid, "the manifest %s is damaged: %v", file, err).
			WithHint("laufwerk cleanup RUN --discard-changes removes the workspace; its files stay readable below %s until then", filepath.Dir(file))
	}
	return m, nil
}

// failingReader keeps the error of a read, which is not the end.
type failingReader struct {
	r   io.Reader
	err error
}

func (f *failingReader) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if err != nil && err != io.EOF {
		f.err = err
	}
	return n, err
}

var errNewer = errors.New("newer")

func readManifest(f io.Reader) (Manifest, error) {
	var m Manifest
	in := &hashingReader{r: bufio.NewReaderSize(f, 64<<10), sum: sha256.New()}
	line := make([]byte, 0, 32)
	for len(line) < 64 {
		c, err := in.ReadByte()
		if err != nil {
			return m, errDamaged
		}
		if c == '\n' {
			break
		}
		line = append(line, c)
	}
	version, ok := strings.CutPrefix(string(line), manifestMagic)
	if !ok {
		return m, errDamaged
	}
	if major, _, _ := strings.Cut(version, "."); major != "1" {
		return m, errNewer
	}
	var err, err2 error
	m.Root.Dev, err = binary.ReadUvarint(in)
	m.Root.Ino, err2 = binary.ReadUvarint(in)
	if err != nil || err2 != nil {
		return m, errDamaged
	}
	var rec []byte
	for {
		n, err := binary.ReadUvarint(in)
		if err != nil || n > maxRecord {
			return m, errDamaged
		}
		if n == 0 {
			break
		}
		if uint64(cap(rec)) < n {
			rec = make([]byte, n)
		}
		rec = rec[:n]
		if _, err := io.ReadFull(in, rec); err != nil {
			return m, errDamaged
		}
		e, err := decodeEntry(rec)
		if err != nil {
			return m, err
		}
		if k := len(m.Entries); k > 0 && m.Entries[k-1].Path >= e.Path {
			return m, errDamaged
		}
		m.Entries = append(m.Entries, e)
	}
	want := in.sum.Sum(nil)
	got := make([]byte, sha256.Size)
	if _, err := io.ReadFull(in.r, got); err != nil || !bytes.Equal(got, want) {
		return m, errDamaged
	}
	if _, err := in.r.ReadByte(); err != io.EOF {
		return m, errDamaged
	}
	return m, nil
}

type hashingReader struct {
	r   *bufio.Reader
	sum hash.Hash
	one [1]byte
}

func (s *hashingReader) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	s.sum.Write(p[:n])
	return n, err
}

func (s *hashingReader) ReadByte() (byte, error) {
	c, err := s.r.ReadByte()
	if err == nil {
		s.one[0] = c
		s.sum.Write(s.one[:])
	}
	return c, err
}

// Find is the entry of a path.
func (m Manifest) Find(path string) (Entry, bool) {
	lo, hi := 0, len(m.Entries)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.Entries[mid].Path < path {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(m.Entries) && m.Entries[lo].Path == path {
		return m.Entries[lo], true
	}
	return Entry{}, false
}

func (m Manifest) hasEntriesBelow(dir string) bool {
	prefix := dir + "/"
	lo, hi := 0, len(m.Entries)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if m.Entries[mid].Path < prefix {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(m.Entries) && strings.HasPrefix(m.Entries[lo].Path, prefix)
}
