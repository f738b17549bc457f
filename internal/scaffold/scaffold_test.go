package scaffold

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

func TestWords(t *testing.T) {
	for command, want := range map[string][]string{
		`agent`:                  {"agent"},
		` agent  -p	x `:          {"agent", "-p", "x"},
		`a 'b c' "d e" f\ g`:     {"a", "b c", "d e", "f g"},
		`a '' ""`:                {"a", "", ""},
		`a 'x'"y"z`:              {"a", "xyz"},
		`a "q\"q" "\n" '\' '|'`:  {"a", `q"q`, `\n`, `\`, "|"},
		`bash -c 'a | b > "$c"'`: {"bash", "-c", `a | b > "$c"`},
		`é 日本`:                   {"é", "日本"},
	} {
		if got, err := Words(command); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Words(%q) = %q, %v; want %q", command, got, err, want)
		}
	}
	for _, command := range []string{"", "  ", `''`, `a "b`, `a 'b`, `a\`, "a | b", "a && b", "a > f", "a $X", "a `b`", "a *", "a; b", "a\x00"} {
		if got, err := Words(command); !failure.Is(err, failure.Usage) {
			t.Errorf("Words(%q) = %q, %v; want a usage error", command, got, err)
		}
	}
}

func TestProjectID(t *testing.T) {
	for root, want := range map[string]string{
		"/x/my-app": "my-app", "/x/My App!": "My-App", "/x/日本": "project", "/": "project", "/x/.hidden": "hidden",
		"/x/" + strings.Repeat("a", 100): strings.Repeat("a", 63), "/x/a_b.c": "a_b.c",
	} {
		if got := ProjectID(root); got != want {
			t.Errorf("ProjectID(%q) = %q, want %q", root, got, want)
		}
	}
}

func TestRenderedValuesCannotEscapeTheirStrings(t *testing.T) {
	files, err := Render(Options{ProjectID: "x", Execution: "local", Example: true, AgentCommand: []string{`a"];evil()//`, "<&>\n\u2028", `\`}})
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for _, f := range files {
		all += string(f.Content)
	}
	if want := `command: ["a\"];evil()//", "<&>\n\u2028", "\\"]`; !strings.Contains(all, want) {
		t.Errorf("no %s in\n%s", want, all)
	}
	for _, left := range []string{"PROJECT_ID", "AGENT_PROGRAM"} {
		if strings.Contains(all, left) {
			t.Errorf("%s was left", left)
		}
	}
	if _, err := Render(Options{Execution: "nosuch"}); !failure.Is(err, failure.Usage) {
		t.Errorf("an unknown execution: %v", err)
	}
}

// What the template of a target says stands there as it is asked for, and nothing of the placeholders is left.
func TestRenderedTargets(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"local":           {Options{Execution: "local"}, "createLocalExecution();\n"},
		"local, named":    {Options{Execution: "local", Target: "x", Example: true}, `createLocalExecution({ id: "x", credentials: "codex-subscription" });` + "\n"},
		"docker":          {Options{Execution: "docker"}, "createDockerExecution({\n  resources: {\n    cpus: 2,\n    memoryBytes: 4 * 1024 ** 3,\n    swapBytes: 0,\n    pids: 512,\n  },\n});\n"},
		"docker, named":   {Options{Execution: "docker", Target: `x`}, "createDockerExecution({\n  id: \"x\",\n  resources: {\n"},
		"docker, example": {Options{Execution: "docker", Example: true}, "createDockerExecution({\n  credentials: \"codex-subscription\",\n  resources: {\n"},
		"openshell": {Options{Execution: "openshell"}, "createOpenShellExecution({\n  id: \"secure-coding\",\n  gateway: \"laufwerk-local\",\n" +
			"  credentials: { kind: \"codex-subscription\", provider: \"laufwerk-codex\" },\n  policy,\n  resources: { cpus: 2, memoryBytes: 4 * 1024 ** 3 },\n});\n"},
		"openshell, named":        {Options{Execution: "openshell", Target: "x", Example: true}, "createOpenShellExecution({\n  id: \"x\",\n  gateway:"},
		"openshell, as the kind":  {Options{Execution: "openshell", Target: "openshell"}, "createOpenShellExecution({\n  id: \"openshell\",\n  gateway:"},
		"openshell, and a policy": {Options{Execution: "openshell"}, `import { policy } from "./openshell/policy";`},
	} {
		t.Run(name, func(t *testing.T) {
			files, err := render(c.o, "execution.m")
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range files {
				if f.Path == "laufwerk/execution.m.ts" && !strings.Contains(string(f.Content), c.want) {
					t.Errorf("no %s in\n%s", c.want, f.Content)
				}
				if strings.Contains(string(f.Content), "TARGET_ID") {
					t.Errorf("a placeholder was left in %s", f.Path)
				}
			}
		})
	}
}

// The example of a target that enforces read-only access is the same with a reviewer more.
func TestTheReviewedExampleIsTheExample(t *testing.T) {
	lines := map[string][]string{}
	for _, kind := range []string{"local", "docker"} {
		files, err := Render(Options{ProjectID: "p", Execution: kind, Example: true})
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if f.Path == examplePath {
				lines[kind] = strings.Split(string(f.Content), "\n")
			}
		}
	}
	var gone []string
	at := 0
	for _, line := range lines["local"] {
		if i := slices.Index(lines["docker"][at:], line); i >= 0 {
			at += i + 1
		} else {
			gone = append(gone, strings.TrimSpace(line))
		}
	}
	want := []string{
		`import { defineWorkflow, Human, Session, Workspace } from "@laufwerk/sdk";`,
		`// Codex, with the login of your ChatGPT subscription: "laufwerk prepare local" installs it, "laufwerk doctor" checks it.`,
		`const { changes } = yield* Workspace.diff({ workspace });`,
		"description: `The check succeeds (repairs needed: ${repairs}): ${check}`,",
	}
	if !slices.Equal(gone, want) {
		t.Errorf("of the example, the one with a reviewer lacks\n%s", strings.Join(gone, "\n"))
	}
	docker := strings.Join(lines["docker"], "\n")
	closed, opened, asked := strings.Index(docker, "writer.close()"), strings.Index(docker, `access: "read-only"`), strings.Index(docker, "Human.confirm")
	if closed < 0 || opened < closed || asked < opened {
		t.Errorf("the writer is closed at %d, the reviewer opened at %d, the person asked at %d", closed, opened, asked)
	}
}

// The kinds with a reviewer have one example: they differ in what is said of the image, and of nothing else.
func TestTheReviewedExampleIsOne(t *testing.T) {
	example := func(o Options) string {
		files, err := Render(o)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(files, func(f File) bool { return f.Path == examplePath })
		return string(files[i].Content)
	}
	for name, command := range map[string][]string{"Codex": nil, "a program": {"agent"}} {
		docker, openshell := example(Options{Execution: "docker", Example: true, AgentCommand: command}), example(Options{Execution: "openshell", Example: true, AgentCommand: command})
		if !strings.Contains(openshell, `"laufwerk prepare openshell" puts it into an image`) == (command == nil) {
			t.Errorf("with %s:\n%s", name, openshell)
		}
		if strings.ReplaceAll(openshell, "laufwerk prepare openshell", "laufwerk prepare docker") != docker {
			t.Errorf("with %s, the examples differ:\n%s\n%s", name, openshell, docker)
		}
	}
}

func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		b, err := os.ReadFile(p)
		rel, _ := filepath.Rel(root, p)
		out[rel] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCreateIsAllOrNothing(t *testing.T) {
	list := []File{{"laufwerk/a.ts", []byte("a")}, {"laufwerk/w/b.ts", []byte("b")}}
	want := map[string]string{"laufwerk/a.ts": "a", "laufwerk/w/b.ts": "b"}
	fine := func(_ context.Context, stage string) error {
		got := tree(t, stage)
		delete(got, owner)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("validated %v", got)
		}
		return nil
	}
	t.Run("an empty root", func(t *testing.T) {
		root := t.TempDir()
		if err := Create(context.Background(), root, list, fine); err != nil {
			t.Fatal(err)
		}
		if got := tree(t, root); !reflect.DeepEqual(got, want) {
			t.Errorf("%v", got)
		}
	})
	t.Run("what does not load is not written", func(t *testing.T) {
		root := t.TempDir()
		err := Create(context.Background(), root, list, func(context.Context, string) error { return errors.New("no") })
		if !failure.Is(err, failure.ProjectInvalid) {
			t.Errorf("%v", err)
		}
		if names, _ := os.ReadDir(root); len(names) != 0 {
			t.Errorf("left %v", names)
		}
	})
	t.Run("somebody makes the directory while it is validated", func(t *testing.T) {
		root := t.TempDir()
		err := Create(context.Background(), root, list, func(context.Context, string) error {
			if err := os.MkdirAll(filepath.Join(root, "laufwerk", "w"), 0o755); err != nil {
				return err
			}
			return os.WriteFile(filepath.Join(root, "laufwerk", "w", "b.ts"), []byte("theirs"), 0o644)
		})
		if !failure.Is(err, failure.AlreadyExists) {
			t.Errorf("%v", err)
		}
		if got, want := tree(t, root), map[string]string{"laufwerk/w/b.ts": "theirs"}; !reflect.DeepEqual(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	})
	t.Run("a dangling link is in the way too", func(t *testing.T) {
		root := t.TempDir()
		if err := os.Mkdir(filepath.Join(root, "laufwerk"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("/nowhere", filepath.Join(root, "laufwerk", "a.ts")); err != nil {
			t.Fatal(err)
		}
		if err := Create(context.Background(), root, list, fine); !failure.Is(err, failure.AlreadyExists) {
			t.Errorf("%v", err)
		}
	})
}
