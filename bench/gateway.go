package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	client "github.com/laufwerk/laufwerk/internal/openshell"
)

const gatewayAlias = "bench"

// The gateway for tests and what it runs in containers, among the tools.
const (
	gatewayProgram    = "serve"
	supervisorProgram = "supervisor"
)

// gateway is the gateway for tests in a process of its own, and a connection to it.
type gateway struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	out    *bufio.Reader
	engine string // its endpoint
	client *client.Gateway
}

// serve starts one for the user of b's commands, on an engine as slow as a real one is, and with "" for that in memory.
func (b *bench) serve(host string) (*gateway, error) {
	home := filepath.Join(b.dir, "home")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	g := &gateway{cmd: exec.CommandContext(b, filepath.Join(b.tools, gatewayProgram), "-engine", host, "-real="+strconv.FormatBool(host != ""), filepath.Join(home, ".config"), gatewayAlias)}
	g.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + os.TempDir(), "LAUFWERK_TEST_SUPERVISOR=" + filepath.Join(b.tools, supervisorProgram)}
	var errs bytes.Buffer
	g.cmd.Stderr = &errs
	var err error
	if g.stdin, err = g.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := g.cmd.Start(); err != nil {
		return nil, err
	}
	g.out = bufio.NewReader(out)
	line, err := g.out.ReadString('\n')
	if err != nil {
		g.stop()
		return nil, fmt.Errorf("the gateway did not start: %w\n%s", err, errs.String())
	}
	g.engine = strings.TrimSpace(line)
	r, err := client.Registrations{Home: home}.Find(gatewayAlias)
	if err == nil {
		g.client, err = client.Connect(b, r)
	}
	if err != nil {
		g.stop()
	}
	return g, err
}

func (g *gateway) stop() {
	if g.client != nil {
		g.client.Close()
	}
	_ = g.stdin.Close()
	_ = g.cmd.Wait()
}

// calls are those that it has had since this was last asked.
func (g *gateway) calls() (out map[string]int, err error) {
	if _, err := io.WriteString(g.stdin, "\n"); err != nil {
		return nil, err
	}
	line, err := g.out.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &out)
	}
	return out, err
}

// asOrdinaryUser makes rows in a process of a user who is not root and may use the engine.
func (b *bench) asOrdinaryUser(rows, host string) ([]row, error) {
	const uid, gid = 1234, 20 // the group is one that images know
	socket, err := os.Stat(strings.TrimPrefix(host, "unix://"))
	if err != nil {
		return nil, err
	}
	of, ok := socket.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("whose the socket %s is cannot be told", host)
	}
	dir, err := os.MkdirTemp(filepath.Dir(b.dir), "laufwerk-bench-user-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	programs := map[string]string{"bench": self, "laufwerk": b.binary}
	for _, name := range []string{gatewayProgram, supervisorProgram} {
		programs[name] = filepath.Join(b.tools, name)
	}
	for name, from := range programs {
		content, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), content, 0o755)
		}
		if err != nil {
			return nil, err
		}
	}
	own := filepath.Join(dir, "own")
	for _, do := range []func() error{
		func() error { return os.Chmod(dir, 0o755) }, func() error { return os.Mkdir(own, 0o700) }, func() error { return os.Chown(own, uid, gid) },
	} {
		if err := do(); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(b, filepath.Join(dir, "bench"), "-binary", filepath.Join(dir, "laufwerk"), "-tools", dir, "-dir", own, "-only", rows, "-rounds", strconv.Itoa(b.rounds), "-rows")
	cmd.Dir, cmd.Stderr = own, os.Stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + own, "TMPDIR=" + own, "LAUFWERK_TEST_DOCKER=" + host}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: gid, Groups: []uint32{of.Gid}}}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("as an ordinary user: %w", err)
	}
	var made []row
	return made, json.Unmarshal(out, &made)
}
