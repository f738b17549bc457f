// Package targets holds the rules for what the constructors of several targets have in common: their ids, the logins that
// they give to agents, their resources, and what makes two descriptions the same target.
package targets

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"

	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

var idPattern = lazyregexp.Regexp{Pattern: `^[A-Za-z0-9._-]{1,63}$`}

// ID is the option `id` of a target, or of an agent.
func ID(raw json.RawMessage, fallback string) (string, error) {
	if options.Absent(raw) {
		return fallback, nil
	}
	const path, expected = "id", "1 to 63 letters, digits, dots, underscores and hyphens"
	id, err := options.String(path, raw, expected)
	if err == nil && !idPattern.MatchString(id) {
		err = options.Invalid(path, "expected %s, got %q", expected, id)
	}
	return id, err
}

// Credentials is the option `credentials`: one login or several of the known kinds, sorted, each once.
func Credentials(raw json.RawMessage, kinds []string) ([]string, error) {
	const path = "credentials"
	if options.Absent(raw) {
		return nil, nil
	}
	list := []json.RawMessage{raw}
	single := options.Kind(raw) != "an array"
	if !single {
		if err := json.Unmarshal(raw, &list); err != nil {
			return nil, options.Invalid(path, "expected a list, got %s", options.Kind(raw))
		}
	}
	var out []string
	for i, e := range list {
		at := path
		if !single {
			at = options.Index(path, i)
		}
		s, err := options.OneOf(at, e, kinds...)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// Credentials are the logins that a target gives to agents: its normalised option `credentials` is a list, as Credentials makes
// it, or one with its kind beside where it is kept.
func (d Definition) Credentials() []string {
	var list struct {
		Credentials []string `json:"credentials"`
	}
	if json.Unmarshal(d.Options, &list) == nil {
		return list.Credentials
	}
	var one struct {
		Credentials struct {
			Kind string `json:"kind"`
		} `json:"credentials"`
	}
	if json.Unmarshal(d.Options, &one) == nil && one.Credentials.Kind != "" {
		return []string{one.Credentials.Kind}
	}
	return nil
}

// fingerprint is sha256 over kind, id and options, as JSON with sorted keys. It neither holds nor needs the literal values of
// variables: these count as environment.Redact shows them.
func fingerprint(kind, id string, defining json.RawMessage) (string, error) {
	kept, err := environment.Redact(defining)
	if err != nil {
		return "", err
	}
	b, err := json.Marshal(map[string]any{"kind": kind, "id": id, "options": kept})
	return sha256hex.Of(b), err
}

// Definition is a target as its constructor described it: the validated, normalised options. Fingerprint is sha256 over
// kind, id and the options that define it (not key order, prepared image ids or cache folders).
type Definition struct {
	Kind        string          `json:"kind"`
	ID          string          `json:"id"`
	Options     json.RawMessage `json:"options"`
	Fingerprint string          `json:"fingerprint"`
	Root        string          `json:"-"` // of the project, for options that are paths relative to it; "" where there is none
}

// NewDefinition describes a target by the normalised form of its options; defining are those of them that make it another target.
func NewDefinition(kind, id string, normal, defining any) (Definition, error) {
	options, err := json.Marshal(normal)
	if err != nil {
		return Definition{}, err
	}
	part, err := json.Marshal(defining)
	if err != nil {
		return Definition{}, err
	}
	sum, err := fingerprint(kind, id, part)
	return Definition{Kind: kind, ID: id, Options: options, Fingerprint: sum}, err
}

// Image is the name of an image or its id, as it was given. Whether there is one is not looked at.
func Image(path string, raw json.RawMessage) (string, error) {
	const expected = "an image's name (as in `node:22` or `registry.example/team/image@sha256:…`) or id"
	s, err := options.String(path, raw, expected)
	if err != nil {
		return "", err
	}
	if _, err := reference.ParseAnyReference(s); err != nil {
		return "", options.Invalid(path, "expected %s, got %s (%s)", expected, options.Show(raw), strings.TrimPrefix(err.Error(), "invalid reference format: "))
	}
	return s, nil
}

// Preparation is what has to be prepared for a target whose sessions start from images. It is given to what prepares images,
// which does not know targets.
type Preparation struct {
	Own       bool   // nothing: it has an image of its own
	Directory string // of the cache, as the target has it
	Manifest  string // of the image that loadPreparedCodexImage gave; "" is the standard image
}

// PreparationOf says what has to be prepared for a target, by the normalised form of its options.
func PreparationOf(normalised json.RawMessage) (Preparation, error) {
	var c struct {
		Image     string `json:"image"`
		Directory string `json:"imageCacheDirectory"`
		Prepared  struct {
			Manifest string `json:"manifestPath"`
		} `json:"prepared"`
	}
	err := json.Unmarshal(normalised, &c)
	return Preparation{Own: c.Image != "", Directory: c.Directory, Manifest: c.Prepared.Manifest}, err
}

// Missing is one thing that keeps a target of a kind from being used, with the way out that err names.
func Missing(kind, id string, err error) failure.Condition {
	c := failure.Condition{ID: kind + "." + id, Message: err.Error()}
	if f := failure.As(err); f != nil {
		c.Hint = f.Hint
	}
	return c
}

// NotReady is the failure of an operation whose target lacks what Ready named: the hint is what to type for each, and that
// the run goes on after it.
func NotReady(def Definition, missing []failure.Condition) *failure.Error {
	e := failure.New(failure.NotReady, "the target %q is not ready: %s", def.ID, missing[0].Message)
	e.Conditions = missing
	var next []string
	for _, c := range missing {
		if c.Hint != "" && !strings.Contains("\n"+strings.Join(next, "\n")+"\n", "\n"+c.Hint+"\n") {
			next = append(next, c.Hint)
		}
	}
	return e.WithHint("%s", strings.Join(append(next, "laufwerk resume RUN"), "\n"))
}

// Decode reads the options of a definition; of the zero definition it is the zero T.
func Decode[T any](d Definition) (options T, err error) {
	if len(d.Options) > 0 {
		err = json.Unmarshal(d.Options, &options)
	}
	return options, err
}

// SecretValues are the values of those variables ("NAME=value") whose names say that they are secret.
func SecretValues(vars []string) []string {
	var out []string
	for _, kv := range vars {
		if name, value, _ := strings.Cut(kv, "="); secretName(name) {
			out = append(out, value)
		}
	}
	return out
}

func secretName(name string) bool {
	name = strings.ToUpper(name)
	words := []string{"KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL"}
	return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(name, word) })
}

// Resources are the limits of a container; what is zero or nil is left to the engine.
type Resources struct {
	CPUs        float64 `json:"cpus,omitempty"`        // cores, at most 3 decimals
	MemoryBytes int64   `json:"memoryBytes,omitempty"` // at least LeastMemory
	SwapBytes   *int64  `json:"swapBytes,omitempty"`   // in addition to the memory; only with MemoryBytes
	PIDs        int64   `json:"pids,omitempty"`
}

// LeastMemory is what a container engine accepts at least, in bytes.
const LeastMemory = 6 << 20

// ParseResources reads the option at path.
func ParseResources(path string, raw json.RawMessage) (Resources, error) {
	var r Resources
	fields, err := options.Fields(path, raw, "cpus", "memoryBytes", "swapBytes", "pids")
	if err != nil {
		return r, err
	}
	if cpus := fields["cpus"]; !options.Absent(cpus) {
		if r.CPUs, err = CPUs(path+".cpus", cpus); err != nil {
			return r, err
		}
	}
	if memory := fields["memoryBytes"]; !options.Absent(memory) {
		if r.MemoryBytes, err = options.Integer(path+".memoryBytes", memory, LeastMemory, "a whole number of bytes, at least 6291456 (6 MiB)"); err != nil {
			return r, err
		}
	}
	if swap := fields["swapBytes"]; !options.Absent(swap) {
		n, err := options.Integer(path+".swapBytes", swap, 0, "a whole number of bytes, 0 for no additional swap")
		if err != nil {
			return r, err
		}
		if r.MemoryBytes == 0 {
			return r, options.Invalid(path+".swapBytes", "expected only together with %s.memoryBytes, got %s without it", path, options.Show(swap))
		}
		r.SwapBytes = &n
	}
	if pids := fields["pids"]; !options.Absent(pids) {
		if r.PIDs, err = options.Integer(path+".pids", pids, 1, "a whole number of processes, at least 1"); err != nil {
			return r, err
		}
	}
	return r, nil
}

// CPUs is a number of cores: more than 0, with at most 3 decimals.
func CPUs(path string, raw json.RawMessage) (float64, error) {
	const expected = "cores > 0 with at most 3 decimals"
	var n float64
	if options.Kind(raw) != "a number" || json.Unmarshal(raw, &n) != nil || n <= 0 || n > most {
		return 0, options.Invalid(path, "expected %s, got %s", expected, options.Show(raw))
	}
	if _, decimals, _ := strings.Cut(strconv.FormatFloat(n, 'f', -1, 64), "."); len(decimals) > 3 {
		return 0, options.Invalid(path, "expected %s, got %s", expected, options.Show(raw))
	}
	return n, nil
}

// most is more cores than any machine has: in billionths, as Docker counts them, it fits an int64.
const most = 1_000_000
