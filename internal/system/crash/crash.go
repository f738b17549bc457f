// Package crash names the places at which a test may kill this process: before and after every intent, effect, record
// and commit. Ordinary builds compile the points away; builds with the tag `crashpoints` obey three variables:
//
//	LAUFWERK_CRASH=name#n     SIGKILL of the own process at the n-th time (from 1) that the point is reached
//	LAUFWERK_CRASH=#n         SIGKILL at the n-th point (from 1) that it reaches, whatever its name
//	LAUFWERK_CRASH_ONCE=file  only one of the processes with this variable dies: the one that makes the file
//	LAUFWERK_CRASH_LOG=file   append a line `name#n` for every point reached
//
// Names are `package/verb-before|after-what`, for example `journal/before-append`.
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
