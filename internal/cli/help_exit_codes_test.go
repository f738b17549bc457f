package cli

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

func TestEveryExitCodeAndKindIsExplained(t *testing.T) {
	meaning, kinds := map[int]string{}, map[failure.Kind]int{}
	for _, e := range exitCodesHelp() {
		meaning[e.Code] = e.Meaning
		for _, k := range e.Kinds {
			kinds[k] = e.Code
		}
	}
	for _, row := range failure.Table() {
		if meaning[row.Exit] == "" {
			t.Errorf("exit %d of %s has no meaning", row.Exit, row.Kind)
		}
		if kinds[row.Kind] != row.Exit {
			t.Errorf("%s is listed under %d, not %d", row.Kind, kinds[row.Kind], row.Exit)
		}
	}
}
