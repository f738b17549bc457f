package cli

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
)

// exitCodeHelp is one exit code with the kinds of failures that end with it.
type exitCodeHelp struct {
	Code    int            `json:"code"`
	Meaning string         `json:"meaning"`
	Kinds   []failure.Kind `json:"errorCodes"`
}

// exitCodesHelp is made from failure's table; only the meanings are written here.
func exitCodesHelp() []exitCodeHelp {
	out := []exitCodeHelp{
		{Code: failure.ExitDone, Meaning: "done"},
		{Code: failure.ExitFailed, Meaning: "failed"},
		{Code: failure.ExitUsage, Meaning: "usage: the command was called wrongly, or names something that is not there"},
		{Code: failure.ExitInvalid, Meaning: "the project, the settings or the store is invalid"},
		{Code: failure.ExitNotReady, Meaning: "not ready: a check failed, a program or a login is missing or stale"},
		{Code: failure.ExitConflict, Meaning: "conflict: write-back, changed since approval, lease, lock, admission, definition or workflow changed"},
		{Code: failure.ExitRetained, Meaning: "resources are retained: clean-up could not confirm everything"},
		{Code: failure.ExitWorkflow, Meaning: "the workflow failed"},
		{Code: failure.ExitWaiting, Meaning: "waiting for a person"},
		{Code: failure.ExitUnknown, Meaning: "the outcome is unknown: look before repeating"},
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
	ui.Printf("Exit codes, and below each the error.code that --json gives with it.\n\n")
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
	ui.Printf("\nA failure that a workflow does not catch ends with its own code, 7 is for the rest. Retained resources (6) only\n" +
		"show where nothing else failed. A person who says no is not a failure: the workflow decides.\n")
}

func exitCodesHelpDocument() any {
	return map[string]any{"topic": "exit-codes", "exits": exitCodesHelp()}
}
