package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/build"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/doctor"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system"
)

type doctorOptions struct {
	*Deps
	Examination doctor.Options

	Report bool
}

func newDoctor(d *Deps) *cobra.Command {
	o := &doctorOptions{Deps: d}
	var execution, target string
	var scan, probe bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check that everything that runs need is there, and say how to get what is not",
		Long: `Check the store, what runs left, the project and its targets, by the same rules as laufwerk run, and print the command that
puts right what is not. Nothing is allocated or written, and nothing is asked of a model. Outside a project the store and
the host are checked. Exit code 4 if a check fails; a warning is no failure.

For a Docker target it is said which engine is asked, and why that one. What an image has inside is only known with --probe,
which runs a container of it.`,
		Example: "$ laufwerk doctor\n\n# For a bug report\n$ laufwerk doctor --report\n\n# Before there is a project\n$ laufwerk doctor --execution docker --json\n\n# What the image of a target lacks\n$ laufwerk doctor --target docker --probe",
		GroupID: SectionStart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"execution", "target"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return Usage(cmd, "--%s names nothing", name)
				}
			}
			o.Examination = d.Doctor(probe)
			o.Examination.Execution, o.Examination.Target, o.Examination.Scan, o.Examination.Probe = execution, target, scan, probe
			return runDoctor(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&execution, "execution", "", "only targets of this `KIND`")
	f.StringVar(&target, "target", "", "only the target `ID` of the project")
	f.BoolVar(&o.Report, "report", false, "print a text to paste into a report, without names, home directory and secrets")
	f.BoolVar(&probe, "probe", false, "also run a tiny command on each target, and clean up after it")
	f.BoolVar(&scan, "scan", false, "also list what carries a mark of laufwerk and has no claim in this home; nothing is removed")
	return cmd
}

func runDoctor(ctx context.Context, o *doctorOptions) error {
	rep, err := doctor.Examine(ctx, o.Examination)
	if err != nil {
		return err
	}
	ui := o.UI
	doc := doctorDocument{Status: rep.Worst(), Build: build.Read(), Report: rep}
	if o.Report {
		doc.Text = doctorReportText(o, rep)
		ui.Printf("%s", doc.Text)
	} else {
		printDoctor(ui, rep)
	}
	if doc.Status != doctor.Fail {
		return ui.Document(doc)
	}
	return Fail(doctorFailure(rep), doc)
}

type doctorDocument struct {
	Status doctor.Status `json:"status"`
	Build  build.Info    `json:"build"`
	doctor.Report
	Text string `json:"report,omitempty"`
}

func doctorFailure(rep doctor.Report) error {
	e := failure.New(failure.NotReady, "")
	n := 0
	var fixes []string
	for _, c := range rep.Checks {
		if c.Status != doctor.Fail {
			continue
		}
		n++
		e.Conditions = append(e.Conditions, failure.Condition{ID: c.ID, Message: c.Message, Hint: c.Fix})
		if c.Fix != "" && !slices.Contains(fixes, c.Fix) {
			fixes = append(fixes, c.Fix)
		}
	}
	e.Hint = strings.Join(fixes, "\n")
	e.Message = fmt.Sprintf("%d checks failed", n)
	if n == 1 {
		e.Message = "1 check failed"
	}
	return e
}

func printDoctor(ui *render.UI, rep doctor.Report) {
	mark := map[doctor.Status]render.Styled{
		doctor.Pass: ui.Out.Good("pass"), doctor.Warn: ui.Out.Warn("warn"), doctor.Fail: ui.Out.Bad("fail"), doctor.Skip: ui.Out.Faint("skip"),
	}
	var messages []string
	for _, c := range rep.Checks {
		messages = append(messages, c.Message)
	}
	messages = render.Brief(messages)
	for i, c := range rep.Checks {
		ui.Printf("%s  %s  %s\n", mark[c.Status], ui.Out.Bold(c.ID), messages[i])
		if c.Status == doctor.Pass || c.Status == doctor.Skip {
			continue
		}
		for _, e := range c.Evidence {
			ui.Printf("      %s\n", render.Name(e))
		}
		for line := range strings.Lines(c.Fix) {
			ui.Printf("      next: %s\n", ui.Out.Command(strings.TrimSpace(line)))
		}
	}
	for _, t := range rep.Targets {
		ui.Printf("%s  %s  the model behind it is not tried: inference %s\n", ui.Out.Faint("note"), ui.Out.Bold("target."+t.ID), t.Inference)
	}
}

// doctorReportText is a report that can be pasted anywhere.
func doctorReportText(o *doctorOptions, rep doctor.Report) string {
	var b strings.Builder
	fmt.Fprintf(&b, "laufwerk %s\n", build.Read())
	if s, err := o.Settings(); err == nil {
		for _, v := range s.Values() {
			if v.Origin != "default" {
				fmt.Fprintf(&b, "setting %s = %s (%s)\n", v.Name, v.Text, v.Origin)
			}
		}
	}
	for _, t := range rep.Targets {
		fmt.Fprintf(&b, "target %s: %s, inference %s\n", t.ID, t.Kind, t.Inference)
	}
	for _, c := range rep.Checks {
		fmt.Fprintf(&b, "%s %s: %s\n", c.Status, c.ID, strings.ReplaceAll(c.Message, "\n", " "))
		for _, e := range c.Evidence {
			fmt.Fprintf(&b, "    %s\n", e)
		}
	}
	var secrets []string
	if e := o.Examination; len(e.Programs) > 0 {
		secrets = e.Programs.LoginSecrets(e.Programs.CredentialKinds(), e.User())
	}
	m := doctor.NewMask(o.Env.Home(), system.UserName(), o.Env.Vars, secrets)
	return redact.Terminal(m.Text(b.String()))
}
