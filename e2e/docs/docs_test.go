package docs_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// documents are what people read. Everything in them is tried:
//
//	```console            each "$ " line is run in a scratch directory of the document ("> " continues it); the lines below
//	                      it must come out in this order. "…" alone stands for lines that are left out, within a line
//	                      for any text. Ids, times and the like differ from run to run, see steady.
//	```console exit=8     the last command ends with this code, all others with 0
//	```console in=source  is run in the repository
//	```console shown      is not run; may only hold git clone and make
//	```LANG file=PATH     is written to this file of the scratch directory
//	```LANG same=PATH     is what that file holds already
//
// And `laufwerk …` in the text must be a command with flags that there are.
func documents(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(e2e.RepositoryRoot, "docs/*.md"))
	if err != nil || len(list) < 4 {
		t.Fatalf("docs holds %v: %v", list, err)
	}
	for _, name := range []string{"README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"} {
		list = append(list, filepath.Join(e2e.RepositoryRoot, name))
	}
	return list
}

type block struct {
	line   int // of its fence
	lang   string
	marks  map[string]string
	body   string
	closed bool
}

var fence = regexp.MustCompile("^```(\\w*)(.*)$")

// blocks are the fenced blocks of a document, and the text around them.
func blocks(text string) (fenced []block, rest string) {
	var b *block
	for i, line := range strings.Split(text, "\n") {
		switch m := fence.FindStringSubmatch(line); {
		case b == nil && m != nil:
			fenced = append(fenced, block{line: i + 1, lang: m[1], marks: map[string]string{}})
			b = &fenced[len(fenced)-1]
			for _, mark := range strings.Fields(m[2]) {
				k, v, _ := strings.Cut(mark, "=")
				b.marks[k] = v
			}
		case b != nil && line == "```":
			b.closed = true
			b = nil
		case b != nil:
			b.body += line + "\n"
		default:
			rest += line + "\n"
		}
	}
	return fenced, rest
}

func TestDocumentsAreTrue(t *testing.T) {
	for _, path := range documents(t) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			t.Parallel()
			fenced, rest := blocks(string(text))
			checkLinks(t, path, rest)
			checkMentions(t, rest)
			r := newReader(t)
			for _, b := range fenced {
				if !b.closed {
					t.Fatalf("line %d: the block is not closed", b.line)
				}
				r.block(b)
			}
			r.typeCheck()
		})
	}
}

// reader does what somebody does who reads a document from its beginning to its end.
type reader struct {
	t    *testing.T
	dir  string            // the scratch directory
	at   string            // the working directory
	real map[string]string // what a document's id is here
	env  []string
	ts   bool // the document has TypeScript of its own
}

func newReader(t *testing.T) *reader {
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, dir: filepath.Join(dir, "work"), real: map[string]string{}}
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	r.at = r.dir
	r.env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TERM=dumb", "LANG=C.UTF-8", "TMPDIR=" + dir, "WORK=" + dir, "LAUFWERK_CI=" + os.Getenv("LAUFWERK_CI")}
	goEnv, err := exec.Command("go", "env", "GOCACHE", "GOMODCACHE", "GOPATH").Output()
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range strings.Fields(string(goEnv)) {
		r.env = append(r.env, []string{"GOCACHE", "GOMODCACHE", "GOPATH"}[i]+"="+v)
	}
	t.Cleanup(func() {
		for deadline := time.Now().Add(e2e.HangLimit); ; time.Sleep(20 * time.Millisecond) {
			left := e2e.FindProcesses(dir)
			if len(left) == 0 {
				return
			}
			if time.Now().After(deadline) {
				t.Fatalf("processes are left: %v", left)
			}
		}
	})
	return r
}

func (r *reader) block(b block) {
	_, shown := b.marks["shown"]
	switch {
	case b.lang == "console" && shown:
		for _, c := range commandsOf(b.body) {
			for _, part := range strings.Split(c.text, " && ") {
				words := strings.Fields(part)
				switch words[0] {
				case "git", "cd":
				case "make":
					checkTargets(r.t, words[1:])
				default:
					r.t.Errorf("line %d: %q is not tried", b.line, part)
				}
			}
		}
	case b.lang == "console":
		list := commandsOf(b.body)
		for i, c := range list {
			code := 0
			if i == len(list)-1 && b.marks["exit"] != "" {
				code, _ = strconv.Atoi(b.marks["exit"])
			}
			at := &r.at
			if b.marks["in"] == "source" {
				source, err := filepath.Abs(e2e.RepositoryRoot)
				if err != nil {
					r.t.Fatal(err)
				}
				at = &source
			}
			r.command(b.line, c, code, at)
		}
	case b.marks["file"] != "":
		path := filepath.Join(r.at, b.marks["file"])
		r.ts = r.ts || strings.HasSuffix(path, ".ts")
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(b.body), 0o644); err != nil {
			r.t.Fatal(err)
		}
	case b.marks["same"] != "":
		got, err := os.ReadFile(filepath.Join(r.at, b.marks["same"]))
		if err != nil || string(got) != b.body {
			r.t.Errorf("line %d: %s holds something else, %v:\n%s", b.line, b.marks["same"], err, got)
		}
	case len(b.marks) > 0:
		r.t.Errorf("line %d: %v means nothing for a block of %q", b.line, b.marks, b.lang)
	}
}

type documented struct {
	text string
	out  []string
}

// commandsOf are the commands of a console block, each with the output that is shown below it.
func commandsOf(body string) []documented {
	var list []documented
	open := false // the last line belongs to a command
	for line := range strings.Lines(body) {
		line = strings.TrimSuffix(line, "\n")
		last := len(list) - 1
		switch {
		case strings.HasPrefix(line, "$ laufwerk resume") && last >= 0 && strings.Contains(list[last].text, "demo --kill"):
			list[last].out = append(list[last].out, line) // the demo prints what it does
		case strings.HasPrefix(line, "$ "):
			list = append(list, documented{text: line[2:]})
			open = true
			continue
		case strings.HasPrefix(line, "> ") && open:
			list[last].text += "\n" + line[2:]
			continue
		case last >= 0:
			list[last].out = append(list[last].out, line)
		}
		open = false
	}
	return list
}

// command runs one command of a document in *at, where the next one goes on.
func (r *reader) command(line int, c documented, code int, at *string) {
	r.t.Helper()
	text := c.text
	for shown, here := range r.real {
		text = strings.ReplaceAll(text, shown, here)
	}
	where := filepath.Join(r.dir, "..", "where")
	cmd := exec.CommandContext(r.t.Context(), "bash", "-c", text+"\ncode=$?\npwd > "+where+"\nexit $code")
	cmd.Dir, cmd.Env = *at, r.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		r.t.Fatalf("line %d: %s: %v", line, text, err)
	}
	if got := cmd.ProcessState.ExitCode(); got != code {
		r.t.Fatalf("line %d: `%s` ends with %d, not %d:\n%s", line, text, got, code, out.String())
	}
	next, err := os.ReadFile(where)
	if err != nil {
		r.t.Fatal(err)
	}
	*at = strings.TrimSpace(string(next))
	r.compare(line, c, strings.Split(out.String(), "\n"))
}

// compare finds the lines that are shown, in their order, in what came out.
func (r *reader) compare(line int, c documented, got []string) {
	r.t.Helper()
	i, gap := 0, false
	for _, want := range c.out {
		if want == "…" {
			gap = true
			continue
		}
		re := pattern(want)
		found := slices.IndexFunc(got[i:], func(s string) bool { return re.MatchString(steady(s)) })
		if found < 0 || found > 0 && !gap {
			r.t.Fatalf("line %d: `%s` does not print %q after line %d of\n%s", line, c.text, want, i, strings.Join(got, "\n"))
		}
		shown, here := runID.FindAllString(want, -1), runID.FindAllString(got[i+found], -1)
		for n := range min(len(shown), len(here)) {
			r.real[shown[n]] = here[n]
		}
		i, gap = i+found+1, false
	}
	if rest := strings.TrimSpace(strings.Join(got[i:], "\n")); rest != "" && !gap && len(c.out) > 0 && c.out[len(c.out)-1] != "" && !strings.HasSuffix(c.out[len(c.out)-1], "…") {
		r.t.Fatalf("line %d: `%s` also prints, without … for it:\n%s", line, c.text, rest)
	}
}

func pattern(want string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(steady(want)), "…", ".*") + "$")
}

var (
	runID  = regexp.MustCompile(`\b\d{6}-[a-z0-9]{8}\b`)
	varied = regexp.MustCompile(strings.Join([]string{
		runID.String(), `\bc[a-z2-7]{15}\b`, `\b[0-9a-f]{64}\b`, `\d\d:\d\d:\d\d(\.\d{3})?`, `\d{4}-\d\d-\d\d \d\d:\d\d`, `\b\d+(\.\d+)?m?s\b`,
		`worker \d+`, `\S*/laufwerk-demo-\d+`,
	}, "|"))
	blanks = regexp.MustCompile(`\s+`)
)

// steady takes out what differs from run to run, and between a terminal and a pipe.
func steady(line string) string {
	return strings.TrimSpace(blanks.ReplaceAllString(varied.ReplaceAllString(line, "~"), " "))
}

// typeCheck runs the real compiler on the project that a document's TypeScript went to.
func (r *reader) typeCheck() {
	if !r.ts {
		return
	}
	r.t.Run("types", func(t *testing.T) {
		tsc, err := filepath.Abs(filepath.Join(e2e.RepositoryRoot, "sdk/node_modules/.bin/tsc"))
		if err == nil {
			_, err = os.Stat(tsc)
		}
		testkit.Need(t, "tsc", err == nil, "make verify-sdk installs it")
		if out, err := exec.Command(tsc, "-p", filepath.Join(r.at, "laufwerk")).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

var link = regexp.MustCompile(`\]\(([^)#]+)(#[^)]*)?\)`)

func checkLinks(t *testing.T, path, text string) {
	for _, m := range link.FindAllStringSubmatch(text, -1) {
		if strings.Contains(m[1], "://") {
			continue
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), m[1])); err != nil {
			t.Errorf("the link to %s leads nowhere: %v", m[1], err)
		}
	}
}

var mention = regexp.MustCompile("`(?:\\$ )?(laufwerk [^`]+)`")

// checkMentions holds that commands which the text names are there, with the flags that it names.
func checkMentions(t *testing.T, text string) {
	for _, m := range mention.FindAllStringSubmatch(text, -1) {
		if err := isCommand(t, strings.Fields(m[1])[1:]); err != nil {
			t.Errorf("`%s`: %v", m[1], err)
		}
	}
}

func isCommand(t *testing.T, words []string) error {
	cmd := e2e.CommandTree(t)
	if words[0] == "COMMAND" || words[0] == "…" {
		return nil
	}
	for len(words) > 0 && cmd.HasSubCommands() {
		group := cmd
		for _, name := range strings.Split(words[0], "|") {
			i := slices.IndexFunc(group.Commands(), func(c *cobra.Command) bool { return c.Name() == name })
			if i < 0 {
				return fmt.Errorf("%s has no command %q", group.CommandPath(), name)
			}
			cmd = group.Commands()[i]
		}
		words = words[1:]
	}
	for _, w := range words {
		name, isFlag := strings.CutPrefix(strings.Trim(w, "[]"), "--")
		if !isFlag {
			continue
		}
		name, _, _ = strings.Cut(name, "=")
		known := false
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.InheritedFlags()} {
			known = known || set.Lookup(name) != nil
		}
		if !known && name != "help" {
			return fmt.Errorf("%s has no flag --%s", cmd.CommandPath(), name)
		}
	}
	return nil
}

func checkTargets(t *testing.T, words []string) {
	makefile, err := os.ReadFile(filepath.Join(e2e.RepositoryRoot, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range words {
		if w == "#" {
			return
		}
		if strings.Contains(w, "=") { // a variable
			continue
		}
		if !regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(w) + `:`).Match(makefile) {
			t.Errorf("make has no target %s", w)
		}
	}
}
