package targets

import "strings"

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
	for _, word := range []string{"KEY", "SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return false
}
