// Package supervise runs a command under a supervisor: a process of its own that outlives the worker, owns the command's
// whole tree, keeps its output in files, and writes durably how it ended. A worker that comes back attaches to it again.
//
// One operation has one directory of records (it may be inside a sandbox's mount, so all of it is plain files):
//
//	lock        held by the supervisor from before it spawns until everything it owns has ended
//	abandoned   written by a worker that found neither lock nor exit: a supervisor that comes late must not spawn
//	started     JSON StartRecord: who the supervisor is and what it owns, fsynced before the command can run
//	stdout      what the command wrote, at most Spec.MaxOutput bytes; the rest is drained and counted
//	stderr      likewise
//	exit        JSON Exit, written durably once the command has ended
//	gone        JSON FenceResult, written when nothing of it is left
//	log         what the supervisor itself had to say: empty, unless something is wrong with it
//
// A directory serves one attempt. Whoever tries an operation again takes a new one.
package supervise

import (
	"context"
	"strings"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Spec is what to run. It reaches the supervisor through its stdin, never through the disk or its arguments, since
// environment values may be secret.
type Spec struct {
	Argv      []string       `json:"argv"`
	Env       []string       `json:"env"`
	Dir       string         `json:"dir"` // working directory, as the supervisor sees it; absolute
	Stdin     []byte         `json:"stdin,omitempty"`
	Timeout   time.Duration  `json:"timeout,omitempty"`   // 0 is none
	Grace     time.Duration  `json:"grace,omitempty"`     // between Interrupt and the end of the tree; 0 ends it at once
	Interrupt syscall.Signal `json:"interrupt,omitempty"` // to the command's process group; 0 is SIGINT
	MaxOutput int64          `json:"maxOutput"`           // bytes per stream
	Mark      string         `json:"mark"`                // see Mark
}

// MarkVariable is in the environment of every process that is started here. Its value is the mark.
const MarkVariable = "LAUFWERK_MARK"

// Mark is the mark of an operation: its session's, a slash, and the operation.
func Mark(session, operation string) string { return session + "/" + operation }

// Identity is a process that cannot be mistaken for another one.
type Identity = process.Identity

// StartRecord is the record before the command runs.
type StartRecord struct {
	Supervisor Identity  `json:"supervisor"`
	Mark       string    `json:"mark"`
	Cgroup     string    `json:"cgroup,omitempty"`   // directory of its own cgroup v2, which may not have been made yet
	NoCgroup   string    `json:"noCgroup,omitempty"` // why there is none
	At         time.Time `json:"at"`
}

// Exit is how the command ended.
type Exit struct {
	Code        int       `json:"code"` // 128+n after signal n
	Signal      int       `json:"signal,omitempty"`
	Error       string    `json:"error,omitempty"`      // it could not be started (then the code is 126 or 127): why
	Incomplete  string    `json:"incomplete,omitempty"` // what it wrote could not be stored whole: why. Output fails then
	TimedOut    bool      `json:"timedOut,omitempty"`
	Interrupted bool      `json:"interrupted,omitempty"` // ended because it was asked to
	StdoutBytes int64     `json:"stdoutBytes"`           // written until the command's end, stored or not
	StderrBytes int64     `json:"stderrBytes"`
	StartedAt   time.Time `json:"startedAt"`
	EndedAt     time.Time `json:"endedAt"`
}

// Status of an operation's directory.
type Status int

// Nothing is NotStarted until `abandoned` makes it so for good.
const (
	NotStarted Status = iota // no supervisor ever got as far as spawning, and none will
	Running                  // the supervisor lives and the command has not ended
	Ended                    // there is an exit record; background processes may still be owned
	Lost                     // it was started, there is no exit record, and the supervisor is gone
)

func (s Status) String() string { return [...]string{"not started", "running", "ended", "lost"}[s] }

// Values of FenceResult.How.
const (
	HowCgroup    = "cgroup"
	HowSubreaper = "subreaper"
	HowMarks     = "marks"
	HowBoot      = "boot"
	HowContainer = "container" // the whole container was ended
	HowSandbox   = "sandbox"   // the whole sandbox was deleted
	HowNothing   = "nothing started"
)

// FenceResult says what is left after a fence. Sure is false where something may have escaped our sight.
type FenceResult struct {
	Sure      bool   `json:"sure"`
	How       string `json:"how"`
	Survivors []int  `json:"survivors,omitempty"`
	Why       string `json:"why,omitempty"` // of Sure == false
	// Later, of one that is not sure, says that nothing could be learned, because the place cannot be reached now: ask again.
	Later bool      `json:"later,omitempty"`
	At    time.Time `json:"at"`
}

// Launcher starts supervisors and reaches them: on this host, or inside a sandbox.
type Launcher interface {
	// Launch starts a supervisor on dir and hands it spec. It returns once the supervisor has read spec or is known not to run;
	// an error that leaves this open is a failure of kind OutcomeUnknown.
	Launch(ctx context.Context, dir string, spec Spec) error
	// Interrupt asks the command to stop in its own way; after the grace period the supervisor ends the tree.
	Interrupt(ctx context.Context, dir string) error
	// Fence ends everything of this operation, with or without a living supervisor.
	Fence(ctx context.Context, dir string) FenceResult
	// Cancel is Fence of an operation that was cancelled. With some providers it ends the whole sandbox, in which nothing can be
	// started any more.
	Cancel(ctx context.Context, dir string) FenceResult
}

// cgroupName is derived from the mark, so that a control group can be found again without any record.
func cgroupName(mark string) string {
	session, _ := splitMark(mark)
	return sessionPrefix(session) + digest(mark)
}

// sessionPrefix starts the names of all control groups of a session.
func sessionPrefix(session string) string { return "laufwerk-" + digest(session) + "-" }

func splitMark(mark string) (session, operation string) {
	if i := strings.LastIndexByte(mark, '/'); i >= 0 {
		return mark[:i], mark[i+1:]
	}
	return mark, ""
}

func digest(s string) string {
	return sha256hex.Of(s)[:16]
}

// environment is env with the mark; of a name that comes twice the last one counts, and where the first one stood.
func environment(env []string, mark string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range append(env[:len(env):len(env)], MarkVariable+"="+mark) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if i, twice := at[name]; twice {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

func environmentValue(env []string, name string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}
