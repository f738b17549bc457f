package login

import (
	"time"

	"github.com/laufwerk/laufwerk/internal/checks"
)

// soon is when a login's end is worth a warning: it is renewed by using the program, not by laufwerk.
const soon = time.Hour

// Check says how long the login is valid.
func (c Codex) Check(id string, now time.Time) checks.Check {
	left := c.Left(now)
	out := checks.New(id, checks.Pass, "the login is valid for %s", left.Round(time.Minute)).WithEvidence(c.Path)
	if c.Plan != "" {
		out = out.WithEvidence("plan " + c.Plan)
	}
	if left < soon {
		out.Status = checks.Warn
		out.Message += " only, and only Codex itself renews it"
		out = out.WithFix("codex login")
	}
	return out
}
