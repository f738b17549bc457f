package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"

	"github.com/laufwerk/laufwerk/internal/system/files"
)

// maxEnviron bounds how much of a foreign process's environment is read, in bytes.
const maxEnviron = 4 << 20

// FindMarked are the living processes, other than this one, whose initial environment has the variable name with a value that
// match accepts. A process can clear its environment, and that of another user may not be readable: what is found is
// certain, what is not found proves nothing.
func FindMarked(name string, match func(value string) bool) ([]Identity, error) {
	all, err := AllMarks(name)
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, m := range all {
		if match(m.Value) {
			out = append(out, m.Identity)
		}
	}
	return out, nil
}

// Mark is a process with the value of a variable in its initial environment.
type Mark struct {
	Identity
	Value string
}

// AllMarks are all living processes, other than this one, that have the variable name. As with Marked, what is not found proves
// nothing.
func AllMarks(name string) ([]Mark, error) {
	es, err := files.Names("/proc")
	if err != nil {
		return nil, err
	}
	var out []Mark
	for _, e := range es {
		pid, err := strconv.Atoi(e)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, ok := variable(pid, name); !ok {
			continue // most processes: nothing else is asked of them
		}
		id, err := IdentityOf(pid)
		if err != nil {
			continue
		}
		if v, ok := variable(pid, name); ok && Probe(id) == Alive { // now certainly of the process that was identified
			out = append(out, Mark{id, v})
		}
	}
	return out, nil
}

func variable(pid int, name string) (string, bool) {
	f, err := files.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxEnviron))
	if err != nil && !errors.Is(err, fs.ErrPermission) {
		return "", false
	}
	for _, kv := range bytes.Split(b, []byte{0}) {
		if k, v, ok := bytes.Cut(kv, []byte("=")); ok && string(k) == name {
			return string(v), true
		}
	}
	return "", false
}
