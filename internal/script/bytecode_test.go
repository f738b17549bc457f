package script

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"
	"modernc.org/quickjs"

	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/sdk"
)

var update = flag.Bool("update", false, "make the files in built anew")

// TestBuiltIsCurrent makes everything in built and compares. make update-sdk writes it.
func TestBuiltIsCurrent(t *testing.T) {
	modules := append(sdk.Modules(), sdk.Entry)
	slices.Sort(modules)
	exports := map[string][]string{}
	entry := "const modules = {};\n"
	for i, module := range modules {
		_, exports[module] = bundled(t, fmt.Sprintf("export * from %q;", module))
		entry += fmt.Sprintf("import * as m%d from %q;\nmodules[%q] = Object.freeze({ ...m%d });\n", i, module, module, i)
	}
	entry += `Object.defineProperty(globalThis, Symbol.for("laufwerk.sdk"), { value: Object.freeze(modules) });` + "\n"
	source, _ := bundled(t, entry)
	// A script of its own; all of the sources are modules and so strict.
	source = "(() => {\n\"use strict\";\n" + mendLoops(source) + "})();\n"
	list, err := json.MarshalIndent(exports, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"../../sdk/built/sdk.js": []byte(source), "../../sdk/built/sdk.bytecode": compiled(t, source), "../../sdk/built/exports.json": append(list, '\n'),
		"built/prelude.bytecode": compiled(t, preludeScript()),
	} {
		path := filepath.FromSlash(name)
		if *update {
			if err := os.WriteFile(path, content, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s is not what the sources say (%v): make update-sdk", path, err)
		}
	}
}

// bundled is an entry with all that it imports of the SDK, and the names that it exports.
func bundled(t *testing.T, entry string) (code string, exports []string) {
	t.Helper()
	result := api.Build(api.BuildOptions{
		Stdin:         &api.StdinOptions{Contents: entry, Sourcefile: "entry"},
		AbsWorkingDir: "/", Outfile: "/out.js", Bundle: true, Format: api.FormatESModule, Platform: api.PlatformNeutral, Target: api.ES2022,
		Charset: api.CharsetUTF8, LegalComments: api.LegalCommentsNone, LogLevel: api.LogLevelSilent, Metafile: true, TsconfigRaw: tsconfig,
		Plugins: []api.Plugin{{Name: "sdk", Setup: func(b api.PluginBuild) {
			b.OnResolve(api.OnResolveOptions{Filter: "^@laufwerk/"}, func(a api.OnResolveArgs) (api.OnResolveResult, error) {
				return api.OnResolveResult{Namespace: nsSDK, Path: a.Path}, nil
			})
			b.OnLoad(api.OnLoadOptions{Filter: ".*", Namespace: nsSDK}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
				source, ok := sdk.Source(a.Path)
				if !ok {
					return api.OnLoadResult{}, fmt.Errorf("there is no %s", a.Path)
				}
				return api.OnLoadResult{Contents: &source, Loader: api.LoaderTS}, nil
			})
		}}},
	})
	if len(result.Errors) > 0 || len(result.OutputFiles) != 1 {
		t.Fatalf("%v, %d files", result.Errors, len(result.OutputFiles))
	}
	var meta struct {
		Outputs map[string]struct{ Exports []string }
	}
	if err := json.Unmarshal([]byte(result.Metafile), &meta); err != nil {
		t.Fatal(err)
	}
	exports = []string{}
	for _, o := range meta.Outputs {
		exports = append(exports, o.Exports...)
	}
	slices.Sort(exports)
	return string(result.OutputFiles[0].Contents), exports
}

func compiled(t *testing.T, source string) []byte {
	t.Helper()
	vm, err := quickjs.NewVM()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	code, err := vm.Compile(source, quickjs.EvalGlobal)
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// TestTheBytecodeIsTaken sees to it that the fall-back to the sources is not what everything else is tested with.
func TestTheBytecodeIsTaken(t *testing.T) {
	for name, code := range map[string][]byte{"prelude": preludeBytecode, "sdk": sdk.Bytecode} {
		vm, err := quickjs.NewVM()
		if err != nil {
			t.Fatal(err)
		}
		defer vm.Close()
		if name == "sdk" { // needs its host
			if _, err := vm.Eval(`globalThis[Symbol.for("laufwerk.host")] = { describe() {} }`, quickjs.EvalGlobal); err != nil {
				t.Fatal(err)
			}
		}
		v, err := vm.EvalBytecodeValue(code)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		v.Free()
	}
}

// TestBytecodeFitsAllPlatforms compares what the meaning of bytecode hangs on between the engine's sources of our platforms.
func TestBytecodeFitsAllPlatforms(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "modernc.org/libquickjs").Output()
	if err != nil {
		t.Fatal(err)
	}
	constants := regexp.MustCompile(`(?m)^\s*(?:const )?((?:EJS_ATOM|EOP|MBC|EBC_TAG)_\w+) = (\S+)$`)
	var first string
	for _, platform := range []string{"linux_amd64", "linux_arm64", "darwin_amd64", "darwin_arm64"} {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "ccgo_"+platform+".go"))
		if err != nil {
			t.Fatal(err)
		}
		found := constants.FindAllString(string(source), -1)
		slices.Sort(found)
		if len(found) < 400 {
			t.Fatalf("%s: only %d constants", platform, len(found))
		}
		all := strings.Join(slices.Compact(found), "\n")
		if first == "" {
			first = all
		}
		if all != first {
			t.Errorf("%s has other atoms, opcodes or a format of its own", platform)
		}
	}
}

// A run that an older laufwerk started, or a newer one, keeps the SDK that it has.
func TestABundleKeepsItsSDK(t *testing.T) {
	root := project(t, map[string]string{entry: "import { defineConfig } from \"@laufwerk/sdk\";\nexport default defineConfig({ projectId: \"x\", executions: [] });\n"})
	_, bundle, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if bundle.SDK != sdk.Script {
		t.Fatal("the bundle does not say which SDK it was made with")
	}
	for name, sdkSource := range map[string]string{
		"ours":    sdk.Script,
		"another": "globalThis.another = 1;\n" + sdk.Script,
	} {
		b := bundle
		b.SDK = sdkSource
		if name == "another" {
			b.Code = "if (globalThis.another !== 1) throw new Error(\"not its own SDK\");\n" + b.Code
		}
		vm, err := newIsolate(&protocol.Start{Limits: Limits{MemoryBytes: LeastMemory}}, testRules{}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		if e := vm.loadSDK(b.SDK); e != nil {
			t.Errorf("%s: %s", name, e.Message)
		}
		if e := vm.load(&b); e != nil {
			t.Errorf("%s: %s", name, e.Message)
		}
	}
	inside := bundle // as before minor version 1
	inside.Code, inside.SDK = sdk.Script+inside.Code, ""
	vm, err := newIsolate(&protocol.Start{Limits: Limits{MemoryBytes: LeastMemory}}, testRules{}, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if e := vm.loadSDK(inside.SDK); e != nil {
		t.Error(e.Message)
	}
	if e := vm.load(&inside); e != nil {
		t.Error(e.Message)
	}
}
