package testkit

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Registry is an npm registry on this machine, for containers of tests. What it has comes from another registry: archives once
// for all tests of this checkout, everything else each time. A connection there that stalls or breaks is given up and made anew,
// which package managers do late, or not at all; and whoever installs from here moves nothing over the network.
type Registry struct {
	URL       string // ends in /
	Authority []byte // of its certificate, PEM

	t        testing.TB
	upstream string // ends in /
	dir      string // of the archives
	client   *http.Client
	patience patience
	ctx      context.Context
	busy     sync.WaitGroup
}

// patience is what an upstream registry may cost.
type patience struct {
	silence time.Duration // without a byte, of one try
	tries   int
	pause   time.Duration // after the first failed try; it doubles
}

// NewRegistry serves at an address of this machine until the test ends. Certificates is a file of authorities that are trusted in
// addition on the way to the upstream registry, "" for none.
func NewRegistry(t testing.TB, address, upstream, certificates string) *Registry {
	t.Helper()
	_, file, _, _ := runtime.Caller(0)
	return newRegistry(t, address, upstream, certificates, filepath.Join(filepath.Dir(file), "../../.tools/registry"), patience{silence: 20 * time.Second, tries: 6, pause: time.Second})
}

func newRegistry(t testing.TB, address, upstream, certificates, dir string, p patience) *Registry {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // packages are public
		t.Fatal(err)
	}
	trusted, err := x509.SystemCertPool()
	if err != nil {
		t.Fatal(err)
	}
	if certificates != "" {
		b, err := os.ReadFile(certificates)
		if err != nil || !trusted.AppendCertsFromPEM(b) {
			t.Fatalf("the certificates %s: %v", certificates, err)
		}
	}
	pair, authority := selfSigned(t, address)
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &Registry{
		URL: "https://" + listener.Addr().String() + "/", Authority: authority, t: t, upstream: strings.TrimSuffix(upstream, "/") + "/", dir: dir, patience: p, ctx: ctx,
		client: &http.Client{Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true, // a new try is a new connection
		}},
	}
	s := &http.Server{Handler: r, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.Serve(tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}})) }()
	t.Cleanup(func() {
		cancel()
		_ = s.Close()
		r.busy.Wait()
	})
	return r
}

// Archive makes sure that an archive is here ("@openai/codex/-/codex-0.171.0.tgz"), so that nobody waits for it later.
func (r *Registry) Archive(name string) {
	r.t.Helper()
	if _, err := r.archive(r.ctx, name); err != nil {
		r.t.Fatalf("get %s: %v", name, err)
	}
}

func (r *Registry) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	r.busy.Add(1)
	defer r.busy.Done()
	name := strings.TrimPrefix(q.URL.EscapedPath(), "/")
	if q.Method != http.MethodGet {
		http.Error(w, "only GET", http.StatusMethodNotAllowed)
		return
	}
	var err error
	if strings.Contains(name, "/-/") && strings.HasSuffix(name, ".tgz") {
		var file string
		if file, err = r.archive(q.Context(), name); err == nil {
			http.ServeFile(w, q, file)
			return
		}
	} else {
		var body bytes.Buffer
		err = r.get(q.Context(), name, q.Header.Get("Accept"), func(from io.Reader) error {
			body.Reset()
			_, err := body.ReadFrom(from)
			return err
		})
		if err == nil {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write(archives.ReplaceAll(body.Bytes(), []byte(`"tarball":"`+r.URL+`$1"`)))
			return
		}
	}
	status := http.StatusBadGateway
	var refused refusedByUpstream
	if errors.As(err, &refused) {
		status = int(refused)
	}
	http.Error(w, err.Error(), status)
}

// archives are the addresses of archives in what a registry says of a package, which may name any host.
var archives = regexp.MustCompile(`"tarball":\s*"https?://[^"]*?/((?:@[^/"]+/)?[^/"]+/-/[^"]+)"`)

// refusedByUpstream is a status that another try would not change.
type refusedByUpstream int

func (s refusedByUpstream) Error() string {
	return fmt.Sprintf("the upstream registry answers with %d", int(s))
}

// archive is the file of an archive, whole: one process gets it, the others wait.
func (r *Registry) archive(ctx context.Context, name string) (string, error) {
	path := filepath.Join(r.dir, url.QueryEscape(name))
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	part := path + ".part"
	err = r.get(ctx, name, "", func(from io.Reader) error {
		file, err := os.Create(part)
		if err != nil {
			return err
		}
		defer file.Close()
		z, err := gzip.NewReader(io.TeeReader(from, file))
		if err == nil { // its own checksum tells whether it is whole
			_, err = io.Copy(io.Discard, z)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return path, os.Rename(part, path)
}

// get reads a document of the upstream registry, from its beginning with every try.
func (r *Registry) get(ctx context.Context, name, accept string, read func(io.Reader) error) error {
	pause := r.patience.pause
	for try := 1; ; try++ {
		err := r.try(ctx, name, accept, read)
		var refused refusedByUpstream
		if err == nil || errors.As(err, &refused) || ctx.Err() != nil || r.ctx.Err() != nil {
			return err
		}
		r.t.Logf("registry: try %d of %d at %s: %v", try, r.patience.tries, name, err)
		if try == r.patience.tries {
			return err
		}
		select {
		case <-time.After(pause):
			pause *= 2
		case <-ctx.Done():
			return ctx.Err()
		case <-r.ctx.Done():
			return r.ctx.Err()
		}
	}
}

var errSilent = errors.New("nothing comes any more")

func (r *Registry) try(ctx context.Context, name, accept string, read func(io.Reader) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(r.ctx.Err()) })()
	silent := time.AfterFunc(r.patience.silence, func() { cancel(errSilent) })
	defer silent.Stop()
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, r.upstream+name, nil)
	if err != nil {
		return err
	}
	if accept != "" {
		q.Header.Set("Accept", accept)
	}
	a, err := r.client.Do(q)
	if err == nil {
		defer a.Body.Close()
		switch s := a.StatusCode; {
		case s == http.StatusOK:
			err = read(&heard{a.Body, silent, r.patience.silence})
		case s >= 400 && s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout:
			err = refusedByUpstream(s)
		default:
			err = fmt.Errorf("the upstream registry answers with %d", s)
		}
	}
	if err != nil && errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return err
}

// heard puts the end of patience off with every byte.
type heard struct {
	io.Reader
	silent  *time.Timer
	silence time.Duration
}

func (h *heard) Read(b []byte) (int, error) {
	n, err := h.Reader.Read(b)
	h.silent.Reset(h.silence)
	return n, err
}
