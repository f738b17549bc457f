package local

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
	"github.com/laufwerk/laufwerk/internal/testkit/contract"
)

func TestTheContractOfProviders(t *testing.T) {
	dir := t.TempDir()
	workspace, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	p := provider(map[string]string{"PATH": os.Getenv("PATH"), "HOST_ONLY": "canary", "OPENAI_API_KEY": "canary"})
	n := 0
	contract.Hold(t, contract.Case{
		Provider: p, Options: `{}`, Runs: true, Host: "HOST_ONLY", Shell: "bash",
		Dir: func(in resource.Intent) string { return dirOf(t, in) },
		Intent: func() resource.Intent {
			n++
			claim := fmt.Sprintf("c%d-%d", n, time.Now().UnixNano())
			endpoint, err := p.Endpoint(bounded(t), targets.Definition{})
			if err != nil {
				t.Fatal(err)
			}
			plan, missing, err := p.Plan(bounded(t), targets.Definition{Options: json.RawMessage(`{}`)}, providers.Need{}, providers.SessionSpec{
				Key: "k", Dir: filepath.Join(dir, "sessions", claim), Workspace: workspace, Mark: claim,
			})
			if err != nil || len(missing) > 0 {
				t.Fatal(missing, err)
			}
			return resource.Intent{Claim: claim, Name: "laufwerk-" + claim, Owner: "store", Run: "r", Endpoint: endpoint, Spec: plan.Spec, At: time.Now()}
		},
	})
}
