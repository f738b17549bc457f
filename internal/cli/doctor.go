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
		Short: "Check everything that runs need, and print the command that repairs each problem",
		Long: `Check the store, resources that earlier runs left, the project and its targets, by the same rules as laufwerk run, and print
for each problem the command that repairs it. Nothing is allocated or written, and no model is called. Outside a project only
the store and this machine are checked. The exit code is 4 if a check fails; a warning is not a failure.

For a Docker target the report says which engine is used, and why that one. What an image contains is only known with
--probe, which runs a container from it.`,
		Example: "$ laufwerk doctor\n\n# For a bug report\n$ laufwerk doctor --report\n\n# Before there is a project\n$ laufwerk doctor --execution docker --json\n\n# What is missing in the image of a target\n$ laufwerk doctor --target docker --probe",
		GroupID: sectionStart,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"execution", "target"} {
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return usageError(cmd, "--%s is empty", name)
				}
			}
			o.Examination = d.Doctor(probe)
			o.Examination.Execution, o.Examination.Target, o.Examination.Scan, o.Examination.Probe = execution, target, scan, probe
			return runDoctor(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&execution, "execution", "", "check only targets of this `KIND`")
	f.StringVar(&target, "target", "", "check only the target `ID` of the project")
	f.BoolVar(&o.Report, "report", false, "print a text for a bug report, with user names, the home directory and secrets masked")
	f.BoolVar(&probe, "probe", false, "also run a small command on each target, and remove what that allocated")
	f.BoolVar(&scan, "scan", false, "also list resources that are marked as laufwerk's and have no claim in $LAUFWERK_HOME; nothing is removed")
	return cmd
}

func runDoctor(ctx context.Context, o *doctorOptions) error {
	rep, err := doctor.Examine(ctx, o.Examination)
	if err != nil {
		return err
	}
	for i := range rep.Checks {
		rep.Checks[i].DeprecatedFix = rep.Checks[i].Hint
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
	return failWithDocument(doctorFailure(rep), doc)
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
	var hints []string
	for _, c := range rep.Checks {
		if c.Status != doctor.Fail {
			continue
		}
		n++
		e.Conditions = append(e.Conditions, failure.Condition{ID: c.ID, Message: c.Message, Hint: c.Hint})
		if c.Hint != "" && !slices.Contains(hints, c.Hint) {
			hints = append(hints, c.Hint)
		}
	}
	e.Hint = strings.Join(hints, "\n")
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
		for line := range strings.Lines(c.Hint) {
			ui.Printf("      next: %s\n", ui.Out.Command(strings.TrimSpace(line)))
		}
	}
	for _, t := range rep.Targets {
		ui.Printf("%s  %s  no model was called (inference: %s)\n", ui.Out.Faint("note"), ui.Out.Bold("target."+t.ID), t.Inference)
	}
}

// doctorReportText is a report that can be pasted anywhere: names, the home directory and secrets are masked.
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
