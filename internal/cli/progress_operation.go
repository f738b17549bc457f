package cli

import (
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/protocol"
)

// operationID is a parsed operation identity (see journal.Identity).
type operationID struct {
	id    string
	op    string
	scope string
	key   string
	nth   string // of a keyless one that is not the first: "#3"
}

func parseOperationID(id string) operationID {
	o := operationID{id: id}
	end := strings.IndexAny(id, "[:@#")
	if end < 0 {
		o.op = id
		return o
	}
	o.op = id[:end]
	rest := id[end:]
	if rest[0] == '[' {
		scope, after, _ := strings.Cut(rest[1:], "]")
		o.scope, rest = strings.NewReplacer("%5D", "]", "%25", "%").Replace(scope), after
	}
	if key, ok := strings.CutPrefix(rest, ":"); ok {
		o.key = key
	} else if i := strings.LastIndexByte(rest, '#'); i >= 0 {
		o.nth = " " + rest[i:]
	}
	return o
}

func (o operationID) describe() string {
	within := func(verb string) string {
		if o.scope == "" {
			return verb + o.key + o.nth
		}
		return o.scope + " · " + verb + o.key + o.nth
	}
	about := func(what string) string {
		for _, more := range []string{o.scope, o.key} {
			if more != "" {
				what += " " + more
			}
		}
		return what + o.nth
	}
	switch o.op {
	case protocol.OpSessionAsk, protocol.OpSessionRun, protocol.OpSessionExec:
		return within("")
	case protocol.OpSessionReadFile:
		return within("read ")
	case protocol.OpSessionWriteFile:
		return within("write ")
	case protocol.OpHostExec:
		return "host · " + o.key + o.nth
	case protocol.OpWorkspaceOpen:
		return about("open workspace")
	case protocol.OpWorkspaceDiff:
		return about("compare workspace")
	case protocol.OpWorkspaceWriteBack:
		return about("write back")
	case protocol.OpSessionOpen:
		return about("open session")
	case protocol.OpSessionClose:
		return about("close session")
	case protocol.OpHuman:
		return about("question")
	case protocol.OpClockSleep:
		return about("sleep")
	default:
		return o.id
	}
}

func (o operationID) mayTakeLong() bool {
	switch o.op {
	case protocol.OpSessionAsk, protocol.OpSessionRun, protocol.OpSessionExec, protocol.OpHostExec, protocol.OpClockSleep:
		return true
	default:
		return false
	}
}

// isSilent says whether the success of such an operation is not worth a line.
func (o operationID) isSilent() bool {
	return o.op == protocol.OpClockNow || o.op == protocol.OpHumanNotify
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
