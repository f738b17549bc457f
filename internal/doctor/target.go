package doctor

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/login"
	"github.com/laufwerk/laufwerk/internal/providers"
)

// codex is the program whose login targets give to agents.
const codex = "codex"

// soon is when a login's end is worth a warning: it is renewed by using the program, not by laufwerk.
const soon = time.Hour

func givesCodex(p providers.Provider, def providers.Definition) bool {
	raw, err := json.Marshal(def)
	return err == nil && slices.Contains(p.Credentials(raw), login.CodexSubscription)
}

func (d *doctor) loginOf(p providers.Provider, def providers.Definition) *Login {
	if !givesCodex(p, def) {
		return nil
	}
	l, err := d.Login()
	if err != nil {
		return nil
	}
	return &Login{Plan: l.Plan, Expires: l.Expires, TimeLeft: int64(l.Left(d.Now()) / time.Second)}
}

func (d *doctor) targetChecks(p providers.Provider, def providers.Definition) []check {
	at := "target." + def.ID
	out := []check{
		{at, func(ctx context.Context) []Check { return d.ready(ctx, p, def) }},
		{at + ".codex", func(ctx context.Context) []Check { return d.codex(ctx, p, def) }},
	}
	if d.Probe {
		out = append(out, check{at + ".probe", func(ctx context.Context) []Check { return d.probe(ctx, p, def) }})
	}
	return out
}

// ready asks the target what run asks it.
func (d *doctor) ready(ctx context.Context, p providers.Provider, def providers.Definition) []Check {
	missing := p.Ready(ctx, def, providers.Need{Workspace: true})
	if len(missing) > 0 {
		return conditions("target."+def.ID, missing)
	}
	endpoint, err := p.Endpoint(ctx, def)
	if err != nil {
		return failed(err)
	}
	return []Check{{Status: Pass, Message: "workspaces and commands can be run; isolation: " + p.Info().Isolation, Evidence: []string{endpoint}}}
}

func conditions(at string, list []failure.Condition) []Check {
	var out []Check
	for _, c := range list {
		_, name, _ := strings.Cut(c.ID, ".")
		message, fix, _ := strings.Cut(c.Message, "; type: ")
		out = append(out, Check{ID: at + "." + name, Status: Fail, Message: message, Fix: fix})
	}
	return out
}

// codex looks for the prepared program and the login, if the target gives agents one.
func (d *doctor) codex(ctx context.Context, p providers.Provider, def providers.Definition) []Check {
	at := "target." + def.ID
	if !givesCodex(p, def) {
		return one(Skip, "the target has no `credentials`, so no agent uses Codex")
	}
	out := conditions(at, p.Ready(ctx, def, providers.Need{Program: codex}))
	has := func(id string) bool { return slices.ContainsFunc(out, func(c Check) bool { return c.ID == id }) }
	if home, err := d.home(); err == nil && !has(at+".codex.program") {
		c := Check{ID: at + ".codex.program", Status: Skip, Message: "where Codex is cannot be told"}
		if r, err := d.Prepared(home, codex); err == nil {
			c = Check{ID: c.ID, Status: Pass, Message: "Codex " + r.Version + " is prepared", Evidence: []string{r.Path}}
		}
		out = append(out, c)
	}
	if !has(at + ".codex.login") {
		c := Check{ID: at + ".codex.login", Status: Skip, Message: "how long the login is valid cannot be told"}
		if l, err := d.Login(); err == nil {
			left := l.Left(d.Now())
			c = Check{ID: c.ID, Status: Pass, Message: fmt.Sprintf("the login is valid for %s", left.Round(time.Minute)), Evidence: []string{l.Path}}
			if l.Plan != "" {
				c.Evidence = append(c.Evidence, "plan "+l.Plan)
			}
			if left < soon {
				c.Status, c.Message, c.Fix = Warn, c.Message+" only, and only Codex itself renews it", "codex login"
			}
		}
		out = append(out, c)
	}
	return out
}
