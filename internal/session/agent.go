package session

import (
	"bytes"
	"encoding/json"
	"maps"
	"path"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Agent is an agent as `.agent()` described it: validated and normalised.
type Agent struct {
	ID             string        `json:"id"`
	Target         Target        `json:"target"`
	Harness        Program       `json:"harness"`
	Instructions   string        `json:"instructions,omitempty"`
	PermissionMode string        `json:"permissionMode"`
	Skills         []agent.Skill `json:"skills,omitempty"`
	ActiveTools    []string      `json:"activeTools,omitempty"`
}

// Target names a target and its definition.
type Target struct {
	Kind        string `json:"kind"`
	ID          string `json:"id"`
	Fingerprint string `json:"fingerprint"`
}

// Program is a harness with its options.
type Program struct {
	Program string          `json:"program"`
	Options json.RawMessage `json:"options"`
}

// NormalizeAgent validates the arguments of `.agent()`, with the described target and harness in them, before anything runs. What
// the target could not enforce is refused. It does no I/O.
func NormalizeAgent(value json.RawMessage, provider func(kind string) (providers.Provider, bool), programs agent.Programs) (Agent, error) {
	fields, err := options.Fields("", value, "target", "harness", "id", "instructions", "permissionMode", "skills", "activeTools")
	if err != nil {
		return Agent{}, err
	}
	var a Agent
	if err := json.Unmarshal(fields["target"], &a.Target); err != nil {
		return Agent{}, options.Invalid("target", "expected a described target: %v", err)
	}
	if err := json.Unmarshal(fields["harness"], &a.Harness); err != nil {
		return Agent{}, options.Invalid("harness", "expected a described harness: %v", err)
	}
	p, ok := provider(a.Target.Kind)
	if !ok {
		return Agent{}, options.Invalid("target", "the provider %q is not part of this build", a.Target.Kind)
	}
	on := p.Info()
	program, ok := programs.Find(a.Harness.Program)
	if !ok {
		return Agent{}, options.Invalid("harness", "the agent program %q is not part of this build", a.Harness.Program)
	}
	if on.Programs != nil && !slices.Contains(on.Programs, a.Harness.Program) {
		return Agent{}, options.Invalid("harness", "%s targets cannot run %q; they run: %v", on.Kind, a.Harness.Program, on.Programs)
	}
	if a.ID, err = targets.ID(fields["id"], program.Name()); err != nil {
		return Agent{}, err
	}
	var given targets.Definition
	_ = json.Unmarshal(fields["target"], &given) // it gives no login then
	if need := program.Credential(); need != nil && !slices.Contains(given.Credentials(), need.Kind) {
		return Agent{}, options.Invalid("harness", "%s runs with a login of yours, and the target %q has none: give its constructor `credentials: %q`", program.Name(), a.Target.ID, need.Kind)
	}
	if a.Instructions, err = optional(fields, "instructions", "", "a text"); err != nil {
		return Agent{}, err
	}
	a.PermissionMode = agent.AllowAll
	if raw := fields["permissionMode"]; !options.Absent(raw) {
		if a.PermissionMode, err = options.OneOf("permissionMode", raw, agent.AllowAll, agent.AllowEdits, agent.AllowReads); err != nil {
			return Agent{}, err
		}
		if on.SandboxReason != "" && a.PermissionMode != agent.AllowAll {
			return Agent{}, options.Invalid("permissionMode", "%q is refused on %s targets: %s", a.PermissionMode, on.Kind, on.SandboxReason)
		}
	}
	if raw := fields["skills"]; !isEmptyJSON(raw) {
		if !on.Skills {
			return Agent{}, options.Invalid("skills", "injected skills are refused on %s targets: %s", on.Kind, on.SkillsReason)
		}
		if a.Skills, err = parseSkills(raw); err != nil {
			return Agent{}, err
		}
	}
	if raw := fields["activeTools"]; !isEmptyJSON(raw) {
		if a.ActiveTools, err = options.Strings("activeTools", raw, "a list of names"); err != nil {
			return Agent{}, err
		}
	}
	return a, program.Accept(agent.Requirements{
		Options: a.Harness.Options, Instructions: a.Instructions, PermissionMode: a.PermissionMode, Skills: a.Skills, ActiveTools: a.ActiveTools,
	})
}

func optional(fields map[string]json.RawMessage, name, fallback, expected string) (string, error) {
	if options.Absent(fields[name]) {
		return fallback, nil
	}
	return options.String(name, fields[name], expected)
}

func isEmptyJSON(raw json.RawMessage) bool {
	return options.Absent(raw) || bytes.Equal(bytes.TrimSpace(raw), []byte("[]"))
}

// Redacted is the agent without the literal values of variables: as it may be journaled.
func (a Agent) Redacted() (Agent, error) {
	var err error
	a.Harness.Options, err = environment.Redact(a.Harness.Options)
	return a, err
}

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
	const descriptionExpected = "one line that says when to use the skill"
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
