package provision

import (
	"fmt"
	"strings"

	"github.com/aymanbagabas/go-udiff"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/redact"
)

// difference is what a profile has otherwise than the one that it was made from, as a unified difference for people.
func difference(from, to *wire.ProviderProfile) string {
	return redact.Terminal(udiff.Unified(from.GetId(), to.GetId(), text(from), text(to)))
}

// text is a profile in lines. What a gateway adds itself is no part of it.
func text(p *wire.ProviderProfile) string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("id: %s", p.GetId())
	line("name: %s", p.GetDisplayName())
	line("credentials:")
	for _, c := range p.GetCredentials() {
		need := "optional"
		if c.GetRequired() {
			need = "required"
		}
		line("  %s (%s): %s", c.GetName(), need, strings.Join(c.GetEnvVars(), " "))
	}
	line("endpoints:")
	for _, e := range p.GetEndpoints() {
		line("  %s:%d %s %s %s", e.GetHost(), e.GetPort(), e.GetProtocol(), e.GetAccess(), e.GetEnforcement())
	}
	line("binaries:")
	for _, n := range p.GetBinaries() {
		line("  %s", n.GetPath())
	}
	return b.String()
}
