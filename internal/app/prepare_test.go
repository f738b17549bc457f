package app_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/laufwerk/laufwerk/internal/prepare"
)

// scriptedNode is a Node and an npm of the world's own. The npm counts, is slow enough to be met, and installs a program that
// tells the version.
func (w *world) scriptedNode() []string {
	w.write(filepath.Join(w.dir, "bin/node"), "#!/bin/sh\necho v22.1.0\n")
	w.write(filepath.Join(w.dir, "bin/npm"), `#!/bin/sh
echo "npm" >> "$COUNTS/ran"
mkdir -p node_modules/@openai
sleep "${NPM_TAKES:-0.2}"
for at in linux-x64/vendor/x86_64-unknown-linux-musl linux-arm64/vendor/aarch64-unknown-linux-musl; do
	mkdir -p "node_modules/@openai/codex-$at/bin"
	printf '#!/bin/sh\necho codex-cli 0.171.0\n' > "node_modules/@openai/codex-$at/bin/codex"
	chmod 755 "node_modules/@openai/codex-$at/bin/codex"
done
`)
	for _, name := range []string{"bin/node", "bin/npm"} {
		if err := os.Chmod(filepath.Join(w.dir, name), 0o755); err != nil {
			w.t.Fatal(err)
		}
	}
	return []string{"PATH=" + filepath.Join(w.dir, "bin") + ":" + os.Getenv("PATH"), "COUNTS=" + w.counts}
}

// prepared checks that exactly one tree is there, and that the receipt names its program.
func (w *world) prepared() {
	w.t.Helper()
	path, err := prepare.Program(w.home, prepare.Codex)
	if err != nil {
		w.t.Fatal(err)
	}
	trees, err := os.ReadDir(filepath.Join(w.home, "harness", prepare.Codex))
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, e := range trees {
		names = append(names, e.Name())
	}
	if len(names) != 2 || !strings.HasPrefix(path, filepath.Join(w.home, "harness", prepare.Codex, names[0])+"/") {
		w.t.Errorf("prepared as %s among %v", path, names)
	}
}

func TestEightPreparationsMakeOneInstallation(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	env := w.scriptedNode()
	var all sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 8 {
		all.Go(func() {
			code, out, errs := w.laufwerk(env, "prepare", "local", "--json")
			var doc struct{ Reused bool }
			if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil {
				t.Errorf("exit %d, %v\n%s%s", code, err, out, errs)
			}
			mu.Lock()
			defer mu.Unlock()
			if !doc.Reused {
				fresh++
			}
		})
	}
	all.Wait()
	if n := w.ran()["npm"]; n != 1 || fresh != 1 {
		t.Errorf("npm ran %d times, %d preparations say that they installed", n, fresh)
	}
	w.prepared()
}
