package upgrade_test

import (
	"encoding/json"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// TestSettingsUpgrade: a settings file, and variables, mean the same to both.
func TestSettingsUpgrade(t *testing.T) {
	t.Parallel()
	u := installOlder(e2e.NewMachine(t))
	file := filepath.Join(u.Dir, ".config/laufwerk/config.toml")
	u.WriteFile(file, "") // the directory
	ask := func(c settings) (int, string) {
		u.WriteFile(file, c.file)
		code, out, errs := u.Run(c.env, append([]string{"config", "--json"}, c.args...)...)
		if code != 0 {
			out = errs
		}
		return code, out
	}
	said := map[string]string{}
	for name, c := range settingsCases() {
		code, out := ask(c)
		if code != 0 {
			t.Errorf("%s: exit %d\n%s", name, code, out)
		}
		said[name] = out
	}
	u.install(u.newer)
	for _, name := range slices.Sorted(maps.Keys(said)) {
		code, out := ask(settingsCases()[name])
		if code != 0 {
			t.Errorf("%s: exit %d\n%s", name, code, out)
			continue
		}
		u.checkKept(map[string]document{name: parseDocument(t, said[name])}, map[string]document{name: parseDocument(t, out)})
	}
}

func parseDocument(t *testing.T, text string) document {
	t.Helper()
	var doc any
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	d := document{fields: map[string]string{}}
	flatten(d.fields, "", doc)
	return d
}

type settings struct {
	file      string
	env, args []string
}

func settingsCases() map[string]settings {
	all := `home = "~/elsewhere"
color = "never"
debug = true
[script]
memory = "96MiB"
configTime = "3s"
stepTime = "750ms"
[writeback]
maxFiles = 50
maxBytes = "2GiB"
[docker]
host = "unix:///run/other.sock"
`
	return map[string]settings{
		"nothing":           {},
		"all, in a file":    {file: all},
		"dotted":            {file: "script.memory = \"1GB\"\nwriteback.maxFiles = 7\n"},
		"numbers":           {file: "[writeback]\nmaxBytes = 500000\nmaxFiles = 1_000\n"},
		"a comment":         {file: "# nothing\n"},
		"variables over it": {file: all, env: []string{"LAUFWERK_COLOR=always", "LAUFWERK_WRITEBACK_MAX_FILES=9", "LAUFWERK_SCRIPT_STEP_TIME=1m", "LAUFWERK_DOCKER_HOST=unix:///run/third.sock"}},
		"flags over them":   {file: all, env: []string{"LAUFWERK_COLOR=always"}, args: []string{"--set", "color=auto", "--set", "script.memory=64MiB"}},
	}
}

// TestDefinitionUpgrade: a target whose options have not changed has the fingerprint that it had, and so runs that began with it go
// on. An option that is added with a default belongs to no older config: its default must not change a fingerprint.
func TestDefinitionUpgrade(t *testing.T) {
	t.Parallel()
	u := installOlder(e2e.NewMachine(t))
	var module strings.Builder
	module.WriteString(`import { createLocalExecution } from "@laufwerk/execution/local";
import { createDockerExecution } from "@laufwerk/execution/docker";
import { createOpenShellExecution } from "@laufwerk/execution/openshell";
export const all = () => [
`)
	for _, target := range definitionCases() {
		module.WriteString("  " + target + ",\n")
	}
	module.WriteString("];\n")
	u.WriteFile(filepath.Join(u.Project, "laufwerk/targets.ts"), module.String())
	fingerprints := func() (list []string) {
		out := u.MustRun([]int{0}, "script", "laufwerk/targets.ts", "--call", "all")
		var targets []struct {
			Kind    string
			Sandbox struct{ Fingerprint string }
		}
		if err := json.Unmarshal([]byte(out), &targets); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, target := range targets {
			if target.Kind == "" || len(target.Sandbox.Fingerprint) != 64 {
				t.Fatalf("a target without a fingerprint: %s", out)
			}
			list = append(list, target.Kind+" "+target.Sandbox.Fingerprint)
		}
		return list
	}
	older := fingerprints()
	u.install(u.newer)
	newer := fingerprints()
	for i, target := range definitionCases() {
		if older[i] != newer[i] {
			t.Errorf("%s is %s; it was %s", target, newer[i], older[i])
		}
	}
}

// definitionCases are targets of every kind, with each of their options.
func definitionCases() []string {
	const policy = `{ codex: { endpoints: [{ host: "api.openai.com", port: 443, protocol: "rest", enforcement: "enforce", access: "read-write" }], binaries: [{ path: "/usr/bin/x" }] } }`
	openshell := func(more string) string {
		return `createOpenShellExecution({ id: "secure-coding", gateway: "laufwerk-local", credentials: { kind: "codex-subscription", provider: "laufwerk-codex" }, policy: ` + policy + more + ` })`
	}
	return []string{
		`createLocalExecution()`,
		`createLocalExecution({})`,
		`createLocalExecution({ id: "other" })`,
		`createLocalExecution({ credentials: "codex-subscription" })`,
		`createLocalExecution({ credentials: ["codex-subscription", "claude-subscription"] })`,
		`createLocalExecution({ env: { A: "b", TOKEN: { fromHost: "TOKEN" } } })`,
		`createDockerExecution()`,
		`createDockerExecution({ id: "other" })`,
		`createDockerExecution({ image: "node:22" })`,
		`createDockerExecution({ codexBootstrap: "prepared" })`,
		`createDockerExecution({ credentials: "codex-subscription" })`,
		`createDockerExecution({ credentials: "codex-subscription", imageCacheDirectory: "/cache" })`,
		`createDockerExecution({ resources: {} })`,
		`createDockerExecution({ resources: { cpus: 1.5, memoryBytes: 1073741824, swapBytes: 0, pids: 100 } })`,
		`createDockerExecution({ network: "none" })`,
		`createDockerExecution({ network: "bridge" })`,
		`createDockerExecution({ env: { A: "b", TOKEN: { fromHost: "TOKEN" } } })`,
		openshell(""),
		openshell(`, resources: {}`),
		openshell(`, resources: { cpus: 0.125, memoryBytes: 8388608 }`),
		openshell(`, image: "registry.example/team/image:1"`),
		openshell(`, imageCacheDirectory: "/cache"`),
		`createOpenShellExecution({ id: "a", gateway: "b", credentials: { kind: "codex-subscription", provider: "c" }, policy: {} })`,
		`createOpenShellExecution({ id: "a", gateway: "b", credentials: { kind: "codex-subscription", provider: "c" }, policy: { p: { name: "p", endpoints: [{ host: "x.example.com", ports: [1, 2], tls: "skip" }], binaries: [{ path: "/x" }] } } })`,
	}
}
