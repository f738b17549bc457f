package providers

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Examining is a provider that says of everything that a target needs, one by one, whether it is there.
type Examining interface {
	// Examine looks by the rules of Ready, and changes nothing. The ids are below the target's own: "engine", "codex.login"; "" is
	// the target as a whole.
	Examine(ctx context.Context, def targets.Definition) []checks.Check
	// Probe is a command that can run in the sandbox of an intent, whatever its image lacks.
	Probe(in resource.Intent, def targets.Definition) Probe
}

// Probe is a command that is run to see whether commands can be run.
type Probe struct {
	Argv []string
	// Read says what its output, which came with exit code 0, tells. The ids are below the probe's.
	Read func(stdout []byte) []checks.Check
}
