// Package checks is what was looked at and what was found: the words that doctor and the providers share.
package checks

import (
	"fmt"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// Status of a check.
type Status string

// Skip says that something could not, or need not, be looked at: it is not Pass.
const (
	Pass Status = "pass"
	Warn Status = "warn"
	Fail Status = "fail"
	Skip Status = "skip"
)

// Check is one thing that was looked at.
type Check struct {
	ID       string   `json:"id"`
	Status   Status   `json:"status"`
	Message  string   `json:"message"`
	Evidence []string `json:"evidence,omitempty"`
	Hint     string   `json:"hint,omitempty"` // the command to type

	DeprecatedFix string `json:"fix,omitempty"` // Hint, for one release; doctor's document sets it
}

// New makes a check.
func New(id string, s Status, format string, args ...any) Check {
	return Check{ID: id, Status: s, Message: fmt.Sprintf(format, args...)}
}

// WithEvidence adds what the check rests on.
func (c Check) WithEvidence(things ...string) Check {
	c.Evidence = append(c.Evidence, things...)
	return c
}

// WithHint sets the command to type.
func (c Check) WithHint(format string, args ...any) Check {
	c.Hint = fmt.Sprintf(format, args...)
	return c
}

// Failed is a check that found a failure, with the way out that it names.
func Failed(id string, err error) Check {
	c := Check{ID: id, Status: Fail, Message: err.Error()}
	if f := failure.As(err); f != nil {
		c.Hint = f.Hint
		for _, cond := range f.Conditions {
			c.Evidence = append(c.Evidence, cond.ID+": "+cond.Message)
		}
	}
	return c
}

// OfConditions are the failed checks of what a provider says is missing. The kind, with which a condition's id begins, is taken off.
func OfConditions(list []failure.Condition) []Check {
	var out []Check
	for _, c := range list {
		_, id, _ := strings.Cut(c.ID, ".")
		out = append(out, Check{ID: id, Status: Fail, Message: c.Message, Hint: c.Hint})
	}
	return out
}
