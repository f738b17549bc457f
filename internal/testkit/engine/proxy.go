package engine

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// Proxy stands in front of an engine's socket, counts the calls and injects faults. A call that no rule is for goes through
// as it is, byte streams of builds and of attached processes included.
type Proxy struct {
	Endpoint string // unix:///path

	t       testing.TB
	path    string
	ctx     context.Context // ends with the proxy
	serving sync.WaitGroup

	mu       sync.Mutex
	upstream string
	another  string
	calls    []Call
	rules    []*Rule
	server   *http.Server    // nil while gone
	life     context.Context // of the server
}

// Call is one call of the engine's API, as it came from the client.
type Call struct {
	Operation Operation
	Name      string // of the container, exec or image; "" where the path holds none
	Query     string
	Fault     string // the fault that it met, "" if none
}

// NewProxy starts a proxy in front of the engine at an endpoint (unix:///path); it ends with the test. Who may use the
// engine's socket may use the proxy's.
func NewProxy(t testing.TB, endpoint string) *Proxy {
	t.Helper()
	dir, err := os.MkdirTemp("", "lw") // t.TempDir is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &Proxy{t: t, path: filepath.Join(dir, "s"), ctx: ctx, upstream: socketOf(t, endpoint)}
	p.Endpoint = "unix://" + p.path
	t.Cleanup(func() {
		p.mu.Lock() // no call begins after that
		cancel()
		p.mu.Unlock()
		p.Leave()
		p.serving.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	p.Return()
	return p
}

func socketOf(t testing.TB, endpoint string) string {
	t.Helper()
	path, found := strings.CutPrefix(endpoint, "unix://")
	if !found {
		t.Fatalf("%s is no unix socket", endpoint)
	}
	return path
}

// Leave makes the engine gone: every connection is cut, and later ones are refused.
func (p *Proxy) Leave() {
	p.mu.Lock()
	server := p.server
	p.server = nil
	p.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

// Return makes the engine reachable again after Leave.
func (p *Proxy) Return() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.server != nil || p.ctx.Err() != nil {
		return
	}
	_ = os.Remove(p.path)
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: p.path, Net: "unix"})
	if err != nil {
		p.t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false) // refused, not absent
	p.share()
	// Connections that were hijacked are not closed with the server.
	ctx, cancel := context.WithCancel(p.ctx)
	server := &http.Server{
		Handler:     http.HandlerFunc(p.serve),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    log.New(io.Discard, "", 0),
	}
	p.server, p.life = server, ctx
	p.serving.Go(func() {
		defer cancel()
		_ = server.Serve(listener)
	})
}

// share gives the socket the owner and mode of the engine's.
func (p *Proxy) share() {
	info, err := os.Stat(p.upstream)
	if err != nil {
		return // there is no engine yet
	}
	if stat, is := info.Sys().(*syscall.Stat_t); is {
		_ = os.Lchown(p.path, -1, int(stat.Gid)) // only root can
	}
	_ = os.Chmod(p.path, info.Mode().Perm())
}

// Forward puts another engine behind the proxy's socket.
func (p *Proxy) Forward(endpoint string) {
	p.t.Helper()
	path := socketOf(p.t, endpoint)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.upstream = path
}

// Pretend lets the engine say of itself that it is another one, with an ID and a root directory made of this word; "" ends
// that.
func (p *Proxy) Pretend(another string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.another = another
}

// Calls are all calls since the proxy started or Reset, in the order in which they came.
func (p *Proxy) Calls() []Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.calls)
}

// Counts are the numbers of calls by operation.
func (p *Proxy) Counts() map[Operation]int {
	n := map[Operation]int{}
	for _, c := range p.Calls() {
		n[c.Operation]++
	}
	return n
}

// Count is the number of calls of the given operations, of all calls if none is given.
func (p *Proxy) Count(operations ...Operation) int {
	if len(operations) == 0 {
		return len(p.Calls())
	}
	counts, n := p.Counts(), 0
	for _, op := range operations {
		n += counts[op]
	}
	return n
}

// Reset forgets calls and rules; calls that are being held go on.
func (p *Proxy) Reset() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rules {
		r.open()
	}
	p.calls, p.rules = nil, nil
}

// On injects a fault into the nth call of an operation from now on, 1 being the next; into every one if nth is 0. The rule
// that was made first wins.
func (p *Proxy) On(op Operation, nth int, fault Fault) *Rule {
	r := &Rule{proxy: p, op: op, nth: nth, fault: fault, met: make(chan struct{}), done: make(chan struct{}), released: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rules = append(p.rules, r)
	return r
}

// Rule is a fault that waits for its call.
type Rule struct {
	op    Operation
	nth   int
	fault Fault

	proxy    *Proxy
	seen     int  // under the proxy's lock
	taken    bool // under the proxy's lock
	met      chan struct{}
	done     chan struct{}
	released chan struct{}
	once     [3]sync.Once
}

// Met is closed when the rule meets its (first) call: for LateReply, when the effect is there and the reply is held; for
// LateRequest and Hang, when the call is held.
func (r *Rule) Met() <-chan struct{} { return r.met }

// Came says whether a call came that the rule is for, and waits until the rule has met it: a client that was cut off may have
// ended before that.
func (r *Rule) Came() bool {
	r.proxy.mu.Lock()
	taken := r.taken
	r.proxy.mu.Unlock()
	if taken {
		<-r.met
	}
	return taken
}

// Done is closed when the rule has ended with its (first) call: the effect of LateRequest is there then.
func (r *Rule) Done() <-chan struct{} { return r.done }

// Release lets what the rule holds go on.
func (r *Rule) Release() { r.open() }

func (r *Rule) meet()   { r.once[0].Do(func() { close(r.met) }) }
func (r *Rule) finish() { r.once[1].Do(func() { close(r.done) }) }
func (r *Rule) open()   { r.once[2].Do(func() { close(r.released) }) }

// take notes a call, and finds the rule that is for it, if any. It is nil at the proxy's end; else the call is served until
// serving.Done.
func (p *Proxy) take(w http.ResponseWriter, r *http.Request) *exchange {
	op, name := operation(r)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return nil
	}
	p.serving.Add(1)
	call := Call{Operation: op, Name: name, Query: r.URL.RawQuery}
	var found *Rule
	for _, rule := range p.rules {
		if rule.op != op {
			continue
		}
		rule.seen++
		if found == nil && (rule.nth == 0 || rule.nth == rule.seen) {
			found, rule.taken = rule, true
			call.Fault = rule.fault.name
		}
	}
	p.calls = append(p.calls, call)
	return &exchange{proxy: p, w: w, r: r, rule: found, life: p.life}
}

func (p *Proxy) serve(w http.ResponseWriter, r *http.Request) {
	x := p.take(w, r)
	if x == nil {
		return
	}
	defer p.serving.Done()
	if x.rule == nil {
		x.pass()
		return
	}
	defer x.rule.finish()
	x.rule.fault.run(x)
}

// exchange is one call on its way.
type exchange struct {
	proxy *Proxy
	w     http.ResponseWriter
	r     *http.Request
	rule  *Rule           // nil where there is none
	life  context.Context // of the server
}

// reply is the engine's answer to a call, with its connection.
type reply struct {
	*http.Response
	conn  *net.UnixConn
	rest  *bufio.Reader
	sent  <-chan error
	untie func() bool // the connection no longer ends with the context
}

// send passes the call to the engine, with this body if it is not nil, and waits for the head of its answer. The connection
// ends with the context.
func (x *exchange) send(ctx context.Context, body []byte) (*reply, error) {
	x.proxy.mu.Lock()
	path := x.proxy.upstream
	x.proxy.mu.Unlock()
	conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	untie := context.AfterFunc(ctx, func() { _ = conn.Close() })
	out := x.r.Clone(ctx)
	if body != nil {
		out.Body, out.ContentLength, out.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	}
	if out.ContentLength == 0 {
		out.Body = http.NoBody // the engine refuses an empty body of unknown length
	}
	sent := make(chan error, 1)
	x.proxy.serving.Go(func() { sent <- out.Write(conn) })
	rest := bufio.NewReader(conn)
	response, err := http.ReadResponse(rest, x.r) //nolint:bodyclose // reply.close does
	if err != nil {
		untie()
		_ = conn.Close()
		return nil, err
	}
	return &reply{Response: response, conn: conn, rest: rest, sent: sent, untie: untie}, nil
}

func (r *reply) close() {
	r.untie()
	_ = r.Body.Close()
	_ = r.conn.Close()
}

// pass is a call without a fault. When the client goes, so does the call at the engine.
func (x *exchange) pass() {
	answer, err := x.send(x.r.Context(), nil)
	if err != nil {
		x.cut()
		return
	}
	defer answer.close()
	if answer.StatusCode == http.StatusSwitchingProtocols {
		x.tunnel(answer)
		return
	}
	op, _ := operation(x.r)
	x.proxy.mu.Lock()
	another := x.proxy.another
	x.proxy.mu.Unlock()
	if op == Info && another != "" {
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			x.cut()
			return
		}
		x.write(answer.Response, pretend(b, another))
		return
	}
	x.head(answer.Response, answer.ContentLength)
	flow := http.NewResponseController(x.w)
	_ = flow.Flush()
	buffer := make([]byte, 32<<10)
	for {
		n, err := answer.Body.Read(buffer)
		if n > 0 {
			if _, err := x.w.Write(buffer[:n]); err != nil {
				return
			}
			_ = flow.Flush()
		}
		switch {
		case errors.Is(err, io.EOF):
			return
		case err != nil:
			x.cut() // the engine's connection broke, and so does the client's
			return
		}
	}
}

func pretend(info []byte, another string) []byte {
	fields := map[string]json.RawMessage{}
	if err := json.Unmarshal(info, &fields); err != nil {
		return info
	}
	for field, value := range map[string]string{"ID": another, "DockerRootDir": "/var/lib/" + another} {
		fields[field], _ = json.Marshal(value)
	}
	out, _ := json.Marshal(fields)
	return out
}

// head begins the reply to the client; length is -1 where it is not known.
func (x *exchange) head(from *http.Response, length int64) {
	maps.Copy(x.w.Header(), from.Header)
	x.w.Header().Del("Content-Length")
	if length >= 0 && from.StatusCode != http.StatusNoContent {
		x.w.Header().Set("Content-Length", strconv.FormatInt(length, 10))
	}
	x.w.WriteHeader(from.StatusCode)
}

func (x *exchange) write(from *http.Response, body []byte) {
	length := int64(len(body))
	if x.r.Method == http.MethodHead {
		length = from.ContentLength
	}
	x.head(from, length)
	_, _ = x.w.Write(body)
}

// hijack takes the client's connection. It is closed with the server.
func (x *exchange) hijack() (net.Conn, *bufio.ReadWriter, func()) {
	conn, buffered, err := http.NewResponseController(x.w).Hijack()
	if err != nil {
		return nil, nil, func() {}
	}
	stop := context.AfterFunc(x.life, func() { _ = conn.Close() })
	return conn, buffered, func() {
		stop()
		_ = conn.Close()
	}
}

// cut breaks the client's connection off without a word.
func (x *exchange) cut() {
	_, _, end := x.hijack()
	end()
}

// tunnel joins the two connections of a process that is attached, each direction with an end of its own.
func (x *exchange) tunnel(answer *reply) {
	if <-answer.sent != nil {
		x.cut()
		return
	}
	answer.untie() // the request's context ends with the client's input
	conn, buffered, end := x.hijack()
	if conn == nil {
		return
	}
	defer end()
	defer context.AfterFunc(x.life, func() { _ = answer.conn.Close() })()
	var head bytes.Buffer
	head.WriteString("HTTP/1.1 101 UPGRADED\r\n")
	_ = answer.Header.Write(&head)
	head.WriteString("\r\n")
	if _, err := conn.Write(head.Bytes()); err != nil {
		return
	}
	x.proxy.serving.Go(func() {
		if _, err := io.Copy(answer.conn, buffered); err != nil {
			_ = answer.conn.Close() // the client is gone
			return
		}
		_ = answer.conn.CloseWrite()
	})
	_, _ = io.Copy(conn, answer.rest)
	if half, can := conn.(interface{ CloseWrite() error }); can {
		_ = half.CloseWrite()
	}
}
