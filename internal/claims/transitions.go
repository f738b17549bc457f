package claims

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
