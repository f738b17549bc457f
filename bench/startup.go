package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/script"
)

// kind is a Go command line of the same field, which we install for its start-up time alone.
const kind = "sigs.k8s.io/kind@v0.33.0"

// version is the start of a process: `laufwerk version` beside `kind version`.
func version(b *bench) ([]row, error) {
	beside := filepath.Join(b.tools, "kind")
	if !b.installed(beside, kind) {
		return []row{{work: "version, beside kind version", hold: "≤ 2 ×", verdict: "SKIPPED: go install " + kind + " failed"}}, nil
	}
	starts := func(program string) func() (cost, error) {
		return func() (cost, error) {
			_, c, err := b.command("/", []int{0}, program, "version")
			return c, err
		}
	}
	ours, err := b.copied(b.binary)
	if err != nil {
		return nil, err
	}
	if beside, err = b.copied(beside); err != nil {
		return nil, err
	}
	s, err := inTurn(4*b.rounds, starts(ours), starts(beside))
	if err != nil {
		return nil, err
	}
	return []row{compare("version, beside kind version", s[0], s[1], 2)}, nil
}

// What the package initialisation of all libraries together may take in every process: about half of what one careless library
// costs. A test of internal/app counts the packages and what they allocate.
const initialisationLimit = 4 * time.Millisecond

// initialisation adds up, for each package, the fastest of several starts: noise only ever adds.
func initialisation(b *bench) ([]row, error) {
	line := regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`)
	fastest := map[string]float64{}
	for range b.rounds {
		cmd := exec.CommandContext(b, b.binary, "version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		for _, m := range line.FindAllStringSubmatch(string(out), -1) {
			ms, err := strconv.ParseFloat(m[2], 64)
			if err != nil {
				return nil, err
			}
			if old, seen := fastest[m[1]]; !seen || ms < old {
				fastest[m[1]] = ms
			}
		}
	}
	sum := 0.0
	for _, ms := range fastest {
		sum += ms
	}
	took := time.Duration(sum * float64(time.Millisecond))
	r := row{work: fmt.Sprintf("package initialisation, of %d packages", len(fastest)), measured: short(took), hold: "≤ " + short(initialisationLimit), verdict: "ok"}
	if took > initialisationLimit {
		r.verdict, r.fails = "DOES NOT HOLD", true
	}
	return []row{r}, nil
}

// copied is a copy of a program in the scratch directory: what the linker has just written lies otherwise in the page cache than
// what users have copied or downloaded, and starts up to 1.5 ms slower.
func (b *bench) copied(program string) (name string, err error) {
	from, err := os.Open(program)
	if err != nil {
		return "", err
	}
	defer from.Close()
	dir, err := b.scratch("programs")
	if err != nil {
		return "", err
	}
	name = filepath.Join(dir, filepath.Base(program))
	to, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(to, from)
	return name, errors.Join(err, to.Close())
}

func (b *bench) installed(program, module string) bool {
	if _, err := os.Stat(program); err == nil {
		return true
	}
	install := exec.CommandContext(b, "go", "install", module)
	install.Env = append(os.Environ(), "GOBIN="+b.tools, "CGO_ENABLED=0")
	install.Stderr = os.Stderr
	return install.Run() == nil
}

// readProject loads a config, with the isolate's process, beside a start of Node that does nothing: as runs do, which remember
// the bundle while the project's files stay as they are, and as it is after a change.
func readProject(b *bench) ([]row, error) {
	node, missing := exec.LookPath("node")
	if missing != nil {
		return []row{{work: "read a project, beside node -e 0", hold: "≤ 0.4 ×", verdict: "SKIPPED: " + missing.Error()}}, nil //nolint:nilerr // said in the row
	}
	root, err := b.project("read")
	if err != nil {
		return nil, err
	}
	binary, err := b.copied(b.binary)
	if err != nil {
		return nil, err
	}
	load := func(r *script.Runner) func() (cost, error) {
		return func() (cost, error) {
			return within(func() error { _, err := project.Load(b, r, root); return err })
		}
	}
	s, err := inTurn(2*b.rounds, load(&script.Runner{Executable: binary, Bundles: filepath.Join(b.dir, "bundles")}), func() (cost, error) {
		_, c, err := b.command("/", []int{0}, node, "-e", "0")
		return c, err
	}, load(&script.Runner{Executable: binary}))
	if err != nil {
		return nil, err
	}
	changed := compare("", s[2], s[1], 0)
	return []row{
		compare("read a project, beside node -e 0", s[0], s[1], 0.4),
		{work: "  the same after a change of its files", measured: changed.measured, beside: changed.beside, ratio: changed.ratio},
	}, nil
}

// project makes a project with the workflows that are measured.
func (b *bench) project(name string) (string, error) {
	root, err := b.scratch(name)
	if err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(root, "laufwerk")); err == nil {
		return root, nil
	}
	if _, _, err := b.command(root, []int{0}, b.binary, "init", "--execution", "local"); err != nil {
		return "", err
	}
	for name, source := range map[string]string{"steps": stepsWorkflow, "flood": floodWorkflow} {
		if err := write(filepath.Join(root, "laufwerk/workflows", name, "workflow.ts"), source); err != nil {
			return "", err
		}
	}
	return root, nil
}
