// Package upgrade_test holds what a newer laufwerk does with the homes, processes and sandboxes of an older one. The older one is
// built from a commit before the names of the code changed, so that a renamed field of a stored record is seen.
//
// Whoever adds a state that a run, claim, image or setting can be in adds it to one of the tables here. The older commit stays.
package upgrade_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/laufwerk/laufwerk/e2e"
)

// The commit that the older laufwerk is built from, and its tags: those of the Makefile, and crash points, which nothing reaches
// unless a variable says so.
const (
	olderCommit  = "357a6ff5e0c3c6815e8dfe2b2028d09c4efd1e81"
	olderVersion = "v0.1.0"
	olderTags    = "grpcnotrace,crashpoints"
)

// newerVersion is what the newer one says that it is.
const newerVersion = "v0.2.0"

// programs are both binaries, built once for all tests of this process.
type programs struct{ older, newer string }

var build = sync.OnceValues(func() (programs, error) { //nolint:gochecknoglobals // as e2e.StaticBinary
	root, err := filepath.Abs(e2e.RepositoryRoot)
	if err != nil {
		return programs{}, err
	}
	p := programs{older: filepath.Join(root, ".tools", "older", olderCommit, "laufwerk"), newer: filepath.Join(root, ".tools", "test", "laufwerk-newer")}
	for _, f := range []string{p.older, p.newer} {
		if err := os.MkdirAll(filepath.Dir(f), 0o755); err != nil { //nolint:gosec // other users run it
			return p, err
		}
	}
	lock, err := os.OpenFile(p.older+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return p, err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return p, err
	}
	if _, err := os.Stat(p.older); err != nil {
		if err := buildOlder(root, p.older); err != nil {
			return p, err
		}
	}
	return p, compile(root, p.newer, newerVersion, "grpcnotrace,crashpoints")
})

// buildOlder builds the older laufwerk from a copy of its commit.
func buildOlder(root, path string) error {
	archive := exec.Command("git", "archive", "--format=tar", olderCommit)
	archive.Dir = root
	if exec.Command("git", "-C", root, "cat-file", "-e", olderCommit+"^{commit}").Run() != nil {
		return fmt.Errorf("this checkout does not have the commit %s, from which the older laufwerk is built; it is shallow, or no clone: git fetch origin %s", olderCommit, olderCommit)
	}
	copied, err := os.MkdirTemp("", "laufwerk-older-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(copied)
	extract := exec.Command("tar", "-x", "-C", copied)
	var said strings.Builder
	archive.Stderr, extract.Stderr = &said, &said
	if extract.Stdin, err = archive.StdoutPipe(); err != nil {
		return err
	}
	if err := extract.Start(); err != nil {
		return err
	}
	err = archive.Run()
	if waited := extract.Wait(); err == nil {
		err = waited
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w\n%s", olderCommit, err, said.String())
	}
	if err := compile(copied, path+".new", olderVersion, olderTags); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// compile builds laufwerk with the version of a release, which its journals name.
func compile(source, path, version, tags string) error {
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-tags", tags,
		"-ldflags", "-X github.com/laufwerk/laufwerk/internal/build.release="+version, "-o", path, "./cmd/laufwerk")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build laufwerk %s: %w\n%s", version, err, out)
	}
	return nil
}

// upgraded is a machine on which the older laufwerk is installed, and later the newer one in its place.
type upgraded struct {
	*e2e.Machine
	programs
	asked [][]string // commands that are asked for their documents, beside those of every machine
}

// installOlder puts the older laufwerk on a machine, as package managers do it: by a rename over a file that may be executed.
func installOlder(m *e2e.Machine) *upgraded {
	m.T.Helper()
	p, err := build()
	if err != nil {
		m.T.Fatal(err)
	}
	u := &upgraded{Machine: m, programs: p}
	u.Program = filepath.Join(m.Dir, "laufwerk")
	u.install(p.older)
	return u
}

func (u *upgraded) install(from string) {
	u.T.Helper()
	next := u.Program + ".new"
	if os.Link(from, next) != nil {
		if err := copyFile(from, next); err != nil {
			u.T.Fatal(err)
		}
	}
	if err := os.Rename(next, u.Program); err != nil {
		u.T.Fatal(err)
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o755) //nolint:gosec // other users run it
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}

// upgrade puts the newer one in the older one's place, after both have said the same of what is there.
func (u *upgraded) upgrade() {
	u.T.Helper()
	older := u.documents()
	u.install(u.newer)
	u.checkKept(older, u.documents())
	if said := u.MustRun([]int{0}, "version"); !strings.Contains(said, newerVersion) {
		u.T.Fatalf("it is still %s", said)
	}
}
