package upgrade_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// document is what a command says with --json, and its exit code.
type document struct {
	code   int
	fields map[string]string // JSON text by path; a list or an object without elements has an entry too
}

// documents are those of all that there is, by command.
func (u *upgraded) documents() map[string]document {
	u.T.Helper()
	out := map[string]document{}
	ask := func(args ...string) any {
		command := strings.Join(args, " ")
		code, text, errs := u.Run(nil, append(args, "--json")...)
		var doc any
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			u.T.Fatalf("laufwerk %s: exit %d, %v\n%s%s", command, code, err, text, errs)
		}
		d := document{code: code, fields: map[string]string{}}
		flatten(d.fields, "", doc)
		out[command] = d
		return doc
	}
	ask("config")
	ask("doctor")
	for _, args := range u.asked {
		ask(args...)
	}
	for _, id := range identifiers(ask("runs", "list", "--all"), "runs") {
		ask("runs", "show", id)
		ask("diff", id)
		ask("writeback", "show", id)
	}
	for _, id := range identifiers(ask("claims", "list", "--all"), "claims") {
		ask("claims", "show", id)
	}
	return out
}

// identifiers are the ids of a document's list.
func identifiers(doc any, list string) (ids []string) {
	of, _ := doc.(map[string]any)
	elements, _ := of[list].([]any)
	for _, e := range elements {
		if id, ok := e.(map[string]any)["id"].(string); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func flatten(into map[string]string, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		into[path] = "{}"
		for name, e := range v {
			flatten(into, path+"."+name, e)
		}
	case []any:
		into[path] = "[]"
		for i, e := range v {
			flatten(into, fmt.Sprintf("%s[%d]", path, i), e)
		}
	default:
		text, _ := json.Marshal(v)
		into[path] = string(text)
	}
}

var (
	// reworded are fields with sentences and commands for people: they are there, whatever they say.
	reworded = regexp.MustCompile(`\.(message|hint|fix|next|advice|reason|isolation|help|expected)$|\.evidence\[\d+\]$|\.(next|waiting)\[\d+\]$`)
	// passing are fields that differ between two programs, or from one second to the next.
	passing = regexp.MustCompile(`^\.build\.|\.timeLeftSeconds$`)
)

// checkKept checks that all fields of the older documents are in the newer ones, with the same values. More may be there.
func (u *upgraded) checkKept(older, newer map[string]document) {
	u.T.Helper()
	for _, command := range slices.Sorted(maps.Keys(older)) {
		was, is := older[command], newer[command]
		if is.fields == nil {
			u.T.Errorf("laufwerk %s: there is no such document now", command)
			continue
		}
		if was.code != is.code {
			u.T.Errorf("laufwerk %s: exit %d, it was %d", command, is.code, was.code)
		}
		for _, path := range slices.Sorted(maps.Keys(was.fields)) {
			value, there := is.fields[path]
			stored := strings.HasPrefix(command, "runs") || strings.HasPrefix(command, "claims") // what is said of them is in the records
			switch {
			case !there:
				u.T.Errorf("laufwerk %s: %s is gone; it was %s", command, path, was.fields[path])
			case value == was.fields[path] || passing.MatchString(path) || !stored && reworded.MatchString(path):
			default:
				u.T.Errorf("laufwerk %s: %s is %s; it was %s", command, path, value, was.fields[path])
			}
		}
	}
}
