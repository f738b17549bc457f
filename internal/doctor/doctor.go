// Package doctor looks whether everything that runs need is there: by the same resolvers as `run`, in parallel, each check
// bounded. It allocates and writes nothing, unless it is asked to probe.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/checks"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/runs"
	"github.com/laufwerk/laufwerk/internal/script"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Check is one thing that was looked at, Status what was found.
type (
	Check  = checks.Check
	Status = checks.Status
)

// What checks come to.
const (
	Pass = checks.Pass
	Warn = checks.Warn
	Fail = checks.Fail
	Skip = checks.Skip
)

// Target is what is known of a target beside its checks.
type Target struct {
	ID        string   `json:"id"`
	Kind      string   `json:"kind"`
	Isolation string   `json:"isolation"`
	Limits    []string `json:"limits"` // that it enforces
	ReadOnly  bool     `json:"readOnly"`
	Inference string   `json:"inference"` // "untested": nothing is asked of a model
	Login     *Login   `json:"login,omitempty"`
}

// Login is a login that can be used.
type Login struct {
	Plan     string    `json:"plan,omitempty"`
	Expires  time.Time `json:"expires"`
	TimeLeft int64     `json:"timeLeftSeconds"`
}

// Report is everything that was found.
type Report struct {
	Checks  []Check  `json:"checks"`
	Targets []Target `json:"targets"`
}

// Worst is Fail if any check failed, else Warn if any warned, else Pass.
func (r Report) Worst() Status {
	worst := Pass
	for _, c := range r.Checks {
		switch c.Status {
		case Fail:
			return Fail
		case Warn:
			worst = Warn
		}
	}
	return worst
}

// DefaultBound is how long one check may take, probeBound how long making, using and ending a sandbox.
const (
	DefaultBound = 10 * time.Second
	probeBound   = 2 * time.Minute
)

// Options say where to look. Functions that fail make their checks fail; none of them changes anything.
type Options struct {
	Settings func() (home string, err error)
	Open     func(ctx context.Context) (*runs.Service, error)
	Runner   func() (*script.Runner, error)
	Dir      string // the working directory
	Project  string // "" or a directory that must be a project
	Kinds    []string
	Provider func(kind string) (providers.Provider, bool)
	Programs agent.Programs
	User     func() agent.User // whose logins are read
	Now      func() time.Time
	Bound    time.Duration

	Execution string // only targets of this kind
	Target    string // only this target
	Scan      bool   // also list what carries a mark and has no claim here
	Probe     bool   // also run a command on each target, as a claim
}

// doctor is one examination. What several checks need is asked for once.
type doctor struct {
	Options
	home    func() (string, error)
	service func(ctx context.Context) (*runs.Service, error)
	list    func(ctx context.Context) ([]runs.Run, error)
	root    func() (string, error)
	project func(ctx context.Context) (*project.Project, error)
}

// Examine looks at everything. Its failures are mistakes in what was asked for: a target or a kind that is not there.
func Examine(ctx context.Context, o Options) (Report, error) {
	if o.Bound == 0 {
		o.Bound = DefaultBound
	}
	d := newDoctor(ctx, o)
	rep := Report{Targets: []Target{}}
	base := []check{
		{"settings", d.settings}, {"home", d.homeDir}, {"home.lock", d.homeLock}, {"home.space", d.homeSpace},
		{"store", d.store}, {"claims", d.claims}, {"orphans", d.orphans}, {"writebacks", d.writeBacks}, {"runs.waiting", d.waitingRuns},
		{"runs.interrupted", d.interruptedRuns}, {"git", d.git}, {"fence", d.fence},
		{"project", d.projectLoads}, {"project.workflows", d.workflows}, {"project.types", d.types},
	}
	if o.Scan {
		base = append(base, check{"scan", d.scan})
		for _, kind := range o.Kinds {
			base = append(base, check{"scan." + kind, func(ctx context.Context) []Check { return d.scanKind(ctx, kind) }})
		}
	}
	targets := make(chan []targets.Definition, 1)
	problem := make(chan error, 1)
	go func() {
		list, err := d.targets(ctx)
		problem <- err
		targets <- list
	}()
	rep.Checks = d.runChecks(ctx, base)
	if err := <-problem; err != nil {
		return rep, err
	}
	var each []check
	for _, def := range <-targets {
		p, ok := o.Provider(def.Kind)
		if !ok {
			rep.Checks = append(rep.Checks, Check{ID: "target." + def.ID, Status: Fail, Message: def.Kind + " is not part of this build"})
			continue
		}
		info := p.Info()
		rep.Targets = append(rep.Targets, Target{
			ID: def.ID, Kind: def.Kind, Isolation: info.Isolation, Limits: append([]string{}, info.Limits...), ReadOnly: info.ReadOnly,
			Inference: "untested", Login: d.loginOf(def),
		})
		each = append(each, d.targetChecks(p, def)...)
	}
	rep.Checks = append(rep.Checks, d.runChecks(ctx, each)...)
	return rep, nil
}

func newDoctor(ctx context.Context, o Options) *doctor {
	d := &doctor{Options: o, home: sync.OnceValues(o.Settings)}
	service := sync.OnceValues(func() (*runs.Service, error) {
		s, err := o.Open(ctx)
		if err == nil {
			s.Store.SetWait(o.Bound / 2)
		}
		return s, err
	})
	d.service = func(context.Context) (*runs.Service, error) { return service() }
	list := sync.OnceValues(func() ([]runs.Run, error) {
		s, err := service()
		if err != nil {
			return nil, err
		}
		return s.List(ctx, "")
	})
	d.list = func(context.Context) ([]runs.Run, error) { return list() }
	d.root = sync.OnceValues(func() (string, error) {
		home, err := d.home()
		if err != nil {
			home = "" // said elsewhere
		}
		return project.Find(o.Dir, o.Project, home)
	})
	loaded := sync.OnceValues(func() (*project.Project, error) {
		root, err := d.root()
		if err != nil {
			return nil, err
		}
		runner, err := o.Runner()
		if err != nil {
			return nil, err
		}
		return project.Load(ctx, runner, root)
	})
	d.project = func(context.Context) (*project.Project, error) { return loaded() }
	return d
}

// check is one examination with its place in the report.
type check struct {
	id  string
	run func(ctx context.Context) []Check
}

// runChecks makes checks side by side, each bounded, and keeps their order.
func (d *doctor) runChecks(ctx context.Context, list []check) []Check {
	found := make([][]Check, len(list))
	var wg sync.WaitGroup
	for i, c := range list {
		wg.Go(func() { found[i] = d.runBounded(ctx, c) })
	}
	wg.Wait()
	out := []Check{}
	for _, f := range found {
		out = append(out, f...)
	}
	return out
}

// runBounded gives a check up that does not answer. What it still does then ends with the process.
func (d *doctor) runBounded(ctx context.Context, c check) []Check {
	bound := d.Bound
	if strings.HasSuffix(c.id, probeSuffix) {
		bound = max(bound, probeBound)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	answer := make(chan []Check, 1)
	go func() { answer <- c.run(ctx) }()
	select {
	case out := <-answer:
		for i := range out {
			if out[i].ID == "" {
				out[i].ID = c.id
			}
		}
		return out
	case <-ctx.Done():
		return []Check{{ID: c.id, Status: Fail, Message: fmt.Sprintf("no answer within %s", bound)}}
	}
}

func oneCheck(s Status, format string, args ...any) []Check {
	return []Check{{Status: s, Message: fmt.Sprintf(format, args...)}}
}

func failedCheck(err error) []Check { return []Check{checks.Failed("", err)} }

const maxEvidence = 20

// listCheck is a check over things of which there should be none.
func listCheck(s Status, none, some, fix string, things []string) []Check {
	if len(things) == 0 {
		return oneCheck(Pass, "%s", none)
	}
	c := Check{Status: s, Message: fmt.Sprintf(some, len(things)), Hint: fix, Evidence: things}
	if len(things) > maxEvidence {
		c.Evidence = append(append([]string{}, things[:maxEvidence]...), fmt.Sprintf("and %d more", len(things)-maxEvidence))
	}
	return []Check{c}
}
