package cli

import (
	"testing"
	"time"
)

func TestATimeOfAnotherDayHasItsDay(t *testing.T) {
	now := time.Date(2026, 11, 29, 0, 0, 1, 0, time.Local)
	for at, want := range map[time.Time]string{
		{}:                        "-",
		now:                       "00:00:01.000",
		now.UTC():                 "00:00:01.000",
		now.Add(23 * time.Hour):   "23:00:01.000",
		now.Add(-time.Second - 1): "2026-11-28 23:59:59",
		now.AddDate(-1, 0, 0):     "2025-11-29 00:00:01",
	} {
		if got := claimTime(now, at); got != want {
			t.Errorf("%s: %q, want %q", at, got, want)
		}
	}
}
