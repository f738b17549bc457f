package docker_test

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/e2e"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// Signals at random times, once or twice, to runs in containers: LAUFWERK_TEST_COUNT says how many. Nothing that completed runs
// twice, what was cut is journaled, and each container has its claim.
func TestDockerSignalsAtRandomTimes(t *testing.T) {
	endpoint := engine.Endpoint(t)
	times, err := strconv.Atoi(os.Getenv("LAUFWERK_TEST_COUNT"))
	if err != nil {
		times = testkit.SampleSize(14, 70)
	}
	random := testkit.NewRandom(t)
	began := time.Now()
	e2e.NewDockerMachine(t, endpoint).CheckDone(1)
	whole := time.Since(began) // of a run and its clean-up, on this machine now
	signals := [][]syscall.Signal{
		{syscall.SIGINT}, {syscall.SIGTERM}, {syscall.SIGKILL}, {syscall.SIGINT, syscall.SIGINT}, {syscall.SIGHUP}, {syscall.SIGTERM, syscall.SIGINT}, {syscall.SIGKILL},
	}
	for i := range times {
		sigs := signals[i%len(signals)]
		after, between := time.Duration(random.Int64N(int64(whole))), time.Duration(random.IntN(40))*time.Millisecond
		end := []string{e2e.EndResumed, e2e.EndGivenUp}[random.IntN(2)]
		t.Run(fmt.Sprintf("%d %v at %v and %v %s", i, sigs, after, between, end), func(t *testing.T) {
			t.Parallel()
			b := e2e.NewDockerMachine(t, endpoint)
			r := b.Start(nil, "run", "job", "--no-input")
			time.Sleep(after)
			for n, sig := range sigs {
				if n > 0 {
					time.Sleep(between)
				}
				_ = syscall.Kill(-r.PID(), sig) // the whole job, as a terminal does; it may have ended
			}
			code, out, errs := r.Wait()
			b.CheckSignalled(sigs, code, out, errs)
			b.PlantStrangers(false)
			b.CheckAccounted()
			if end == e2e.EndGivenUp {
				b.GiveUpAndCheck()
				return
			}
			b.CheckDone(2)
		})
	}
}
