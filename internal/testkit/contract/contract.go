// Package contract holds every provider to what the rest of laufwerk relies on: the same cases for each, in the tests of its own
// package.
package contract

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// limit bounds a case that hangs.
const limit = 2 * time.Minute

// Case is a provider, and a place where it can make sessions.
type Case struct {
	Provider providers.Provider
	Options  string // of a target, JSON
	// Intent is of a session that was not made yet, each time of another one.
	Intent func() resource.Intent
	// Dir is a session's private directory on this host.
	Dir func(in resource.Intent) string
	// Runs says that commands can be run in its sandboxes here. Host is a variable of the worker's, which no command may have.
	Runs bool
	Host string
	// Shell is a program of its sandboxes that takes `-c`.
	Shell string
}

// Hold runs all cases.
func Hold(t *testing.T, c Case) {
	t.Helper()
	t.Run("what it says of itself", c.info)
	t.Run("one form of options", c.options)
	t.Run("from its making to its absence", c.life)
	t.Run("a worker that knows the intent alone", c.another)
	if c.Runs {
		t.Run("commands", c.commands)
		t.Run("files", c.files)
	}
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return ctx
}

// info: what a provider does not do has a reason that people read.
func (c Case) info(t *testing.T) {
	i := c.Provider.Info()
	if i.Kind == "" || i.Isolation == "" || i.ReadOnly == (i.ReadOnlyReason != "") || i.Skills == (i.SkillsReason != "") {
		t.Errorf("%+v", i)
	}
}

// options: there is one normalised form, and an option that is none is named with the one that is meant.
func (c Case) options(t *testing.T) {
	def := c.definition(t)
	again, err := c.Provider.Validate(def.Options)
	if err != nil || again.Fingerprint != def.Fingerprint || !bytes.Equal(again.Options, def.Options) || def.Kind != c.Provider.Info().Kind || def.ID == "" {
		t.Errorf("%+v becomes %+v, %v", def, again, err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Options), &fields); err != nil {
		t.Fatal(err)
	}
	fields["idd"] = json.RawMessage(`"x"`)
	wrong, _ := json.Marshal(fields)
	_, err = c.Provider.Validate(wrong)
	if f := failure.As(err); f == nil || !slices.Equal(f.Paths, []string{"idd"}) || !strings.Contains(f.Message, "did you mean `id`?") {
		t.Errorf("an option that is none: %v", err)
	}
}

func (c Case) definition(t *testing.T) targets.Definition {
	t.Helper()
	def, err := c.Provider.Validate(json.RawMessage(c.Options))
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// absent holds that something is not there, by evidence, and that it cannot be entered.
func (c Case) absent(t *testing.T, in resource.Intent) {
	t.Helper()
	if o := c.Provider.Observe(bounded(t), in); o.Presence != resource.Absent || len(o.Evidence) == 0 {
		t.Errorf("%+v", o)
	}
	if sb, err := c.Provider.Enter(bounded(t), in, c.definition(t)); !failure.Is(err, failure.SessionLost) {
		t.Errorf("entered: %v, %v", sb, err)
	}
}

// made makes a session, which ends with the test.
func (c Case) made(t *testing.T) resource.Intent {
	t.Helper()
	in := c.Intent()
	r := c.Provider.Create(bounded(t), in)
	if r.Resource != "" {
		in.Resource = r.Resource
	}
	t.Cleanup(func() { c.deleteUntilAbsent(t, in) })
	if r.Outcome != resource.Done || r.Resource == "" || r.Err != nil {
		t.Fatalf("%+v", r)
	}
	return in
}

func (c Case) deleteUntilAbsent(t *testing.T, in resource.Intent) {
	t.Helper()
	for ctx := bounded(t); ; time.Sleep(10 * time.Millisecond) { // to be asked for is not to be gone
		if r := c.Provider.Delete(ctx, in); r.Outcome != resource.Done {
			t.Errorf("delete: %+v", r)
			return
		}
		if o := c.Provider.Observe(ctx, in); o.Presence == resource.Absent || ctx.Err() != nil {
			break
		}
	}
	c.absent(t, in)
}

// life: what was made is found, by its name and by its id, and once; what was deleted is observed to be absent, and may be
// deleted again.
func (c Case) life(t *testing.T) {
	in := c.made(t)
	named := in
	named.Resource = ""
	for _, known := range []resource.Intent{in, named} {
		if o := c.Provider.Observe(bounded(t), known); o.Presence != resource.Present || o.Resource != in.Resource {
			t.Errorf("%+v, made was %s", o, in.Resource)
		}
		if r := c.Provider.Resolve(bounded(t), known); r.Outcome != resource.Done || r.Resource != in.Resource {
			t.Errorf("resolved: %+v, made was %s", r, in.Resource)
		}
	}
	c.deleteUntilAbsent(t, in)
	if r := c.Provider.Delete(bounded(t), in); r.Outcome != resource.Done {
		t.Errorf("a second delete: %+v", r)
	}
}

// another: the intent is enough to enter, to fence and to end, without the project.
func (c Case) another(t *testing.T) {
	in := c.made(t)
	sb, err := c.Provider.Enter(bounded(t), in, targets.Definition{})
	if err != nil {
		t.Fatal(err)
	}
	if f := sb.Fence(bounded(t)); !f.Sure {
		t.Errorf("%+v", f)
	}
	if o := c.Provider.Observe(bounded(t), in); o.Presence != resource.Present {
		t.Errorf("it does not outlive a fence: %+v", o)
	}
}

// run runs a script under a supervisor to its end.
func (c Case) run(t *testing.T, in resource.Intent, sb providers.Sandbox, name, script string) (stdout string, exit supervise.Exit) {
	t.Helper()
	p, err := supervise.Start(bounded(t), sb.Launcher(), filepath.Join(c.Dir(in), "ops", name), supervise.Spec{
		Argv: []string{c.Shell, "-c", script}, Env: sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(in.Claim, name), MaxOutput: 1 << 20, Grace: time.Second,
		Stdin: []byte("\x00in\xff"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if exit, err = p.Wait(bounded(t)); err != nil {
		t.Fatal(err)
	}
	out, _, err := p.Output(supervise.Stdout)
	if err != nil {
		t.Fatal(err)
	}
	return string(out), exit
}

// commands: their input, output, end, directory and environment; and a fence that ends what one has left behind.
func (c Case) commands(t *testing.T) {
	t.Setenv(c.Host, "canary")
	in := c.made(t)
	sb, err := c.Provider.Enter(bounded(t), in, c.definition(t))
	if err != nil {
		t.Fatal(err)
	}
	home := "'" + sb.Home() + "'"
	for name, r := range map[string]struct {
		script, out string
		code        int
	}{
		"code":        {"echo out; echo talk >&2; exit 7", "out\n", 7},
		"signal":      {"kill -TERM $$", "", 143},
		"input":       {"cat", "\x00in\xff", 0},
		"directory":   {"pwd -P", sb.Workdir() + "\n", 0},
		"home":        {": >" + home + "/mine && echo writable", "writable\n", 0},
		"environment": {`echo "$` + c.Host + `$OPENAI_API_KEY"`, "\n", 0},
	} {
		if out, exit := c.run(t, in, sb, name, r.script); out != r.out || exit.Code != r.code {
			t.Errorf("%s: %q and %d, want %q and %d", name, out, exit.Code, r.out, r.code)
		}
	}
	if out, exit := c.run(t, in, sb, "leaves", "sleep 1000 >/dev/null 2>&1 & echo $! >"+home+"/left; kill -0 $! && echo lives"); out != "lives\n" || exit.Code != 0 {
		t.Errorf("%q, %+v", out, exit)
	}
	if out, _ := c.run(t, in, sb, "later", "kill -0 $(cat "+home+"/left) && echo lives"); out != "lives\n" {
		t.Errorf("what a completed command left running is gone: %q", out)
	}
	if f := sb.Fence(bounded(t)); !f.Sure {
		t.Fatalf("%+v", f)
	}
	if out, _ := c.run(t, in, sb, "fenced", "kill -0 $(cat "+home+"/left) 2>/dev/null || echo gone"); out != "gone\n" {
		t.Errorf("it outlived the fence: %q", out)
	}
}

// files: whole or not at all, none that is missing is empty, and none outside of the workspace.
func (c Case) files(t *testing.T) {
	in := c.made(t)
	sb, err := c.Provider.Enter(bounded(t), in, c.definition(t))
	if err != nil {
		t.Fatal(err)
	}
	const name = "contract/deep/file"
	for _, data := range []string{"\x00\xff", "", "longer than before"} {
		if err := sb.WriteFile(bounded(t), name, []byte(data)); err != nil {
			t.Fatal(err)
		}
		if got, err := sb.ReadFile(bounded(t), name); err != nil || string(got) != data {
			t.Errorf("%q, %v, want %q", got, err, data)
		}
	}
	if _, err := sb.ReadFile(bounded(t), "contract/nothing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	for _, bad := range []string{"../outside", "contract", "contract/deep/file/below", ""} {
		if _, err := sb.ReadFile(bounded(t), bad); err == nil {
			t.Errorf("%q can be read", bad)
		}
		if err := sb.WriteFile(bounded(t), bad, nil); err == nil {
			t.Errorf("%q can be written", bad)
		}
	}
	if err := sb.WriteFile(bounded(t), name, make([]byte, providers.MaxFile+1)); err == nil {
		t.Error("a file of more than MaxFile bytes can be written")
	}
	c.run(t, in, sb, "link", "ln -s /etc contract/link && rm -r contract/deep")
	if _, err := sb.ReadFile(bounded(t), "contract/link/passwd"); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("through a link: %v", err)
	}
}
