// Package redact keeps foreign text from doing anything but being read. File names, agent output, messages of daemons and
// of evaluated code pass through it before they reach a terminal or a log.
package redact

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Terminal makes text safe to print: newline and tab stay, every other character that moves a cursor, starts an escape
// sequence, reorders text or cannot be seen is written out as \r, \x1b, \u202e or \U000e0041, and a byte that is not
// UTF-8 as \xff.
func Terminal(s string) string {
	return escape(s, func(r rune) bool { return r != '\n' && r != '\t' && Unsafe(r) })
}

// Line is Terminal for text that must stay on one line and in one column, such as a name: newline and tab are escaped too.
func Line(s string) string { return escape(s, Unsafe) }

// JSON makes encoded JSON safe to print without changing its value: Go's encoder leaves DEL, C1, bidirectional and
// invisible characters as they are; here they become \u escapes. They can only occur inside strings.
func JSON(doc []byte) []byte {
	s := string(doc)
	if strings.IndexFunc(s, unsafeInJSON) < 0 {
		return doc
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !unsafeInJSON(r):
			b.WriteRune(r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r-0x10000)>>10, 0xdc00+(r-0x10000)&0x3ff)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return []byte(b.String())
}

func unsafeInJSON(r rune) bool { return r != '\n' && r != '\t' && Unsafe(r) }

// Unsafe says whether a character acts on a terminal, or hides: controls (C0, DEL, C1), line and paragraph separators,
// format characters (bidirectional controls, zero-width characters, tags), fillers and variation selectors. The two
// selectors that choose between text and emoji are harmless and common.
func Unsafe(r rune) bool {
	if r >= 0x20 && r < 0x7f {
		return false
	}
	switch {
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	case unicode.Is(unicode.Cf, r):
		return !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	case r == '\ufe0e', r == '\ufe0f':
		return false
	case r >= 0xe0000 && r <= 0xe0fff:
		return true
	}
	return unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r)
}

func escape(s string, unsafe func(rune) bool) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, unsafe) < 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case !unsafe(r):
			b.WriteString(s[i : i+n])
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
		i += n
	}
	return b.String()
}
