package gateway

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway/relay"
)

// Lead says where a host and port lead that policies may allow: to an address of this machine, as "http://127.0.0.1:8000", which is
// spoken to without TLS. What is not led anywhere is not reachable.
func (g *Gateway) Lead(host string, port int, to string) {
	g.t.Helper()
	target, err := url.Parse(to)
	if err != nil || target.Scheme != "http" || target.Host == "" {
		g.t.Fatalf("%q is no address of an HTTP server", to)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.leads[net.JoinHostPort(strings.ToLower(host), strconv.Itoa(port))] = target
}

// egress is the proxy behind the supervisors. It reads the encrypted requests too, with certificates of an authority that the
// sandboxes trust, decides on each, and puts in the credentials that placeholders stand for.
type egress struct {
	g         *Gateway
	authority *authority
	first     *http.Server // speaks to what wants out: CONNECT, and requests without TLS
	inner     *http.Server // speaks in what CONNECT has opened
	opened    *queue
	work      sync.WaitGroup

	mu           sync.Mutex
	certificates map[string]*tls.Certificate // by host
}

func newEgress(t testkit.T, g *Gateway) *egress {
	t.Helper()
	a, err := newAuthority("openshell-proxy")
	if err != nil {
		t.Fatal(err)
	}
	e := &egress{g: g, authority: a, opened: newQueue(), certificates: map[string]*tls.Certificate{}}
	silent := log.New(io.Discard, "", 0)
	e.first = &http.Server{Handler: http.HandlerFunc(e.proxy), ErrorLog: silent, ConnContext: func(ctx context.Context, c net.Conn) context.Context { //nolint:gosec // of tests
		return context.WithValue(ctx, origin{}, c)
	}}
	e.inner = &http.Server{Handler: http.HandlerFunc(e.tunnelled), ErrorLog: silent, ConnContext: func(ctx context.Context, c net.Conn) context.Context { //nolint:gosec // of tests
		if encrypted, ok := c.(*tls.Conn); ok {
			c = encrypted.NetConn()
		}
		return context.WithValue(ctx, origin{}, c)
	}}
	e.work.Go(func() { _ = e.inner.Serve(e.opened) })
	return e
}

func (e *egress) close() {
	_, _, _ = e.first.Close(), e.inner.Close(), e.opened.Close()
	e.work.Wait()
}

// serve takes the connections of one sandbox.
func (e *egress) serve(l net.Listener, id string) {
	_ = e.first.Serve(fromSandbox{l, id})
}

type origin struct{} // the key of a request's connection

// caller is a connection from a sandbox, which begins with a line about who has made it.
type caller struct {
	net.Conn
	sandbox string
	reader  *bufio.Reader
	once    sync.Once
	err     error
	who     relay.Caller
}

type fromSandbox struct {
	net.Listener
	id string
}

func (l fromSandbox) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !byRoot(conn) { // somebody in the sandbox who passes the supervisor by
			_ = conn.Close()
			continue
		}
		return &caller{Conn: conn, sandbox: l.id, reader: bufio.NewReader(conn)}, nil
	}
}

func (c *caller) Read(b []byte) (int, error) {
	c.once.Do(func() {
		var line []byte
		if line, c.err = c.reader.ReadBytes('\n'); c.err == nil {
			c.err = json.Unmarshal(line, &c.who)
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.reader.Read(b)
}

// tunnel is what CONNECT has opened.
type tunnel struct {
	net.Conn
	reader *bufio.Reader
	by     *caller
	to     egressAddress
	scheme string
}

func (t *tunnel) Read(b []byte) (int, error) { return t.reader.Read(b) }

type egressAddress struct {
	host string
	port int
}

func (p egressAddress) String() string { return net.JoinHostPort(p.host, strconv.Itoa(p.port)) }

func parseEgressAddress(text string, standard int) (egressAddress, bool) {
	host, port, err := net.SplitHostPort(text)
	if err != nil {
		return egressAddress{strings.ToLower(text), standard}, text != ""
	}
	n, err := strconv.Atoi(port)
	return egressAddress{strings.ToLower(host), n}, err == nil && host != ""
}

func deny(w http.ResponseWriter, status int, why string) {
	say(w, status, map[string]string{"error": why})
}

// proxy answers what a sandbox asks its proxy for.
func (e *egress) proxy(w http.ResponseWriter, r *http.Request) {
	by := r.Context().Value(origin{}).(*caller) //nolint:errcheck // there are no others
	if r.Method != http.MethodConnect {
		to, ok := parseEgressAddress(r.URL.Host, 80)
		if !ok || r.URL.Scheme != "http" {
			deny(w, http.StatusBadRequest, "invalid_request")
			return
		}
		e.request(w, r, by, to)
		return
	}
	to, ok := parseEgressAddress(r.Host, 443)
	allowed := e.allowed(by, to)
	if !ok || len(allowed) == 0 {
		deny(w, http.StatusForbidden, "policy_denied")
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		deny(w, http.StatusInternalServerError, "internal")
		return
	}
	if _, err := io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\n"); err != nil {
		_ = conn.Close()
		return
	}
	t := &tunnel{Conn: conn, reader: buffered.Reader, by: by, to: to, scheme: "http"}
	e.work.Go(func() { e.open(t, allowed) })
}

// open gives a tunnel to who speaks in it.
func (e *egress) open(t *tunnel, allowed []*wire.NetworkEndpoint) {
	if !slices.ContainsFunc(allowed, func(at *wire.NetworkEndpoint) bool { return at.GetTls() != "skip" }) {
		e.pass(t)
		return
	}
	head, err := t.reader.Peek(1)
	if err != nil {
		_ = t.Close()
		return
	}
	const handshake = 0x16
	if head[0] != handshake {
		e.opened.put(t)
		return
	}
	t.scheme = "https"
	e.opened.put(tls.Server(t, &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		return e.certificate(t.to.host)
	}}))
}

// pass passes on what nobody looks into.
func (e *egress) pass(t *tunnel) {
	defer t.Close()
	lead := e.lead(t.to)
	if lead == nil {
		return
	}
	out, err := net.Dial("tcp", lead.Host)
	if err != nil {
		return
	}
	defer out.Close()
	e.work.Go(func() { _, _ = io.Copy(out, t); _ = out.(*net.TCPConn).CloseWrite() }) //nolint:errcheck // it is one of TCP
	_, _ = io.Copy(t, out)
}

func (e *egress) certificate(host string) (*tls.Certificate, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if known := e.certificates[host]; known != nil {
		return known, nil
	}
	made, err := e.authority.sign(template(host), host)
	if err != nil {
		return nil, err
	}
	e.certificates[host] = &made
	return &made, nil
}

func (e *egress) tunnelled(w http.ResponseWriter, r *http.Request) {
	t := r.Context().Value(origin{}).(*tunnel) //nolint:errcheck // there are no others
	e.request(w, r, t.by, t.to)
}

// request decides on one request and passes it on.
func (e *egress) request(w http.ResponseWriter, r *http.Request, by *caller, to egressAddress) {
	allowed := e.allowed(by, to)
	if !slices.ContainsFunc(allowed, func(at *wire.NetworkEndpoint) bool { return lets(at, r) }) {
		deny(w, http.StatusForbidden, "policy_denied")
		return
	}
	status, why := e.resolve(r, by.sandbox, to)
	if why != "" {
		deny(w, status, why)
		return
	}
	lead := e.lead(to)
	if lead == nil {
		deny(w, http.StatusBadGateway, "upstream_unreachable")
		return
	}
	forward := &httputil.ReverseProxy{
		FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(lead); p.Out.Host = p.In.Host },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) {
			deny(w, http.StatusBadGateway, "upstream_unreachable")
		},
		Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true},
	}
	forward.ServeHTTP(w, r)
}

func (e *egress) lead(to egressAddress) *url.URL {
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	return e.g.leads[to.String()]
}

// allowed are the endpoints of the sandbox's policy that let a program, or an ancestor of it, reach a place.
func (e *egress) allowed(by *caller, to egressAddress) []*wire.NetworkEndpoint {
	if ip := net.ParseIP(to.host); ip != nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast()) {
		return nil
	}
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	r := e.g.byID(by.sandbox)
	if r == nil {
		return nil
	}
	var out []*wire.NetworkEndpoint
	for _, rule := range r.policy.GetNetworkPolicies() {
		if !slices.ContainsFunc(rule.GetBinaries(), func(b *wire.NetworkBinary) bool {
			return slices.ContainsFunc(by.who.Programs, func(program string) bool { return globs(b.GetPath(), program) })
		}) {
			continue
		}
		for _, at := range rule.GetEndpoints() {
			if names(at, to) {
				out = append(out, at)
			}
		}
	}
	return out
}

// names says whether an endpoint is that place; "*." stands for one label and "**." for some.
func names(at *wire.NetworkEndpoint, to egressAddress) bool {
	host, ports := strings.ToLower(at.GetHost()), at.GetPorts()
	if len(ports) == 0 {
		ports = []uint32{at.GetPort()}
	}
	if !slices.Contains(ports, uint32(to.port)) { //nolint:gosec // a port
		return false
	}
	if !strings.HasPrefix(host, "*") {
		return host == to.host
	}
	domain := "." + strings.TrimLeft(strings.TrimLeft(host, "*"), ".")
	label, below := strings.CutSuffix(to.host, domain)
	return below && label != "" && (strings.HasPrefix(host, "**") || !strings.Contains(label, "."))
}

// globs says whether a path is what a pattern stands for: "*" within a part of it, "**" across.
func globs(pattern, path string) bool {
	var out strings.Builder
	for rest := pattern; rest != ""; {
		switch {
		case strings.HasPrefix(rest, "**"):
			out.WriteString(".*")
			rest = rest[2:]
		case rest[0] == '*':
			out.WriteString("[^/]*")
			rest = rest[1:]
		default:
			out.WriteString(regexp.QuoteMeta(rest[:1]))
			rest = rest[1:]
		}
	}
	matched, err := regexp.MatchString("^"+out.String()+"$", path)
	return err == nil && matched
}

// lets says whether an endpoint lets a request through. What is not enforced is let through, as is what has an access that is
// none.
func lets(at *wire.NetworkEndpoint, r *http.Request) bool {
	if protocol := at.GetProtocol(); protocol == "" || protocol == "tcp" || at.GetEnforcement() != "enforce" {
		return true
	} else if protocol != "rest" && protocol != "websocket" {
		return false
	}
	if at.GetPath() != "" && !globs(at.GetPath(), r.URL.Path) {
		return false
	}
	for _, d := range at.GetDenyRules() {
		if fits(d.GetMethod(), d.GetPath(), r) {
			return false
		}
	}
	if len(at.GetRules()) > 0 {
		return slices.ContainsFunc(at.GetRules(), func(rule *wire.L7Rule) bool { return fits(rule.GetAllow().GetMethod(), rule.GetAllow().GetPath(), r) })
	}
	reads := slices.Contains([]string{http.MethodGet, http.MethodHead, http.MethodOptions}, r.Method)
	switch at.GetAccess() {
	case "read-only":
		return reads
	case "read-write":
		return reads || slices.Contains([]string{http.MethodPost, http.MethodPut, http.MethodPatch}, r.Method)
	default:
		return true
	}
}

func fits(method, path string, r *http.Request) bool {
	return (method == "" || method == "*" || strings.EqualFold(method, r.Method)) && (path == "" || globs(path, r.URL.Path))
}

var placeholders = regexp.MustCompile(regexp.QuoteMeta(placeholder) + `(?:v\d+_)?([A-Za-z_][A-Za-z0-9_]*)`) //nolint:gochecknoglobals // constant

// resolve puts the credentials into a request that its placeholders stand for, or says why not.
func (e *egress) resolve(r *http.Request, sandbox string, to egressAddress) (status int, why string) {
	e.g.mu.Lock()
	defer e.g.mu.Unlock()
	put := func(text string) string {
		return placeholders.ReplaceAllStringFunc(text, func(found string) string {
			value, bound, known := e.g.credential(sandbox, placeholders.FindStringSubmatch(found)[1], to)
			switch {
			case !known:
				status, why = http.StatusInternalServerError, "credential_unavailable"
			case !bound:
				status, why = http.StatusForbidden, "credential_endpoint_mismatch"
			}
			return value
		})
	}
	for _, values := range r.Header {
		for i := range values {
			values[i] = put(values[i])
		}
	}
	r.URL.Path, r.URL.RawPath, r.URL.RawQuery = put(r.URL.Path), "", put(r.URL.RawQuery)
	return status, why
}

// credential is a value of a sandbox's providers, and whether it may go to a place: only to the endpoints of the provider's
// profile. g.mu is held.
func (g *Gateway) credential(sandbox, key string, to egressAddress) (value string, bound, known bool) {
	r := g.byID(sandbox)
	if r == nil {
		return "", false, false
	}
	for _, name := range r.sandbox.GetSpec().GetProviders() {
		p := g.providers[name]
		if p == nil || p.values[key] == "" || p.expired(key) {
			continue
		}
		if slices.ContainsFunc(g.profiles[p.shown.GetType()].GetEndpoints(), func(at *wire.NetworkEndpoint) bool { return names(at, to) }) {
			return p.values[key], true, true
		}
		known = true
	}
	return "", false, known
}

// queue is a listener for connections that come from elsewhere.
type queue struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newQueue() *queue { return &queue{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (q *queue) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.closed:
		_ = c.Close()
	}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.closed:
		return nil, errors.New("closed")
	}
}

func (q *queue) Close() error   { q.once.Do(func() { close(q.closed) }); return nil }
func (q *queue) Addr() net.Addr { return &net.UnixAddr{Name: "tunnels"} }
