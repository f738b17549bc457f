package docker

import (
	"bytes"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// progressFilter reports the lines of a package manager that show progress, warnings and errors.
type progressFilter struct {
	report   func(line string)
	line     []byte
	reported int
}

// Bounds of what is reported: other processes inside can write there too.
const (
	maxProgressLines = 100
	maxProgressBytes = 300
)

func isProgress(line []byte) bool {
	text := bytes.TrimLeft(line, "\t\f\r ")
	return bytes.HasPrefix(line, []byte("Progress:")) || bytes.HasPrefix(text, []byte("WARN")) || bytes.HasPrefix(text, []byte("ERR_"))
}

var userinfo = lazyregexp.Regexp{Pattern: `://[^/@\s]*@`}

func withoutUserinfo(line string) string {
	return userinfo.ReplaceAllString(line, "://…@")
}

func (p *progressFilter) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			if len(p.line) < maxProgressBytes {
				p.line = append(p.line, c)
			}
			continue
		}
		if p.reported < maxProgressLines && isProgress(p.line) {
			p.reported++
			p.report(withoutUserinfo(strings.ToValidUTF8(string(bytes.TrimSpace(p.line)), "")))
		}
		p.line = p.line[:0]
	}
	return len(b), nil
}
