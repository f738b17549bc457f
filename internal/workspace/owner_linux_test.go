package workspace

import (
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

const somebody = 65534

func needRoot(t *testing.T) {
	t.Helper()
	testkit.Need(t, "root", os.Geteuid() == 0, "files are given to another user")
}

// kinds is a source with everything whose owner or mode a copy could get wrong.
func kinds(t *testing.T) string {
	t.Helper()
	src := t.TempDir()
	write(t, src+"/f", "x")
	write(t, src+"/d/e/deep", strings.Repeat("deep", 100))
	write(t, src+"/setuid", "x")
	write(t, src+"/closed", "x")
	write(t, src+"/shut/f", "x")
	must(t, os.Symlink("/nowhere", src+"/link"))
	must(t, os.Symlink("f", src+"/d/link"))
	must(t, os.Mkdir(src+"/empty", 0o755))
	for path, mode := range map[string]uint32{"/setuid": 0o6755, "/closed": 0, "/d": 0o3775, "/shut": 0o500} {
		must(t, syscall.Chmod(src+path, mode))
	}
	t.Cleanup(func() { _ = os.Chmod(src+"/shut", 0o700) })
	return src
}

// owners names the paths in dir, and dir itself, that do not belong to uid and its group.
func owners(t *testing.T, dir string, uid uint32) (others []string) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || st.Uid != uid || st.Gid != uid {
			others = append(others, path)
		}
		return nil
	}))
	return others
}

// A worker that is root works for a sandbox that is not: what the sandbox gets is the sandbox's, and the worker's is not.
func TestACopyForAnotherUser(t *testing.T) {
	needRoot(t)
	ctx, src, home := t.Context(), kinds(t), t.TempDir()
	r := NewResources(home, Bounds{}, time.Now, nil)
	ws := home + "/workspaces/w1"
	given := func(o *Owner) resource.Intent {
		in := intent(ws, src, ModeCopy)
		var err error
		in.Spec, err = json.Marshal(Spec{Dir: ws, Source: src, Mode: ModeCopy, Owner: o})
		must(t, err)
		return in
	}
	// What a kill left half-way was the other user's already.
	write(t, ws+"/identity", `{"claim":"c1","owner":"o1","name":"w1"}`)
	write(t, ws+"/tree/half/f", "h")
	for _, path := range []string{"/tree/half/f", "/tree/half", "/tree"} {
		must(t, os.Lchown(ws+path, somebody, somebody))
		must(t, os.Chmod(ws+path, 0))
	}
	in := given(&Owner{UID: somebody, GID: somebody})
	if res := r.Create(ctx, in); res.Outcome != resource.Done || res.Err != nil {
		t.Fatalf("%+v", res)
	}
	if others := owners(t, ws+"/tree", somebody); len(others) > 0 {
		t.Errorf("not given away: %q", others)
	}
	if mine, all := owners(t, ws, somebody), []string{ws, ws + "/base", ws + "/identity", ws + "/opened"}; !slices.Equal(mine, all) {
		t.Errorf("the worker's are %q, want %q", mine, all)
	}
	if got, want := listing(t, ws+"/tree"), listing(t, src); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}

	o, err := LoadOpenRecord(ws)
	must(t, err)
	if now, _ := scanned(t, ws+"/tree", o); len(Compare(o.Base, now)) > 0 {
		t.Errorf("it differs from the start: %+v", Compare(o.Base, now))
	}
	// The directory above is the worker's: a sandbox has the tree mounted, and here it is entered before the user changes.
	run(t, ws+"/tree", "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "bash", "-ec",
		`echo more >> f; rm -r d/e; mkdir new; echo x > new/f; chmod 0 new/f; chmod 0 new; ln -sf /etc/passwd link`)
	f, err := FreezeDirectory(ctx, ws, t.TempDir(), time.Now)
	must(t, err)
	var got []string
	for _, c := range f.Changes {
		got = append(got, string(c.Kind)+" "+c.Path)
	}
	if want := []string{"deleted d/e", "deleted d/e/deep", "modified f", "link link", "added new", "added new/f"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if res := r.Delete(ctx, in); res.Outcome != resource.Done || res.Err != nil {
		t.Errorf("%+v", res)
	}
	if left, err := os.ReadDir(home + "/workspaces"); err != nil || len(left) > 0 {
		t.Errorf("left: %v %v", left, err)
	}
}

// The user for whom the copy is has a repository that is its own, and whose index takes the files for unchanged.
func TestARepositoryForAnotherUser(t *testing.T) {
	needRoot(t)
	src := kinds(t)
	must(t, os.Chmod(src+"/closed", 0o600))             // git reads it
	for _, link := range []string{"/link", "/d/link"} { // whose contents are always looked at again
		must(t, os.Remove(src+link))
	}
	gitInit(t, src)
	run(t, src, "git", "add", ".")
	run(t, src, "git", "commit", "-qm", "m")
	time.Sleep(20 * time.Millisecond) // past the tick of the index, so that the files count as clean
	run(t, src, "git", "update-index", "-q", "--really-refresh")
	dir, err := os.MkdirTemp("", "owner") // one that another user may enter
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o755)) //nolint:gosec // that is the point
	o, err := Copy(t.Context(), CopyRequest{Source: src, Dest: dir + "/tree", Owner: &Owner{UID: somebody, GID: somebody}})
	must(t, err)
	if !o.Rules.Repository {
		t.Fatalf("no repository: %s", o.NoRepository)
	}
	if others := owners(t, dir+"/tree", somebody); len(others) > 0 {
		t.Errorf("not given away: %q", others)
	}
	as := exec.Command("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "git", "diff-files", "--name-only")
	as.Dir, as.Env = dir+"/tree", []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent"}
	if out, err := as.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("changed for git: %q, %v", out, err)
	}
}

// Who is not root can have a copy that is its own, and no other.
func TestACopyForOneself(t *testing.T) {
	if asNobody(t) {
		return
	}
	src := kinds(t)
	must(t, os.Chmod(src+"/closed", 0o600))
	self := &Owner{UID: os.Getuid(), GID: os.Getgid()}
	var all [][]string
	for _, o := range []*Owner{nil, self} {
		dest := filepath.Join(t.TempDir(), "tree")
		t.Cleanup(func() { _ = os.Chmod(dest+"/shut", 0o700) })
		if _, err := Copy(t.Context(), CopyRequest{Source: src, Dest: dest, Owner: o}); err != nil {
			t.Fatal(err)
		}
		all = append(all, listing(t, dest))
	}
	if !slices.Equal(all[0], all[1]) {
		t.Errorf("%q\n%q", all[0], all[1])
	}
	dest := filepath.Join(t.TempDir(), "tree")
	_, err := Copy(t.Context(), CopyRequest{Source: src, Dest: dest, Owner: &Owner{UID: 1, GID: 1}})
	if _, there := os.Lstat(dest); err == nil || there == nil || failure.As(err) == nil {
		t.Errorf("given to somebody else: %v, left: %t", err, there == nil)
	}
}
