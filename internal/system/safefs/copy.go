package safefs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// cloneFrom is the size from which sharing the blocks is tried before copying them.
const cloneFrom = 128 << 10

// Copier copies and hashes files through one buffer: memory does not grow with the files. It serves one goroutine.
type Copier struct {
	buf     []byte
	hash    hash.Hash
	noClone bool // the file systems do not share blocks
	owner   *Owner
}

// Owner is a user and a group.
type Owner struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

// SetOwner has every file that is copied from now on belong to o; nil is this process's own user and group.
func (c *Copier) SetOwner(o *Owner) { c.owner = o }

// NewCopier makes a Copier.
func NewCopier() *Copier { return &Copier{buf: make([]byte, 256<<10), hash: sha256.New()} }

// Sum is sha256 of a content.
type Sum [sha256.Size]byte

func (s Sum) String() string { return fmt.Sprintf("%x", s[:]) }

// Copied is what a Copy or Hash read, and where it lies now.
type Copied struct {
	Size int64
	Sum  Sum  // of exactly the bytes that were written or, by Hash, read
	From Info // of the file read, before reading
	Now  Info // of the new file (Copy), of the file read after reading (Hash)
}

// Copy makes the file to, which must not be there yet, from the regular file from, with exactly these mode bits (nil: those
// of the file read). Blocks are shared where the file systems can, holes of sparse files stay holes. What was written is
// not fsynced unless sync says so. On failure the new file is removed.
func (c *Copier) Copy(src *Root, from string, dst *Root, to string, mode *uint32, sync bool) (out Copied, err error) {
	in, info, err := src.openFile("copy", from)
	if err != nil {
		return out, err
	}
	defer unix.Close(in)
	m := info.Mode
	if mode != nil {
		m = *mode
	}
	fd, err := dst.createFile("copy", to, 0o600)
	if err != nil {
		return out, err
	}
	defer func() {
		if e := closeAlways(fd); err == nil && e != nil {
			err = pathError("copy", to, e)
		}
		if err != nil {
			_ = dst.Remove(to)
		}
	}()
	out.From = info
	if out.Size, err = c.copyBytes(in, fd, info); err != nil {
		return out, pathError("copy", from, err)
	}
	c.hash.Sum(out.Sum[:0])
	if c.owner != nil {
		if err = retry0("chown", func() error { return unix.Fchown(fd, c.owner.UID, c.owner.GID) }); err != nil {
			return out, pathError("chown", to, err)
		}
	}
	if m != 0o600 { // after the owner, whose change clears setuid and setgid
		if err = fchmod(fd, m); err != nil {
			return out, pathError("copy", to, err)
		}
	}
	if sync {
		if err = retry0("sync", func() error { return unix.Fsync(fd) }); err != nil {
			return out, pathError("copy", to, err)
		}
	}
	out.Now, err = dst.statAt(fd, "")
	return out, pathError("copy", to, err)
}

func closeAlways(fd int) error {
	failed := fault.Point("close", "")
	if err := unix.Close(fd); err != nil {
		return err
	}
	return failed
}

func (c *Copier) copyBytes(in, out int, info Info) (int64, error) {
	c.hash.Reset()
	if info.Size >= cloneFrom && !c.noClone {
		err := clone(out, in)
		if err == nil {
			return c.read(out, nil) // what was cloned is private by now: the hash is of what was written
		}
		if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.ENOSYS) {
			c.noClone = true
		}
	}
	var at int64
	sparse := info.Size >= int64(len(c.buf)) && info.Blocks*512 < info.Size
	size, err := c.read(in, func(b []byte) error {
		if sparse && isZero(b) {
			at += int64(len(b))
			return nil
		}
		for len(b) > 0 {
			n, err := retry("write", func() (int, error) { return unix.Pwrite(out, b, at) })
			if err != nil {
				return err
			}
			at += int64(n)
			b = b[n:]
		}
		return nil
	})
	if err == nil && sparse {
		err = retry0("truncate", func() error { return unix.Ftruncate(out, at) })
	}
	return size, err
}

// read hashes a file from its start, and hands each piece on.
func (c *Copier) read(fd int, each func([]byte) error) (int64, error) {
	var size int64
	for {
		n, err := retry("read", func() (int, error) { return unix.Pread(fd, c.buf, size) })
		if err != nil {
			return size, err
		}
		if n == 0 {
			return size, nil
		}
		c.hash.Write(c.buf[:n])
		size += int64(n)
		if each != nil {
			if err := each(c.buf[:n]); err != nil {
				return size, err
			}
		}
	}
}

func isZero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// Hash reads a regular file. ErrChanged says that it was written while it was read.
func (c *Copier) Hash(r *Root, rel string) (out Copied, err error) {
	fd, info, err := r.openFile("hash", rel)
	if err != nil {
		return out, err
	}
	defer unix.Close(fd)
	c.hash.Reset()
	out.From = info
	if out.Size, err = c.read(fd, nil); err != nil {
		return out, pathError("hash", rel, err)
	}
	c.hash.Sum(out.Sum[:0])
	if out.Now, err = r.statAt(fd, ""); err != nil {
		return out, pathError("hash", rel, err)
	}
	if out.Now.CTimeNS != info.CTimeNS || out.Now.MTimeNS != info.MTimeNS || out.Size != info.Size || out.Now.Size != info.Size {
		err = pathError("hash", rel, ErrChanged)
	}
	return out, err
}

// ReadFile is the whole of a regular file of at most limit bytes; a longer one is refused.
func (r *Root) ReadFile(rel string, limit int64) ([]byte, Info, error) {
	f, info, err := r.Open(rel)
	if err != nil {
		return nil, info, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = pathError("read", rel, fmt.Errorf("longer than %d bytes", limit))
	}
	if err != nil {
		return nil, info, err
	}
	return b, info, nil
}
