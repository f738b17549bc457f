package script

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// Namespaces of modules in a bundle.
const (
	nsProject = "project"  // files of the project, by path relative to its root
	nsSDK     = "laufwerk" // modules of the SDK, by name
)

// sourceMap finds where generated code comes from. It is decoded when the first error is shown.
type sourceMap struct {
	raw     string
	sources []string
	lines   [][]segment
}

type segment struct{ col, source, line, sourceCol int }

func newSourceMap(raw string) *sourceMap { return &sourceMap{raw: raw} }

// position is the source, line and column (all from 1) of a generated position (from 1); "" where there is none.
func (m *sourceMap) position(line, col int) (source string, srcLine, srcCol int) {
	m.decode()
	if line < 1 || line > len(m.lines) {
		return "", 0, 0
	}
	segs := m.lines[line-1]
	i := sort.Search(len(segs), func(i int) bool { return segs[i].col > col-1 }) - 1
	if i < 0 {
		return "", 0, 0
	}
	s := segs[i]
	if s.source < 0 || s.source >= len(m.sources) {
		return "", 0, 0
	}
	return m.sources[s.source], s.line + 1, s.sourceCol + 1
}

func (m *sourceMap) decode() {
	if m.raw == "" {
		return
	}
	var doc struct {
		Sources  []string `json:"sources"`
		Mappings string   `json:"mappings"`
	}
	err := json.Unmarshal([]byte(m.raw), &doc)
	m.raw = ""
	if err != nil {
		return
	}
	m.sources = doc.Sources
	var source, line, sourceCol int
	for _, group := range strings.Split(doc.Mappings, ";") {
		var segs []segment
		col := 0
		for _, part := range strings.Split(group, ",") {
			v := decodeVLQ(part)
			if len(v) == 0 {
				continue
			}
			col += v[0]
			s := segment{col: col, source: -1}
			if len(v) >= 4 {
				source, line, sourceCol = source+v[1], line+v[2], sourceCol+v[3]
				s.source, s.line, s.sourceCol = source, line, sourceCol
			}
			segs = append(segs, s)
		}
		m.lines = append(m.lines, segs)
	}
}

const base64Digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

func decodeVLQ(s string) []int {
	var out []int
	value, shift := 0, 0
	for _, c := range s {
		d := strings.IndexRune(base64Digits, c)
		if d < 0 || shift > 30 {
			return nil
		}
		value |= (d & 31) << shift
		shift += 5
		if d&32 != 0 {
			continue
		}
		if value&1 != 0 {
			out = append(out, -(value >> 1))
		} else {
			out = append(out, value>>1)
		}
		value, shift = 0, 0
	}
	return out
}

// bundleFrame reads a frame of the engine, "    at name (bundle.js:12:5)"; the name and the parentheses may be missing, and so
// may the column, which is 1 then.
func bundleFrame(text string) (name string, line, col int, ok bool) {
	text, ok = strings.CutPrefix(strings.TrimLeft(text, " \t"), "at ")
	at := strings.LastIndex(text, bundleName+":")
	if !ok || at < 0 {
		return "", 0, 0, false
	}
	name, place := text[:at], strings.TrimSuffix(text[at+len(bundleName)+1:], ")")
	if name != "" {
		if name, ok = strings.CutSuffix(name, " ("); !ok {
			return "", 0, 0, false
		}
	}
	first, second, two := strings.Cut(place, ":")
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
