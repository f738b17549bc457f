package scripts_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

const scripts = "../../testdata/script"

func TestMain(m *testing.M) {
	e2e.Main(m, map[string]func(){"onterminal": onTerminalCommand, "plainrenames": plainRenamesCommand})
}

// TestScript runs every folder of testdata/script. Builds with crash points only run the scripts that ask for them: the
// others are run without.
func TestScript(t *testing.T) {
	for _, folder := range folders(t) {
		files, err := filepath.Glob(filepath.Join(scripts, folder, "*.txtar"))
		if err != nil {
			t.Fatal(err)
		}
		if crash.Enabled {
			files = slices.DeleteFunc(files, func(file string) bool {
				text, err := os.ReadFile(file)
				return err == nil && !strings.Contains(string(text), "crashpoints]")
			})
		}
		if len(files) == 0 {
			continue // TestEveryScriptIsRun finds empty folders
		}
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			testscript.Run(t, testscript.Params{
				Files:               files,
				Setup:               setup,
				Cmds:                scriptCommands(),
				Condition:           condition,
				UpdateScripts:       *e2e.Update,
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
			})
		})
	}
}

func folders(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(scripts)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// TestEveryScriptIsRun finds scripts where TestScript does not look, and folders that hold none.
func TestEveryScriptIsRun(t *testing.T) {
	for _, folder := range folders(t) {
		if found, _ := filepath.Glob(filepath.Join(scripts, folder, "*.txtar")); len(found) == 0 {
			t.Errorf("testdata/script/%s holds no .txtar", folder)
		}
	}
	err := filepath.WalkDir(scripts, func(path string, e os.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(scripts, path)
		if strings.Count(rel, string(filepath.Separator)) != 1 || filepath.Ext(rel) != ".txtar" {
			t.Errorf("testdata/script/%s is not run: scripts are testdata/script/COMMAND/NAME.txtar", rel)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestEveryCommandHasScripts holds that each command is run by a script in its folder, as text and as JSON.
func TestEveryCommandHasScripts(t *testing.T) {
	for _, cmd := range e2e.LeafCommands(e2e.CommandTree(t)) {
		words := strings.Fields(cmd.CommandPath())[1:]
		files, _ := filepath.Glob(filepath.Join(scripts, words[0], "*.txtar"))
		plain, json := false, false
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if strings.Contains(line, cmd.CommandPath()) {
					asJSON := strings.Contains(line, "--json")
					json, plain = json || asJSON, plain || !asJSON
				}
			}
		}
		if !plain || !json {
			t.Errorf("testdata/script/%s: `%s` is run as text: %t, with --json: %t", words[0], cmd.CommandPath(), plain, json)
		}
	}
}
