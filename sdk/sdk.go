// Package sdk carries the TypeScript half of laufwerk: the sources of the @laufwerk/* modules, which the isolate bundles
// with user code, and their declarations, which `laufwerk init` writes for editors and tsc.
package sdk

import (
	"embed"
	"io/fs"
	"sort"
	"strings"
)

//go:embed src
var sources embed.FS

//go:embed types/laufwerk.d.ts
var declarations string

// What is made from the sources before a release, for the isolate: `make update-sdk` makes it, a test of internal/script holds
// that it is current.
var (
	// Script is all modules as one script.
	//go:embed built/sdk.js
	Script string
	// Bytecode is Script in the engine's bytecode.
	//go:embed built/sdk.bytecode
	Bytecode []byte
	// Exports are the names that each module exports, as a JSON object of lists.
	//go:embed built/exports.json
	Exports []byte
)

// Declarations are the types of all public modules, and of the isolate's globals, in one ambient .d.ts file.
// It is made from the sources by sdk/update.sh; sdk/verify.sh holds that it is current.
func Declarations() string { return declarations }

// internal is where the modules are that only other modules of the SDK may import.
const internal = "@laufwerk/internal/"

// Entry is the module whose `attach` every bundle calls with the user's module.
const Entry = internal + "program"

// Source is the TypeScript source of a module such as "@laufwerk/sdk/harness".
func Source(module string) (string, bool) {
	b, err := fs.ReadFile(sources, "src/"+module+".ts")
	return string(b), err == nil
}

// Public says whether user code may import a module.
func Public(module string) bool { return !strings.HasPrefix(module, internal) }

// Modules are the names of the public modules, sorted.
func Modules() []string {
	var names []string
	_ = fs.WalkDir(sources, "src", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(path, "src/"), ".ts")
		if !d.IsDir() && Public(name) {
			names = append(names, name)
		}
		return nil
	})
	sort.Strings(names)
	return names
}
