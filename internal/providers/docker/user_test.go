package docker

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

func TestAsAnOrdinaryUser(t *testing.T) {
	engine.AsOrdinaryUser(t, "^Test(ASession|ReadOnly|AFence|Limits|AStopped|Strangers|Refusals)", "TestASessionFromItsMakingToItsAbsence", "TestLimitsAreEnforcedInside", "TestAStoppedContainerIsStartedAgain")
}
