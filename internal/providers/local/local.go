// Package local runs commands and agents on this host, with this user's permissions: it isolates nothing, and says so. A
// session is a private directory in the run's folder and the processes of its supervisors.
package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/environment"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Kind is the provider's name.
const Kind = "local"

// Provider is the host itself.
type Provider struct {
	executable string
	host       map[string]string
	now        func() time.Time
	programs   agent.Programs
	home       string // $LAUFWERK_HOME
}

// New makes the provider. The executable is this binary, which is also the supervisor (see system.Executable); host is the
// worker's environment.
func New(executable string, host map[string]string, now func() time.Time) *Provider {
	return &Provider{executable: executable, host: maps.Clone(host), now: now}
}

var _ providers.Provider = (*Provider)(nil)

// Info says what this target can enforce: nothing.
func (*Provider) Info() providers.Info {
	return providers.Info{
		Kind:           Kind,
		Isolation:      "none: commands and agents run on this host with your permissions",
		Direct:         true,
		ReadOnlyReason: "on this host nothing prevents an agent from writing: it has your permissions",
		SkillsReason:   "skills would have to be written into your own agent configuration, which every other program of yours reads too",
	}
}

// Endpoint names this machine and its platform.
func (*Provider) Endpoint(context.Context, targets.Definition) (string, error) {
	platform := runtime.GOOS + "/" + runtime.GOARCH
	for _, f := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		if b, err := files.Read(f); err == nil {
			if id := strings.TrimSpace(string(b)); id != "" {
				return platform + " machine " + id, nil
			}
		}
	}
	// Containers and minimal systems have no machine id. The name is weaker: machines of one name cannot be told apart.
	if b, err := files.Read("/proc/sys/kernel/hostname"); err == nil {
		return platform + " host " + strings.TrimSpace(string(b)), nil
	}
	return platform + " host unknown", nil
}

// Ready names what is missing on this host.
func (p *Provider) Ready(_ context.Context, def targets.Definition, need providers.Need) []failure.Condition {
	var out []failure.Condition
	say := func(id, hint, format string, args ...any) {
		out = append(out, failure.Condition{ID: "local." + id, Message: fmt.Sprintf(format, args...), Hint: hint})
	}
	if err := process.Supported(); err != nil {
		say("platform", "", "this is %s: %v; use a target in a container", runtime.GOOS, err)
		return out
	}
	if _, err := process.Find("bash", p.host["PATH"], "/"); err != nil {
		say("bash", pathHint("bash"), "bash is not in PATH (%s)", p.host["PATH"])
	}
	var c config
	if err := json.Unmarshal(def.Options, &c); len(def.Options) > 0 && err == nil {
		for _, name := range c.Env.Missing(p.host) {
			say("env", "export "+name+"=…", "the variable %s, which the target %q takes from the worker's environment, is not set", name, def.ID)
		}
	}
	if why, hint := p.missingProgram(need.Executable, c); why != "" {
		say("program", hint, "%s", why)
	}
	return append(out, p.readyFor(need.Program, c)...)
}

// pathHint is what to type for a program that is not found.
func pathHint(program string) string {
	return "export PATH=/directory/of/" + failure.Quote(program) + ":\"$PATH\"   # once it is installed"
}

// missingProgram says why a program cannot be run, and what to type. A relative path leads into the workspace, where it may appear until it
// is needed.
func (p *Provider) missingProgram(executable string, c config) (why, hint string) {
	isPath := strings.Contains(executable, "/")
	if executable == "" || isPath && !filepath.IsAbs(executable) {
		return "", ""
	}
	search := p.host["PATH"]
	if own, ok := c.Env["PATH"]; ok {
		if search = own.Literal; own.FromHost != "" {
			search = p.host[own.FromHost]
		}
	}
	switch _, err := process.Find(executable, search, "/"); {
	case err == nil:
		return "", ""
	case errors.Is(err, fs.ErrNotExist) && !isPath:
		return fmt.Sprintf("the agent program %s is not in PATH (%s)", executable, search), pathHint(executable)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Sprintf("the agent program %s does not exist", executable), ""
	case errors.Is(err, fs.ErrPermission) && isPath:
		return fmt.Sprintf("the agent program %s may not be run: %v", executable, err), "chmod a+x " + failure.Quote(executable)
	default:
		return fmt.Sprintf("the agent program %s may not be run: %v", executable, err), pathHint(executable)
	}
}

// spec is what an intent says of a session. It holds no values of variables: these come with the definition.
type spec struct {
	Dir       string `json:"dir"`
	Workspace string `json:"workspace"`
	Mark      string `json:"mark"`
}

// Name is that of a claim's directory.
func (*Provider) Name(claim string) string { return "laufwerk-" + claim }

// Owner is the worker: sessions run as it.
func (*Provider) Owner(context.Context, targets.Definition) (uid, gid int, ok bool, err error) {
	return 0, 0, false, nil
}

// Plan describes a session's directory.
func (p *Provider) Plan(ctx context.Context, def targets.Definition, need providers.Need, s providers.SessionSpec) (providers.Plan, []failure.Condition, error) {
	if missing := p.Ready(ctx, def, need); len(missing) > 0 {
		return providers.Plan{}, missing, nil
	}
	plan, err := p.plan(s)
	return plan, nil, err
}

func (p *Provider) plan(s providers.SessionSpec) (providers.Plan, error) {
	if s.ReadOnly {
		return providers.Plan{}, failure.New(failure.Unsupported, "read-only access is refused on %s targets: %s", Kind, p.Info().ReadOnlyReason)
	}
	raw, err := json.Marshal(spec{Dir: s.Dir, Workspace: s.Workspace, Mark: s.Mark})
	return providers.Plan{Spec: raw}, err
}

// Enter opens a session that is there. SessionLost where its directory is gone, is not its own, or belongs to another machine.
func (p *Provider) Enter(ctx context.Context, in resource.Intent, def targets.Definition) (providers.Sandbox, error) {
	o := p.Observe(ctx, in)
	if o.Presence != resource.Present {
		why := o.Presence.String()
		if o.Err != nil {
			why = o.Err.Error()
		}
		return nil, failure.New(failure.SessionLost, "the session cannot be used any more: its directory is %s; after it is closed, another session can use the workspace", why)
	}
	s, _, err := readSpec(in)
	if err != nil {
		return nil, err
	}
	c, err := targets.Decode[config](def)
	if err != nil {
		return nil, err
	}
	own, err := c.Env.Resolve(p.host)
	if err != nil {
		return nil, err
	}
	return &sandbox{
		spec: s, launcher: p.launcher(), provider: p, config: c, own: own,
		env: slices.Concat(allowedVariables(p.host), own, []string{supervise.MarkVariable + "=" + s.Mark}),
	}, nil
}

func (p *Provider) launcher() supervise.LocalLauncher {
	return supervise.LocalLauncher{Executable: p.executable, Now: p.now, Env: crash.Environment(p.host)}
}

type sandbox struct {
	spec     spec
	launcher supervise.LocalLauncher
	env      []string
	provider *Provider
	config   config
	own      []string // variables of the target, resolved
}

func (s *sandbox) Launcher() supervise.Launcher { return s.launcher }
func (s *sandbox) Workdir() string              { return s.spec.Workspace }
func (s *sandbox) Home() string                 { return filepath.Join(s.spec.Dir, sessiondir.Home) }
func (s *sandbox) BaseEnv() []string            { return slices.Clone(s.env) }

func (s *sandbox) Fence(ctx context.Context) supervise.FenceResult {
	return fenceSession(ctx, s.launcher, s.spec.Dir)
}

// config is the normalised form of createLocalExecution's options.
type config struct {
	Credentials []string                `json:"credentials,omitempty"` // sorted, each once
	Env         environment.Environment `json:"env,omitempty"`
	ID          string                  `json:"id"`
}

// Validate holds the rules of createLocalExecution. Its own normalised form is valid and stays as it is.
func (p *Provider) Validate(given json.RawMessage) (targets.Definition, error) {
	fields, err := options.Fields("", given, "id", "credentials", "env")
	if err != nil {
		return targets.Definition{}, err
	}
	var c config
	if c.ID, err = targets.ID(fields["id"], Kind); err != nil {
		return targets.Definition{}, err
	}
	if c.Credentials, err = targets.Credentials(fields["credentials"], p.programs.CredentialKinds()); err != nil {
		return targets.Definition{}, err
	}
	if c.Env, err = environment.Parse("env", fields["env"], p.programs.Refused()); err != nil {
		return targets.Definition{}, err
	}
	return targets.NewDefinition(Kind, c.ID, c, c)
}
