package owned

import (
	"testing"

	"github.com/laufwerk/laufwerk/internal/targets"
)

func TestLimits(t *testing.T) {
	swap := int64(1 << 20)
	for cpus, want := range map[float64][3]int64{0: {}, 2: {2e9, 0, 0}, 0.01: {1e7, 0, 0}, 0.29: {29e7, 0, 0}, 1.1: {11e8, 0, 0}, 1_000_000: {1e15, 0, 0}, 1.234: {1234e6, 0, 0}, 0.009: {0, maxQuotaPeriod, 9000}, 0.001: {0, maxQuotaPeriod, 1000}} {
		h := HardenedHostConfig(targets.Resources{CPUs: cpus})
		if got := [3]int64{h.NanoCPUs, h.CPUPeriod, h.CPUQuota}; got != want {
			t.Errorf("%g cores: %v, want %v", cpus, got, want)
		}
	}
	h := HardenedHostConfig(targets.Resources{MemoryBytes: 64 << 20, SwapBytes: &swap, PIDs: 7})
	if h.Memory != 64<<20 || h.MemorySwap != 65<<20 || *h.PidsLimit != 7 {
		t.Errorf("%+v", h.Resources)
	}
	if h := HardenedHostConfig(targets.Resources{MemoryBytes: 64 << 20}); h.MemorySwap != 0 || *h.PidsLimit != 0 {
		t.Errorf("%+v", h.Resources)
	}
}
