package cli

import (
	"github.com/spf13/cobra"
)

func newPrepare(d *Deps) *cobra.Command {
	commands := []*cobra.Command{newPrepareLocal(d)}
	for _, kind := range d.ImageKinds {
		commands = append(commands, newPrepareImages(d, kind))
	}
	g := newGroup("prepare", "Install or build what execution targets need", commands...)
	g.GroupID = sectionStart
	return g
}
