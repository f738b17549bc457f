package safefs

import (
	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
)

// maxOpenDirs bounds the open directories of one descent, whatever the depth of the tree.
const maxOpenDirs = 48

// descent is the way from where a walk began down to where it is. Only the lowest directories are held open; on the way
// up, one that was closed is reached through ".." of its child and must still be the same.
type descent struct {
	r      *Root
	levels []*level
	path   []byte // of the lowest level; empty for the root
	opened int    // levels from here on are open
}

type level struct {
	name    string
	f       *fault.File
	info    Info
	names   []string
	pathLen int // of descent.path before this level's name was added
}

func (d *descent) top() *level { return d.levels[len(d.levels)-1] }
func (d *descent) empty() bool { return len(d.levels) == 0 }
func (l *level) fd() int       { return int(l.f.Fd()) }

func (d *descent) join(name string) string {
	if len(d.path) == 0 {
		return name
	}
	b := make([]byte, 0, len(d.path)+1+len(name))
	b = append(append(append(b, d.path...), '/'), name...)
	return string(b)
}

func (d *descent) currentPath() string {
	if len(d.path) == 0 {
		return "."
	}
	return string(d.path)
}

// enter goes down into an open, listable directory, which it owns from here on.
func (d *descent) enter(fd int, name string) error {
	l := &level{name: name, f: newFile(fd, name), pathLen: len(d.path)}
	var err error
	if l.info, err = d.r.statAt(fd, ""); err == nil {
		l.names, err = names(l.f)
	}
	if err != nil {
		_ = l.f.Close()
		return err
	}
	d.levels = append(d.levels, l)
	if name != "." {
		if len(d.path) > 0 {
			d.path = append(d.path, '/')
		}
		d.path = append(d.path, name...)
	}
	if len(d.levels)-d.opened > maxOpenDirs {
		_ = d.levels[d.opened].f.Close()
		d.levels[d.opened].f = nil
		d.opened++
	}
	return nil
}

// leave goes up one level. It fails if the directory above is no longer where it was; then the descent is over.
func (d *descent) leave() error {
	child := d.top()
	defer func() { _ = child.f.Close() }()
	d.levels = d.levels[:len(d.levels)-1]
	d.path = d.path[:child.pathLen]
	if d.empty() || d.top().f != nil {
		return nil
	}
	parent := d.top()
	f, err := d.reopen(child, parent)
	if err != nil {
		return err
	}
	parent.f = f
	d.opened = len(d.levels) - 1
	return nil
}

// reopen opens the directory above child again: through "..", or from the root where child may not be searched.
func (d *descent) reopen(child, parent *level) (*fault.File, error) {
	fd, err := retry("open", func() (int, error) { return unix.Openat(child.fd(), "..", listFlags, 0) })
	if err != nil {
		path := d.path
		if child == d.top() {
			path = path[:child.pathLen]
		}
		above := "."
		if len(path) > 0 {
			above = string(path)
		}
		fd, err = d.r.open(above, listFlags, 0)
	}
	if err == nil {
		if i, e := d.r.statAt(fd, ""); e != nil || !i.Same(parent.info) {
			_ = unix.Close(fd)
			err = ErrChanged
		}
	}
	if err != nil {
		return nil, pathError("walk", d.currentPath(), err)
	}
	return newFile(fd, parent.name), nil
}

func (d *descent) close() {
	for _, l := range d.levels {
		if l.f != nil {
			_ = l.f.Close()
		}
	}
	d.levels = nil
}
