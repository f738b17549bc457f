// Package recipe holds what prepared programs are made from: exact versions and checksums, and no place to get them from,
// which is the user's configuration. Local targets and images install from the same files.
package recipe

import (
	"embed"
	"path"
)

// Codex is the program's name, and the folder of its files.
const Codex = "codex"

// CodexVersion is the version that laufwerk is made for, and the one in the lockfiles.
const CodexVersion = "0.171.0"

// The files of a recipe.
const (
	Package  = "package.json"
	NPMLock  = "package-lock.json"
	PNPMLock = "pnpm-lock.yaml"
)

//go:embed codex
var embedded embed.FS

// File is a file of a program's recipe.
func File(program, name string) []byte {
	b, err := embedded.ReadFile(path.Join(program, name))
	if err != nil {
		panic(err) // it is embedded
	}
	return b
}

// CodexBinary is the native Codex's path below its package, "" for a platform that has none ("linux/amd64" has one).
func CodexBinary(platform string) (pkg, file string) {
	switch platform {
	case "linux/amd64":
		return "codex-linux-x64", "vendor/x86_64-unknown-linux-musl/bin/codex"
	case "linux/arm64":
		return "codex-linux-arm64", "vendor/aarch64-unknown-linux-musl/bin/codex"
	}
	return "", ""
}

// PNPMInstall are the arguments with which pnpm installs a recipe: no script of a package runs, and the lockfile's checksums
// are checked. Files are copied: linked ones could be changed through pnpm's store.
func PNPMInstall() []string {
	return []string{
		"install", "--frozen-lockfile", "--ignore-scripts", "--ignore-workspace", "--prod", "--reporter=append-only",
		"--config.node-linker=hoisted", "--config.package-import-method=copy", "--config.manage-package-manager-versions=false",
	}
}
