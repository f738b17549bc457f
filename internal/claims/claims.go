// Package claims records every allocated resource durably, from the intent before the first external call to the observed absence
// after the last. One table holds all transitions, one driver runs the protocol for all kinds.
package claims

import (
	"context"
	"encoding/json"
	"time"

	"github.com/laufwerk/laufwerk/internal/resource"
)

// State of a claim.
type State string

// The states: intent → allocated → deleting → released, with unknown and residue beside them.
const (
	Intent    State = "intent"    // may be about to be created
	Allocated State = "allocated" // exists, and its id is recorded
	Deleting  State = "deleting"  // its deletion was requested
	Released  State = "released"  // its absence was observed: a tombstone
	Unknown   State = "unknown"   // an effect may have happened
	Residue   State = "residue"   // nothing of ours can run any more, but the endpoint still lists it
	Abandoned State = "abandoned" // given up by a person, with a reason: kept for ever
)

// Kind of a resource.
type Kind string

// The kinds of this version.
const (
	KindSession   Kind = "session"   // a provider's sandbox; locally a directory and the processes of its supervisors
	KindWorkspace Kind = "workspace" // a directory below $LAUFWERK_HOME/workspaces

	// KindPreparation is a container in which an image is prepared or tested; it belongs to no run.
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
	Attempts    int                 `json:"attempts"`        // how often a create was or may have been requested
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

// Event is what was observed of a resource, or requested.
type Event string

// The events.
const (
	Created        Event = "exists"   // it was created or found, and its id is known
	Rejected       Event = "rejected" // it certainly was not created, and will not be
	OutcomeLost    Event = "lost"     // a create ended without an answer
	Retried        Event = "retry"    // an earlier create certainly failed, another one follows
	DeleteIntended Event = "ask"      // its deletion is about to be requested
	Absent         Event = "absent"   // its absence was observed
	ListedOnly     Event = "listed"   // nothing of it can run, but the endpoint still lists it
	Inconclusive   Event = "unseen"   // an observation or attempt without a result
	Abandon        Event = "abandon"  // a person gives it up
	Reissued       Event = "anew"     // its operation, which never allocated anything, runs again
)

// table holds every legal transition. Reasons that are not obvious:
//   - intent and unknown × absent are illegal: one "not found" after an unknown create is not absence; the provider resolves it.
//   - intent and unknown × ask are illegal: nothing can be deleted by an id that is not known; it is resolved first.
//   - allocated × abandon is illegal: clean-up comes first, it may still prove absence.
//   - released × exists is a late arrival: the resource appeared after its intent was given up, and is deleted again.
//   - released × anew only where nothing was ever created (see wasNeverAllocated).
//   - abandoned × anything is illegal: a person has taken it over.
func table() map[State]map[Event]State {
	return map[State]map[Event]State{
		Intent:    {Created: Allocated, Rejected: Released, OutcomeLost: Unknown, Retried: Intent, Inconclusive: Intent, Abandon: Abandoned},
		Unknown:   {Created: Allocated, Rejected: Released, OutcomeLost: Unknown, Retried: Intent, Inconclusive: Unknown, Abandon: Abandoned},
		Allocated: {Created: Allocated, DeleteIntended: Deleting, Absent: Released, ListedOnly: Residue, Inconclusive: Allocated},
		Deleting:  {Created: Deleting, DeleteIntended: Deleting, Absent: Released, ListedOnly: Residue, Inconclusive: Deleting, Abandon: Abandoned},
		Residue:   {Created: Deleting, DeleteIntended: Deleting, Absent: Released, ListedOnly: Residue, Inconclusive: Residue, Abandon: Abandoned},
		Released:  {Created: Deleting, Absent: Released, Reissued: Intent},
		Abandoned: {},
	}
}

// Next is the state that follows; false where the event is illegal.
func Next(s State, e Event) (State, bool) {
	next, ok := table()[s][e]
	return next, ok
}

// Matches says whether a found resource without a recorded id is this claim's, judged by its labels. Copies of images and homes
// inherit labels, so all must fit and it must have been created after the intent, to the second: engines report whole seconds.
func (c Claim) Matches(name, owner, claimLabel, image string, created time.Time) bool {
	return name != "" && name == c.Intent.Name &&
		owner != "" && owner == c.Intent.Owner &&
		claimLabel == c.ID && image == c.Image &&
		!created.Before(c.IntentAt.Truncate(time.Second))
}

// Identification is a found resource with its claim.
type Identification struct {
	Found resource.Summary
	Claim Claim // the zero value for a foreign resource
	Late  bool  // it appeared after its claim was released; see Readopt
}

// HasClaim says whether the resource is ours. Foreign ones are left alone.
func (s Identification) HasClaim() bool { return s.Claim.ID != "" }

// Identify finds the claims of listed resources. It reads claims after the listing, so that none is missed that was written meanwhile.
func (d *Driver) Identify(ctx context.Context, found []resource.Summary) ([]Identification, error) {
	list, err := d.List(ctx, Filter{})
	if err != nil {
		return nil, err
	}
	out := make([]Identification, 0, len(found))
	for _, f := range found {
		s := Identification{Found: f}
		for _, c := range list {
			if c.State == Abandoned {
				continue
			}
			sameID := c.Intent.Resource != "" && c.Intent.Resource == f.Resource
			byLabels := (c.Intent.Resource == "" || !c.Outstanding()) && c.Matches(f.Name, f.Owner, f.Claim, f.Image, f.Created)
			if sameID || byLabels {
				s.Claim, s.Late = c, !c.Outstanding()
				break
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// Readopt makes a released claim deleting because its resource was found after all; Release ends it.
func (d *Driver) Readopt(ctx context.Context, claim, found string, evidence ...resource.Evidence) (Claim, error) {
	return d.advance(ctx, Claim{ID: claim}, Created, d.withEvidence("arrived late", found, evidence...))
}
