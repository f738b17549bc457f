package app_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// check is one of doctor's.
type check struct {
	ID, Status, Message, Fix string
	Evidence                 []string
}

func (c check) String() string {
	return fmt.Sprintf("%s %s: %s %q; %s", c.Status, c.ID, c.Message, c.Evidence, c.Fix)
}

// examined are the checks of `laufwerk doctor` with a prefix, in its order, and its exit code.
func (b *boxed) examined(prefix string, env []string, args ...string) (list []check, code int) {
	b.t.Helper()
	code, out, errs := b.laufwerk(env, append([]string{"doctor", "--json"}, args...)...)
	var doc struct{ Checks []check }
	if err := json.Unmarshal([]byte(out), &doc); err != nil {
		b.t.Fatalf("exit %d, %v: %s%s", code, err, out, errs)
	}
	for _, c := range doc.Checks {
		if strings.HasPrefix(c.ID, prefix) {
			list = append(list, c)
		}
	}
	return list, code
}

func statuses(list []check) string {
	var out []string
	for _, c := range list {
		out = append(out, c.ID[strings.LastIndex(c.ID, ".")+1:]+"="+c.Status)
	}
	return strings.Join(out, " ")
}

func (b *boxed) target(options string) {
	b.write(filepath.Join(b.project, "laufwerk/execution.ts"),
		"import { createDockerExecution } from \"@laufwerk/execution/docker\";\nexport const execution = createDockerExecution("+options+");\n")
}

// Looking at a target asks its engine three questions, and nothing of it changes.
func TestDoctorOfContainers(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	b.target(`{ image: "` + engine.Busybox + `", network: "none", resources: { cpus: 1, memoryBytes: 64 * 1024 ** 2, swapBytes: 0, pids: 40 } }`)
	b.proxy.Reset()
	got, code := b.examined("target.", nil, "--execution", "docker")
	if s := statuses(got); code != 0 || s != "engine=pass supervisor=pass limits=pass user=pass image=pass codex=skip helpers=pass identity=pass" {
		t.Errorf("exit %d: %s\n%v", code, s, got)
	}
	if !strings.Contains(got[0].Message, "Docker ") || !strings.Contains(got[0].Message, b.proxy.Endpoint+" (DOCKER_HOST)") || !strings.HasPrefix(got[0].Evidence[0], "docker engine ") {
		t.Errorf("%v", got[0])
	}
	if os.Getuid() == 0 && !strings.Contains(got[3].Message, "65534:65534") {
		t.Errorf("%v", got[3])
	}
	for op, n := range b.proxy.Counts() {
		if want := map[engine.Operation]int{engine.Ping: 1, engine.Info: 1, engine.ImageInspect: 1}[op]; n != want {
			t.Errorf("%s was called %d times, want %d", op, n, want)
		}
	}
	if _, err := os.Stat(b.home); err == nil {
		t.Error("doctor made a home")
	}
	identity := got[len(got)-1].Message
	if _, out, _ := b.laufwerk(nil, "doctor", "--execution", "docker"); strings.Count(identity, ":") > 10 && strings.Contains(out, identity) || !strings.Contains(out, "no claim names another one than the docker engine ") {
		t.Errorf("people read the engine's identity whole: %s\n%s", identity, out)
	}

	// What wins is said.
	got, _ = b.examined("target.docker.engine", []string{"DOCKER_HOST=unix:///nowhere", "LAUFWERK_DOCKER_HOST=" + b.proxy.Endpoint})
	if !strings.Contains(got[0].Message, "(the setting docker.host)") {
		t.Errorf("%v", got)
	}
	dir := engine.Config(t, "here", map[string]string{"here": b.proxy.Endpoint})
	if got, _ = b.examined("target.docker.engine", []string{"DOCKER_HOST=", "DOCKER_CONFIG=" + dir}); !strings.Contains(got[0].Message, `(the context "here")`) {
		t.Errorf("%v", got)
	}

	// A program for logins that is not there matters to nothing that is on the engine.
	b.write(filepath.Join(dir, "config.json"), `{"credsStore":"nope","credHelpers":{"registry.example":"nor-this"}}`)
	got, code = b.examined("target.docker.helpers", []string{"DOCKER_CONFIG=" + dir})
	if code != 0 || got[0].Status != "warn" || !strings.Contains(got[0].Message, "docker-credential-nope and docker-credential-nor-this") || !strings.Contains(got[0].Message, "images that are on the engine can be used") {
		t.Errorf("exit %d: %v", code, got)
	}

	// An image that is not there, and a login that is asked for.
	b.target(`{ image: "laufwerk-test/absent:1", credentials: "codex-subscription" }`)
	got, code = b.examined("target.", nil, "--target", "docker")
	if s := statuses(got); code != 4 || s != "engine=pass supervisor=pass limits=pass user=pass image=fail program=skip login=fail helpers=pass identity=pass" || !strings.Contains(got[4].Fix, "docker pull") {
		t.Errorf("exit %d: %s\n%v", code, s, got)
	}
	b.target(`{ credentials: "codex-subscription", env: { TOKEN: { fromHost: "NO_SUCH_VARIABLE" } } }`)
	got, code = b.examined("target.", nil)
	if s := statuses(got); code != 4 || !strings.Contains(s, "image=fail program=skip login=fail env=fail") || !strings.Contains(got[4].Message, "no image with Codex is prepared") || got[4].Fix != "laufwerk prepare docker" {
		t.Errorf("exit %d: %s\n%v", code, s, got)
	}
	b.target(`{ image: "` + engine.Base + `", credentials: "codex-subscription" }`)
	if got, _ = b.examined("target.docker.codex.program", nil); got[0].Status != "warn" || !strings.Contains(got[0].Message, "carries no prepared Codex") {
		t.Errorf("%v", got)
	}
	b.target(`{ image: "` + engine.Base + `", credentials: "codex-subscription", network: "none" }`)
	if got, _ = b.examined("target.docker.codex.program", nil); got[0].Status != "fail" {
		t.Errorf("%v", got)
	}
}

// An engine that is gone, hangs, or is none costs a bounded time, and is said once; nothing that depends on it passes.
func TestDoctorWithoutAnEngine(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	looks := func(says string) {
		t.Helper()
		got, code := b.examined("target.", nil, "--execution", "docker")
		if s := statuses(got); code != 4 || s != "engine=fail supervisor=skip limits=skip user=skip image=skip codex=skip helpers=pass identity=skip" {
			t.Errorf("exit %d: %s\n%v", code, s, got)
		}
		if !strings.Contains(got[0].Message, says) || got[0].Fix == "" {
			t.Errorf("%v", got[0])
		}
	}
	b.proxy.On(engine.Ping, 0, engine.Hang())
	looks("hangs")
	b.proxy.Reset()
	b.proxy.On(engine.Info, 0, engine.Fail(500))
	looks("the engine failed, says the test")
	b.proxy.Reset()
	b.proxy.Leave()
	looks("nothing listens at")
	b.env = []string{"DOCKER_HOST=tcp://192.0.2.1:2375"}
	looks("may be on another host")
	b.env = []string{"DOCKER_HOST=unix:///nowhere/docker.sock"}
	looks("no socket at")
}

// What claims record is compared with what is there.
func TestDoctorOfClaimsInContainers(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	l := b.ledger()
	l.over("261129-over0001")
	c := l.must(l.allocate("261129-over0001", "one"))
	gone := func() check {
		t.Helper()
		got, _ := b.examined("claims.present", nil, "--execution", "docker")
		return got[0]
	}
	if g := gone(); g.Status != "pass" {
		t.Errorf("%v", g)
	}
	b.proxy.Pretend("another")
	got, _ := b.examined("target.docker.identity", nil)
	if got[0].Status != "warn" || !strings.Contains(got[0].Fix, "--accept-identity '"+c.Intent.Endpoint+"=docker engine another at /var/lib/another'") {
		t.Errorf("%v", got)
	}
	if g := gone(); g.Status != "pass" { // what another engine lists is no proof
		t.Errorf("%v", g)
	}
	b.proxy.Pretend("")
	b.proxy.On(engine.Ping, 0, engine.Hang())
	if g := gone(); g.Status != "pass" { // within the time that a check has
		t.Errorf("%v", g)
	}
	b.proxy.Reset()
	engine.Remove(t, b.endpoint, "dev.laufwerk.claim="+c.ID)
	if g := gone(); g.Status != "fail" || !strings.Contains(strings.Join(g.Evidence, ""), c.ID) {
		t.Errorf("%v", g)
	}
	if rep := b.cleanup(0, "--all"); len(rep.Released) != 1 {
		t.Errorf("%+v", rep)
	}
	b.isClean()
}

// A probe runs in a container of whatever the image is, names what the image lacks, and leaves nothing.
func TestProbeOfContainers(t *testing.T) {
	t.Parallel()
	b := newBoxed(t, engine.Endpoint(t))
	for _, c := range []struct{ options, status, lacks string }{
		{`{ image: "` + engine.Base + `" }`, "pass", ""},
		{`{ image: "` + engine.BaseNoGit + `" }`, "warn", "no git ("},
		{`{ image: "` + engine.BaseNoSetsid + `" }`, "warn", "no setsid ("},
		{`{ image: "` + engine.BaseNoPnpm + `" }`, "warn", "no pnpm ("},
		{`{ image: "` + engine.BaseNoNode + `", credentials: "codex-subscription" }`, "fail", "no node (Codex is installed with it"},
		{`{ image: "` + engine.OnlyShell + `" }`, "fail", "no bash (session.exec runs commands with it), no git"},
		{`{ image: "` + engine.NoShell + `", network: "none" }`, "fail", "no bash"},
	} {
		b.target(c.options)
		got, _ := b.examined("target.docker.probe", nil, "--probe")
		if len(got) != 2 || got[0].Status != "pass" || !strings.Contains(got[0].Message, "saw the files of this host") {
			t.Fatalf("%s: %v", c.options, got)
		}
		if got[1].ID != "target.docker.probe.tools" || got[1].Status != c.status || !strings.Contains(got[1].Message, c.lacks) {
			t.Errorf("%s: %v", c.options, got[1])
		}
	}
	if left := b.ours(); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	b.must([]int{0}, "cleanup", "--all")
	b.isClean()
}
