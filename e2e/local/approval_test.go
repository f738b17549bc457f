package local_test

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/creack/pty"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/workflow"
)

// An answer about a workspace is recorded with the content that was shown, and with who gave it: the user, the terminal, and
// the processes that led there.
func TestAnApprovalRecordsWhoGaveIt(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal=%t", terminal), func(t *testing.T) {
			t.Parallel()
			w := e2e.NewMachine(t)
			w.MustRun([]int{8}, "run", "job", "--no-input")
			run := w.OnlyRun().ID
			var shown struct {
				Run struct{ Waiting []workflow.Question }
			}
			if err := json.Unmarshal([]byte(w.MustRun([]int{0}, "runs", "show", run, "--json")), &shown); err != nil || len(shown.Run.Waiting) != 1 || shown.Run.Waiting[0].Digest == "" {
				t.Fatalf("%v, %+v", err, shown)
			}
			tty := ""
			if terminal {
				cmd := w.Command([]string{"TERM=xterm"}, "answer", run, "approve", "yes")
				at, name, err := pty.Open()
				if err != nil {
					t.Fatal(err)
				}
				defer at.Close()
				cmd.Stdin, cmd.Stdout, cmd.Stderr, tty = name, name, name, name.Name()
				go func() { _, _ = io.Copy(io.Discard, at) }()
				err = cmd.Run()
				_ = name.Close()
				if err != nil {
					t.Fatal(err)
				}
			} else {
				w.MustRun([]int{0}, "answer", run, "approve", "yes")
			}
			found := 0
			for _, r := range w.JournalRecords() {
				if r.Type != journal.Completed || r.Op != "human:approve" {
					continue
				}
				found++
				var a workflow.AnswerRecord
				if err := json.Unmarshal(r.Meta, &a); err != nil || a.Digest != shown.Run.Waiting[0].Digest || a.Workspace != shown.Run.Waiting[0].Workspace {
					t.Errorf("%v: %s, shown %+v", err, r.Meta, shown.Run.Waiting[0])
				}
				if who := a.Who; who.UID != os.Getuid() || who.Terminal != tty || len(who.Chain) < 2 || !strings.HasPrefix(who.Chain[1], fmt.Sprintf("%d ", os.Getpid())) {
					t.Errorf("%+v, on %q under %d", who, tty, os.Getpid())
				}
			}
			if found != 1 {
				t.Errorf("%d answers", found)
			}
			w.FinishAndCheck(1)
		})
	}
}
