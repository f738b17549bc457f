package session_test

import (
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/session"
)

// TestATimeoutDoesNotDependOnTheSupervisor, which a command can stop.
func TestATimeoutDoesNotDependOnTheSupervisor(t *testing.T) {
	t.Parallel()
	w := newRunFixture(t)
	m := w.worker()
	m.Overdue = time.Second
	o := w.opened(m, "s", w.agent(talker))
	op := &operation{name: "stops"}
	_, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: "kill -STOP $PPID; sleep 1000", Timeout: 50}, op)
	wantFailure(t, err, failure.CommandTimeout)
	if left := marked(t, o.Claim+"/"); left > 0 {
		t.Errorf("%d processes are left", left)
	}
	if value, _, err := w.ask(m, t.Context(), &operation{name: "next"}, "next"); err != nil || value != "well" {
		t.Errorf("%v, %v", value, err)
	}
}

// TestTamperedRecordsEndTheOperationAndNotTheRun: what a command does to its own records is no condition of the machine, which
// would be waited for.
func TestTamperedRecordsEndTheOperationAndNotTheRun(t *testing.T) {
	t.Parallel()
	for name, script := range map[string]string{
		"no JSON":       `printf nonsense >exit`,
		"a number":      `echo '{"code":1e99}' >exit`,
		"a fifo":        `mkfifo exit`,
		"a link":        `ln -s /dev/zero exit`,
		"a folder":      `rm -f stdout; mkdir stdout; printf '{"code":0,"stdoutBytes":5}' >new; mv new exit`,
		"a lock's link": `ln -sf /dev/zero lock`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newRunFixture(t)
			m := w.worker()
			o := w.opened(m, "s", w.agent(talker))
			_, _, err := m.Exec(t.Context(), "s", session.ExecArgs{Command: `cd ../run/sessions/*/ops/* && ` + script + `; sleep 1000`}, &operation{name: "op"})
			if !failure.Is(err, failure.Failed) && !failure.Is(err, failure.OutcomeUnknown) {
				t.Errorf("%v", err)
			}
			if left := marked(t, o.Claim+"/"); left > 0 {
				t.Errorf("%d processes are left", left)
			}
			if err := m.Close(t.Context(), "s"); err != nil && !failure.Is(err, failure.CloseFailed) {
				t.Errorf("%v", err)
			}
		})
	}
}
