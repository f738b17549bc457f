package cli

import (
	"context"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// takeoverTimeout bounds how long the background process may take to acquire the run.
const takeoverTimeout = 10 * time.Second

// detachRun hands a run to a background process, and prints which run it is.
func detachRun(ctx context.Context, d *Deps, s *runs.Service, st runs.StartedRun) error {
	id := st.Run.ID
	if err := startBackgroundWorker(ctx, d, s, st); err != nil {
		return failWithDocument(err, runDocument{Run: id, Workflow: st.Run.Workflow, State: runs.Interrupted})
	}
	r, err := s.Get(context.WithoutCancel(ctx), id)
	if err != nil {
		return err
	}
	d.UI.Talkf("run %s continues in the background: laufwerk runs logs %s -f\n", id, id)
	return d.UI.Document(runDocument{Run: id, Workflow: r.Workflow, State: r.State, Reason: r.Reason, Waiting: r.Waiting})
}

// startBackgroundWorker starts a worker for a run that outlives this process and its terminal. It returns once the worker has the run,
// or has ended: the run then tells how.
func startBackgroundWorker(ctx context.Context, d *Deps, s *runs.Service, st runs.StartedRun) error {
	id := st.Run.ID
	st.Lease.Release()
	args := []string{"laufwerk", "resume", id, "--no-input", "--json"}
	for _, set := range d.Flags.Set {
		args = append(args, "--set", set)
	}
	var env []string
	for k, v := range d.Env.Vars {
		env = append(env, k+"="+v)
	}
	log := filepath.Join(s.Dir(id), "worker.log")
	p, err := process.Detach(system.Executable(), args, env, log)
	if err != nil {
		return failure.New(failure.Failed, "the background worker process could not be started: %v", err).WithHint("laufwerk resume %s", id)
	}
	defer p.Out.Close()
	_ = p.In.Close()
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	for {
		w, live := s.Worker(id)
		if w.PID != 0 { // it has written down its name too, which whoever lists the run now will find
			return nil
		}
		select {
		case <-p.Exited:
			return nil
		case <-ctx.Done():
			if live {
				return nil
			}
			return failure.New(failure.Failed, "the background worker process did not acquire run %s within %s", id, takeoverTimeout).
				WithHint("cat %s", log)
		case <-time.After(10 * time.Millisecond):
		}
	}
}
