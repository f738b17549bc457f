package targets

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/laufwerk/laufwerk/internal/options"
)

// Resources are the limits of a container; what is zero or nil is left to the engine.
type Resources struct {
	CPUs        float64 `json:"cpus,omitempty"`        // cores, at most 3 decimals
	MemoryBytes int64   `json:"memoryBytes,omitempty"` // at least LeastMemory
	SwapBytes   *int64  `json:"swapBytes,omitempty"`   // in addition to the memory; only with MemoryBytes
	PIDs        int64   `json:"pids,omitempty"`
}

// LeastMemory is what a container engine accepts at least, in bytes.
const LeastMemory = 6 << 20

// ParseResources reads the option at path.
func ParseResources(path string, raw json.RawMessage) (Resources, error) {
	var r Resources
	fields, err := options.Fields(path, raw, "cpus", "memoryBytes", "swapBytes", "pids")
	if err != nil {
		return r, err
	}
	if cpus := fields["cpus"]; !options.Absent(cpus) {
		if r.CPUs, err = CPUs(path+".cpus", cpus); err != nil {
			return r, err
		}
	}
	if memory := fields["memoryBytes"]; !options.Absent(memory) {
		if r.MemoryBytes, err = options.Integer(path+".memoryBytes", memory, LeastMemory, "a whole number of bytes, at least 6291456 (6 MiB)"); err != nil {
			return r, err
		}
	}
	if swap := fields["swapBytes"]; !options.Absent(swap) {
		n, err := options.Integer(path+".swapBytes", swap, 0, "a whole number of bytes, 0 for no additional swap")
		if err != nil {
			return r, err
		}
		if r.MemoryBytes == 0 {
			return r, options.Invalid(path+".swapBytes", "expected only together with %s.memoryBytes, got %s without it", path, options.Show(swap))
		}
		r.SwapBytes = &n
	}
	if pids := fields["pids"]; !options.Absent(pids) {
		if r.PIDs, err = options.Integer(path+".pids", pids, 1, "a whole number of processes, at least 1"); err != nil {
			return r, err
		}
	}
	return r, nil
}

// CPUs is a number of cores: more than 0, with at most 3 decimals.
func CPUs(path string, raw json.RawMessage) (float64, error) {
	const expected = "cores > 0 with at most 3 decimals"
	var n float64
	if options.Kind(raw) != "a number" || json.Unmarshal(raw, &n) != nil || n <= 0 || n > most {
		return 0, options.Invalid(path, "expected %s, got %s", expected, options.Show(raw))
	}
	if _, decimals, _ := strings.Cut(strconv.FormatFloat(n, 'f', -1, 64), "."); len(decimals) > 3 {
		return 0, options.Invalid(path, "expected %s, got %s", expected, options.Show(raw))
	}
	return n, nil
}

// most is more cores than any machine has: in billionths, as Docker counts them, it fits an int64.
const most = 1_000_000
