package cli

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cleanup"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// runKilled starts the run in a process of its own, kills that in the middle of the agent's turn, and resumes the run.
func (sc *demoScene) runKilled(ctx context.Context) error {
	ui := sc.UI
	first, err := process.StartOwn(ctx, process.OwnCommand{
		Path: system.Executable(), Dir: sc.root, Env: environmentList(sc.Env.Vars),
		Args: []string{"run", "issue-to-fix", "--no-input", "--json", "--input", demoInput},
	})
	if err != nil {
		return failure.Wrap(err, failure.Failed, "start the worker")
	}
	if err := sc.waitForTurn(ctx); err != nil {
		_ = first.Kill()
		_, out, _ := first.Wait()
		return failure.New(failure.Failed, "%v; the output of the worker process: %s", err, strings.TrimSpace(string(out)))
	}
	_ = first.Kill()
	if _, _, err := first.Wait(); err != nil {
		return failure.Wrap(err, failure.Failed, "wait for the killed worker")
	}
	if sc.started, err = sc.findRun(ctx); err != nil {
		return err
	}
	ui.Talkf("%s worker %d was killed with SIGKILL in the middle of the agent's turn; the turn continues under its supervisor\n", ui.Err.Bad("✗"), first.PID())
	ui.Talkf("%s laufwerk resume %s\n", ui.Err.Bold("$"), sc.started)
	st, err := sc.s.Resume(ctx, sc.started)
	if err != nil {
		return err
	}
	opts := workOptions{Silent: true, Event: func(ev journal.Event) {
		if ev.Kind == "attached" {
			_ = files.Write(filepath.Join(sc.folder, demoGoFile), nil)
		}
	}}
	if sc.Yes {
		opts.Ask = sc.approve
	}
	return runWorker(ctx, sc.Deps, sc.s, st, opts)
}

func environmentList(vars map[string]string) []string {
	out := make([]string, 0, len(vars))
	for k, v := range vars {
		out = append(out, k+"="+v)
	}
	return out
}

const demoTurnTimeout = 30 * time.Second

func (sc *demoScene) waitForTurn(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, demoTurnTimeout)
	defer cancel()
	for {
		if b, err := files.Read(filepath.Join(sc.folder, "turns")); err == nil && strings.Contains(string(b), "begin") {
			return nil
		}
		select {
		case <-ctx.Done():
			return failure.New(failure.Failed, "the agent's turn did not begin within %s", demoTurnTimeout)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (sc *demoScene) findRun(ctx context.Context) (string, error) {
	list, err := sc.s.List(ctx, "")
	if err != nil {
		return "", err
	}
	for _, r := range list {
		if r.Root == sc.root {
			return r.ID, nil
		}
	}
	return "", failure.New(failure.Failed, "the worker process recorded no run")
}

// countLeaks counts claims that are outstanding after clean-up, processes of the run, and directories that nothing claims.
func (sc *demoScene) countLeaks(ctx context.Context) (int, error) {
	rep, err := cleanup.Run(ctx, sc.s, cleanup.Request{Run: sc.started, Discard: true, Who: currentPerson()})
	if err != nil && !failure.Is(err, failure.Retained) {
		return 0, err
	}
	n := len(rep.Retained)
	all, err := sc.s.Driver.List(ctx, claims.Filter{Run: sc.started})
	if err != nil {
		return n, err
	}
	for _, c := range all {
		if c.Outstanding() {
			n++
		}
		if files.Exists(sc.s.Home.WorkspaceDir(c.ID)) || files.Exists(filepath.Join(sc.s.Dir(sc.started), "sessions", c.ID)) {
			n++
		}
		alive, err := process.FindMarked(supervise.MarkVariable, func(mark string) bool { return strings.HasPrefix(mark, c.ID+"/") })
		if err != nil {
			return n, err
		}
		n += len(alive)
	}
	return n, nil
}

func (sc *demoScene) print(ctx context.Context, res demoDocument) error {
	ui := sc.UI
	if sc.Kill {
		all, err := sc.s.Driver.List(ctx, claims.Filter{Run: sc.started})
		if err != nil {
			return err
		}
		ui.Printf("the claims of run %s\n", sc.started)
		printClaims(ui, sc.Env.Now(), all)
	}
	ui.Printf("turns: %d, run twice: %d, leaked: %d\n", res.Turns, res.RunTwice, res.Leaked)
	ui.Talkf("\nlook at the run:\n  laufwerk runs show %s\n  laufwerk runs logs %s\n  laufwerk claims list --all --run %s\n  ls %s\nremove the run and its project:\n  laufwerk runs prune %s && rm -r %s\nstart with your own project:\n  laufwerk init --execution local --example issue-to-fix --agent-command 'your-agent'\n",
		res.Run, res.Run, res.Run, failure.Quote(sc.root), res.Run, failure.Quote(sc.folder))
	return nil
}
