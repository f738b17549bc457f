package supervise

import (
	"bytes"
	"strings"

	"github.com/laufwerk/laufwerk/internal/system/process"
)

// environment is env with the mark; of a name that comes twice the last one counts, and where the first one stood.
func environment(env []string, mark string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range append(env[:len(env):len(env)], MarkVariable+"="+mark) {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" {
			continue
		}
		if i, twice := at[name]; twice {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

func environmentValue(env []string, name string) string {
	for _, kv := range env {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v
		}
	}
	return ""
}

// stdin gives c its input: a pipe that is filled once the command runs, or nothing at all. A command that ends without
// having read it is no error.
func stdin(c *process.Command, data []byte) (feed func(started bool), err error) {
	r, w, err := process.Pipe(len(data) > 0)
	if err != nil {
		return nil, err
	}
	c.Stdin = r
	return func(started bool) {
		if w == nil {
			return
		}
		if !started {
			_ = w.Close()
			return
		}
		go func() {
			_, _ = bytes.NewReader(data).WriteTo(w)
			_ = w.Close()
		}()
	}, nil
}
