package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/store"
	"github.com/laufwerk/laufwerk/internal/supervise"
)

// dockerImage is what `.ci/engine images` makes; it has all that a session needs.
const dockerImage = "laufwerk-test/base:1"

// dockerTarget is the config of a project whose target runs in it.
const dockerTarget = `
import { defineConfig } from "@laufwerk/sdk";
import { createDockerExecution } from "@laufwerk/execution/docker";

export default defineConfig({ projectId: "bench", executions: [createDockerExecution({ image: "` + dockerImage + `" })] });
`

// containers are the rows of docker targets, beside Docker's own command line on the same engine: LAUFWERK_TEST_DOCKER.
func containers(b *bench) ([]row, error) {
	host := os.Getenv("LAUFWERK_TEST_DOCKER")
	cli, missing := exec.LookPath("docker")
	if host == "" || missing != nil {
		return []row{{work: "docker targets, beside the docker command", hold: "≤ 1 ×", verdict: `SKIPPED: no engine (eval "$(.ci/engine start)")`}}, nil //nolint:nilerr // said in the row
	}
	docker := func(args ...string) (string, cost, error) {
		return b.command("/", []int{0}, cli, append([]string{"-H", host}, args...)...)
	}
	session, err := newDockerSession(b, host)
	if err != nil {
		return nil, err
	}
	defer session.close()
	s, err := inTurn(max(5, b.rounds/2), session.once, func() (cost, error) {
		id, all, err := docker("run", "-d", dockerImage, "sleep", "1000")
		for _, args := range [][]string{{"exec", strings.TrimSpace(id), "true"}, {"rm", "-f", strings.TrimSpace(id)}} {
			var c cost
			if err == nil {
				_, c, err = docker(args...)
			}
			all.wall, all.cpu = all.wall+c.wall, all.cpu+c.cpu
		}
		return all, err
	})
	if err != nil {
		return nil, err
	}
	rows := []row{compare("docker open + exec + close, beside run -d, exec, rm -f", s[0], s[1], 1)}

	root, err := b.scratch("docker-project")
	if err != nil {
		return nil, err
	}
	if err := write(filepath.Join(root, "laufwerk", "laufwerk.config.ts"), dockerTarget); err != nil {
		return nil, err
	}
	s, err = inTurn(b.rounds, func() (cost, error) {
		_, c, err := b.command(root, []int{0}, b.binary, "doctor", "--json", "--set", "docker.host="+host)
		return c, err
	}, func() (cost, error) {
		_, c, err := docker("info")
		return c, err
	})
	if err != nil {
		return nil, err
	}
	rows = append(rows, compare("doctor with an engine, beside docker info", s[0], s[1], 3))

	prepare := func() (cost, error) {
		_, c, err := b.command(root, []int{0}, b.binary, "prepare", "docker", "--image", dockerImage, "--set", "docker.host="+host)
		return c, err
	}
	if _, err := prepare(); err != nil {
		return append(rows, row{work: "warm prepare, beside docker image inspect", hold: "≤ 3 ×", verdict: "SKIPPED: " + strings.TrimSpace(err.Error())}), nil //nolint:nilerr // said in the row
	}
	s, err = inTurn(b.rounds, prepare, func() (cost, error) {
		_, c, err := docker("image", "inspect", dockerImage)
		return c, err
	})
	if err != nil {
		return nil, err
	}
	return append(rows, compare("warm prepare, beside docker image inspect", s[0], s[1], 3)), nil
}

// dockerSession opens sessions as runs do: with claims, in a store of its own.
type dockerSession struct {
	b         *bench
	p         *docker.Provider
	driver    *claims.Driver
	def       providers.Definition
	engine    *dockerengine.Engine
	workspace string
	dir       string
	n         int
}

func newDockerSession(b *bench, host string) (*dockerSession, error) {
	dir, err := b.scratch("docker")
	if err != nil {
		return nil, err
	}
	s := &dockerSession{b: b, dir: dir, workspace: filepath.Join(dir, "workspace")}
	if err := os.Mkdir(s.workspace, 0o777); err != nil {
		return nil, err
	}
	if s.def, err = docker.Validate([]byte(fmt.Sprintf(`{"image":%q}`, dockerImage))); err != nil {
		return nil, err
	}
	if s.engine, err = dockerengine.Connect(b, dockerengine.Endpoint{Host: host, Origin: "bench"}); err != nil {
		return nil, err
	}
	s.p = docker.New(docker.Config{
		Executable: b.binary, Now: time.Now, UID: os.Getuid(), GID: os.Getgid(), State: dir,
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return s.engine, nil },
	})
	home, err := store.OpenHome(filepath.Join(dir, "home"), true)
	if err != nil {
		return nil, err
	}
	st := store.Open(home, time.Now, "bench")
	s.driver = claims.NewDriver(claims.Options{
		Store: st, Now: time.Now, Owner: st.ID,
		Resources: func(claims.Kind, string) (providers.Resources, bool) { return s.p, true },
	})
	return s, nil
}

func (s *dockerSession) close() { s.engine.Close() }

func (s *dockerSession) once() (cost, error) { return within(s.session) }

func (s *dockerSession) session() error {
	s.n++
	operation := fmt.Sprintf("session:%d", s.n)
	id := claims.ID("bench", operation)
	dir := filepath.Join(s.dir, "sessions", id)
	plan, err := providers.ReadyPlan(s.b, s.p, s.def, providers.Need{Workspace: true}, providers.SessionSpec{Key: "k", Dir: dir, Workspace: s.workspace, Mark: id})
	if err != nil {
		return err
	}
	endpoint, err := s.p.Endpoint(s.b, s.def)
	if err != nil {
		return err
	}
	c, err := s.driver.Allocate(s.b, claims.Request{
		ID: id, Kind: claims.KindSession, Provider: docker.Kind, Target: s.def.ID, Run: "bench", Operation: operation, Image: plan.Image,
		Intent: providers.Intent{Name: owned.Name(id), Endpoint: endpoint, Spec: plan.Spec},
	})
	if err != nil {
		return err
	}
	sb, err := s.p.Enter(s.b, c.Intent, s.def)
	if err == nil {
		err = one(s.b, sb, dir, id)
	}
	_, rerr := s.driver.Release(s.b, id)
	return errors.Join(err, rerr)
}

func one(ctx context.Context, sb providers.Sandbox, dir, mark string) error {
	p, err := supervise.Start(ctx, sb.Launcher(), filepath.Join(dir, "ops", "1"), supervise.Spec{
		Argv: []string{"true"}, Env: sb.BaseEnv(), Dir: sb.Workdir(), Mark: supervise.Mark(mark, "1"), MaxOutput: 1 << 20,
	})
	if err != nil {
		return err
	}
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("the command ended with %d %s", exit.Code, exit.Error)
	}
	return err
}
