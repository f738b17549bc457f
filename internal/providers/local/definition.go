package local

import (
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// config is the normalised form of createLocalExecution's options.
type config struct {
	Credentials []string                `json:"credentials,omitempty"` // sorted, each once
	Env         environment.Environment `json:"env,omitempty"`
	ID          string                  `json:"id"`
}

// Validate holds the rules of createLocalExecution. Its own normalised form is valid and stays as it is.
func (p *Provider) Validate(given json.RawMessage) (targets.Definition, error) {
	fields, err := options.Fields("", given, "id", "credentials", "env")
	if err != nil {
		return targets.Definition{}, err
	}
	var c config
	if c.ID, err = targets.ID(fields["id"], Kind); err != nil {
		return targets.Definition{}, err
	}
	if c.Credentials, err = targets.Credentials(fields["credentials"], p.programs.CredentialKinds()); err != nil {
		return targets.Definition{}, err
	}
	if c.Env, err = environment.Parse("env", fields["env"], p.programs.HomeVariables()...); err != nil {
		return targets.Definition{}, err
	}
	return targets.NewDefinition(Kind, c.ID, c, c)
}
