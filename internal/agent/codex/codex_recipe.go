package codex

import (
	"embed"
	"path"

	"github.com/laufwerk/laufwerk/internal/agent"
)

// Version is the version that laufwerk is made for, and the one in the lockfiles.
const Version = "0.171.0"

//go:embed recipe
var recipe embed.FS

// Recipe installs the native Codex of @openai/codex.
func (*Program) Recipe() *agent.Recipe {
	file := func(name string) []byte {
		b, err := recipe.ReadFile(path.Join("recipe", name))
		if err != nil {
			panic(err) // it is embedded
		}
		return b
	}
	return &agent.Recipe{
		Version: Version, Package: file("package.json"), NPMLock: file("package-lock.json"), PNPMLock: file("pnpm-lock.yaml"),
		Space: 800 << 20, Binary: binary, Prints: "codex-cli %s", HomeVariable: "CODEX_HOME",
	}
}

// binary is the native Codex below an installed tree. Its siblings belong to it.
func binary(platform string) string {
	switch platform {
	case "linux/amd64":
		return "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
	case "linux/arm64":
		return "node_modules/@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex"
	}
	return ""
}
