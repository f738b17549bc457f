package render

import (
	"io"
	"unicode/utf8"

	"github.com/laufwerk/laufwerk/internal/redact"
)

type text struct {
	w    io.Writer
	left []byte // the beginning of a rune
}

func (t *text) Write(p []byte) (int, error) {
	all := append(t.left, p...)
	end := len(all) - unfinished(all)
	t.left = append([]byte(nil), all[end:]...)
	if _, err := io.WriteString(t.w, redact.Terminal(string(all[:end]))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (t *text) Close() error {
	_, err := io.WriteString(t.w, redact.Terminal(string(t.left)))
	t.left = nil
	return err
}

// unfinished is the number of bytes at the end that begin a rune which may still be completed.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
