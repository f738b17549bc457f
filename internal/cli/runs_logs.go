package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/journal"
)

type runsLogsOptions struct {
	*Deps
	Run    string
	Follow bool
}

func newRunsLogs(d *Deps) *cobra.Command {
	o := &runsLogsOptions{Deps: d}
	cmd := &cobra.Command{
		Use:     "logs RUN",
		Short:   "Print the events of a run, one per line",
		Example: "$ laufwerk runs logs 261129-k3f9x2ab -f\n$ laufwerk runs logs 261129-k3f9x2ab --json",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Run = args[0]
			return runRunsLogs(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "keep printing until no worker process executes the run")
	return cmd
}

func runRunsLogs(ctx context.Context, o *runsLogsOptions) error {
	s, err := o.Open.OpenToRead(ctx)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	if o.Follow {
		go stopWhenUnread(ctx, o.Deps, stop)
	}
	err = s.Events(ctx, o.Run, o.Follow, func(ev journal.Event) error {
		printLogEvent(o.Deps, ev)
		if err := o.UI.Document(ev); err != nil {
			return err
		}
		return o.UI.Closed()
	})
	if err == nil && o.Follow && ctx.Err() == nil {
		if r, err := s.Get(ctx, o.Run); err == nil {
			o.UI.Talkf("run %s %s%s\n", r.ID, r.State, withColon(r.Reason))
		}
	}
	if o.UI.ReaderGone() {
		return nil // Execute reports why, as for every command
	}
	return err
}

// stopWhenUnread calls stop once stdout has no reader any more: while the run has no events, no write would fail.
func stopWhenUnread(ctx context.Context, d *Deps, stop func()) {
	for !d.UI.ReaderGone() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	stop()
}

func printLogEvent(d *Deps, ev journal.Event) {
	if ev.Kind == "attempt" || ev.Kind == "agent" && ev.Text == "" {
		return
	}
	name := ev.Op
	if name == "" {
		name = ev.Kind
	}
	at := d.UI.Out.Faint(logTime(d.Env.Now(), ev.At))
	for line := range strings.SplitSeq(strings.TrimRight(ev.Text, "\n"), "\n") {
		d.UI.Printf("%s %s %s\n", at, render.Name(name), line)
	}
}

// logTime is the time, with its date unless that is today: a run may wait for weeks.
func logTime(now, at time.Time) string {
	now, at = now.Local(), at.Local()
	if at.YearDay() != now.YearDay() || at.Year() != now.Year() {
		return at.Format(time.DateTime)
	}
	return at.Format(time.TimeOnly)
}
