package cli

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/provision"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/targets"
)

type provisionOpenShellOptions struct {
	*Deps

	Target  string
	FromEnv bool
	Rotate  bool
	DryRun  bool
}

// kindOpenShell is the kind of targets behind an OpenShell gateway.
const kindOpenShell = "openshell"

func newProvisionOpenShell(d *Deps) *cobra.Command {
	o := &provisionOpenShellOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "openshell",
		Short: "Store your Codex login in an OpenShell gateway, for the project's targets",
		Long: `Set up an OpenShell gateway with what the project's OpenShell targets need: the profile laufwerk-codex, which is the
gateway's own profile for Codex and allows the Codex program of prepared images too, and the gateway provider that a target
names, which holds your Codex login. Sandboxes only see placeholders: the gateway puts the login into requests to the endpoints
of the profile, and into no others.

The login is the one in CODEX_HOME or ~/.codex, which must be a ChatGPT login; with --from-env it is taken from the variables
CODEX_AUTH_ACCESS_TOKEN, CODEX_AUTH_REFRESH_TOKEN, CODEX_AUTH_ACCOUNT_ID and, where there is one, CODEX_AUTH_ID_TOKEN. No value
is written to an argument, a log or the store.

A profile or provider that exists already is checked, whoever made it, and not overwritten. With --rotate the provider gets the
current values.`,
		Example: "$ laufwerk provision openshell --target secure-coding --dry-run\n$ laufwerk provision openshell --target secure-coding\n\n# After the login was renewed\n$ laufwerk provision openshell --target secure-coding --rotate",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("target") && o.Target == "" {
				return usageError(cmd, "--target is empty")
			}
			return runProvisionOpenShell(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Target, "target", "", "set up the gateway of the target `ID` alone")
	f.BoolVar(&o.FromEnv, "from-env", false, "take the login from the variables CODEX_AUTH_*")
	f.BoolVar(&o.Rotate, "rotate", false, "replace the values of a provider that exists")
	f.BoolVar(&o.DryRun, "dry-run", false, "only show what would be done")
	return cmd
}

func runProvisionOpenShell(ctx context.Context, o *provisionOpenShellOptions) error {
	d := o.Deps
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	p, err := d.loadProject(ctx)
	if err != nil {
		return err
	}
	list, err := p.TargetsOf(kindOpenShell, o.Target, "laufwerk provision openshell")
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return failure.New(failure.NotFound, "the project has no target of kind %s", kindOpenShell).WithHint("laufwerk init --execution openshell")
	}
	wanted, err := o.readLogins(list) // before anything is asked of a gateway
	if err != nil {
		return err
	}
	done, err := o.provisionTargets(ctx, wanted)
	doc := provisionOpenShellDocument{done}
	if err != nil {
		return failWithDocument(err, doc)
	}
	return d.UI.Document(doc)
}

type provisionOpenShellDocument struct {
	Targets []provisionedTarget `json:"targets"`
}

type provisionedTarget struct {
	Target string `json:"target"`
	provision.OpenShellResult
}

type wantedLogin struct {
	provision.Wants
	target  string
	program agent.Program
	login   agent.GatewayLogin
}

// readLogins reads the logins that targets need. Targets with the same needs are one.
func (o *provisionOpenShellOptions) readLogins(list []targets.Definition) (out []wantedLogin, err error) {
	logins := map[string]agent.GatewayLogin{}
	for _, t := range list {
		w := wantedLogin{target: t.ID}
		if w.Wants, err = provision.WantsOf(t.Options); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(out, func(other wantedLogin) bool { return other.Wants == w.Wants }) {
			continue
		}
		var ok bool
		if w.program, ok = o.Programs.ByCredential(w.Credential); !ok {
			return nil, failure.New(failure.Unsupported, "no agent program of this build runs with the credentials %q", w.Credential)
		}
		if w.login, ok = logins[w.Credential]; !ok {
			if w.login, err = o.readLogin(w.program.Credential()); err != nil {
				return nil, err
			}
			logins[w.Credential] = w.login
		}
		out = append(out, w)
	}
	return out, nil
}

func (o *provisionOpenShellOptions) readLogin(c *agent.Credential) (agent.GatewayLogin, error) {
	env := o.Env
	if o.FromEnv {
		return c.FromVars(env.Vars)
	}
	return c.Profile.Read(agent.User{Vars: env.Vars, Home: env.Home(), Now: env.Now()})
}

// provisionTargets sets up the gateway for one target after the other, up to the first failure.
func (o *provisionOpenShellOptions) provisionTargets(ctx context.Context, list []wantedLogin) ([]provisionedTarget, error) {
	out := []provisionedTarget{}
	for _, w := range list {
		g, err := o.Gateway(ctx, w.Gateway)
		if err != nil {
			return out, failure.Wrap(err, failure.NotReady, "target %s", w.target)
		}
		r, err := provision.OpenShell(ctx, provision.OpenShellOptions{
			Gateway: g, Program: w.program, Provider: w.Provider, Login: w.login, Rotate: o.Rotate, Dry: o.DryRun, Now: o.Env.Now,
		})
		if r.Profile.Done != "" {
			o.printTarget(w.target, r)
			out = append(out, provisionedTarget{w.target, r})
		}
		if err != nil {
			return out, failure.Wrap(err, failure.Failed, "target %s", w.target)
		}
	}
	return out, nil
}

func (o *provisionOpenShellOptions) printTarget(target string, r provision.OpenShellResult) {
	ui := o.UI
	verb := func(done string) string {
		switch {
		case done == provision.Kept:
			return "exists already"
		case r.DryRun:
			return "would be " + done
		}
		return "was " + done
	}
	ui.Printf("target %s: the profile %s of the gateway %s %s\n", target, r.Profile.ID, redact.Line(r.Gateway), verb(r.Profile.Done))
	if r.Profile.Diff != "" {
		ui.Printf("%s", r.Profile.Diff)
	}
	if r.Provider.Done == "" {
		return // why is the failure's to say
	}
	from := ""
	if r.Provider.Origin != "" {
		from = ", from " + redact.Line(r.Provider.Origin)
	}
	until := ""
	if at := r.Provider.ExpiresAt; !at.IsZero() {
		until = ", valid until " + at.Local().Format(time.DateTime)
	}
	ui.Printf("target %s: the provider %s %s%s%s\n", target, redact.Line(r.Provider.Name), verb(r.Provider.Done), from, until)
	if r.Provider.Done == provision.Kept {
		ui.Talkf("its values were not changed; laufwerk provision openshell --rotate replaces them\n")
	}
}
