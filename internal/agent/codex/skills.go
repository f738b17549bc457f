package codex

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
)

// skillFiles are a skill's in Codex's home. Codex 0.171 tells the model the name, the description and the path of every
// skills/*/SKILL.md there; the model reads the file when it wants to.
func skillFiles(s agent.Skill) []agent.File {
	dir := path.Join("skills", s.Name)
	head := "---\nname: " + s.Name + "\ndescription: " + quote(s.Description) + "\n---\n\n" // a basic string of TOML is one of YAML too
	out := []agent.File{{Path: path.Join(dir, "SKILL.md"), Content: []byte(head + s.Content), Mode: 0o600}}
	for _, name := range slices.Sorted(maps.Keys(s.Files)) {
		mode := fs.FileMode(0o600)
		if strings.HasPrefix(s.Files[name], "#!") {
			mode = 0o700
		}
		out = append(out, agent.File{Path: path.Join(dir, name), Content: []byte(s.Files[name]), Mode: mode})
	}
	return out
}
