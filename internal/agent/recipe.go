package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// The names of a recipe's files.
const (
	packageFile  = "package.json"
	npmLockFile  = "package-lock.json"
	pnpmLockFile = "pnpm-lock.yaml"
)

// Recipe is what a program is installed from: exact versions and checksums, and no registry to get them from, which is the
// user's configuration. This machine and images install from the same files. What is installed is a native executable among
// node_modules: to run it needs no Node.js.
type Recipe struct {
	Version  string // that laufwerk is made for, and the one in the lockfiles
	Package  []byte // package.json
	NPMLock  []byte // package-lock.json
	PNPMLock []byte // pnpm-lock.yaml
	Space    uint64 // bytes that installing needs on the disk: the tree, and its archive on the way
	// Binary is the path of the native executable below the installed tree, with slashes, "" for a platform that has none. A
	// platform is GOOS/GOARCH: "linux/amd64".
	Binary func(platform string) string
	// Prints is what the executable prints for --version, with %s in place of the version: "codex-cli %s".
	Prints string
	// HomeVariable names the variable that leads the program to its private home: "CODEX_HOME".
	HomeVariable string
}

// RecipeFile is one file of a recipe.
type RecipeFile struct {
	Name    string
	Content []byte
}

// Files are all files of the recipe: each package manager has its lockfile.
func (r *Recipe) Files() []RecipeFile {
	return []RecipeFile{{packageFile, r.Package}, {npmLockFile, r.NPMLock}, {pnpmLockFile, r.PNPMLock}}
}

// PNPMFiles are those that pnpm needs.
func (r *Recipe) PNPMFiles() []RecipeFile {
	return []RecipeFile{{packageFile, r.Package}, {pnpmLockFile, r.PNPMLock}}
}

// Digest is that of all files: "sha256:…".
func (r *Recipe) Digest() string {
	sum := sha256.New()
	for _, f := range r.Files() {
		sum.Write([]byte(f.Name + "\x00"))
		sum.Write(f.Content)
		sum.Write([]byte{0})
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// ExpectedVersion is what the executable of the recipe's version prints for --version.
func (r *Recipe) ExpectedVersion() string { return fmt.Sprintf(r.Prints, r.Version) }

// VersionIn is the version in what an executable printed for --version; "" where it is not the program's.
func (r *Recipe) VersionIn(printed string) string {
	before, after, _ := strings.Cut(r.Prints, "%s")
	version, begins := strings.CutPrefix(strings.TrimRight(printed, "\t\n\f\r "), before)
	version, ends := strings.CutSuffix(version, after)
	if !begins || !ends || !versionForm.MatchString(version) {
		return ""
	}
	return version
}

var versionForm = lazyregexp.Regexp{Pattern: `^\d+\.\d+\.\d+\S*$`}

// PNPMInstall are the arguments with which pnpm installs a recipe: no script of a package runs, and the lockfile's checksums
// are checked. Files are copied: linked ones could be changed through pnpm's store.
func PNPMInstall() []string {
	return []string{
		"install", "--frozen-lockfile", "--ignore-scripts", "--ignore-workspace", "--prod", "--reporter=append-only",
		"--config.node-linker=hoisted", "--config.package-import-method=copy", "--config.manage-package-manager-versions=false",
	}
}

// Receipt is the record that a program was installed for local targets.
type Receipt struct {
	Format  string    `json:"format"` // major.minor
	Program string    `json:"program"`
	Version string    `json:"version"`
	Path    string    `json:"path"`   // of the native executable, absolute
	Recipe  string    `json:"recipe"` // digest of what it was made from
	At      time.Time `json:"at"`
}

// ReceiptFormat is the format that is written.
const ReceiptFormat = "1.0"

// Folder is where a program is prepared below $LAUFWERK_HOME.
func Folder(home, program string) string { return filepath.Join(home, "harness", program) }

// ReceiptPath is the receipt of a program.
func ReceiptPath(home, program string) string {
	return filepath.Join(Folder(home, program), "receipt.json")
}

// OwnBinary is the recipe of a receipt whose program is an executable that the user brought.
const OwnBinary = "own"

// ReadInstalled is the receipt of a program with a recipe that is there, as its recipe has it or as the user brought it. Otherwise it is a failure
// of kind NotReady; install is the command to type.
func ReadInstalled(home string, p Program, install string) (Receipt, error) {
	r, err := readReceipt(home, p.Name())
	if recipe := p.Recipe(); err == nil && r.Recipe != OwnBinary && r.Recipe != recipe.Digest() {
		err = failure.New(failure.NotReady, "%s %s was prepared by another version of laufwerk; this one needs %s", p.Title(), r.Version, recipe.Version)
	}
	if f := failure.As(err); f != nil {
		f.WithHint("%s", install)
	}
	return r, err
}

func readReceipt(home, program string) (Receipt, error) {
	path := ReceiptPath(home, program)
	var r Receipt
	err := files.ReadJSON(path, &r)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return r, failure.New(failure.NotReady, "%s is not prepared for local targets", program)
	case err != nil:
		return r, failure.New(failure.NotReady, "the receipt of %s cannot be read: %v", program, err).WithPaths(path)
	case r.Program != program || !filepath.IsAbs(r.Path):
		return r, failure.New(failure.NotReady, "the receipt of %s does not say where the program is", program).WithPaths(path)
	}
	if info, err := files.Stat(r.Path); err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
		return r, failure.New(failure.NotReady, "%s was prepared, and no longer exists", program).WithPaths(r.Path)
	}
	return r, nil
}
