package sessiondir

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// ProgramHome is the private home of a program, as a path below the session's directory.
func ProgramHome(program string) string { return Home + "/" + program }

// PutFile puts a file into a program's home. Nothing there is followed, and what has the file's name is replaced.
func PutFile(dir, program string, f agent.File, user *User) error {
	return withHomeFile(dir, program, f.Path, user, func(root *safefs.Root, name, tmp string) error {
		return putFile(root, name, tmp, uint32(f.Mode.Perm()), f.Content, user)
	})
}

// PutSymlink puts a symbolic link into a program's home, in place of whatever has its name.
func PutSymlink(dir, program, name, target string, user *User) error {
	return withHomeFile(dir, program, name, user, func(root *safefs.Root, name, tmp string) error {
		if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := root.Symlink(target, tmp); err != nil {
			return err
		}
		if user != nil {
			if err := root.Lchown(tmp, user.UID, user.GID); err != nil {
				return err
			}
		}
		return root.Rename(tmp, name)
	})
}

func withHomeFile(dir, program, file string, user *User, do func(root *safefs.Root, name, tmp string) error) error {
	if !safefs.Valid(file) {
		return failure.New(failure.Internal, "%q is no path in a home", file)
	}
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	_ = root.Chmod(Home, 0o700) // as in MakeOperation
	at := ProgramHome(program)
	elements := strings.Split(file, "/")
	for _, e := range append([]string{""}, elements[:len(elements)-1]...) {
		if e != "" {
			at += "/" + e
		}
		if err := mkdir(root, at, 0o700, user); err != nil {
			return err
		}
	}
	last := elements[len(elements)-1]
	return do(root, at+"/"+last, at+"/.placing-"+last)
}

// ReadHome reads a file of a program's home, of at most limit bytes.
func ReadHome(dir, program, file string, limit int64) ([]byte, error) {
	root, err := safefs.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	b, _, err := root.ReadFile(filepath.ToSlash(filepath.Join(ProgramHome(program), file)), limit)
	return b, err
}
