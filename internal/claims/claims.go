// Package claims keeps the durable record of every allocated resource, from the intent before the first external call to
// the observed absence after the last. One table holds all transitions, one driver runs the protocol for all kinds.
package claims

import (
	"context"
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

// Event is what was learned about a resource, or asked of it.
type Event string

// The events.
const (
	Created        Event = "exists"   // it was created, or seen, and its id is known
	Rejected       Event = "rejected" // it certainly was not created, and will not be
	OutcomeLost    Event = "lost"     // creating ended without an answer
	Retried        Event = "retry"    // an earlier attempt certainly came to nothing, another is about to be made
	DeleteIntended Event = "ask"      // its end is about to be asked for
	Absent         Event = "absent"   // its absence was observed
	ListedOnly     Event = "listed"   // nothing of it can run, but the other side still lists it
	Inconclusive   Event = "unseen"   // a look or an attempt that proved nothing
	Abandon        Event = "abandon"  // a person gives it up
	Reissued       Event = "anew"     // its operation, of which nothing ever came, is made again
)

// table holds every legal transition. What it does not hold is illegal; the reasons that are not obvious:
//   - intent and unknown × absent: one "not found" after an unknown create is not absence; the provider resolves it.
//   - intent and unknown × ask: what is not known cannot be deleted by its id; it is settled first.
//   - allocated × abandon: clean-up comes first, it may still prove something.
//   - released × exists: a late arrival. The intent was given up, the resource came nevertheless: it is deleted again.
//   - released × anew: only where nothing was ever made (see neverMade). An interrupted operation asks again when it goes on.
//   - abandoned × anything: a person has taken it over.
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

// Matches says whether something that was found is this claim's resource, judged by its labels alone. Labels are inherited by
// copies of images and homes, so every one of them must fit, and the thing must have been made after the intent. Engines that
// report whole seconds are met half-way. Where the recorded id is known, that id decides instead: see Sighted.
func (c Claim) Matches(name, owner, claimLabel, image string, created time.Time) bool {
	return name != "" && name == c.Intent.Name &&
		owner != "" && owner == c.Intent.Owner &&
		claimLabel == c.ID && image == c.Image &&
		!created.Before(c.IntentAt.Truncate(time.Second))
}

// Identification is what a found resource is to this store.
type Identification struct {
	Found resource.Summary
	Claim Claim // the zero value for a stranger's
	Late  bool  // its claim was released: it arrived late, and Arrived takes it up again
}

// HasClaim says whether it is ours. Everything else is left alone.
func (s Identification) HasClaim() bool { return s.Claim.ID != "" }

// Identify tells whose the listed resources are. It reads the claims now, after the resources were listed: the other way
// round, a resource whose claim was written in between would look like nobody's.
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

// Readopt takes a released claim up again because its resource was seen after all. The claim is then deleting: Release ends it.
func (d *Driver) Readopt(ctx context.Context, claim, found string, evidence ...resource.Evidence) (Claim, error) {
	return d.advance(ctx, Claim{ID: claim}, Created, d.withEvidence("arrived late", found, evidence...))
}
