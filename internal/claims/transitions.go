package claims

// Event is what was learned about a resource, or asked of it.
type Event string

// The events.
const (
	Exists   Event = "exists"   // it was created, or seen, and its id is known
	Rejected Event = "rejected" // it certainly was not created, and will not be
	Lost     Event = "lost"     // creating ended without an answer
	Retry    Event = "retry"    // an earlier attempt certainly came to nothing, another is about to be made
	Ask      Event = "ask"      // its end is about to be asked for
	Absent   Event = "absent"   // its absence was observed
	Listed   Event = "listed"   // nothing of it can run, but the other side still lists it
	Unseen   Event = "unseen"   // a look or an attempt that proved nothing
	Abandon  Event = "abandon"  // a person gives it up
	Anew     Event = "anew"     // its operation, of which nothing ever came, is made again
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
		Intent:    {Exists: Allocated, Rejected: Released, Lost: Unknown, Retry: Intent, Unseen: Intent, Abandon: Abandoned},
		Unknown:   {Exists: Allocated, Rejected: Released, Lost: Unknown, Retry: Intent, Unseen: Unknown, Abandon: Abandoned},
		Allocated: {Exists: Allocated, Ask: Deleting, Absent: Released, Listed: Residue, Unseen: Allocated},
		Deleting:  {Exists: Deleting, Ask: Deleting, Absent: Released, Listed: Residue, Unseen: Deleting, Abandon: Abandoned},
		Residue:   {Exists: Deleting, Ask: Deleting, Absent: Released, Listed: Residue, Unseen: Residue, Abandon: Abandoned},
		Released:  {Exists: Deleting, Absent: Released, Anew: Intent},
		Abandoned: {},
	}
}

// Next is the state that follows; false where the event is illegal.
func Next(s State, e Event) (State, bool) {
	next, ok := table()[s][e]
	return next, ok
}
