package render

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

var longID = lazyregexp.Regexp{Pattern: `\b(?:sha256:)?[0-9a-f]{64}\b|\b[0-9A-Z]{4}(?::[0-9A-Z]{4}){11}\b`}

// Brief shortens the long ids in texts that people read: of containers and images (64 hexadecimal digits) and of engines
// (twelve groups of four). What is left of ids that differ differs too.
func Brief(texts []string) []string {
	var ids []string
	for _, t := range texts {
		ids = append(ids, longID.FindAllString(t, -1)...)
	}
	n := 12
	for !distinguishes(ids, n) {
		n++
	}
	out := make([]string, len(texts))
	for i, t := range texts {
		out[i] = longID.ReplaceAllStringFunc(t, func(id string) string { return beginning(id, n) })
	}
	return out
}

// distinguishes says whether beginnings of n characters tell ids apart.
func distinguishes(ids []string, n int) bool {
	of := map[string]string{}
	for _, id := range ids {
		short := beginning(id, n)
		if other, ok := of[short]; ok && other != id {
			return false
		}
		of[short] = id
	}
	return true
}

// beginning is what engines take for the whole of an id of theirs, and "…" after that of an engine, which nothing takes.
func beginning(id string, n int) string {
	hash, isHash := strings.CutPrefix(id, "sha256:")
	switch {
	case n >= len(hash):
		return id
	case isHash:
		return "sha256:" + hash[:n]
	case strings.Contains(id, ":"):
		return id[:min(len(id), (n+4)/5*5-1)] + "…" // whole groups
	}
	return id[:n]
}
