package main

import (
	"bufio"
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// published is what 100 durable steps took on a local Restate server where there is none to ask: measured on another machine.
const published = 83 * time.Millisecond

//go:embed restate/service.mjs
var restateService []byte

// restate is a Restate server on this machine with a service of ours (restate/service.mjs).
type restate struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	client *http.Client
}

// startRestate starts what `.ci/parts node22 restate` has installed. Nothing installed is fs.ErrNotExist.
func startRestate(b *bench) (*restate, error) {
	tools := filepath.Join(b.tools, "restate")
	servers, _ := filepath.Glob(filepath.Join(tools, "node_modules/@restatedev/restate-server-*/bin/restate-server"))
	nodes, _ := filepath.Glob(filepath.Join(b.tools, "node22/node_modules/node-*/bin/node")) // the SDK needs Node 22
	if len(servers) != 1 || len(nodes) != 1 {
		return nil, fs.ErrNotExist
	}
	dir, err := b.scratch("restate")
	if err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "service.mjs")
	if err := os.WriteFile(script, restateService, 0o600); err != nil {
		return nil, err
	}
	r := &restate{cmd: exec.CommandContext(b, nodes[0], script, tools, servers[0], filepath.Join(dir, "data"))}
	r.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "NODE_ENV=production"}
	var errs bytes.Buffer
	r.cmd.Stderr = &errs
	if r.stdin, err = r.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := r.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := r.cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		r.stop()
		return nil, fmt.Errorf("the Restate server did not start: %w\n%s", err, errs.String())
	}
	r.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", strings.TrimSpace(line))
		},
	}}
	return r, nil
}

func (r *restate) stop() {
	_ = r.stdin.Close()
	_ = r.cmd.Wait()
}

// steps calls a handler of n durable steps and waits for its answer.
func (r *restate) steps(n int) func() (cost, error) {
	return func() (cost, error) {
		start := time.Now()
		answer, err := r.client.Post("http://ingress/steps/run", "application/json", strings.NewReader(fmt.Sprint(n)))
		if err != nil {
			return cost{}, err
		}
		said, err := io.ReadAll(answer.Body)
		took := time.Since(start)
		_ = answer.Body.Close()
		if err == nil && (answer.StatusCode != http.StatusOK || string(said) != fmt.Sprint(n)) {
			err = fmt.Errorf("the Restate server answered %s to %d steps: %s", answer.Status, n, said)
		}
		return cost{wall: took}, err
	}
}

// hundred is the row of 100 durable steps, none and hundred ours, beside those of a Restate server: on both sides without what
// is around them.
func (b *bench) hundred(none, hundred func() (cost, error)) (row, error) {
	all := row{work: "100 durable steps, beside a Restate server here", hold: "≤ 0.5 ×"}
	things := []func() (cost, error){none, hundred}
	r, err := startRestate(b)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		all.work = "100 durable steps, beside a Restate server elsewhere (published; for one here: .ci/parts node22 restate)"
	case err != nil:
		return row{}, err
	default:
		defer r.stop()
		things = append(things, r.steps(0), r.steps(100))
	}
	s, err := inTurn(max(5, b.rounds/2), things...)
	if err != nil {
		return row{}, err
	}
	ours, beside := s[1].less(s[0]), series{{wall: published, cpu: published}}
	if r != nil {
		beside = s[3].less(s[2])
	}
	all.measured, all.beside = short(ours.wall()), short(beside.wall())
	if ours.wall() <= 0 || beside.wall() <= 0 { // what the machine did besides was more than what was measured
		all.ratio, all.verdict, all.fails = "-", "NO RESULT: too noisy, on an idle machine again", true
		return all, nil
	}
	all.ratio = fmt.Sprintf("%.2f", float64(ours.wall())/float64(beside.wall()))
	all.judge(ours.wall() <= beside.wall()/2, ours.cpu() <= beside.wall()/2, ours.noisy() || beside.noisy())
	return all, nil
}
