package providers

import (
	"context"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// Missing is one thing that keeps a target of a kind from being used, with the way out that err names.
func Missing(kind, id string, err error) failure.Condition {
	c := failure.Condition{ID: kind + "." + id, Message: err.Error()}
	if f := failure.As(err); f != nil {
		c.Hint = f.Hint
	}
	return c
}

// NotReady is the failure of an operation whose target lacks what Ready named: the hint is what to type for each, and that
// the run goes on after it.
func NotReady(def Definition, missing []failure.Condition) *failure.Error {
	e := failure.New(failure.NotReady, "the target %q is not ready: %s", def.ID, missing[0].Message)
	e.Conditions = missing
	var next []string
	for _, c := range missing {
		if c.Hint != "" && !strings.Contains("\n"+strings.Join(next, "\n")+"\n", "\n"+c.Hint+"\n") {
			next = append(next, c.Hint)
		}
	}
	return e.WithHint("%s", strings.Join(append(next, "laufwerk resume RUN"), "\n"))
}

// ReadyPlan is the plan of a session on a target that is ready now. Where it is not, that is a failure of kind NotReady.
func ReadyPlan(ctx context.Context, p Provider, def Definition, need Need, s SessionSpec) (Plan, error) {
	var plan Plan
	var missing []failure.Condition
	var err error
	if once, ok := p.(Planning); ok {
		plan, missing, err = once.ReadyPlan(ctx, def, need, s)
	} else if missing = p.Ready(ctx, def, need); len(missing) == 0 {
		plan, err = p.Plan(ctx, def, s)
	}
	if len(missing) > 0 {
		return Plan{}, NotReady(def, missing)
	}
	return plan, err
}
