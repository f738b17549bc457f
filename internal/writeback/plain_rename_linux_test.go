package writeback

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func TestFileSystemThatCannotExchange(t *testing.T) {
	for _, noExchange := range []bool{false, true} {
		at := fast(t)
		w := newSourceFixtureIn(t, at, allBase, allFrozen, allBase)
		cmd := exec.Command(must(os.Executable()), "-test.run", "^TestChild$")
		cmd.Env = append(os.Environ(), childDo+"=apply", childDir+"="+at, childDeny+"=1")
		if noExchange {
			cmd.Env = append(cmd.Env, childTwo+"=1")
		}
		out, err := cmd.CombinedOutput()
		if noExchange {
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			w.holds(allFrozen)
			continue
		}
		if err == nil || !strings.Contains(string(out), "cannot exchange two files") {
			t.Errorf("%v\n%s", err, out)
		}
		w.holds(allBase)
	}
}

// A write-back whose worker was killed before it had tried the exchange can be continued without it.
func TestContinueWithoutExchange(t *testing.T) {
	for _, noExchange := range []bool{false, true} {
		at := fast(t)
		w := newSourceFixtureIn(t, at, allBase, allFrozen, allBase)
		p, err := Check(context.Background(), w.req)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.start(); err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(must(os.Executable()), "-test.run", "^TestChild$")
		cmd.Env = append(os.Environ(), childDo+"=continue", childDir+"="+at, childDeny+"=1")
		want := allBase
		if noExchange {
			cmd.Env = append(cmd.Env, childTwo+"=1")
			want = allFrozen
		}
		if out, err := cmd.CombinedOutput(); (err == nil) != noExchange || !noExchange && !strings.Contains(string(out), "cannot exchange two files") {
			t.Errorf("%v\n%s", err, out)
		}
		w.holds(want)
	}
}
