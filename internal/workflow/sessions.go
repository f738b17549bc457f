package workflow

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/session"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

var _ session.Operation = (*Op)(nil)

func sessionHandlers(m *session.Manager) map[string]Handler {
	h := sessionLifecycleHandlers(m)
	maps.Copy(h, sessionOperationHandlers(m))
	return h
}

func sessionOperationHandlers(m *session.Manager) map[string]Handler {
	return map[string]Handler{
		protocol.OpSessionAsk: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				var a session.AskArgs
				if err := json.Unmarshal(op.Call.Args, &a); err != nil {
					return nil, nil, err
				}
				return operationResult(m.Ask(ctx, op.Call.Scope, a, op))
			},
			Recall: func(call protocol.Call, c Completion) error { return restoreTurn(m, call.Scope, c) },
		},
		protocol.OpSessionExec: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				var a session.ExecArgs
				if err := json.Unmarshal(op.Call.Args, &a); err != nil {
					return nil, nil, err
				}
				return operationResult(m.Exec(ctx, op.Call.Scope, a, op))
			},
			Recall:  func(call protocol.Call, c Completion) error { return restoreTurn(m, call.Scope, c) },
			Private: withoutValues,
		},
		protocol.OpHostExec: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				a, err := decode[session.HostArgs](op)
				if err != nil {
					return nil, nil, err
				}
				return operationResult(m.HostExec(ctx, a, op))
			},
			Private: withoutValues,
		},
		protocol.OpSessionReadFile: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				a, err := decode[fileArgs](op)
				if err != nil {
					return nil, nil, err
				}
				b, err := m.ReadFile(ctx, op.Call.Scope, a.Path)
				if err != nil || b == nil {
					return nil, nil, err
				}
				return fileArgs{Base64: b}, nil, nil
			},
		},
		protocol.OpSessionWriteFile: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				a, err := decode[fileArgs](op)
				if err != nil {
					return nil, nil, err
				}
				return nil, nil, m.WriteFile(ctx, op.Call.Scope, a.Path, a.Base64, op)
			},
			Private: withoutValues,
		},
	}
}

func sessionLifecycleHandlers(m *session.Manager) map[string]Handler {
	return map[string]Handler{
		protocol.OpSessionOpen: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				var a session.OpenArgs
				if err := json.Unmarshal(op.Call.Args, &a); err != nil {
					return nil, nil, err
				}
				o, err := m.Open(ctx, op.Call.Key, a)
				return map[string]string{"key": op.Call.Key}, o, err
			},
			Recall: func(call protocol.Call, c Completion) error {
				var o session.OpenRecord
				if c.Error != nil {
					return nil
				}
				if err := json.Unmarshal(c.Meta, &o); err != nil {
					return failure.Wrap(err, failure.JournalInvalid, "read how a session was opened")
				}
				return restoreSession(m, call, o)
			},
			Forget:  func(ctx context.Context, op *Op) error { return m.Forget(ctx, op.Call.Key) },
			Private: withoutValues,
		},
		protocol.OpSessionClose: {
			Do: func(ctx context.Context, op *Op) (any, any, error) {
				return nil, nil, m.Close(ctx, op.Call.Scope)
			},
			Recall: func(call protocol.Call, c Completion) error {
				if c.Error == nil {
					m.RestoreClosed(call.Scope)
				}
				return nil
			},
		},
		protocol.OpSessionRun: {
			Do: func(ctx context.Context, op *Op) (any, any, error) { return runSession(ctx, m, op) },
			Recall: func(call protocol.Call, c Completion) error {
				var r sessionRunRecord
				if json.Unmarshal(c.Meta, &r) != nil || r.Opened == nil {
					return nil //nolint:nilerr // nothing was opened
				}
				if err := restoreSession(m, call, *r.Opened); err != nil {
					return err
				}
				if r.Closed {
					m.RestoreClosed(call.Key)
				}
				return nil
			},
			Forget:  func(ctx context.Context, op *Op) error { return m.Forget(ctx, op.Call.Key) },
			Private: withoutValues,
		},
	}
}

type fileArgs struct {
	Path   string `json:"path,omitempty"`
	Base64 []byte `json:"base64"`
}

// sessionRunRecord is what the journal keeps of a session that ran one turn.
type sessionRunRecord struct {
	session.TurnRecord
	Opened *session.OpenRecord `json:"opened,omitempty"`
	Closed bool                `json:"closed,omitempty"`
}

// runSession opens a session, asks once, and closes it, as one operation: opening and closing can be repeated, and the attempt of
// the turn is found by the data in the journal.
func runSession(ctx context.Context, m *session.Manager, op *Op) (any, any, error) {
	var open session.OpenArgs
	var ask session.AskArgs
	if err := json.Unmarshal(op.Call.Args, &open); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(op.Call.Args, &ask); err != nil {
		return nil, nil, err
	}
	key := op.Call.Key
	o, err := m.Open(ctx, key, open)
	if err != nil {
		return nil, nil, err
	}
	var r sessionRunRecord
	var answer answeredTurn
	if _, data := op.Attempts(); json.Unmarshal(data, &answer) != nil || answer.Ran == nil {
		value, t, err := m.Ask(ctx, key, ask, op)
		if staysOpen(err) {
			return nil, nil, err
		}
		answer.Ran = &sessionRunRecord{TurnRecord: t, Opened: &o}
		if err != nil {
			answer.Error = WireError(err)
		} else if answer.Value, err = json.Marshal(value); err != nil {
			return nil, nil, err
		}
		// Closing removes the records of the turn, so its answer is made durable before.
		if err := op.Advance(answer); err != nil {
			return nil, nil, err
		}
	}
	r = *answer.Ran
	closing := m.Close(context.WithoutCancel(ctx), key)
	r.Closed = closing == nil
	if answer.Error != nil {
		return nil, r, Failure(answer.Error)
	}
	return answer.Value, r, closing
}

// answeredTurn is a turn whose session is about to be closed.
type answeredTurn struct {
	Ran   *sessionRunRecord `json:"ran,omitempty"`
	Value json.RawMessage   `json:"value,omitempty"`
	Error *protocol.Error   `json:"error,omitempty"`
}

func staysOpen(err error) bool {
	return err != nil && (isMachineFailure(err) || isSuspension(err))
}

func operationResult[V any](value V, t session.TurnRecord, err error) (any, any, error) {
	return value, t, err
}

func restoreSession(m *session.Manager, call protocol.Call, o session.OpenRecord) error {
	var a session.OpenArgs
	if err := json.Unmarshal(call.Args, &a); err != nil {
		return failure.Wrap(err, failure.JournalInvalid, "read how a session was opened")
	}
	return m.RestoreOpen(o, a.Agent)
}

func restoreTurn(m *session.Manager, key string, c Completion) error {
	var t session.TurnRecord
	if len(c.Meta) > 0 {
		if err := json.Unmarshal(c.Meta, &t); err != nil {
			return failure.Wrap(err, failure.JournalInvalid, "read how a turn ended")
		}
	}
	m.RestoreTurn(key, t)
	if t.Lost && c.Error != nil {
		m.RestoreLost(key, Failure(c.Error))
	}
	return nil
}

// withoutValues replaces literal values of variables, and the bytes for a command's stdin or a file, by their hashes.
func withoutValues(args json.RawMessage) (json.RawMessage, error) {
	var a map[string]json.RawMessage
	if err := json.Unmarshal(args, &a); err != nil {
		return nil, err
	}
	if raw, ok := a["env"]; ok {
		var env map[string]session.Var
		if err := json.Unmarshal(raw, &env); err != nil {
			return nil, err
		}
		for name, v := range env {
			if v.Value != nil {
				h := "sha256:" + sha256hex.Of(name+"="+*v.Value)
				env[name] = session.Var{Value: &h}
			}
		}
		b, err := json.Marshal(env)
		if err != nil {
			return nil, err
		}
		a["env"] = b
	}
	for _, fed := range []string{"stdin", "base64"} {
		if raw, ok := a[fed]; ok {
			a[fed] = json.RawMessage(`"sha256:` + sha256hex.Of(raw) + `"`)
		}
	}
	if raw, ok := a["agent"]; ok {
		var agent session.Agent
		if err := json.Unmarshal(raw, &agent); err != nil {
			return nil, err
		}
		agent, err := agent.Redacted()
		if err != nil {
			return nil, err
		}
		if a["agent"], err = json.Marshal(agent); err != nil {
			return nil, err
		}
	}
	return json.Marshal(a)
}
