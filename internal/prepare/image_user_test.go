package prepare

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

func TestDockerAsAnOrdinaryUser(t *testing.T) {
	engine.AsOrdinaryUser(t, "^(TestDockerImage|TestDockerNoCredential)$", "TestDockerImage", "TestDockerNoCredential")
}
