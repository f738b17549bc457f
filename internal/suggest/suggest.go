// Package suggest finds the known word that somebody who mistyped probably meant.
package suggest

import (
	"fmt"
	"strings"
)

// Closest is the known word nearest to word, "" where none is near: a slip away, or one word begins the other. Case does not count.
func Closest(word string, known []string) string {
	return closest(word, known, func(low, word string) bool {
		return len(word) >= 3 && (strings.HasPrefix(low, word) || strings.HasPrefix(word, low) && len(low) >= 3)
	})
}

// CorrectTypo is the known word that word is a slip of the keyboard away from, "" where there is none: at most a third of its letters (at
// least one, at most three) are wrong, missing, added or swapped with their neighbour. Case does not count.
func CorrectTypo(word string, known []string) string {
	return closest(word, known, func(string, string) bool { return false })
}

// Alternatives is what to append to a message about an unknown option: the one that was probably meant, or all there are.
func Alternatives(word string, known []string) string {
	if near := Closest(word, known); near != "" {
		return fmt.Sprintf("; did you mean `%s`?", near)
	}
	return fmt.Sprintf("; there are `%s`", strings.Join(known, "`, `"))
}

func closest(word string, known []string, related func(known, word string) bool) string {
	word = strings.ToLower(word)
	best, least := "", 0
	for _, k := range known {
		low := strings.ToLower(k)
		d := distance(word, low)
		near := d <= min(3, max(1, len(word)/3)) || related(low, word)
		if near && (best == "" || d < least || d == least && lengthDifference(k, word) < lengthDifference(best, word)) {
			best, least = k, d
		}
	}
	return best
}

func lengthDifference(a, b string) int { return max(len(a)-len(b), len(b)-len(a)) }

// distance counts insertions, deletions, substitutions and swaps of neighbours.
func distance(a, b string) int {
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			same := 1
			if a[i-1] == b[j-1] {
				same = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+same)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
