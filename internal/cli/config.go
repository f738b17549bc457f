package cli

import (
	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/render"
)

type configOptions struct {
	*Deps
}

func newConfig(d *Deps) *cobra.Command {
	o := &configOptions{Deps: d}
	return &cobra.Command{
		Use:   "config",
		Short: "Print every setting with its value and where it comes from",
		Long: `Print every setting with its value and where it comes from: the flag --set, a variable, the settings file, or the
default. laufwerk help environment describes them.`,
		Example: "$ laufwerk config\n\n# With another value for one command\n$ laufwerk config --set script.stepTime=10s --json",
		GroupID: sectionOperate,
		RunE: func(*cobra.Command, []string) error {
			return runConfig(o)
		},
	}
}

type configDocument struct {
	File     string          `json:"file"` // of the settings, whether or not it is there
	Settings []configSetting `json:"settings"`
}

type configSetting struct {
	Name     string `json:"name"`
	Value    string `json:"value"`
	Origin   string `json:"origin"`
	Variable string `json:"variable"`
	Default  string `json:"default"`
}

func runConfig(o *configOptions) error {
	s, err := o.Settings()
	if err != nil {
		return err
	}
	doc := configDocument{File: s.File()}
	var rows [][]any
	for _, v := range s.Values() {
		doc.Settings = append(doc.Settings, configSetting{Name: v.Name, Value: v.Text, Origin: v.Origin, Variable: v.Env(), Default: v.Default})
		rows = append(rows, []any{v.Name, v.Text, v.Origin})
	}
	o.UI.Table([]string{"SETTING", "VALUE", "ORIGIN"}, rows)
	if !o.UI.JSON {
		o.UI.Talkf("settings file: %s\n", render.Name(s.File()))
	}
	return o.UI.Document(doc)
}
