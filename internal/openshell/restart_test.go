package openshell

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// While a gateway is cut off, stopped and started again, no request arrives twice, and what a call says of itself is so.
func TestNothingIsSentTwice(t *testing.T) {
	var mu sync.Mutex
	arrived := map[string]int{}
	s := serve(t, &fake{do: func(_ context.Context, r any) (any, error) {
		name := r.(*wire.CreateSandboxRequest).GetName()
		mu.Lock()
		arrived[name]++
		mu.Unlock()
		time.Sleep(time.Millisecond)
		return &wire.SandboxResponse{Sandbox: sandbox(name, "id", nil)}, nil
	}})
	g := s.connect(t)

	stop := make(chan struct{})
	outcomes := make([]map[string]resource.Outcome, 8)
	var makers sync.WaitGroup
	for i := range outcomes {
		outcomes[i] = map[string]resource.Outcome{}
		makers.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				name := fmt.Sprintf("lw-%d-%d", i, n)
				_, done, err := g.Create(t.Context(), &wire.CreateSandboxRequest{Name: name})
				if (done == resource.Done) != (err == nil) {
					t.Errorf("%s: %s, %v", name, done, err)
				}
				outcomes[i][name] = done
			}
		})
	}
	for round := range 30 {
		time.Sleep(5 * time.Millisecond)
		switch round % 3 {
		case 0:
			s.cut()
		case 1:
			s.stop()
			s.start(t)
		case 2: // connections are told to end, and answer what they have begun
			s.mu.Lock()
			server := s.server
			s.mu.Unlock()
			server.GracefulStop()
			s.start(t)
		}
	}
	close(stop)
	makers.Wait()
	s.stop()

	mu.Lock()
	defer mu.Unlock()
	count := map[resource.Outcome]int{}
	for _, all := range outcomes {
		for name, done := range all {
			count[done]++
			n := arrived[name]
			if n > 1 || done == resource.Done && n != 1 || done == resource.NotDone && n != 0 {
				t.Errorf("%s arrived %d times, and its call says %s", name, n, done)
			}
		}
	}
	if count[resource.Done] == 0 || count[resource.Unknown] == 0 {
		t.Errorf("outcomes: %v", count)
	}
	t.Logf("outcomes: %v", count)
}
