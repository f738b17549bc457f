package settings

import "strings"

// The names of all settings.
const (
	Home              = "home"
	Color             = "color"
	Debug             = "debug"
	ScriptMemory      = "script.memory"
	ScriptConfigTime  = "script.configTime"
	ScriptStepTime    = "script.stepTime"
	WriteBackMaxFiles = "writeback.maxFiles"
	WriteBackMaxBytes = "writeback.maxBytes"
	DockerHost        = "docker.host"
)

// Setting is one line of the table.
type Setting struct {
	Name    string
	Kind    Kind
	Default string // as it would be written
	Help    string // one sentence without a period
}

// Table holds every setting once.
func Table() []Setting {
	return []Setting{
		{Home, Directory, "~/.laufwerk", "where runs, workspaces and the record of everything allocated are kept"},
		{Color, Choice("auto", "always", "never"), "auto", "colour on terminals; auto follows NO_COLOR, TERM and CI"},
		{Debug, Bool, "false", "show the stack when laufwerk itself fails"},
		{ScriptMemory, atLeast(64<<20, "64MiB"), "128MiB", "memory that evaluating a workflow may take; a config may take half of it"},
		{ScriptConfigTime, Time, "2s", "time that evaluating the config may take"},
		{ScriptStepTime, Time, "5s", "time that a workflow may compute between two operations"},
		{WriteBackMaxFiles, Count, "10000", "files that one write-back may change"},
		{WriteBackMaxBytes, Bytes, "1GiB", "bytes that one write-back may write"},
		{DockerHost, Socket, "", "the engine of docker targets; if it is empty, DOCKER_HOST, DOCKER_CONTEXT or Docker's current context selects it"},
	}
}

// Env is the environment variable of the setting: script.configTime is LAUFWERK_SCRIPT_CONFIG_TIME.
func (s Setting) Env() string {
	var b strings.Builder
	b.WriteString("LAUFWERK_")
	for _, r := range s.Name {
		switch {
		case r == '.':
			b.WriteByte('_')
		case r >= 'A' && r <= 'Z':
			b.WriteByte('_')
			b.WriteRune(r)
		default:
			b.WriteString(strings.ToUpper(string(r)))
		}
	}
	return b.String()
}
