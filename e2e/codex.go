package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

const fixWorkflow = `
import { defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { createCodex } from "@laufwerk/sdk/harness/codex";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCodex(OPTIONS), instructions: "Fix what is asked, and nothing else." });

export const workflow = defineWorkflow<{ issue: string; check: string }, unknown>({
  name: "issue-to-fix",
  *run({ issue, check }) {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const writer = yield* Session.open({ key: "writer", agent, workspace });
    const before = yield* writer.exec({ key: "before", command: check });
    const said = yield* writer.ask({ key: "fix", prompt: issue });
    const after = yield* writer.exec({ key: "after", command: check });
    const rated = yield* writer.ask({ key: "rate", prompt: "How sure are you?", output: { type: "object", properties: { sure: { type: "number" } }, required: ["sure"], additionalProperties: false } });
    yield* writer.close();
    const approved = yield* Human.confirm({ key: "write-back", title: "Write back?", workspace });
    if (!approved) return "declined";
    const written = yield* Workspace.writeBack({ workspace });
    return { before: before.exitCode, after: after.exitCode, said, rated, paths: written.changes.map(c => c.path) };
  },
});
`

const OneTurnWorkflow = `
import { defineWorkflow, Session, Workspace } from "@laufwerk/sdk";
import { createCodex } from "@laufwerk/sdk/harness/codex";
import { execution } from "../../execution";

const agent = execution.agent({ harness: createCodex(OPTIONS) });

export const workflow = defineWorkflow<unknown, unknown>({
  name: "turn",
  *run() {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "s", agent, workspace });
    return yield* s.ask({ key: "ask", prompt: "do it"ASK });
  },
});
`

const BuggyGo = `package fields

import "strings"

// Parse splits a line at its commas; what follows a # is a comment.
func Parse(line string) []string {
	line, comment, _ := strings.Cut(line, "#")
	parts := strings.Split(strings.TrimSpace(line), ",")
	if comment != "" {
		parts = parts[:len(parts)-1]
	}
	return parts
}
`

const FixPatch = `*** Begin Patch
*** Update File: fields.go
@@
-	line, comment, _ := strings.Cut(line, "#")
+	line, _, _ = strings.Cut(line, "#")
 	parts := strings.Split(strings.TrimSpace(line), ",")
-	if comment != "" {
-		parts = parts[:len(parts)-1]
-	}
 	return parts
*** End Patch
`

const FixedGo = `package fields

import "strings"

// Parse splits a line at its commas; what follows a # is a comment.
func Parse(line string) []string {
	line, _, _ = strings.Cut(line, "#")
	parts := strings.Split(strings.TrimSpace(line), ",")
	return parts
}
`

const GoTest = `package fields

import ("slices"; "testing")

func TestParse(t *testing.T) {
	for line, want := range map[string][]string{"a,b": {"a", "b"}, "a,b # c": {"a", "b"}} {
		if got := Parse(line); !slices.Equal(got, want) {
			t.Errorf("Parse(%q) = %q, want %q", line, got, want)
		}
	}
}
`

// CodexMachine is a machine whose agent is the real Codex.
type CodexMachine struct {
	*Machine
	Model    *testkit.Model
	Secrets  []string
	ModelURL string
}

func NewCodexMachine(t testing.TB, steps ...testkit.Step) *CodexMachine {
	t.Helper()
	binary := testkit.CodexBinary(t)
	w := &CodexMachine{Machine: NewMachine(t), Model: testkit.NewModel(t, steps...)}
	w.ModelURL = w.Model.URL
	w.WriteFile(filepath.Join(w.Project, "go.mod"), "module example.com/fields\n\ngo 1.22\n")
	w.WriteFile(filepath.Join(w.Project, "fields.go"), BuggyGo)
	w.WriteFile(filepath.Join(w.Project, "fields_test.go"), GoTest)
	w.WriteLogin(time.Now().Add(24 * time.Hour))
	w.MustRun([]int{0}, "prepare", "local", "--codex", binary)
	w.SetGoEnv()
	w.WriteWorkflows(nil)
	return w
}

// SetGoEnv is for agents and checks that run go: with what this machine has, and no network.
func (w *CodexMachine) SetGoEnv() {
	w.T.Helper()
	w.Env = []string{"GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOPROXY=off"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			w.T.Fatal(err)
		}
		w.Env = append(w.Env, name+"="+strings.TrimSpace(string(out)))
	}
}

func (w *CodexMachine) WritePrivate(path string, content []byte) {
	w.T.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.T.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.T.Fatal(err)
	}
}

func (w *CodexMachine) WriteLogin(expires time.Time) {
	var content []byte
	content, w.Secrets = testkit.CodexLogin("canary", expires)
	w.WritePrivate(filepath.Join(w.Dir, ".codex/auth.json"), content)
}

// WriteWorkflows writes the project's workflows for a model server.
func (w *CodexMachine) WriteWorkflows(more map[string]any) {
	w.T.Helper()
	options, _ := json.Marshal(w.CodexOptions(more))
	w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), `import { createLocalExecution } from "@laufwerk/execution/local";
export const execution = createLocalExecution({ credentials: "codex-subscription", env: { CODEX_REFRESH_TOKEN_URL_OVERRIDE: "`+w.Model.URL+`/oauth/token" } });
`)
	w.WriteWorkflow("issue-to-fix", strings.Replace(fixWorkflow, "OPTIONS", string(options), 1))
	w.WriteWorkflow("turn", strings.NewReplacer("OPTIONS", string(options), "ASK", "").Replace(OneTurnWorkflow))
	schema := `, output: { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false }`
	w.WriteWorkflow("schema", strings.NewReplacer("OPTIONS", string(options), "ASK", schema, `"turn"`, `"schema"`).Replace(OneTurnWorkflow))
}

// CodexOptions are createCodex's options, as a user could point Codex at any server that takes ChatGPT's logins.
func (w *CodexMachine) CodexOptions(more map[string]any) map[string]any {
	config := map[string]any{
		"model_provider": "loop", "model_providers.loop.name": "loop", "model_providers.loop.base_url": w.ModelURL + "/backend-api/codex",
		"model_providers.loop.requires_openai_auth": true, "chatgpt_base_url": w.ModelURL + "/backend-api/",
		"model_providers.loop.request_max_retries": 1, "model_providers.loop.stream_max_retries": 1, "model_providers.loop.stream_idle_timeout_ms": 500,
	}
	for k, v := range more {
		config[k] = v
	}
	return map[string]any{"model": "gpt-5.5", "reasoningEffort": "low", "config": config}
}

// CheckNoSecret looks for the login's tokens wherever laufwerk writes, but in the session's private home and its user's own file.
func (w *CodexMachine) CheckNoSecret(texts ...string) {
	w.T.Helper()
	for _, s := range w.Secrets {
		for _, text := range texts {
			if strings.Contains(text, s) {
				w.T.Error("a secret was printed")
			}
		}
		_ = filepath.WalkDir(w.Home, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.Contains(path, "/sessions/") {
				return nil //nolint:nilerr // what is gone holds nothing
			}
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), s) {
				w.T.Errorf("a secret is in %s", path)
			}
			return nil
		})
	}
}

// LastInput is the end of what a request sent: what a tool has answered.
func LastInput(r testkit.Request) any {
	if input, ok := r.Body["input"].([]any); ok && len(input) > 0 {
		return input[len(input)-1]
	}
	return r.Raw
}

const BrokenJS = `// Parses a line of fields, separated by commas; what follows a # is a comment.
exports.parse = function (line) {
  const [fields, comment] = line.split("#");
  const parts = fields.trim().split(",");
  if (comment) parts.pop();
  return parts;
};
`

const RepairPatch = `*** Begin Patch
*** Update File: fields.js
@@
-  const [fields, comment] = line.split("#");
+  const [fields] = line.split("#");
   const parts = fields.trim().split(",");
-  if (comment) parts.pop();
   return parts;
*** End Patch
`

const RepairedJS = `// Parses a line of fields, separated by commas; what follows a # is a comment.
exports.parse = function (line) {
  const [fields] = line.split("#");
  const parts = fields.trim().split(",");
  return parts;
};
`

const CheckJS = `const { deepStrictEqual } = require("node:assert");
const { parse } = require("./fields.js");
deepStrictEqual(parse("a,b"), ["a", "b"]);
deepStrictEqual(parse("a,b # c"), ["a", "b"]);
console.log("all is well");
`

// PreparedImageCache is the cache that all tests of this checkout share: only the first one on a machine installs Codex.
func PreparedImageCache(t testing.TB) string {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(file), "../.tools/codex-image")
}

// LockPreparation lets one test after the other prepare images, those of other packages too: the first one takes long.
func LockPreparation(t testing.TB) (unlock func()) {
	t.Helper()
	path := PreparedImageCache(t) + ".lock"
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	var f *os.File
	if err == nil {
		f, err = os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() { _ = f.Close() }
}
