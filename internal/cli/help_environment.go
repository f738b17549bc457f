package cli

import (
	"cmp"

	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
)

type settingHelp struct {
	Name     string `json:"name"`
	Variable string `json:"variable"`
	Default  string `json:"default"`
	Expected string `json:"expected"`
	Help     string `json:"help"`
}

type variableHelp struct {
	Name string `json:"name"`
	Help string `json:"help"`
}

func otherVariablesHelp() []variableHelp {
	return []variableHelp{
		{settings.FileEnv, "the settings file, instead of $XDG_CONFIG_HOME/laufwerk/config.toml (default ~/.config/laufwerk/config.toml)"},
		{"HOME", "the home directory; if it is not set, that of the user database"},
		{"NO_COLOR", "if it is set, even to the empty string: no colour"},
		{"TERM", "if it is dumb: no colour"},
		{"CI", "if it is set, and neither false nor 0: no colour"},
		{"COLUMNS", "the width of the terminal, instead of what the terminal reports"},
	}
}

func settingsHelp() []settingHelp {
	var out []settingHelp
	for _, s := range settings.Table() {
		out = append(out, settingHelp{s.Name, s.Env(), s.Default, s.Kind.Expected, s.Help})
	}
	return out
}

func printEnvironmentHelp(ui *render.UI) {
	ui.Printf(`Settings. Each is taken from the first of these that gives it: the flag --set NAME=VALUE, the variable, the settings file, the default.
In the settings file (TOML), script.memory is the key memory in the table [script].

`)
	for _, s := range settingsHelp() {
		ui.Printf("%s\n  %s\n  --set %s=…: %s (default %s)\n\n", ui.Out.Bold(s.Variable), s.Help, s.Name, s.Expected, cmp.Or(s.Default, "none"))
	}
	ui.Printf("Other variables\n\n")
	for _, v := range otherVariablesHelp() {
		ui.Printf("%s\n  %s\n", ui.Out.Bold(v.Name), v.Help)
	}
}

type environmentHelpDocument struct {
	Settings  []settingHelp  `json:"settings"`
	Topic     string         `json:"topic"`
	Variables []variableHelp `json:"variables"`
}

func newEnvironmentHelpDocument() any {
	return environmentHelpDocument{settingsHelp(), "environment", otherVariablesHelp()}
}
