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

// doctorChecks are the checks of `laufwerk doctor` with a prefix, in its order, and its exit code.
func doctorChecks(b *e2e.DockerMachine, prefix string, env []string, args ...string) (list []e2e.DoctorCheck, code int) {
	b.T.Helper()
	code, out, errs := b.Run(env, append([]string{"doctor", "--json"}, args...)...)
	var doc struct{ Checks []e2e.DoctorCheck }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		b.T.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	for _, c := range doc.Checks {
		if strings.HasPrefix(c.ID, prefix) {
			list = append(list, c)
		}
	}
	return list, code
}

func statuses(list []e2e.DoctorCheck) string {
	var out []string
	for _, c := range list {
		out = append(out, c.ID[strings.LastIndex(c.ID, ".")+1:]+"="+c.Status)
	}
	return strings.Join(out, " ")
}

func writeTarget(b *e2e.DockerMachine, options string) {
	b.WriteFile(filepath.Join(b.Project, "laufwerk/execution.ts"),
		"import { createDockerExecution } from \"@laufwerk/execution/docker\";\nexport const execution = createDockerExecution("+options+");\n")
}

// Looking at a target asks its engine three questions, and nothing of it changes.
func TestDoctorOfContainers(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	writeTarget(b, `{ image: "`+engine.Busybox+`", network: "none", resources: { cpus: 1, memoryBytes: 64 * 1024 ** 2, swapBytes: 0, pids: 40 } }`)
	b.Proxy.Reset()
	got, code := doctorChecks(b, "target.", nil, "--execution", "docker")
	if s := statuses(got); code != 0 || s != "engine=pass supervisor=pass limits=pass user=pass image=pass codex=skip helpers=pass identity=pass" {
		t.Errorf("exit %d: %s\n%v", code, s, got)
	}
	if !strings.Contains(got[0].Message, "Docker ") || !strings.Contains(got[0].Message, b.Proxy.Endpoint+" (DOCKER_HOST)") || !strings.HasPrefix(got[0].Evidence[0], "docker engine ") {
		t.Errorf("%v", got[0])
	}
	if os.Getuid() == 0 && !strings.Contains(got[3].Message, "65534:65534") {
		t.Errorf("%v", got[3])
	}
	for op, n := range b.Proxy.Counts() {
		if want := map[engine.Operation]int{engine.Ping: 1, engine.Info: 1, engine.ImageInspect: 1}[op]; n != want {
			t.Errorf("%s was called %d times, want %d", op, n, want)
		}
	}
	if _, err := os.Stat(b.Home); err == nil {
		t.Error("doctor made a home")
	}
	identity := got[len(got)-1].Message
	if _, out, _ := b.Run(nil, "doctor", "--execution", "docker"); strings.Count(identity, ":") > 10 && strings.Contains(out, identity) || !strings.Contains(out, "no claim records an identity other than the docker engine ") {
		t.Errorf("people read the engine's identity whole: %s\n%s", identity, out)
	}

	// What wins is said.
	got, _ = doctorChecks(b, "target.docker.engine", []string{"DOCKER_HOST=unix:///nowhere", "LAUFWERK_DOCKER_HOST=" + b.Proxy.Endpoint})
	if !strings.Contains(got[0].Message, "(the setting docker.host)") {
		t.Errorf("%v", got)
	}
	dir := engine.Config(t, "here", map[string]string{"here": b.Proxy.Endpoint})
	if got, _ = doctorChecks(b, "target.docker.engine", []string{"DOCKER_HOST=", "DOCKER_CONFIG=" + dir}); !strings.Contains(got[0].Message, `(the context "here")`) {
		t.Errorf("%v", got)
	}

	// A program for logins that is not there matters to nothing that is on the engine.
	b.WriteFile(filepath.Join(dir, "config.json"), `{"credsStore":"nope","credHelpers":{"registry.example":"nor-this"}}`)
	got, code = doctorChecks(b, "target.docker.helpers", []string{"DOCKER_CONFIG=" + dir})
	if code != 0 || got[0].Status != "warn" || !strings.Contains(got[0].Message, "docker-credential-nope and docker-credential-nor-this") || !strings.Contains(got[0].Message, "images that are on the engine can be used") {
		t.Errorf("exit %d: %v", code, got)
	}

	// An image that is not there, and a login that is asked for.
	writeTarget(b, `{ image: "laufwerk-test/absent:1", credentials: "codex-subscription" }`)
	got, code = doctorChecks(b, "target.", nil, "--target", "docker")
	if s := statuses(got); code != 4 || s != "engine=pass supervisor=pass limits=pass user=pass image=fail program=skip login=fail helpers=pass identity=pass" || !strings.Contains(got[4].Fix, "docker pull") {
		t.Errorf("exit %d: %s\n%v", code, s, got)
	}
	writeTarget(b, `{ credentials: "codex-subscription", env: { TOKEN: { fromHost: "NO_SUCH_VARIABLE" } } }`)
	got, code = doctorChecks(b, "target.", nil)
	if s := statuses(got); code != 4 || !strings.Contains(s, "image=fail program=skip login=fail env=fail") || !strings.Contains(got[4].Message, "no image with Codex is prepared") || got[4].Fix != "laufwerk prepare docker" {
		t.Errorf("exit %d: %s\n%v", code, s, got)
	}
	writeTarget(b, `{ image: "`+engine.Base+`", credentials: "codex-subscription" }`)
	if got, _ = doctorChecks(b, "target.docker.codex.program", nil); got[0].Status != "warn" || !strings.Contains(got[0].Message, "contains no prepared Codex") {
		t.Errorf("%v", got)
	}
	writeTarget(b, `{ image: "`+engine.Base+`", credentials: "codex-subscription", network: "none" }`)
	if got, _ = doctorChecks(b, "target.docker.codex.program", nil); got[0].Status != "fail" {
		t.Errorf("%v", got)
	}
}

// An engine that is gone, hangs, or is none costs a bounded time, and is said once; nothing that depends on it passes.
func TestDoctorWithoutAnEngine(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	looks := func(says string) {
		t.Helper()
		got, code := doctorChecks(b, "target.", nil, "--execution", "docker")
		if s := statuses(got); code != 4 || s != "engine=fail supervisor=skip limits=skip user=skip image=skip codex=skip helpers=pass identity=skip" {
			t.Errorf("exit %d: %s\n%v", code, s, got)
		}
		if !strings.Contains(got[0].Message, says) || got[0].Fix == "" {
			t.Errorf("%v", got[0])
		}
	}
	b.Proxy.On(engine.Ping, 0, engine.Hang())
	looks("hangs")
	b.Proxy.Reset()
	b.Proxy.On(engine.Info, 0, engine.Fail(500))
	looks("the engine failed, says the test")
	b.Proxy.Reset()
	b.Proxy.Leave()
	looks("nothing listens at")
	b.Env = []string{"DOCKER_HOST=tcp://192.0.2.1:2375"}
	looks("may be on another host")
	b.Env = []string{"DOCKER_HOST=unix:///nowhere/docker.sock"}
	looks("no socket at")
}

// What claims record is compared with what is there.
func TestDoctorOfClaimsInContainers(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	l := newLedger(b)
	l.over("261129-over0001")
	c := l.must(l.allocate("261129-over0001", "one"))
	gone := func() e2e.DoctorCheck {
		t.Helper()
		got, _ := doctorChecks(b, "claims.present", nil, "--execution", "docker")
		return got[0]
	}
	if g := gone(); g.Status != "pass" {
		t.Errorf("%v", g)
	}
	b.Proxy.Pretend("another")
	got, _ := doctorChecks(b, "target.docker.identity", nil)
	if got[0].Status != "warn" || !strings.Contains(got[0].Fix, "--accept-identity '"+c.Intent.Endpoint+"=docker engine another at /var/lib/another'") {
		t.Errorf("%v", got)
	}
	if g := gone(); g.Status != "pass" { // what another engine lists is no proof
		t.Errorf("%v", g)
	}
	b.Proxy.Pretend("")
	b.Proxy.On(engine.Ping, 0, engine.Hang())
	if g := gone(); g.Status != "pass" { // within the time that a check has
		t.Errorf("%v", g)
	}
	b.Proxy.Reset()
	engine.Remove(t, b.Endpoint, "dev.laufwerk.claim="+c.ID)
	if g := gone(); g.Status != "fail" || !strings.Contains(strings.Join(g.Evidence, ""), c.ID) {
		t.Errorf("%v", g)
	}
	if rep := cleanUp(b, 0, "--all"); len(rep.Released) != 1 {
		t.Errorf("%+v", rep)
	}
	b.CheckClean()
}

// A probe runs in a container of whatever the image is, names what the image lacks, and leaves nothing.
func TestProbeOfContainers(t *testing.T) {
	t.Parallel()
	b := e2e.NewDockerMachine(t, engine.Endpoint(t))
	for _, c := range []struct{ options, status, lacks string }{
		{`{ image: "` + engine.Base + `" }`, "pass", ""},
		{`{ image: "` + engine.BaseNoGit + `" }`, "warn", "no git ("},
		{`{ image: "` + engine.BaseNoSetsid + `" }`, "warn", "no setsid ("},
		{`{ image: "` + engine.BaseNoPnpm + `" }`, "warn", "no pnpm ("},
		{`{ image: "` + engine.BaseNoNode + `", credentials: "codex-subscription" }`, "fail", "no node (Codex is installed with it"},
		{`{ image: "` + engine.OnlyShell + `" }`, "fail", "no bash (session.exec runs commands with it), no git"},
		{`{ image: "` + engine.NoShell + `", network: "none" }`, "fail", "no bash"},
	} {
		writeTarget(b, c.options)
		got, _ := doctorChecks(b, "target.docker.probe", nil, "--probe")
		if len(got) != 2 || got[0].Status != "pass" || !strings.Contains(got[0].Message, "with access to files and locks of this host") {
			t.Fatalf("%s: %v", c.options, got)
		}
		if got[1].ID != "target.docker.probe.tools" || got[1].Status != c.status || !strings.Contains(got[1].Message, c.lacks) {
			t.Errorf("%s: %v", c.options, got[1])
		}
	}
	if left := b.Containers(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	b.MustRun([]int{0}, "cleanup", "--all")
	b.CheckClean()
}
