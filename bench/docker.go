package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
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
	e, err := dockerengine.Connect(b, dockerengine.Endpoint{Host: host, Origin: "bench"})
	if err != nil {
		return nil, err
	}
	defer e.Close()
	session, err := dockerSessions(b, e)
	if err != nil {
		return nil, err
	}
	s, err := inTurn(max(5, b.rounds/2), session.whole, func() (cost, error) {
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

func dockerSessions(b *bench, e *dockerengine.Engine) (*sessions, error) {
	dir, err := b.scratch("docker")
	if err != nil {
		return nil, err
	}
	p := docker.New(docker.Config{
		Executable: b.binary, Now: time.Now, UID: os.Getuid(), GID: os.Getgid(), State: dir,
		Connect: func(context.Context, string) (*dockerengine.Engine, error) { return e, nil },
	})
	def, err := p.Validate([]byte(fmt.Sprintf(`{"image":%q}`, dockerImage)))
	if err != nil {
		return nil, err
	}
	return newSessions(b, dir, filepath.Join(dir, "home"), def, p, owned.Name)
}
