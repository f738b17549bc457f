package prepare

import (
	"crypto/sha256"
	"encoding/hex"
	"path/filepath"
	"runtime"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/recipe"
)

// Codex is the program's name.
const Codex = recipe.Codex

// CodexVersion is the version that laufwerk is made for, and the one in the lockfiles.
const CodexVersion = recipe.CodexVersion

// own is the recipe of a binary that was brought along.
const own = "own"

// manifests are the files of a recipe: each package manager has its lockfile.
func manifests() []string { return []string{recipe.Package, recipe.NPMLock, recipe.PNPMLock} }

// Recipe is the digest of what the prepared Codex is made from.
func Recipe() string {
	sum := sha256.New()
	for _, name := range manifests() {
		sum.Write([]byte(name + "\x00"))
		sum.Write(recipe.File(Codex, name))
		sum.Write([]byte{0})
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// binary is the native executable in an installed tree. Its siblings belong to it, and it needs no Node.
func binary(tree string) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	pkg, file := recipe.CodexBinary(platform)
	if pkg == "" {
		return "", failure.New(failure.NotReady, "agents run on this host only on Linux; this is %s", platform)
	}
	return filepath.Join(tree, "node_modules", "@openai", pkg, file), nil
}

// Program is the path of a prepared program. What is missing, or was prepared from another recipe, is a failure of kind
// NotReady with the command to type.
func Program(home, name string) (string, error) {
	r, err := Receipt(home, name)
	return r.Path, err
}

// Receipt is the record of a prepared program, with the failures of Program.
func Receipt(home, name string) (agent.Receipt, error) {
	r, err := agent.Prepared(home, name)
	if err == nil && name == Codex && r.Recipe != own && r.Recipe != Recipe() {
		err = failure.New(failure.NotReady, "Codex %s was prepared by another version of laufwerk; this one needs %s", r.Version, CodexVersion).
			WithHint("laufwerk prepare local")
	}
	return r, err
}
