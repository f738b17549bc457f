package scripts_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// bashProject are a project whose agent is bash: a prompt is a script. The workflow `job` has a file changed and one made,
// asks, and writes back.
func bashProject() map[string]string {
	return map[string]string{
		"file.txt": "original\n",
		"laufwerk/execution.ts": `import { createLocalExecution } from "@laufwerk/execution/local";
import { createCommand } from "@laufwerk/sdk/harness/command";

export const execution = createLocalExecution();
export const agent = execution.agent({ harness: createCommand({ command: ["bash", "-e"] }) });
`,
		"laufwerk/laufwerk.config.ts": `import { defineConfig } from "@laufwerk/sdk";
import { execution } from "./execution";

export default defineConfig({ projectId: "test", executions: [execution] });
`,
		"laufwerk/workflows/job/workflow.ts": `import { defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";
import { agent, execution } from "../../execution";

export const workflow = defineWorkflow<unknown, string>({
  name: "job",
  *run() {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const session = yield* Session.open({ key: "writer", agent, workspace });
    yield* session.ask({ key: "edit", prompt: "echo changed > file.txt; echo new > new.txt; echo edited" });
    yield* session.close();
    if (!(yield* Human.confirm({ key: "approve", title: "Write back?", workspace }))) return "declined";
    yield* Workspace.writeBack({ workspace });
    return "written";
  },
});
`,
	}
}

func bashprojectCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: bashproject DIR")
	}
	for name, content := range bashProject() {
		path := filepath.Join(ts.MkAbs(args[0]), filepath.FromSlash(name))
		if _, err := os.Lstat(path); err == nil {
			continue
		}
		ts.Check(os.MkdirAll(filepath.Dir(path), 0o755))
		ts.Check(os.WriteFile(path, []byte(content), 0o644))
	}
}

// hintCommand holds that a hint can be pasted: by default every line of it is a command that a shell takes.
func hintCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: hint CODE [N]")
	}
	_, after, found := strings.Cut("\n"+ts.ReadFile("stderr"), "\nnext: ")
	if !found {
		ts.Fatalf("the last command ended without a hint:\n%s", ts.ReadFile("stderr"))
	}
	var lines []string
	for line := range strings.SplitSeq(after, "\n") {
		if len(lines) > 0 && !strings.HasPrefix(line, "      ") {
			break
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	n := 1
	if len(args) == 2 {
		var err error
		n, err = strconv.Atoi(args[1])
		ts.Check(err)
	}
	if n < 1 || n > len(lines) {
		ts.Fatalf("the hint has no line %d: %q", n, lines)
	}
	exitsCommand(ts, false, []string{args[0], "sh", "-c", lines[n-1]})
}

func unchangedCommand(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: unchanged CODE DIR COMMAND...")
	}
	before := contents(ts, args[1])
	exitsCommand(ts, false, append([]string{args[0]}, args[2:]...))
	after := contents(ts, args[1])
	for path, was := range before {
		if is, ok := after[path]; !ok {
			ts.Fatalf("%s is gone", path)
		} else if is != was {
			ts.Fatalf("%s was %s and is %s", path, was, is)
		}
	}
	for path := range after {
		if _, ok := before[path]; !ok {
			ts.Fatalf("%s was made", path)
		}
	}
}

// contents are the files and directories below dir, which need not be there. Locks name whoever took them last.
func contents(ts *testscript.TestScript, dir string) map[string]string {
	found := map[string]string{}
	root := ts.MkAbs(dir)
	ts.Check(filepath.WalkDir(root, func(path string, e os.DirEntry, err error) error {
		switch {
		case errors.Is(err, os.ErrNotExist) && path == root:
			return nil
		case err != nil:
			return err
		case e.IsDir() && e.Name() == "locks":
			return filepath.SkipDir
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		found[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			found[path] += fmt.Sprintf(" %d bytes, %x", len(b), sha256.Sum256(b))
		}
		return nil
	}))
	return found
}
