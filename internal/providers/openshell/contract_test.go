package openshell

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/contract"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway"
)

// What runs in sandboxes is tested where the gateway has some that can run anything.
func TestTheContractOfProviders(t *testing.T) {
	w := newGatewayFixture(t, gateway.Options{})
	k := w.worker()
	contract.Hold(t, contract.Case{
		Provider: k.Provider, Intent: func() resource.Intent { return w.intent() },
		Options: `{"id":"shell","gateway":"here","credentials":{"kind":"codex-subscription","provider":"codex"},"policy":{}}`,
	})
}
