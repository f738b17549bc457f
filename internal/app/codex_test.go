package app_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// The real Codex, through the whole product, against a model server on loopback.

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

const oneTurnWorkflow = `
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

const buggy = `package fields

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

const fixPatch = `*** Begin Patch
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

const fixed = `package fields

import "strings"

// Parse splits a line at its commas; what follows a # is a comment.
func Parse(line string) []string {
	line, _, _ = strings.Cut(line, "#")
	parts := strings.Split(strings.TrimSpace(line), ",")
	return parts
}
`

const fieldsTest = `package fields

import ("slices"; "testing")

func TestParse(t *testing.T) {
	for line, want := range map[string][]string{"a,b": {"a", "b"}, "a,b # c": {"a", "b"}} {
		if got := Parse(line); !slices.Equal(got, want) {
			t.Errorf("Parse(%q) = %q, want %q", line, got, want)
		}
	}
}
`

// codexWorld is a world whose agent is the real Codex.
type codexWorld struct {
	*world
	model   *testkit.Model
	secrets []string
	url     string
}

func newCodexWorld(t testing.TB, steps ...testkit.Step) *codexWorld {
	t.Helper()
	binary := testkit.CodexBinary(t)
	w := &codexWorld{world: newWorld(t), model: testkit.NewModel(t, steps...)}
	w.url = w.model.URL
	w.write(filepath.Join(w.project, "go.mod"), "module example.com/fields\n\ngo 1.22\n")
	w.write(filepath.Join(w.project, "fields.go"), buggy)
	w.write(filepath.Join(w.project, "fields_test.go"), fieldsTest)
	w.login(time.Now().Add(24 * time.Hour))
	w.must([]int{0}, "prepare", "local", "--codex", binary)
	w.goEnv()
	w.point(nil)
	return w
}

// goEnv is for agents and checks that run go: with what this machine has, and no network.
func (w *codexWorld) goEnv() {
	w.t.Helper()
	w.env = []string{"GOFLAGS=-mod=mod", "GOTOOLCHAIN=local", "GOPROXY=off"}
	for _, name := range []string{"GOCACHE", "GOMODCACHE"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			w.t.Fatal(err)
		}
		w.env = append(w.env, name+"="+strings.TrimSpace(string(out)))
	}
}

func (w *codexWorld) private(path string, content []byte) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.t.Fatal(err)
	}
}

func (w *codexWorld) login(expires time.Time) {
	var content []byte
	content, w.secrets = testkit.CodexLogin("canary", expires)
	w.private(filepath.Join(w.dir, ".codex/auth.json"), content)
}

// point writes the project's workflows for a model server.
func (w *codexWorld) point(more map[string]any) {
	w.t.Helper()
	options, _ := json.Marshal(w.config(more))
	w.write(filepath.Join(w.project, "laufwerk/execution.ts"), `import { createLocalExecution } from "@laufwerk/execution/local";
export const execution = createLocalExecution({ credentials: "codex-subscription", env: { CODEX_REFRESH_TOKEN_URL_OVERRIDE: "`+w.model.URL+`/oauth/token" } });
`)
	w.workflow("issue-to-fix", strings.Replace(fixWorkflow, "OPTIONS", string(options), 1))
	w.workflow("turn", strings.NewReplacer("OPTIONS", string(options), "ASK", "").Replace(oneTurnWorkflow))
	schema := `, output: { type: "object", properties: { ok: { type: "boolean" } }, required: ["ok"], additionalProperties: false }`
	w.workflow("schema", strings.NewReplacer("OPTIONS", string(options), "ASK", schema, `"turn"`, `"schema"`).Replace(oneTurnWorkflow))
}

// config are createCodex's options, as a user could point Codex at any server that takes ChatGPT's logins.
func (w *codexWorld) config(more map[string]any) map[string]any {
	config := map[string]any{
		"model_provider": "loop", "model_providers.loop.name": "loop", "model_providers.loop.base_url": w.url + "/backend-api/codex",
		"model_providers.loop.requires_openai_auth": true, "chatgpt_base_url": w.url + "/backend-api/",
		"model_providers.loop.request_max_retries": 1, "model_providers.loop.stream_max_retries": 1, "model_providers.loop.stream_idle_timeout_ms": 500,
	}
	for k, v := range more {
		config[k] = v
	}
	return map[string]any{"model": "gpt-5.5", "reasoningEffort": "low", "config": config}
}

// noSecret looks for the login's tokens wherever laufwerk writes, but in the session's private home and its user's own file.
func (w *codexWorld) noSecret(texts ...string) {
	w.t.Helper()
	for _, s := range w.secrets {
		for _, text := range texts {
			if strings.Contains(text, s) {
				w.t.Error("a secret was printed")
			}
		}
		_ = filepath.WalkDir(w.home, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.Contains(path, "/sessions/") {
				return nil //nolint:nilerr // what is gone holds nothing
			}
			if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), s) {
				w.t.Errorf("a secret is in %s", path)
			}
			return nil
		})
	}
}

// last is the end of what a request sent: what a tool has answered.
func last(r testkit.Request) any {
	if input, ok := r.Body["input"].([]any); ok && len(input) > 0 {
		return input[len(input)-1]
	}
	return r.Raw
}

func TestCodexFixesAnIssue(t *testing.T) {
	check := testkit.ShellWith(map[string]any{"cmd": "go test ./...", "yield_time_ms": 30000})
	w := newCodexWorld(t, testkit.Think("Let me see it fail.", check), testkit.Patch(fixPatch), check, testkit.Say("It was the comment."), testkit.Say(`{"sure":0.9}`))
	own, err := os.ReadFile(filepath.Join(w.dir, ".codex/auth.json"))
	if err != nil {
		t.Fatal(err)
	}

	input := `{"issue":"Parse drops the last field when the line ends in a comment","check":"go test ./..."}`
	code, out, errs := w.laufwerk(nil, "run", "issue-to-fix", "--no-input", "--input", input)
	if code != 8 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	w.noSecret(out, errs)
	run := w.runs()[0].ID
	diff := w.must([]int{0}, "diff", run)
	if !strings.Contains(diff, "-	if comment != \"\" {") {
		t.Errorf("the difference:\n%s", diff)
	}
	code, out, errs = w.laufwerk(nil, "answer", run, "write-back", "yes", "--json")
	if code != 0 {
		t.Fatalf("exit %d\n%s%s", code, out, errs)
	}
	for _, want := range []string{`"before":1`, `"after":0`, `"said":"It was the comment."`, `"sure":0.9`, `"fields.go"`} {
		if !strings.Contains(strings.ReplaceAll(out, " ", ""), strings.ReplaceAll(want, " ", "")) {
			t.Errorf("the value has no %s:\n%s", want, out)
		}
	}
	want := before()
	want["go.mod"], want["fields.go"], want["fields_test.go"] = "module example.com/fields\n\ngo 1.22\n", fixed, fieldsTest
	w.sourceIs(want)

	sent := w.model.Requests("")
	if len(sent) != 5 || len(w.model.Threads()) != 1 {
		t.Fatalf("%d requests, threads %v", len(sent), w.model.Threads())
	}
	if !strings.Contains(sent[1].Raw, "FAIL") || !strings.Contains(sent[3].Raw, "ok") {
		t.Errorf("the agent did not see the test fail and then succeed:\n%v\n%v", last(sent[1]), last(sent[3]))
	}
	for i, r := range sent {
		if r.Auth != "Bearer "+w.secrets[1] {
			t.Errorf("request %d came with %q", i, r.Auth)
		}
	}
	if now, err := os.ReadFile(filepath.Join(w.dir, ".codex/auth.json")); err != nil || string(now) != string(own) {
		t.Errorf("the user's own login was changed: %v", err)
	}
	if entries, _ := os.ReadDir(filepath.Join(w.dir, ".codex")); len(entries) != 1 {
		t.Errorf("the user's own home of Codex was used: %v", entries)
	}
	show := w.must([]int{0}, "runs", "show", run, "--json")
	if !strings.Contains(show, fmt.Sprint(4*testkit.InputTokens)) {
		t.Errorf("the usage of the turn is not shown:\n%s", show)
	}
	logs := w.must([]int{0}, "runs", "logs", run)
	for _, want := range []string{"go test ./...", "update ", "It was the comment."} {
		if !strings.Contains(logs, want) {
			t.Errorf("the log does not tell %q:\n%s", want, logs)
		}
	}
	w.noSecret(out, errs, show, logs, diff)
	w.must([]int{0}, "cleanup", "--all", "--discard-changes")
	w.nothingIsLeft()
	w.noSecret()
}

// What cannot be is said where the agent is made, before anything runs.
func TestCodexAgentsThatAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, c := range []struct{ target, agent, says string }{
		{`{}`, `{ harness: createCodex() }`, "give its constructor `credentials: \"codex-subscription\"`"},
		{`{ credentials: "claude-subscription" }`, `{ harness: createCodex() }`, "credentials"},
		{`{ credentials: "codex-subscription" }`, `{ harness: createCodex({ reasoningEffort: "lots" }) }`, "reasoningEffort: expected"},
		{`{ credentials: "codex-subscription" }`, `{ harness: createCodex({ config: { "mcp_servers.x.command": "sh" } }) }`, "config.mcp_servers.x.command: is refused"},
		{`{ credentials: "codex-subscription" }`, `{ harness: createCodex(), activeTools: ["x"] }`, "activeTools: Codex cannot"},
		{`{ credentials: "codex-subscription", env: { OPENAI_API_KEY: "sk" } }`, `{ harness: createCodex() }`, "never fall back to billing"},
	} {
		w.write(filepath.Join(w.project, "laufwerk/execution.ts"), `import { createLocalExecution } from "@laufwerk/execution/local";
import { createCodex } from "@laufwerk/sdk/harness/codex";
export const execution = createLocalExecution(`+c.target+`);
execution.agent(`+c.agent+`);
`)
		code, out, errs := w.laufwerk(nil, "run", "job", "--no-input")
		if code != 3 || !strings.Contains(errs, c.says) {
			t.Errorf("%s %s: exit %d, want 3 and %q\n%s%s", c.target, c.agent, code, c.says, out, errs)
		}
	}
}
