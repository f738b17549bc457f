package docker

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/targets"
)

func TestLimitsThatAnEngineCannotEnforce(t *testing.T) {
	all := dockerengine.Facts{Memory: true, Swap: true, Pids: true, CPU: true}
	noSwap, nothing := all, dockerengine.Facts{}
	noSwap.Swap = false
	small, big := all, all
	small.CPUs, big.CPUs = 2, 4
	none := int64(0)
	four := config{Resources: targets.Resources{CPUs: 4}}
	wants := config{Resources: targets.Resources{CPUs: 1, MemoryBytes: 64 << 20, SwapBytes: &none, PIDs: 32}}
	for name, c := range map[string]struct {
		config config
		facts  dockerengine.Facts
		status checks.Status
		says   string
	}{
		"all":                    {wants, all, checks.Pass, "enforces limits of cpus"},
		"no swap":                {wants, noSwap, checks.Fail, "cannot enforce `resources.swapBytes` of"},
		"none of them":           {wants, nothing, checks.Fail, "`resources.cpus`, `resources.memoryBytes`, `resources.swapBytes` and `resources.pids`"},
		"more cores than it has": {four, small, checks.Fail, "`resources.cpus` is 4, and the engine has only 2"},
		"hardly any processes":   {config{Resources: targets.Resources{PIDs: 31}}, all, checks.Warn, "`resources.pids` is 31"},
		"all of its cores":       {four, big, checks.Pass, "enforces limits"},
		"swap is not set":        {config{}, noSwap, checks.Pass, "could not enforce `resources.swapBytes`"},
	} {
		if got := examineLimits(c.config, c.facts); got.Status != c.status || !strings.Contains(got.Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
		if err := owned.CheckLimits(c.facts, c.config.Resources); (err != nil) != (c.status == checks.Fail) {
			t.Errorf("%s: run says %v", name, err)
		}
	}
}

func TestWhoWorksIsSaid(t *testing.T) {
	for _, c := range []struct {
		uid   int
		facts dockerengine.Facts
		says  string
	}{
		{1000, dockerengine.Facts{}, "sessions run as 1000:1000, the user of this process"},
		{0, dockerengine.Facts{}, "sessions run as 65534:65534, since laufwerk runs as root"},
		{1000, dockerengine.Facts{Rootless: true}, "the engine runs without root"},
		{1000, dockerengine.Facts{UserNS: true}, "the engine maps users, and sessions use the user namespace of this host"},
	} {
		p := New(Config{UID: c.uid, GID: c.uid})
		if got := p.examineUser(c.facts); got.Status != checks.Pass || !strings.Contains(got.Message, c.says) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestToolsThatAnImageLacks(t *testing.T) {
	has := func(names ...string) guest.ProbeResult {
		p := guest.ProbeResult{Tools: map[string]guest.Tool{}}
		for _, n := range names {
			p.Tools[n] = guest.Tool{Path: "/bin/" + n}
		}
		return p
	}
	for _, c := range []struct {
		got      guest.ProbeResult
		installs bool
		status   checks.Status
		says     string
	}{
		{has("bash", "git", "node", "pnpm", "setsid"), true, checks.Pass, "the image has bash, git, node, pnpm and setsid"},
		{has("bash", "git", "node", "setsid"), false, checks.Warn, "no pnpm"},
		{has("bash", "git", "node", "setsid"), true, checks.Fail, "no pnpm"},
		{has("sh"), false, checks.Fail, "no bash (session.exec runs commands with it), no git"},
	} {
		if got := checkTools(c.got, programs().Installable(), func(agent.Program) bool { return c.installs }); got.Status != c.status || !strings.Contains(got.Message, c.says) || (got.Hint == "") != (c.status == checks.Pass) {
			t.Errorf("%+v: %+v", c, got)
		}
	}
}

func TestWhatIsSaidOfImageAndCodex(t *testing.T) {
	p := New(Config{Home: t.TempDir(), State: "/state", Now: time.Now, Programs: programs()})
	with := func(image, network string) config {
		return config{Image: image, Network: network, Credentials: []string{codex.Subscription}}
	}
	for name, c := range map[string]struct {
		config   config
		prepared bool
		err      error
		image    checks.Status
		program  checks.Status
		says     string
	}{
		"prepared":             {with("", bridge), true, nil, checks.Pass, checks.Pass, "is in the image"},
		"own, which has it":    {with("own:1", bridge), true, nil, checks.Pass, checks.Pass, "is in the image"},
		"no way to the model":  {with("", noNetwork), true, nil, checks.Pass, checks.Warn, "cannot reach a model server"},
		"own, with a network":  {with("own:1", bridge), false, nil, checks.Pass, checks.Warn, "every session installs Codex"},
		"own, without network": {with("own:1", noNetwork), false, nil, checks.Pass, checks.Fail, "without a network it cannot be installed"},
		"not there":            {with("", bridge), false, errors.New("stale"), checks.Fail, checks.Skip, "the image is missing"},
	} {
		i := selectedImage{prepared: c.prepared}
		if got := p.examineImage(targets.Definition{}, c.config, i, c.err); got.ID != "image" || got.Status != c.image {
			t.Errorf("%s: %+v", name, got)
		}
		got := p.examinePrograms(c.config, i, c.err)
		if len(got) != 2 || got[0].ID != "codex.program" || got[0].Status != c.program || !strings.Contains(got[0].Message, c.says) {
			t.Errorf("%s: %+v", name, got)
		}
		if got[1].ID != "codex.login" || got[1].Status != checks.Fail || got[1].Hint == "" {
			t.Errorf("%s: a login that is not there: %+v", name, got[1])
		}
	}
	p.c.Programs = append(p.c.Programs, second{codex.New()})
	asks := with("", bridge)
	asks.Credentials = []string{codex.Subscription, "second-subscription"}
	if got := p.examinePrograms(asks, selectedImage{prepared: true}, nil); got[0].Status != checks.Pass || got[2].ID != "second.program" || got[2].Status != checks.Warn || !strings.Contains(got[2].Message, "installs Second") {
		t.Errorf("a program that the image does not carry: %+v", got)
	}
	asks.Credentials = []string{"second-subscription"}
	if got := p.program(asks).Name(); got != "second" {
		t.Errorf("the image for an agent with the other login carries %s", got)
	}
	p.c.Programs = programs()
	if got := p.examinePrograms(config{}, selectedImage{}, nil); len(got) != 1 || got[0].Status != checks.Skip {
		t.Errorf("%+v", got)
	}
}

// second is another program that is installed.
type second struct{ *codex.Program }

func (second) Name() string  { return "second" }
func (second) Title() string { return "Second" }

func (s second) Credential() *agent.Credential {
	c := *s.Program.Credential()
	c.Kind = "second-subscription"
	return &c
}
