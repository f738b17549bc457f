package scaffold

import (
	"strings"
	"testing"
)

func TestAddTarget(t *testing.T) {
	const head = "import { defineConfig } from \"@laufwerk/sdk\";\nimport { execution } from \"./execution\";\n"
	for name, c := range map[string]struct{ before, added, id string }{
		"as init writes it":      {head + "\nexport default defineConfig({\n  projectId: \"p\",\n  executions: [execution],\n});\n", head + "IMPORT\n\nexport default defineConfig({\n  projectId: \"p\",\n  executions: [execution, box],\n});\n", "box"},
		"a line for each":        {head + "export default defineConfig({\n  executions: [\n    execution,\n  ],\n});\n", head + "IMPORT\nexport default defineConfig({\n  executions: [\n    execution,\n    box,\n  ],\n});\n", "box"},
		"no comma at the end":    {head + "export default defineConfig({\n  executions: [\n    execution // main\n  ]\n});\n", head + "IMPORT\nexport default defineConfig({\n  executions: [\n    execution, box // main\n  ]\n});\n", "box"},
		"no comma, no remark":    {head + "export default defineConfig({\n  executions: [\n    execution\n  ]\n});\n", head + "IMPORT\nexport default defineConfig({\n  executions: [\n    execution,\n    box\n  ]\n});\n", "box"},
		"a remark after a comma": {head + "export default defineConfig({ executions: [\n\texecution, // main, [x]\n] });\n", head + "IMPORT\nexport default defineConfig({ executions: [\n\texecution, // main, [x]\n\tbox,\n] });\n", "box"},
		"no element":             {head + "export default defineConfig({ executions: [] });\n", head + "IMPORT\nexport default defineConfig({ executions: [box] });\n", "box"},
		"a comma on the line":    {head + "export default defineConfig({ executions: [execution, ] });\n", head + "IMPORT\nexport default defineConfig({ executions: [execution, box, ] });\n", "box"},
		"CRLF":                   {strings.ReplaceAll(head, "\n", "\r\n") + "export default defineConfig({ executions: [\r\n  execution,\r\n] });\r\n", strings.ReplaceAll(head, "\n", "\r\n") + "IMPORT\r\nexport default defineConfig({ executions: [\r\n  execution,\r\n  box,\r\n] });\r\n", "box"},
		"words in strings": {head + "// executions: [a]\nconst s = \"executions: [\", u = 'it\\'s', v = `x\n`;\nexport default defineConfig({ projectId: s, \"executions\": [f([1], { a: 2 }), execution] /* executions: [] */ });\n",
			head + "IMPORT\n// executions: [a]\nconst s = \"executions: [\", u = 'it\\'s', v = `x\n`;\nexport default defineConfig({ projectId: s, \"executions\": [f([1], { a: 2 }), execution, box] /* executions: [] */ });\n", "box"},
		"an import over lines": {"import {\n  defineConfig,\n} from \"@laufwerk/sdk\" // sdk\nexport default defineConfig({ executions: [] });\n", "import {\n  defineConfig,\n} from \"@laufwerk/sdk\" // sdk\nIMPORT\nexport default defineConfig({ executions: [box] });\n", "box"},
		"a name that is taken": {head + "const box = 1;\nexport default defineConfig({ executions: [execution] });\n", head + "IMPORT\nconst box = 1;\nexport default defineConfig({ executions: [execution, executionBox] });\n", "box"},
		"a reserved word":      {head + "export default defineConfig({ executions: [execution] });\n", head + "IMPORT\nexport default defineConfig({ executions: [execution, executionNew] });\n", "new"},
		"signs in the id":      {head + "export default defineConfig({ executions: [execution] });\n", head + "IMPORT\nexport default defineConfig({ executions: [execution, myBoxX1] });\n", "my-box.x1"},
	} {
		t.Run(name, func(t *testing.T) {
			e, ok := addTarget([]byte(c.before), "execution."+c.id, c.id)
			if want := strings.Replace(c.added, "IMPORT", e.line, 1); !ok || string(e.text) != want {
				t.Errorf("%t\n%s\nwant\n%s", ok, e.text, want)
			}
			if !strings.HasPrefix(e.line, "import { execution as "+e.element+" } from \"./execution."+c.id) {
				t.Errorf("the import is %s of %s", e.line, e.element)
			}
		})
	}
}

func TestAConfigThatIsNotPlainIsNotEdited(t *testing.T) {
	const head = "import { defineConfig } from \"@laufwerk/sdk\";\n"
	for name, config := range map[string]string{
		"no import":              "export default { executions: [] };\n",
		"no list":                head + "export default defineConfig({ executions });\n",
		"a list from elsewhere":  head + "export default defineConfig({ executions: all() });\n",
		"two lists":              head + "const a = { executions: [] };\nexport default defineConfig({ executions: [] });\n",
		"assigned later":         head + "const c = { executions: [] };\nc.executions = [];\nexport default defineConfig(c);\n",
		"a regular expression":   head + "const r = /[\"]/;\nexport default defineConfig({ executions: [] });\n",
		"a template":             head + "const r = `${1}`;\nexport default defineConfig({ executions: [] });\n",
		"all on one line":        "import { defineConfig } from \"@laufwerk/sdk\"; export default defineConfig({ executions: [] });\n",
		"unbalanced":             head + "export default defineConfig({ executions: [ });\n",
		"an open string":         head + "export default defineConfig({ executions: [] }); \"\n",
		"an open comment":        head + "export default defineConfig({ executions: [] }); /*\n",
		"imports after the list": "export default defineConfig({ executions: [] });\n" + head,
		"empty":                  "",
	} {
		if e, ok := addTarget([]byte(config), "execution.x", "x"); ok {
			t.Errorf("%s: edited to\n%s", name, e.text)
		}
	}
}

func FuzzAddTarget(f *testing.F) {
	f.Add("import a from \"a\";\nexport default { executions: [a, ] };\n")
	f.Fuzz(func(t *testing.T, config string) {
		e, ok := addTarget([]byte(config), "execution.x", "x")
		if !ok {
			return
		}
		// Without what was added, it is what it was: a subsequence is enough to see that nothing is lost or moved.
		rest := config
		for i := 0; i < len(e.text) && rest != ""; i++ {
			if e.text[i] == rest[0] {
				rest = rest[1:]
			}
		}
		if added := len(e.text) - len(config); rest != "" || added < len(e.line)+len(e.element) {
			t.Errorf("%q became %q", config, e.text)
		}
	})
}
