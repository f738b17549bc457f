package session

import (
	"encoding/json"
	"regexp"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/harness"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/providers"
)

var agentID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,63}$`) //nolint:gochecknoglobals // a constant

// NormalizeAgent is the one set of rules for a target's `.agent()`: it does no I/O. given is the target's definition as
// `target`, the harness as {program, options} and the other options as the caller wrote them. What no access to the target
// could ever allow is refused here, the rest when a session opens.
func NormalizeAgent(given json.RawMessage, provider func(kind string) (providers.Provider, bool), harnesses func(program string) (harness.Harness, bool)) (Agent, error) {
	fields, err := options.Fields("", given, "id", "target", "harness", "instructions", "permissionMode", "skills", "activeTools")
	if err != nil {
		return Agent{}, err
	}
	var a Agent
	if json.Unmarshal(fields["target"], &a.Target) != nil || json.Unmarshal(fields["harness"], &a.Harness) != nil {
		return Agent{}, options.Invalid("harness", "expected a value of createCommand, createCodex or createClaudeCode")
	}
	p, ok := provider(a.Target.Kind)
	if !ok {
		return Agent{}, failure.New(failure.Unsupported, "the execution kind %q is not part of this build", a.Target.Kind)
	}
	if _, ok := harnesses(a.Harness.Program); !ok {
		return Agent{}, failure.New(failure.Unsupported, "the agent program %q is not part of this build", a.Harness.Program)
	}
	a.ID = a.Harness.Program
	if raw := fields["id"]; !options.Absent(raw) {
		const expected = "1 to 63 letters, digits, dots, underscores and hyphens"
		if a.ID, err = options.String("id", raw, expected); err != nil {
			return Agent{}, err
		}
		if !agentID.MatchString(a.ID) {
			return Agent{}, options.Invalid("id", "expected %s, got %q", expected, a.ID)
		}
	}
	if raw := fields["instructions"]; !options.Absent(raw) {
		if a.Instructions, err = options.String("instructions", raw, "text"); err != nil {
			return Agent{}, err
		}
	}
	a.PermissionMode = "allow-all"
	if raw := fields["permissionMode"]; !options.Absent(raw) {
		if a.PermissionMode, err = options.OneOf("permissionMode", raw, "allow-all", "allow-edits", "allow-reads"); err != nil {
			return Agent{}, err
		}
		if a.PermissionMode != "allow-all" { // harness.Turn has no place for it
			return Agent{}, unenforceable("permissionMode", a.Harness.Program)
		}
	}
	if raw := fields["activeTools"]; !options.Absent(raw) {
		if a.ActiveTools, err = options.Strings("activeTools", raw, "a list of the names of tools"); err != nil {
			return Agent{}, err
		}
		return Agent{}, unenforceable("activeTools", a.Harness.Program)
	}
	return a, skills(&a, fields["skills"], p.Info())
}

func unenforceable(option, program string) error {
	return failure.New(failure.Unsupported, "%s: nothing can hold the agent program %q to it; leave it out", option, program).WithPaths(option)
}

func skills(a *Agent, raw json.RawMessage, info providers.Info) error {
	if options.Absent(raw) {
		return nil
	}
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return options.Invalid("skills", "expected a list of skills")
	}
	for i, one := range list {
		path := options.Index("skills", i)
		fields, err := options.Fields(path, one, "name", "description", "content", "files")
		if err != nil {
			return err
		}
		for _, name := range []string{"name", "description", "content"} {
			if _, err := options.String(options.Join(path, name), fields[name], "text"); err != nil {
				return err
			}
		}
	}
	if len(list) > 0 && !info.Skills {
		return failure.New(failure.Unsupported, "skills: injected skills are refused on %s: %s", info.Kind, info.SkillsReason).WithPaths("skills")
	}
	a.Skills = raw
	return nil
}
