package cli

import "github.com/spf13/cobra"

func newRuns(d *Deps) *cobra.Command {
	g := newGroup("runs", "List, show, follow, cancel and prune runs",
		newRunsList(d), newRunsShow(d), newRunsLogs(d), newRunsCancel(d), newRunsPrune(d))
	g.GroupID = sectionRuns
	return g
}
