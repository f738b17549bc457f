// Package config is the command `laufwerk config`.
package config

import (
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
)

// Options of the command.
type Options struct {
	UI       *render.UI
	Settings func() (*settings.Settings, error)
}

// New makes the command.
func New(d *cli.Deps) *cobra.Command {
	opts := &Options{UI: d.UI, Settings: d.Settings}
	return &cobra.Command{
		Use:   "config",
		Short: "Print every setting with its value and where it comes from",
		Long: `Print every setting with its value and where it comes from: the flag --set, a variable, the settings file, or the
default. What each of them does: laufwerk help environment.`,
		Example: "$ laufwerk config\n\n# As it would be for one command\n$ laufwerk config --set script.stepTime=10s --json",
		GroupID: cli.SectionOperate,
		RunE: func(*cobra.Command, []string) error {
			return run(opts)
		},
	}
}

type row struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Origin   string `json:"origin"`
	Variable string `json:"variable"`
	Default  string `json:"default"`
}

func run(opts *Options) error {
	s, err := opts.Settings()
	if err != nil {
		return err
	}
	doc := struct {
		File     string `json:"file"` // of the settings, whether or not it is there
		Settings []row  `json:"settings"`
	}{File: s.File()}
	var rows [][]any
	for _, v := range s.Values() {
		doc.Settings = append(doc.Settings, row{Name: v.Name, Value: v.Text, Origin: v.Origin, Variable: v.Env(), Default: v.Default})
		rows = append(rows, []any{v.Name, v.Text, v.Origin})
	}
	opts.UI.Table([]string{"SETTING", "VALUE", "ORIGIN"}, rows)
	if !opts.UI.JSON {
		opts.UI.Talkf("settings file: %s\n", render.Name(s.File()))
	}
	return opts.UI.Document(doc)
}
