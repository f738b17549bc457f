package script

import (
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/go-sourcemap/sourcemap"
)

// Namespaces of modules in a bundle.
const (
	nsProject = "project"  // files of the project, by path relative to its root
	nsSDK     = "laufwerk" // modules of the SDK, by name
)

// sourceMap finds where generated code comes from. It is decoded when the first error is shown.
type sourceMap struct {
	consumer func() (*sourcemap.Consumer, error)
}

func newSourceMap(raw string) *sourceMap {
	return &sourceMap{sync.OnceValues(func() (*sourcemap.Consumer, error) { return sourcemap.Parse("", []byte(raw)) })}
}

// position is the source, line and column (all from 1) of a generated position (from 1); "" where there is none.
func (m *sourceMap) position(line, col int) (source string, srcLine, srcCol int) {
	c, err := m.consumer()
	if err != nil {
		return "", 0, 0
	}
	source, _, srcLine, srcCol, ok := c.Source(line, col-1)
	if !ok {
		return "", 0, 0
	}
	return source, srcLine, srcCol + 1
}

// bundleFrame reads a frame of the engine, "    at name (bundle.js:12:5)"; the name and the parentheses may be missing, and so
// may the column, which is 1 then.
func bundleFrame(text string) (name string, line, col int, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t"), "at ")
	at := strings.LastIndex(text, bundleName+":")
	if !ok || at < 0 {
		return "", 0, 0, false
	}
	name, position := text[:at], strings.TrimSuffix(text[at+len(bundleName)+1:], ")")
	if name != "" {
		if name, ok = strings.CutSuffix(name, " ("); !ok {
			return "", 0, 0, false
		}
	}
	first, second, two := strings.Cut(position, ":")
	line, err := strconv.Atoi(first)
	col = 1
	if two && err == nil {
		col, err = strconv.Atoi(second)
	}
	return name, line, max(col, 1), err == nil
}

// frames are the frames of a stack that lie in the project's files, "laufwerk/x.ts:12:5 in run". Frames of the SDK are left out.
func (m *sourceMap) frames(stack string) []string {
	var out []string
	for _, line := range strings.Split(stack, "\n") {
		name, l, c, ok := bundleFrame(line)
		if !ok {
			continue
		}
		source, sl, sc := m.position(l, c)
		path, ok := strings.CutPrefix(source, nsProject+":")
		if !ok {
			continue
		}
		at := fmt.Sprintf("%s:%d:%d", path, sl, sc)
		if name != "" && name != "<anonymous>" {
			at += " in " + name
		}
		if out = append(out, at); len(out) == 32 {
			break
		}
	}
	return out
}
