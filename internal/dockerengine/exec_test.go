package dockerengine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
)

// running is an engine whose command does what stream says, and whose end is what end says.
func running(t *testing.T, stream func(conn net.Conn, in *bufio.Reader), end func(n int, w http.ResponseWriter, r *http.Request)) *fake {
	looks := 0
	return faulty(t, "", func(http.ResponseWriter, *http.Request) {}).with(func(w http.ResponseWriter, r *http.Request) bool {
		switch r.Method + " " + r.URL.Path {
		case "POST /exec/X1/start":
			conn, rw := hijackOf(w, r)
			stream(conn, rw.Reader)
			_ = conn.Close()
		case "GET /exec/X1/json":
			looks++
			end(looks, w, r)
		default:
			return false
		}
		return true
	})
}

func ended(code string) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, r *http.Request) {
		answer(w, 200, fmt.Sprintf(`{"ID":"X1","Running":false,"ExitCode":%s}`, code))
	}
}

func says(text string) func(net.Conn, *bufio.Reader) {
	return func(conn net.Conn, _ *bufio.Reader) { _, _ = io.WriteString(conn, text) }
}

func TestExecIsThreeCalls(t *testing.T) {
	f := running(t, says(frame(1, "out")+frame(2, "err")+frame(1, "")+frame(1, "put")), ended("7"))
	e := connected(t, f)
	before := f.calls()
	var out, problems bytes.Buffer
	code, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"x"}}, &out, &problems)
	if code != 7 || done != resource.Done || err != nil || out.String() != "output" || problems.String() != "err" {
		t.Errorf("%d, %s, %v: %q, %q", code, done, err, &out, &problems)
	}
	total := 0
	for k, n := range f.calls() {
		total += n - before[k]
	}
	if total != 3 {
		t.Errorf("%v after %v", f.calls(), before)
	}
}

func TestExecWithoutAKnownEndIsUnknown(t *testing.T) {
	still := func(_ int, w http.ResponseWriter, r *http.Request) {
		answer(w, 200, `{"ID":"X1","Running":true,"ExitCode":null}`)
	}
	status := func(code int, body string) func(int, http.ResponseWriter, *http.Request) {
		return func(_ int, w http.ResponseWriter, r *http.Request) { answer(w, code, body) }
	}
	whole := says(frame(1, "out"))
	for name, c := range map[string]struct {
		stream func(net.Conn, *bufio.Reader)
		end    func(int, http.ResponseWriter, *http.Request)
		says   string
	}{
		"the connection is cut while it runs": {whole, still, "still runs"},
		"cut in a frame's head":               {says(frame(1, "out")[:5]), ended("0"), "were interrupted"},
		"cut in a frame":                      {says(frame(1, "output")[:11]), ended("0"), "were interrupted"},
		"the stream is something else":        {says("HTTP/1.1 200 OK\r\n\r\n"), ended("0"), "were interrupted"},
		"the engine breaks the stream off":    {says(frame(1, "o") + frame(3, "cannot read the log")), ended("0"), "cannot read the log"},
		"no exit code":                        {whole, ended("null"), "no exit code"},
		"the engine has forgotten it":         {whole, status(404, `{"message":"No such exec instance: X1"}`), "No such exec instance"},
		"the engine fails":                    {whole, status(500, `{"message":"boom"}`), "boom"},
		"the answer is cut":                   {whole, status(200, `{"ID":"X1","Running":false,"ExitC`), ""},
		"the answer is zero":                  {whole, status(200, `{}`), "another command"},
		"the answer is about another":         {whole, status(200, `{"ID":"X2","Running":false,"ExitCode":0}`), "another command"},
		"no answer":                           {whole, func(_ int, w http.ResponseWriter, r *http.Request) { hang(r) }, "did not answer within"},
		"the connection is cut again":         {whole, func(_ int, w http.ResponseWriter, r *http.Request) { cutOff(w, "") }, "was interrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			e := connected(t, running(t, c.stream, c.end))
			e.limits.settle = 300 * time.Millisecond
			_, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"x"}}, io.Discard, io.Discard)
			if done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %v (%s)", done, err, failure.KindOf(err))
			}
		})
	}
}

// An engine ends the stream before it has noted the code.
func TestExecWaitsForItsCode(t *testing.T) {
	e := connected(t, running(t, says(""), func(n int, w http.ResponseWriter, r *http.Request) {
		if n < 4 {
			answer(w, 200, `{"ID":"X1","Running":true,"ExitCode":null}`)
			return
		}
		ended("143")(n, w, r)
	}))
	code, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"x"}}, io.Discard, io.Discard)
	if code != 143 || done != resource.Done {
		t.Errorf("%d, %s, %v", code, done, err)
	}
}

// What comes on the heels of the answer to the upgrade is output, and input goes on after the outputs were read.
func TestExecStreamsBothWays(t *testing.T) {
	e := connected(t, running(t, func(conn net.Conn, in *bufio.Reader) {
		_, _ = io.WriteString(conn, frame(1, "first "))
		b, err := io.ReadAll(in) // to the client's half-close
		if err != nil {
			t.Error(err)
		}
		_, _ = io.WriteString(conn, frame(1, string(b)))
	}, ended("0")))
	var out bytes.Buffer
	code, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"cat"}, Stdin: strings.NewReader("in\x00put")}, &out, io.Discard)
	if code != 0 || done != resource.Done || out.String() != "first in\x00put" {
		t.Errorf("%d, %s, %v: %q", code, done, err, &out)
	}
}

// Half an input that looks whole would be written to a file as if it were.
func TestExecWhoseInputFails(t *testing.T) {
	got := make(chan string, 1)
	e := connected(t, running(t, func(conn net.Conn, in *bufio.Reader) {
		b, _ := io.ReadAll(in)
		got <- string(b)
	}, ended("0")))
	broken := errors.New("the disk is gone")
	_, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"cat"}, Stdin: io.MultiReader(strings.NewReader("half"), iotest.ErrReader(broken))}, io.Discard, io.Discard)
	if done != resource.Unknown || !errors.Is(err, broken) {
		t.Errorf("%s, %v", done, err)
	}
	if b := <-got; b != "half" {
		t.Errorf("%q", b)
	}
}

// A command that does not read its input ends all the same.
func TestExecWhoseInputIsNotRead(t *testing.T) {
	e := connected(t, running(t, says(frame(1, "done")), ended("0")))
	never, w := io.Pipe()
	defer w.Close()
	var out bytes.Buffer
	code, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"true"}, Stdin: never}, &out, io.Discard)
	if code != 0 || done != resource.Done || out.String() != "done" {
		t.Errorf("%d, %s, %v", code, done, err)
	}
}

type full struct{}

func (full) Write([]byte) (int, error) {
	return 0, failure.New(failure.OutputTooLarge, "too much")
}

func TestExecWhoseOutputIsRefused(t *testing.T) {
	e := connected(t, running(t, says(frame(1, "out")), ended("0")))
	_, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"x"}}, full{}, io.Discard)
	if done != resource.Unknown || !failure.Is(err, failure.OutputTooLarge) {
		t.Errorf("%s, %v", done, err)
	}
}

func TestExecEndsWithItsContext(t *testing.T) {
	gone := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	e := connected(t, running(t, func(conn net.Conn, in *bufio.Reader) {
		cancel()
		_, _ = io.Copy(io.Discard, in) // until the client closes
		close(gone)
	}, ended("0")))
	_, done, err := e.Exec(ctx, "C1", Command{Argv: []string{"sleep"}}, io.Discard, io.Discard)
	if done != resource.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("%s, %v", done, err)
	}
	<-gone
}

func TestExecThatWasNotMadeWasNotStarted(t *testing.T) {
	for name, do := range map[string]func(w http.ResponseWriter, r *http.Request){
		"500":       func(w http.ResponseWriter, r *http.Request) { answer(w, 500, `{"message":"x"}`) },
		"cut":       func(w http.ResponseWriter, r *http.Request) { cutOff(w, "") },
		"truncated": func(w http.ResponseWriter, r *http.Request) { answer(w, 201, `{"Id":"X`) },
		"no id":     func(w http.ResponseWriter, r *http.Request) { answer(w, 201, `{}`) },
		"gone":      func(w http.ResponseWriter, r *http.Request) { answer(w, 404, `{"message":"No such container: C1"}`) },
	} {
		t.Run(name, func(t *testing.T) {
			e := connected(t, faulty(t, "POST /containers/C1/exec", do))
			_, done, err := e.Exec(context.Background(), "C1", Command{Argv: []string{"x"}}, io.Discard, io.Discard)
			if done != resource.NotDone || err == nil || errors.Is(err, ErrNoContainer) != (name == "gone") {
				t.Errorf("%s, %v", done, err)
			}
			if s, done, err := e.Open(context.Background(), "C1", Command{Argv: []string{"x"}}); s != nil || done != resource.NotDone || err == nil {
				t.Errorf("%s, %v", done, err)
			}
		})
	}
}

func TestOpenHandsOutTheStreams(t *testing.T) {
	e := connected(t, running(t, func(conn net.Conn, in *bufio.Reader) {
		line, _ := in.ReadString('\n')
		_, _ = io.WriteString(conn, frame(2, "heard ")+frame(1, line))
		_, _ = io.Copy(io.Discard, in)
		_, _ = io.WriteString(conn, frame(1, "end"))
	}, ended("5")))
	s, done, err := e.Open(context.Background(), "C1", Command{Argv: []string{"x"}})
	if done != resource.Done {
		t.Fatal(err)
	}
	defer s.Close()
	problems := make(chan string, 1)
	go func() { b, _ := io.ReadAll(s.Err); problems <- string(b) }()
	if _, err := io.WriteString(s.In, "hello\n"); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(s.Out)
	if line, err := out.ReadString('\n'); line != "hello\n" {
		t.Fatalf("%q, %v", line, err)
	}
	if err := s.In.Close(); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if string(rest) != "end" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
	if code, done, err := s.Exit(); code != 5 || done != resource.Done {
		t.Errorf("%d, %s, %v", code, done, err)
	}
	if p := <-problems; p != "heard " {
		t.Errorf("%q", p)
	}
}

func TestOpenThatIsCutOrClosed(t *testing.T) {
	e := connected(t, running(t, says(frame(1, "output")[:10]), ended("0")))
	s, _, err := e.Open(context.Background(), "C1", Command{Argv: []string{"x"}})
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(s.Out); string(b) != "ou" || !failure.Is(err, failure.OutcomeUnknown) {
		t.Errorf("%q, %v", b, err)
	}
	if _, done, err := s.Exit(); done != resource.Unknown || err == nil {
		t.Errorf("%s, %v", done, err)
	}
	s.Close()

	e = connected(t, running(t, func(conn net.Conn, in *bufio.Reader) { _, _ = io.Copy(io.Discard, in) }, ended("0")))
	if s, _, err = e.Open(context.Background(), "C1", Command{Argv: []string{"x"}}); err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := io.ReadAll(s.Out); err == nil {
		t.Error("a closed stream looks whole")
	}
	if _, done, err := s.Exit(); done != resource.Unknown || err == nil {
		t.Errorf("%s, %v", done, err)
	}
}

func TestDemuxTakesFramesOfAnySize(t *testing.T) {
	big := strings.Repeat("x", 3<<20)
	stream := frame(1, big) + frame(2, "e") + frame(1, "y")
	var out, problems bytes.Buffer
	if err := demux(&out, &problems, iotest.OneByteReader(strings.NewReader(stream))); err != nil {
		t.Fatal(err)
	}
	if out.String() != big+"y" || problems.String() != "e" {
		t.Error(out.Len(), problems.Len())
	}
	for i := range len(frame(1, "abc")) {
		if i > 0 {
			if err := demux(io.Discard, io.Discard, strings.NewReader(stream[:len(stream)-9]+frame(1, "abc")[:i])); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("cut after %d bytes: %v", i, err)
			}
		}
	}
}
