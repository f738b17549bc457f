package dockerengine

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// effects are all calls that change something, with the request that does it and the engine's answer for success.
func effects() map[string]struct {
	do      func(ctx context.Context, e *Engine) (resource.Outcome, error)
	request string
	good    string
} {
	type effect = struct {
		do      func(ctx context.Context, e *Engine) (resource.Outcome, error)
		request string
		good    string
	}
	return map[string]effect{
		"create": {func(ctx context.Context, e *Engine) (resource.Outcome, error) {
			_, done, err := e.Create(ctx, "name", &container.Config{Image: "i"}, &container.HostConfig{})
			return done, err
		}, "POST /containers/create", `{"Id":"C1"}`},
		"start":  {func(ctx context.Context, e *Engine) (resource.Outcome, error) { return e.Start(ctx, "C1") }, "POST /containers/C1/start", ""},
		"kill":   {func(ctx context.Context, e *Engine) (resource.Outcome, error) { return e.Kill(ctx, "C1") }, "POST /containers/C1/kill", ""},
		"remove": {func(ctx context.Context, e *Engine) (resource.Outcome, error) { return e.Remove(ctx, "C1") }, "DELETE /containers/C1", ""},
		"exec": {func(ctx context.Context, e *Engine) (resource.Outcome, error) {
			_, done, err := e.Exec(ctx, "C1", Command{Argv: []string{"true"}}, io.Discard, io.Discard)
			return done, err
		}, "POST /exec/X1/start", ""},
		"build": {func(ctx context.Context, e *Engine) (resource.Outcome, error) {
			_, done, err := e.Build(ctx, BuildInput{Context: strings.NewReader("")})
			return done, err
		}, "POST /build", `{"aux":{"ID":"sha256:1"}}`},
		"pull":         {func(ctx context.Context, e *Engine) (resource.Outcome, error) { return e.Pull(ctx, "i", nil) }, "POST /images/create", `{"status":"done"}`},
		"tag":          {func(ctx context.Context, e *Engine) (resource.Outcome, error) { return e.Tag(ctx, "i", "j") }, "POST /images/i/tag", ""},
		"remove image": {func(ctx context.Context, e *Engine) (resource.Outcome, error) { return e.RemoveImage(ctx, "i") }, "DELETE /images/i", `[]`},
	}
}

// faulty is an engine at which one request fares as fault says; all else goes well.
func faulty(t *testing.T, request string, fault func(w http.ResponseWriter, r *http.Request)) *fake {
	return serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		switch at := r.Method + " " + r.URL.Path; at {
		case request:
			fault(w, r)
		case "POST /containers/C1/exec":
			answer(w, 201, `{"Id":"X1"}`)
		case "POST /containers/C1/wait":
			answer(w, 200, `{"StatusCode":137}`)
		case "GET /exec/X1/json":
			answer(w, 200, `{"ID":"X1","Running":false,"ExitCode":0}`)
		default:
			return false
		}
		return true
	})
}

func TestOutcomesOfEffects(t *testing.T) {
	type fault struct {
		do    func(w http.ResponseWriter, r *http.Request)
		want  resource.Outcome
		kinds []failure.Kind // one of them
		says  string
	}
	faults := map[string]fault{
		"refused 400":        {func(w http.ResponseWriter, r *http.Request) { answer(w, 400, `{"message":"bad parameter"}`) }, resource.NotDone, []failure.Kind{failure.Failed, failure.NotReady}, "bad parameter"},
		"refused 403":        {func(w http.ResponseWriter, r *http.Request) { answer(w, 403, `{"message":"plugin says no"}`) }, resource.NotDone, []failure.Kind{failure.Failed, failure.NotReady}, "plugin says no"},
		"refused 409":        {func(w http.ResponseWriter, r *http.Request) { answer(w, 409, `{"message":"conflict: it is in use"}`) }, resource.NotDone, []failure.Kind{failure.Failed, failure.NotReady}, "conflict: it is in use"},
		"refused in pieces":  {func(w http.ResponseWriter, r *http.Request) { answer(w, 400, `{"mess`) }, resource.NotDone, []failure.Kind{failure.Failed, failure.NotReady}, ""},
		"refused odd status": {func(w http.ResponseWriter, r *http.Request) { answer(w, 422, `{"message":"odd"}`) }, resource.NotDone, []failure.Kind{failure.Failed, failure.NotReady}, "odd"},
		"failed 500":         {func(w http.ResponseWriter, r *http.Request) { answer(w, 500, `{"message":"store is full"}`) }, resource.Unknown, []failure.Kind{failure.OutcomeUnknown, failure.NotReady}, "store is full"},
		"failed 503":         {func(w http.ResponseWriter, r *http.Request) { answer(w, 503, `{"message":"shutting down"}`) }, resource.Unknown, []failure.Kind{failure.OutcomeUnknown, failure.NotReady}, "shutting down"},
		"cut before a reply": {func(w http.ResponseWriter, r *http.Request) { cutOff(w, "") }, resource.Unknown, []failure.Kind{failure.OutcomeUnknown, failure.NotReady}, "was interrupted"},
		"cut in the headers": {func(w http.ResponseWriter, r *http.Request) { cutOff(w, "HTTP/1.1 201 Cre") }, resource.Unknown, []failure.Kind{failure.OutcomeUnknown, failure.NotReady}, "was interrupted"},
		"redirected": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusMovedPermanently)
		}, resource.Unknown, []failure.Kind{failure.OutcomeUnknown, failure.NotReady}, ""},
		"answered in garbage": {func(w http.ResponseWriter, r *http.Request) { cutOff(w, "\x15\x03\x01\r\n\r\n") }, resource.Unknown, []failure.Kind{failure.OutcomeUnknown, failure.NotReady}, "was interrupted"},
	}
	for name, e := range effects() {
		t.Run(name, func(t *testing.T) {
			for fname, f := range faults {
				t.Run(fname, func(t *testing.T) {
					c := connected(t, faulty(t, e.request, f.do))
					done, err := e.do(context.Background(), c)
					if done != f.want || err == nil {
						t.Fatalf("%s, %v; want %s", done, err, f.want)
					}
					kind := failure.KindOf(err)
					if kind != f.kinds[0] && !(name == "pull" && kind == f.kinds[1]) {
						t.Errorf("%v is %s", err, kind)
					}
					if !strings.Contains(err.Error(), f.says) {
						t.Errorf("%q does not say %q", err, f.says)
					}
					if strings.Contains(err.Error(), "rror response from daemon") {
						t.Errorf("%q has the client's own words", err)
					}
				})
			}
			t.Run("goes well", func(t *testing.T) {
				c := connected(t, faulty(t, e.request, func(w http.ResponseWriter, r *http.Request) {
					if name == "exec" {
						conn, _ := hijackOf(w, r)
						_ = conn.Close()
						return
					}
					answer(w, 200, e.good)
				}))
				if done, err := e.do(context.Background(), c); done != resource.Done || err != nil {
					t.Errorf("%s, %v", done, err)
				}
			})
			t.Run("hangs", func(t *testing.T) {
				c := connected(t, faulty(t, e.request, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); hang(r) }))
				c.limits = short()
				done, err := e.do(context.Background(), c)
				if done != resource.Unknown || !strings.Contains(err.Error(), "did not answer within 200ms") {
					t.Errorf("%s, %v", done, err)
				}
			})
			t.Run("cancelled half-way", func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				c := connected(t, faulty(t, e.request, func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body); cancel(); hang(r) }))
				done, err := e.do(ctx, c)
				if done != resource.Unknown || !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %v", done, err)
				}
			})
			t.Run("cancelled before", func(t *testing.T) {
				f := faulty(t, e.request, func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
				ctx, cancel := context.WithCancel(context.Background())
				cancel()
				if done, err := e.do(ctx, connected(t, f)); done != resource.NotDone || !errors.Is(err, context.Canceled) {
					t.Errorf("%s, %v", done, err)
				}
			})
			t.Run("engine gone", func(t *testing.T) {
				f := faulty(t, e.request, func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
				c := connected(t, f)
				c.Close()
				if err := os.Remove(f.Endpoint.Socket()); err != nil {
					t.Fatal(err)
				}
				done, err := e.do(context.Background(), c)
				if done != resource.NotDone || !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "no socket") {
					t.Errorf("%s, %v (%s)", done, err, failure.KindOf(err))
				}
			})
		})
	}
}

// An engine that was restarted has left connections that look usable: what they do not take was never sent.
func TestStaleConnectionIsNoDoubt(t *testing.T) {
	f := faulty(t, "POST /containers/C1/start", func(w http.ResponseWriter, r *http.Request) { t.Error("it was sent") })
	c := connected(t, f) // and keeps a connection
	if err := os.Remove(f.Endpoint.Socket()); err != nil {
		t.Fatal(err)
	}
	f.hangUp()
	if done, err := c.Start(context.Background(), "C1"); done != resource.NotDone || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("%s, %v", done, err)
	}
}

func TestWhatRefusalsMean(t *testing.T) {
	refuse := func(status int, message string) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) { answer(w, status, `{"message":"`+message+`"}`) }
	}
	const gone = "No such container: C1"
	for name, c := range map[string]struct {
		effect string
		fault  func(w http.ResponseWriter, r *http.Request)
		done   resource.Outcome
		kind   failure.Kind
		is     error
	}{
		"the name is taken":           {"create", refuse(409, `Conflict. The container name \"/name\" is already in use by container \"x\".`), resource.NotDone, failure.AlreadyExists, nil},
		"the image is missing":        {"create", refuse(404, "No such image: i:latest"), resource.NotDone, failure.NotReady, nil},
		"the network is missing":      {"create", refuse(404, "network x not found"), resource.NotDone, failure.Failed, nil},
		"a create without an id":      {"create", func(w http.ResponseWriter, r *http.Request) { answer(w, 201, `{}`) }, resource.Unknown, failure.OutcomeUnknown, nil},
		"a create that is cut":        {"create", func(w http.ResponseWriter, r *http.Request) { answer(w, 201, `{"Id":"C1`) }, resource.Unknown, failure.OutcomeUnknown, nil},
		"start without a container":   {"start", refuse(404, gone), resource.NotDone, failure.Failed, ErrNoContainer},
		"start of what runs":          {"start", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNotModified) }, resource.Done, "", nil},
		"kill without a container":    {"kill", refuse(404, gone), resource.Done, "", nil},
		"kill of what does not run":   {"kill", refuse(409, "Cannot kill container: C1: Container C1 is not running"), resource.Done, "", nil},
		"kill answered by a stranger": {"kill", refuse(404, "page not found"), resource.NotDone, failure.Failed, nil},
		"remove without a container":  {"remove", refuse(404, gone), resource.Done, "", nil},
		"remove by a stranger":        {"remove", refuse(404, "page not found"), resource.NotDone, failure.Failed, nil},
		"remove of what is removed":   {"remove", refuse(409, "removal of container C1 is already in progress"), resource.Done, "", nil},
		"exec in what does not run":   {"exec", refuse(409, "Container C1 is not running"), resource.NotDone, failure.Failed, ErrNotRunning},
		"tag without an image":        {"tag", refuse(404, "No such image: i:latest"), resource.NotDone, failure.NotReady, nil},
		"remove without an image":     {"remove image", refuse(404, "No such image: i:latest"), resource.Done, "", nil},
		"a build that fails": {"build", func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, `{"stream":"Step 1/1"}`+"\n"+`{"errorDetail":{"code":1,"message":"it returned 1"},"error":"it returned 1"}`)
		}, resource.NotDone, failure.Failed, nil},
		"a build with an old error":  {"build", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"error":"it returned 1"}`) }, resource.NotDone, failure.Failed, nil},
		"a build that names nothing": {"build", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"stream":"Step 1/1"}`) }, resource.Unknown, failure.OutcomeUnknown, nil},
		"a build that is cut": {"build", func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, `{"aux":{"ID":"sha256:1"}}{"stream":"Succ`)
		}, resource.Unknown, failure.OutcomeUnknown, nil},
		"a build that breaks off": {"build", func(w http.ResponseWriter, r *http.Request) {
			cutOff(w, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1d\r\n"+`{"aux":{"ID":"sha256:12345"}}`+"\r\n")
		}, resource.Unknown, failure.OutcomeUnknown, nil},
		"a pull that fails":            {"pull", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"error":"toomanyrequests"}`) }, resource.NotDone, failure.NotReady, nil},
		"a pull that is cut":           {"pull", func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"status":"x"`) }, resource.Unknown, failure.NotReady, nil},
		"a pull that the engine fails": {"pull", refuse(500, "Get https://registry: no such host"), resource.Unknown, failure.NotReady, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := effects()[c.effect]
			done, err := e.do(context.Background(), connected(t, faulty(t, e.request, c.fault)))
			if done != c.done || failure.KindOf(err) != c.kind || c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("%s, %v (%s); want %s, %s", done, err, failure.KindOf(err), c.done, c.kind)
			}
			if strings.HasPrefix(c.effect, "pull") && failure.As(err).Hint == "" {
				t.Errorf("%v has no command", err)
			}
		})
	}
}

// What the client itself finds wrong is not the engine's fault.
func TestNamesThatAreNone(t *testing.T) {
	e := connected(t, serve(t, nil))
	for name, do := range map[string]func() (resource.Outcome, error){
		"tag":  func() (resource.Outcome, error) { return e.Tag(context.Background(), "i", "NOT A REFERENCE") },
		"pull": func() (resource.Outcome, error) { return e.Pull(context.Background(), "NOT A REFERENCE", nil) },
	} {
		if done, err := do(); done != resource.NotDone || !strings.Contains(err.Error(), "invalid reference") || strings.Contains(err.Error(), "listens") {
			t.Errorf("%s: %s, %v", name, done, err)
		}
	}
	if _, p, err := e.Inspect(context.Background(), ""); p != resource.Unobserved || strings.Contains(err.Error(), "listens") {
		t.Errorf("%s, %v", p, err)
	}
}

func TestKillWaitsForTheEnd(t *testing.T) {
	for name, c := range map[string]struct {
		wait func(w http.ResponseWriter, r *http.Request)
		want resource.Outcome
	}{
		"it ends":    {func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"StatusCode":137}`) }, resource.Done},
		"it is gone": {func(w http.ResponseWriter, r *http.Request) { answer(w, 404, `{"message":"No such container: C1"}`) }, resource.Done},
		"it hangs":   {func(w http.ResponseWriter, r *http.Request) { hang(r) }, resource.Unknown},
		"it fails":   {func(w http.ResponseWriter, r *http.Request) { answer(w, 500, `{"message":"x"}`) }, resource.Unknown},
		"it is odd":  {func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"Error":{"Message":"x"}}`) }, resource.Unknown},
		"it is cut":  {func(w http.ResponseWriter, r *http.Request) { answer(w, 200, ``) }, resource.Unknown},
		"it breaks":  {func(w http.ResponseWriter, r *http.Request) { cutOff(w, "") }, resource.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				switch r.Method + " " + r.URL.Path {
				case "POST /containers/C1/kill":
					if r.URL.Query().Get("signal") != "SIGKILL" {
						t.Error(r.URL)
					}
					w.WriteHeader(http.StatusNoContent)
				case "POST /containers/C1/wait":
					c.wait(w, r)
				default:
					return false
				}
				return true
			})
			e := connected(t, f)
			if name == "it hangs" {
				e.limits = short()
			}
			done, err := e.Kill(context.Background(), "C1")
			if done != c.want || (err == nil) != (done == resource.Done) {
				t.Errorf("%s, %v", done, err)
			}
			if name == "it breaks" && !strings.Contains(err.Error(), "was interrupted") { // and not what the kill was answered
				t.Error(err)
			}
		})
	}
}

func TestPresence(t *testing.T) {
	whole := `{"Id":"C1","State":{"Running":true},"Config":{}}`
	type look = func(e *Engine) (resource.Presence, error)
	inspect := func(e *Engine) (resource.Presence, error) {
		_, p, err := e.Inspect(context.Background(), "C1")
		return p, err
	}
	img := func(e *Engine) (resource.Presence, error) {
		_, p, err := e.Image(context.Background(), "i")
		return p, err
	}
	for name, c := range map[string]struct {
		look   look
		status int
		body   string
		want   resource.Presence
	}{
		"a container":                 {inspect, 200, whole, resource.Present},
		"no container":                {inspect, 404, `{"message":"No such container: C1"}`, resource.Absent},
		"another 404":                 {inspect, 404, `{"message":"page not found"}`, resource.Unobserved},
		"an empty 404":                {inspect, 404, ``, resource.Unobserved},
		"a 404 in pieces":             {inspect, 404, `{"message":"No such contai`, resource.Unobserved},
		"an error about no container": {inspect, 500, `{"message":"No such container: C1"}`, resource.Unobserved},
		"zeros":                       {inspect, 200, `{}`, resource.Unobserved},
		"null":                        {inspect, 200, `null`, resource.Unobserved},
		"half a container":            {inspect, 200, whole[:20], resource.Unobserved},
		"no state":                    {inspect, 200, `{"Id":"C1","Config":{}}`, resource.Unobserved},
		"an image":                    {img, 200, `{"Id":"sha256:1"}`, resource.Present},
		"no image":                    {img, 404, `{"message":"No such image: i:latest"}`, resource.Absent},
		"another image error":         {img, 404, `{"message":"page not found"}`, resource.Unobserved},
		"an image of zeros":           {img, 200, `{}`, resource.Unobserved},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/json") {
					return false
				}
				answer(w, c.status, c.body)
				return true
			})
			p, err := c.look(connected(t, f))
			if p != c.want || (err == nil) == (p == resource.Unobserved) {
				t.Errorf("%s, %v; want %s", p, err, c.want)
			}
		})
	}
}

func TestListsThatFailAreErrors(t *testing.T) {
	for name, do := range map[string]func(w http.ResponseWriter, r *http.Request){
		"500":       func(w http.ResponseWriter, r *http.Request) { answer(w, 500, `{"message":"x"}`) },
		"truncated": func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `[{"Id":"C1"},{"I`) },
		"cut":       func(w http.ResponseWriter, r *http.Request) { cutOff(w, "") },
		"hang":      func(w http.ResponseWriter, r *http.Request) { hang(r) },
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !strings.HasSuffix(r.URL.Path, "/json") {
					return false
				}
				do(w, r)
				return true
			})
			e := connected(t, f)
			e.limits = short()
			if list, err := e.List(context.Background(), map[string]string{"a": "b"}); err == nil || list != nil {
				t.Errorf("%v, %v", list, err)
			}
			if list, err := e.Images(context.Background(), map[string]string{"a": "b"}); err == nil || list != nil {
				t.Errorf("%v, %v", list, err)
			}
		})
	}
}

func TestCreateLeavesItsIntentAlone(t *testing.T) {
	e := connected(t, faulty(t, "POST /containers/create", func(w http.ResponseWriter, r *http.Request) { answer(w, 201, `{"Id":"C1"}`) }))
	host := &container.HostConfig{CapAdd: []string{"net_raw", "chown"}}
	if _, done, err := e.Create(context.Background(), "n", &container.Config{}, host); done != resource.Done {
		t.Fatal(err)
	}
	if host.CapAdd[0] != "net_raw" || host.CapAdd[1] != "chown" {
		t.Error(host.CapAdd)
	}
}

// A copy that is cut must not look like its end.
func TestCopyThatIsCut(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/containers/C1/archive" {
			return false
		}
		cutOff(w, "HTTP/1.1 200 OK\r\nX-Docker-Container-Path-Stat: e30=\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
		return true
	})
	e := connected(t, f)
	body, err := e.CopyFrom(context.Background(), "C1", "/x")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if b, err := io.ReadAll(body); err == nil {
		t.Errorf("%q and no error", b)
	}
}
