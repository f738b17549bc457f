package targets

import "encoding/json"

// Definition is a target as its constructor described it: the validated, normalised options. Fingerprint is sha256 over
// kind, id and the options that define it (not key order, prepared image ids or cache folders).
type Definition struct {
	Kind        string          `json:"kind"`
	ID          string          `json:"id"`
	Options     json.RawMessage `json:"options"`
	Fingerprint string          `json:"fingerprint"`
	Root        string          `json:"-"` // of the project, for options that are paths relative to it; "" where there is none
}

// NewDefinition describes a target by the normalised form of its options; defining are those of them that make it another target.
func NewDefinition(kind, id string, normal, defining any) (Definition, error) {
	options, err := json.Marshal(normal)
	if err != nil {
		return Definition{}, err
	}
	part, err := json.Marshal(defining)
	if err != nil {
		return Definition{}, err
	}
	sum, err := fingerprint(kind, id, part)
	return Definition{Kind: kind, ID: id, Options: options, Fingerprint: sum}, err
}
