package crash

import "strings"

// Environment are the variables of this package among vars, for processes whose environment is otherwise made anew.
func Environment(vars map[string]string) []string {
	var out []string
	for name, v := range vars {
		if strings.HasPrefix(name, "LAUFWERK_CRASH") {
			out = append(out, name+"="+v)
		}
	}
	return out
}
