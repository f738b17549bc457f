package local_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/app"
	"github.com/laufwerk/laufwerk/internal/system"
)

// runAt runs a command in this process, on a clock that is wrong by an offset.
func runAt(w *e2e.Machine, offset time.Duration, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	env := &system.Env{
		Args: args, Dir: w.Project, In: strings.NewReader(""), Out: &out, Err: &errs,
		Vars: map[string]string{"PATH": os.Getenv("PATH"), "HOME": w.Dir, "LAUFWERK_HOME": w.Home, "WORK": w.Dir},
		Now:  func() time.Time { return time.Now().Add(offset) },
	}
	code = app.Main(context.Background(), env)
	return code, out.String(), errs.String()
}

// C71: the clock jumps between the commands that work on a run, and while one does. No lease is stolen, no age and no
// duration is negative, nothing that lives is given up, and the run ends as ever.
func TestClockJumps(t *testing.T) {
	const day = 24 * time.Hour
	for name, jumps := range map[string][2]time.Duration{"forward then back": {day, -time.Hour}, "back then forward": {-time.Hour, day}} {
		t.Run(name, func(t *testing.T) {
			w := e2e.NewMachine(t)
			if err := os.WriteFile(filepath.Join(w.Counts, "hold"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			type result struct {
				code   int
				stderr string
			}
			ended := make(chan result)
			go func() {
				code, _, errs := runAt(w, jumps[0], "run", "job", "--no-input")
				ended <- result{code, errs}
			}()
			for deadline := time.Now().Add(e2e.HangLimit); w.CountRan()["begin"] == 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("the turn does not begin")
				}
			}
			run := w.ListRuns()[0]
			if run.State != "running" {
				t.Errorf("while its worker lives, the run is %s", run.State)
			}
			for args, want := range map[string]int{"resume " + run.ID: 5, "cleanup " + run.ID: 5, "runs prune " + run.ID: 5, "cleanup --all --cancel --discard-changes": 0} {
				if code, out, errs := runAt(w, jumps[1], strings.Fields(args)...); code != want {
					t.Errorf("%s: exit %d, want %d: %s%s", args, code, want, out, errs)
				}
			}
			if err := os.Remove(filepath.Join(w.Counts, "hold")); err != nil {
				t.Fatal(err)
			}
			if r := <-ended; r.code != 8 {
				t.Fatalf("run: exit %d: %s", r.code, r.stderr)
			}
			if code, _, errs := runAt(w, jumps[1], "answer", run.ID, "approve", "yes"); code != 0 {
				t.Fatalf("answer: exit %d: %s", code, errs)
			}
			for _, args := range [][]string{{"runs", "show", run.ID}, {"runs", "list", "--all"}, {"claims", "list", "--all"}, {"runs", "logs", run.ID}} {
				for _, offset := range jumps {
					code, out, errs := runAt(w, offset, args...)
					if code != 0 || strings.Contains(out, " -") && negative(out) {
						t.Errorf("%v: exit %d: %s%s", args, code, out, errs)
					}
				}
			}
			code, out, _ := runAt(w, jumps[0], "runs", "show", run.ID, "--json")
			var doc any
			if err := json.Unmarshal([]byte(out), &doc); code != 0 || err != nil {
				t.Fatalf("runs show: exit %d, %v", code, err)
			}
			if at := negatives(doc, ""); len(at) > 0 {
				t.Errorf("negative: %v in %s", at, out)
			}
			w.FinishAndCheck(1)
		})
	}
}

// negative finds a duration like -59m59s in a text.
func negative(text string) bool {
	for word := range strings.FieldsSeq(text) {
		if d, err := time.ParseDuration(word); err == nil && d < 0 {
			return true
		}
	}
	return false
}

// negatives are the paths of numbers below zero.
func negatives(doc any, at string) (found []string) {
	switch v := doc.(type) {
	case map[string]any:
		for name, e := range v {
			found = append(found, negatives(e, at+"."+name)...)
		}
	case []any:
		for _, e := range v {
			found = append(found, negatives(e, at+"[]")...)
		}
	case float64:
		if v < 0 {
			found = append(found, at)
		}
	}
	return found
}
