package docker

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// programs are agent programs as the build has them.
func programs() agent.Programs { return agent.Programs{codex.New(), command.New(nil)} }

func validate(given json.RawMessage) (targets.Definition, error) {
	return New(Config{Programs: programs()}).Validate(given)
}

var anID = "sha256:" + strings.Repeat("0a", 32)

func TestValidate(t *testing.T) {
	for _, c := range []struct{ given, path, message string }{
		{`{}`, "", ""},
		{``, "", ""},
		{`{"id":"big","image":"registry.example:5000/team/image:1@` + anID + `","codexBootstrap":"prepared","credentials":"codex-subscription",` +
			`"resources":{"cpus":0.001,"memoryBytes":6291456,"swapBytes":0,"pids":1},"network":"none","env":{"A":"1"},"imageCacheDirectory":"~/cache"}`, "", ""},
		{`{"resources":{"cpus":2,"memoryBytes":4294967296,"swapBytes":0,"pids":512}}`, "", ""},
		{`{"resources":{"cpus":0.1}}`, "", ""},
		{`{"resources":{}}`, "", ""},
		{`{"image":"` + anID + `"}`, "", ""},
		{`{"image":"` + strings.TrimPrefix(anID, "sha256:") + `"}`, "", ""},
		{`{"prepared":{"image":"` + anID + `","manifestPath":"/p/m.json"}}`, "", ""},

		{`[]`, "", "expected an object, got an array"},
		{`{"images":"x"}`, "images", "did you mean `image`?"},
		{`{"memoryBytes":1}`, "memoryBytes", "there is no such option"},
		{`{"id":"a b"}`, "id", `got "a b"`},
		{`{"image":""}`, "image", `expected an image's name`},
		{`{"image":"Node:22"}`, "image", "lowercase"},
		{`{"image":"node:22 "}`, "image", `got "node:22 "`},
		{`{"image":"sha256:abc"}`, "", ""}, // the tag abc of an image called sha256
		{`{"image":"-x"}`, "image", `got "-x"`},
		{`{"image":22}`, "image", "got 22"},
		{`{"codexBootstrap":"none"}`, "codexBootstrap", `expected "prepared", got "none"`},
		{`{"credentials":"api-key"}`, "credentials", `got "api-key"`},
		{`{"network":"host"}`, "network", `expected "bridge" or "none", got "host"`},
		{`{"network":true}`, "network", `got true`},
		{`{"env":{"OPENAI_API_KEY":"sk"}}`, "env.OPENAI_API_KEY", "billing"},
		{`{"env":{"HOME":"/root"}}`, "env.HOME", "expected no HOME: every session has one of its own"},
		{`{"env":{"TMPDIR":{"fromHost":"TMPDIR"}}}`, "env.TMPDIR", "one of its own"},
		{`{"env":{"CODEX_HOME":"/x"}}`, "env.CODEX_HOME", "one of its own"},
		{`{"env":{"MY_HOME":{"fromHost":"HOME"}}}`, "", ""},
		{`{"resources":[]}`, "resources", "expected an object, got an array"},
		{`{"resources":{"cpu":1}}`, "resources.cpu", "did you mean `cpus`?"},
		{`{"resources":{"cpus":-1}}`, "resources.cpus", "expected cores > 0 with at most 3 decimals, got -1"},
		{`{"resources":{"cpus":0}}`, "resources.cpus", "got 0"},
		{`{"resources":{"cpus":1.2345}}`, "resources.cpus", "got 1.2345"},
		{`{"resources":{"cpus":0.30000000000000004}}`, "resources.cpus", "got 0.30000000000000004"},
		{`{"resources":{"cpus":1e-7}}`, "resources.cpus", "got 1e-7"},
		{`{"resources":{"cpus":1e21}}`, "resources.cpus", "got 1e21"},
		{`{"resources":{"cpus":"2"}}`, "resources.cpus", `got "2"`},
		{`{"resources":{"memoryBytes":6291455}}`, "resources.memoryBytes", "at least 6291456 (6 MiB), got 6291455"},
		{`{"resources":{"memoryBytes":6291456.5}}`, "resources.memoryBytes", "got 6291456.5"},
		{`{"resources":{"memoryBytes":"4g"}}`, "resources.memoryBytes", `got "4g"`},
		{`{"resources":{"memoryBytes":9007199254740992}}`, "resources.memoryBytes", `got 9007199254740992`},
		{`{"resources":{"swapBytes":0}}`, "resources.swapBytes", "only together with resources.memoryBytes"},
		{`{"resources":{"memoryBytes":6291456,"swapBytes":-1}}`, "resources.swapBytes", "got -1"},
		{`{"resources":{"pids":0}}`, "resources.pids", "at least 1, got 0"},
		{`{"resources":{"pids":1.5}}`, "resources.pids", "got 1.5"},
		{`{"imageCacheDirectory":""}`, "imageCacheDirectory", `got ""`},
		{`{"imageCacheDirectory":"~other/cache"}`, "imageCacheDirectory", `got "~other/cache"`},
		{`{"imageCacheDirectory":"a\u0000b"}`, "imageCacheDirectory", `expected a directory`},
		{`{"prepared":{"image":"node:22"}}`, "prepared", "there is no such option"},
		{`{"prepared":true}`, "prepared", "there is no such option"},
		{`{"prepared":{"image":"` + anID + `"},"image":"node:22"}`, "prepared", "there is no such option"},
	} {
		def, err := validate(json.RawMessage(c.given))
		if c.message == "" {
			if err != nil {
				t.Errorf("%s: %v", c.given, err)
				continue
			}
			again, err := validate(def.Options)
			if err != nil || again.Fingerprint != def.Fingerprint || string(again.Options) != string(def.Options) || def.Kind != Kind {
				t.Errorf("%s: the normalised form changed: %s %v", c.given, again.Options, err)
			}
			continue
		}
		f := failure.As(err)
		if f == nil || len(f.Paths) != 1 || f.Paths[0] != c.path || !strings.Contains(f.Message, c.message) {
			t.Errorf("%s: %v at %v", c.given, err, f)
		}
	}
}

func TestFingerprint(t *testing.T) {
	of := func(s string) string {
		t.Helper()
		def, err := validate(json.RawMessage(s))
		if err != nil {
			t.Fatal(err)
		}
		return def.Fingerprint
	}
	other := "sha256:" + strings.Repeat("0b", 32)
	for _, same := range [][2]string{
		{`{}`, `{"network":"bridge","resources":{},"id":"docker"}`},
		{`{}`, `{"imageCacheDirectory":"cache"}`},
		{`{"prepared":{"image":"` + anID + `","manifestPath":"/a"}}`, `{"prepared":{"image":"` + other + `","manifestPath":"/b"},"codexBootstrap":"prepared"}`},
		{`{"env":{"A":"1","B":"2"}}`, `{"env":{"B":"2","A":"1"}}`},
	} {
		if of(same[0]) != of(same[1]) {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}
	seen := map[string]string{}
	for _, s := range []string{
		`{}`, `{"id":"other"}`, `{"image":"` + anID + `"}`, `{"image":"` + other + `"}`, `{"prepared":{"image":"` + anID + `"}}`, `{"image":"node:22"}`,
		`{"codexBootstrap":"prepared"}`, `{"network":"none"}`, `{"env":{"A":"1"}}`, `{"env":{"A":"2"}}`, `{"credentials":"codex-subscription"}`,
		`{"resources":{"cpus":1}}`, `{"resources":{"memoryBytes":8388608}}`, `{"resources":{"memoryBytes":8388608,"swapBytes":0}}`, `{"resources":{"pids":9}}`,
	} {
		if first, ok := seen[of(s)]; ok {
			t.Errorf("%s and %s have one fingerprint", first, s)
		}
		seen[of(s)] = s
	}
}

func TestCredentials(t *testing.T) {
	def, err := validate(json.RawMessage(`{"credentials":["codex-subscription","claude-subscription"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := def.Credentials(); !slices.Equal(got, []string{"claude-subscription", "codex-subscription"}) {
		t.Errorf("%q", got)
	}
	if got := (targets.Definition{Options: json.RawMessage(`"x"`)}).Credentials(); got != nil {
		t.Errorf("%q", got)
	}
}

func TestWhatAContainerCanDo(t *testing.T) {
	i := New(Config{}).Info()
	if !i.ReadOnly || !i.Skills || i.Direct || !strings.Contains(i.SandboxReason, `access: "read-only"`) || len(i.Limits) != 4 {
		t.Errorf("%+v", i)
	}
}

// Images that were prepared by earlier versions have programs there.
func TestWhereImagesHavePrograms(t *testing.T) {
	if p := Images().Prefix("codex"); p != "/opt/laufwerk/.harness-bootstrap/codex" {
		t.Errorf("prepared images have Codex elsewhere than in %s", p)
	}
}
