package cli

import "github.com/spf13/cobra"

func newProvision(d *Deps) *cobra.Command {
	g := Group("provision", "Hand a gateway what execution targets need of it", newProvisionOpenShell(d))
	g.GroupID = SectionStart
	return g
}
