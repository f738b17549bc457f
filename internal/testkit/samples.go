package testkit

import (
	"iter"
	"math/rand/v2"
	"os"
	"strconv"
	"time"
)

// NewRandom is a source of samples that can be had again: LAUFWERK_TEST_SEED.
func NewRandom(t interface {
	Helper()
	Logf(format string, args ...any)
}) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("LAUFWERK_TEST_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano()) //nolint:gosec // any number will do
	}
	t.Logf("LAUFWERK_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // it has to be the same again
}

// TakesEverySample says that a test takes no samples: LAUFWERK_TEST_ALL=1, which `make torture` sets.
func TakesEverySample() bool { return os.Getenv("LAUFWERK_TEST_ALL") == "1" }

// SampleSize is how many random samples a test takes, and how many in `make torture`.
func SampleSize(some, full int) int {
	if TakesEverySample() {
		return full
	}
	return some
}

// EveryNth takes one in n of a list, beginning with one of the first n by chance; in `make torture` it takes all. What it yields
// are indexes and elements of the list.
func EveryNth[E any](random *rand.Rand, n int, list []E) iter.Seq2[int, E] {
	first, step := 0, 1
	if !TakesEverySample() {
		first, step = random.IntN(n), n
	}
	return func(yield func(int, E) bool) {
		for i := first; i < len(list); i += step {
			if !yield(i, list[i]) {
				return
			}
		}
	}
}
