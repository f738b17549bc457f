package e2e

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"
)

// NewRandom is a source of samples that can be had again: LAUFWERK_TEST_SEED.
func NewRandom(t testing.TB) *rand.Rand {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("LAUFWERK_TEST_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("LAUFWERK_TEST_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TakesEverySample says that a test takes no samples: LAUFWERK_TEST_ALL=1, for machines with an hour of time.
func TakesEverySample() bool { return os.Getenv("LAUFWERK_TEST_ALL") == "1" }

const (
	EndResumed = "resumed"
	EndGivenUp = "given-up"
)
