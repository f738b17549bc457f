package engine_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// hangs is how long a test waits for what must come, and answers that must not come are waited for shortly.
const (
	hangs   = time.Minute
	shortly = 50 * time.Millisecond
)

// served is an HTTP server on a unix socket that counts what reaches it and echoes bodies.
type served struct {
	endpoint string
	effects  atomic.Int64
}

func serve(t *testing.T) *served {
	t.Helper()
	dir, err := os.MkdirTemp("", "lw")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &served{endpoint: "unix://" + filepath.Join(dir, "s")}
	l, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1.41/containers/create", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.effects.Add(1)
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"Id":"0123456789","Body":%q}`, body)
	})
	mux.HandleFunc("DELETE /v1.41/containers/{id}", func(w http.ResponseWriter, _ *http.Request) {
		s.effects.Add(1)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"ID":"one","DockerRootDir":"/var/lib/docker","NCPU":2}`)
	})
	server := &httptest.Server{Listener: l, Config: &http.Server{Handler: mux}}
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// caller speaks HTTP to a unix socket, without the retries of a client that reuses connections.
func caller(t *testing.T, endpoint string) func(ctx context.Context, method, path, body string) (int, string, error) {
	t.Helper()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", strings.TrimPrefix(endpoint, "unix://"))
	}}
	return func(ctx context.Context, method, path, body string) (int, string, error) {
		request, err := http.NewRequestWithContext(ctx, method, "http://engine"+path, strings.NewReader(body))
		if err != nil {
			return 0, "", err
		}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return 0, "", err
		}
		defer response.Body.Close()
		b, err := io.ReadAll(response.Body)
		return response.StatusCode, string(b), err
	}
}

const (
	create = "/v1.41/containers/create"
	whole  = `{"Id":"0123456789","Body":"{}"}`
)

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hangs)
	t.Cleanup(cancel)
	return ctx
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(hangs):
		t.Fatal("hangs: " + what)
	}
}

func TestFaults(t *testing.T) {
	tests := []struct {
		name    string
		fault   engine.Fault
		effects int64
		status  int // 0: an error
		body    string
	}{
		{"request lost", engine.LoseRequest(), 0, 0, ""},
		{"reply lost", engine.LoseReply(), 1, 0, ""},
		{"500", engine.Fail(500), 0, 500, `{"message":"the engine failed, says the test"}` + "\n"},
		{"500 after", engine.FailAfter(500), 1, 500, `{"message":"the engine failed, says the test"}` + "\n"},
		{"truncated", engine.Truncate(), 1, 201, whole[:len(whole)/2]},
		{"gone before", engine.Vanish(), 0, 0, ""},
		{"gone after", engine.VanishAfter(), 1, 0, ""},
		{"something before", engine.Before(func() {}), 1, 201, whole},
		{"something after", engine.After(func() {}), 1, 201, whole},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t)
			p := engine.NewProxy(t, s.endpoint)
			call, ctx := caller(t, p.Endpoint), bounded(t)
			rule := p.On(engine.Create, 2, test.fault)
			if status, body, err := call(ctx, "POST", create, "{}"); status != 201 || body != whole || err != nil {
				t.Fatalf("the first call: %d %s %v", status, body, err)
			}
			status, body, err := call(ctx, "POST", create, "{}")
			await(t, "the rule", rule.Met())
			await(t, "the rule's end", rule.Done())
			if status != test.status || body != test.body || (err != nil) != (test.status == 0) {
				t.Errorf("the second call: %d %q %v; want %d %q", status, body, err, test.status, test.body)
			}
			if got := s.effects.Load() - 1; got != test.effects {
				t.Errorf("%d effects, want %d", got, test.effects)
			}
			if strings.HasPrefix(test.name, "gone") {
				if _, _, err := call(ctx, "POST", create, "{}"); !errors.Is(err, syscall.ECONNREFUSED) {
					t.Errorf("while the engine is gone: %v", err)
				}
				p.Return()
			}
			if status, body, err := call(ctx, "POST", create, "{}"); status != 201 || body != whole || err != nil {
				t.Errorf("the last call: %d %s %v", status, body, err)
			}
			if got := p.Count(engine.Create); got != 3 {
				t.Errorf("%d calls counted, want 3: %v", got, p.Calls())
			}
		})
	}
}

func TestFaultsOfAReplyWithoutABody(t *testing.T) {
	s := serve(t)
	p := engine.NewProxy(t, s.endpoint)
	call, ctx := caller(t, p.Endpoint), bounded(t)
	p.On(engine.Delete, 1, engine.Truncate())
	if status, body, err := call(ctx, "DELETE", "/v1.41/containers/x", ""); err == nil || s.effects.Load() != 1 {
		t.Errorf("%d %q %v, %d effects", status, body, err, s.effects.Load())
	}
	if status, body, err := call(ctx, "DELETE", "/v1.41/containers/x?force=1", ""); status != 204 || body != "" || err != nil {
		t.Errorf("%d %q %v", status, body, err)
	}
	want := []engine.Call{{Operation: engine.Delete, Name: "x", Fault: "truncated reply"}, {Operation: engine.Delete, Name: "x", Query: "force=1"}}
	if got := p.Calls(); !slices.Equal(got, want) {
		t.Errorf("calls %+v", got)
	}
}

func TestDelayedCalls(t *testing.T) {
	type answer struct {
		status int
		body   string
		err    error
	}
	tests := []struct {
		name          string
		fault         engine.Fault
		before, after int64 // effects while it is held, and then
		released      int   // the status then; 0: an error
	}{
		{"late reply", engine.LateReply(), 1, 1, 201},
		{"late request", engine.LateRequest(), 0, 1, 201},
		{"hang", engine.Hang(), 0, 0, 0},
	}
	for _, test := range tests {
		start := func(t *testing.T, base context.Context) (*served, *engine.Proxy, *engine.Rule, context.CancelFunc, <-chan answer) {
			s := serve(t)
			p := engine.NewProxy(t, s.endpoint)
			rule := p.On(engine.Create, 1, test.fault)
			ctx, cancel := context.WithCancel(base)
			came := make(chan answer, 1)
			go func() {
				status, body, err := caller(t, p.Endpoint)(ctx, "POST", create, "{}")
				came <- answer{status, body, err}
			}()
			await(t, "the rule", rule.Met())
			if got := s.effects.Load(); got != test.before {
				t.Errorf("%d effects while it is held, want %d", got, test.before)
			}
			select {
			case early := <-came:
				t.Fatalf("not held: %+v", early)
			case <-time.After(shortly):
			}
			return s, p, rule, cancel, came
		}
		t.Run(test.name+"/released", func(t *testing.T) {
			s, _, rule, _, came := start(t, bounded(t))
			rule.Release()
			if got := <-came; got.status != test.released || (got.err != nil) != (test.released == 0) {
				t.Errorf("%+v", got)
			}
			if got := s.effects.Load(); got != test.after {
				t.Errorf("%d effects, want %d", got, test.after)
			}
		})
		t.Run(test.name+"/client gone", func(t *testing.T) {
			s, _, rule, cancel, came := start(t, bounded(t))
			cancel()
			if got := <-came; !errors.Is(got.err, context.Canceled) {
				t.Errorf("%+v", got)
			}
			rule.Release()
			await(t, "the rule's end", rule.Done())
			if got := s.effects.Load(); got != test.after {
				t.Errorf("%d effects, want %d", got, test.after)
			}
		})
		t.Run(test.name+"/proxy ends", func(t *testing.T) {
			var came <-chan answer
			ctx := bounded(t)
			t.Run("", func(t *testing.T) { _, _, _, _, came = start(t, ctx) })
			if got := <-came; got.err == nil || ctx.Err() != nil {
				t.Errorf("%+v", got)
			}
		})
		t.Run(test.name+"/reset", func(t *testing.T) {
			_, p, _, _, came := start(t, bounded(t))
			p.Reset()
			if got := <-came; got.status != test.released {
				t.Errorf("%+v", got)
			}
			if p.Count() != 0 {
				t.Errorf("calls are left: %v", p.Calls())
			}
		})
	}
}

func TestAnotherEngine(t *testing.T) {
	one, two := serve(t), serve(t)
	p := engine.NewProxy(t, one.endpoint)
	call, ctx := caller(t, p.Endpoint), bounded(t)
	p.Pretend("other")
	if status, body, err := call(ctx, "GET", "/info", ""); status != 200 || body != `{"DockerRootDir":"/var/lib/other","ID":"other","NCPU":2}` || err != nil {
		t.Errorf("%d %s %v", status, body, err)
	}
	p.Pretend("")
	if _, body, err := call(ctx, "GET", "/info", ""); !strings.Contains(body, `"ID":"one"`) || err != nil {
		t.Errorf("%s %v", body, err)
	}
	p.Forward(two.endpoint)
	if status, _, err := call(ctx, "POST", create, "{}"); status != 201 || err != nil || one.effects.Load() != 0 || two.effects.Load() != 1 {
		t.Errorf("%d %v, effects %d and %d", status, err, one.effects.Load(), two.effects.Load())
	}
}

func TestLeaveCutsWhatIsUnderWay(t *testing.T) {
	s := serve(t)
	p := engine.NewProxy(t, s.endpoint)
	rule := p.On(engine.Create, 1, engine.Hang())
	failed := make(chan error, 1)
	call := caller(t, p.Endpoint)
	go func() {
		_, _, err := call(bounded(t), "POST", create, "{}")
		failed <- err
	}()
	await(t, "the rule", rule.Met())
	p.Leave()
	if err := <-failed; err == nil {
		t.Error("the call ended well")
	}
	p.Return()
	if status, _, err := call(bounded(t), "POST", create, "{}"); status != 201 || err != nil {
		t.Errorf("%d %v", status, err)
	}
}

func TestOperations(t *testing.T) {
	p := engine.NewProxy(t, serve(t).endpoint)
	call, ctx := caller(t, p.Endpoint), bounded(t)
	for request, want := range map[string]engine.Call{
		"HEAD /_ping":                        {Operation: engine.Ping},
		"GET /v1.41/containers/json?all=1":   {Operation: engine.List, Query: "all=1"},
		"GET /containers/a/json":             {Operation: engine.Inspect, Name: "a"},
		"POST /v1.41/containers/a/exec":      {Operation: engine.ExecCreate, Name: "a"},
		"POST /v1.41/exec/e/start":           {Operation: engine.ExecStart, Name: "e"},
		"GET /v1.41/images/a/b/c:1/json":     {Operation: engine.ImageInspect, Name: "a/b/c:1"},
		"DELETE /v1.41/images/a/b:1?force=1": {Operation: engine.ImageRemove, Name: "a/b:1", Query: "force=1"},
		"POST /v1.41/containers/a/pause":     {Operation: "POST /containers/*/pause", Name: "a"},
		"POST /v1.41/networks/create":        {Operation: "POST /networks/*", Name: "create"},
		"GET /v1.41/networks":                {Operation: "GET /networks"},
	} {
		p.Reset()
		method, path, _ := strings.Cut(request, " ")
		if _, _, err := call(ctx, method, path, ""); err != nil {
			t.Errorf("%s: %v", request, err)
		}
		if got := p.Calls(); !slices.Equal(got, []engine.Call{want}) {
			t.Errorf("%s: %+v, want %+v", request, got, want)
		}
	}
}

func TestLargeBodiesGoThrough(t *testing.T) {
	p := engine.NewProxy(t, serve(t).endpoint)
	sent := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<18))
	status, body, err := caller(t, p.Endpoint)(bounded(t), "POST", create, sent)
	if status != 201 || err != nil || body != `{"Id":"0123456789","Body":"`+sent+`"}` {
		t.Errorf("%d, %d bytes, %v", status, len(body), err)
	}
}
