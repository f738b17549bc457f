package workspace

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"unicode/utf8"

	"github.com/aymanbagabas/go-udiff"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
)

const (
	maxShown = 1 << 20 // bytes of one content; a longer one is summarised
	maxText  = 8 << 20 // bytes of shown contents; past them the rest is summarised
)

// Render is the difference for people, safe to print: first the complete list of paths, those that run on this host before
// all others and with the reason, then their contents in the same order. The list is never cut; a content that is binary,
// very long, or past the bound of the whole is summarised by size and hash, and the text says so. No attribute and no
// setting of the workspace has any say in it.
func Render(f Freeze) (string, error) {
	var host, rest []Change
	for _, c := range f.Changes {
		if c.RunsOnHost {
			host = append(host, c)
		} else {
			rest = append(rest, c)
		}
	}
	var b strings.Builder
	if len(f.Changes) == 0 {
		b.WriteString("No changes.\n")
	}
	section(&b, "Runs on this host", host)
	section(&b, "Other changes", rest)
	if f.Ignored > 0 {
		fmt.Fprintf(&b, "%s ignored by the rules of the source: neither shown nor written back.\n", countNoun(f.Ignored, "new file is", "new files are"))
	}
	budget := maxText
	for _, c := range append(host, rest...) {
		text, err := f.content(c, budget > 0)
		if err != nil {
			return "", err
		}
		if text != "" {
			b.WriteByte('\n')
			b.WriteString(text)
			budget -= len(text)
		}
	}
	return b.String(), nil
}

func section(b *strings.Builder, title string, changes []Change) {
	if len(changes) == 0 {
		return
	}
	fmt.Fprintf(b, "%s (%s):\n", title, countNoun(len(changes), "path", "paths"))
	for _, c := range changes {
		fmt.Fprintf(b, "  %-8s %s", c.Kind, redact.Line(c.Path))
		if d := changeDetail(c); d != "" {
			fmt.Fprintf(b, "  %s", d)
		}
		if c.Why != "" {
			fmt.Fprintf(b, "  [%s]", redact.Line(c.Why))
		}
		b.WriteByte('\n')
	}
}

func countNoun(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func changeDetail(c Change) string {
	kind := func(e *Entry) string {
		switch e.Type {
		case Symlink:
			return "link to " + redact.Line(string(e.Link))
		case Other:
			return redact.Line(string(e.Link))
		case Dir:
			return "directory"
		default:
			return "file"
		}
	}
	switch b, a := c.Before, c.After; {
	case b == nil && a == nil:
		return ""
	case b == nil:
		if a.Type == File {
			if a.Mode&0o7777 != 0o644 {
				return fmt.Sprintf("(mode %04o)", a.Mode)
			}
			return ""
		}
		return "(" + kind(a) + ")"
	case a == nil:
		if b.Type == File {
			return ""
		}
		return "(" + kind(b) + ")"
	case b.Type != a.Type || a.Type == Symlink || a.Type == Other:
		return fmt.Sprintf("(%s → %s)", kind(b), kind(a))
	case b.Mode != a.Mode:
		return fmt.Sprintf("(mode %04o → %04o)", b.Mode, a.Mode)
	}
	return ""
}

// content is the difference of a changed file's bytes, "" where there is none to show.
func (f *Freeze) content(c Change, room bool) (string, error) {
	b, a := fileOrNil(c.Before), fileOrNil(c.After)
	if (b == nil && a == nil) || (b != nil && a != nil && b.SHA256 == a.SHA256) {
		return "", nil
	}
	path := redact.Line(c.Path)
	from, to := "/dev/null", "/dev/null"
	if b != nil {
		from = "before/" + path
	}
	if a != nil {
		to = "after/" + path
	}
	head := fmt.Sprintf("--- %s\n+++ %s\n", from, to)
	summary := func(why string) string {
		return head + fmt.Sprintf("(not shown: %s; before: %s; after: %s)\n", why, sizeText(b), sizeText(a))
	}
	switch {
	case !room:
		return summary(fmt.Sprintf("more than %d bytes of differences came before it", maxText)), nil
	case isTooLong(b) || isTooLong(a):
		return summary(fmt.Sprintf("longer than %d bytes", maxShown)), nil
	}
	after, err := f.text(a)
	if err != nil {
		e := failure.New(failure.StoreInvalid, "the frozen content of %s cannot be shown: %v", path, err)
		return "", e.WithHint("laufwerk resume RUN") // it freezes the workspace again
	}
	before, err := f.text(b)
	if errors.Is(err, fs.ErrNotExist) {
		if c.Kind == Deleted {
			return summary("the source no longer has what was deleted"), nil
		}
		if isBinary(after) && !c.RunsOnHost {
			return summary("binary, and the source no longer has what was there before"), nil
		}
		return head + "(the source no longer holds what was there before; this is the whole new content)\n" + prefixLines("+", after), nil
	}
	if err != nil {
		return "", failure.New(failure.StoreInvalid, "the content of %s before cannot be shown: %v", path, err).WithHint("laufwerk resume RUN")
	}
	if (isBinary(before) || isBinary(after)) && !c.RunsOnHost { // of what runs here nothing hides behind a NUL
		return summary("binary"), nil
	}
	switch {
	case b == nil:
		return head + prefixLines("+", after), nil
	case a == nil:
		return head + prefixLines("-", before), nil
	}
	diff, err := udiff.ToUnified(from, to, before, udiff.Lines(before, after), udiff.DefaultContextLines)
	if err != nil {
		return "", fmt.Errorf("the difference of %s: %w", path, err)
	}
	return redact.Terminal(diff), nil
}

func fileOrNil(e *Entry) *Entry {
	if e == nil || e.Type != File {
		return nil
	}
	return e
}

func isTooLong(e *Entry) bool { return e != nil && e.Size > maxShown }

func sizeText(e *Entry) string {
	if e == nil {
		return "none"
	}
	return fmt.Sprintf("%d bytes, sha256 %s", e.Size, e.SHA256)
}

func (f *Freeze) text(e *Entry) (string, error) {
	if e == nil {
		return "", nil
	}
	b, err := f.Blob(e.SHA256, maxShown)
	return string(b), err
}

func isBinary(s string) bool { return strings.IndexByte(s, 0) >= 0 }

// prefixLines prefixes each line; a missing last newline is said as diff says it.
func prefixLines(mark, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(mark)
		b.WriteString(redact.Terminal(line))
		if !strings.HasSuffix(line, "\n") {
			b.WriteString("\n\\ No newline at end of file\n")
		}
	}
	return b.String()
}

// SurfaceChange is a change as workflows and scripts see it. PathBase64 holds the raw bytes of a path that is not UTF-8.
type SurfaceChange struct {
	Path       string     `json:"path"`
	PathBase64 string     `json:"pathBase64,omitempty"`
	Kind       ChangeKind `json:"kind"`
	RunsOnHost bool       `json:"runsOnHost"`
}

// PublicChanges gives every change its public form.
func PublicChanges(changes []Change) []SurfaceChange {
	out := make([]SurfaceChange, 0, len(changes))
	for _, c := range changes {
		s := SurfaceChange{Path: c.Path, Kind: c.Kind, RunsOnHost: c.RunsOnHost}
		if !utf8.ValidString(c.Path) {
			s.Path, s.PathBase64 = strings.ToValidUTF8(c.Path, "\ufffd"), base64.StdEncoding.EncodeToString([]byte(c.Path))
		}
		out = append(out, s)
	}
	return out
}
