package script

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/sdk"
)

const entry = "laufwerk/laufwerk.config.ts"

func TestEvaluateReadsAConfig(t *testing.T) {
	root := project(t, map[string]string{
		entry: `
import { defineConfig } from "@laufwerk/sdk";
import { execution } from "./execution";
export default defineConfig({ projectId: "demo", executions: [execution] });
`,
		"laufwerk/execution.ts": `
import { createLocalExecution } from "@laufwerk/execution";
export const execution = createLocalExecution({ id: "here" });
`,
	})
	value, bundle, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		ProjectID  string `json:"projectId"`
		Executions []struct {
			Sandbox struct{ ID string }
		}
	}
	if err := json.Unmarshal(value, &got); err != nil || got.ProjectID != "demo" || got.Executions[0].Sandbox.ID != "here" {
		t.Errorf("value = %s (%v)", value, err)
	}
	if strings.Contains(string(value), "agent") {
		t.Errorf("a function crossed the boundary: %s", value)
	}
	if len(bundle.Digest) != 64 || bundle.Code == "" {
		t.Errorf("bundle = %+v", bundle)
	}
}

func TestEvaluateCallsAnExport(t *testing.T) {
	root := project(t, map[string]string{"s.ts": `
export async function add(a: number, b: number) { await null; return { sum: a + b }; }
export const constant = 3;
`})
	value, _, err := testRunner(t).Evaluate(t.Context(), root, "s.ts", EvalOptions{Export: "add", Call: true, Args: json.RawMessage(`[2,3]`)})
	if err != nil || string(value) != `{"sum":5}` {
		t.Errorf("got %s, %v", value, err)
	}
	_, _, err = testRunner(t).Evaluate(t.Context(), root, "s.ts", EvalOptions{Export: "constant", Call: true})
	refused(t, err, "s.ts: the export `constant` is not a function, but 3")
	_, _, err = testRunner(t).Evaluate(t.Context(), root, "s.ts", EvalOptions{})
	refused(t, err, "s.ts: the module does not export `default` (write `export default …`); it exports `add`, `constant`")
}

func refused(t *testing.T, err error, want string) {
	t.Helper()
	if !failure.Is(err, failure.ProjectInvalid) {
		t.Fatalf("err = %v (%s), want a failure of kind %s", err, failure.KindOf(err), failure.ProjectInvalid)
	}
	if err.Error() != want {
		t.Errorf("got  %s\nwant %s", err, want)
	}
}

func TestBadModules(t *testing.T) {
	const head = "import { createLocalExecution } from \"@laufwerk/execution\";\n"
	for name, c := range map[string]struct{ source, want string }{
		"throws":          {"const a = 1;\nthrow new RangeError('no ' + a);", entry + ":2:11: RangeError: no 1"},
		"throws a string": {"throw 'x';", entry + `: something that is not an Error was thrown: "x"`},
		"syntax":          {"const secret = ;\nexport default 1;", entry + `:1:16: Unexpected ";"`},
		"constructor":     {head + "\nexport default createLocalExecution({ id: 3 as any });", entry + ":3:16: id: expected a string, got 3"},
		"unknown option":  {head + "export default createLocalExecution({ idd: 'x' } as any);", entry + ":2:16: idd: createLocalExecution has no such option"},
		"not an object":   {head + "export default createLocalExecution('x' as any);", entry + `:2:16: expected an object with options, got "x"`},
		"function option": {head + "export default createLocalExecution({ env: { A: () => 1 } } as any);", entry + ":2:16: env.A: expected a JSON value, got a function"},
		"node":            {"import { readFileSync } from 'node:fs';\nexport default readFileSync('/etc/passwd');", entry + `:1:30: "node:fs" cannot be imported: config and workflows run in an isolate without files, network and processes; a workflow runs programs with Host.exec or a session's exec`},
		"node without :":  {"import fs from 'fs/promises';\nexport default fs;", entry + `:1:16: "fs/promises" cannot be imported: config and workflows run in an isolate without files, network and processes; a workflow runs programs with Host.exec or a session's exec`},
		"require":         {"declare const require: any;\nexport default require('child_process');", entry + `:2:24: "child_process" cannot be imported: config and workflows run in an isolate without files, network and processes; a workflow runs programs with Host.exec or a session's exec`},
		"package":         {"import x from 'left-pad';\nexport default x;", entry + `:1:15: "left-pad" was not found: it is not a relative path, and no package of this name is installed in a node_modules of the project`},
		"missing":         {"import x from './nothing';\nexport default x;", entry + `:1:15: "./nothing" was not found`},
		"outside":         {"import x from '../../outside.json';\nexport default x;", entry + `:1:15: "../../outside.json" cannot be imported: it is outside the project root`},
		"absolute":        {"import x from '/etc/passwd';\nexport default x;", entry + `:1:15: "/etc/passwd" cannot be imported: an import is a relative path, a module of @laufwerk or an installed package`},
		"url":             {"import x from 'https://example.com/x.js';\nexport default x;", entry + `:1:15: "https://example.com/x.js" cannot be imported: URLs are never fetched; an import is a relative path, a module of @laufwerk or an installed package`},
		"file url":        {"import x from 'file:///etc/passwd';\nexport default x;", entry + `:1:15: "file:///etc/passwd" cannot be imported: URLs are never fetched; an import is a relative path, a module of @laufwerk or an installed package`},
		"internal":        {"import { host } from '@laufwerk/internal/host';\nexport default host;", entry + `:1:22: @laufwerk/internal/host is not a module of this build: there are ` + strings.Join(sdk.Modules(), ", ")},
		"computed import": {"export default import(['node', 'fs'].join(':'));", entry + `: TypeError: module load failed: "node:fs" cannot be imported: an import must name its module in a string, so that it can be bundled`},
		"no export":       {"import { nothing } from '@laufwerk/sdk';\nexport default nothing;", entry + `:1:10: No matching export in "laufwerk:@laufwerk/sdk" for import "nothing"`},
		"waits":           {"await new Promise(() => {});\nexport default 1;", entry + ": the module awaits something at its top level that never settles: the isolate has no timers, files or network"},
		"promise":         {"export default new Promise(() => {});", entry + ": it waits for a promise that nothing will ever settle: the isolate has no timers, files or network"},
		"timer":           {"setTimeout(() => {}, 1);\nexport default 1;", entry + ":1:1: TypeError: setTimeout is not there: config and workflows run without timers, files, processes or network; a workflow sleeps with `yield* Clock.sleep({ key, duration })`"},
		"fetch":           {"export default fetch('x');", entry + ":1:16: TypeError: fetch is not there: config and workflows run without timers, files, processes or network; a workflow runs a program with Host.exec or a session's exec"},
		"not JSON":        {"export default new Map();", entry + `: the result: expected a JSON value, got a Map`},
		"microsandbox":    {"import { createMicrosandbox } from '@laufwerk/sandbox';\nexport default createMicrosandbox({});", entry + ":2:16: createMicrosandbox is not part of this build: the microsandbox target is not there yet; createLocalExecution of @laufwerk/execution/local is"},
		"claude":          {"import { createClaudeCode } from '@laufwerk/sdk/harness/claude-code';\nexport default createClaudeCode({});", entry + ":2:16: createClaudeCode is not part of this build: the Claude Code harness is not there yet; createCommand of @laufwerk/sdk/harness/command drives an agent program of your own"},
		"prune":           {"import { pruneExecutionRun } from '@laufwerk/execution/internal';\nawait pruneExecutionRun('x');\nexport default 1;", entry + ":2:7: pruneExecutionRun is not part of this build: a terminal run's files are removed by `laufwerk runs prune`"},
		"prepare":         {"import { prepareCodexImage } from '@laufwerk/execution';\nprepareCodexImage({ image: 'a', manifestPath: 'b' });\nexport default 1;", entry + ":2:1: prepareCodexImage is not part of this build"},
		"prepare's name":  {"import { prepareCodexImage } from '@laufwerk/execution';\nprepareCodexImage({ image: 'a', manifestPaht: 'b' } as any);\nexport default 1;", entry + ":2:1: manifestPaht: prepareCodexImage has no such option; did you mean `manifestPath`?"},
		"not a signal":    {"import { loadPreparedCodexImage } from '@laufwerk/execution';\nexport default await loadPreparedCodexImage('m', undefined, 3 as any);", entry + ":2:22: signal: expected an AbortSignal, got 3"},
		"prepared":        {"import { createDockerExecution } from '@laufwerk/execution';\nexport default createDockerExecution({ prepared: { image: 'x' } } as any);", entry + ":2:16: prepared: there is no such option; pass the result of loadPreparedCodexImage as `image`"},
		"stack overflow":  {"const f = (): number => f() + 1;\nexport default f();", entry + ":1:25: InternalError: stack overflow"},
	} {
		t.Run(name, func(t *testing.T) {
			root := project(t, map[string]string{entry: c.source})
			_, _, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
			refused(t, err, c.want)
		})
	}
}

func TestFilesThatAreNotServed(t *testing.T) {
	const secret = "export default 'a-secret-that-is-not-the-projects'; syntax error"
	for name, c := range map[string]struct {
		spec string
		make func(t *testing.T, root, outside string)
		want string
	}{
		"relative link out": {"./link", func(t *testing.T, root, outside string) {
			rel, _ := filepath.Rel(filepath.Join(root, "laufwerk"), outside)
			must(t, os.Symlink(rel, filepath.Join(root, "laufwerk/link.ts")))
		}, "laufwerk/link.ts is a link that leaves the project root (a link with an absolute target counts as leaving)"},
		"absolute link out": {"./link", func(t *testing.T, root, outside string) {
			must(t, os.Symlink(outside, filepath.Join(root, "laufwerk/link.ts")))
		}, "laufwerk/link.ts is a link that leaves the project root (a link with an absolute target counts as leaving)"},
		"folder that is a link out": {"./lib/secret", func(t *testing.T, root, outside string) {
			must(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "laufwerk/lib")))
		}, "laufwerk/lib is a link that leaves the project root (a link with an absolute target counts as leaving)"},
		"node_modules that is a link out": {"pkg", func(t *testing.T, root, outside string) {
			must(t, os.Symlink(filepath.Dir(outside), filepath.Join(root, "node_modules")))
		}, "node_modules is a link that leaves the project root (a link with an absolute target counts as leaving)"},
		"fifo": {"./pipe", func(t *testing.T, root, outside string) {
			must(t, syscall.Mkfifo(filepath.Join(root, "laufwerk/pipe.ts"), 0o644))
		}, "it is a fifo, not a regular file"},
		"too large": {"./large", func(t *testing.T, root, outside string) {
			must(t, os.WriteFile(filepath.Join(root, "laufwerk/large.ts"), []byte("export default 1 //"+strings.Repeat("x", maxFile)), 0o644))
		}, "it has 4194323 bytes, more than the 4194304 that a module may have"},
		"circle of links": {"./a", func(t *testing.T, root, outside string) {
			must(t, os.Symlink("b.ts", filepath.Join(root, "laufwerk/a.ts")))
			must(t, os.Symlink("a.ts", filepath.Join(root, "laufwerk/b.ts")))
		}, "its links form a circle"},
	} {
		t.Run(name, func(t *testing.T) {
			root := project(t, map[string]string{entry: "import x from '" + c.spec + "';\nexport default x;"})
			outside := filepath.Join(t.TempDir(), "secret.ts")
			must(t, os.WriteFile(outside, []byte(secret), 0o644))
			c.make(t, root, outside)
			_, _, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
			if err == nil || strings.Contains(err.Error(), "a-secret") {
				t.Fatalf("err = %v", err)
			}
			if !strings.HasPrefix(err.Error(), entry+":1:15: ") || !strings.HasSuffix(err.Error(), c.want) {
				t.Errorf("got  %s\nwant … %s", err, c.want)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestLinksInsideTheProjectAreFollowed(t *testing.T) {
	root := project(t, map[string]string{entry: "import x from './link';\nexport default x;", "lib/real.ts": "export default 'real';"})
	must(t, os.Symlink("../lib/real.ts", filepath.Join(root, "laufwerk/link.ts")))
	value, _, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
	if err != nil || string(value) != `"real"` {
		t.Errorf("got %s, %v", value, err)
	}
}

func TestPackages(t *testing.T) {
	root := project(t, map[string]string{
		entry: `
import esm from "esm";
import { deep } from "esm/deep/x";
import * as cjs from "@scope/cjs";
import data from "./data.json";
import text from "./prompt.md";
import { used } from "./sub/index.js";
export default { esm, deep, cjs: (cjs as any).default.name, data, text, used };
`,
		"laufwerk/data.json":                               `{"n": 1}`,
		"laufwerk/prompt.md":                               "hello",
		"laufwerk/sub/index.ts":                            "export const used: string = 'ts for js';",
		"laufwerk/package.json":                            `{"type": "commonjs"}`,
		"node_modules/esm/package.json":                    `{"name": "esm", "exports": {".": {"types": "./x.d.ts", "require": "./no.cjs", "import": "./yes.js"}, "./deep/*": "./d/*.js"}}`,
		"node_modules/esm/yes.js":                          "import inner from 'inner'; export default 'import+' + inner;",
		"node_modules/esm/d/x.js":                          "export const deep = 'deep';",
		"node_modules/esm/node_modules/inner/i.js":         "export default 'inner';",
		"node_modules/esm/node_modules/inner/package.json": `{"main": "i"}`,
		"laufwerk/node_modules/@scope/cjs/index.js":        "exports.name = 'cjs';",
	})
	value, _, err := testRunner(t).Evaluate(t.Context(), root, entry, EvalOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(value), `{"cjs":"cjs","data":{"n":1},"deep":"deep","esm":"import+inner","text":"hello","used":"ts for js"}`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestTwoEvaluationsAreEqual(t *testing.T) {
	root := project(t, map[string]string{entry: `
export default {
  now: Date.now(), date: new Date().toISOString(), string: Date().slice(0, 15), fixed: new Date(2024, 0, 2, 3).toISOString(), own: new (new Date().constructor as any)().getTime(),
  random: [Math.random(), Math.random()], uuid: crypto.randomUUID(), bytes: [...crypto.getRandomValues(new Uint8Array(4))], performance: performance.now(),
  zone: new Date().getTimezoneOffset(), gone: [typeof (globalThis as any).WeakRef, typeof (globalThis as any).FinalizationRegistry, typeof (globalThis as any).SharedArrayBuffer, typeof (globalThis as any).Atomics, typeof (globalThis as any).process, typeof (globalThis as any).require],
};
`})
	t.Setenv("TZ", "Asia/Tokyo")
	opts := EvalOptions{Seed: "one", Now: 86_400_000}
	first, firstBundle, err := testRunner(t).Evaluate(t.Context(), root, entry, opts)
	must(t, err)
	second, secondBundle, err := testRunner(t).Evaluate(t.Context(), root, entry, opts)
	must(t, err)
	if string(first) != string(second) || !reflect.DeepEqual(firstBundle, secondBundle) {
		t.Errorf("two evaluations differ:\n%s\n%s", first, second)
	}
	var v struct {
		Now, Own, Zone            int64
		Date, String, Fixed, UUID string
		Random                    []float64
		Gone                      []string
	}
	must(t, json.Unmarshal(first, &v))
	if v.Now != opts.Now || v.Own != opts.Now || v.Date != "1970-01-02T00:00:00.000Z" || v.String != "Fri Jan 02 1970" || v.Fixed != "2024-01-02T03:00:00.000Z" || v.Zone != 0 {
		t.Errorf("time: %s", first)
	}
	if v.Random[0] == v.Random[1] || v.Random[0] < 0 || v.Random[0] >= 1 || len(v.UUID) != 36 || v.UUID[14] != '4' {
		t.Errorf("randomness: %s", first)
	}
	if got := strings.Join(v.Gone, " "); got != strings.TrimSpace(strings.Repeat("undefined ", 6)) {
		t.Errorf("globals that should be gone: %s", got)
	}
	opts.Seed = "two"
	other, _, err := testRunner(t).Evaluate(t.Context(), root, entry, opts)
	must(t, err)
	if string(other) == string(first) {
		t.Error("another seed gave the same randomness")
	}
}

func TestGlobalsOfTheIsolate(t *testing.T) {
	root := project(t, map[string]string{entry: `
const results: { [name: string]: unknown } = {};
const text = "aä€😀\ud800";
results.utf8 = [...new TextEncoder().encode(text)].length;
results.back = new TextDecoder().decode(new TextEncoder().encode(text)) === text.toWellFormed();
results.bad = new TextDecoder().decode(new Uint8Array([0x61, 0xff, 0xe2, 0x82, 0x62, 0xed, 0xa0, 0x80, 0xf0, 0x9f, 0x98, 0x80]));
results.b64 = atob(btoa("hi\xff")) === "hi\xff";
results.sha = await crypto.subtle.digest("SHA-256", new TextEncoder().encode("abc")).then(b => new DataView(b).getUint32(0).toString(16));
const u = new URL("../x?a=1&b=%20c#h", "https://me:pw@Example.com:443/dir/y");
results.url = [u.href, u.host, u.port, u.pathname, u.search, u.hash, u.origin, u.searchParams.get("b"), URL.canParse("nope")];
results.params = new URLSearchParams({ a: "1 2", b: "&" }).toString();
const o: any = { d: new Date(5), m: new Map([[1, { x: [1] }]]), s: new Set([2]), b: new Uint8Array([1]) }; o.self = o;
const c = structuredClone(o);
results.clone = [c !== o, c.self === c, c.d.getTime(), c.m.get(1).x[0], c.s.has(2), c.b[0]];
const abort = new AbortController(); let aborted = 0; abort.signal.addEventListener("abort", () => aborted++); abort.abort(); abort.abort();
results.abort = [abort.signal.aborted, aborted];
const log: string[] = [];
{ using r = { [Symbol.dispose]() { log.push("disposed"); } }; log.push("used"); void r; }
results.using = log;
results.async = await (Array as any).fromAsync([Promise.resolve(1), 2]);
await new Promise<void>(done => queueMicrotask(done));
class MyError extends Error { constructor() { super("m"); this.name = "MyError"; } }
results.error = String(new MyError());
results.frozen = (() => { try { (globalThis as any).Date = 1; return "changed"; } catch (e: any) { return e.name; } })();
console.log("hello", { a: [1, "x"], e: new Error("y").message });
export default results;
`})
	var logged []string
	r := testRunner(t)
	r.Log = func(level, text string) { logged = append(logged, level+" "+text) }
	value, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{})
	must(t, err)
	want := `{"abort":[true,1],"async":[1,2],"b64":true,"back":true,"bad":"a��b���😀","clone":[true,true,5,1,true,1],"error":"MyError: m","frozen":"TypeError","params":"a=1+2&b=%26","sha":"ba7816bf","url":["https://me:pw@example.com/x?a=1&b=%20c#h","example.com","","/x","?a=1&b=%20c","#h","https://example.com"," c",false],"using":["used","disposed"],"utf8":13}`
	if string(value) != want {
		t.Errorf("got  %s\nwant %s", value, want)
	}
	if got, want := strings.Join(logged, "|"), `log hello { a: [1, "x"], e: "y" }`; got != want {
		t.Errorf("logged %s, want %s", got, want)
	}
}

func TestLimitsOfAConfig(t *testing.T) {
	quick := Limits{MemoryBytes: 64 << 20, StepMillis: 300}
	for name, c := range map[string]struct {
		source, want string
		limits       Limits
	}{
		"loop":              {"const spin = () => {\n  for (;;) {}\n};\nspin();\nexport default 1;", entry + ":1:14: it ran for more than 300ms without waiting for anything", quick},
		"loop in a promise": {"export default (async () => { await null; for (;;) await null; })();", entry + ": it ran for more than 300ms without waiting for anything", quick},
		"caught":            {"for (;;) { try { for (;;) {} } catch {} finally { } }", entry + ":1:1: it ran for more than 300ms without waiting for anything", quick},
		"memory":            {"const a: string[] = [];\nfor (;;) a.push('x'.repeat(1e6) + a.length);\nexport default a;", entry + ":2:21: it needs more than 64 MiB of memory", Limits{MemoryBytes: 64 << 20, StepMillis: 20_000}},
		"one native call":   {"const s = 'a,'.repeat(1 << 19);\nfor (let i = 0; i < 100; i++) s.split('').reverse().join('').replace(/(a*)*b/g, '');\nexport default 1;", "", quick},
	} {
		t.Run(name, func(t *testing.T) {
			root := project(t, map[string]string{entry: c.source})
			r := testRunner(t)
			r.ConfigLimits = c.limits
			_, _, err := r.Evaluate(t.Context(), root, entry, EvalOptions{})
			if c.want != "" {
				refused(t, err, c.want)
			}
			if !failure.Is(err, failure.ProjectInvalid) {
				t.Fatalf("err = %v", err)
			}
			if inner := failure.As(errors.Unwrap(err)); inner == nil || inner.Kind != failure.LimitExceeded {
				t.Errorf("%v does not wrap a failure of kind %s", err, failure.LimitExceeded)
			}
		})
	}
}

func TestEvaluateStopsWithItsContext(t *testing.T) {
	root := project(t, map[string]string{entry: "for (;;) {}"})
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	_, _, err := testRunner(t).Evaluate(ctx, root, entry, EvalOptions{NoTime: true})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}
