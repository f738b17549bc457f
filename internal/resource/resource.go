// Package resource is the contract between what records resources and what makes them: a claim holds an intent, a manager
// makes, finds, observes and deletes what the intent names, and every answer is an outcome with the evidence for it.
package resource

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// Outcome is what is known of an external effect.
type Outcome int

// The three outcomes. The zero value is the careful one.
const (
	Unknown Outcome = iota
	Done            // the effect happened
	NotDone         // it certainly did not, and will not
)

func (o Outcome) String() string { return [...]string{"unknown", "done", "not done"}[o] }

// Evidence is what an outcome rests on, kept in the claim.
type Evidence struct {
	At   time.Time `json:"at"`
	What string    `json:"what"` // "directory absent at …", "engine answered 409"
}

// Seen is one piece of evidence.
func Seen(at time.Time, format string, args ...any) []Evidence {
	return []Evidence{{At: at.UTC(), What: fmt.Sprintf(format, args...)}}
}

// Intent is what must be durable before anything is created: enough to find the resource again, and to tell it from a stranger's.
type Intent struct {
	Claim    string          `json:"claim"`              // claim id
	Name     string          `json:"name"`               // exact and deterministic
	Owner    string          `json:"owner"`              // the store's id
	Run      string          `json:"run,omitempty"`      // "" for preparation and probes
	Endpoint string          `json:"endpoint"`           // identity of the engine, gateway or machine
	Spec     json.RawMessage `json:"spec"`               // the provider's own: image, mounts, user, limits, directories
	At       time.Time       `json:"at"`                 // when it was written
	Resource string          `json:"resource,omitempty"` // the recorded id, once known
}

// Result is the outcome of creating or deleting.
type Result struct {
	Outcome  Outcome
	Resource string // the id, where it is known
	Evidence []Evidence
	Err      error // why not done or unknown
}

// Presence says whether a resource is there, and whose it is.
type Presence int

// Absent needs proof on the recorded endpoint: a timeout, a permission error or an empty list are not absence.
const (
	Unobserved Presence = iota // nothing could be learned
	Present                    // it is there, and it is ours
	Absent                     // it is not there; nothing of it can run
	Foreign                    // something has its name and is not ours: never touched
	Residue                    // nothing of ours can run any more, but the other side still lists it
)

func (p Presence) String() string {
	return [...]string{"unseen", "present", "absent", "foreign", "residue"}[p]
}

// Observation is what was learned about one resource.
type Observation struct {
	Presence Presence
	Resource string
	Evidence []Evidence
	Err      error
}

// Manager makes and ends resources of one kind. Every method works from the intent alone.
type Manager interface {
	// Create makes the resource. It is called once for an intent; what stays unknown goes to Resolve.
	Create(ctx context.Context, in Intent) Result
	// Resolve finds out what became of a Create whose outcome is unknown, and may finish it; never two resources.
	Resolve(ctx context.Context, in Intent) Result
	// Observe finds out whether it is there, and changes nothing.
	Observe(ctx context.Context, in Intent) Observation
	// Delete ends everything that runs in it and removes it. Done means asked for; absence is observed afterwards.
	Delete(ctx context.Context, in Intent) Result
	// Lister does the same for many resources with few questions, nil where nothing can be listed.
	Lister() Lister
}

// Summary is one entry of a list: a resource that carries the label of a store of laufwerk, whosever it is.
type Summary struct {
	Resource string // its id
	Name     string
	Owner    string // the labels that it carries, as they are
	Claim    string
	Image    string
	Created  time.Time
}

// Lister lists, and ends, many resources of a manager's kind.
type Lister interface {
	// List finds everything that carries the label of an intent's owner on the endpoint that the intent names, and fails where
	// another endpoint answers, or none. The zero intent means every owner, and the endpoint that the settings lead to.
	List(ctx context.Context, in Intent) ([]Summary, error)
	// DeleteAll is Delete, then Observe, for intents of one endpoint whose resources are recorded, a few at a time. listed is
	// what List has found: what is not in it is not asked to end. Whether they are absent afterwards is found out by one list.
	// When the context ends, nothing more is asked for, and Result.Err says so.
	DeleteAll(ctx context.Context, intents []Intent, listed []Summary, parallel int) []Deletion
	// ListCommand is how a person sees what List finds.
	ListCommand() string
}

// Deletion is what became of one resource of many.
type Deletion struct {
	Result      Result
	Observation Observation
}
