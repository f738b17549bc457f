package cli

import (
	"github.com/spf13/cobra"
)

func newPrepare(d *Deps) *cobra.Command {
	g := newGroup("prepare", "Install or build what execution targets need", newPrepareLocal(d), newPrepareImages(d, kindDocker), newPrepareImages(d, kindOpenShell))
	g.GroupID = sectionStart
	return g
}
