package codex

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
)

func TestLockfilesPinOneVersionAndNoRegistry(t *testing.T) {
	var pkg struct{ Dependencies map[string]string }
	for _, f := range New().Recipe().Files() {
		name, b := f.Name, f.Content
		text := string(b)
		for _, no := range []string{"://", "resolved", "tarball"} {
			if strings.Contains(text, no) {
				t.Errorf("%s contains %q", name, no)
			}
		}
		if !strings.Contains(text, Version) {
			t.Errorf("%s does not name %s", name, Version)
		}
		if name == "package.json" {
			if err := json.Unmarshal(b, &pkg); err != nil || pkg.Dependencies["@openai/codex"] != Version {
				t.Errorf("%v, %v", pkg, err)
			}
		} else if n := strings.Count(text, "sha512-"); n != 7 {
			t.Errorf("%s has %d checksums, want one for the launcher and each of 6 platforms", name, n)
		}
	}
}

func TestReceipts(t *testing.T) {
	home := t.TempDir()
	program := filepath.Join(home, "codex")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	path := agent.ReceiptPath(home, Name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	good := agent.Receipt{Format: agent.ReceiptFormat, Program: Name, Version: "0.171.0", Path: program, Recipe: New().Recipe().Digest()}
	for name, c := range map[string]struct {
		change func(*agent.Receipt)
		raw    string
		ok     bool
		says   string
	}{
		"ours":              {change: func(*agent.Receipt) {}, ok: true},
		"own":               {change: func(r *agent.Receipt) { r.Recipe = agent.OwnBinary }, ok: true},
		"another recipe":    {change: func(r *agent.Receipt) { r.Recipe, r.Version = "sha256:00", "0.1.0" }, says: "Codex 0.1.0 was prepared by another version"},
		"another program":   {change: func(r *agent.Receipt) { r.Program = "x" }, says: "does not say"},
		"a relative path":   {change: func(r *agent.Receipt) { r.Path = "codex" }, says: "does not say"},
		"the program gone":  {change: func(r *agent.Receipt) { r.Path += "x" }, says: "no longer exists"},
		"empty":             {raw: " ", says: "cannot be read"},
		"null":              {raw: "null", says: "does not say"},
		"an array":          {raw: "[]", says: "cannot be read"},
		"a byte order mark": {raw: "\ufeff{}", says: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			b := []byte(c.raw)
			if c.change != nil {
				r := good
				c.change(&r)
				b, _ = json.Marshal(r)
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			got, err := agent.ReadInstalled(home, New(), "laufwerk prepare local")
			switch {
			case c.ok && (err != nil || got.Path != program):
				t.Errorf("%q, %v", got.Path, err)
			case !c.ok && (!failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), c.says) || failure.As(err).Hint != "laufwerk prepare local"):
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNamesThatOutliveAProcess holds what is stored, printed and provisioned under names that are made of parts.
func TestNamesThatOutliveAProcess(t *testing.T) {
	p := New()
	profile := p.Credential().Profile
	for got, want := range map[string]string{
		p.Name() + ".program":                             "codex.program",
		p.Name() + ".login":                               "codex.login",
		p.Credential().Kind:                               "codex-subscription",
		profile.ID:                                        "laufwerk-codex",
		profile.Own:                                       "codex",
		policy.Binaries(p.Name()):                         "/sandbox/.harness-bootstrap/codex/node_modules/**",
		agent.ReceiptPath("/home", p.Name()):              "/home/harness/codex/receipt.json",
		p.Recipe().Binary("linux/amd64"):                  "node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
		p.Recipe().Binary("linux/arm64"):                  "node_modules/@openai/codex-linux-arm64/vendor/aarch64-unknown-linux-musl/bin/codex",
		p.Recipe().ExpectedVersion():                      "codex-cli " + p.Recipe().Version,
		strings.Join(agent.Programs{p}.Refused().Own, ""): "CODEX_HOME",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
