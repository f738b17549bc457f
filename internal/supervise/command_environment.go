package supervise

import (
	"strings"
)

// environment is env with the mark; of a name that comes twice the last one counts, and where the first one stood.
func environment(env []string, mark string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range append(env[:len(env):len(env)], MarkVariable+"="+mark) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if i, twice := at[name]; twice {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

func environmentValue(env []string, name string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}
