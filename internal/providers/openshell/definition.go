package openshell

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Kind is the provider's name.
const Kind = "openshell"

// config is the normalised form of createOpenShellExecution's options.
type config struct {
	Credentials         credentials       `json:"credentials"`
	Gateway             string            `json:"gateway"` // the alias of its registration
	ID                  string            `json:"id"`
	Image               string            `json:"image,omitempty"`               // a reference or an id, as it was given; "" is the prepared standard image
	ImageCacheDirectory string            `json:"imageCacheDirectory,omitempty"` // as it was given: relative to the project, absolute, or below ~/
	Policy              policy.Policies   `json:"policy"`
	Resources           targets.Resources `json:"resources,omitzero"` // cpus and memory only
}

type credentials struct {
	Kind     string `json:"kind"`     // of the login, as agent.Credential has it
	Provider string `json:"provider"` // its name at the gateway
}

// Validate holds the rules of createOpenShellExecution. Its own normalised form is valid and stays as it is. The cache's folder
// says where the same thing is found: it does not count in the fingerprint.
func (p *Provider) Validate(given json.RawMessage) (targets.Definition, error) {
	c, err := parse(given, p.c.Programs)
	if err != nil {
		return targets.Definition{}, err
	}
	defining := c
	defining.ImageCacheDirectory = ""
	return targets.NewDefinition(Kind, c.ID, c, defining)
}

func parse(given json.RawMessage, programs agent.Programs) (c config, err error) {
	fields, err := options.Fields("", given, "id", "gateway", "credentials", "policy", "resources", "image", "imageCacheDirectory")
	if err != nil {
		return c, otherTargetOption(given, err)
	}
	if c.ID, err = targets.ID(fields["id"], Kind); err != nil {
		return c, err
	}
	if c.Gateway, err = gatewayAlias(fields["gateway"]); err != nil {
		return c, err
	}
	if c.Credentials, err = parseCredentials(fields["credentials"], programs); err != nil {
		return c, err
	}
	if c.Policy, err = policy.Parse(fields["policy"]); err != nil {
		return c, err
	}
	if err := checkBindings(c); err != nil {
		return c, err
	}
	if c.Resources, err = resources(fields["resources"]); err != nil {
		return c, err
	}
	if raw := fields["image"]; !options.Absent(raw) {
		if c.Image, err = targets.Image("image", raw); err != nil {
			return c, err
		}
	}
	if raw := fields["imageCacheDirectory"]; !options.Absent(raw) {
		c.ImageCacheDirectory, err = options.Location("imageCacheDirectory", raw, "a directory")
	}
	return c, err
}

// otherTargetOption says why options of other targets are not there, in place of err.
func otherTargetOption(given json.RawMessage, err error) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(given, &fields) != nil {
		return err
	}
	for _, o := range []struct{ name, why string }{
		{"env", "variables of agents and commands are not an option of OpenShell targets: give them to `exec`, or to `createCommand`"},
		{"network", "`policy` lists the permitted connections; {} permits none"},
		{"codexBootstrap", "every image of an OpenShell target is a prepared one"},
	} {
		if fields[o.name] != nil {
			return options.Invalid(o.name, "there is no such option: %s", o.why)
		}
	}
	return err
}

func gatewayAlias(raw json.RawMessage) (string, error) {
	const path, expected = "gateway", "the alias of a registered gateway, one folder's name such as laufwerk-local"
	s, err := options.String(path, raw, expected)
	if err == nil && (s == "" || s == "." || s == ".." || len(s) > 255 || strings.ContainsAny(s, `/\`) || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f })) {
		err = options.Invalid(path, "expected %s, got %s", expected, options.Show(raw))
	}
	return s, err
}

func parseCredentials(raw json.RawMessage, programs agent.Programs) (c credentials, err error) {
	const path = "credentials"
	expected := `{ kind: ` + gatewayLoginKinds(programs) + `, provider: "NAME" }, a provider of the gateway`
	switch options.Kind(raw) {
	case "an object":
	case "a string", "an array": // as other targets have them
		return c, options.Invalid(path, "expected %s, got %s: on OpenShell targets the gateway stores the login, and not this machine", expected, options.Show(raw))
	default:
		return c, options.Invalid(path, "expected %s, got %s", expected, options.Show(raw))
	}
	fields, err := options.Fields(path, raw, "kind", "provider")
	if err != nil {
		return c, err
	}
	if c.Kind, err = credentialKind(fields["kind"], programs); err != nil {
		return c, err
	}
	const name = "a provider's name, at most 253 bytes, without white space"
	c.Provider, err = options.String(path+".provider", fields["provider"], name)
	if err == nil && (c.Provider == "" || len(c.Provider) > 253 || strings.ContainsFunc(c.Provider, func(r rune) bool { return r <= ' ' || r == 0x7f })) {
		err = options.Invalid(path+".provider", "expected %s, got %s", name, options.Show(fields["provider"]))
	}
	return c, err
}

// gatewayLoginKinds are the kinds of logins that a gateway can hold, for people.
func gatewayLoginKinds(programs agent.Programs) string {
	var kinds []string
	for _, kind := range programs.CredentialKinds() {
		if programs.Credential(kind).Profile != nil {
			kinds = append(kinds, strconv.Quote(kind))
		}
	}
	return strings.Join(kinds, " or ")
}

func credentialKind(raw json.RawMessage, programs agent.Programs) (string, error) {
	const path = "credentials.kind"
	expected := gatewayLoginKinds(programs)
	s, err := options.String(path, raw, expected)
	if err != nil {
		return "", err
	}
	known := programs.Credential(s)
	switch {
	case known != nil && known.Profile != nil:
		return s, nil
	case known != nil:
		return "", options.Invalid(path, "expected %s, got %q: %s does not run on OpenShell targets", expected, s, known.Title)
	case strings.Contains(strings.ToLower(s), "api"):
		return "", options.Invalid(path, "expected %s, got %q: API keys are refused, a run never falls back to billing by them", expected, s)
	default:
		return "", options.Invalid(path, "expected %s, got %q", expected, s)
	}
}

// checkBindings refuses endpoints that are bound to a provider whose credentials the sandbox does not have.
func checkBindings(c config) error {
	bindings := c.Policy.Bindings()
	for _, path := range slices.Sorted(maps.Keys(bindings)) {
		if name := bindings[path]; name != c.Credentials.Provider {
			return options.Invalid(path, "expected %q, the provider of `credentials`, which is the only one that the sandbox has, got %q", c.Credentials.Provider, name)
		}
	}
	return nil
}

// resources is the option `resources`. What a gateway cannot limit for one sandbox is refused with the reason.
func resources(raw json.RawMessage) (targets.Resources, error) {
	const path = "resources"
	var fields map[string]json.RawMessage
	if options.Kind(raw) == "an object" && json.Unmarshal(raw, &fields) == nil {
		switch {
		case !options.Absent(fields["pids"]):
			return targets.Resources{}, options.Invalid(path+".pids", "OpenShell limits processes for all sandboxes of a gateway and not for one: set sandbox_pids_limit in the gateway's configuration (2048 by default)")
		case !options.Absent(fields["swapBytes"]):
			return targets.Resources{}, options.Invalid(path+".swapBytes", "OpenShell cannot limit swap: a sandbox may swap as much as it has memory")
		}
	}
	if _, err := options.Fields(path, raw, "cpus", "memoryBytes"); err != nil {
		return targets.Resources{}, err
	}
	return targets.ParseResources(path, raw)
}
