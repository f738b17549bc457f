package cli

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
)

type exitCodeHelp struct {
	Code    int            `json:"code"`
	Meaning string         `json:"meaning"`
	Kinds   []failure.Kind `json:"errorCodes"`
}

// exitCodesHelp is made from failure's table; only the meanings are added here.
func exitCodesHelp() []exitCodeHelp {
	out := []exitCodeHelp{
		{Code: failure.ExitDone, Meaning: "done"},
		{Code: failure.ExitFailed, Meaning: "failed"},
		{Code: failure.ExitUsage, Meaning: "usage: the command was called wrongly, or names something that does not exist"},
		{Code: failure.ExitInvalid, Meaning: "the project, the settings or the store is invalid"},
		{Code: failure.ExitNotReady, Meaning: "not ready: a check failed, or a program or a login is missing or out of date"},
		{Code: failure.ExitConflict, Meaning: "conflict: with a change in the source, another process, a limit, or a changed target or workflow"},
		{Code: failure.ExitRetained, Meaning: "resources are retained: it could not be confirmed that everything was removed"},
		{Code: failure.ExitWorkflow, Meaning: "the workflow failed"},
		{Code: failure.ExitWaiting, Meaning: "waiting for a person"},
		{Code: failure.ExitUnknown, Meaning: "the outcome is unknown: check what happened before you repeat it"},
		{Code: failure.ExitHungUp, Meaning: "interrupted by SIGHUP"},
		{Code: failure.ExitInterrupted, Meaning: "interrupted by SIGINT"},
		{Code: failure.ExitTerminated, Meaning: "interrupted by SIGTERM"},
	}
	for i := range out {
		out[i].Kinds = []failure.Kind{}
		for _, row := range failure.Table() {
			if row.Exit == out[i].Code {
				out[i].Kinds = append(out[i].Kinds, row.Kind)
			}
		}
	}
	return out
}

func printExitCodesHelp(ui *render.UI) {
	ui.Printf("Exit codes and, below each of them, the values of error.code that --json prints with it.\n\n")
	for _, e := range exitCodesHelp() {
		ui.Printf("%4d  %s\n", e.Code, e.Meaning)
		line := ""
		for _, k := range e.Kinds {
			if len(line)+len(k) > 88 {
				ui.Printf("      %s\n", ui.Out.Faint(line))
				line = ""
			}
			line = strings.TrimSpace(line + "  " + string(k))
		}
		if line != "" {
			ui.Printf("      %s\n", ui.Out.Faint(line))
		}
	}
	ui.Printf("\nA run that ends with a failure which its workflow did not catch exits with the code of that failure, or else with 7.\n" +
		"Code 6 is only used if nothing else failed. The answer \"no\" is not a failure: the workflow decides what follows.\n")
}

type exitCodesHelpDocument struct {
	Exits []exitCodeHelp `json:"exits"`
	Topic string         `json:"topic"`
}

func newExitCodesHelpDocument() any { return exitCodesHelpDocument{exitCodesHelp(), "exit-codes"} }
