package local_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
)

// writeScriptedNode is a Node and an npm of the machine's own. The npm counts, is slow enough to be met, and installs a program that
// tells the version.
func writeScriptedNode(w *e2e.Machine) []string {
	w.WriteFile(filepath.Join(w.Dir, "bin/node"), "#!/bin/sh\necho v22.1.0\n")
	w.WriteFile(filepath.Join(w.Dir, "bin/npm"), `#!/bin/sh
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
		if err := os.Chmod(filepath.Join(w.Dir, name), 0o755); err != nil {
			w.T.Fatal(err)
		}
	}
	return []string{"PATH=" + filepath.Join(w.Dir, "bin") + ":" + os.Getenv("PATH"), "COUNTS=" + w.Counts}
}

func TestEightPreparationsMakeOneInstallation(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	env := writeScriptedNode(w)
	var all sync.WaitGroup
	var mu sync.Mutex
	fresh := 0
	for range 8 {
		all.Go(func() {
			code, out, errs := w.Run(env, "prepare", "local", "--json")
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
	if n := w.CountRan()["npm"]; n != 1 || fresh != 1 {
		t.Errorf("npm ran %d times, %d preparations say that they installed", n, fresh)
	}
	w.CheckPrepared()
}
