package settings

import (
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Kind is what values a setting takes.
type Kind struct {
	Expected string // for people: "a size such as 128MiB"
	parse    func(text, home string) (any, bool)
}

// The kinds of values.
//
//nolint:gochecknoglobals // constants of a struct type
var (
	Directory = Kind{"an absolute path, or one that starts with ~/", parseDirectory}
	Bytes     = Kind{"a size of at least one byte, such as 128MiB or 500000", parseBytes}
	Time      = Kind{"a time longer than zero, such as 2s or 500ms", parseTime}
	Count     = Kind{"a whole number of at least 1", parseCount}
	Bool      = Kind{"true or false", parseBool}
	Socket    = Kind{"the address of a socket, such as unix:///run/docker.sock", parseSocket}
)

// Choice takes one of some words.
func Choice(words ...string) Kind {
	return Kind{"one of " + strings.Join(words, ", "), func(text, _ string) (any, bool) { return text, slices.Contains(words, text) }}
}

// atLeast takes sizes from least bytes on, which shown says for people.
func atLeast(least int64, shown string) Kind {
	return Kind{"a size of at least " + shown, func(text, home string) (any, bool) {
		n, ok := parseBytes(text, home)
		return n, ok && n.(int64) >= least
	}}
}

func parseDirectory(text, home string) (any, bool) {
	if rest, ok := strings.CutPrefix(text, "~/"); ok {
		text = filepath.Join(home, rest)
		if home == "" { // the caller says that there is no home directory
			return "", true
		}
	}
	return filepath.Clean(text), filepath.IsAbs(text) && !strings.ContainsRune(text, 0)
}

func parseBytes(text, _ string) (any, bool) {
	digits := strings.TrimRight(text, "BKMGTikb")
	unit, known := map[string]int64{
		"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "kB": 1e3, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
	}[text[len(digits):]]
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || !known || n < 1 || n > math.MaxInt64/unit {
		return int64(0), false
	}
	return n * unit, true
}

func parseTime(text, _ string) (any, bool) {
	d, err := time.ParseDuration(text)
	return d, err == nil && d > 0
}

func parseCount(text, _ string) (any, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 1
}

func parseSocket(text, _ string) (any, bool) {
	path, ok := strings.CutPrefix(text, "unix://")
	return text, text == "" || ok && filepath.IsAbs(path) && !strings.ContainsRune(path, 0)
}

func parseBool(text, _ string) (any, bool) { return text == "true", text == "true" || text == "false" }

// Size reads a size in bytes as it is written in settings: 128MiB, 500000.
func Size(text string) (int64, bool) {
	v, ok := parseBytes(text, "")
	return v.(int64), ok
}
