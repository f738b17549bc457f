package prepare

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

const leastNode = 22

// toolTime bounds a program that only prints its version.
const toolTime = 30 * time.Second

// manager is a package manager that can install a recipe.
type manager struct {
	name string
	path string
	args []string
}

// managers are those that are known, by preference. Neither runs a script of a package, and both check the checksums of
// their lockfile.
func managers() []manager {
	return []manager{
		{name: "npm", args: []string{
			"ci", "--ignore-scripts", "--include=optional", "--omit=dev", "--install-strategy=hoisted", "--no-audit", "--no-fund",
			"--no-progress", "--no-update-notifier", "--loglevel=error",
		}},
		{name: "pnpm", args: agent.PNPMInstall()},
	}
}

var nodeVersion = lazyregexp.Regexp{Pattern: `^v(\d+)\.`}

// findManager is the package manager on PATH, with a Node that is new enough.
func findManager(ctx context.Context, program agent.Program, vars map[string]string) (manager, error) {
	title := program.Title()
	get := func(format string, args ...any) error {
		return failure.New(failure.NotReady, format, args...).
			WithHint("nvm install %d && laufwerk prepare local\n%s", leastNode, withOwn(program))
	}
	const how = "get it from https://nodejs.org/en/download or with a version manager such as nvm"
	node, err := process.Find("node", vars["PATH"], "/")
	if files.MachineFailed(err) {
		return manager{}, get("installing %s needs Node.js %d or newer: %v", title, leastNode, err)
	}
	if err != nil {
		return manager{}, get("installing %s needs Node.js %d or newer, and there is no node on PATH: %s", title, leastNode, how)
	}
	out, err := output(ctx, process.Tool{Name: node, Args: []string{"--version"}, Dir: "/", Env: passed(vars)}) // a shim of a version manager needs its variables
	version := strings.TrimSpace(out)
	m := nodeVersion.FindStringSubmatch(version)
	if err == nil && m == nil {
		err = fmt.Errorf("`--version` printed %q", version[:min(len(version), 200)])
	}
	if err != nil {
		return manager{}, get("installing %s needs Node.js %d or newer, and %s does not print its version: %v; %s", title, leastNode, node, err, how)
	}
	if major, _ := strconv.Atoi(m[1]); major < leastNode {
		return manager{}, get("installing %s needs Node.js %d or newer, and %s is %s: %s", title, leastNode, node, version, how)
	}
	for _, one := range managers() {
		if one.path, err = process.Find(one.name, vars["PATH"], "/"); err == nil {
			return one, nil
		}
		if files.MachineFailed(err) {
			return manager{}, get("installing %s needs npm or pnpm: %v", title, err)
		}
	}
	return manager{}, get("installing %s needs npm or pnpm, and neither is on PATH: Node.js brings npm along", title)
}

// withOwn is the command that installs nothing and takes a binary of the user's instead.
func withOwn(program agent.Program) string {
	return "laufwerk prepare local --" + program.Name() + " /path/to/your/own/" + program.Name()
}

// install fills tree with what the recipe there says. Every process of it carries mark.
func (m manager) install(ctx context.Context, program agent.Program, tree, mark string, vars map[string]string) error {
	_, err := output(ctx, process.Tool{Name: m.path, Args: m.args, Dir: tree, Env: append(passed(vars), mark)})
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return failure.Wrap(context.Cause(ctx), failure.Cancelled, "install %s; then run laufwerk prepare local", program.Title())
	}
	return failure.New(failure.NotReady, "%s could not install %s %s: %s", m.name, program.Title(), program.Recipe().Version, strings.TrimSpace(err.Error())).
		WithHint("laufwerk prepare local")
}

// passed is the environment of a package manager: the user's, without what is laufwerk's own.
func passed(vars map[string]string) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if !strings.HasPrefix(name, "LAUFWERK_") {
			out = append(out, name+"="+vars[name])
		}
	}
	return out
}

// output is what a tool prints, at most 64 KiB.
func output(ctx context.Context, t process.Tool) (string, error) {
	var b []byte
	err := process.RunTool(ctx, t, func(r io.Reader) (err error) {
		if b, err = io.ReadAll(io.LimitReader(r, 64<<10)); err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		return err
	})
	return string(b), err
}

// versionOf asks a binary of the program. home is a directory that it may take for its user's.
func (o LocalOptions) versionOf(ctx context.Context, path, home string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, toolTime)
	defer cancel()
	out, err := output(ctx, process.Tool{Name: path, Args: []string{"--version"}, Dir: "/", Env: []string{"HOME=" + home, o.Program.Recipe().HomeVariable + "=" + home}})
	if err != nil {
		return "", err
	}
	version := o.Program.Recipe().VersionIn(out)
	if version == "" {
		return "", failure.New(failure.NotReady, "`%s --version` printed %q, and not the version of %s", path, strings.TrimSpace(out[:min(len(out), 200)]), o.Program.Title())
	}
	return version, nil
}
