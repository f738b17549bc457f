package dockerengine

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/failure"
)

func TestConnectIsOnePingAndOneInfo(t *testing.T) {
	f := serve(t, nil)
	e := connected(t, f)
	if got := f.calls(); len(got) != 2 || got["HEAD /_ping"] != 1 || got["GET /info"] != 1 {
		t.Errorf("calls %v", got)
	}
	want := Facts{ID: "ID1", RootDir: "/var/lib/docker", Version: "20.10.24", API: "1.41", OS: "linux", Arch: "amd64", Memory: true, CgroupVersion: "1"}
	if e.Facts() != want {
		t.Errorf("facts %+v\nwant  %+v", e.Facts(), want)
	}
	if id := e.Facts().Identity(); id != "docker engine ID1 at /var/lib/docker" {
		t.Error(id)
	}
	if _, err := e.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	if got := f.calls(); got["HEAD /_ping"] != 1 || got["GET /info"] != 2 {
		t.Errorf("calls %v after asking again", got)
	}
}

func TestFactsAreReadFromInfo(t *testing.T) {
	for name, c := range map[string]struct {
		info string
		want func(f Facts) bool
	}{
		"rootless":        {`"SecurityOptions":["name=seccomp,profile=default","name=rootless","name=cgroupns"]`, func(f Facts) bool { return f.Rootless && !f.UserNS }},
		"user namespaces": {`"SecurityOptions":["name=userns"]`, func(f Facts) bool { return f.UserNS && !f.Rootless }},
		"neither":         {`"SecurityOptions":["name=seccomp,profile=rootless"]`, func(f Facts) bool { return !f.UserNS && !f.Rootless }},
		"limits":          {`"MemoryLimit":true,"SwapLimit":true,"PidsLimit":true,"CpuCfsPeriod":true,"CpuCfsQuota":true`, func(f Facts) bool { return f.Memory && f.Swap && f.Pids && f.CPU }},
		"no limits":       {`"CpuCfsPeriod":true`, func(f Facts) bool { return !f.Memory && !f.Swap && !f.Pids && !f.CPU }},
		"arm":             {`"Architecture":"aarch64"`, func(f Facts) bool { return f.Arch == "arm64" }},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path == "/info" {
					answer(w, 200, `{"ID":"I","DockerRootDir":"/r","OSType":"linux",`+c.info+`}`)
				}
				return r.URL.Path == "/info"
			})
			if e := connected(t, f); !c.want(e.Facts()) {
				t.Errorf("%+v", e.Facts())
			}
		})
	}
}

func TestAnotherEngineOnTheSocketIsSeen(t *testing.T) {
	id := "ONE"
	f := serve(t, func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path == "/info" {
			answer(w, 200, strings.ReplaceAll(goodInfo, "ID1", id))
		}
		return r.URL.Path == "/info"
	})
	e := connected(t, f)
	before := e.Facts().Identity()
	id = "TWO"
	after, err := e.Refresh(context.Background())
	if err != nil || after.Identity() == before || e.Facts() != after {
		t.Errorf("%v: %s, then %s", err, before, after.Identity())
	}
}

func TestConnectSaysWhatIsWrong(t *testing.T) {
	ping := func(do func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/_ping" {
				do(w, r)
			}
			return r.URL.Path == "/_ping"
		}
	}
	info := func(do func(w http.ResponseWriter, r *http.Request)) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/info" {
				do(w, r)
			}
			return r.URL.Path == "/info"
		}
	}
	header := func(name, value string) func(http.ResponseWriter, *http.Request) bool {
		return ping(func(w http.ResponseWriter, r *http.Request) { w.Header().Set(name, value) })
	}
	for name, c := range map[string]struct {
		handler func(http.ResponseWriter, *http.Request) bool
		kind    failure.Kind
		says    []string
	}{
		"hangs":      {ping(func(w http.ResponseWriter, r *http.Request) { hang(r) }), failure.NotReady, []string{"hangs", "200ms", "docker.sock"}},
		"info hangs": {info(func(w http.ResponseWriter, r *http.Request) { hang(r) }), failure.NotReady, []string{"did not answer within 200ms", "docker.sock"}},
		"no engine":  {ping(func(w http.ResponseWriter, r *http.Request) { w.Header().Del("Api-Version") }), failure.NotReady, []string{"not a Docker engine", "API version"}},
		"another server": {ping(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Del("Api-Version")
			http.Error(w, "nothing here", http.StatusNotFound)
		}), failure.NotReady, []string{"not a Docker engine", "HTTP 404", "nothing here"}},
		"a sick engine":      {ping(func(w http.ResponseWriter, r *http.Request) { answer(w, 500, `{"message":"no"}`) }), failure.NotReady, []string{"answers a ping with an error"}},
		"an old engine":      {header("Api-Version", "1.39"), failure.NotReady, []string{"1.39", "1.41", "1.51"}},
		"an engine of today": {header("Api-Version", "1.99"), "", nil},
		"Windows":            {header("Ostype", "windows"), failure.NotReady, []string{"Windows containers"}},
		"Windows in info": {info(func(w http.ResponseWriter, r *http.Request) {
			answer(w, 200, strings.ReplaceAll(goodInfo, "linux", "windows"))
		}), failure.NotReady, []string{"windows containers"}},
		"a later engine that refuses": {info(func(w http.ResponseWriter, r *http.Request) {
			answer(w, 400, `{"message":"client version 1.41 is too old. Minimum supported API version is 1.60"}`)
		}), failure.NotReady, []string{"refuses 1.41", "1.60"}},
		"info fails":                      {info(func(w http.ResponseWriter, r *http.Request) { answer(w, 500, `{"message":"the store is locked"}`) }), failure.NotReady, []string{"the store is locked"}},
		"info is zero":                    {info(func(w http.ResponseWriter, r *http.Request) { answer(w, 200, `{"ID":"","Containers":0}`) }), failure.NotReady, []string{"does not identify itself"}},
		"info fails with a body of zeros": {info(func(w http.ResponseWriter, r *http.Request) { answer(w, 503, goodInfo) }), failure.NotReady, []string{"503"}},
		"info is cut":                     {info(func(w http.ResponseWriter, r *http.Request) { answer(w, 200, goodInfo[:40]) }), failure.NotReady, []string{"read the identity"}},
		"it hangs up":                     {ping(func(w http.ResponseWriter, r *http.Request) { cutOff(w, "") }), failure.NotReady, []string{"was interrupted"}},
		"it hangs up later":               {info(func(w http.ResponseWriter, r *http.Request) { cutOff(w, "") }), failure.NotReady, []string{"was interrupted"}},
		"it is not HTTP": {ping(func(w http.ResponseWriter, r *http.Request) {
			cutOff(w, "\x00\x00\x12\x04\x00\x00\x00\x00\x00\r\n\r\n")
		}), failure.NotReady, []string{"does not speak HTTP/1.1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, c.handler)
			l := standardLimits()
			if strings.HasSuffix(name, "hangs") {
				l = short()
			}
			e, err := connect(context.Background(), f.Endpoint, l)
			if e != nil {
				e.Close()
			}
			if failure.KindOf(err) != c.kind {
				t.Fatalf("%v is %s, want %s", err, failure.KindOf(err), c.kind)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
		})
	}
}

func TestConnectToTLSSaysSo(t *testing.T) {
	s := httptest.NewTLSServer(http.NotFoundHandler())
	config := s.TLS
	s.Close()
	for name, serve := range map[string]func(net.Listener){
		"HTTPS": func(l net.Listener) {
			s := &http.Server{Handler: http.NotFoundHandler(), ErrorLog: log.New(io.Discard, "", 0)}
			_ = s.Serve(tls.NewListener(l, config))
		},
		"a bare alert": func(l net.Listener) { // as servers answer that are not Go's
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Read(make([]byte, 1))
				_, _ = conn.Write([]byte("\x15\x03\x01\x00\x02\x02\x46\r\n\r\n"))
				_ = conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(testEndpoint(t), "docker.sock")
			l, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go serve(l)
			_, err = Connect(context.Background(), Endpoint{"unix://" + path, "DOCKER_HOST"})
			if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "TLS") {
				t.Error(err)
			}
		})
	}
}

func TestConnectWhereNothingListens(t *testing.T) {
	dir := testEndpoint(t)
	path := filepath.Join(dir, "docker.sock")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	_ = l.Close()
	for at, says := range map[string]string{path: "nothing listens", filepath.Join(dir, "absent"): "no socket"} {
		_, err := Connect(context.Background(), Endpoint{"unix://" + at, "the claim"})
		f := failure.As(err)
		if f == nil || f.Kind != failure.NotReady || f.Hint == "" || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), at) {
			t.Errorf("%s: %v", at, err)
		}
	}
	if _, err := Connect(context.Background(), Endpoint{"tcp://127.0.0.1:1", "the claim"}); !failure.Is(err, failure.NotReady) {
		t.Error(err)
	}
}

// A stopped engine still takes connections until its queue is full, and then refuses them for the moment.
func TestConnectToAStoppedEngineIsBounded(t *testing.T) {
	path := filepath.Join(testEndpoint(t), "docker.sock")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: path}), unix.Listen(fd, 1)); err != nil {
		t.Fatal(err)
	}
	l := short()
	l.ping = 500 * time.Millisecond
	for filled := false; ; {
		_, err := connect(context.Background(), Endpoint{"unix://" + path, "DOCKER_HOST"}, l)
		if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "hangs") {
			t.Fatal(err)
		}
		if filled {
			return
		}
		for !filled {
			conn, err := net.Dial("unix", path)
			if filled = err != nil; !filled {
				defer conn.Close()
			}
		}
	}
}

func TestConnectEndsWithItsContext(t *testing.T) {
	f := serve(t, func(w http.ResponseWriter, r *http.Request) bool { hang(r); return true })
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Connect(ctx, f.Endpoint); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestSocketPathsOfAnyName(t *testing.T) {
	dir := testEndpoint(t)
	for _, name := range []string{"with space.sock", "percent%41.sock", "ünï:c,ode.sock", "quote'\".sock", "hash#q?.sock"} {
		f := serve(t, nil)
		path := filepath.Join(dir, name)
		if err := os.Symlink(f.Endpoint.Socket(), path); err != nil {
			t.Fatal(err)
		}
		e, err := Connect(context.Background(), Endpoint{"unix://" + path, "DOCKER_HOST"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		e.Close()
	}
}
