package docker

import (
	"bytes"
	"strings"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
)

// progress tells those lines of a package manager that say how far it is, or what keeps it.
type progress struct {
	tell func(line string)
	line []byte
	told int
}

// Bounds of what is told: others inside can write there too.
const (
	toldLines = 100
	toldBytes = 300
)

func telling(line []byte) bool {
	said := bytes.TrimLeft(line, "\t\f\r ")
	return bytes.HasPrefix(line, []byte("Progress:")) || bytes.HasPrefix(said, []byte("WARN")) || bytes.HasPrefix(said, []byte("ERR_"))
}

var userinfo = lazyregexp.Regexp{Pattern: `://[^/@\s]*@`}

func withoutUserinfo(line string) string {
	return userinfo.ReplaceAllString(line, "://…@")
}

func (p *progress) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			if len(p.line) < toldBytes {
				p.line = append(p.line, c)
			}
			continue
		}
		if p.told < toldLines && telling(p.line) {
			p.told++
			p.tell(withoutUserinfo(strings.ToValidUTF8(string(bytes.TrimSpace(p.line)), "")))
		}
		p.line = p.line[:0]
	}
	return len(b), nil
}
