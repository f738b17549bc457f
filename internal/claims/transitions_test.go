package claims_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/claims"
)

// Every state × every event, spelled out a second time; "-" is illegal.
// states are all states, in the order of a claim's life.
func states() []claims.State {
	return []claims.State{claims.Intent, claims.Unknown, claims.Allocated, claims.Deleting, claims.Residue, claims.Released, claims.Abandoned}
}

func events() []claims.Event {
	return []claims.Event{
		claims.Created, claims.Rejected, claims.OutcomeLost, claims.Retried, claims.DeleteIntended, claims.Absent, claims.ListedOnly, claims.Inconclusive, claims.Abandon, claims.Reissued,
	}
}

func TestEveryStateAndEvent(t *testing.T) {
	t.Parallel()
	const want = `
intent:    exists=allocated rejected=released lost=unknown retry=intent ask=- absent=- listed=- unseen=intent abandon=abandoned anew=-
unknown:   exists=allocated rejected=released lost=unknown retry=intent ask=- absent=- listed=- unseen=unknown abandon=abandoned anew=-
allocated: exists=allocated rejected=- lost=- retry=- ask=deleting absent=released listed=residue unseen=allocated abandon=- anew=-
deleting:  exists=deleting rejected=- lost=- retry=- ask=deleting absent=released listed=residue unseen=deleting abandon=abandoned anew=-
residue:   exists=deleting rejected=- lost=- retry=- ask=deleting absent=released listed=residue unseen=residue abandon=abandoned anew=-
released:  exists=deleting rejected=- lost=- retry=- ask=- absent=released listed=- unseen=- abandon=- anew=intent
abandoned: exists=- rejected=- lost=- retry=- ask=- absent=- listed=- unseen=- abandon=- anew=-
`
	var got strings.Builder
	for _, s := range states() {
		fmt.Fprintf(&got, "\n%-10s", s+":")
		for _, e := range events() {
			next, ok := claims.Next(s, e)
			if !ok {
				next = "-"
			}
			fmt.Fprintf(&got, " %s=%s", e, next)
		}
	}
	if got.String()+"\n" != want {
		t.Errorf("got%s", got.String())
	}
}

// Nothing is released but by absence that was observed, or because it certainly never was.
func TestOnlyProofReleases(t *testing.T) {
	t.Parallel()
	for _, s := range states() {
		for _, e := range events() {
			next, ok := claims.Next(s, e)
			if ok && next == claims.Released && e != claims.Absent && e != claims.Rejected {
				t.Errorf("%s × %s releases", s, e)
			}
			if ok && next == claims.Abandoned && e != claims.Abandon {
				t.Errorf("%s × %s abandons", s, e)
			}
		}
	}
}
