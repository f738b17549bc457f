package script

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

const imports = `import { createDockerExecution, loadPreparedCodexImage } from "@laufwerk/execution/docker";
`

// images answers loadPreparedCodexImage with the id that it is given for a manifest.
func images(ids map[string]string) Host {
	return func(_ context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
		var q struct{ ManifestPath, ExpectedBaseID string }
		if err := json.Unmarshal(args, &q); err != nil {
			return nil, err
		}
		id, ok := ids[q.ManifestPath]
		if !ok || function != "loadPreparedCodexImage" {
			return nil, failure.New(failure.NotReady, "there is no image of %s in %s", q.ManifestPath, root).WithHint("laufwerk prepare docker")
		}
		return json.Marshal(map[string]string{"image": id, "manifestPath": root + "/" + q.ManifestPath})
	}
}

func TestAPreparedImageIsTakenFromTheHost(t *testing.T) {
	root := project(t, map[string]string{entry: imports + `
const image = await loadPreparedCodexImage("m.json", "sha256:base");
export default [image, createDockerExecution({ image, network: "none" }).sandbox, createDockerExecution({ image: "sha256:other", imageCacheDirectory: "a/b" }).sandbox,
  createDockerExecution({ imageCacheDirectory: "/a" }).sandbox, createDockerExecution({ imageCacheDirectory: "~/a" }).sandbox];
`})
	r := testRunner(t)
	r.Host = images(map[string]string{"m.json": "sha256:one"})
	value, bundle, err := r.Evaluate(t.Context(), root, entry, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const options = `"fingerprint":"f","id":"docker","kind":"docker","options":`
	want := `["sha256:one",{` + options + `{"network":"none","prepared":{"image":"sha256:one","manifestPath":"` + root + `/m.json"}}},{` + options + `{"image":"sha256:other","imageCacheDirectory":"` + root + `/a/b"}},{` +
		options + `{"imageCacheDirectory":"/a"}},{` + options + `{"imageCacheDirectory":"~/a"}}]`
	if string(value) != want {
		t.Errorf("got  %s\nwant %s", value, want)
	}
	if len(bundle.Answers) != 1 || string(bundle.Answers[0].Args) != `{"expectedBaseId":"sha256:base","manifestPath":"m.json"}` {
		t.Errorf("the bundle holds the answers %+v", bundle.Answers)
	}
}

// A target is also used where its project is not known: the folder that it names below the project is absolute by then.
func TestAnOpenShellTargetIsDescribedByTheHostsRules(t *testing.T) {
	root := project(t, map[string]string{entry: `
import { createOpenShellExecution as create } from "@laufwerk/execution/openshell";
const policy = { p: { endpoints: [{ host: "example.com", port: 443 }], binaries: [{ path: "/x" }] } };
const options = { id: "s", gateway: "g", credentials: { kind: "codex-subscription" as const, provider: "p" }, policy };
const targets = [create({ ...options, imageCacheDirectory: "a/b" }), create({ ...options, imageCacheDirectory: "~/a" })];
export default [...targets.map(t => t.sandbox), typeof targets[0].agent, Object.isFrozen(targets[0])];
`})
	value, _, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	described := func(cache string) string {
		return `{"fingerprint":"f","id":"openshell","kind":"openshell","options":{"credentials":{"kind":"codex-subscription","provider":"p"},"gateway":"g","id":"s","imageCacheDirectory":"` + cache +
			`","policy":{"p":{"binaries":[{"path":"/x"}],"endpoints":[{"host":"example.com","port":443}]}}}}`
	}
	if want := "[" + described(root+"/a/b") + "," + described("~/a") + `,"function",true]`; string(value) != want {
		t.Errorf("got  %s\nwant %s", value, want)
	}
}

func TestWhatTheHostCannotDoKeepsItsKind(t *testing.T) {
	for name, c := range map[string]struct {
		kind, want failure.Kind
	}{
		"not ready":  {failure.NotReady, failure.NotReady},
		"lock":       {failure.LockBusy, failure.LockBusy},
		"unknown":    {failure.OutcomeUnknown, failure.OutcomeUnknown},
		"wrong use":  {failure.ProjectInvalid, failure.ProjectInvalid},
		"impossible": {failure.Unsupported, failure.ProjectInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			root := project(t, map[string]string{entry: imports + "export default await loadPreparedCodexImage('x');"})
			r := testRunner(t)
			r.Host = func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
				return nil, failure.New(c.kind, "it did not go well").WithHint("try again").WithPaths(map[bool]string{true: "an.option", false: "/a/file"}[c.kind == failure.ProjectInvalid])
			}
			_, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{})
			f := failure.As(err)
			if f == nil || f.Kind != c.want || err.Error() != entry+":2:22: "+map[bool]string{true: "an.option: "}[c.kind == failure.ProjectInvalid]+"it did not go well" || f.Hint != "try again" {
				t.Errorf("%v (%s, %+v)", err, failure.KindOf(err), f)
			}
		})
	}
}

func TestTheHostIsAskedInScripts(t *testing.T) {
	root := project(t, map[string]string{"s.ts": `
import { prepareDockerCodex } from "@laufwerk/execution/docker";
export async function twice() {
  const a = await prepareDockerCodex({ image: "base", resources: { cpus: 1 } });
  try { await prepareDockerCodex({ image: "broken" }); } catch (error: any) { return [a, error.code, error.message]; }
}
export async function aborted() {
  const stop = new AbortController();
  stop.abort();
  return prepareDockerCodex({ signal: stop.signal }).catch(error => error.name);
}
`})
	r := testRunner(t)
	var asked []string
	r.Host = func(_ context.Context, _, function string, args json.RawMessage) (json.RawMessage, error) {
		asked = append(asked, function+string(args))
		if strings.Contains(string(args), "broken") {
			return nil, failure.New(failure.NotReady, "no such base")
		}
		return json.RawMessage(`{"image":"i","manifestPath":"m","reused":false}`), nil
	}
	value, _, err := r.Evaluate(t.Context(), root, "s.ts", EvalOptions{Export: "twice", Call: true, NoTime: true})
	if want := `[{"image":"i","manifestPath":"m","reused":false},"not_ready","no such base"]`; err != nil || string(value) != want {
		t.Errorf("%s %v", value, err)
	}
	if got, want := strings.Join(asked, " "), `prepareDockerCodex{"image":"base","resources":{"cpus":1}} prepareDockerCodex{"image":"broken"}`; got != want {
		t.Errorf("asked %s", got)
	}
	asked = nil
	value, _, err = r.Evaluate(t.Context(), root, "s.ts", EvalOptions{Export: "aborted", Call: true, NoTime: true})
	if err != nil || string(value) != `"AbortError"` || asked != nil {
		t.Errorf("%s %v, asked %v", value, err, asked)
	}
}

func TestTheHostsTimeIsNotTheModules(t *testing.T) {
	t.Parallel()
	root := project(t, map[string]string{entry: imports + "export default await loadPreparedCodexImage('m.json');"})
	r := testRunner(t)
	r.ConfigLimits = Limits{MemoryBytes: 64 << 20, StepMillis: 1500}
	answer := images(map[string]string{"m.json": "sha256:one"})
	r.Host = func(ctx context.Context, root, function string, args json.RawMessage) (json.RawMessage, error) {
		time.Sleep(r.ConfigLimits.Step() + stepGrace + 500*time.Millisecond)
		return answer(ctx, root, function, args)
	}
	if value, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{}); err != nil || string(value) != `"sha256:one"` {
		t.Errorf("%s %v", value, err)
	}
}

func TestAModuleDoesNotAskForever(t *testing.T) {
	root := project(t, map[string]string{entry: imports + "for (;;) await loadPreparedCodexImage('m.json');"})
	r := testRunner(t)
	r.Host = images(map[string]string{"m.json": "sha256:one"})
	_, bundle, err := r.Evaluate(t.Context(), root, entry, EvalOptions{NoTime: true})
	if err == nil || !strings.Contains(err.Error(), "at most 100 times") || len(bundle.Answers) != maxHostCalls+1 {
		t.Errorf("%v after %d", err, len(bundle.Answers))
	}
}

// A run evaluates its module with every worker, from the bundle that it keeps in a file.
func TestAWorkflowHearsTheSameAtReplay(t *testing.T) {
	const file = "laufwerk/workflows/w/workflow.ts"
	source := header + imports + `
const image = await loadPreparedCodexImage("<a&b>.json");
const missing = await loadPreparedCodexImage("none").catch(error => error.code + ": " + error.message);
export const workflow = defineWorkflow({ name: "w", *run() { yield* Clock.now(); return [image, missing]; } });
`
	root := project(t, map[string]string{file: source})
	r := testRunner(t)
	r.Host = images(map[string]string{"<a&b>.json": "sha256:first"})
	_, bundle, err := r.Evaluate(t.Context(), root, file, EvalOptions{Export: "workflow"})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := json.Marshal(bundle)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = images(map[string]string{"<a&b>.json": "sha256:second", "none": "sha256:now-there"})
	for range 2 {
		var again protocol.Bundle
		if err := json.Unmarshal(kept, &again); err != nil {
			t.Fatal(err)
		}
		c := started(t, r, again, `null`)
		wants(t, said(t, c, nil), "clock.now:@0#0", "idle")
		wants(t, said(t, c, result("clock.now:@0#0", "0")), `done ["sha256:first","not_ready: there is no image of none in `+root+`"]`)
	}
	bundle.Answers = nil
	c := started(t, r, bundle, `null`)
	wants(t, said(t, c, nil), "error Unsupported unsupported: loadPreparedCodexImage was not called in this way when the run began: a workflow calls it while its module is loaded, always with the same arguments")
}

func TestAnInterruptedHostIsNotTheModulesFault(t *testing.T) {
	root := project(t, map[string]string{entry: imports + "export default await loadPreparedCodexImage('m.json').catch(() => 1);"})
	r := testRunner(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	r.Host = func(context.Context, string, string, json.RawMessage) (json.RawMessage, error) {
		cancel(failure.New(failure.Interrupted, "interrupted"))
		<-ctx.Done()
		return nil, failure.Wrap(context.Cause(ctx), failure.Cancelled, "prepare")
	}
	if _, _, err := r.Evaluate(ctx, root, entry, EvalOptions{}); !failure.Is(err, failure.Interrupted) || err.Error() != "evaluate "+entry+": prepare: interrupted" {
		t.Errorf("%v (%s)", err, failure.KindOf(err))
	}
}
