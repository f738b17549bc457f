package openshell

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// Told of a deadline, a gateway would end the call at the same moment, and its words would be the explanation.
func TestDeadlinesAreNotSentToAGateway(t *testing.T) {
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
	if presence != resource.Unobserved || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v %v", presence, err)
	}
	if <-told {
		t.Error("it was told of the deadline")
	}
	if _, done, err := g.Create(ctx, &wire.CreateSandboxRequest{Name: "a"}); done != resource.NotDone || !errors.Is(err, context.DeadlineExceeded) || s.called("CreateSandbox") > 0 {
		t.Errorf("after the deadline: %v %v", done, err)
	}
}

// What lies among the registrations is named as far as it is one, and a few are enough.
func TestUnregisteredAmongMany(t *testing.T) {
	config := registered(t, newAuthority(t), "lab", "https://127.0.0.1:1")
	for i := range 40 {
		put(t, filepath.Join(config, "openshell/gateways", fmt.Sprintf("z%02d", i), "x"), "")
	}
	put(t, filepath.Join(config, "openshell/gateways/.DS_Store"), "")
	put(t, filepath.Join(config, "openshell/gateways/a\x1b[31mred\nline/x"), "")
	_, err := Registrations{Vars: map[string]string{"XDG_CONFIG_HOME": config}}.Find("lob")
	if !strings.Contains(err.Error(), "registered there: lab, z00, z01, ") || !strings.Contains(err.Error(), "z08, and 31 more)") || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("%q", err)
	}
}

func TestANameThatLeadsNowhere(t *testing.T) {
	g := &Gateway{registration: Registration{Alias: "lab", Endpoint: "https://x.localhost:1", host: "x.localhost"}}
	err := g.connectionError(&call{}, status.Error(codes.Unavailable, `connection error: desc = "transport: Error while dialing: dial tcp: lookup x.localhost: no such host"`))
	if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "the name x.localhost cannot be resolved on this machine") {
		t.Errorf("%v", err)
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
	if sb != nil || done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(err.Error(), "another") {
		t.Errorf("%v %v %v", sb, done, err)
	}
}
