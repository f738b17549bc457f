package guest

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// runPut writes a file that an agent may not redirect: a login. It is not made durable; what needs that is written by the host.
func runPut(env *system.Env, args []string) error {
	path := args[0]
	mode, err := strconv.ParseUint(args[1], 8, 32)
	if err != nil || mode > 0o777 {
		return fmt.Errorf("the mode must be octal, like 600, got %q", args[1])
	}
	size, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil || size < 0 {
		return fmt.Errorf("the size must be a number of bytes, got %q", args[2])
	}
	if path != filepath.Clean(path) || !filepath.IsAbs(path) || path == "/" {
		return fmt.Errorf("the file must be a clean absolute path, got %q", path)
	}
	root, name, err := openMount(path)
	if err != nil {
		return err
	}
	defer root.Close()
	for i := range len(name) {
		if name[i] == '/' {
			if err := root.Mkdir(name[:i], 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
				return err
			}
		}
	}
	f, tmp, err := createBeside(root, name, uint32(mode))
	if err != nil {
		return err
	}
	n, err := io.Copy(f, io.LimitReader(env.In, size+1))
	if err == nil && n != size { // whoever sends it was killed
		err = fmt.Errorf("%d bytes were announced, and not as many came", size)
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = replaceName(root, tmp, name)
	}
	if err != nil {
		_ = root.Remove(tmp)
	}
	return err
}

// openMount is the mount that holds a path, and the path below it. An agent can neither move nor replace what is mounted; below
// it, nothing is trusted.
func openMount(path string) (*safefs.Root, string, error) {
	root, err := safefs.OpenRoot("/")
	if err != nil {
		return nil, "", err
	}
	rest := strings.TrimPrefix(path, "/")
	for i := 0; i < len(rest); i++ {
		if rest[i] != '/' {
			continue
		}
		info, err := root.Lstat(rest[:i])
		if errors.Is(err, fs.ErrNotExist) {
			break // to be made
		}
		if err == nil && info.Type == safefs.Dir && !info.Mount {
			continue
		}
		if err == nil && info.Type != safefs.Dir {
			err = &fs.PathError{Op: "put", Path: rest[:i], Err: safefs.ErrNotDir}
		}
		var next *safefs.Root
		if err == nil {
			next, err = safefs.OpenRoot(filepath.Join(root.Path(), rest[:i]))
		}
		if err == nil {
			if now, e := next.Lstat("."); e != nil || !now.Same(info) {
				_ = next.Close()
				err = errors.Join(e, safefs.ErrChanged)
			}
		}
		_ = root.Close()
		if err != nil {
			return nil, "", err
		}
		root, rest, i = next, rest[i+1:], -1
	}
	return root, rest, nil
}
