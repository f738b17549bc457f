package supervise

import (
	"strings"

	"github.com/laufwerk/laufwerk/internal/sha256hex"
)

// cgroupName is derived from the mark, so that a control group can be found again without any record.
func cgroupName(mark string) string {
	session, _ := splitMark(mark)
	return sessionPrefix(session) + digest(mark)
}

// sessionPrefix starts the names of all control groups of a session.
func sessionPrefix(session string) string { return "laufwerk-" + digest(session) + "-" }

func splitMark(mark string) (session, operation string) {
	if i := strings.LastIndexByte(mark, '/'); i >= 0 {
		return mark[:i], mark[i+1:]
	}
	return mark, ""
}

func digest(s string) string {
	return sha256hex.Of(s)[:16]
}
