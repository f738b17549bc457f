package codex

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// cause is a reason outside of the turn for which Codex gave up. The turn can go on once it was mended.
type cause struct {
	says lazyregexp.Regexp // in Codex's message
	what string
	hint string
}

// later is the hint where only time helps.
const later = "laufwerk resume RUN   # later: the turn goes on where it was"

// causes are recognised by words, since Codex 0.171 says nothing else in its events. What is not recognised is the agent's
// own failure.
var causes = [...]cause{
	{lazyregexp.Regexp{Pattern: `(?i)usage limit|quota exceeded|insufficient_quota|out of credits|spend cap`}, "the subscription's limit is reached", later},
	{lazyregexp.Regexp{Pattern: `(?i)\b401\b|refresh.{0,20} token|could not be refreshed|log ?out and (sign|log) in|sign in again|not logged in|authentication (is )?required|token.*(expired|revoked)|\b403 forbidden`}, "the model server does not accept the login", "codex login\nlaufwerk resume RUN"},
	{lazyregexp.Regexp{Pattern: `(?i)\b429\b|too many requests|rate limit`}, "the model server is asked too often", later},
	{lazyregexp.Regexp{Pattern: `(?i)high demand|at capacity|overloaded|\b50[0-9]\b|\b529\b|internal server error|bad gateway|unavailable`}, "the model server fails", later},
	{lazyregexp.Regexp{Pattern: `(?i)idle timeout|stream (disconnected|closed)|error sending request|connection (refused|reset|failed)|waiting for network|timed? ?out|dns error|network error|request failed`}, "the model server cannot be reached", "laufwerk resume RUN   # once the network is well: the turn goes on where it was"},
}

// judge is the failure of a turn that Codex itself says has failed.
func judge(exitCode int, message string) error {
	message = strings.TrimSpace(message)
	if message == "" {
		return agentError(exitCode, "Codex failed and did not say why")
	}
	for i := range causes {
		c := &causes[i]
		if c.says.MatchString(message) {
			return failure.New(failure.NotReady, "%s: Codex says: %s", c.what, tail(message, quoteLimit)).WithHint("%s", c.hint)
		}
	}
	return agentError(exitCode, "Codex failed: %s", tail(message, quoteLimit))
}

func agentError(exitCode int, format string, args ...any) error {
	return failure.New(failure.AgentFailed, format, args...).WithField("exitCode", exitCode)
}

// quoteLimit is how much of a program's words is repeated in a message, in bytes.
const quoteLimit = 600

func stderrText(stderr string) string {
	if stderr = strings.TrimSpace(stderr); stderr == "" {
		return " and said nothing"
	}
	return ": " + tail(stderr, quoteLimit)
}
