package safefs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Refused is a path that RemoveAll could not remove, and why, for people.
type Refused struct {
	Path string
	Why  string
}

// rereads bounds how often a directory that is being filled while it is emptied is read again.
const rereads = 3

// RemoveAll removes a path and everything below it; with "." everything below the root. It never follows a link and never
// enters a mount. Directories of our own that lack permissions are given them. What could not be removed is named, and
// everything else is removed all the same; an error says that the removal as a whole could not go on. A missing path is done.
func (r *Root) RemoveAll(ctx context.Context, rel string) ([]Refused, error) {
	x := &removal{descent: descent{r: r}}
	defer x.close()
	if rel == "." {
		if err := x.enterUnlocked(r.fd, "."); err != nil {
			return nil, pathError("removeall", rel, err)
		}
	} else if err := r.withParent("removeall", rel, func(dir int, name string) error {
		x.base = rel[:len(rel)-len(name)]
		return x.remove(dir, name)
	}); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	err := x.run(ctx, rel)
	return x.refused, err
}

type removal struct {
	descent
	base    string // what precedes the paths of the descent
	refused []Refused
	state   []removalState // of each level
}

type removalState struct {
	kept  bool // something in it was refused
	reads int
}

// run empties the levels that remove has entered, lowest first. The directory that holds rel is opened anew for the last
// step: it is the caller's, and trusted as much as the path to it was.
func (x *removal) run(ctx context.Context, rel string) error {
	for !x.empty() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l := x.top()
		if len(l.names) > 0 {
			name := l.names[0]
			l.names = l.names[1:]
			if err := x.remove(l.fd(), name); err != nil {
				return err
			}
			continue
		}
		if err := x.leaveDirectory(rel); err != nil {
			return err
		}
	}
	return nil
}

func (x *removal) leaveDirectory(rel string) error {
	l, st := x.top(), x.state[len(x.state)-1]
	last := len(x.levels) == 1
	if last && rel == "." {
		return x.pop(st.kept)
	}
	if !st.kept {
		var err error
		if last {
			err = x.r.RemoveDir(rel)
		} else if err = x.ready(); err == nil {
			err = retry0("rmdir", func() error { return unix.Unlinkat(x.levels[len(x.levels)-2].fd(), l.name, unix.AT_REMOVEDIR) })
		}
		switch {
		case err == nil || errors.Is(err, fs.ErrNotExist):
		case (errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST)) && st.reads < rereads:
			x.state[len(x.state)-1].reads++
			_, err := l.f.Seek(0, 0)
			if err == nil {
				l.names, err = names(l.f)
			}
			return err
		case errors.Is(err, ErrChanged):
			return err
		default:
			st.kept = true
			x.refuse(x.base+x.currentPath(), l.info, err)
		}
	}
	return x.pop(st.kept)
}

// ready makes sure that the level above the lowest one is open.
func (x *removal) ready() error {
	parent := x.levels[len(x.levels)-2]
	if parent.f != nil {
		return nil
	}
	f, err := x.reopen(x.top(), parent)
	if err != nil {
		return err
	}
	parent.f = f
	x.opened = len(x.levels) - 2
	return nil
}

func (x *removal) pop(kept bool) error {
	x.state = x.state[:len(x.state)-1]
	if kept && len(x.state) > 0 {
		x.state[len(x.state)-1].kept = true
	}
	return x.leave()
}

// remove removes what is not a directory, and enters what is one.
func (x *removal) remove(dir int, name string) error {
	err := retry0("remove", func() error { return unix.Unlinkat(dir, name, 0) })
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	info, e := x.r.statAt(dir, name)
	if errors.Is(e, fs.ErrNotExist) {
		return nil
	}
	if e == nil && info.Type == Dir {
		if err = x.enterUnlocked(dir, name); err == nil || errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if e != nil {
		err = e // what it is could not be learned: that a directory is none says nothing
	}
	path := x.base + x.join(name)
	x.refuse(path, info, err)
	if len(x.state) > 0 {
		x.state[len(x.state)-1].kept = true
	}
	return nil
}

// enterUnlocked enters a directory; one that is ours but may not be read, searched or written is opened up first.
func (x *removal) enterUnlocked(dir int, name string) error {
	fd, err := x.r.openAt(dir, name, listFlags, 0)
	if errors.Is(err, fs.ErrPermission) {
		if err = x.makeWritable(dir, name); err == nil {
			fd, err = x.r.openAt(dir, name, listFlags, 0)
		}
	}
	if err != nil {
		return err
	}
	if info, err := x.r.statAt(fd, ""); err == nil && info.Mode&0o700 != 0o700 && info.UID == uint32(os.Geteuid()) {
		_ = unix.Fchmod(fd, info.Mode|0o700) // if it fails, the names inside are refused one by one
	}
	if err := x.enter(fd, name); err != nil {
		return err
	}
	x.state = append(x.state, removalState{})
	return nil
}

func (x *removal) makeWritable(dir int, name string) error {
	info, err := x.r.statAt(dir, name)
	if err != nil {
		return err
	}
	return x.r.chmodAt(dir, name, info.Mode|0o700)
}

func (x *removal) refuse(path string, info Info, err error) {
	x.refused = append(x.refused, Refused{Path: path, Why: removalReason(info, err)})
}

func removalReason(info Info, err error) string {
	me := uint32(os.Geteuid())
	switch {
	case info.Mount, errors.Is(err, unix.EXDEV), errors.Is(err, ErrMount), errors.Is(err, unix.EBUSY):
		return "something is mounted there"
	case errors.Is(err, fs.ErrPermission) && me != 0 && info.UID != me:
		return fmt.Sprintf("it belongs to user %d, or its directory does (%v)", info.UID, err)
	case errors.Is(err, unix.EPERM):
		return fmt.Sprintf("it, or its directory, is protected from changes (%v)", err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("its directory may not be written (%v)", err)
	case errors.Is(err, unix.ENOTEMPTY):
		return "something keeps writing into it"
	default:
		return err.Error()
	}
}
