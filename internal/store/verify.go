package store

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// The file is checked before bbolt sees it: bbolt makes an empty file anew, falls back by a commit without a word when the
// newest meta page is bad, and on other damage panics, reads past the end of the mapping (SIGBUS) or recurses for ever.
// The layout below is bbolt's format version 2, little endian (internal/common/{meta,page,bucket}.go of bbolt 1.5).
const (
	pageSize   = 4096
	pageHeader = 16 // id u64, flags u16, count u16, overflow u32
	metaLen    = 64 // magic, version, page size, flags u32; root, sequence, freelist, high water, transaction, checksum u64
	elemLen    = 16
	magic      = 0xED0CDAED
	version    = 2

	flagBranch   = 0x01
	flagLeaf     = 0x02
	flagFreelist = 0x10

	elemBucket = 0x01
	maxDepth   = 64 // of pages below each other; a tree of that height has more records than a disk
)

// fileStamp recognises a state of the file, so that a process checks it again only after someone else has changed it.
type fileStamp struct {
	inode uint64
	size  int64
	mtime time.Time
	txid  uint64
}

func stampOf(st fs.FileInfo, txid uint64) fileStamp {
	return fileStamp{inode: files.Inode(st), size: st.Size(), mtime: st.ModTime(), txid: txid}
}

// verify refuses everything but a sound store of a format that this version knows. The gate is held.
func (s *Store) verify() error {
	path := s.home.StateFile()
	st, err := files.Lstat(path)
	if err != nil {
		return homeError(path, err)
	}
	if !st.Mode().IsRegular() {
		return s.invalidError("a %s is in its place", typeName(st.Mode()))
	}
	if err := checkOwner(path, st); err != nil {
		return err
	}
	f, err := files.OpenFile(path, 0, 0)
	if err != nil {
		return homeError(path, err)
	}
	defer func() { _ = f.Close() }()
	newest, err := s.newestMeta(f, st.Size())
	if err != nil {
		return err
	}
	now := stampOf(st, newest.txid)
	s.mu.Lock()
	unchanged := now == s.verified
	s.mu.Unlock()
	if unchanged {
		return nil
	}
	w := walker{r: f, high: newest.high, used: make([]bool, newest.high)}
	if err := w.database(newest); err != nil {
		if _, ok := errors.AsType[*damageError](err); !ok {
			return homeError(path, err)
		}
		return s.invalidError("it is damaged: %v", err)
	}
	id, err := s.checkFormat(&w)
	if err != nil {
		return err
	}
	if err := s.checkOwnerFile(id); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.id != "" && s.id != id {
		return s.invalidError("it was replaced by another one while this command ran: its id was %s and is %s", s.id, id)
	}
	s.id, s.verified = id, now
	return nil
}

func (s *Store) checkFormat(w *walker) (string, error) {
	var f format
	if w.format == nil || json.Unmarshal(w.format, &f) != nil {
		return "", s.invalidError("it is a bbolt file, but not one of laufwerk's: it has no format record")
	}
	major, ok := f.major()
	switch {
	case !ok:
		return "", s.invalidError("it is not a store of laufwerk's: its format is %q", f.Format)
	case major > formatMajor:
		return "", failure.New(failure.StoreNewer, "the store %s was written by a newer laufwerk: its format is %q, this version knows %q. Use the newer one", s.home.StateFile(), f.Format, formatName).
			WithHint("laufwerk version\nexport LAUFWERK_HOME=/path/to/another/directory").WithPaths(s.home.StateFile())
	case major < formatMajor:
		return "", s.invalidError("its format %q is too old for this version", f.Format)
	case w.bad != nil:
		return "", s.invalidError("it is damaged: %v", w.bad)
	case f.Count != w.count || f.Sum != w.sum:
		return "", s.invalidError("it is damaged: it holds %d records (sum %x) and should hold %d (sum %x)", w.count, w.sum, f.Count, f.Sum)
	case f.ID == "":
		return "", s.invalidError("it has no id")
	}
	return f.ID, nil
}

func (s *Store) checkOwnerFile(id string) error {
	b, err := files.Read(s.home.OwnerFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil // a creation that was cut short; the next update writes it
	}
	if err != nil {
		return homeError(s.home.OwnerFile(), err)
	}
	if owner := string(bytes.TrimSpace(b)); owner != id {
		return s.invalidError("it is the store %s, but %s says that this home belongs to %.64q", id, s.home.OwnerFile(), owner)
	}
	return nil
}

type meta struct {
	root, freelist, high, txid uint64
}

// newestMeta is the meta page of the newest commit. When only one page is good, it is taken only if the mark proves that
// nothing newer was committed.
func (s *Store) newestMeta(r io.ReaderAt, size int64) (meta, error) {
	if size < 2*pageSize {
		if size == 0 {
			return meta{}, s.invalidError("it is empty (0 bytes)")
		}
		return meta{}, s.invalidError("it is truncated: it has %d bytes, the smallest store has more than %d", size, 2*pageSize)
	}
	var metas [2]meta
	var bad [2]error
	for i := range metas {
		buf := make([]byte, pageHeader+metaLen)
		if _, err := r.ReadAt(buf, int64(i)*pageSize); err != nil {
			return meta{}, homeError(s.home.StateFile(), err)
		}
		metas[i], bad[i] = parseMeta(buf[pageHeader:])
	}
	mark, marked, err := readMark(s.home.markFile())
	if err != nil {
		return meta{}, homeError(s.home.markFile(), err)
	}
	var newest meta
	switch {
	case bad[0] != nil && bad[1] != nil:
		return meta{}, s.invalidError("both of its meta pages are bad: %v; %v", bad[0], bad[1])
	case bad[0] == nil && bad[1] == nil:
		newest = metas[0]
		if metas[1].txid > newest.txid {
			newest = metas[1]
		}
		if marked && newest.txid < mark {
			return meta{}, s.invalidError("it is older than it was: its newest transaction is %d, but %d was committed (%s). "+
				"If you have put an older copy there on purpose, and know that what came after it is gone, remove that file too", newest.txid, mark, s.home.markFile())
		}
	default:
		good, page := 0, 1
		if bad[0] != nil {
			good, page = 1, 0
		}
		newest = metas[good]
		switch {
		case !marked:
			return meta{}, s.invalidError("meta page %d is bad (%v), and without %s nothing proves that the other one is the newest", page, bad[page], s.home.markFile())
		case newest.txid < mark:
			return meta{}, s.invalidError("meta page %d is bad (%v), and the other one is older (transaction %d) than the newest commit (%d)", page, bad[page], newest.txid, mark)
		}
	}
	if newest.high < 4 || newest.high > uint64(size)/pageSize {
		return meta{}, s.invalidError("it is truncated: it has %d bytes, its %d pages need %d", size, newest.high, newest.high*pageSize)
	}
	return newest, nil
}

func parseMeta(b []byte) (meta, error) {
	le := binary.LittleEndian
	if got := le.Uint32(b); got != magic {
		return meta{}, fmt.Errorf("it begins with %08x instead of %08x", got, uint32(magic))
	}
	if got := le.Uint32(b[4:]); got != version {
		return meta{}, fmt.Errorf("it is of bbolt's format %d instead of %d", got, version)
	}
	sum := fnv.New64a()
	_, _ = sum.Write(b[:metaLen-8])
	if got := le.Uint64(b[metaLen-8:]); got != sum.Sum64() {
		return meta{}, errors.New("its checksum does not match")
	}
	if got := le.Uint32(b[8:]); got != pageSize {
		return meta{}, fmt.Errorf("its page size is %d instead of %d", got, pageSize)
	}
	return meta{root: le.Uint64(b[16:]), freelist: le.Uint64(b[32:]), high: le.Uint64(b[40:]), txid: le.Uint64(b[48:])}, nil
}

// damageError is something that a sound file cannot hold, as opposed to a read that failed.
type damageError struct{ what string }

func (e *damageError) Error() string { return e.what }

func damagedError(what string, args ...any) error { return &damageError{fmt.Sprintf(what, args...)} }

// walker visits every page once, in the order of the tree.
type walker struct {
	r      io.ReaderAt
	high   uint64 // pages with this number or above do not exist
	used   []bool
	format []byte // the JSON of the format record
	bad    error  // the first record that does not match its checksum
	count  uint64
	sum    uint64
}

// page reads a page with its overflow and takes it out of the unused ones.
func (w *walker) page(id uint64) (flags uint16, count int, b []byte, err error) {
	if id < 2 || id >= w.high {
		return 0, 0, nil, damagedError("it points to page %d of %d", id, w.high)
	}
	le := binary.LittleEndian
	b = make([]byte, pageSize)
	if _, err := w.r.ReadAt(b, int64(id)*pageSize); err != nil {
		return 0, 0, nil, err
	}
	if got := le.Uint64(b); got != id {
		return 0, 0, nil, damagedError("page %d calls itself %d", id, got)
	}
	overflow := uint64(le.Uint32(b[12:]))
	if overflow >= w.high-id {
		return 0, 0, nil, damagedError("page %d reaches past the end", id)
	}
	for p := id; p <= id+overflow; p++ {
		if w.used[p] {
			return 0, 0, nil, damagedError("page %d is used twice", p)
		}
		w.used[p] = true
	}
	if overflow > 0 {
		whole := make([]byte, (overflow+1)*pageSize)
		if _, err := w.r.ReadAt(whole, int64(id)*pageSize); err != nil {
			return 0, 0, nil, err
		}
		b = whole
	}
	return le.Uint16(b[8:]), int(le.Uint16(b[10:])), b, nil
}

func (w *walker) database(m meta) error {
	if err := w.tree(treePage{id: m.root}); err != nil {
		return err
	}
	flags, count, b, err := w.page(m.freelist)
	if err != nil {
		return err
	}
	if flags != flagFreelist {
		return damagedError("page %d is not the list of free pages", m.freelist)
	}
	le := binary.LittleEndian
	ids, n := b[pageHeader:], uint64(count)
	if count == 0xFFFF {
		n, ids = le.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return damagedError("the list of free pages is too long for its page")
	}
	for i := range n {
		id := le.Uint64(ids[i*8:])
		if id < 2 || id >= w.high || w.used[id] {
			return damagedError("page %d is listed as free and is not", id)
		}
		w.used[id] = true
	}
	for id := uint64(2); id < w.high; id++ {
		if !w.used[id] {
			return damagedError("page %d is neither used nor free", id)
		}
	}
	return nil
}

// treePage is a page of a bucket's tree. Its keys must be at or above low and below high, where those are given.
type treePage struct {
	id        uint64
	data      []byte
	count     int    // of its entries
	bucket    []byte // the path of the bucket, nil for the root
	low, high []byte
	depth     int
}

// tree visits a page, of which data and count are still to be read, and the pages below it.
func (w *walker) tree(p treePage) error {
	if p.depth > maxDepth {
		return damagedError("its pages are nested too deeply")
	}
	flags, count, b, err := w.page(p.id)
	if err != nil {
		return err
	}
	p.count, p.data = count, b
	switch flags {
	case flagBranch:
		return w.branch(p)
	case flagLeaf:
		return w.leaf(p)
	default:
		return damagedError("page %d is of type %#x", p.id, flags)
	}
}

func (w *walker) branch(p treePage) error {
	le, b := binary.LittleEndian, p.data
	if p.count == 0 || pageHeader+p.count*elemLen > len(b) {
		return damagedError("page %d has %d entries", p.id, p.count)
	}
	keys := make([][]byte, p.count)
	for i := range p.count {
		at := pageHeader + i*elemLen
		key, ok := pageSlice(b, at, le.Uint32(b[at:]), 0, le.Uint32(b[at+4:]))
		if !ok || !isBetween(key, p.low, p.high) || (i > 0 && bytes.Compare(keys[i-1], key) >= 0) {
			return damagedError("entry %d of page %d is out of place", i, p.id)
		}
		keys[i] = key
	}
	for i := range p.count {
		end := p.high
		if i+1 < p.count {
			end = keys[i+1]
		}
		below := treePage{id: le.Uint64(b[pageHeader+i*elemLen+8:]), bucket: p.bucket, low: keys[i], high: end, depth: p.depth + 1}
		if err := w.tree(below); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) leaf(p treePage) error {
	le, b := binary.LittleEndian, p.data
	if pageHeader+p.count*elemLen > len(b) {
		return damagedError("page %d has %d entries", p.id, p.count)
	}
	var last []byte
	for i := range p.count {
		at := pageHeader + i*elemLen
		flags, pos, ksize, vsize := le.Uint32(b[at:]), le.Uint32(b[at+4:]), le.Uint32(b[at+8:]), le.Uint32(b[at+12:])
		key, ok := pageSlice(b, at, pos, 0, ksize)
		value, ok2 := pageSlice(b, at, pos, ksize, vsize)
		if !ok || !ok2 || ksize == 0 || !isBetween(key, p.low, p.high) || (i > 0 && bytes.Compare(last, key) >= 0) {
			return damagedError("entry %d of page %d is out of place", i, p.id)
		}
		last = key
		switch {
		case flags == elemBucket:
			if err := w.bucket(p, key, value); err != nil {
				return err
			}
		case flags == 0 && p.bucket != nil:
			w.record(p.bucket, key, value)
		default:
			return damagedError("entry %d of page %d is of type %#x", i, p.id, flags)
		}
	}
	return nil
}

// bucket visits a bucket that is an entry of page p: on pages of its own, or inline in the value.
func (w *walker) bucket(p treePage, key, value []byte) error {
	le := binary.LittleEndian
	if p.bucket != nil {
		key = append(append(bytes.Clone(p.bucket), '/'), key...)
	}
	if len(value) < 16 {
		return damagedError("bucket %q on page %d is truncated", key, p.id)
	}
	if root := le.Uint64(value); root != 0 {
		return w.tree(treePage{id: root, bucket: key, depth: p.depth + 1})
	}
	inline := value[16:]
	if len(inline) < pageHeader || le.Uint16(inline[8:]) != flagLeaf || le.Uint64(inline) != 0 || le.Uint32(inline[12:]) != 0 {
		return damagedError("bucket %q on page %d is no bucket", key, p.id)
	}
	return w.leaf(treePage{id: p.id, data: inline, count: int(le.Uint16(inline[10:])), bucket: key, depth: p.depth + 1})
}

func (w *walker) record(bucket, key, sealed []byte) {
	value, sum, err := unseal(bucket, key, sealed)
	if err != nil {
		if w.bad == nil {
			w.bad = recordError{Bucket(bucket), string(key), err}
		}
		return
	}
	if string(bucket) == formatBucket {
		if string(key) == formatKey {
			w.format = bytes.Clone(value)
		}
		return
	}
	w.count++
	w.sum += uint64(sum)
}

// pageSlice is n bytes of a page, skip bytes after the position that an element at `at` gives relative to itself.
func pageSlice(b []byte, at int, pos, skip, n uint32) ([]byte, bool) {
	from := uint64(at) + uint64(pos) + uint64(skip)
	to := from + uint64(n)
	if to > uint64(len(b)) {
		return nil, false
	}
	return b[from:to], true
}

func isBetween(key, low, high []byte) bool {
	return (low == nil || bytes.Compare(key, low) >= 0) && (high == nil || bytes.Compare(key, high) < 0)
}
