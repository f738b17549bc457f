package render

import (
	"fmt"
	"strconv"
	"time"
)

// Duration is how long something took, to two or three digits: 6ms, 1.2s, 12s, 1m02s, 1h02m.
func Duration(d time.Duration) string {
	switch {
	case d < 0:
		return "0ms"
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < 9950*time.Millisecond:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	default:
		return Elapsed(d.Round(time.Second))
	}
}

// Elapsed is how long something takes so far, in whole seconds.
func Elapsed(d time.Duration) string {
	switch s := int64(d.Seconds()); {
	case s < 60:
		return strconv.FormatInt(s, 10) + "s"
	case s < 60*60:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	default:
		return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
	}
}

// Tokens is a number of tokens: 312 tokens, 12.4k tokens, 1.2M tokens.
func Tokens(n int64) string {
	switch {
	case n == 1:
		return "1 token"
	case n < 1000:
		return strconv.FormatInt(n, 10) + " tokens"
	case n < 999_950:
		return strconv.FormatFloat(float64(n)/1e3, 'f', 1, 64) + "k tokens"
	default:
		return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + "M tokens"
	}
}
