package workflow

import (
	"context"
	"encoding/json"
	"math"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// OperationsConfig is what the operations of a run need.
type OperationsConfig struct {
	Run          string
	RunDir       string
	Root         string // of the project
	Scope        string // of the project
	HomeDir      string // the user's, for "~/"
	State        string // $LAUFWERK_HOME
	Driver       *claims.Driver
	Targets      map[string]targets.Definition
	Provider     func(kind string) (providers.Provider, bool)
	Programs     agent.Programs
	HostVars     map[string]string
	WorkspaceDir func(id string) string
	Now          func() time.Time
	Ask          Asker
	NoExchange   bool
	MaxFiles     int   // of a write-back
	MaxBytes     int64 // of a write-back
	EventsFrom   func(op string) int64
	Secrets      *redact.Secrets // learns what must not be recorded
}

// CloseTimeout is how long closing the sessions that a workflow left open may take.
const CloseTimeout = time.Minute

// Operations executes the operations of workflows.
type Operations struct {
	c          OperationsConfig
	sessions   *session.Manager
	workspaces *workspaces
	humans     *questioner
}

// NewOperations makes the operations of a run.
func NewOperations(c OperationsConfig) *Operations {
	o := &Operations{c: c}
	o.workspaces = newWorkspaces(c)
	o.sessions = session.NewManager(session.Config{
		Run: c.Run, RunDir: c.RunDir, Root: c.Root, Project: c.Scope, Driver: c.Driver, Targets: c.Targets, Provider: c.Provider, Programs: c.Programs,
		Secrets: c.Secrets, Workspace: o.workspaces.sessionWorkspace, HostEnv: func(name string) (string, bool) { v, ok := c.HostVars[name]; return v, ok }, Now: c.Now, EventsFrom: c.EventsFrom,
	})
	o.workspaces.quiet = o.sessions.WithoutWriter
	o.humans = &questioner{ask: c.Ask, freeze: o.workspaces.freezeForQuestion, refreeze: o.workspaces.refreeze, bind: o.workspaces.bind}
	return o
}

// Handlers is the table of operations. This version has no others.
func (o *Operations) Handlers() map[string]Handler {
	h := sessionHandlers(o.sessions)
	h[protocol.OpWorkspaceOpen] = Handler{Do: o.workspaces.open, Recall: o.workspaces.restoreWorkspace, Forget: o.workspaces.discard, Private: withoutDefinition}
	h[protocol.OpWorkspaceDiff] = Handler{Do: o.workspaces.diff}
	h[protocol.OpWorkspaceWriteBack] = Handler{Do: o.workspaces.writeBack}
	h[protocol.OpHuman] = Handler{Do: o.humans.askPerson, Recall: o.humans.restoreAnswer}
	h[protocol.OpHumanNotify] = Handler{Do: notify}
	h[protocol.OpClockNow] = Handler{Do: runClockNow, Instant: true}
	h[protocol.OpClockSleep] = Handler{Do: runClockSleep}
	return withoutSecrets(h, o.c.Secrets)
}

// End closes the sessions that are still open when the workflow has ended, and drops the run's locks.
func (o *Operations) End(ctx context.Context, _ string) error {
	ctx, cancel := context.WithTimeout(ctx, CloseTimeout)
	defer cancel()
	err := o.sessions.CloseAll(ctx)
	if dropErr := o.c.Driver.DropLocks(ctx, o.c.Run); err == nil {
		err = dropErr
	}
	return err
}

func decode[T any](op *Op) (T, error) {
	var a T
	err := json.Unmarshal(op.Call.Args, &a)
	return a, err
}

func runClockNow(_ context.Context, op *Op) (any, any, error) {
	return op.engine.now().UnixMilli(), nil, nil
}

// recheckInterval is how often a sleep compares its time with the clock: a timer alone is wrong after the machine was suspended or its
// clock was set.
const recheckInterval = 30 * time.Second

// maxSleep bounds a sleep, in ms: about a thousand years.
const maxSleep = 1 << 45

// runClockSleep is durable: the time to wake up is journaled, so that a sleep passes while the run has no worker.
func runClockSleep(ctx context.Context, op *Op) (any, any, error) {
	var wake struct {
		At int64 `json:"wake"` // ms since 1970
	}
	if _, data := op.Attempts(); len(data) > 0 {
		if err := json.Unmarshal(data, &wake); err != nil {
			return nil, nil, err
		}
	} else {
		var a struct {
			Duration float64 `json:"duration"` // ms
		}
		if err := json.Unmarshal(op.Call.Args, &a); err != nil {
			return nil, nil, err
		}
		wake.At = op.engine.now().UnixMilli() + int64(math.Ceil(max(0, min(a.Duration, maxSleep))))
		if err := op.Start(wake); err != nil {
			return nil, nil, err
		}
	}
	for {
		left := wake.At - op.engine.now().UnixMilli()
		if left <= 0 {
			return nil, nil, nil
		}
		timer := time.NewTimer(time.Duration(min(left, recheckInterval.Milliseconds())) * time.Millisecond)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, nil, context.Cause(ctx)
		}
	}
}
