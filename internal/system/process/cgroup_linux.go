package process

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system/fault"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Cgroup is a control group (cgroup v2) of our own. It is ended as one: no fork is quicker than cgroup.kill.
type Cgroup struct{ dir string }

// Dir is its directory.
func (c *Cgroup) Dir() string { return c.dir }

// CgroupPath is where a control group called name would be made: below the one of this process. It is "" where none can be
// had, with the reason. Nothing is changed.
//
// Making a child of one's own group and starting processes in it needs write access to both `cgroup.procs` only: our own
// group holds processes, so it passes no controllers on, and the rule against inner processes has nothing to refuse.
func CgroupPath(name string) (dir, why string) {
	own, err := ownCgroup()
	if err != nil {
		return "", err.Error()
	}
	if err := fault.Point("access", own); err != nil {
		return "", err.Error()
	}
	for _, p := range []string{own, filepath.Join(own, "cgroup.procs")} {
		if err := unix.Access(p, unix.W_OK); err != nil {
			return "", fmt.Sprintf("%s: %v", p, err)
		}
	}
	return filepath.Join(own, name), ""
}

// MakeCgroup makes the control group that CgroupPath named, or takes one that an earlier holder left empty.
func MakeCgroup(dir string) (*Cgroup, error) {
	c := &Cgroup{dir: dir}
	if err := fault.Do("mkdir", dir, func() error { return os.Mkdir(dir, 0o755) }); err != nil {
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if lives, err := c.Populated(); err != nil {
			return nil, err
		} else if lives {
			return nil, fmt.Errorf("control group %s is in use", dir)
		}
	}
	return c, nil
}

// OpenCgroup takes a recorded directory; fs.ErrNotExist where it is gone. A directory that is no control group is refused.
func OpenCgroup(dir string) (*Cgroup, error) {
	st, err := files.Statfs(dir)
	if err != nil {
		return nil, err
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return nil, fmt.Errorf("%s is no control group", dir)
	}
	return &Cgroup{dir: dir}, nil
}

// FindCgroups are the control groups anywhere on this system whose directory's name starts with prefix, as far as they can
// be seen; none where there is no cgroup v2.
func FindCgroups(prefix string) (found []string) {
	mount, _, err := unified()
	if err != nil {
		return nil
	}
	_ = filepath.WalkDir(mount, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), prefix) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil // a group that ended meanwhile, or one that is not ours to see, hides no other
	})
	return found
}

// Populated says whether a process lives in it or below.
func (c *Cgroup) Populated() (bool, error) {
	b, err := files.Read(filepath.Join(c.dir, "cgroup.events"))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return false, nil
	}
	if err != nil {
		return true, err
	}
	return !bytes.Contains(b, []byte("populated 0")), nil
}

// Kill kills everything in it and below.
func (c *Cgroup) Kill() error {
	if err := fault.Point("kill", c.dir); err != nil {
		return err
	}
	err := os.WriteFile(filepath.Join(c.dir, "cgroup.kill"), []byte("1"), 0)
	if errors.Is(err, fs.ErrNotExist) { // before Linux 5.14, or it is gone
		return c.each(func(dir string) error {
			pids, err := pidsIn(dir)
			for _, pid := range pids {
				killInCgroup(pid, dir)
			}
			return err
		})
	}
	if errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// End kills everything in it, waits until it is empty and removes it.
func (c *Cgroup) End(ctx context.Context) error {
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if err := c.Kill(); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		lives, err := c.Populated()
		if err != nil {
			return err
		}
		if !lives {
			return c.Remove()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("control group %s still holds processes: %w", c.dir, ctx.Err())
		case <-time.After(wait):
		}
	}
}

// Remove removes it and the groups below, all of them empty; one that is gone is no error.
func (c *Cgroup) Remove() error {
	if err := fault.Point("rmdir", c.dir); err != nil {
		return err
	}
	var dirs []string
	if err := c.each(func(dir string) error { dirs = append(dirs, dir); return nil }); err != nil {
		return err
	}
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := unix.Rmdir(dirs[i]); err != nil && !errors.Is(err, unix.ENOENT) {
			return &fs.PathError{Op: "rmdir", Path: dirs[i], Err: err}
		}
	}
	return nil
}

// PIDs are the processes in it and below.
func (c *Cgroup) PIDs() []int {
	var out []int
	_ = c.each(func(dir string) error {
		pids, _ := pidsIn(dir)
		out = append(out, pids...)
		return nil
	})
	return out
}

// each calls do for the group and the groups below, parents first.
func (c *Cgroup) each(do func(dir string) error) error {
	return filepath.WalkDir(c.dir, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !e.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		return do(path)
	})
}

func pidsIn(dir string) ([]int, error) {
	b, err := files.Read(filepath.Join(dir, "cgroup.procs"))
	if errors.Is(err, unix.ENODEV) || errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []int
	for w := range strings.FieldsSeq(string(b)) {
		if pid, err := strconv.Atoi(w); err == nil && pid > 0 {
			out = append(out, pid)
		}
	}
	return out, err
}

// killInCgroup kills a process if it still is in the group once it is pinned.
func killInCgroup(pid int, dir string) {
	fd, err := pidfd(pid)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if path, err := cgroupOf(pid); err == nil && filepath.Base(path) == filepath.Base(dir) {
		_ = pidfdSignal(fd, unix.SIGKILL)
	}
}

func ownCgroup() (string, error) {
	mount, root, err := unified()
	if err != nil {
		return "", err
	}
	path, err := cgroupOf(os.Getpid())
	if err != nil {
		return "", err
	}
	rel, ok := strings.CutPrefix(path, strings.TrimSuffix(root, "/"))
	if !ok || rel != "" && rel[0] != '/' {
		return "", fmt.Errorf("our control group %s is outside of what is mounted (%s)", path, root)
	}
	dir := filepath.Join(mount, rel)
	pids, err := pidsIn(dir)
	if err != nil {
		return "", err
	}
	if !slices.Contains(pids, os.Getpid()) {
		return "", fmt.Errorf("%s does not list this process", dir)
	}
	return dir, nil
}

// cgroupOf is the cgroup v2 path of a process, as /proc/PID/cgroup has it: the line of hierarchy 0.
func cgroupOf(pid int) (string, error) {
	b, err := files.Read("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return "", err
	}
	for _, l := range strings.Split(string(b), "\n") {
		if p, ok := strings.CutPrefix(l, "0::"); ok {
			return p, nil
		}
	}
	return "", errors.New("this system has no unified control group hierarchy (cgroup v2)")
}

// unified finds where cgroup v2 is mounted (beside v1 it is at /sys/fs/cgroup/unified, but not always) and which part of it.
func unified() (mount, root string, err error) {
	f, err := files.Open("/proc/self/mountinfo")
	if err != nil {
		return "", "", err
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		w := strings.Fields(before)
		if ok && len(w) >= 6 && strings.HasPrefix(after, "cgroup2 ") {
			return unescapeMount(w[4]), unescapeMount(w[3]), nil
		}
	}
	return "", "", errors.New("cgroup v2 is not mounted")
}

func unescapeMount(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
