package prepare

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"path/filepath"
	"runtime"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/harness"
)

// Codex is the program's name.
const Codex = "codex"

// CodexVersion is the version that laufwerk is made for, and the one in the lockfiles.
const CodexVersion = "0.171.0"

// own is the recipe of a binary that was brought along.
const own = "own"

// recipes hold for each program what a package manager installs: the exact versions and checksums, and no place to get
// them from, which is the user's configuration.
//
//go:embed recipe
var recipes embed.FS

// manifests are the files of a recipe.
func manifests() []string { return []string{"package.json", "package-lock.json", "pnpm-lock.yaml"} }

// Recipe is the digest of what the prepared Codex is made from.
func Recipe() string {
	sum := sha256.New()
	for _, name := range manifests() {
		b, err := recipes.ReadFile("recipe/codex/" + name)
		if err != nil {
			panic(err) // it is embedded
		}
		sum.Write([]byte(name + "\x00"))
		sum.Write(b)
		sum.Write([]byte{0})
	}
	return "sha256:" + hex.EncodeToString(sum.Sum(nil))
}

// binary is the native executable in an installed tree. Its siblings belong to it, and it needs no Node.
func binary(tree string) (string, error) {
	var platform, triple string
	switch runtime.GOOS + "/" + runtime.GOARCH {
	case "linux/amd64":
		platform, triple = "linux-x64", "x86_64-unknown-linux-musl"
	case "linux/arm64":
		platform, triple = "linux-arm64", "aarch64-unknown-linux-musl"
	default:
		return "", failure.New(failure.NotReady, "agents run on this host only on Linux; this is %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return filepath.Join(tree, "node_modules", "@openai", "codex-"+platform, "vendor", triple, "bin", "codex"), nil
}

// Program is the path of a prepared program. What is missing, or was prepared from another recipe, is a failure of kind
// NotReady with the command to type.
func Program(home, name string) (string, error) {
	r, err := Receipt(home, name)
	return r.Path, err
}

// Receipt is the record of a prepared program, with the failures of Program.
func Receipt(home, name string) (harness.Receipt, error) {
	r, err := harness.Prepared(home, name)
	if err == nil && name == Codex && r.Recipe != own && r.Recipe != Recipe() {
		err = failure.New(failure.NotReady, "Codex %s was prepared by another version of laufwerk; this one needs %s", r.Version, CodexVersion).
			WithHint("laufwerk prepare local")
	}
	return r, err
}
