package safefs

import (
	"context"
	"errors"
	"io/fs"
)

// SkipDir, returned for a directory, leaves out what is in it.
var SkipDir = fs.SkipDir //nolint:gochecknoglobals // the very value: callers compare with it

// Walk calls fn for every path below the root, in the order of the paths' bytes ("a", "a.b", "a/b"), with a bounded number
// of open directories however deep the tree is. A mounted directory is told (Info.Mount) and not entered. A directory that
// cannot be listed is told a second time, with err saying why; fn decides whether the walk goes on. What vanishes during
// the walk is left out. The walk ends with fn's first error, or with ctx.
func (r *Root) Walk(ctx context.Context, fn func(path string, info Info, err error) error) error {
	d := &descent{r: r}
	defer d.close()
	fd, err := r.open(".", listFlags, 0)
	if err == nil {
		err = d.enter(fd, ".")
	}
	if err != nil {
		return pathError("walk", ".", err)
	}
	// What is in a directory comes after the directory's name followed by '/'. Directories that were told but not yet entered
	// therefore wait; each later one sorts before the earlier ones, so that the last one waiting is the next.
	waiting := [][]string{nil}
	for !d.empty() {
		if err := ctx.Err(); err != nil {
			return err
		}
		l, n := d.top(), len(waiting)-1
		w := waiting[n]
		switch {
		case len(w) > 0 && (len(l.names) == 0 || w[len(w)-1]+"/" < l.names[0]):
			name := w[len(w)-1]
			waiting[n] = w[:len(w)-1]
			fd, err := r.openAt(l.fd(), name, listFlags, 0)
			if err == nil {
				err = d.enter(fd, name)
			}
			if err == nil {
				waiting = append(waiting, nil)
				continue
			}
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			path := d.join(name)
			info, _ := r.statAt(l.fd(), name)
			if err := fn(path, info, pathError("walk", path, err)); err != nil && err != SkipDir { //nolint:errorlint // a sentinel that is never wrapped
				return err
			}
		case len(l.names) > 0:
			name := l.names[0]
			l.names = l.names[1:]
			info, err := r.statAt(l.fd(), name)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			path := d.join(name)
			if err != nil {
				err = pathError("walk", path, err)
			}
			err = fn(path, info, err)
			if err != nil && err != SkipDir { //nolint:errorlint // as above
				return err
			}
			if err == nil && info.Type == Dir && !info.Mount {
				waiting[n] = append(waiting[n], name)
			}
		default:
			waiting = waiting[:n]
			if err := d.leave(); err != nil {
				return err
			}
		}
	}
	return nil
}
