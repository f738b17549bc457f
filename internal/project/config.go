package project

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/suggest"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// IsName says whether s may be a projectId, a target's id or a workflow's folder: they stand in labels, paths and commands.
func IsName(s string) bool {
	return len(s) >= 1 && len(s) <= 63 && strings.IndexFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	}) < 0
}

const nameRule = "1 to 63 letters, digits, '.', '_' or '-'"

type config struct {
	projectID   string
	targets     []targets.Definition
	concurrency int
}

// parse reads a config's JSON form. Its failures name the option's path first, what was expected and what came.
func parse(value json.RawMessage) (config, error) {
	var c config
	fields, ok := object(value)
	if !ok {
		return c, invalidConfigError("", "the config is not an object: expected the value of defineConfig, got %s", showValue(value))
	}
	known := []string{"projectId", "executions", "concurrency"}
	for _, k := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains(known, k) {
			return c, invalidConfigError(k, "defineConfig has no such option%s", suggest.Alternatives(k, known))
		}
	}
	raw, ok := fields["projectId"]
	if !ok {
		return c, invalidConfigError("projectId", "defineConfig needs this option: %s", nameRule)
	}
	if json.Unmarshal(raw, &c.projectID) != nil || !IsName(c.projectID) || strings.Trim(c.projectID, ".") == "" {
		return c, invalidConfigError("projectId", "expected %s, got %s", nameRule, showValue(raw))
	}
	if raw, ok := fields["concurrency"]; ok {
		if json.Unmarshal(raw, &c.concurrency) != nil || c.concurrency < 1 || c.concurrency > 1_000_000 {
			return c, invalidConfigError("concurrency", "expected a whole number of live runs, at least 1, got %s", showValue(raw))
		}
	}
	var err error
	c.targets, err = parseExecutions(fields["executions"])
	return c, err
}

func parseExecutions(raw json.RawMessage) ([]targets.Definition, error) {
	if len(raw) == 0 {
		return nil, invalidConfigError("executions", "defineConfig needs this option: an array of execution targets")
	}
	var list []json.RawMessage
	if string(raw) == "null" || json.Unmarshal(raw, &list) != nil {
		return nil, invalidConfigError("executions", "expected an array of execution targets, got %s", showValue(raw))
	}
	seen := map[string]int{}
	defs := make([]targets.Definition, 0, len(list))
	for i, element := range list {
		at := fmt.Sprintf("executions[%d]", i)
		var target struct {
			Sandbox json.RawMessage `json:"sandbox"`
		}
		d := targets.Definition{}
		if json.Unmarshal(element, &target) != nil || json.Unmarshal(target.Sandbox, &d) != nil || d.Kind == "" || d.ID == "" || d.Fingerprint == "" {
			return nil, invalidConfigError(at, "expected an execution target that a constructor such as createLocalExecution made, got %s", showValue(element))
		}
		if first, ok := seen[d.ID]; ok {
			return nil, invalidConfigError(at, "executions[%d] has the id %q already: give one an `id`, as in createLocalExecution({ id: %q })", first, d.ID, d.ID+"-2")
		}
		seen[d.ID] = i
		defs = append(defs, d)
	}
	return defs, nil
}

func invalidConfigError(path, format string, args ...any) error {
	message := fmt.Sprintf(format, args...)
	if path == "" {
		return failure.New(failure.Usage, "%s", message)
	}
	return failure.New(failure.Usage, "%s: %s", path, message).WithPaths(path)
}

func object(raw json.RawMessage) (map[string]json.RawMessage, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return nil, false
	}
	return m, true
}

func showValue(raw json.RawMessage) string {
	s := string(raw)
	switch {
	case s == "":
		return "nothing"
	case s[0] == '{':
		return "an object"
	case s[0] == '[':
		return "an array"
	case len(s) > 80:
		cut := 80
		for cut > 0 && !utf8.RuneStart(s[cut]) {
			cut--
		}
		return s[:cut] + "…"
	}
	return s
}
