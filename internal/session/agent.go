package session

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/environment"
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
