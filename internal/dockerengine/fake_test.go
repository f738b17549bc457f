package dockerengine

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// fake is a server on a unix socket that answers as an engine does, where handler does not. It counts what it is asked.
type fake struct {
	Endpoint Endpoint

	hangUp func() // ends all connections
	first  func(w http.ResponseWriter, r *http.Request) bool
	mu     sync.Mutex
	n      map[string]int
}

const goodInfo = `{"ID":"ID1","DockerRootDir":"/var/lib/docker","OSType":"linux","Architecture":"x86_64","ServerVersion":"20.10.24","MemoryLimit":true,"CgroupVersion":"1"}`

// serve starts one. handler says whether it has answered.
func serve(t *testing.T, handler func(w http.ResponseWriter, r *http.Request) bool) *fake {
	t.Helper()
	f := &fake{n: map[string]int{}, Endpoint: Endpoint{Host: "unix://" + filepath.Join(testEndpoint(t), "docker.sock"), Origin: "DOCKER_HOST"}}
	l, err := net.Listen("unix", f.Endpoint.Socket())
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path := r.URL.Path
		if v, rest, ok := strings.Cut(strings.TrimPrefix(path, "/"), "/"); ok && strings.HasPrefix(v, "v1.") {
			path = "/" + rest
		}
		r.URL.Path = path
		f.mu.Lock()
		f.n[r.Method+" "+path]++
		f.mu.Unlock()
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Ostype", "linux")
		switch {
		case f.first != nil && f.first(w, r):
		case handler != nil && handler(w, r):
		case path == "/_ping":
		case path == "/info":
			answer(w, 200, goodInfo)
		default:
			t.Errorf("the engine is asked for %s %s", r.Method, path)
			w.WriteHeader(http.StatusNotImplemented)
		}
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Config.ErrorLog = nil
	s.Start()
	f.hangUp = s.CloseClientConnections
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return f
}

// with has another handler asked first.
func (f *fake) with(handler func(w http.ResponseWriter, r *http.Request) bool) *fake {
	f.first = handler
	return f
}

// calls are what was asked since the start.
func (f *fake) calls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := map[string]int{}
	for k, v := range f.n {
		out[k] = v
	}
	return out
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = fmt.Fprint(w, body)
}

// cutOff ends the connection, after text was sent on it as it is.
func cutOff(w http.ResponseWriter, text string) {
	conn, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write([]byte(text))
	_ = conn.Close()
}

// hang answers nothing until the client has gone.
func hang(r *http.Request) { <-r.Context().Done() }

// hijackOf takes the connection over as an engine does for exec.
func hijackOf(w http.ResponseWriter, r *http.Request) (net.Conn, *bufio.ReadWriter) {
	_, _ = io.Copy(io.Discard, r.Body)
	conn, rw, err := w.(http.Hijacker).Hijack()
	if err != nil {
		panic(err)
	}
	_, _ = conn.Write([]byte("HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"))
	return conn, rw
}

func frame(kind byte, text string) string {
	n := len(text)
	return string([]byte{kind, 0, 0, 0, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + text
}

// short are limits for engines that hang; everything that is to succeed has longer ones.
func short() callLimits {
	l := standardLimits()
	d := 200 * time.Millisecond
	l.ping, l.info, l.query, l.effect, l.bulk, l.settle = d, d, d, d, d, d
	return l
}

func connected(t *testing.T, f *fake) *Engine {
	t.Helper()
	e, err := Connect(context.Background(), f.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}
