package cli

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/cli/render"
)

// recoveryCase is one case of the recovery guide.
type recoveryCase struct {
	Case     string   `json:"case"`
	What     string   `json:"what"`
	Commands []string `json:"commands"`
}

func recoveryCases() []recoveryCase {
	return []recoveryCase{
		{
			"A run was killed, or the machine restarted",
			"Nothing is lost: finished operations are in the run's journal and do not run again. A turn that its supervisor carried\non is joined where it is; after a reboot it is asked to continue.",
			[]string{"laufwerk runs list", "laufwerk resume RUN"},
		},
		{
			"A run waits for a person",
			"The question and the exact command that answers it are shown with the run.",
			[]string{"laufwerk runs show RUN", "laufwerk answer RUN KEY VALUE"},
		},
		{
			"A write-back stopped half-way",
			"Continue applies the rest of the approved bytes; abort restores each path that still holds what was written. Until one\nof them has ended it, no other write-back touches that source.",
			[]string{"laufwerk writeback continue RUN", "laufwerk writeback abort RUN"},
		},
		{
			"A write-back reports a conflict",
			"The source changed in the same places. Nothing was written. Settle the listed paths in the source, then try the same\napproved bytes again.",
			[]string{"laufwerk diff RUN", "laufwerk resume RUN"},
		},
		{
			"A process survived, or resources are retained",
			"Clean-up ends what can be proved to be ours and says for the rest what was seen last. It may be repeated.",
			[]string{"laufwerk claims list", "laufwerk cleanup RUN", "laufwerk cleanup --all --dry-run"},
		},
		{
			"The Docker engine is gone, or hangs",
			"Nothing is called gone meanwhile: runs are interrupted, and claims stay. doctor says which engine is looked for, and why\nthat one. With the engine back, the same containers are used again; what ran in them is asked to continue.",
			[]string{"laufwerk doctor", "laufwerk resume RUN", "laufwerk cleanup RUN"},
		},
		{
			"Another Docker engine answers, or the engine was moved",
			"An engine is known by its ID and its data root, and what another one says proves nothing. Start the one that was there\nbefore; or, if it is the same and only its data root or its ID changed, say so: OLD is what claims record, NEW what answers\nnow, and both are in the message.",
			[]string{"laufwerk claims list", "laufwerk resume RUN --accept-identity 'OLD=NEW'", "laufwerk cleanup RUN --accept-identity 'OLD=NEW'"},
		},
		{
			"Containers survived",
			"Every container has a claim before the engine is asked for it. Clean-up ends those of runs that are over, and those that\narrived after their claim was released. What only carries a label of laufwerk is listed by the scan, and left alone.",
			[]string{"laufwerk cleanup --all", "laufwerk doctor --scan"},
		},
		{
			"The OpenShell gateway is gone, or another one has its alias",
			"Nothing is called gone meanwhile, and nothing is made anew. Start the gateway; what runs in its sandboxes has gone on, or is\nasked to continue. A gateway is known by its alias, its address and its authority: if it is the same with new certificates\nor at another port, say so: OLD is what claims record, NEW what is registered now, and both are in the message.",
			[]string{"laufwerk doctor --execution openshell", "laufwerk resume RUN", "laufwerk cleanup RUN --accept-identity 'OLD=NEW'"},
		},
		{
			"A gateway still lists a sandbox that is gone",
			"Its claim is residue: no container of it is on the engine, so that nothing of it can run, and the workspace is free. A gateway\nthat was killed in the middle of a removal drops such a row some minutes after it is started again.",
			[]string{"laufwerk claims list", "laufwerk cleanup --all"},
		},
		{
			"The login that a gateway holds has expired",
			"The run is interrupted and kept; nothing falls back to an API key. Log Codex in, hand the gateway the new login, and go on.",
			[]string{"codex login", "laufwerk provision openshell --rotate", "laufwerk resume RUN"},
		},
		{
			"A claim can never be proved",
			"Its engine is gone for good, or something else has its name. Try clean-up first. Then look at the identity that is printed,\nremove the resource by hand if it is there, and give the claim up. The record and the reason are kept.",
			[]string{"laufwerk claims show ID", "laufwerk claims abandon ID --reason TEXT"},
		},
		{
			"The store is refused",
			"state.db in $LAUFWERK_HOME is empty, cut, foreign or of a newer laufwerk. It is never made anew over what it may still\nown. Put the file back from a copy, or use the laufwerk that wrote it. runs/ and workspaces/ beside it are untouched.",
			[]string{"laufwerk help environment"},
		},
		{
			"laufwerk was upgraded while runs wait or work",
			"A run that waits is answered by the newer version, and a worker that is at work goes on: every run has its own copy of the\nworkflow, and formats of the same major version work together. Another major version is refused (exit 3) and nothing is\nchanged: end such runs with the laufwerk that started them.",
			[]string{"laufwerk version", "laufwerk runs list", "laufwerk resume RUN"},
		},
		{
			"A login has expired, or the model cannot be reached",
			"The run is interrupted (exit 4) and nothing is lost: log in, or wait, and resume. The turn goes on in its conversation.",
			[]string{"laufwerk doctor", "codex login", "laufwerk resume RUN"},
		},
		{
			"The disk is full",
			"Writes are whole or not at all: free space, then resume. Terminal runs and workspaces without unwritten changes can go.",
			[]string{"laufwerk cleanup --all --dry-run", "laufwerk runs prune RUN", "laufwerk resume RUN"},
		},
		{
			"The outcome is unknown (exit 9)",
			"Something may have happened that could not be observed. Look at it before you repeat it.",
			[]string{"laufwerk runs show RUN", "laufwerk claims list"},
		},
		{
			"A run should end now",
			"Cancelling ends its processes and makes it terminal; then its resources can be removed. Unwritten changes are kept unless\nyou discard them.",
			[]string{"laufwerk runs cancel RUN", "laufwerk cleanup RUN", "laufwerk cleanup RUN --discard-changes"},
		},
	}
}

func printRecoveryHelp(ui *render.UI) {
	ui.Printf("What to do after a failure. RUN is a run's id from `laufwerk runs list`.\n")
	for _, r := range recoveryCases() {
		ui.Printf("\n%s\n  %s\n", ui.Out.Bold(r.Case), strings.ReplaceAll(r.What, "\n", "\n  "))
		for _, c := range r.Commands {
			ui.Printf("    %s\n", ui.Out.Command(c))
		}
	}
}

func recoveryHelpDocument() any { return map[string]any{"topic": "recovery", "cases": recoveryCases()} }
