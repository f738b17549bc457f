package projectfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Untrusted says, in half a sentence, why code at path must not be run as this user: somebody else owns it or can write it.
// "" where nothing speaks against it. Root may own anything. A group may write if it is the user's private one: the user's
// primary group, with the user's name. Links are followed.
func Untrusted(path string) string {
	st, err := files.Stat(path)
	if err != nil {
		return "it cannot be inspected: " + reason(err)
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	if !ok {
		return "its owner is not known"
	}
	if me := os.Geteuid(); int(sys.Uid) != me && sys.Uid != 0 {
		return fmt.Sprintf("it belongs to %s, not to %s", userName(int(sys.Uid)), userName(me))
	}
	switch mode := st.Mode().Perm(); {
	case mode&0o002 != 0:
		return fmt.Sprintf("everybody can write it (mode %04o)", mode)
	case mode&0o020 != 0 && !privateGroup(int(sys.Gid)):
		return fmt.Sprintf("the group %s can write it (mode %04o)", groupName(int(sys.Gid)), mode)
	}
	return ""
}

func privateGroup(gid int) bool {
	me, err := user.LookupId(strconv.Itoa(os.Geteuid()))
	if err != nil || me.Gid != strconv.Itoa(gid) {
		return false
	}
	group, err := user.LookupGroupId(me.Gid)
	return err == nil && group.Name == me.Username
}

func userName(uid int) string {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "user " + id
}

func groupName(gid int) string {
	id := strconv.Itoa(gid)
	if g, err := user.LookupGroupId(id); err == nil {
		return g.Name
	}
	return id
}

func reason(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// IsFile says whether something is at path that is not a directory; what exactly is looked at when it is read.
func IsFile(path string) bool {
	st, err := files.Lstat(path)
	return err == nil && !st.IsDir()
}

// IsDir says whether path is a directory, or a link to one.
func IsDir(path string) bool {
	st, err := files.Stat(path)
	return err == nil && st.IsDir()
}

// Real is path with all links resolved, path itself where that fails.
func Real(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil && fault.Point("readlink", path) == nil {
		return real
	}
	return filepath.Clean(path)
}
