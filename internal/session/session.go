// Package session is where harness, provider, workspace and claim meet: one agent conversation in one sandbox over one
// workspace. It opens, asks, runs commands, closes, fences, and after a kill re-attaches to what goes on under a supervisor.
package session

import (
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/journal"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// The causes for which an operation's context is cancelled. They decide what becomes of its processes.
var (
	// ErrCancelled: the strand or the run was cancelled. The operation's processes are fenced, and it completes as cancelled.
	ErrCancelled = errors.New("cancelled")
	// ErrInterrupted: a person stopped the worker. The agent program is asked to stop in its own way; the operation is not
	// completed, and the next worker goes on with it.
	ErrInterrupted = errors.New("interrupted")
	// ErrDetached: the worker leaves. The processes go on under their supervisor; the operation is not completed, and the next
	// worker joins them.
	ErrDetached = errors.New("detached")
)

// Operation is what the journal records of one durable step of a run.
type Operation interface {
	// Attempts is the number of attempts that any worker started, and the data of the last one: with it, that attempt is found
	// and joined. data is nil where there is no attempt to join.
	Attempts() (n int, data json.RawMessage)
	// Start makes the intent of one more attempt durable.
	Start(data any) error
	// Advance replaces the data of the last attempt.
	Advance(data any) error
	// RecordCut records that an attempt was ended before it finished.
	RecordCut(reason string) error
	// Name is its identity within the run.
	Name() string
	// Event adds to the run's event log. The operation and the time are filled in.
	Event(ev journal.Event)
}

// Access of a session to its workspace.
const (
	ReadWrite = "read-write"
	ReadOnly  = "read-only"
)

// Workspace is what a session needs to know of one.
type Workspace struct {
	ID     string
	Dir    string // on the host
	Target Target
	Direct bool
}

// Config is what a Manager needs.
type Config struct {
	Run        string
	RunDir     string
	Root       string // of the project, where Host.exec runs
	Project    string
	Driver     *claims.Driver
	Targets    map[string]targets.Definition // the registered ones, by id
	Provider   func(kind string) (providers.Provider, bool)
	Programs   agent.Programs
	Workspace  func(id string) (Workspace, bool)
	HostEnv    func(name string) (string, bool) // the worker's environment, for fromHost
	Now        func() time.Time
	Secrets    *redact.Secrets       // learns what must not be recorded
	Overdue    time.Duration         // how long after its timeout a command is waited for; 0 is the default
	EventsFrom func(op string) int64 // how many bytes of the last attempt's stdout the event log has
}

// Manager keeps the sessions of one run.
type Manager struct {
	Config
	opening  sync.Mutex // no session is opened while a workspace is frozen
	mu       sync.Mutex
	sessions map[string]*state
	host     *state // of Host.exec
}

// state is one session. busy is a lock on its fields, held by the one operation that uses the session: a channel of capacity
// one, since a wait for it must end with a context. closed is written under the manager's mutex as well, so that WithoutWriter
// can read it while an operation holds the session. The session of Host.exec needs no lock: its operations share no such field.
type state struct {
	busy             chan struct{} // holds a value while an operation uses the session
	key              string
	agent            Agent
	workspace        Workspace
	access           string
	claim            string
	conversation     string
	lastConversation string          // the conversation of the last turn that ended
	state            json.RawMessage // what that turn left for the next one
	closed           bool
	lostReason       error      // why it can only be closed; nil while it can be used
	host             bool       // it belongs to Host.exec: no agent, no workspace, any number of operations at a time
	entering         sync.Mutex // the sandbox is allocated once
}

// OpenRecord is what the journal keeps of an open session.
type OpenRecord struct {
	Key       string `json:"key"`
	Workspace string `json:"workspace"`
	Access    string `json:"access"`
	Claim     string `json:"claim"`
}

// NewManager makes the manager of a run.
func NewManager(c Config) *Manager {
	return &Manager{Config: c, sessions: map[string]*state{}, host: newHost(c.Run)}
}

// OpenArgs are the arguments of session.open.
type OpenArgs struct {
	Agent     Agent  `json:"agent"`
	Workspace string `json:"workspace"`
	Access    string `json:"access"`
}

// Open locks the workspace for the session. The sandbox is allocated by the first operation that needs it.
func (m *Manager) Open(ctx context.Context, key string, a OpenArgs) (OpenRecord, error) {
	if a.Access == "" {
		a.Access = ReadWrite
	}
	ws, ok := m.Workspace(a.Workspace)
	if !ok {
		return OpenRecord{}, failure.New(failure.WorkspaceLost, "the workspace %s is not one of this run", a.Workspace)
	}
	if a.Agent.Target != ws.Target {
		return OpenRecord{}, failure.New(failure.Usage, "Session.open %q: the agent belongs to the target %q (%s) and the workspace to %q (%s)",
			key, a.Agent.Target.ID, a.Agent.Target.Kind, ws.Target.ID, ws.Target.Kind).
			WithHint("make the agent with the target that the workspace was opened with")
	}
	def, p, err := m.target(a.Agent.Target)
	if err != nil {
		return OpenRecord{}, err
	}
	info := p.Info()
	if a.Access == ReadOnly && !info.ReadOnly {
		return OpenRecord{}, failure.New(failure.Unsupported, "Session.open %q: read-only access is refused on %s: %s", key, info.Kind, info.ReadOnlyReason)
	}
	if _, ok := m.Programs.Find(a.Agent.Harness.Program); !ok {
		return OpenRecord{}, failure.New(failure.Unsupported, "Session.open %q: the agent program %q is not part of this build", key, a.Agent.Harness.Program)
	}
	if missing := p.Ready(ctx, def, m.requirements(a.Agent)); len(missing) > 0 {
		return OpenRecord{}, targets.NotReady(def, missing)
	}
	m.opening.Lock()
	defer m.opening.Unlock()
	claim, err := m.claimID(ctx, key)
	if err != nil {
		return OpenRecord{}, err
	}
	if !ws.Direct {
		mode := claims.Exclusive
		if a.Access == ReadOnly {
			mode = claims.Shared
		}
		err := m.Driver.TakeLock(ctx, claims.LockRequest{
			Key: "workspace/" + ws.ID, Mode: mode, Holder: claim, Run: m.Run, What: "session " + key, Busy: failure.WorkspaceBusy,
		})
		if err != nil {
			return OpenRecord{}, err
		}
	}
	o := OpenRecord{Key: key, Workspace: ws.ID, Access: a.Access, Claim: claim}
	m.remember(o, a.Agent, ws)
	return o, nil
}

// claimID is the id of a session's claim. An id is never used again once its claim was allocated and released. A session with
// the same key is then opened under the next id: that happens where the operation that opened it was cancelled, because another
// one failed, and is repeated now that this other one is tried again.
func (m *Manager) claimID(ctx context.Context, key string) (string, error) {
	for n := 1; ; n++ {
		name := "session:" + key
		if n > 1 {
			name += "\x00" + strconv.Itoa(n)
		}
		c, ok, err := m.Driver.ByOperation(ctx, m.Run, name)
		if err != nil || !ok || c.State != claims.Released || c.AllocatedAt.IsZero() {
			return claims.ID(m.Run, name), err
		}
	}
}

// Forget releases what an earlier worker may have allocated for a session before its opening was journaled. The opening was
// cancelled, so that nobody will close that session.
func (m *Manager) Forget(ctx context.Context, key string) error {
	claim, err := m.claimID(ctx, key)
	if err != nil {
		return err
	}
	if _, err := m.Driver.Get(ctx, claim); err == nil {
		if _, err := m.Driver.Release(ctx, claim); err != nil {
			return err
		}
	} else if !failure.Is(err, failure.NotFound) {
		return err
	}
	return m.Driver.DropLocks(ctx, claim)
}

func (m *Manager) target(t Target) (targets.Definition, providers.Provider, error) {
	def, ok := m.Targets[t.ID]
	if !ok || def.Kind != t.Kind {
		return def, nil, failure.New(failure.ProjectInvalid, "the target %q is not registered", t.ID).
			WithHint("add it to `executions` in laufwerk/laufwerk.config.ts")
	}
	if def.Fingerprint != t.Fingerprint {
		return def, nil, failure.New(failure.DefinitionChanged, "the target %q is defined differently in the workflow and in the config", t.ID).
			WithHint("import the target from the module that the config registers")
	}
	p, ok := m.Provider(t.Kind)
	if !ok {
		return def, nil, failure.New(failure.Unsupported, "the provider %q is not part of this build", t.Kind)
	}
	return def, p, nil
}

func (m *Manager) find(key string) *state {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[key]
}

// enqueue waits until no other operation uses the session. The caller then has it for itself until it calls leave.
func (m *Manager) enqueue(ctx context.Context, key string) (s *state, leave func(), err error) {
	if s = m.find(key); s == nil {
		return nil, nil, failure.New(failure.Usage, "there is no session %q in this run", key)
	}
	leave = func() { <-s.busy }
	select {
	case s.busy <- struct{}{}: // even if ctx has ended: an attempt that an earlier worker started is still to be fenced
		return s, leave, nil
	default:
	}
	select {
	case s.busy <- struct{}{}:
		return s, leave, nil
	case <-ctx.Done():
		return nil, nil, InterpretError(ctx, ctx.Err())
	}
}

// acquire is enqueue for every operation but closing: it fails where the session is closed or lost.
func (m *Manager) acquire(ctx context.Context, key string) (s *state, leave func(), err error) {
	if s, leave, err = m.enqueue(ctx, key); err != nil {
		return nil, nil, err
	}
	switch {
	case s.closed:
		err = failure.New(failure.Usage, "the session %q is closed", key)
	case s.lostReason != nil:
		err = s.lostReason
	}
	if err != nil {
		leave()
		return nil, nil, err
	}
	return s, leave, nil
}

// InterpretError is the error of an operation whose context may have ended. Where the worker leaves, every error becomes the cause for
// which it leaves: the operation is not completed, and the next worker finds out what became of it. Where the operation was
// cancelled, an error that says no more than that becomes the failure Cancelled.
func InterpretError(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	switch {
	case err == nil || cause == nil:
		return err
	case errors.Is(cause, ErrInterrupted), errors.Is(cause, ErrDetached):
		return cause
	case errors.Is(cause, ErrCancelled) && (errors.Is(err, context.Canceled) || errors.Is(err, ErrCancelled)):
		return failure.New(failure.Cancelled, "cancelled before it had ended")
	}
	return err
}

func (m *Manager) dir(claim string) string { return filepath.Join(m.RunDir, "sessions", claim) }

// WithoutWriter runs fn while no session can write into the workspace: none is open with write access, and none is opened
// meanwhile. Otherwise it fails with WorkspaceBusy and names the session.
func (m *Manager) WithoutWriter(_ context.Context, workspace string, fn func() error) error {
	m.opening.Lock()
	defer m.opening.Unlock()
	m.mu.Lock()
	for _, s := range m.sessions {
		if s.workspace.ID == workspace && s.access == ReadWrite && !s.closed {
			m.mu.Unlock()
			return failure.New(failure.WorkspaceBusy, "the session %q can still write into the workspace", s.key).
				WithField("holder", s.key).WithHint("close the session first: yield* session.close()")
		}
	}
	m.mu.Unlock()
	return fn()
}

// enter allocates the sandbox if that has not been done, and enters it.
func (m *Manager) enter(ctx context.Context, s *state) (providers.Sandbox, error) {
	s.entering.Lock()
	defer s.entering.Unlock()
	def, p, err := m.definition(s)
	if err != nil {
		return nil, err
	}
	c, err := m.Driver.Get(ctx, s.claim)
	if failure.Is(err, failure.NotFound) {
		c, err = m.allocate(ctx, s, def, p)
	} else if err == nil && c.State != claims.Allocated {
		c, err = m.allocate(ctx, s, def, p)
	}
	if err != nil {
		return nil, err
	}
	sb, err := p.Enter(ctx, c.Intent, def)
	if err == nil {
		m.Secrets.Add(sb.Secrets()...)
	}
	return sb, err
}

func (m *Manager) requirements(a Agent) providers.Need {
	n := providers.Need{Program: a.Harness.Program}
	if program, ok := m.Programs.Find(a.Harness.Program); ok {
		n.Executable = program.Executable(a.Harness.Options)
	}
	return n
}

func (m *Manager) definition(s *state) (targets.Definition, providers.Provider, error) {
	if !s.host {
		return m.target(s.agent.Target)
	}
	p, ok := m.Provider(HostProvider)
	if !ok {
		return targets.Definition{}, nil, failure.New(failure.Unsupported, "Host.exec: the provider %q is not part of this build", HostProvider)
	}
	return targets.Definition{Kind: HostProvider, ID: "host"}, p, nil
}

func (m *Manager) allocate(ctx context.Context, s *state, def targets.Definition, p providers.Provider) (claims.Claim, error) {
	need := m.requirements(s.agent)
	need.Workspace = true
	plan, missing, err := p.Plan(ctx, def, need, providers.SessionSpec{
		Key: s.key, Dir: m.dir(s.claim), Workspace: s.workspace.Dir, ReadOnly: s.access == ReadOnly, Mark: s.claim,
	})
	if err != nil {
		return claims.Claim{}, err
	}
	if len(missing) > 0 {
		return claims.Claim{}, targets.NotReady(def, missing)
	}
	endpoint, err := p.Endpoint(ctx, def)
	if err != nil {
		return claims.Claim{}, err
	}
	c, err := m.Driver.Allocate(ctx, claims.Request{
		ID: s.claim, Kind: claims.KindSession, Provider: def.Kind, Target: def.ID, Fingerprint: def.Fingerprint,
		Run: m.Run, Operation: "session.open:" + s.key, Project: m.Project, Image: plan.Image,
		Intent: resource.Intent{Claim: s.claim, Name: p.Name(s.claim), Run: m.Run, Endpoint: endpoint, Spec: plan.Spec},
	})
	if failure.Is(err, failure.OutcomeUnknown) { // the next attempt observes the outcome: the workflow need not fail
		later := *failure.As(err)
		later.Kind = failure.NotReady
		return c, &later
	}
	return c, err
}

func (m *Manager) remember(o OpenRecord, a Agent, ws Workspace) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[o.Key] = &state{busy: make(chan struct{}, 1), key: o.Key, agent: a, workspace: ws, access: o.Access, claim: o.Claim}
}

// RestoreOpen restores a session from the journal. The agent comes from the workflow's call, since the journal does not hold the
// values of its variables.
func (m *Manager) RestoreOpen(o OpenRecord, a Agent) error {
	ws, ok := m.Workspace(o.Workspace)
	if !ok {
		return failure.New(failure.JournalInvalid, "the session %q uses the workspace %s, which is not in the journal", o.Key, o.Workspace)
	}
	m.remember(o, a, ws)
	return nil
}

// RestoreTurn restores the conversation.
func (m *Manager) RestoreTurn(key string, t TurnRecord) {
	s := m.find(key)
	if s == nil {
		return
	}
	if t.Conversation != "" {
		s.conversation, s.lastConversation = t.Conversation, t.Conversation
	}
	if len(t.State) > 0 {
		s.state = t.State
	}
}

// RestoreClosed restores that a session is closed.
func (m *Manager) RestoreClosed(key string) {
	if s := m.find(key); s != nil {
		m.setClosed(s)
	}
}

func (m *Manager) setClosed(s *state) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s.closed = true
}

// RestoreLost restores that a session can only be closed, because of err.
func (m *Manager) RestoreLost(key string, err error) {
	if s := m.find(key); s != nil {
		s.lostReason = err
	}
}
