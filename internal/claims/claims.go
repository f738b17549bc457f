// Package claims keeps the durable record of every allocated resource, from the intent before the first external call to
// the observed absence after the last. One table holds all transitions, one driver runs the protocol for all kinds.
package claims

import (
	"encoding/json"
	"time"

	"github.com/laufwerk/laufwerk/internal/resource"
)

// State of a claim.
type State string

// The states. Unknown and residue are side states of the way intent → allocated → deleting → released.
const (
	Intent    State = "intent"    // may be about to be created
	Allocated State = "allocated" // exists, and its id is recorded
	Deleting  State = "deleting"  // its end was asked for
	Released  State = "released"  // its absence was observed: a tombstone
	Unknown   State = "unknown"   // an effect may have happened
	Residue   State = "residue"   // nothing of ours can run any more, but the other side still lists it
	Abandoned State = "abandoned" // given up by a person, with a reason: kept for ever
)

// Kind of a resource.
type Kind string

// The kinds of this version.
const (
	KindSession   Kind = "session"   // a provider's sandbox; locally a directory and the processes of its supervisors
	KindWorkspace Kind = "workspace" // a directory below $LAUFWERK_HOME/workspaces

	// KindPreparation is a container that an image is prepared in, or proved to work; it belongs to no run.
	KindPreparation Kind = "preparation"
)

// Claim is one resource.
type Claim struct {
	ID          string              `json:"id"`
	Kind        Kind                `json:"kind"`
	State       State               `json:"state"`
	Provider    string              `json:"provider"`         // provider kind that can observe and delete it; "workspace" for workspaces
	Target      string              `json:"target,omitempty"` // target id
	Fingerprint string              `json:"fingerprint,omitempty"`
	Run         string              `json:"run,omitempty"`
	Operation   string              `json:"operation,omitempty"` // the journal's operation that it joins
	Project     string              `json:"project,omitempty"`
	Image       string              `json:"image,omitempty"` // the expected one, where the provider has images
	Intent      resource.Intent     `json:"intent"`
	Attempts    int                 `json:"attempts"`        // how often creating was, or may have been, asked for
	Locks       []string            `json:"holds,omitempty"` // freed when it is released or residue
	Keep        string              `json:"keep,omitempty"`  // why it is deliberately kept ("unwritten changes"); cleanup then needs --discard-changes
	Evidence    []resource.Evidence `json:"evidence,omitempty"`
	Last        string              `json:"lastObservation,omitempty"`
	Reason      string              `json:"reason,omitempty"`   // of abandoning
	Accepted    []Acceptance        `json:"accepted,omitempty"` // changes of its endpoint's identity
	IntentAt    time.Time           `json:"intentAt"`
	AllocatedAt time.Time           `json:"allocatedAt,omitzero"`
	DeletingAt  time.Time           `json:"deletingAt,omitzero"`
	ReleasedAt  time.Time           `json:"releasedAt,omitzero"`
	Extra       json.RawMessage     `json:"extra,omitempty"` // of the owner of the kind
}

// Outstanding says whether the claim still stands for something that may exist: it blocks prune and admission.
func (c Claim) Outstanding() bool { return c.State != Released && c.State != Abandoned }
