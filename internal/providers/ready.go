package providers

import (
	"context"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// ReadyPlan is the plan of a session on a target that is ready now. Where it is not, that is a failure of kind NotReady.
func ReadyPlan(ctx context.Context, p Provider, def targets.Definition, need Need, s SessionSpec) (Plan, error) {
	var plan Plan
	var missing []failure.Condition
	var err error
	if once, ok := p.(Planning); ok {
		plan, missing, err = once.ReadyPlan(ctx, def, need, s)
	} else if missing = p.Ready(ctx, def, need); len(missing) == 0 {
		plan, err = p.Plan(ctx, def, s)
	}
	if len(missing) > 0 {
		return Plan{}, targets.NotReady(def, missing)
	}
	return plan, err
}
