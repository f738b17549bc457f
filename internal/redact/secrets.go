package redact

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// Secrets are values that must not get into any record: logins, passwords. Everything that is kept or shown passes through
// it, as they may have become known only after a program began to speak. The nil value knows none.
//
// A value is found as it is, and as JSON, JSON within JSON and addresses write it. Encodings beyond these are not looked
// through: whoever wants to hide a value from this, can.
type Secrets struct {
	mu      sync.RWMutex
	known   map[string]bool
	needles []string // longest first
	replace *strings.Replacer
}

// Replacement is what stands in a value's place.
const Replacement = "[secret]"

// Shortest is how long a value must be, in bytes, to be replaced: shorter ones occur by chance.
const Shortest = 8

// NewSecrets knows none yet.
func NewSecrets() *Secrets { return &Secrets{known: map[string]bool{}} }

// Add makes values known. It may be called at any time.
func (s *Secrets) Add(values ...string) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	before := len(s.known)
	for _, v := range values {
		if len(v) < Shortest {
			continue
		}
		for _, form := range forms(v) {
			s.known[form] = true
		}
	}
	if len(s.known) == before {
		return
	}
	s.needles = s.needles[:0:0]
	for n := range s.known {
		s.needles = append(s.needles, n)
	}
	slices.SortFunc(s.needles, func(a, b string) int { return cmp.Or(cmp.Compare(len(b), len(a)), cmp.Compare(a, b)) })
	pairs := make([]string, 0, 2*len(s.needles))
	for _, n := range s.needles {
		pairs = append(pairs, n, Replacement)
	}
	s.replace = strings.NewReplacer(pairs...)
}

// forms are a value as it is, and as it stands in JSON, in JSON within JSON, and in an address.
func forms(v string) []string {
	out := []string{v, url.QueryEscape(v), url.PathEscape(v)}
	for _, html := range []bool{false, true} {
		once := inJSON(v, html)
		out = append(out, once, inJSON(once, html))
	}
	return out
}

func inJSON(s string, html bool) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(html)
	if e.Encode(s) != nil {
		return s
	}
	return strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(b.String()), `"`), `"`)
}

func (s *Secrets) replacer() *strings.Replacer {
	if s == nil {
		return nil
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.replace
}

// String is text without secrets.
func (s *Secrets) String(text string) string {
	r := s.replacer()
	if r == nil || len(text) < Shortest {
		return text
	}
	return r.Replace(text)
}

// JSON is an encoded document without secrets, in strings and names, however they are escaped. Everything else stays as it
// is, byte for byte. What breaks off within a string is taken as text from there on.
func (s *Secrets) JSON(doc []byte) []byte {
	r := s.replacer()
	if r == nil {
		return doc
	}
	var out []byte
	done := 0 // doc[:done] is in out, or is as it was
	for i := 0; i < len(doc); {
		if doc[i] != '"' {
			i++
			continue
		}
		end := literal(doc, i)
		if end < 0 {
			return append(append(out, doc[done:i]...), r.Replace(string(doc[i:]))...)
		}
		if changed, ok := replaceLiteral(r, doc[i:end]); ok {
			out = append(append(out, doc[done:i]...), changed...)
			done = end
		}
		i = end
	}
	if done == 0 {
		return doc
	}
	return append(out, doc[done:]...)
}

// literal is the end of the string that begins at i, -1 where it has none.
func literal(doc []byte, i int) int {
	for i++; i < len(doc); i++ {
		switch doc[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func replaceLiteral(r *strings.Replacer, quoted []byte) ([]byte, bool) {
	text := string(quoted[1 : len(quoted)-1])
	if bytes.IndexByte(quoted, '\\') >= 0 && json.Unmarshal(quoted, &text) != nil {
		return nil, false
	}
	changed := r.Replace(text)
	if changed == text {
		return nil, false
	}
	return []byte(`"` + inJSON(changed, false) + `"`), true
}

// Stream takes text in pieces that may be split anywhere, also within a secret.
type Stream struct {
	s       *Secrets
	pending string
}

// Stream begins one.
func (s *Secrets) Stream() *Stream { return &Stream{s: s} }

// Feed is what can be told by now. What may be the beginning of a secret is held back.
func (t *Stream) Feed(text string) string {
	text = t.s.String(t.pending + text)
	n := t.s.beginning(text)
	t.pending = text[len(text)-n:]
	return text[:len(text)-n]
}

// Pending is how many bytes are held back.
func (t *Stream) Pending() int { return len(t.pending) }

// Rest is what is held back, once no more text comes.
func (t *Stream) Rest() string {
	rest := t.pending
	t.pending = ""
	return rest
}

// beginning is the length of the longest end of text that a secret begins with.
func (s *Secrets) beginning(text string) int {
	if s == nil {
		return 0
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	longest := 0
	for _, needle := range s.needles {
		for n := min(len(text), len(needle)-1); n > longest; n-- {
			if text[len(text)-n] == needle[0] && strings.HasPrefix(needle, text[len(text)-n:]) {
				longest = n
			}
		}
	}
	return longest
}
