package agent

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// However a stream is split, its lines are the same: none is lost, none is joined, blank ones only count.
func TestLinesInAnyPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := rapid.SliceOfN(rapid.SampledFrom([]string{"{}", " {\"a\":1}\r", "", "\t ", "x", "stop"}), 0, 10).Draw(t, "lines")
		stream := strings.Join(given, "\n")
		var want, got []string
		for i, line := range given {
			if line = strings.TrimSpace(line); line == "" {
				continue
			}
			want = append(want, line)
			if line == "stop" {
				given = given[:i+1]
				break
			}
		}
		var l Lines
		l = NewLines(func(line []byte) []Event {
			got = append(got, string(line))
			if string(line) == "stop" {
				l.Fail("line %d", l.Number())
			}
			return []Event{{Kind: "message", Text: string(line)}}
		})
		told := 0
		for rest := stream; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			told += len(l.Feed([]byte(rest[:n])))
			rest = rest[n:]
		}
		if told != len(got) {
			t.Fatalf("%d events of %d lines", told, len(got))
		}
		says := ""
		if slices.Contains(want, "stop") {
			says = fmt.Sprintf("line %d", len(given))
		}
		if broken := l.Close(); !slices.Equal(got, want) || broken != says {
			t.Fatalf("read %q, want %q; broken: %q, want %q", got, want, broken, says)
		}
	})
}

func TestLongLines(t *testing.T) {
	read := 0
	l := NewLines(func(line []byte) []Event {
		read = len(line)
		return nil
	})
	l.Feed([]byte(strings.Repeat("x", MaxLine) + "\n"))
	if broken := l.Close(); read != MaxLine || broken != "" {
		t.Errorf("a line of %d bytes: %d were read, %q", MaxLine, read, broken)
	}
	l.Feed([]byte(strings.Repeat("x", MaxLine+1) + "\n"))
	if broken := l.Close(); broken != "line 2 is longer than 16777216 bytes" {
		t.Errorf("%q", broken)
	}
}

func TestALineWithoutEndTakesNoMemory(t *testing.T) {
	l := NewLines(func([]byte) []Event { return nil })
	chunk := []byte(strings.Repeat("x", 1<<20))
	most := 0
	for range 40 {
		l.Feed(chunk)
		most = max(most, cap(l.partial))
	}
	if most > 2*MaxLine || l.partial != nil {
		t.Errorf("up to %d bytes were kept, and %d are", most, cap(l.partial))
	}
	if broken := l.Close(); !strings.Contains(broken, "longer than") {
		t.Errorf("%q", broken)
	}
}
