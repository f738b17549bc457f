package testkit

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// moods is an upstream registry whose first answers are bad.
type moods struct {
	mu      sync.Mutex
	bad     []string
	asked   []string
	archive []byte
}

func (m *moods) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	m.mu.Lock()
	m.asked = append(m.asked, q.URL.EscapedPath())
	mood := ""
	if len(m.bad) > 0 {
		mood, m.bad = m.bad[0], m.bad[1:]
	}
	m.mu.Unlock()
	body := m.archive
	if !strings.HasSuffix(q.URL.Path, ".tgz") {
		body = []byte(`{"versions":{"1.0.0":{"dist":{"tarball": "https://elsewhere.example/npm/@a/b/-/b-1.0.0.tgz"}}}}`)
	}
	switch mood {
	case "silent":
		<-q.Context().Done()
	case "stalls":
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body[:len(body)/2])
		_ = http.NewResponseController(w).Flush()
		<-q.Context().Done()
	case "cut":
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body[:len(body)/2])
	case "wrong":
		_, _ = w.Write(append(body[:len(body)/2:len(body)/2], make([]byte, len(body)/2)...))
	case "500":
		w.WriteHeader(http.StatusInternalServerError)
	case "404":
		w.WriteHeader(http.StatusNotFound)
	default:
		_, _ = w.Write(body)
	}
}

func newMoods(t *testing.T, bad ...string) (*moods, *Registry, *http.Client) {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, _ = z.Write(bytes.Repeat([]byte("package"), 1000))
	_ = z.Close()
	m := &moods{bad: bad, archive: b.Bytes()}
	upstream := httptest.NewServer(m)
	t.Cleanup(upstream.Close)
	r := newRegistry(t, "127.0.0.1", upstream.URL+"/npm", "", t.TempDir(), patience{silence: 500 * time.Millisecond, tries: 6, pause: time.Millisecond})
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(r.Authority)
	return m, r, &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	a, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

func TestRegistryOutlastsBadMoods(t *testing.T) {
	m, r, c := newMoods(t, "silent", "stalls", "cut", "wrong", "500")
	const name = "@a/b/-/b-1.0.0.tgz"
	for range 2 { // and asks no more for what it has
		if status, body := get(t, c, r.URL+name); status != 200 || body != string(m.archive) {
			t.Errorf("%d, %d bytes of %d", status, len(body), len(m.archive))
		}
	}
	if len(m.asked) != 6 || m.asked[0] != "/npm/"+name {
		t.Errorf("%d requests: %v", len(m.asked), m.asked)
	}
	if status, body := get(t, c, r.URL+"@a%2fb"); status != 200 || body != `{"versions":{"1.0.0":{"dist":{"tarball":"`+r.URL+name+`"}}}}` {
		t.Errorf("%d %s", status, body)
	}
	if last := m.asked[len(m.asked)-1]; last != "/npm/@a%2fb" {
		t.Errorf("it asked for %s", last)
	}
}

func TestRegistryPassesRefusalsOn(t *testing.T) {
	m, r, c := newMoods(t, "404", "500", "500", "500", "500", "500", "500")
	if status, body := get(t, c, r.URL+"nothing/-/nothing-1.0.0.tgz"); status != 404 || len(m.asked) != 1 {
		t.Errorf("%d %s, %d requests", status, body, len(m.asked))
	}
	if status, body := get(t, c, r.URL+"a/-/a-1.0.0.tgz"); status != 502 || !strings.Contains(body, "answers with 500") || len(m.asked) != 7 {
		t.Errorf("%d %s, %d requests", status, body, len(m.asked))
	}
	if left, _ := filepath.Glob(filepath.Join(r.dir, "*.tgz")); len(left) > 0 {
		t.Errorf("it keeps %v", left)
	}
}

func TestRegistryGetsAnArchiveOnce(t *testing.T) {
	m, r, c := newMoods(t)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if a, err := c.Get(r.URL + "a/-/a-1.0.0.tgz"); err != nil {
				t.Error(err)
			} else {
				_ = a.Body.Close()
			}
		})
	}
	all.Wait()
	if len(m.asked) != 1 {
		t.Errorf("%d requests", len(m.asked))
	}
	if b, err := os.ReadFile(filepath.Join(r.dir, "a%2F-%2Fa-1.0.0.tgz")); err != nil || !bytes.Equal(b, m.archive) {
		t.Errorf("it keeps %d bytes: %v", len(b), err)
	}
}
