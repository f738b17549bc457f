package docker

import (
	"fmt"
	"strings"
	"testing"
)

func TestWhatAnInstallationTells(t *testing.T) {
	var told []string
	p := &progressFilter{report: func(line string) { told = append(told, line) }}
	text := "Lockfile is up to date\nProgress: resolved 1\n WARN  GET https://user:word@registry.example/a error (ECONNRESET). Will retry in 10 seconds.\n ERR_PNPM_X  no\n++\n"
	for _, piece := range strings.SplitAfter(text, "e") { // lines come in pieces
		fmt.Fprint(p, piece)
	}
	want := []string{"Progress: resolved 1", "WARN  GET https://…@registry.example/a error (ECONNRESET). Will retry in 10 seconds.", "ERR_PNPM_X  no"}
	if fmt.Sprintf("%q", told) != fmt.Sprintf("%q", want) {
		t.Errorf("told %q", told)
	}
	fmt.Fprint(p, strings.Repeat("Progress: "+strings.Repeat("x", 1000)+"\n", 1000))
	if len(told) != maxProgressLines || len(told[len(told)-1]) > maxProgressBytes {
		t.Errorf("%d lines, the last with %d bytes", len(told), len(told[len(told)-1]))
	}
}
