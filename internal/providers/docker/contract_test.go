package docker

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/contract"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

func TestTheContractOfProviders(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	const options = `{"image":"` + busybox + `"}`
	contract.Hold(t, contract.Case{
		Provider: w.Provider, Options: options, Runs: true, Host: "HOST_ONLY", Shell: "sh",
		Intent: func() resource.Intent { return w.intent(w.target(options), false) },
		Dir: func(in resource.Intent) string {
			s, _, err := readSpec(in)
			if err != nil {
				t.Fatal(err)
			}
			return s.Dir
		},
	})
}
