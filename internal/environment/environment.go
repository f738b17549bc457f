// Package environment is the `Environment` of the TypeScript surface: variables with a literal value, or with the name of
// a variable of the worker that is looked up when an operation starts.
package environment

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

// Environment is a set of variables by name.
type Environment map[string]Value

// Value is a literal, or the name of a variable of the worker.
type Value struct {
	Literal  string
	FromHost string // "" for a literal
}

// RefusedNames are names of variables that nobody can give to agents.
type RefusedNames struct {
	Own     []string // sessions set them themselves
	APIKeys []string // a run never falls back to billing by use
}

// Has says whether no agent may get a variable of this name, wherever it comes from. Sessions set their own in its place.
func (r RefusedNames) Has(name string) bool {
	return slices.Contains(r.APIKeys, name) || strings.HasPrefix(name, reserved)
}

// reserved starts the names that are laufwerk's own.
const reserved = "LAUFWERK_"

// MarshalJSON writes a value as it was given: a string, or {"fromHost": name}.
func (v Value) MarshalJSON() ([]byte, error) {
	if v.FromHost != "" {
		return json.Marshal(map[string]string{"fromHost": v.FromHost})
	}
	return json.Marshal(v.Literal)
}

// UnmarshalJSON reads what MarshalJSON writes. Foreign input goes through Parse, whose failures say where they are.
func (v *Value) UnmarshalJSON(b []byte) error {
	var from struct {
		FromHost string `json:"fromHost"`
	}
	if json.Unmarshal(b, &v.Literal) == nil {
		return nil
	}
	if err := json.Unmarshal(b, &from); err != nil {
		return err
	}
	v.FromHost = from.FromHost
	return nil
}

// Parse reads the option at path. Its failures name the option and what was expected and came; values are not repeated,
// since they may be secret. Nil stands for no variables.
func Parse(path string, raw json.RawMessage, refused RefusedNames) (Environment, error) {
	if options.Absent(raw) {
		return nil, nil
	}
	var given map[string]json.RawMessage
	if json.Unmarshal(raw, &given) != nil {
		return nil, options.Invalid(path, "expected an object of variables, got %s", options.Kind(raw))
	}
	out := Environment{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := path + "." + name
		if err := refused.check(at, name); err != nil {
			return nil, err
		}
		if slices.Contains(refused.Own, name) {
			return nil, options.Invalid(at, "expected no %s: every session has one of its own", name)
		}
		v, err := parseValue(at, given[name], refused)
		if err != nil {
			return nil, err
		}
		out[name] = v
	}
	return out, nil
}

func parseValue(at string, raw json.RawMessage, refused RefusedNames) (v Value, err error) {
	if json.Unmarshal(raw, &v.Literal) == nil && options.Kind(raw) == "a string" {
		if strings.ContainsRune(v.Literal, 0) {
			return v, options.Invalid(at, "expected a value without NUL bytes")
		}
		return v, nil
	}
	if options.Kind(raw) != "an object" {
		return v, options.Invalid(at, `expected a string or { fromHost: "NAME" }, got %s`, options.Kind(raw))
	}
	fields, err := options.Fields(at, raw, "fromHost")
	if err != nil {
		return v, err
	}
	if json.Unmarshal(fields["fromHost"], &v.FromHost) != nil || v.FromHost == "" {
		return v, options.Invalid(at+".fromHost", "expected the name of a variable of the worker's environment, got %s", options.Kind(fields["fromHost"]))
	}
	return v, refused.check(at+".fromHost", v.FromHost)
}

func (r RefusedNames) check(at, name string) error {
	for i, c := range name {
		if c != '_' && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') && (i == 0 || c < '0' || c > '9') {
			return options.Invalid(at, "expected a name of letters, digits and _ that does not begin with a digit, got %q", name)
		}
	}
	switch {
	case name == "":
		return options.Invalid(at, "expected a name, got an empty one")
	case slices.Contains(r.APIKeys, name):
		return options.Invalid(at, "expected no API key: %s is refused, since a run must never fall back to billing by use", name)
	case strings.HasPrefix(name, reserved):
		return options.Invalid(at, "expected a name that does not begin with %s: these are laufwerk's own", reserved)
	}
	return nil
}

// Missing are the variables of the worker that are wanted and not set, sorted.
func (e Environment) Missing(host map[string]string) []string {
	var out []string
	for _, v := range e {
		if _, ok := host[v.FromHost]; v.FromHost != "" && !ok && !slices.Contains(out, v.FromHost) {
			out = append(out, v.FromHost)
		}
	}
	slices.Sort(out)
	return out
}

// Resolve gives the variables as NAME=value, sorted. A variable of the worker that is not set is a failure of kind NotReady.
func (e Environment) Resolve(host map[string]string) ([]string, error) {
	if missing := e.Missing(host); len(missing) > 0 {
		f := failure.New(failure.NotReady, "the worker's environment has no %s", strings.Join(missing, ", ")).
			WithHint("export %s=…\nlaufwerk resume RUN", strings.Join(missing, "=… "))
		return nil, f
	}
	out := make([]string, 0, len(e))
	for _, name := range slices.Sorted(maps.Keys(e)) {
		v := e[name].Literal
		if from := e[name].FromHost; from != "" {
			v = host[from]
		}
		out = append(out, name+"="+v)
	}
	return out, nil
}

// Redact replaces the literal values in the `env` of options by their hashes: what may be kept, compared and shown.
func Redact(given json.RawMessage) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(given, &fields); err != nil {
		return nil, err
	}
	if raw, ok := fields["env"]; ok {
		var env map[string]json.RawMessage
		if err := json.Unmarshal(raw, &env); err != nil {
			return nil, err
		}
		for name, v := range env {
			var literal string
			if options.Kind(v) != "a string" || json.Unmarshal(v, &literal) != nil {
				continue
			}
			env[name], _ = json.Marshal(map[string]string{"sha256": sha256hex.Of(name + "=" + literal)})
		}
		fields["env"], _ = json.Marshal(env)
	}
	return json.Marshal(fields)
}
