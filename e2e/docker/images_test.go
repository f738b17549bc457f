package docker_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// prepareModule has the function of the specification, as it stands there, and the other one.
const prepareModule = `
import { createDockerExecution, loadPreparedCodexImage, prepareCodexImage } from "@laufwerk/execution";
import { prepareDockerCodex } from "@laufwerk/execution/docker";

export async function prepare(baseImage: string, manifestPath: string) {
  await prepareCodexImage({
    image: baseImage, manifestPath,
    resources: { memoryBytes: 4 * 1024 ** 3, cpus: 2 },
  });
  return createDockerExecution({
    image: await loadPreparedCodexImage(manifestPath),
    credentials: "codex-subscription",
  });
}

export const standard = (image?: string) => prepareDockerCodex({ image });
`

// A script prepares an image as the specification's example does, and the command finds it prepared; configs and workflows
// load it, and a run hears of the image that it began with.
func TestScriptsPrepareImages(t *testing.T) {
	t.Parallel()
	const base = "laufwerk-test/base:1"
	endpoint := engine.Endpoint(t)
	w := e2e.NewMachine(t)
	packages := engine.Packages(t, endpoint)
	ca := filepath.Join(w.Dir, "registry-ca.crt")
	w.WriteFile(ca, string(packages.Authority))
	env := []string{"DOCKER_HOST=" + endpoint, "npm_config_registry=" + packages.URL, "NODE_EXTRA_CA_CERTS=" + ca} // as a user's machine may say it
	asks := func(code int, args ...string) (out, errs string) {
		t.Helper()
		got, out, errs := w.Run(env, args...)
		if got != code {
			t.Fatalf("laufwerk %s: exit %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
		}
		return out, errs
	}
	parse := func(text string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	manifest := filepath.Join(w.Project, "laufwerk/codex.json")
	w.WriteFile(filepath.Join(w.Project, "laufwerk/prepare.ts"), prepareModule)

	var target struct {
		Kind    string
		Sandbox struct {
			Fingerprint string
			Options     struct {
				CodexBootstrap string
				Prepared       struct{ Image, ManifestPath string }
			}
		}
	}
	out, errs := asks(0, "script", "laufwerk/prepare.ts", "--call", "prepare", "--args", `["`+base+`","laufwerk/codex.json"]`)
	parse(out, &target)
	made := target.Sandbox.Options.Prepared
	if made.Image != "" {
		t.Cleanup(func() { engine.RemoveImage(t, endpoint, made.Image) })
	}
	if target.Kind != "docker" || !strings.HasPrefix(made.Image, "sha256:") || made.ManifestPath != manifest || target.Sandbox.Options.CodexBootstrap != "prepared" || !strings.Contains(errs, "installing Codex") {
		t.Fatalf("%s%s", out, errs)
	}

	// The same by the command and by the other function: nothing is made again.
	var prepared struct {
		Targets []struct {
			Target, Image string
			Reused        bool
		}
	}
	out, _ = asks(0, "prepare", "docker", "--image", base, "--json")
	if parse(out, &prepared); len(prepared.Targets) != 1 || !prepared.Targets[0].Reused || prepared.Targets[0].Image != made.Image {
		t.Errorf("the command made another image: %s", out)
	}
	for _, args := range []string{`["` + base + `"]`, `[]`} {
		var standard struct {
			Image  string
			Reused bool
		}
		out, _ = asks(0, "script", "laufwerk/prepare.ts", "--call", "standard", "--args", args)
		if parse(out, &standard); !standard.Reused || standard.Image != made.Image {
			t.Errorf("the function made another image: %s", out)
		}
	}

	// A target that loads it; what is stale is prepared anew by the command, though the config cannot be loaded meanwhile.
	w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), `import { createDockerExecution, loadPreparedCodexImage } from "@laufwerk/execution/docker";
export const execution = createDockerExecution({ image: await loadPreparedCodexImage("laufwerk/codex.json"), credentials: "codex-subscription" });
`)
	asks(0, "script", "laufwerk/laufwerk.config.ts")
	receipt, err := os.ReadFile(manifest)
	if err != nil {
		t.Fatal(err)
	}
	w.WriteFile(manifest, strings.Replace(string(receipt), `"version": "0.`, `"version": "9.`, 1))
	if _, errs := asks(4, "script", "laufwerk/laufwerk.config.ts"); !strings.Contains(errs, "the prepared image is stale: it has Codex 9.") || !strings.Contains(errs, "next: laufwerk prepare docker") {
		t.Errorf("a stale manifest: %s", errs)
	}
	out, _ = asks(0, "prepare", "docker", "--json")
	if parse(out, &prepared); len(prepared.Targets) != 1 || prepared.Targets[0].Target != "docker" || prepared.Targets[0].Image != made.Image {
		t.Errorf("it was not taken up: %s", out)
	}
	asks(0, "script", "laufwerk/laufwerk.config.ts")
	w.WriteFile(filepath.Join(w.Project, "laufwerk/base.ts"), `import { loadPreparedCodexImage } from "@laufwerk/execution/docker";
export default await loadPreparedCodexImage("laufwerk/codex.json", "sha256:another");
`)
	if _, errs := asks(4, "script", "laufwerk/base.ts"); !strings.Contains(errs, "from the base image sha256:") {
		t.Errorf("another base: %s", errs)
	}

	// Of two targets the second one's cannot be made: that of the first is prepared all the same, and said.
	config := filepath.Join(w.Project, "laufwerk/laufwerk.config.ts")
	one, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	w.WriteFile(config, `import { defineConfig } from "@laufwerk/sdk";
import { createDockerExecution, loadPreparedCodexImage } from "@laufwerk/execution/docker";
const target = (id: string, image: string) => createDockerExecution({ id, image, credentials: "codex-subscription" });
export default defineConfig({ projectId: "job", executions: [target("first", await loadPreparedCodexImage("laufwerk/codex.json")), target("second", await loadPreparedCodexImage("laufwerk/nosuch.json"))] });
`)
	out, _ = asks(4, "prepare", "docker", "--json")
	if parse(out, &prepared); len(prepared.Targets) != 1 || prepared.Targets[0].Target != "first" || prepared.Targets[0].Image != made.Image || !strings.Contains(out, `"code":"not_ready"`) {
		t.Errorf("what was prepared is not said: %s", out)
	}
	if out, errs := asks(4, "prepare", "docker"); out != made.Image+"\n" || !strings.Contains(errs, "target first: the image is prepared already") || !strings.Contains(errs, "nosuch.json") {
		t.Errorf("what was prepared is not said: %s%s", out, errs)
	}
	w.WriteFile(config, string(one))

	// A run goes on with what its module heard when it began, whatever the manifest says then.
	w.WriteFile(filepath.Join(w.Project, "laufwerk/execution.ts"), "import { createLocalExecution } from \"@laufwerk/execution/local\";\nexport const execution = createLocalExecution();\n")
	w.WriteWorkflow("heard", `import { defineWorkflow, Human } from "@laufwerk/sdk";
import { loadPreparedCodexImage } from "@laufwerk/execution/docker";

const image = await loadPreparedCodexImage("laufwerk/codex.json");

export const workflow = defineWorkflow<unknown, string>({
  name: "heard",
  *run() {
    yield* Human.confirm({ key: "go", title: "Go on?" });
    return image;
  },
});
`)
	asks(8, "run", "heard", "--no-input", "--input", "null")
	if err := os.Remove(manifest); err != nil {
		t.Fatal(err)
	}
	var done struct{ Output string }
	out, _ = asks(0, "answer", w.OnlyRun().ID, "go", "yes", "--json")
	if parse(out, &done); done.Output != made.Image {
		t.Errorf("the run went on with %s", out)
	}
	if left := engine.Containers(t, endpoint, "dev.laufwerk.owner="+w.StoreOwner()); len(left) > 0 {
		t.Errorf("containers are left: %v", left)
	}
}
