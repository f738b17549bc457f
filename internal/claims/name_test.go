package claims

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/resource"
)

func TestAClaimIsNamedOnce(t *testing.T) {
	for want, c := range map[string]Claim{
		"workspace c1": {ID: "c1", Kind: KindWorkspace, Intent: resource.Intent{Name: "c1", Endpoint: "local"}},
		"session laufwerk-c2 (claim c2 at the engine)": {ID: "c2", Kind: KindSession, Intent: resource.Intent{Name: "laufwerk-c2", Endpoint: "the engine"}},
		"session laufwerk-c3 (claim c3)":               {ID: "c3", Kind: KindSession, Intent: resource.Intent{Name: "laufwerk-c3"}},
	} {
		if got := c.name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
