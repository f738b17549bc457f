package codex

import (
	"path"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/recipe"
)

// Version is the version that laufwerk is made for, and the one in the lockfiles.
const Version = recipe.CodexVersion

// Recipe installs the native Codex of @openai/codex.
func (*Program) Recipe() *agent.Recipe {
	file := func(name string) []byte { return recipe.File(recipe.Codex, name) }
	return &agent.Recipe{
		Version: Version, Package: file(recipe.Package), NPMLock: file(recipe.NPMLock), PNPMLock: file(recipe.PNPMLock),
		Space: 800 << 20, Binary: binary, Prints: "codex-cli %s", HomeVariable: "CODEX_HOME",
	}
}

// binary is the native Codex below an installed tree. Its siblings belong to it.
func binary(platform string) string {
	pkg, file := recipe.CodexBinary(platform)
	if pkg == "" {
		return ""
	}
	return path.Join("node_modules/@openai", pkg, file)
}
