package safefs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// both runs a test with the kernel's resolution and with the opening by element that other systems use.
func both(t *testing.T, test func(t *testing.T, dir string, r *Root)) {
	for _, byElement := range []bool{false, true} {
		t.Run(fmt.Sprintf("byElement=%v", byElement), func(t *testing.T) {
			dir := t.TempDir()
			r, err := OpenRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = r.Close() })
			if !byElement && r.byElement {
				t.Skip("no openat2 on this system")
			}
			r.byElement = byElement
			test(t, dir, r)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(content), 0o644))
}

func TestPathsThatAreNotCleanAreRefused(t *testing.T) {
	r, err := OpenRoot(t.TempDir())
	must(t, err)
	defer r.Close()
	for _, p := range []string{"", "/", "/a", "..", "../a", "a/..", "a/../b", "a//b", "a/", "./a", "a/./b", "a\x00b", "."} {
		if _, _, err := r.Open(p); !errors.Is(err, ErrPath) {
			t.Errorf("Open(%q): %v", p, err)
		}
		if err := r.Mkdir(p, 0o755); !errors.Is(err, ErrPath) {
			t.Errorf("Mkdir(%q): %v", p, err)
		}
		if err := r.Rename("x", p); !errors.Is(err, ErrPath) && !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("Rename to %q: %v", p, err)
		}
	}
}

func TestOpen(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		outside := filepath.Join(t.TempDir(), "secret")
		write(t, outside, "secret")
		write(t, dir+"/d/file", "text")
		write(t, dir+"/d/new\nline", "n")
		write(t, dir+"/d/bad\xff", "b")
		must(t, os.Symlink(outside, dir+"/out"))
		must(t, os.Symlink("d", dir+"/in"))
		must(t, os.Symlink("/proc/self/root", dir+"/magic"))
		must(t, unix.Mkfifo(dir+"/fifo", 0o644))
		sock, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		must(t, err)
		defer unix.Close(sock)
		must(t, unix.Bind(sock, &unix.SockaddrUnix{Name: dir + "/sock"}))

		for p, want := range map[string]error{
			"d/file": nil, "d/new\nline": nil, "d/bad\xff": nil,
			"out": ErrLink, "in/file": ErrLink, "magic/etc/passwd": ErrLink,
			"fifo": ErrNotRegular, "sock": ErrNotRegular, "d": ErrNotRegular,
			"d/none": fs.ErrNotExist, "d/file/x": ErrNotDir,
		} {
			f, info, err := r.Open(p)
			if !errors.Is(err, want) || (want == nil && err != nil) {
				t.Errorf("Open(%q): got %v, want %v", p, err, want)
			}
			if err == nil {
				if info.Type != File || info.Size == 0 {
					t.Errorf("Open(%q): %+v", p, info)
				}
				f.Close()
			}
		}
		for p, want := range map[string]Type{"d/file": File, "out": Symlink, "fifo": Fifo, "sock": Socket, "d": Dir, ".": Dir} {
			if i, err := r.Lstat(p); err != nil || i.Type != want || i.Mount {
				t.Errorf("Lstat(%q): %+v, %v", p, i, err)
			}
		}
		if target, err := r.Readlink("out"); err != nil || string(target) != outside {
			t.Errorf("Readlink: %q, %v", target, err)
		}
		if names, err := r.ReadDir("d"); err != nil || !slices.Equal(names, []string{"bad\xff", "file", "new\nline"}) {
			t.Errorf("ReadDir: %q, %v", names, err)
		}
		if _, err := r.ReadDir("in"); !errors.Is(err, ErrLink) {
			t.Errorf("ReadDir through a link: %v", err)
		}
	})
}

func TestChanges(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		old := unix.Umask(0o077)
		defer unix.Umask(old)
		must(t, r.Mkdir("d", 0o2755))
		f, err := r.Create("d/f", 0o755)
		must(t, err)
		_, _ = f.WriteString("one")
		f.Close()
		if i, _ := r.Lstat("d"); i.Mode != 0o2755 {
			t.Errorf("mode of d: %o", i.Mode)
		}
		if i, _ := r.Lstat("d/f"); i.Mode != 0o755 {
			t.Errorf("mode of d/f: %o", i.Mode)
		}
		if _, err := r.Create("d/f", 0o644); !errors.Is(err, fs.ErrExist) {
			t.Errorf("Create over a file: %v", err)
		}
		must(t, r.Symlink("f\xff", "d/l"))
		if _, err := r.Create("d/l", 0o644); !errors.Is(err, fs.ErrExist) && !errors.Is(err, ErrLink) {
			t.Errorf("Create over a link: %v", err)
		}
		if err := r.Chmod("d/l", 0o777); !errors.Is(err, ErrLink) {
			t.Errorf("Chmod of a link: %v", err)
		}
		must(t, r.Chmod("d/f", 0o400))
		must(t, r.Chmod("d/f", 0))
		must(t, r.Chmod("d/f", 0o644))
		write(t, dir+"/d/g", "two")
		if err := r.RenameNoReplace("d/f", "d/g"); !errors.Is(err, fs.ErrExist) {
			t.Errorf("RenameNoReplace: %v", err)
		}
		must(t, r.Exchange("d/f", "d/g"))
		if b, _ := os.ReadFile(dir + "/d/f"); string(b) != "two" {
			t.Errorf("after the exchange: %q", b)
		}
		must(t, r.Rename("d/f", "d/g"))
		if err := r.RemoveDir("d"); err == nil {
			t.Error("removed a directory that is not empty")
		}
		must(t, r.Remove("d/g"))
		must(t, r.Remove("d/l"))
		must(t, r.SyncDir("d"))
		must(t, r.RemoveDir("d"))
	})
}

func TestChangesThroughALinkAreRefused(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		hooks := dir + "/.git/hooks"
		must(t, os.MkdirAll(hooks, 0o755))
		write(t, hooks+"/keep", "k")
		must(t, os.Symlink(".git/hooks", dir+"/docs"))
		write(t, dir+"/f", "x")
		for name, call := range map[string]func() error{
			"create":  func() error { _, err := r.Create("docs/post-checkout", 0o755); return err },
			"mkdir":   func() error { return r.Mkdir("docs/d", 0o755) },
			"symlink": func() error { return r.Symlink("x", "docs/l") },
			"rename":  func() error { return r.Rename("f", "docs/f") },
			"from":    func() error { return r.Rename("docs/keep", "g") },
			"remove":  func() error { return r.Remove("docs/keep") },
			"chmod":   func() error { return r.Chmod("docs/keep", 0o777) },
			"sync":    func() error { return r.SyncDir("docs") },
			"readlink": func() error {
				_, err := r.Readlink("docs/keep")
				return err
			},
		} {
			if err := call(); !errors.Is(err, ErrLink) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if got, _ := os.ReadDir(hooks); len(got) != 1 {
			t.Errorf("hooks: %v", got)
		}
	})
}

func TestRootIsRecognised(t *testing.T) {
	dir := t.TempDir()
	ws := filepath.Join(dir, "ws")
	must(t, os.Mkdir(ws, 0o755))
	r, err := OpenRoot(ws)
	must(t, err)
	defer r.Close()
	must(t, r.Check(ws))
	must(t, os.Rename(ws, ws+".moved"))
	if err := r.Check(ws); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("vanished: %v", err)
	}
	must(t, os.Symlink(ws+".moved", ws))
	if err := r.Check(ws); !errors.Is(err, ErrRootReplaced) {
		t.Errorf("replaced by a link to itself: %v", err)
	}
	for _, p := range []string{ws, ws + "/"} {
		if _, err := OpenRoot(p); !errors.Is(err, ErrLink) {
			t.Errorf("OpenRoot(%q), a link: %v", p, err)
		}
	}
	must(t, os.Remove(ws))
	must(t, os.Mkdir(ws, 0o755))
	if err := r.Check(ws); !errors.Is(err, ErrRootReplaced) {
		t.Errorf("another directory: %v", err)
	}
	write(t, dir+"/file", "")
	if _, err := OpenRoot(dir + "/file"); !errors.Is(err, ErrNotDir) {
		t.Errorf("OpenRoot of a file: %v", err)
	}
}

func paths(t *testing.T, r *Root) []string {
	t.Helper()
	var got []string
	must(t, r.Walk(context.Background(), func(p string, _ Info, err error) error {
		got = append(got, p)
		return err
	}))
	return got
}

func TestWalkIsInPathByteOrder(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		for _, p := range []string{"a/x/1", "a-b/1", "a.b/c", "a0/1", "a!/z/q", "a!b", "b\xff/1", "a/x.y", "z\n/1", "a-b-c/d-e/f", "a-b-c/d/f"} {
			write(t, dir+"/"+p, p)
		}
		got := paths(t, r)
		if !slices.IsSorted(got) || len(got) != 23 {
			t.Errorf("%d paths: %q", len(got), got)
		}
	})
}

func deep(t *testing.T, dir string, depth int) {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_RDONLY, 0)
	must(t, err)
	for range depth {
		must(t, unix.Mkdirat(fd, "dd", 0o755))
		next, err := unix.Openat(fd, "dd", unix.O_DIRECTORY|unix.O_RDONLY, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
}

func openFDs(t *testing.T) int {
	t.Helper()
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	return len(es)
}

func TestDeepTrees(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		depth := 10_000
		if r.byElement {
			depth = 2_500
		}
		deep(t, dir, depth)
		before, most, n := openFDs(t), 0, 0
		must(t, r.Walk(context.Background(), func(_ string, _ Info, err error) error {
			if n++; n%500 == 0 {
				most = max(most, openFDs(t))
			}
			return err
		}))
		if n != depth {
			t.Errorf("%d paths, want %d", n, depth)
		}
		if most > before+maxOpenDirs+8 {
			t.Errorf("%d open files during the walk, %d before", most, before)
		}
		long := strings.Repeat("dd/", 2_200) + "f"
		f, err := r.Create(long, 0o600)
		must(t, err)
		f.Close()
		refused, err := r.RemoveAll(context.Background(), "dd")
		if err != nil || len(refused) > 0 {
			t.Errorf("%v, %v", refused, err)
		}
		if left := paths(t, r); len(left) > 0 {
			t.Errorf("left: %d", len(left))
		}
	})
}

func TestCopyAndHash(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		for name, size := range map[string]int{"empty": 0, "small": 10, "block": 256 << 10, "large": 1<<20 + 7} {
			write(t, dir+"/"+name, strings.Repeat("x", size))
		}
		hole, err := os.Create(dir + "/hole")
		must(t, err)
		must(t, hole.Truncate(3<<20+5))
		_, err = hole.WriteAt([]byte("middle"), 1<<20)
		must(t, err)
		hole.Close()
		must(t, os.Mkdir(dir+"/to", 0o755))
		must(t, os.Chmod(dir+"/small", 0o711))
		c := NewCopier()
		for _, name := range []string{"empty", "small", "block", "large", "hole"} {
			want, err := os.ReadFile(dir + "/" + name)
			must(t, err)
			got, err := c.Copy(r, name, r, "to/"+name, nil, name == "small")
			must(t, err)
			b, err := os.ReadFile(dir + "/to/" + name)
			must(t, err)
			if !bytes.Equal(b, want) || got.Sum != Sum(sha256.Sum256(want)) || got.Size != int64(len(want)) || got.Now.Mode != got.From.Mode {
				t.Errorf("%s: %d bytes, %+v", name, len(b), got)
			}
			if h, err := c.Hash(r, name); err != nil || h.Sum != got.Sum {
				t.Errorf("%s: hash %v, %v", name, h.Sum, err)
			}
		}
		if _, err := c.Copy(r, "small", r, "to/large", nil, false); !errors.Is(err, fs.ErrExist) {
			t.Errorf("over a file: %v", err)
		}
		if i, err := r.Lstat("to/large"); err != nil || i.Size != 1<<20+7 {
			t.Errorf("a file that was there: %+v, %v", i, err)
		}
		must(t, os.Symlink("small", dir+"/link"))
		if _, err := c.Copy(r, "link", r, "to/link", nil, false); !errors.Is(err, ErrLink) {
			t.Errorf("a link: %v", err)
		}
		if _, _, err := r.ReadFile("large", 1<<20); err == nil {
			t.Error("a file past the limit was read")
		}
	})
}

func TestRemoveAllSparesWhatLinksLeadTo(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		outside := t.TempDir()
		write(t, outside+"/keep/f", "k")
		write(t, dir+"/d/x/f", "x")
		must(t, os.Symlink(outside+"/keep", dir+"/d/link"))
		must(t, os.Symlink(outside+"/keep", dir+"/top"))
		must(t, unix.Mkfifo(dir+"/d/fifo\n\xfe", 0o600))
		for _, p := range []string{"d", "top", "none", "none/none"} {
			if refused, err := r.RemoveAll(context.Background(), p); err != nil || len(refused) > 0 {
				t.Errorf("%s: %v, %v", p, refused, err)
			}
		}
		if _, err := os.Stat(outside + "/keep/f"); err != nil {
			t.Error(err)
		}
		write(t, dir+"/a/b", "")
		must(t, os.Symlink("a", dir+"/l"))
		if _, err := r.RemoveAll(context.Background(), "l/b"); !errors.Is(err, ErrLink) {
			t.Errorf("through a link: %v", err)
		}
		if refused, err := r.RemoveAll(context.Background(), "."); err != nil || len(refused) > 0 {
			t.Errorf(".: %v, %v", refused, err)
		}
		if left := paths(t, r); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func TestMountsAreNeitherEnteredNorEmptied(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	both(t, func(t *testing.T, dir string, r *Root) {
		outside := t.TempDir() // on the same device: only the mount tells them apart
		write(t, outside+"/precious", "p")
		must(t, os.MkdirAll(dir+"/d/bind", 0o755))
		must(t, os.MkdirAll(dir+"/d/tmpfs", 0o755))
		write(t, dir+"/d/file", "below the mount")
		write(t, dir+"/d/other", "o")
		mount := func(source, target, kind string, flags uintptr) {
			if err := unix.Mount(source, target, kind, flags, ""); err != nil {
				t.Skipf("cannot mount here: %v", err)
			}
			t.Cleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
		}
		mount(outside, dir+"/d/bind", "", unix.MS_BIND)
		mount("none", dir+"/d/tmpfs", "tmpfs", 0)
		mount(outside+"/precious", dir+"/d/file", "", unix.MS_BIND)
		write(t, dir+"/d/tmpfs/in", "t")

		if i, err := r.Lstat("d/bind"); err != nil || !i.Mount {
			t.Errorf("Lstat: %+v, %v", i, err)
		}
		for _, p := range []string{"d/bind/precious", "d/tmpfs/in", "d/file"} {
			if _, _, err := r.Open(p); !errors.Is(err, ErrMount) {
				t.Errorf("Open(%s): %v", p, err)
			}
		}
		if err := r.Chmod("d/file", 0o777); !errors.Is(err, ErrMount) {
			t.Errorf("Chmod: %v", err)
		}
		if got := paths(t, r); !slices.Equal(got, []string{"d", "d/bind", "d/file", "d/other", "d/tmpfs"}) {
			t.Errorf("walk: %q", got)
		}
		refused, err := r.RemoveAll(context.Background(), "d")
		must(t, err)
		var names []string
		for _, x := range refused {
			names = append(names, x.Path)
			if !strings.Contains(x.Why, "mounted") {
				t.Errorf("%+v", x)
			}
		}
		if !slices.Equal(names, []string{"d/bind", "d/file", "d/tmpfs"}) {
			t.Errorf("refused: %v", refused)
		}
		if b, err := os.ReadFile(outside + "/precious"); err != nil || string(b) != "p" {
			t.Errorf("the mounted directory was emptied: %q, %v", b, err)
		}
	})
}

// TestLinksSwappedInAreNeverFollowed lets an attacker exchange a directory and a link to the outside as fast as it can.
func TestLinksSwappedInAreNeverFollowed(t *testing.T) {
	both(t, func(t *testing.T, dir string, r *Root) {
		outside := t.TempDir()
		write(t, outside+"/f", "secret")
		write(t, dir+"/d/f", "public")
		must(t, os.Symlink(outside, dir+"/l"))
		if err := r.Exchange("d", "l"); errors.Is(err, ErrNotSupported) {
			t.Skip("no exchange on this file system")
		}
		var stop atomic.Bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			for !stop.Load() {
				_ = unix.Renameat2(unix.AT_FDCWD, dir+"/d", unix.AT_FDCWD, dir+"/l", unix.RENAME_EXCHANGE)
			}
		}()
		opened, refused := 0, 0
		for end := time.Now().Add(20 * time.Second); (opened < 300 || refused < 300) && time.Now().Before(end); {
			f, _, err := r.Open("d/f")
			if err != nil {
				refused++
			} else {
				b := make([]byte, 16)
				n, _ := f.Read(b)
				if !bytes.Equal(b[:n], []byte("public")) {
					t.Errorf("read %q", b[:n])
				}
				f.Close()
				opened++
			}
			if _, err := r.Create("d/x", 0o600); err == nil {
				_ = r.Remove("d/x")
			}
			_ = r.Walk(context.Background(), func(p string, i Info, err error) error {
				if strings.HasSuffix(p, "/f") && err == nil && i.Size != int64(len("public")) {
					t.Errorf("the walk saw the outside: %s %+v", p, i)
				}
				return nil
			})
			if t.Failed() {
				break
			}
		}
		_, _ = r.RemoveAll(context.Background(), "d")
		stop.Store(true)
		<-done
		if got, _ := os.ReadDir(outside); len(got) != 1 {
			t.Errorf("outside: %v", got)
		}
		if opened == 0 || refused == 0 {
			t.Logf("the race was one-sided: %d opened, %d refused", opened, refused)
		}
	})
}

// asNobody runs one test of this binary as a user that is not root.
func asNobody(t *testing.T, name string) {
	t.Helper()
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("setpriv is needed to become another user")
	}
	dir, err := os.MkdirTemp("", "nobody")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755))
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(dir+"/test", self, 0o755)) //nolint:gosec // another user runs it
	must(t, os.Mkdir(dir+"/tmp", 0o777))
	must(t, os.Chmod(dir+"/tmp", 0o777)) //nolint:gosec // another user writes it
	cmd := exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", dir+"/test", "-test.run", "^"+name+"$", "-test.v")
	cmd.Env = []string{"AS_NOBODY=1", "TMPDIR=" + dir + "/tmp", "HOME=" + dir + "/tmp"}
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: "+name)) {
		t.Errorf("as user 65534: %v\n%s", err, out)
	}
}

func TestOwnersAndModes(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t, "TestOwnersAndModes")
		return
	}
	both(t, func(t *testing.T, dir string, r *Root) {
		write(t, dir+"/d/none/f", "x")
		write(t, dir+"/d/noread/f", "x")
		write(t, dir+"/d/nosearch/f", "x")
		write(t, dir+"/d/nowrite/f", "x")
		write(t, dir+"/d/secret", "x")
		must(t, os.Chmod(dir+"/d/secret", 0))
		for name, mode := range map[string]os.FileMode{"none": 0, "noread": 0o300, "nosearch": 0o600, "nowrite": 0o500} {
			must(t, os.Chmod(dir+"/d/"+name, mode))
		}
		if _, _, err := r.Open("d/secret"); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("Open: %v", err)
		}
		told := map[string]bool{}
		must(t, r.Walk(context.Background(), func(p string, _ Info, err error) error {
			if err != nil {
				told[p] = errors.Is(err, fs.ErrPermission)
			}
			return nil
		}))
		if !told["d/none"] || !told["d/noread"] || !told["d/nosearch/f"] || len(told) != 3 {
			t.Errorf("unreadable: %v", told)
		}
		must(t, os.Chmod(dir+"/d", 0o000))
		refused, err := r.RemoveAll(context.Background(), "d")
		if err != nil || len(refused) > 0 {
			t.Errorf("%v, %v", refused, err)
		}
		if left := paths(t, r); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	})
}

func TestWhatBelongsToOthersIsNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		if dir := os.Getenv("FOREIGN_DIR"); dir != "" {
			r, err := OpenRoot(dir)
			must(t, err)
			refused, err := r.RemoveAll(context.Background(), "ws")
			must(t, err)
			if len(refused) != 1 || refused[0].Path != "ws/made-by-root/f" || !strings.Contains(refused[0].Why, "user 0") {
				t.Errorf("%+v", refused)
			}
		}
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("setpriv is needed to become another user")
	}
	dir, err := os.MkdirTemp("", "foreign")
	must(t, err)
	defer os.RemoveAll(dir)
	write(t, dir+"/ws/made-by-root/f", "x")
	write(t, dir+"/ws/own", "x")
	for _, p := range []string{dir, dir + "/ws", dir + "/ws/own"} {
		must(t, os.Chown(p, 65534, 65534))
	}
	self, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(dir+"/test", self, 0o755)) //nolint:gosec // another user runs it
	cmd := exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", dir+"/test", "-test.run", "^TestWhatBelongsToOthersIsNamed$", "-test.v")
	cmd.Env = []string{"FOREIGN_DIR=" + dir}
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("as user 65534: %v\n%s", err, out)
	}
	if _, err := os.Stat(dir + "/ws/own"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("what was ours is still there")
	}
}

func TestLchownFollowsNoLink(t *testing.T) {
	testkit.Need(t, "root", os.Getuid() == 0, "only root may give files away")
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "target"), nil, 0o600))
	must(t, os.Symlink("target", filepath.Join(dir, "link")))
	must(t, os.Mkdir(filepath.Join(dir, "d"), 0o700))
	must(t, os.Symlink("d", filepath.Join(dir, "through")))
	must(t, os.WriteFile(filepath.Join(dir, "d", "inner"), nil, 0o600))
	r, err := OpenRoot(dir)
	must(t, err)
	defer r.Close()
	must(t, r.Lchown("link", 65534, 65533))
	must(t, r.Lchown("d", 65534, 65533))
	if err := r.Lchown("through/inner", 65534, 65533); !errors.Is(err, ErrLink) {
		t.Errorf("through a link: %v", err)
	}
	owner := func(name string) [2]uint32 {
		info, err := os.Lstat(filepath.Join(dir, name))
		must(t, err)
		st := info.Sys().(*syscall.Stat_t)
		return [2]uint32{st.Uid, st.Gid}
	}
	for name, want := range map[string][2]uint32{"link": {65534, 65533}, "d": {65534, 65533}, "target": {0, 0}, "d/inner": {0, 0}} {
		if got := owner(name); got != want {
			t.Errorf("%s belongs to %v, want %v", name, got, want)
		}
	}
	must(t, r.Lchown(".", 65534, 65533))
	if got := owner("."); got != [2]uint32{65534, 65533} {
		t.Errorf("the root belongs to %v", got)
	}
}
