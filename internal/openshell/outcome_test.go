package openshell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// effect is a call that changes something, with its name and the answer of one that went well.
type effect struct {
	rpc  string
	good any
	do   func(ctx context.Context, g *Gateway) (resource.Outcome, error)
}

func effects() map[string]effect {
	return map[string]effect{
		"create": {"CreateSandbox", &wire.SandboxResponse{Sandbox: sandbox("lw-a", "id", nil)}, func(ctx context.Context, g *Gateway) (resource.Outcome, error) {
			_, done, err := g.Create(ctx, &wire.CreateSandboxRequest{Name: "lw-a"})
			return done, err
		}},
		"delete": {"DeleteSandbox", &wire.DeleteSandboxResponse{Deleted: true}, func(ctx context.Context, g *Gateway) (resource.Outcome, error) { return g.Delete(ctx, "lw-a") }},
		"import profile": {"ImportProviderProfiles", &wire.ImportProviderProfilesResponse{Imported: true}, func(ctx context.Context, g *Gateway) (resource.Outcome, error) {
			return g.ImportProfile(ctx, &wire.ProviderProfile{Id: "mine"}, "laufwerk")
		}},
		"create provider": {"CreateProvider", &wire.ProviderResponse{}, func(ctx context.Context, g *Gateway) (resource.Outcome, error) {
			return g.CreateProvider(ctx, &wire.Provider{Metadata: &wire.ObjectMeta{Name: "p"}})
		}},
		"update provider": {"UpdateProvider", &wire.ProviderResponse{}, func(ctx context.Context, g *Gateway) (resource.Outcome, error) {
			return g.UpdateProvider(ctx, &wire.Provider{Metadata: &wire.ObjectMeta{Name: "p"}})
		}},
	}
}

// What a gateway answers decides what is known: a refusal is No, all that does not say so is Unknown. Nothing is sent twice.
func TestOutcomesOfAnswers(t *testing.T) {
	certain := []codes.Code{codes.InvalidArgument, codes.FailedPrecondition, codes.PermissionDenied, codes.Unauthenticated, codes.NotFound}
	for name, e := range effects() {
		t.Run(name, func(t *testing.T) {
			var code codes.Code
			s := serve(t, &fake{do: func(context.Context, any) (any, error) { return e.good, status.Error(code, "because\x1b[2J") }})
			g := s.connect(t)
			if done, err := e.do(t.Context(), g); done != resource.Done || err != nil {
				t.Errorf("well: %s, %v", done, err)
			}
			for code = codes.Canceled; code <= codes.Unauthenticated; code++ {
				before := s.called(e.rpc)
				done, err := e.do(t.Context(), g)
				want, kind := resource.Unknown, failure.OutcomeUnknown
				if slices.Contains(certain, code) {
					want, kind = resource.NotDone, failure.Failed
				}
				switch {
				case code == codes.AlreadyExists && name == "create":
					kind = failure.AlreadyExists
				case code == codes.AlreadyExists && name != "delete":
					want, kind = resource.NotDone, failure.AlreadyExists
				case code == codes.AlreadyExists:
					kind = failure.AlreadyExists
				case code == codes.PermissionDenied || code == codes.Unauthenticated || code == codes.NotFound:
					kind = failure.NotReady
				}
				if done != want || !failure.Is(err, kind) || !strings.Contains(err.Error(), "because") || strings.ContainsRune(err.Error(), 0x1b) {
					t.Errorf("%s: %s, %s: %v", code, done, failure.KindOf(err), err)
				}
				if n := s.called(e.rpc) - before; n != 1 {
					t.Errorf("%s: %d requests", code, n)
				}
			}
		})
	}
}

// The effect may have happened where its answer is lost, late or cut off.
func TestOutcomesWithoutAnAnswer(t *testing.T) {
	for name, e := range effects() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := serve(t, &fake{})
			g := s.connect(t)
			g.limits.effect = 300 * time.Millisecond
			why := errors.New("asked to stop")

			s.then(func(context.Context) (any, error) { s.cut(); return e.good, nil })
			done, err := e.do(t.Context(), g)
			if done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(err.Error(), "was interrupted") || s.called(e.rpc) != 1 {
				t.Errorf("cut: %s, %v, %d requests", done, err, s.called(e.rpc))
			}
			s.then(func(ctx context.Context) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
			done, err = e.do(t.Context(), g)
			if done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(err.Error(), "did not answer within 300ms") {
				t.Errorf("hanging: %s, %v", done, err)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			s.then(func(ctx context.Context) (any, error) { cancel(why); <-ctx.Done(); return nil, ctx.Err() })
			done, err = e.do(ctx, g)
			if done != resource.Unknown || !errors.Is(err, why) {
				t.Errorf("given up: %s, %v", done, err)
			}
			if n := s.called(e.rpc); n != 3 {
				t.Errorf("%d requests instead of 3", n)
			}
			s.then(func(context.Context) (any, error) { return e.good, nil })
			if done, err = e.do(ctx, g); done != resource.NotDone || !errors.Is(err, why) {
				t.Errorf("given up before: %s, %v", done, err)
			}
			if done, err = e.do(t.Context(), g); done != resource.Done || err != nil {
				t.Errorf("after all that: %s, %v", done, err)
			}
			s.stop()
			for done = resource.Unknown; done == resource.Unknown; { // until it is noticed that the connection is no more
				done, err = e.do(t.Context(), g)
			}
			if done != resource.NotDone || !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "nothing listens") {
				t.Errorf("not there: %s, %s: %v", done, failure.KindOf(err), err)
			}
		})
	}
}

func TestCreate(t *testing.T) {
	var got *wire.CreateSandboxRequest
	answer := &wire.SandboxResponse{Sandbox: sandbox("lw-a", "id", nil)}
	s := serve(t, &fake{do: func(_ context.Context, r any) (any, error) { got = r.(*wire.CreateSandboxRequest); return answer, nil }})
	g := s.connect(t)
	request := &wire.CreateSandboxRequest{Name: "lw-a", Labels: Labels("o", "c", "r")}
	made, done, err := g.Create(t.Context(), request)
	if err != nil || done != resource.Done || made.GetMetadata().GetId() != "id" || got.GetWorkspace() != "default" || got.GetLabels()[LabelClaim] != "c" || request.GetWorkspace() != "" {
		t.Errorf("%v, %s, %v of %v", made, done, err, got)
	}
	answer = &wire.SandboxResponse{}
	if _, done, err := g.Create(t.Context(), request); done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) {
		t.Errorf("an empty answer: %s, %v", done, err)
	}
	big := &wire.CreateSandboxRequest{Name: "lw-a", Annotations: map[string]string{"x": strings.Repeat("x", 1<<20)}}
	var large *RequestTooLarge
	if _, done, err := g.Create(t.Context(), big); done != resource.NotDone || !errors.As(err, &large) || s.called("CreateSandbox") != 2 {
		t.Errorf("too large: %s, %v", done, err)
	}
}

// Absent is what the gateway says of this name, and nothing else.
func TestGet(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		err    error
		want   resource.Presence
		kind   failure.Kind
	}{
		"there":               {&wire.SandboxResponse{Sandbox: sandbox("lw-a", "id", nil)}, nil, resource.Present, ""},
		"not there":           {nil, status.Error(codes.NotFound, "sandbox not found"), resource.Absent, ""},
		"no workspace":        {nil, status.Error(codes.NotFound, "workspace 'default' not found"), resource.Unobserved, failure.NotReady},
		"a workspace so":      {nil, status.Error(codes.NotFound, "workspace 'sandbox not found' not found"), resource.Unobserved, failure.NotReady},
		"not there, no text":  {nil, status.Error(codes.NotFound, ""), resource.Unobserved, failure.NotReady},
		"another code":        {nil, status.Error(codes.Internal, "sandbox not found"), resource.Unobserved, failure.NotReady},
		"not permitted":       {nil, status.Error(codes.PermissionDenied, "no"), resource.Unobserved, failure.NotReady},
		"an empty answer":     {&wire.SandboxResponse{}, nil, resource.Unobserved, failure.NotReady},
		"another one's":       {&wire.SandboxResponse{Sandbox: sandbox("lw-b", "id", nil)}, nil, resource.Unobserved, failure.NotReady},
		"one without an id":   {&wire.SandboxResponse{Sandbox: sandbox("lw-a", "", nil)}, nil, resource.Unobserved, failure.NotReady},
		"an unavailable peer": {nil, status.Error(codes.Unavailable, "database is away"), resource.Unobserved, failure.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			g := serve(t, &fake{do: func(context.Context, any) (any, error) { return c.answer, c.err }}).connect(t)
			s, is, err := g.Get(t.Context(), "lw-a")
			if is != c.want || failure.KindOf(err) != c.kind || (s != nil) != (is == resource.Present) {
				t.Errorf("%v, %s, %v", s, is, err)
			}
		})
	}
}

func TestDeleteOfWhatIsNotThere(t *testing.T) {
	text := "sandbox not found"
	g := serve(t, &fake{do: func(context.Context, any) (any, error) { return nil, status.Error(codes.NotFound, text) }}).connect(t)
	if done, err := g.Delete(t.Context(), "lw-a"); done != resource.Done || err != nil {
		t.Errorf("%s, %v", done, err)
	}
	text = "workspace 'default' not found"
	if done, err := g.Delete(t.Context(), "lw-a"); done != resource.NotDone || err == nil {
		t.Errorf("no workspace: %s, %v", done, err)
	}
}

func TestPolicySource(t *testing.T) {
	source := wire.PolicySource_POLICY_SOURCE_GLOBAL
	g := serve(t, &fake{do: func(_ context.Context, r any) (any, error) {
		if r.(*wire.GetSandboxConfigRequest).GetSandboxId() != "id" {
			return nil, status.Error(codes.NotFound, "sandbox not found")
		}
		return &wire.GetSandboxConfigResponse{PolicySource: source}, nil
	}}).connect(t)
	if is, err := g.PolicySource(t.Context(), "id"); is != source || err != nil {
		t.Errorf("%s, %v", is, err)
	}
	source = 0
	for _, id := range []string{"id", "other"} {
		if is, err := g.PolicySource(t.Context(), id); is != wire.PolicySource_POLICY_SOURCE_UNSPECIFIED || err == nil {
			t.Errorf("%s: %s, %v", id, is, err)
		}
	}
}

// listing is a gateway with rows, of which some vanish while it is asked.
type listing struct {
	rows  []*wire.Sandbox
	while func(l *listing, request int)
	asked int
}

func (l *listing) do(_ context.Context, request any) (any, error) {
	r := request.(*wire.ListSandboxesRequest)
	if r.GetLimit() != 1000 || r.GetWorkspace() != "default" || r.GetLabelSelector() != "a=1,b=2" {
		return nil, status.Errorf(codes.InvalidArgument, "asked %v", r)
	}
	l.asked++
	if l.while != nil {
		l.while(l, l.asked)
	}
	from := min(int(r.GetOffset()), len(l.rows))
	return &wire.ListSandboxesResponse{Sandboxes: l.rows[from:min(from+1000, len(l.rows))]}, nil
}

func TestList(t *testing.T) {
	labels := map[string]string{"b": "2", "a": "1"}
	rows := func(n int) []*wire.Sandbox {
		var out []*wire.Sandbox
		for i := range n {
			out = append(out, sandbox(fmt.Sprint("lw-", i), fmt.Sprint("id-", i), labels))
		}
		return out
	}
	for name, c := range map[string]struct {
		n     int
		while func(l *listing, request int)
		calls int // 0: however many
	}{
		"none":             {0, nil, 1},
		"some":             {7, nil, 1},
		"just not a page":  {999, nil, 1},
		"a page":           {1000, nil, 2},
		"more than a page": {1001, nil, 2},
		"three pages":      {2500, nil, 3},
		"the first vanish": {2500, func(l *listing, r int) { l.rows = l.rows[min(1, 3-min(r, 3)):] }, 0},
		"the overlap goes": {1500, func(l *listing, r int) {
			if r == 2 {
				l.rows = slices.Delete(slices.Clone(l.rows), 999, 1000)
			}
		}, 0},
		"the last vanish": {1500, func(l *listing, r int) {
			if r == 2 {
				l.rows = l.rows[:1200]
			}
		}, 2},
		"nearly all vanish": {2500, func(l *listing, r int) {
			if r == 2 {
				l.rows = l.rows[:10]
			}
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l := &listing{rows: rows(c.n), while: c.while}
			s := serve(t, &fake{do: l.do})
			found, err := s.connect(t).List(t.Context(), labels)
			if err != nil {
				t.Fatal(err)
			}
			ids := map[string]bool{}
			for _, f := range found {
				ids[f.GetMetadata().GetId()] = true
			}
			for _, r := range l.rows { // what is there at the end was there all the time
				if !ids[r.GetMetadata().GetId()] {
					t.Fatalf("%s is missing, of %d", r.GetMetadata().GetName(), len(l.rows))
				}
			}
			if len(ids) != len(found) || c.calls != 0 && l.asked != c.calls {
				t.Errorf("%d found, %d of them different, in %d calls", len(found), len(ids), l.asked)
			}
		})
	}
	t.Run("always moving", func(t *testing.T) {
		l := &listing{rows: rows(3000), while: func(l *listing, _ int) { l.rows = l.rows[1:] }}
		if found, err := serve(t, &fake{do: l.do}).connect(t).List(t.Context(), labels); !failure.Is(err, failure.NotReady) {
			t.Errorf("%d found, %v", len(found), err)
		}
	})
	t.Run("strangers", func(t *testing.T) { // a gateway that does not select
		l := &listing{rows: append(rows(2), sandbox("x", "x", map[string]string{"a": "1"}), sandbox("y", "y", map[string]string{"a": "1", "b": "3"}))}
		if found, err := serve(t, &fake{do: l.do}).connect(t).List(t.Context(), labels); err != nil || len(found) != 2 {
			t.Errorf("%v, %v", found, err)
		}
	})
}

func out(text string) *wire.ExecSandboxEvent {
	return &wire.ExecSandboxEvent{Payload: &wire.ExecSandboxEvent_Stdout{Stdout: &wire.ExecSandboxStdout{Data: []byte(text)}}}
}

func errs(text string) *wire.ExecSandboxEvent {
	return &wire.ExecSandboxEvent{Payload: &wire.ExecSandboxEvent_Stderr{Stderr: &wire.ExecSandboxStderr{Data: []byte(text)}}}
}

func exit(code int32) *wire.ExecSandboxEvent {
	return &wire.ExecSandboxEvent{Payload: &wire.ExecSandboxEvent_Exit{Exit: &wire.ExecSandboxExit{ExitCode: code}}}
}

func TestExec(t *testing.T) {
	var got *wire.ExecSandboxRequest
	g := serve(t, &fake{exec: func(r *wire.ExecSandboxRequest, send func(*wire.ExecSandboxEvent) error) error {
		got = r
		for _, e := range []*wire.ExecSandboxEvent{out("one "), errs("two"), {}, out("three"), exit(7)} {
			if err := send(e); err != nil {
				return err
			}
		}
		return nil
	}}).connect(t)
	var stdout, stderr bytes.Buffer
	code, done, err := g.Exec(t.Context(), "id", Command{Argv: []string{"a", "b c", ""}, Env: []string{"A=1", "B=x=y", "C="}, Dir: "/d", Stdin: []byte("in")}, &stdout, &stderr)
	if code != 7 || done != resource.Done || err != nil || stdout.String() != "one three" || stderr.String() != "two" {
		t.Errorf("%d, %s, %v, %q, %q", code, done, err, &stdout, &stderr)
	}
	if got.GetSandboxId() != "id" || !slices.Equal(got.GetCommand(), []string{"a", "b c", ""}) || got.GetEnvironment()["B"] != "x=y" || len(got.GetEnvironment()) != 3 ||
		got.GetWorkdir() != "/d" || string(got.GetStdin()) != "in" || got.GetTimeoutSeconds() != 0 || got.GetTty() {
		t.Errorf("asked %v", got)
	}
}

// A command whose exit code did not come may have run, and may run on. Only an answer before its first word says that it did not.
func TestOutcomesOfExec(t *testing.T) {
	var s *served
	type send = func(*wire.ExecSandboxEvent) error
	for name, c := range map[string]struct {
		exec func(send send) error
		want resource.Outcome
		kind failure.Kind
		says string
	}{
		"not ready":            {func(send) error { return status.Error(codes.FailedPrecondition, "sandbox is not ready") }, resource.NotDone, failure.Failed, "sandbox is not ready"},
		"not there":            {func(send) error { return status.Error(codes.NotFound, "sandbox not found") }, resource.NotDone, failure.NotReady, "sandbox not found"},
		"bad":                  {func(send) error { return status.Error(codes.InvalidArgument, "command too long") }, resource.NotDone, failure.Failed, "command too long"},
		"no relay":             {func(send) error { return status.Error(codes.Unavailable, "supervisor relay failed") }, resource.Unknown, failure.OutcomeUnknown, "supervisor relay failed"},
		"no relay in time":     {func(send) error { return status.Error(codes.DeadlineExceeded, "relay open timed out") }, resource.Unknown, failure.OutcomeUnknown, "relay open timed out"},
		"no code":              {func(send) error { return nil }, resource.Unknown, failure.OutcomeUnknown, "without the command's exit code"},
		"no code after output": {func(send send) error { return send(out("x")) }, resource.Unknown, failure.OutcomeUnknown, "without the command's exit code"},
		"a refusal after output": {func(send send) error {
			_ = send(out("x"))
			return status.Error(codes.NotFound, "sandbox not found")
		}, resource.Unknown, failure.OutcomeUnknown, "sandbox not found"},
		"cut": {func(send) error { s.cut(); return nil }, resource.Unknown, failure.OutcomeUnknown, "was interrupted"},
		"cut after output": {func(send send) error {
			_ = send(out("x"))
			s.cut()
			return nil
		}, resource.Unknown, failure.OutcomeUnknown, "was interrupted"},
		"an error after the code": {func(send send) error {
			_ = send(exit(3))
			return status.Error(codes.Internal, "late")
		}, resource.Done, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var times atomic.Int32
			s = serve(t, &fake{exec: func(_ *wire.ExecSandboxRequest, send func(*wire.ExecSandboxEvent) error) error {
				times.Add(1)
				return c.exec(send)
			}})
			g := s.connect(t)
			_, done, err := g.Exec(t.Context(), "id", Command{Argv: []string{"x"}}, io.Discard, io.Discard)
			if done != c.want || failure.KindOf(err) != c.kind || err != nil && !strings.Contains(err.Error(), c.says) || times.Load() != 1 {
				t.Errorf("%s, %s: %v, %d times", done, failure.KindOf(err), err, times.Load())
			}
		})
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestExecThatIsNotFollowed(t *testing.T) {
	ended := make(chan struct{}, 2)
	s := serve(t, &fake{exec: func(_ *wire.ExecSandboxRequest, send func(*wire.ExecSandboxEvent) error) error {
		for send(out("x")) == nil {
			time.Sleep(time.Millisecond)
		}
		ended <- struct{}{}
		return nil
	}})
	g := s.connect(t)
	_, done, err := g.Exec(t.Context(), "id", Command{Argv: []string{"x"}}, broken{}, io.Discard)
	if done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("%s, %v", done, err)
	}
	<-ended
	why := errors.New("asked to stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	_, done, err = g.Exec(ctx, "id", Command{Argv: []string{"x"}}, writer(func([]byte) { cancel(why) }), io.Discard)
	if done != resource.Unknown || !errors.Is(err, why) {
		t.Errorf("%s, %v", done, err)
	}
	<-ended
}

type writer func([]byte)

func (w writer) Write(b []byte) (int, error) { w(b); return len(b), nil }

// A request has to be below 1 MiB with everything in it.
func TestExecInput(t *testing.T) {
	var got int
	s := serve(t, &fake{exec: func(r *wire.ExecSandboxRequest, send func(*wire.ExecSandboxEvent) error) error {
		got = len(r.GetStdin())
		return send(exit(0))
	}})
	g := s.connect(t)
	for _, n := range []int{0, 1, 1_040_000, 1<<20 - 64} {
		if _, done, err := g.Exec(t.Context(), "id", Command{Argv: []string{"cat"}, Stdin: make([]byte, n)}, io.Discard, io.Discard); done != resource.Done || err != nil || got != n {
			t.Errorf("%d bytes: %s, %v, %d arrived", n, done, err, got)
		}
	}
	got = -1
	for _, n := range []int{1<<20 - 2, 1 << 20, 5 << 20} {
		_, done, err := g.Exec(t.Context(), "id", Command{Argv: []string{"cat"}, Stdin: make([]byte, n)}, io.Discard, io.Discard)
		var large *RequestTooLarge
		if done != resource.NotDone || !errors.As(err, &large) || large.Limit != 1<<20-1 || large.Size <= large.Limit || got != -1 {
			t.Errorf("%d bytes: %s, %v, %d arrived", n, done, err, got)
		}
	}
	if _, done, err := g.Exec(t.Context(), "id", Command{Argv: []string{"cat"}, Env: []string{"A"}}, io.Discard, io.Discard); done != resource.NotDone || err == nil {
		t.Errorf("a variable without a value: %s, %v", done, err)
	}
}

// A thousand sandboxes with large policies come in one answer of many MiB.
func TestLargeAnswers(t *testing.T) {
	big := sandbox("lw-a", "id", nil)
	big.Spec = &wire.SandboxSpec{Environment: map[string]string{"x": strings.Repeat("x", 20<<20)}}
	g := serve(t, &fake{do: func(context.Context, any) (any, error) { return &wire.SandboxResponse{Sandbox: big}, nil }}).connect(t)
	if s, is, err := g.Get(t.Context(), "lw-a"); is != resource.Present || err != nil || len(s.GetSpec().GetEnvironment()["x"]) != 20<<20 {
		t.Errorf("%s, %v", is, err)
	}
}
