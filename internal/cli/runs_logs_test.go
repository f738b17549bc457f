package cli

import (
	"testing"
	"time"
)

func TestALineOfAnotherDayHasItsDay(t *testing.T) {
	now := time.Date(2026, 11, 29, 0, 0, 1, 0, time.Local)
	for at, want := range map[time.Time]string{
		now.UTC():             "00:00:01",
		now.Add(-2):           "00:00:00",
		now.Add(-time.Minute): "2026-11-28 23:59:01",
		now.AddDate(-1, 0, 0): "2025-11-29 00:00:01",
	} {
		if got := logTime(now, at); got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}
