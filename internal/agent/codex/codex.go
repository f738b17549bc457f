// Package codex drives the Codex CLI, as of version 0.171: one `codex exec --json` a turn, its prompt on stdin, its
// conversation continued by the thread's id.
package codex

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/options"
)

// Name is the harness's name, and the prepared program's.
const Name = "codex"

const title = "Codex"

// Bounds of what is handed to Codex. It refuses prompts of more than 1 MiB characters itself, and one argument of a
// program has at most 128 KiB on Linux.
const (
	maxPrompt       = 1_000_000 // characters
	maxInstructions = 64 << 10  // bytes
)

// maxStdout bounds what is kept of the events of one turn, in bytes: every command's output is in them, up to 1 MiB each.
const maxStdout = 1 << 30

const schemaFile = "output-schema.json"

// Program drives Codex.
type Program struct{}

// New makes the harness.
func New() *Program { return &Program{} }

var _ agent.Program = (*Program)(nil)

// Name is the harness's name.
func (*Program) Name() string { return Name }

// Title is what people call it.
func (*Program) Title() string { return title }

// Executable is none: Codex is installed by its recipe.
func (*Program) Executable(json.RawMessage) string { return "" }

// Accept holds the rules of `.agent()`. The permission modes are Codex's own sandbox, which the kernel enforces for the
// commands of its tools: where the kernel refuses, a command fails and does not run without it.
func (*Program) Accept(a agent.Requirements) error {
	if len(a.ActiveTools) > 0 {
		return options.Invalid("activeTools", "the tools of Codex cannot be selected; permissionMode limits what they may do")
	}
	if len(a.Instructions) > maxInstructions {
		return options.Invalid("instructions", "expected at most %d bytes, got %d: put what is longer into a file of the workspace", maxInstructions, len(a.Instructions))
	}
	if strings.ContainsRune(a.Instructions, 0) {
		return options.Invalid("instructions", "expected no NUL byte")
	}
	return nil
}

// Turn says what to run.
func (*Program) Turn(t agent.Turn) (agent.Command, error) {
	var c config
	if err := json.Unmarshal(t.Options, &c); err != nil {
		return agent.Command{}, err
	}
	if t.Conversation != "" && !agent.IsUUID(t.Conversation) {
		return agent.Command{}, failure.New(failure.Internal, "%q is not a thread of Codex", t.Conversation)
	}
	prompt := prompt(t)
	if n := utf8.RuneCountInString(prompt); n > maxPrompt {
		return agent.Command{}, failure.New(failure.AgentFailed, "the prompt has %d characters, and Codex accepts at most %d", n, maxPrompt).
			WithHint("write what is long into a file of the workspace, and name the file in the prompt")
	}
	if strings.TrimSpace(prompt) == "" {
		return agent.Command{}, failure.New(failure.AgentFailed, "the prompt is empty, which Codex refuses")
	}
	cmd := agent.Command{
		Argv: append([]string{t.Binary, "exec"}, arguments(t, c)...), Env: []string{"CODEX_HOME=" + t.Home},
		Stdin: []byte(prompt), Interrupt: syscall.SIGINT, MaxOutput: maxStdout,
	}
	if len(t.Schema) > 0 {
		cmd.Files = append(cmd.Files, agent.File{Path: schemaFile, Content: t.Schema, Mode: 0o600})
		cmd.Argv = append(cmd.Argv, "--output-schema", path.Join(t.Home, schemaFile))
	}
	for _, s := range t.Skills {
		cmd.Files = append(cmd.Files, skillFiles(s)...)
	}
	if t.Conversation != "" {
		cmd.Argv = append(cmd.Argv, "resume", t.Conversation)
	}
	cmd.Argv = append(cmd.Argv, "-")
	return cmd, nil
}

// prompt is what Codex is asked. A thread that was cut has the task already, as far as it got; a new one knows nothing.
func prompt(t agent.Turn) string {
	if !t.Continued {
		return t.Prompt
	}
	return "Your last turn was cut off before it had ended. What you changed in the workspace is still there: look at it and go on.\n\nThe task of that turn was:\n\n" + t.Prompt
}

// arguments are laufwerk's own settings, after those of the user: of two for one key the last one counts.
func arguments(t agent.Turn, c config) []string {
	args := []string{"--json", "--color", "never", "--skip-git-repo-check", "-C", t.Workdir}
	for _, k := range slices.Sorted(maps.Keys(c.Config)) {
		args = append(args, "-c", k+"="+toml(c.Config[k]))
	}
	if c.Model != "" {
		args = append(args, "-m", c.Model)
	}
	set := func(key, value string) { args = append(args, "-c", key+"="+value) }
	if t.Placeholders {
		for _, kv := range substituteProvider(c) {
			args = append(args, "-c", kv)
		}
	}
	if c.Effort != "" {
		set("model_reasoning_effort", quote(c.Effort))
	}
	if c.WebSearch {
		set("web_search", `"live"`)
	} else {
		set("web_search", `"disabled"`)
	}
	if t.Instructions != "" {
		set("developer_instructions", quote(t.Instructions))
	}
	switch t.PermissionMode {
	case agent.AllowEdits:
		args = append(args, "-s", "workspace-write")
	case agent.AllowReads:
		args = append(args, "-s", "read-only")
	default:
		args = append(args, "--dangerously-bypass-approvals-and-sandbox")
	}
	return append(args, rules(t.Workdir)...)
}

// substituteProvider is a provider in place of Codex's own, at the same address. With a login of placeholders Codex's own cannot be used:
// it looks for its account among those that ChatGPT tells it of (wham/accounts/check), where the real one is (Codex 0.171). A
// provider by another name does not look. One that the user has chosen stays.
func substituteProvider(c config) []string {
	scalar := func(key string) (s string) {
		_ = json.Unmarshal(c.Config[key], &s)
		return s
	}
	if own := scalar("model_provider"); own != "" && own != "openai" {
		return nil
	}
	const name = "chatgpt"
	base := strings.TrimSuffix(cmp.Or(scalar("chatgpt_base_url"), "https://chatgpt.com/backend-api"), "/") + "/codex"
	at := "model_providers." + name + "."
	return []string{"model_provider=" + quote(name), at + "name=" + quote("ChatGPT"), at + "base_url=" + quote(base), at + "requires_openai_auth=true"}
}

// rules are the settings that nobody else may choose: what the agent may have written into its home is not read, the
// workspace's own configuration is not trusted, tools see no secrets, Codex talks to nobody but the model, and it does not
// wait for ever.
func rules(workdir string) []string {
	args := []string{"--ignore-user-config", "--ignore-rules"}
	for _, kv := range []string{
		`cli_auth_credentials_store="file"`,
		`forced_login_method="chatgpt"`,
		"allow_login_shell=false", // profiles hold secrets, and Debian's changes PATH
		"shell_environment_policy.ignore_default_excludes=false",
		`shell_environment_policy.exclude=["CODEX_HOME","CODEX_REFRESH_TOKEN_URL_OVERRIDE","CODEX_CA_CERTIFICATE"]`,
		"analytics.enabled=false",
		"feedback.enabled=false",
		`otel.metrics_exporter="none"`,
		"check_for_update_on_startup=false",
	} {
		args = append(args, "-c", kv)
	}
	for _, f := range disabledFeatures() { // --disable would refuse a name that another version does not know
		args = append(args, "-c", "features."+f+"=false")
	}
	return args
}

// disabledFeatures are features that run or fetch what nobody asked for, or retry for ever.
func disabledFeatures() []string {
	return []string{
		"unbounded_connection_retries", "plugins", "remote_plugin", "apps", "hooks", "daemon_auto_start", "shell_snapshot",
		"skill_mcp_dependency_install", "tool_suggest", "browser_use", "browser_use_external", "computer_use",
	}
}

func toml(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return quote(s)
	}
	return string(raw)
}

func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// skillFiles are a skill's in Codex's home. Codex 0.171 tells the model the name, the description and the path of every
// skills/*/SKILL.md there; the model reads the file when it wants to.
func skillFiles(s agent.Skill) []agent.File {
	dir := path.Join("skills", s.Name)
	head := "---\nname: " + s.Name + "\ndescription: " + quote(s.Description) + "\n---\n\n" // a basic string of TOML is one of YAML too
	out := []agent.File{{Path: path.Join(dir, "SKILL.md"), Content: []byte(head + s.Content), Mode: 0o600}}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		mode := fs.FileMode(0o600)
		if strings.HasPrefix(s.Files[name], "#!") {
			mode = 0o700
		}
		out = append(out, agent.File{Path: path.Join(dir, name), Content: []byte(s.Files[name]), Mode: mode})
	}
	return out
}
