package crash

import "strings"

// isTestVariable says whether a variable tells a build for tests what to do: here, or in package fault.
func isTestVariable(name string) bool {
	return strings.HasPrefix(name, "LAUFWERK_CRASH") || strings.HasPrefix(name, "LAUFWERK_FAULT")
}

// Environment are the variables of this package and of package fault among vars, for processes whose environment is otherwise
// made anew.
func Environment(vars map[string]string) []string {
	var out []string
	for name, v := range vars {
		if isTestVariable(name) {
			out = append(out, name+"="+v)
		}
	}
	return out
}
