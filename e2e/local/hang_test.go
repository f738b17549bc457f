package local_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
)

// recorder is a test that is failed for show.
type recorder struct {
	testing.TB
	said e2e.Output
}

func (r *recorder) Errorf(format string, args ...any) { fmt.Fprintf(&r.said, format, args...) }

// What hangs says how far it came and what it waits for, also where that is in a container.
func TestWhatHangsSaysWhere(t *testing.T) {
	t.Parallel()
	w := e2e.NewMachine(t)
	w.Mark(e2e.HoldFile)
	r := w.Start(nil, "run", "job", "--no-input")
	w.AwaitRan("begin", 1)
	shown := &recorder{TB: t}
	r.T = shown
	code, _, errs := r.WaitWithin(time.Millisecond)
	if code != 2 || !strings.Contains(errs, "goroutine 1 ") {
		t.Errorf("exit %d\n%s", code, errs)
	}
	for _, want := range []string{"laufwerk run job --no-input has not ended after 1ms", "stderr so far:\nrun ", "edit", "bash " + w.Dir + "/agent.sh"} {
		if !strings.Contains(shown.said.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &shown.said)
		}
	}
	w.Unmark(e2e.HoldFile)
	w.FinishAndCheck(1)
}
