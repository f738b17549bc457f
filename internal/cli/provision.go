package cli

import "github.com/spf13/cobra"

func newProvision(d *Deps) *cobra.Command {
	g := newGroup("provision", "Set up a gateway with what execution targets need", newProvisionOpenShell(d))
	g.GroupID = sectionStart
	return g
}
