package targets

import (
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/providers"
)

// Definition describes a target by the normalised form of its options; defining are those of them that make it another target.
func Definition(kind, id string, normal, defining any) (providers.Definition, error) {
	options, err := json.Marshal(normal)
	if err != nil {
		return providers.Definition{}, err
	}
	part, err := json.Marshal(defining)
	if err != nil {
		return providers.Definition{}, err
	}
	sum, err := fingerprint(kind, id, part)
	return providers.Definition{Kind: kind, ID: id, Options: options, Fingerprint: sum}, err
}
