package cli

import (
	"context"
	"encoding/json"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
)

type scriptOptions struct {
	*Deps

	File string
	Call string
	Args string
}

func newScript(d *Deps) *cobra.Command {
	o := &scriptOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "script FILE.ts",
		Short: "Evaluate a TypeScript module of the project and print its value as JSON",
		Long: `Evaluate a module of the project, with the same TypeScript runtime and the same @laufwerk modules as a config, and print its
default export as JSON; with --call, call an exported function instead. Promises are awaited, and there is no time limit. What
the module prints with console goes to standard error.

Only such modules can call prepareDockerCodex and prepareCodexImage of @laufwerk/execution/docker: configs and workflows, which
may be loaded at any time, can only use images that are prepared already. Node and Bun cannot run such a file, since they do
not have the modules @laufwerk/*.`,
		Example: "$ laufwerk script laufwerk/laufwerk.config.ts\n\n# Call an exported function\n" +
			"$ laufwerk script tools/names.ts --call names --args '[\"a\", 2]'\n\n" +
			"# Prepare an image with a function of your own\n$ laufwerk script laufwerk/images.ts --call prepare --args '[\"node:22\", \"laufwerk/image.json\"]'",
		GroupID: sectionOperate,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.File = args[0]
			if o.Args != "" && o.Call == "" {
				return usageError(cmd, "--args are for a function: name it with --call").WithHint("laufwerk script %s --call NAME --args %s", failure.Quote(o.File), failure.Quote(o.Args))
			}
			return runScript(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Call, "call", "", "call the exported function `NAME`")
	cmd.Flags().StringVar(&o.Args, "args", "", "the arguments of the function: a `JSON` array or a single value, @file, or - for stdin")
	return cmd
}

type scriptDocument struct {
	Value json.RawMessage `json:"value"`
}

func runScript(ctx context.Context, o *scriptOptions) error {
	opts := script.EvalOptions{Export: o.Call, Call: o.Call != "", NoTime: true, Now: o.Env.Now().UnixMilli()}
	opts.Seed = strconv.FormatInt(o.Env.Now().UnixNano(), 36)
	if o.Args != "" {
		args, err := readInput(o.Deps, o.Args)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(args, new(json.RawMessage)); err != nil {
			return failure.New(failure.InputInvalid, "--args is not JSON: %v", err).WithHint("laufwerk script %s --call %s --args '[1, \"two\"]'", failure.Quote(o.File), failure.Quote(o.Call))
		}
		opts.Args = args
	}
	root, entry, err := findModule(o.Deps, o.File)
	if err != nil {
		return err
	}
	ui := o.UI
	runner, err := o.Projects.ScriptRunner(func(_, text string) { ui.Talkf("%s\n", text) })
	if err != nil {
		return err
	}
	ctx, stop := o.Interruptible(ctx)
	defer stop()
	value, _, err := runner.Evaluate(ctx, root, entry, opts)
	if err != nil {
		return project.WithDefaultHint(err, root, entry)
	}
	if len(value) == 0 {
		value = json.RawMessage("null")
	}
	ui.Printf("%s\n", string(value))
	return ui.Document(scriptDocument{value})
}

// findModule finds the project of a module: the one that --project names, or the nearest from the module upwards.
func findModule(d *Deps, file string) (root, entry string, err error) {
	at := projectfs.Real(d.Path(file))
	if !projectfs.IsFile(at) {
		return "", "", failure.New(failure.NotFound, "there is no file %s", file).WithPaths(file).WithHint("laufwerk script --help")
	}
	if root, err = project.Find(filepath.Dir(at), d.Flags.Project, ""); d.Flags.Project != "" {
		root, err = project.Find(d.Env.Dir, d.Flags.Project, "")
	}
	if err != nil {
		return "", "", err
	}
	entry, err = filepath.Rel(root, at)
	if err != nil || entry == ".." || strings.HasPrefix(entry, "../") {
		return "", "", failure.New(failure.Usage, "%s is outside the project %s", file, root).
			WithHint("laufwerk script --project DIR %s", failure.Quote(file))
	}
	if why := projectfs.Untrusted(at); why != "" {
		return "", "", failure.New(failure.ProjectInvalid, "%s is refused, since its code would run as you: %s", at, why).
			WithPaths(file).WithHint("chmod go-w %s", failure.Quote(at))
	}
	return root, entry, nil
}
