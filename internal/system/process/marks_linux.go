package process

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// maxEnviron bounds how much of a foreign process's environment is read, in bytes.
const maxEnviron = 4 << 20

// Marked are the living processes, other than this one, whose initial environment has the variable name with a value that
// match accepts. A process can clear its environment, and that of another user may not be readable: what is found is
// certain, what is not found proves nothing.
func Marked(name string, match func(value string) bool) ([]Identity, error) {
	es, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []Identity
	for _, e := range es {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		id, err := Of(pid)
		if err != nil {
			continue
		}
		if v, ok := variable(pid, name); ok && match(v) && Look(id) == Alive {
			out = append(out, id)
		}
	}
	return out, nil
}

func variable(pid int, name string) (string, bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
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
