package script

import (
	"strings"
	"testing"
)

// flow is a workflow whose run has this body; op(k) is an operation with key k.
func flow(t *testing.T, body string) *Child {
	t.Helper()
	return program(t, header+`
const op = (key: string) => Host.exec({ key, command: ["true"] });
export const workflow = defineWorkflow<unknown, any>({ name: "w", *run() {
`+body+`
}});
`, `null`)
}

func id(key string) string { return "host.exec::" + key }

func ok(key string) string { return `{"exitCode":0,"stdout":"` + key + `","stderr":""}` }

func TestAllRunsItsItemsSideBySide(t *testing.T) {
	c := flow(t, `
const strand = function* (name: string) { const a = yield* op(name + "1"); const b = yield* op(name + "2"); return a.stdout + b.stdout; };
return yield* all([strand("a"), op("b"), strand("c")]);`)
	wants(t, said(t, c, nil), id("a1"), id("b"), id("c1"), "idle")
	wants(t, said(t, c, result(id("c1"), ok("x"))), id("c2"), "idle")
	wants(t, said(t, c, result(id("b"), ok("y"))), "idle")
	wants(t, said(t, c, result(id("c2"), ok("z"))), "idle")
	wants(t, said(t, c, result(id("a1"), ok("1"))), id("a2"), "idle")
	wants(t, said(t, c, result(id("a2"), ok("2"))), `done ["12",{"exitCode":0,"stderr":"","stdout":"y"},"xz"]`)
}

func TestAllBranchesAreNamed(t *testing.T) {
	c := flow(t, `
yield* all([Clock.now()]);
return yield* all([all([Clock.now(), Clock.now()]), Clock.now()]);`)
	wants(t, said(t, c, nil), "clock.now:@0.0.0#0", "idle")
	wants(t, said(t, c, result("clock.now:@0.0.0#0", "1")), "clock.now:@0.1.1#0", "clock.now:@0.1.0.0.0#0", "clock.now:@0.1.0.0.1#0", "idle")
}

func TestAllKeepsToItsConcurrency(t *testing.T) {
	c := flow(t, `return (yield* all([op("a"), op("b"), op("c"), op("d")], { concurrency: 2 })).length;`)
	wants(t, said(t, c, nil), id("a"), id("b"), "idle")
	wants(t, said(t, c, result(id("b"), ok(""))), id("c"), "idle")
	wants(t, said(t, c, result(id("c"), ok(""))), id("d"), "idle")
	wants(t, said(t, c, result(id("a"), ok(""))), "idle")
	wants(t, said(t, c, result(id("d"), ok(""))), "done 4")
}

func TestAllOfNothing(t *testing.T) {
	wants(t, said(t, flow(t, `return yield* all([]);`), nil), "done []")
}

func TestFirstFailureCancelsSiblingsAndWaitsForTheirEnd(t *testing.T) {
	c := flow(t, `
const seen: string[] = [];
const careful = function* (name: string) {
  try { yield* op(name); } catch (e: any) { seen.push(name + ":" + e.constructor.name + e.name + (e instanceof Cancelled)); throw e; } finally { yield* op(name + "-tidied"); }
};
try {
  yield* all([careful("a"), op("b"), all([careful("c"), op("d")]), careful("late")], { concurrency: 3 });
} catch (e: any) {
  return [e instanceof AgentFailed, e.code, e.message, ...seen];
}`)
	wants(t, said(t, c, nil), id("a"), id("b"), id("c"), id("d"), "idle")
	// b fails: what is in flight is cancelled, "late" never starts.
	wants(t, said(t, c, failed(id("b"), "AgentFailed", "agent_failed", "no")), "cancel "+strings.Join([]string{id("a"), id("c"), id("d")}, " "), "idle")
	wants(t, said(t, c, failed(id("d"), "Cancelled", "cancelled", "cancelled")), "idle")
	// What finally blocks ask for is carried out.
	wants(t, said(t, c, failed(id("c"), "Cancelled", "cancelled", "cancelled")), id("c-tidied"), "idle")
	wants(t, said(t, c, failed(id("a"), "Cancelled", "cancelled", "cancelled")), id("a-tidied"), "idle")
	wants(t, said(t, c, result(id("a-tidied"), ok(""))), "idle")
	wants(t, said(t, c, result(id("c-tidied"), ok(""))), `done [true,"agent_failed","no","c:CancelledCancelledtrue","a:CancelledCancelledtrue"]`)
}

func TestACancelledOperationThatEndedWellCancelsTheNextOne(t *testing.T) {
	c := flow(t, `
const two = function* () { yield* op("a"); try { yield* op("never"); } catch (e: any) { yield* op("after-" + e.name); } };
try { yield* all([two(), op("b")]); } catch (e: any) { return e.message; }`)
	wants(t, said(t, c, nil), id("a"), id("b"), "idle")
	wants(t, said(t, c, failed(id("b"), "LaufwerkError", "workflow_failed", "no")), "cancel "+id("a"), "idle")
	wants(t, said(t, c, result(id("a"), ok(""))), id("after-Cancelled"), "idle")
	wants(t, said(t, c, result(id("after-Cancelled"), ok(""))), `done "no"`)
}

func TestAFailureBeforeSiblingsStartKeepsThemFromStarting(t *testing.T) {
	c := flow(t, `
const bad = function* (): Generator<any, void, any> { throw new Error("at once"); };
const ran: string[] = [];
const other = function* () { ran.push("ran"); yield* op("x"); };
try { yield* all([bad(), other()]); } catch (e: any) { return [e.message, ...ran]; }`)
	wants(t, said(t, c, nil), `done ["at once"]`)
}

func TestLaterFailuresDoNotReplaceTheFirst(t *testing.T) {
	c := flow(t, `
const bad = function* () { try { yield* op("a"); } finally { throw new Error("second"); } };
try { yield* all([bad(), op("b")]); } catch (e: any) { return e.message; }`)
	wants(t, said(t, c, nil), id("a"), id("b"), "idle")
	wants(t, said(t, c, failed(id("b"), "LaufwerkError", "workflow_failed", "first")), "cancel "+id("a"), "idle")
	wants(t, said(t, c, failed(id("a"), "Cancelled", "cancelled", "")), `done "first"`)
}

func TestKeysAreUsedOnce(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"host":          {`yield* op("k"); yield* op("k");`, `Host.exec was called twice with the key "k" in this run: a key names one operation and is never used again`},
		"human":         {`yield* Human.confirm({ key: "k", title: "t" }); yield* Human.text({ key: "k", title: "t" });`, `Human.confirm, text or select was called twice with the key "k" in this run: a key names one operation and is never used again`},
		"workspace":     {`yield* Workspace.open({ source: ".", execution }); yield* Workspace.open({ source: ".", execution });`, "Workspace.open was called twice without a key: give each call a `key` of its own"},
		"write-back":    {`const workspace = yield* Workspace.open({ source: ".", execution }); yield* Workspace.writeBack({ workspace }); yield* Workspace.writeBack({ workspace });`, "Workspace.writeBack was called twice without a key: give each call a `key` of its own"},
		"closed":        {`const w = yield* Workspace.open({ source: ".", execution }); const s = yield* Session.open({ key: "k", agent, workspace: w }); yield* s.close(); yield* Session.open({ key: "k", agent, workspace: w });`, `Session.open was called twice with the key "k" in this run: a key names one operation and is never used again, also not that of a closed session`},
		"run and open":  {`const w = yield* Workspace.open({ source: ".", execution }); yield* Session.run({ key: "k", agent, workspace: w, prompt: "p" }); yield* Session.open({ key: "k", agent, workspace: w });`, `Session.open was called twice with the key "k" in this run: a key names one operation and is never used again, also not that of a closed session`},
		"within":        {`const w = yield* Workspace.open({ source: ".", execution }); const s = yield* Session.open({ key: "s", agent, workspace: w }); yield* s.ask({ key: "k", prompt: "p" }); yield* s.ask({ key: "k", prompt: "p" });`, `ask was called twice with the key "k" in session "s": a key names one operation and is never used again`},
		"other session": {`const w = yield* Workspace.open({ source: ".", execution }); const s = yield* Session.open({ key: "s", agent, workspace: w }); yield* s.exec({ key: "k", command: "x" }); yield* s.ask({ key: "k", prompt: "p" }); throw new LaufwerkError("fine");`, "fine"},
	} {
		t.Run(name, func(t *testing.T) {
			child := flow(t, c.body)
			lines := said(t, child, nil)
			for lines[len(lines)-1] == "idle" {
				value := `{"exitCode":0,"stdout":"","stderr":"","id":"w","mode":"copy","key":"s"}`
				lines = said(t, child, result(lines[0], value))
			}
			if got := lines[len(lines)-1]; !strings.HasSuffix(got, ": "+c.want) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestOptionsAreCheckedAtTheCall(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"unknown":     {`yield* Host.exec({ key: "k", command: ["x"], timout: 3 } as any);`, "timout: Host.exec has no such option; did you mean `timeout`?"},
		"missing":     {`yield* Host.exec({ key: "k" } as any);`, "command: Host.exec needs this option"},
		"type":        {`yield* Host.exec({ key: "k", command: "ls" } as any);`, `command: expected an array, got "ls"`},
		"element":     {`yield* Host.exec({ key: "k", command: ["ls", 3] } as any);`, `command[1]: expected a string, got 3`},
		"no options":  {`yield* (Host.exec as any)();`, `Host.exec expects an object with options, got undefined`},
		"key":         {`yield* op("");`, `key: expected a string that is not empty`},
		"control":     {`yield* op("a\nb");`, `key: expected no control characters`},
		"environment": {`yield* Host.exec({ key: "k", command: ["x"], env: { A: { fromhost: "B" } } } as any);`, "env.A.fromhost: an environment value has no such field; did you mean `fromHost`?"},
		"timeout":     {`yield* Host.exec({ key: "k", command: ["x"], timeout: -1 });`, `timeout: expected milliseconds, at least 1, got -1`},
		"mode":        {`yield* Workspace.open({ source: ".", execution, mode: "cpoy" } as any);`, `mode: expected "copy" or "direct", got "cpoy"`},
		"execution":   {`yield* Workspace.open({ source: "." } as any);`, `execution: Workspace.open needs this option`},
		"target":      {`yield* Workspace.open({ source: ".", execution: {} } as any);`, `execution: expected an execution target that a constructor such as createLocalExecution made, got an object`},
		"workspace":   {`yield* Workspace.diff({ workspace: Workspace.open({ source: ".", execution }) } as any);`, "workspace: expected the result of Workspace.open, got the operation itself: write `yield*` before it"},
		"agent":       {`yield* Session.open({ key: "k", agent: { id: "a" }, workspace: { id: "w", mode: "copy" } });`, `agent: expected an agent that a target's .agent() made, got an object`},
		"choices":     {`yield* Human.select({ key: "k", title: "t", options: [{ value: "a", label: "A" }, { value: "a", label: "B" }] });`, `options[1]: the value "a" is there twice`},
		"schema":      {`yield* Session.run({ key: "k", agent, workspace: { id: "w", mode: "copy" }, prompt: "p", output: 3 } as any);`, `output: expected a JSON Schema object, got 3`},
		"library":     {`yield* Session.run({ key: "k", agent, workspace: { id: "w", mode: "copy" }, prompt: "p", output: { "~standard": {} } });`, "output: this schema object does not say its JSON Schema (no `~standard.jsonSchema`): write the JSON Schema, or use a library version that implements Standard JSON Schema"},
		"all":         {`yield* all([op, op("k")] as any);`, `items[0]: expected an operation or a generator, got a function: call it`},
		"concurrency": {`yield* all([], { concurrency: 0 });`, `concurrency: expected a whole number, at least 1, got 0`},
		"promise":     {`yield Promise.resolve(3) as any;`, "a workflow may only yield operations: write `yield*` before Session.ask and the like, and use no promises"},
		"tools":       {`execution.agent({ harness: createCommand({ command: ["a"] }), tools: {} } as any);`, "tools: host tools for agents are not supported yet: let the agent use its own, or do the work between turns in the workflow"},
		"harness":     {`execution.agent({ harness: { program: "command" } });`, "harness: expected a value of createCommand, createCodex or createClaudeCode, got an object"},
		"result":      {`return { f() {} };`, "the result.f: expected a JSON value, got a function"},
		"cycle":       {`const o: any = {}; o.o = o; return o;`, "the result.o: expected a JSON value, got an object that contains itself"},
	} {
		t.Run(name, func(t *testing.T) {
			lines := said(t, flow(t, c.body), nil)
			want := "error LaufwerkError usage: " + c.want
			if strings.HasPrefix(c.want, "output: this") || strings.HasPrefix(c.want, "tools") {
				want = "error Unsupported unsupported: " + c.want
			}
			wants(t, lines, want)
		})
	}
}

func TestALibrarySchemaIsTakenAsItsJSONSchema(t *testing.T) {
	c := flow(t, `
const output = { "~standard": { version: 1, vendor: "x", jsonSchema: { input: () => ({}), output: ({ target }: any) => ({ type: "object", $comment: target }) } } };
return yield* Session.run({ key: "k", agent, workspace: { id: "w", mode: "copy" }, prompt: "p", output });`)
	ms, err := c.Step(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if args := string(ms[0].Call.Args); !strings.Contains(args, `"output":{"$comment":"draft-2020-12","type":"object"}`) {
		t.Errorf("args = %s", args)
	}
}

func TestBytesCrossWhole(t *testing.T) {
	c := flow(t, `
const w = yield* Workspace.open({ source: ".", execution });
const s = yield* Session.open({ key: "s", agent, workspace: w });
const b = yield* s.readFile("in");
yield* s.writeFile("out", new Uint8Array([...b!, 0, 255]));
yield* s.writeFile("text", "ä€😀");
return [yield* s.readFile("none"), b instanceof Uint8Array];`)
	said(t, c, nil)
	said(t, c, result("workspace.open::", `{"id":"w","mode":"copy"}`))
	wants(t, said(t, c, result("session.open::s", `{"key":"s"}`)), "session.readFile:s@0#0", "idle")
	ms, err := c.Step(t.Context(), result("session.readFile:s@0#0", `{"base64":"gAE="}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(ms[0].Call.Args), `{"base64":"gAEA/w==","path":"out"}`; got != want {
		t.Errorf("args = %s, want %s", got, want)
	}
	ms, err = c.Step(t.Context(), result("session.writeFile:s@0#0", `null`))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(ms[0].Call.Args), `{"base64":"w6Tigqzwn5iA","path":"text"}`; got != want {
		t.Errorf("args = %s, want %s", got, want)
	}
	wants(t, said(t, c, result("session.writeFile:s@0#1", `null`)), "session.readFile:s@0#1", "idle")
	wants(t, said(t, c, result("session.readFile:s@0#1", `null`)), "done [null,true]")
}

func TestErrorsOfTheEngineBecomeTheirClasses(t *testing.T) {
	c := flow(t, `
try { yield* op("a"); } catch (e: any) { return [e.name, e.code, e.holder, e instanceof LaufwerkError, Object.keys(e)]; }`)
	said(t, c, nil)
	m := failed(id("a"), "WorkspaceBusy", "workspace_busy", "held")
	m.Error.Fields = map[string]any{"holder": "run 7", "message": "not this one", "stack": "nor this"}
	wants(t, said(t, c, m), `done ["WorkspaceBusy","workspace_busy","run 7",true,["code","holder"]]`)
}

func TestAnUncaughtErrorSaysWhere(t *testing.T) {
	c := flow(t, `
  const helper = () => { throw new TypeError("broken"); };
  yield* op("a");
  helper();`)
	said(t, c, nil)
	ms, err := c.Step(t.Context(), result(id("a"), ok("")))
	if err != nil {
		t.Fatal(err)
	}
	e := ms[len(ms)-1].Error
	if e == nil || e.Class != "TypeError" || e.Message != "TypeError: broken" || e.Code != "workflow_failed" {
		t.Fatalf("error = %+v", e)
	}
	if len(e.Frames) < 2 || e.Frames[0] != "laufwerk/workflows/w/workflow.ts:10:36 in helper" || !strings.HasPrefix(e.Frames[1], "laufwerk/workflows/w/workflow.ts:12:") {
		t.Errorf("frames = %q", e.Frames)
	}
}

func TestAnUncaughtFailureKeepsItsClassAndFields(t *testing.T) {
	c := flow(t, `yield* op("a");`)
	said(t, c, nil)
	m := failed(id("a"), "WriteBackConflict", "write_back_conflict", "conflict")
	m.Error.Fields = map[string]any{"paths": []string{"a"}}
	m.Error.Hint = "do this"
	ms, err := c.Step(t.Context(), m)
	if err != nil {
		t.Fatal(err)
	}
	e := ms[len(ms)-1].Error
	if e.Class != "WriteBackConflict" || e.Code != "write_back_conflict" || e.Hint != "do this" || len(e.Fields) != 1 {
		t.Errorf("error = %+v", e)
	}
}
