package docker

import (
	"bytes"
	"regexp"
	"strings"
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

var (
	telling  = regexp.MustCompile(`^(Progress:|\s*(WARN|ERR_))`)
	userinfo = regexp.MustCompile(`://[^/@\s]*@`)
)

func (p *progress) Write(b []byte) (int, error) {
	for _, c := range b {
		if c != '\n' {
			if len(p.line) < toldBytes {
				p.line = append(p.line, c)
			}
			continue
		}
		if p.told < toldLines && telling.Match(p.line) {
			p.told++
			p.tell(userinfo.ReplaceAllString(strings.ToValidUTF8(string(bytes.TrimSpace(p.line)), ""), "://…@"))
		}
		p.line = p.line[:0]
	}
	return len(b), nil
}
