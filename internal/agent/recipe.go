package agent

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
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
