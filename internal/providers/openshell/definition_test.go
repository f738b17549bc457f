package openshell

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// programs are agent programs as the build has them.
func programs() agent.Programs { return agent.Programs{codex.New(), command.New(nil)} }

func validate(given json.RawMessage) (targets.Definition, error) {
	return New(Config{Programs: programs()}).Validate(given)
}

// minimal is a definition that is right, with one policy and more options.
func minimal(more string) json.RawMessage {
	return json.RawMessage(`{"id":"secure-coding","gateway":"laufwerk-local","credentials":{"kind":"codex-subscription","provider":"laufwerk-codex"},` +
		`"policy":{"codex":{"endpoints":[{"host":"api.openai.com","port":443,"protocol":"rest","enforcement":"enforce","access":"read-write"}],"binaries":[{"path":"/usr/bin/x"}]}}` + more + `}`)
}

// with is minimal with one option in place of its own; "" leaves it out.
func with(option, value string) json.RawMessage {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(minimal(""), &fields); err != nil {
		panic(err)
	}
	if fields[option] = json.RawMessage(value); value == "" {
		delete(fields, option)
	}
	out, err := json.Marshal(fields)
	if err != nil {
		panic(err)
	}
	return out
}

func TestTargetsThatAreRight(t *testing.T) {
	for _, given := range []json.RawMessage{
		minimal(""),
		minimal(`,"resources":{"cpus":2,"memoryBytes":4294967296},"image":"registry.example/team/image:1","imageCacheDirectory":"~/images"`),
		minimal(`,"resources":{"cpus":0.125}`),
		minimal(`,"resources":{}`),
		with("policy", `{}`),
		with("id", ""),
		with("gateway", `"a b"`),
		with("policy", `{"p":{"endpoints":[{"host":"x.example.com","port":1,"credentialBinding":{"provider":"laufwerk-codex"}}],"binaries":[{"path":"/x"}]}}`),
	} {
		def, err := validate(given)
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		again, err := validate(def.Options)
		if err != nil || again.Fingerprint != def.Fingerprint || string(again.Options) != string(def.Options) || def.Kind != Kind {
			t.Errorf("%s: the normalised form changed: %s %v", given, again.Options, err)
		}
	}
}

func TestTargetsThatAreRefused(t *testing.T) {
	for _, c := range []struct {
		given         json.RawMessage
		path, message string
	}{
		{json.RawMessage(`[]`), "", "expected an object"},
		{json.RawMessage(``), "gateway", "expected the alias of a registered gateway"},
		{minimal(`,"gatewy":1`), "gatewy", "did you mean `gateway`?"},
		{minimal(`,"env":{"A":"1"}`), "env", "give them to `exec`"},
		{minimal(`,"network":"none"`), "network", "`policy` lists the permitted connections"},
		{with("id", `"a b"`), "id", `got "a b"`},
		{with("gateway", ""), "gateway", "expected the alias"},
		{with("gateway", `""`), "gateway", `got ""`},
		{with("gateway", `"../x"`), "gateway", `got "../x"`},
		{with("gateway", `".."`), "gateway", `got ".."`},
		{with("gateway", `"a\\b"`), "gateway", `got "a\\b"`},
		{with("gateway", `"a\u0000"`), "gateway", "one folder's name"},
		{with("gateway", `7`), "gateway", "got 7"},
		{with("credentials", ""), "credentials", "got nothing"},
		{with("credentials", `"codex-subscription"`), "credentials", "the gateway stores the login"},
		{with("credentials", `["codex-subscription"]`), "credentials", "the gateway stores the login"},
		{with("credentials", `{"provider":"x"}`), "credentials.kind", `expected "codex-subscription", got nothing`},
		{with("credentials", `{"kind":"claude-subscription","provider":"x"}`), "credentials.kind", "Claude Code does not run"},
		{with("credentials", `{"kind":"openai-api-key","provider":"x"}`), "credentials.kind", "API keys are refused"},
		{with("credentials", `{"kind":"x","provider":"x"}`), "credentials.kind", `got "x"`},
		{with("credentials", `{"kind":"codex-subscription"}`), "credentials.provider", "got nothing"},
		{with("credentials", `{"kind":"codex-subscription","provider":"a b"}`), "credentials.provider", `got "a b"`},
		{with("credentials", `{"kind":"codex-subscription","name":"a"}`), "credentials.name", "there is no such option"},
		{with("policy", ""), "policy", "networkPolicies"},
		{with("policy", `{"p":{"endpoints":[{"host":"x","port":1,"enforcement":"audit"}]}}`), "policy.p.endpoints[0].enforcement", "logs"},
		{with("policy", `{"p":{"endpoints":[{"host":"x","port":1,"credentialBinding":{"provider":"other"}}],"binaries":[{"path":"/x"}]}}`), "policy.p.endpoints[0].credentialBinding.provider", `expected "laufwerk-codex"`},
		{minimal(`,"resources":[]`), "resources", "expected an object"},
		{minimal(`,"resources":{"cpus":0.1234}`), "resources.cpus", "at most 3 decimals, got 0.1234"},
		{minimal(`,"resources":{"cpus":-1}`), "resources.cpus", "got -1"},
		{minimal(`,"resources":{"memoryBytes":1}`), "resources.memoryBytes", "6 MiB"},
		{minimal(`,"resources":{"pids":512}`), "resources.pids", "sandbox_pids_limit"},
		{minimal(`,"resources":{"memoryBytes":8388608,"swapBytes":0}`), "resources.swapBytes", "cannot limit swap"},
		{minimal(`,"resources":{"memory":1}`), "resources.memory", "did you mean `memoryBytes`?"},
		{minimal(`,"image":"Node:22"`), "image", "lowercase"},
		{minimal(`,"codexBootstrap":"prepared"`), "codexBootstrap", "is a prepared one"},
		{minimal(`,"imageCacheDirectory":"~x/y"`), "imageCacheDirectory", `got "~x/y"`},
	} {
		_, err := validate(c.given)
		f := failure.As(err)
		if f == nil || !slices.Equal(f.Paths, []string{c.path}) || !strings.Contains(f.Message, c.message) {
			t.Errorf("%s: %v at %v, want %q at %s", c.given, err, f, c.message, c.path)
		}
	}
}

func TestWhatDefinesATarget(t *testing.T) {
	of := func(given json.RawMessage) string {
		t.Helper()
		def, err := validate(given)
		if err != nil {
			t.Fatal(err)
		}
		return def.Fingerprint
	}
	for _, same := range [][2]json.RawMessage{
		{minimal(""), minimal(`,"imageCacheDirectory":"cache"`)},
		{minimal(""), minimal(`,"resources":{}`)},
		{minimal(""), with("policy", `{"codex":{"binaries":[{"path":"/usr/bin/x","harness":false}],"name":"","endpoints":[{"access":"read-write","enforcement":"enforce","protocol":"rest","port":443,"host":"api.openai.com","tls":""}]}}`)},
	} {
		if of(same[0]) != of(same[1]) {
			t.Errorf("%s and %s differ", same[0], same[1])
		}
	}
	seen := map[string]json.RawMessage{}
	for _, given := range []json.RawMessage{
		minimal(""), with("id", `"other"`), with("gateway", `"other"`), with("credentials", `{"kind":"codex-subscription","provider":"other"}`), with("policy", `{}`),
		minimal(`,"image":"node:22"`), minimal(`,"resources":{"cpus":1}`), minimal(`,"resources":{"memoryBytes":8388608}`),
		with("policy", `{"codex":{"endpoints":[{"host":"api.openai.com","port":443,"protocol":"rest","enforcement":"enforce","access":"read-only"}],"binaries":[{"path":"/usr/bin/x"}]}}`),
	} {
		if first, ok := seen[of(given)]; ok {
			t.Errorf("%s and %s have one fingerprint", first, given)
		}
		seen[of(given)] = given
	}
}

func TestLoginOfATarget(t *testing.T) {
	def, err := validate(minimal(""))
	if err != nil {
		t.Fatal(err)
	}
	if got := def.Credentials(); !slices.Equal(got, []string{"codex-subscription"}) {
		t.Errorf("%q", got)
	}
	if got := (targets.Definition{Options: json.RawMessage(`"x"`)}).Credentials(); got != nil {
		t.Errorf("%q", got)
	}
}

// A sandbox does not start where its policy names a path that its image lacks: what no container brings, preparation looks for
// or makes.
func TestPreparedImagesHaveWhatThePolicyNames(t *testing.T) {
	if p := Images().Prefix("codex"); p != "/sandbox/.harness-bootstrap/codex" {
		t.Errorf("images that are prepared have Codex elsewhere than in %s", p)
	}
	l := Images().Layout
	has := append(append([]string{l.Workdir}, l.Directories...), l.Paths...)
	files := policy.Sandbox(nil, true, 1, 1).GetFilesystem()
	for _, path := range append(files.GetReadOnly(), files.GetReadWrite()...) {
		if brought := path == "/proc" || strings.HasPrefix(path, "/dev/"); !brought && !slices.Contains(has, path) {
			t.Errorf("an image that lacks %s is not found out", path)
		}
	}
}
