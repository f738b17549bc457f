package cli

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/cli/render"
)

type recoveryCase struct {
	Case     string   `json:"case"`
	What     string   `json:"what"`
	Commands []string `json:"commands"`
}

func recoveryCases() []recoveryCase {
	return []recoveryCase{
		{
			"A run was killed, or the machine restarted",
			"Nothing is lost: completed operations are in the run's journal and are not executed again. An agent's turn that continued\nunder its supervisor is joined; after a restart of the machine the agent is asked to continue.",
			[]string{"laufwerk runs list", "laufwerk resume RUN"},
		},
		{
			"A run waits for a person",
			"laufwerk runs show prints the question, and the command that answers it.",
			[]string{"laufwerk runs show RUN", "laufwerk answer RUN KEY VALUE"},
		},
		{
			"A write-back stopped half-way",
			"Continue writes the rest of the approved content; abort restores each path that still has the content that was written.\nUntil one of them has finished, nothing else can be written back to that source.",
			[]string{"laufwerk writeback continue RUN", "laufwerk writeback abort RUN"},
		},
		{
			"A write-back reports a conflict",
			"The source and the workspace changed the same paths, and nothing was written. Resolve the listed paths in the source, then try the\nsame approved content again.",
			[]string{"laufwerk diff RUN", "laufwerk resume RUN"},
		},
		{
			"A process is still running, or resources are retained",
			"Clean-up removes what is proved to belong to laufwerk, and reports the last observation of everything else. It can be\nrepeated.",
			[]string{"laufwerk claims list", "laufwerk cleanup RUN", "laufwerk cleanup --all --dry-run"},
		},
		{
			"The Docker engine is stopped, or does not respond",
			"Meanwhile no resource is considered gone: runs are interrupted, and claims are kept. doctor reports which engine is used, and why\nthat one. When the engine is back, the same containers are used again; agents that ran in them are asked to continue.",
			[]string{"laufwerk doctor", "laufwerk resume RUN", "laufwerk cleanup RUN"},
		},
		{
			"Another Docker engine answers, or the engine was moved",
			"An engine is identified by its ID and its data root, and answers of another engine are not accepted as proof. Start the engine that\nwas used before. If it is the same engine and only its data root or its ID changed, accept the new identity: OLD is what the\nclaims record, NEW is what the engine reports now; the message contains both.",
			[]string{"laufwerk claims list", "laufwerk resume RUN --accept-identity 'OLD=NEW'", "laufwerk cleanup RUN --accept-identity 'OLD=NEW'"},
		},
		{
			"Containers are left over",
			"Every container is recorded as a claim before the engine is asked for it. Clean-up removes the containers of runs that have\nended, also those that appeared after their claim was released. A container that only has a label of laufwerk is listed by\nthe scan, and not removed.",
			[]string{"laufwerk cleanup --all", "laufwerk doctor --scan"},
		},
		{
			"The OpenShell gateway is stopped, or its alias names another one",
			"Meanwhile no resource is considered gone, and nothing is created again. Start the gateway: commands in its sandboxes have\ncontinued, and agents whose turn was interrupted are asked to continue. A gateway is identified by its alias, its\naddress and its certificate authority. If it is the same gateway with new certificates or at another port, accept the new\nidentity: OLD is what the claims record, NEW is what is registered now; the message contains both.",
			[]string{"laufwerk doctor --execution openshell", "laufwerk resume RUN", "laufwerk cleanup RUN --accept-identity 'OLD=NEW'"},
		},
		{
			"A gateway still lists a sandbox that is gone",
			"The state of its claim is residue: the engine has no container of the sandbox, so that nothing in it can run, and the\nworkspace is free. A gateway that was killed while it removed a sandbox drops the entry some minutes after it is started\nagain.",
			[]string{"laufwerk claims list", "laufwerk cleanup --all"},
		},
		{
			"The login that a gateway stores has expired",
			"The run is interrupted and kept; no API key is used instead. Log in to Codex, store the new login in the gateway, and\ncontinue the run.",
			[]string{"codex login", "laufwerk provision openshell --rotate", "laufwerk resume RUN"},
		},
		{
			"It can never be proved that the resource of a claim is gone",
			"Its engine no longer exists, or something else has its name. Try clean-up first. Then check the identity that is printed,\nremove the resource by hand if it exists, and abandon the claim. The record and the reason are kept.",
			[]string{"laufwerk claims show ID", "laufwerk claims abandon ID --reason TEXT"},
		},
		{
			"The store is refused",
			"state.db in $LAUFWERK_HOME is empty, truncated, not a store, or from a newer laufwerk. It is never replaced, since it may\nstill record resources. Restore the file from a copy, or use the laufwerk that wrote it. The directories runs and\nworkspaces beside it are unchanged.",
			[]string{"laufwerk help environment"},
		},
		{
			"laufwerk was upgraded while runs wait or are executed",
			"A waiting run is continued by the newer version, and a worker process that executes a run continues: every run has its own\ncopy of the workflow, and formats of the same major version are compatible. Another major version is refused (exit 3) and\nnothing is changed: end such runs with the laufwerk that started them.",
			[]string{"laufwerk version", "laufwerk runs list", "laufwerk resume RUN"},
		},
		{
			"A login has expired, or the model cannot be reached",
			"The run is interrupted (exit 4) and nothing is lost: log in, or wait, and resume. The turn continues in its conversation.",
			[]string{"laufwerk doctor", "codex login", "laufwerk resume RUN"},
		},
		{
			"The disk is full",
			"No file is left half-written: free some space, then resume. The history of runs that have ended, and workspaces without\nchanges that were not written back, can be removed.",
			[]string{"laufwerk cleanup --all --dry-run", "laufwerk runs prune RUN", "laufwerk resume RUN"},
		},
		{
			"The outcome is unknown (exit 9)",
			"Something may have happened that could not be observed. Check it before you repeat it.",
			[]string{"laufwerk runs show RUN", "laufwerk claims list"},
		},
		{
			"A run has to be ended",
			"Cancelling ends the run's processes, and the run cannot be resumed afterwards; then its resources can be removed. Changes\nthat were not written back are kept unless you discard them.",
			[]string{"laufwerk runs cancel RUN", "laufwerk cleanup RUN", "laufwerk cleanup RUN --discard-changes"},
		},
	}
}

func printRecoveryHelp(ui *render.UI) {
	ui.Printf("What to do after a failure. RUN is the id of a run, from `laufwerk runs list`.\n")
	for _, r := range recoveryCases() {
		ui.Printf("\n%s\n  %s\n", ui.Out.Bold(r.Case), strings.ReplaceAll(r.What, "\n", "\n  "))
		for _, c := range r.Commands {
			ui.Printf("    %s\n", ui.Out.Command(c))
		}
	}
}

type recoveryHelpDocument struct {
	Cases []recoveryCase `json:"cases"`
	Topic string         `json:"topic"`
}

func newRecoveryHelpDocument() any { return recoveryHelpDocument{recoveryCases(), "recovery"} }
