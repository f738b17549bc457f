package store_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/store"
)

// unprivileged runs the calling test again as nobody when this process is root: modes and owners mean nothing to root.
// It returns true in the process that should do the work.
func unprivileged(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() != 0 {
		return true
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("SKIPPED: this test needs setpriv (util-linux) to run as another user than root")
	}
	dir, err := os.MkdirTemp("", "store-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	bin := filepath.Join(dir, "store.test")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o777), os.WriteFile(bin, b, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", bin, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = dir
	cmd.Env = []string{"TMPDIR=" + dir, "HOME=" + dir, "PATH=" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("as nobody: %v\n%s", err, out)
	}
	return false
}

func use(dir string) error {
	h, err := store.OpenHome(dir, true)
	if err != nil {
		return err
	}
	return store.Open(h, time.Now, "test").Update(context.Background(), func(tx store.Tx) error {
		return tx.Put(store.Runs, "r", counter{1})
	})
}

func TestHomesThatAreRefused(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	tests := map[string]struct {
		prepare func(dir string) error
		says    string
	}{
		"writable by all":       {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o777)) }, "can be written by others (mode 0777)"},
		"writable by the group": {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o770)) }, "can be written by others (mode 0770)"},
		"a file":                {func(d string) error { return os.WriteFile(d, nil, 0o600) }, "a file is in the way"},
		"below a file":          {func(d string) error { return os.WriteFile(filepath.Dir(d)+"/x", nil, 0o600) }, ""},
		"not writable":          {func(d string) error { return os.Mkdir(d, 0o500) }, "permission denied"},
		"not accessible":        {func(d string) error { return os.Mkdir(d, 0) }, "permission denied"},
		"another user's":        {func(d string) error { return os.Symlink("/etc", d) }, "belongs to user 0"},
		"a dangling link":       {func(d string) error { return os.Symlink("/nowhere/at/all", d) }, "cannot be used"},
		"runs writable by all":  {func(d string) error { return errors.Join(os.MkdirAll(d+"/runs", 0o700), os.Chmod(d+"/runs", 0o777)) }, "runs can be written by others"},
		"locks a link": {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Symlink("/tmp", d+"/locks")) },
			"locks is not a directory but a symbolic link: move it away"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			if err := tt.prepare(dir); err != nil {
				t.Fatal(err)
			}
			if name == "below a file" {
				dir = filepath.Dir(dir) + "/x/home"
			}
			wantKind(t, use(dir), failure.HomeInvalid, tt.says)
		})
	}
	wantKind(t, use(""), failure.HomeInvalid, "neither HOME nor LAUFWERK_HOME")
}

func TestFilesOfTheStoreThatAreRefused(t *testing.T) {
	t.Parallel()
	if !unprivileged(t) {
		return
	}
	tests := map[string]struct {
		file string
		mode os.FileMode
		says string
	}{
		"store unreadable":      {"state.db", 0, "permission denied"},
		"store not writable":    {"state.db", 0o400, "permission denied"},
		"store open to all":     {"state.db", 0o666, "can be written by others (mode 0666)"},
		"gate unreadable":       {"locks/state", 0, "permission denied"},
		"owner file unreadable": {"owner", 0, "permission denied"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "home")
			if err := use(dir); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(dir, tt.file), tt.mode); err != nil {
				t.Fatal(err)
			}
			h, err := store.OpenHome(dir, true)
			if err != nil {
				t.Fatal(err)
			}
			err = store.Open(h, time.Now, "test").Update(context.Background(), func(tx store.Tx) error { return tx.Put(store.Runs, "r", counter{2}) })
			wantKind(t, err, failure.HomeInvalid, tt.says, tt.file)
		})
	}
}

func TestReadableHomeIsClosedByWritersOnly(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		create bool
		want   os.FileMode
	}{{false, 0o755}, {true, 0o700}} {
		if _, err := store.OpenHome(dir, step.create); err != nil {
			t.Fatal(err)
		}
		st, err := os.Stat(dir)
		if err != nil || st.Mode().Perm() != step.want {
			t.Errorf("create %v: mode %v, %v", step.create, st.Mode(), err)
		}
		if entries, _ := os.ReadDir(dir); !step.create && len(entries) > 0 {
			t.Errorf("a look made %v", entries)
		}
	}
}

func TestLinkedHomeIsOneHome(t *testing.T) {
	t.Parallel()
	real := t.TempDir()
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	h, err := store.OpenHome(link, true)
	if err != nil {
		t.Fatal(err)
	}
	if want, _ := filepath.EvalSymlinks(real); h.Dir() != want {
		t.Fatalf("%s, want %s", h.Dir(), want)
	}
}

func TestPathsStayInside(t *testing.T) {
	t.Parallel()
	h, err := store.OpenHome(t.TempDir(), true)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, id := range []string{"r1", "", ".", "..", "../x", "/etc", "a/b", "a%2Fb", "a\x00b", "%"} {
		for _, p := range []string{h.RunDir(id), h.WorkspaceDir(id), h.LockFile(id)} {
			if dir := filepath.Dir(filepath.Dir(p)); dir != h.Dir() || filepath.Clean(p) != p {
				t.Errorf("%q leads to %s", id, p)
			}
			if other, ok := seen[p]; ok {
				t.Errorf("%q and %q are both %s", id, other, p)
			}
			seen[p] = id
		}
	}
}

// A full disk fails clearly, and what was there before is there after.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if os.Geteuid() != 0 {
		t.Skip("SKIPPED: only root can mount a small tmpfs")
	}
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "tmpfs", dir).CombinedOutput(); err != nil {
		t.Skipf("SKIPPED: no tmpfs can be mounted here: %s", out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %s", out)
		}
	})
	fill := func() {
		t.Helper()
		f, err := os.Create(filepath.Join(dir, "filler"))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for n := 1 << 20; n >= 1; {
			if _, err := f.Write(make([]byte, n)); err != nil {
				n /= 2
			}
		}
	}
	empty := func() { // the space comes back only when no process has the file open: another test may be starting one
		t.Helper()
		if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
			t.Fatal(err)
		}
		probe := filepath.Join(dir, "probe")
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			err := os.WriteFile(probe, make([]byte, 1<<20), 0o600)
			if os.Remove(probe) == nil && err == nil {
				return
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
	}
	home := filepath.Join(dir, "home")

	fill()
	wantKind(t, use(home), failure.HomeInvalid, "is full")
	empty()
	s := open(t, home)
	update(t, s, func(tx store.Tx) error { return tx.Put(store.Notes, "counter", counter{0}) })
	fill()
	var failed error
	done := 0
	for i := 0; i < 500 && failed == nil; i++ {
		failed = s.Update(context.Background(), func(tx store.Tx) error {
			return tx.Put(store.Claims, fmt.Sprint(i), map[string]string{"pad": strings.Repeat("x", 20_000)})
		})
		if failed == nil {
			done++
		}
	}
	wantKind(t, failed, failure.HomeInvalid, "is full")
	empty()
	for i := range done {
		update(t, s, func(tx store.Tx) error {
			if ok, err := tx.Get(store.Claims, fmt.Sprint(i), new(map[string]string)); err != nil || !ok {
				t.Errorf("record %d is gone: %v", i, err)
			}
			return nil
		})
	}
	update(t, s, func(tx store.Tx) error { return tx.Put(store.Notes, "counter", counter{1}) })
}
