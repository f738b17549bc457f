package command

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/failure"
)

// maxReply bounds what is kept of a turn's stdout, in bytes; the supervisor keeps no more either.
const maxReply = 16 << 20

// text takes all of stdout as the reply.
type text struct {
	program string
	out     strings.Builder
	lost    int64
}

func (r *text) Feed(chunk []byte) []agent.Event {
	keep := min(len(chunk), maxReply-r.out.Len())
	r.out.Write(chunk[:keep])
	r.lost += int64(len(chunk) - keep)
	return nil
}

// End gives stdout without its last line ends, as a shell's command substitution does. A program that says nothing and
// exits with 0 has replied with nothing. Invalid UTF-8 becomes U+FFFD.
func (r *text) End(exitCode int, stderrTail string) (agent.Reply, error) {
	if exitCode != 0 {
		return agent.Reply{}, agentError(exitCode, "%s exited with status %d%s", r.program, exitCode, outputText(stderrTail, r.out.String()))
	}
	if r.lost > 0 {
		return agent.Reply{}, agentError(exitCode, "the reply of %s is longer than %d bytes", r.program, maxReply)
	}
	return agent.Reply{Text: strings.TrimRight(strings.ToValidUTF8(r.out.String(), "\uFFFD"), "\r\n")}, nil
}

func agentError(exitCode int, format string, args ...any) error {
	return failure.New(failure.AgentFailed, format, args...).WithField("exitCode", exitCode)
}

// outputText is the end of what a program wrote to stderr, or else to stdout.
func outputText(stderr, stdout string) string {
	for _, s := range []string{stderr, stdout} {
		if s = strings.TrimSpace(s); s != "" {
			return ": " + lastOf(s)
		}
	}
	return " and said nothing"
}

// quoteLimit is how much of a program's words is repeated in a message, in bytes.
const quoteLimit = 400

func lastOf(s string) string {
	if len(s) > quoteLimit {
		s = "…" + s[len(s)-quoteLimit:]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
