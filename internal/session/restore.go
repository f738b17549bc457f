package session

import (
	"github.com/laufwerk/laufwerk/internal/failure"
)

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
		return failure.New(failure.JournalInvalid, "the session %q is over the workspace %s, which the journal does not know", o.Key, o.Workspace)
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
