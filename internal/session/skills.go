package session

import (
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
)

// Bounds of the skills of one agent. Agent programs take names and descriptions up to these lengths; the size is that of all
// texts together, which are kept in the journal.
const (
	maxSkills      = 32
	maxSkillName   = 64   // bytes
	maxDescription = 1024 // characters
	maxSkillFiles  = 64   // of one skill
	maxSkillPath   = 200  // bytes
	maxSkillBytes  = 512 << 10
)

// skillFile is the name of the file with a skill's own text, beside its other files.
const skillFile = "SKILL.md"

func parseSkills(raw json.RawMessage) ([]agent.Skill, error) {
	var given []json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil, options.Invalid("skills", "expected a list of skills, got %s", options.Show(raw))
	}
	if len(given) > maxSkills {
		return nil, options.Invalid("skills", "expected at most %d skills, got %d", maxSkills, len(given))
	}
	var out []agent.Skill
	size := 0
	for i, one := range given {
		at := options.Index("skills", i)
		s, err := parseSkill(at, one)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(o agent.Skill) bool { return o.Name == s.Name }) {
			return nil, options.Invalid(at+".name", "expected another name than that of an earlier skill, got %q", s.Name)
		}
		size += len(s.Content)
		for _, text := range s.Files {
			size += len(text)
		}
		if size > maxSkillBytes {
			return nil, options.Invalid("skills", "expected texts of at most %d bytes together: put what is larger into the workspace", maxSkillBytes)
		}
		out = append(out, s)
	}
	return out, nil
}

var skillName = lazyregexp.Regexp{Pattern: `^[a-z0-9]+(-[a-z0-9]+)*$`}

func parseSkill(at string, raw json.RawMessage) (s agent.Skill, err error) {
	if options.Kind(raw) != "an object" {
		return s, options.Invalid(at, "expected { name, description, content, files? }, got %s", options.Show(raw))
	}
	fields, err := options.Fields(at, raw, "name", "description", "content", "files")
	if err != nil {
		return s, err
	}
	const nameExpected = "lower-case letters and digits with single hyphens between them"
	if s.Name, err = options.String(at+".name", fields["name"], nameExpected); err != nil {
		return s, err
	}
	if len(s.Name) > maxSkillName || !skillName.MatchString(s.Name) {
		return s, options.Invalid(at+".name", "expected %s, %d at most, got %q", nameExpected, maxSkillName, s.Name)
	}
	const descriptionExpected = "one line that says when the skill is of use"
	if s.Description, err = options.String(at+".description", fields["description"], descriptionExpected); err != nil {
		return s, err
	}
	if n := utf8.RuneCountInString(s.Description); strings.TrimSpace(s.Description) == "" || n > maxDescription || strings.ContainsFunc(s.Description, unicode.IsControl) {
		return s, options.Invalid(at+".description", "expected %s, of at most %d characters, got %d", descriptionExpected, maxDescription, n)
	}
	if s.Content, err = text(at+".content", fields["content"]); err != nil {
		return s, err
	}
	if raw := fields["files"]; !options.Absent(raw) {
		s.Files, err = skillFiles(at+".files", raw)
	}
	return s, err
}

func text(at string, raw json.RawMessage) (string, error) {
	s, err := options.String(at, raw, "a text")
	if err == nil && strings.ContainsRune(s, 0) {
		err = options.Invalid(at, "expected no NUL byte")
	}
	return s, err
}

// skillFiles are the texts of a skill by their paths below its folder. No path is a folder of another one.
func skillFiles(at string, raw json.RawMessage) (map[string]string, error) {
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil, options.Invalid(at, "expected an object of texts by their paths, got %s", options.Show(raw))
	}
	if len(given) > maxSkillFiles {
		return nil, options.Invalid(at, "expected at most %d files, got %d", maxSkillFiles, len(given))
	}
	out := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if len(name) > maxSkillPath || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) || strings.ContainsRune(name, '\\') ||
			path.Clean("/"+name) != "/"+name || name == "" {
			return nil, options.Invalid(at, "expected paths below the skill's folder such as \"scripts/check.sh\", got %q", name)
		}
		if first, _, _ := strings.Cut(name, "/"); strings.EqualFold(first, skillFile) {
			return nil, options.Invalid(at, "expected no %s among the files: it is made of name, description and content", skillFile)
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, also := given[dir]; also {
				return nil, options.Invalid(at, "expected %q to be a file or a folder, not both", dir)
			}
		}
		var err error
		if out[name], err = text(at+"."+name, given[name]); err != nil {
			return nil, err
		}
	}
	return out, nil
}
