package docker

import (
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Kind is the provider's name.
const Kind = "docker"

// The networks of a container.
const (
	bridge    = "bridge"
	noNetwork = "none"
)

// bootstrapPrepared is the one value of the option codexBootstrap.
const bootstrapPrepared = "prepared"

// config is the normalised form of createDockerExecution's options.
type config struct {
	CodexBootstrap      string                  `json:"codexBootstrap,omitempty"` // "" or bootstrapPrepared
	Credentials         []string                `json:"credentials,omitempty"`    // sorted, each once
	Env                 environment.Environment `json:"env,omitempty"`
	ID                  string                  `json:"id"`
	Image               string                  `json:"image,omitempty"`               // a reference or an id, as it was given; "" is the prepared standard image
	ImageCacheDirectory string                  `json:"imageCacheDirectory,omitempty"` // as it was given: relative to the project, absolute, or below ~/
	Network             string                  `json:"network"`                       // bridge or noNetwork
	Prepared            *prepared               `json:"prepared,omitempty"`            // in place of Image
	Resources           targets.Resources       `json:"resources,omitzero"`
}

// prepared is an image whose id came from loadPreparedCodexImage. The constructor in the isolate, which remembers such ids,
// gives it in place of `image`; users cannot.
type prepared struct {
	Image    string `json:"image,omitempty"`        // sha256:…
	Manifest string `json:"manifestPath,omitempty"` // absolute
}

// Validate holds the rules of createDockerExecution. Its own normalised form is valid and stays as it is. An image that came
// from loadPreparedCodexImage and the cache's folder say where the same thing is found: they do not count in the fingerprint.
func (p *Provider) Validate(given json.RawMessage) (targets.Definition, error) {
	c, err := parse(given, p.c.Programs)
	if err != nil {
		return targets.Definition{}, err
	}
	defining := c
	defining.ImageCacheDirectory = ""
	if c.Prepared != nil {
		defining.Prepared = &prepared{}
	}
	return targets.NewDefinition(Kind, c.ID, c, defining)
}

func parse(given json.RawMessage, programs agent.Programs) (config, error) {
	c := config{Network: bridge}
	given, prepared := splitPrepared(given)
	fields, err := options.Fields("", given, "id", "image", "codexBootstrap", "credentials", "resources", "network", "env", "imageCacheDirectory")
	if err != nil {
		return c, err
	}
	if c.ID, err = targets.ID(fields["id"], Kind); err != nil {
		return c, err
	}
	if raw := fields["image"]; !options.Absent(raw) {
		if c.Image, err = targets.Image("image", raw); err != nil {
			return c, err
		}
	}
	if raw := fields["codexBootstrap"]; !options.Absent(raw) {
		if c.CodexBootstrap, err = options.OneOf("codexBootstrap", raw, bootstrapPrepared); err != nil {
			return c, err
		}
	}
	if c.Credentials, err = targets.Credentials(fields["credentials"], programs.CredentialKinds()); err != nil {
		return c, err
	}
	if c.Resources, err = targets.ParseResources("resources", fields["resources"]); err != nil {
		return c, err
	}
	if raw := fields["network"]; !options.Absent(raw) {
		if c.Network, err = options.OneOf("network", raw, bridge, noNetwork); err != nil {
			return c, err
		}
	}
	if c.Env, err = environment.Parse("env", fields["env"], programs.Refused("HOME", "TMPDIR")); err != nil {
		return c, err
	}
	if raw := fields["imageCacheDirectory"]; !options.Absent(raw) {
		if c.ImageCacheDirectory, err = options.Location("imageCacheDirectory", raw, "a directory"); err != nil {
			return c, err
		}
	}
	if prepared != nil {
		if c.Image != "" || json.Unmarshal(prepared, &c.Prepared) != nil || c.Prepared == nil || !imageID.MatchString(c.Prepared.Image) {
			return c, options.Invalid("prepared", "there is no such option; pass the result of loadPreparedCodexImage as `image`")
		}
		c.CodexBootstrap = bootstrapPrepared
	}
	return c, nil
}

// splitPrepared takes the field `prepared`, which is not an option, out of what was given.
func splitPrepared(given json.RawMessage) (rest, prepared json.RawMessage) {
	var fields map[string]json.RawMessage
	if json.Unmarshal(given, &fields) != nil || fields["prepared"] == nil {
		return given, nil
	}
	prepared = fields["prepared"]
	delete(fields, "prepared")
	rest, err := json.Marshal(fields)
	if err != nil {
		return given, nil
	}
	return rest, prepared
}

var imageID = lazyregexp.Regexp{Pattern: `^sha256:[0-9a-f]{64}$`}
