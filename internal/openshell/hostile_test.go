package openshell

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
)

// Told of a deadline, a gateway would end the call at the same moment, and its words would be the explanation.
func TestAGatewayIsNotToldOfDeadlines(t *testing.T) {
	s := serve(t, &fake{})
	g := s.connect(t)
	told := make(chan bool, 1)
	s.then(func(ctx context.Context) (any, error) {
		_, ok := ctx.Deadline()
		told <- ok
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, presence, err := g.Get(ctx, "a")
	if presence != providers.Unseen || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v %v", presence, err)
	}
	if <-told {
		t.Error("it was told of the deadline")
	}
	if _, done, err := g.Create(ctx, &wire.CreateSandboxRequest{Name: "a"}); done != providers.No || !errors.Is(err, context.DeadlineExceeded) || s.called("CreateSandbox") > 0 {
		t.Errorf("after the deadline: %v %v", done, err)
	}
}

// An answer that speaks of something else says nothing of what was asked for.
func TestCreateAnsweredWithAnotherSandbox(t *testing.T) {
	s := serve(t, &fake{})
	g := s.connect(t)
	s.then(func(context.Context) (any, error) {
		return &wire.SandboxResponse{Sandbox: &wire.Sandbox{Metadata: &wire.ObjectMeta{Id: "x", Name: "another"}}}, nil
	})
	sb, done, err := g.Create(t.Context(), &wire.CreateSandboxRequest{Name: "asked-for"})
	if sb != nil || done != providers.Unknown || !failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(err.Error(), "another") {
		t.Errorf("%v %v %v", sb, done, err)
	}
}
