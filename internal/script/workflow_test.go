package script

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/protocol"
)

// program bundles a workflow and starts it.
func program(t *testing.T, source, input string) *Child {
	t.Helper()
	root := project(t, map[string]string{"laufwerk/workflows/w/workflow.ts": source})
	r := testRunner(t)
	_, bundle, err := r.Evaluate(t.Context(), root, "laufwerk/workflows/w/workflow.ts", EvalOptions{Export: "workflow"})
	if err != nil {
		t.Fatal(err)
	}
	return started(t, r, bundle, input)
}

func started(t *testing.T, r *Runner, bundle protocol.Bundle, input string) *Child {
	t.Helper()
	c, err := r.Start(t.Context(), protocol.Start{Bundle: &bundle, Input: json.RawMessage(input), Seed: "run-1", Now: 1_000_000})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// said is a short form of what a step said: one line for each message.
func said(t *testing.T, c *Child, answer *protocol.Message) []string {
	t.Helper()
	ms, err := c.Step(t.Context(), answer)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range ms {
		switch m.Type {
		case protocol.TypeCall:
			line := m.ID
			if m.Call.At == "" {
				t.Errorf("call %s has no place", m.ID)
			}
			out = append(out, line)
		case protocol.TypeCancel:
			out = append(out, "cancel "+strings.Join(m.IDs, " "))
		case protocol.TypeDone:
			out = append(out, "done "+string(m.Value))
		case protocol.TypeError:
			out = append(out, "error "+m.Error.Class+" "+m.Error.Code+": "+m.Error.Message)
		default:
			out = append(out, m.Type)
		}
	}
	return out
}

func result(id, value string) *protocol.Message {
	return &protocol.Message{Type: protocol.TypeResult, ID: id, Value: json.RawMessage(value), Now: 2_000_000}
}

func failed(id, class, code, message string) *protocol.Message {
	return &protocol.Message{Type: protocol.TypeError, ID: id, Error: &protocol.Error{Class: class, Code: code, Message: message}, Now: 2_000_000}
}

func wants(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Fatalf("said:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

const header = `
import { all, Clock, defineWorkflow, Host, Human, Session, Workspace, LaufwerkError, Cancelled, AgentFailed } from "@laufwerk/sdk";
import { createLocalExecution } from "@laufwerk/execution/local";
import { createCommand } from "@laufwerk/sdk/harness/command";
const execution = createLocalExecution();
const agent = execution.agent({ harness: createCommand({ command: ["agent"] }) });
`

func TestWorkflowStepsThroughItsOperations(t *testing.T) {
	c := program(t, header+`
export const workflow = defineWorkflow<{ n: number }, string>({
  name: "w",
  *run({ n }) {
    const workspace = yield* Workspace.open({ source: ".", execution });
    const s = yield* Session.open({ key: "writer", agent, workspace });
    const reply = yield* s.ask({ key: "edit", prompt: "do " + n });
    const { exitCode } = yield* s.exec({ key: "check", command: "true", env: { A: "1", B: { fromHost: "C" } }, stdin: "x" });
    yield* s.close();
    return reply + exitCode + (yield* Clock.now()).toISOString();
  },
});
`, `{"n":7}`)
	ms, err := c.Step(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := ms[0].Call.At, "laufwerk/workflows/w/workflow.ts:10:40"; got != want {
		t.Errorf("the call is at %q, want %q", got, want)
	}
	if got, want := string(ms[0].Call.Args), `{"execution":{"fingerprint":`; !strings.HasPrefix(got, want) {
		t.Errorf("args = %s", got)
	}
	wants(t, said(t, c, result("workspace.open::", `{"id":"ws1","mode":"copy"}`)), "session.open::writer", "idle")
	wants(t, said(t, c, result("session.open::writer", `{"key":"writer"}`)), "session.ask:writer:edit", "idle")
	ms, err = c.Step(t.Context(), result("session.ask:writer:edit", `"fine"`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(ms[0].Call.Args), `{"command":"true","env":{"A":{"value":"1"},"B":{"fromHost":"C"}},"stdin":{"text":"x"}}`; got != want {
		t.Errorf("args = %s, want %s", got, want)
	}
	wants(t, said(t, c, result("session.exec:writer:check", `{"exitCode":3,"stdout":"","stderr":""}`)), "session.close:writer@0#0", "idle")
	wants(t, said(t, c, result("session.close:writer@0#0", `null`)), "clock.now:@0#0", "idle")
	wants(t, said(t, c, result("clock.now:@0#0", `1500`)), `done "fine31970-01-01T00:00:01.500Z"`)
}
