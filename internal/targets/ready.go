package targets

import (
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
