package script

import (
	"strings"
	"testing"

	"modernc.org/quickjs"
)

// The wrong code that mendLoops works around. When an upgrade of the engine makes this test fail, the work-around can go.
func TestEngineStillSharesBindingsAfterContinue(t *testing.T) {
	vm, err := quickjs.NewVM()
	if err != nil {
		t.Fatal(err)
	}
	defer vm.Close()
	got, err := vm.Eval(`const f = []; for (let i = 0; i < 3; i++) { f.push(() => i); if (i < 5) continue; } f.map(g => g()).join()`, quickjs.EvalGlobal)
	if err != nil {
		t.Fatal(err)
	}
	if got != "3,3,3" {
		t.Errorf("the engine now answers %v: it has been repaired, and mendLoops can be removed", got)
	}
}

func TestLoopsHaveBindingsOfTheirOwn(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"continue":           {`for (let i = 0; i < 3; i++) { f.push(() => i); if (i < 5) continue; f.push(9); }`, "0,1,2"},
		"last statement":     {`for (let i = 0; i < 3; i++) { f.push(() => i); continue; }`, "0,1,2"},
		"no block":           {`for (let i = 0; i < 3; i++) if (f.push(() => i) < 9) continue; else f.push(9);`, "0,1,2"},
		"labelled":           {`outer: for (let i = 0; i < 3; i++) { for (const x of [1, 2]) { f.push(() => i * x); continue outer; } }`, "0,1,2"},
		"out of a while":     {`a: for (let i = 0; i < 2; i++) { while (true) { f.push(() => i); if (i) continue a; continue a; } }`, "0,1"},
		"nested":             {`for (let i = 0; i < 2; i++) { for (let j = 0; j < 2; j++) { f.push(() => i * 10 + j); if (j < 1) continue; if (i < 9) continue; } if (i < 1) continue; }`, "0,1,10,11"},
		"inner of while":     {`let n = 0; while (n < 2) { n++; for (let i = 0; i < 2; i++) { f.push(() => i); continue; } if (n) continue; f.push(9); }`, "0,1,0,1"},
		"do":                 {`let n = 0; do { n++; if (n < 2) continue; for (let i = 0; i < 2; i++) { f.push(() => i); continue; } } while (n < 3);`, "0,1,0,1"},
		"switch":             {`for (let i = 0; i < 4; i++) { switch (i) { case 1: continue; case 2: break; default: f.push(() => i); } }`, "0,3"},
		"finally":            {`for (let i = 0; i < 2; i++) { try { f.push(() => i); continue; } finally { f.push(() => -i - 1); } }`, "0,-1,1,-2"},
		"two bindings":       {`for (let i = 0, j = 5; i < 2; i++, j--) { f.push(() => i * 10 + j); if (j) continue; }`, "5,14"},
		"closure in head":    {`for (let i = 0, g = () => i; i < 2; i++) { f.push(g); continue; }`, "0,0"},
		"of":                 {`for (const i of [1, 2]) { f.push(() => i); continue; }`, "1,2"},
		"function in body":   {`for (let i = 0; i < 2; i++) { const g = () => { for (let k = 0; k < 2; k++) { f.push(() => i * 10 + k); continue; } }; g(); if (g) continue; }`, "0,1,10,11"},
		"same label inside":  {`x: for (let i = 0; i < 2; i++) { (() => { x: for (let k = 0; k < 2; k++) { f.push(() => k); continue x; } })(); continue x; }`, "0,1,0,1"},
		"property names":     {`const o = { continue: 1, for: 2, while: 3 }; for (let i = 0; i < 2; i++) { f.push(() => i + o.continue + o.for); if (o.while) continue; }`, "3,4"},
		"template":           {"for (let i = 0; i < 2; i++) { f.push(() => `${[i].map((x) => { for (let k = 0; k < 2; k++) { if (k < 1) continue; return `${x}continue;${k}`; } })}`); if (i < 9) continue; }", "0continue;1,1continue;1"},
		"regular expression": {`for (let i = 0; i < 2; i++) { f.push(() => "a/b{".split(/[/]b\{/)[0] + i / 1 + /}/.test("x")); if (i++ / 2 < 9) continue; }`, "a1false"},
		"no closure":         {`let sum = 0; for (let i = 0; i < 5; i++) { if (i % 2) continue; sum += i; } f.push(() => sum);`, "6"},
		"class field":        {`for (let i = 0; i < 2; i++) { class A { continue; } f.push(() => Object.keys(new A()).length); }`, "1,1"},
	} {
		t.Run(name, func(t *testing.T) {
			root := project(t, map[string]string{"m.ts": "const f: any[] = [];\n" + c.body + "\nexport default f.map(g => typeof g === 'function' ? g() : g).join();\n"})
			value, bundle, err := testRunner(t).Evaluate(t.Context(), root, "m.ts", EvalOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Trim(string(value), `"`); got != c.want {
				t.Errorf("got %s, want %s; code:\n%s", got, c.want, bundle.Code[strings.Index(bundle.Code, "const f"):])
			}
		})
	}
}
