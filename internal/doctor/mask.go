package doctor

import (
	"maps"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// Mask takes out of a text what its reader is not to know: where the home directory is, who the user is, and what looks
// like, or is known to be, a secret.
type Mask struct{ replace []pair }

type pair struct{ from, to string }

// NewMask knows the user and the values of the variables whose names say that they are secret, and secrets beside them.
func NewMask(homeDir, user string, vars map[string]string, secrets []string) Mask {
	var m Mask
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		if secretVariable(name) {
			secrets = append(secrets, vars[name])
		}
	}
	for _, s := range secrets {
		if len(s) >= 6 { // shorter ones are words
			m.replace = append(m.replace, pair{s, "<secret>"})
		}
	}
	if len(homeDir) > 1 {
		m.replace = append(m.replace, pair{homeDir, "~"})
	}
	m.replace = append(m.replace, pair{user, "<user>"})
	return m
}

// secretVariable is what names of secret variables have in them.
func secretVariable(name string) bool {
	name = strings.ToLower(name)
	return slices.ContainsFunc([]string{"key", "token", "secret", "passw", "credential", "auth"}, func(w string) bool { return strings.Contains(name, w) })
}

// secretText finds keys and tokens with a known beginning, JSON web tokens, what stands behind "Bearer".
var secretText = lazyregexp.Regexp{Pattern: `\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}|\bgh[opsur]_[A-Za-z0-9]{16,}|\bgithub_pat_[A-Za-z0-9_]{16,}` +
	`|\bxox[abprs]-[A-Za-z0-9-]{8,}|\bAKIA[A-Z0-9]{12,}|\beyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){0,2}|(?i:bearer)\s+[A-Za-z0-9._~+/=-]{6,}`}

// password finds passwords in addresses.
var password = lazyregexp.Regexp{Pattern: `(://[^/\s:@]*:)[^/\s@]+@`}

// Text is s without it.
func (m Mask) Text(s string) string {
	for _, p := range m.replace {
		if p.to == "<secret>" {
			s = strings.ReplaceAll(s, p.from, p.to)
		} else {
			s = replaceWord(s, p.from, p.to)
		}
	}
	s = password.ReplaceAllString(s, "${1}<secret>@")
	return secretText.ReplaceAllString(s, "<secret>")
}

// replaceWord replaces a name where it stands by itself: a user called "a" is not in every word.
func replaceWord(s, name, by string) string {
	if name == "" {
		return s
	}
	var b strings.Builder
	before := byte(0)
	for s != "" {
		if rest, ok := strings.CutPrefix(s, name); ok && !isWordByte(before) && (rest == "" || !isWordByte(rest[0])) {
			b.WriteString(by)
			before, s = name[len(name)-1], rest
			continue
		}
		before = s[0]
		b.WriteByte(before)
		s = s[1:]
	}
	return b.String()
}

func isWordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}
