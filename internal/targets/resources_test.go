package targets

import "testing"

func TestCoresAreCountedInBillionths(t *testing.T) {
	for cpus, want := range map[float64]int64{0: 0, 0.001: 1_000_000, 0.29: 290_000_000, 1.1: 1_100_000_000, 2: 2_000_000_000, 1_000_000: 1_000_000_000_000_000} {
		if got := (Resources{CPUs: cpus}).NanoCPUs(); got != want {
			t.Errorf("%v cores are %d, want %d", cpus, got, want)
		}
	}
}
