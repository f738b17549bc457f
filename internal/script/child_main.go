package script

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/sdk"
)

// Main is the child: it does what the first message asks for and ends. It also ends, whatever it is doing, when its stdin
// does: a child never outlives its parent. The result is the process's exit code.
func Main(env *system.Env, in io.Reader, out io.Writer, rules Validator) int {
	// Evaluating a config takes a few megabytes: collecting them would cost more than they do. This begins at 32 MiB.
	debug.SetGCPercent(800)
	debug.SetMemoryLimit(256 << 20)
	system.SetDeterministic()
	if err := process.CloseInherited(); err != nil {
		fmt.Fprintln(env.Err, err) // the parent tells it
		return 1
	}
	go process.OnStdinHangUp(func() { system.Exit(0) })
	c := &child{out: newLineWriter(out), in: newLineReader(in), rules: rules}
	first := c.receive()
	if first.Type != protocol.TypeStart || first.Start == nil {
		return 1
	}
	s := first.Start
	// Beside the engine's memory there are the bundler's and the runtime's own.
	if err := process.Confine(uint64(max(s.Limits.MemoryBytes, LeastMemory))*2 + 1<<30); err != nil {
		c.fail(&protocol.Error{Class: "Error", Code: string(failure.Internal), Message: "the isolate cannot confine itself: " + err.Error()})
		return 1
	}
	if err := c.serve(s); err != nil {
		c.fail(err)
	}
	return 0
}

type child struct {
	in    *lineReader
	out   *lineWriter
	rules Validator
	asks  sync.Mutex
	found map[string]protocol.File // modules that came with their content, by where they really are
}

// receive is the parent's next message. The process ends where there is none.
func (c *child) receive() *protocol.Message {
	m, err := c.in.next()
	if err != nil {
		system.Exit(0)
	}
	return m
}

func (c *child) fail(e *protocol.Error) {
	c.send(&protocol.Message{Type: protocol.TypeError, Error: e})
}

// send ends the process where nobody listens any more.
func (c *child) send(ms ...*protocol.Message) {
	if c.out.send(ms...) != nil {
		system.Exit(0)
	}
}

func (c *child) serve(s *protocol.Start) *protocol.Error {
	vm, bundle, e := c.prepare(s)
	if e != nil {
		return e
	}
	// The engine is left to the end of the process: freeing its memory piece by piece would only take time.
	if e := vm.load(bundle); e != nil {
		return e
	}
	e = vm.start(s)
	for {
		if e != nil {
			return e
		}
		posted := vm.takePosted()
		if n := len(posted); n > 0 && (posted[n-1].Type == protocol.TypeDone || posted[n-1].Type == protocol.TypeError) {
			c.send(posted...)
			return nil
		}
		if s.Mode != workflow {
			return &protocol.Error{Class: "Error", Code: string(failure.ProjectInvalid), Message: "it waits for a promise that nothing will ever settle: the isolate has no timers, files or network"}
		}
		c.send(append(posted, &protocol.Message{Type: protocol.TypeIdle})...)
		e = vm.deliver(c.receive())
	}
}

// prepare makes the bundle, if there is none yet, and beside that an engine with the bundle's SDK.
func (c *child) prepare(s *protocol.Start) (*isolate, *protocol.Bundle, *protocol.Error) {
	bundle, source := s.Bundle, sdk.Script
	bundled := make(chan *protocol.Error, 1)
	if bundle != nil {
		if s.Mode == workflow { // what is evaluated is of this build
			source = bundle.SDK
		}
		bundled <- nil
	} else {
		bundle = &protocol.Bundle{}
		go func() {
			var err *protocol.Error
			*bundle, err = makeBundle(s.Entry, c)
			bundled <- err
		}()
	}
	vm, err := newIsolate(s, c.rules, func(m *protocol.Message) { c.send(m) }, c.hostCalls(s))
	var e *protocol.Error
	if err != nil {
		e = &protocol.Error{Class: "Error", Code: string(failure.Internal), Message: err.Error()}
	} else {
		e = vm.loadSDK(source)
	}
	if err := <-bundled; err != nil {
		return nil, nil, err
	}
	if s.Mode == evaluate {
		posted := bundle
		if s.Bundle != nil {
			posted = &protocol.Bundle{Digest: bundle.Digest} // the parent has it
		}
		c.send(&protocol.Message{Type: protocol.TypeBundle, Bundle: posted})
	}
	return vm, bundle, e
}

// hostCalls asks the parent; a workflow hears what was said when its bundle was made.
func (c *child) hostCalls(s *protocol.Start) func(protocol.HostCall) protocol.HostCall {
	return func(q protocol.HostCall) protocol.HostCall {
		if s.Mode == evaluate {
			c.send(&protocol.Message{Type: protocol.TypeHost, Host: &q})
			if m := c.receive(); m.Type == protocol.TypeHost && m.Host != nil {
				return *m.Host
			}
			q.Error = &protocol.Error{Class: "Error", Code: string(failure.Internal), Message: "the parent did not answer what the module asked of the host"}
			return q
		}
		for _, a := range s.Bundle.Answers {
			if a.Name == q.Name && sameJSON(a.Args, q.Args) {
				return a
			}
		}
		q.Error = wireError(failure.New(failure.Unsupported,
			"%s was not called in this way when the run began: a workflow calls it while its module is loaded, always with the same arguments", q.Name))
		return q
	}
}

// sameJSON compares canonical JSON, of which one has been in a file: there <, > and & are written otherwise.
func sameJSON(a, b json.RawMessage) bool {
	x, errX := json.Marshal(a)
	y, errY := json.Marshal(b)
	return errX == nil && errY == nil && string(x) == string(y)
}

// find, stat and read ask the parent for files; esbuild calls them from several goroutines.
func (c *child) find(path string) (protocol.File, error) { return c.askParent("find", path) }
func (c *child) stat(path string) (protocol.File, error) { return c.askParent("stat", path) }
func (c *child) read(path string) (protocol.File, error) { return c.askParent("read", path) }

func (c *child) askParent(kind, path string) (protocol.File, error) {
	c.asks.Lock()
	defer c.asks.Unlock()
	if f, ok := c.found[path]; ok && kind == "read" {
		return f, nil
	}
	c.send(&protocol.Message{Type: protocol.TypeFile, File: &protocol.File{Path: path, Kind: kind}})
	m := c.receive()
	if m.Type != protocol.TypeFile || m.File == nil {
		return protocol.File{}, fmt.Errorf("the parent answered a request for a file with %q", m.Type)
	}
	if kind == "find" && m.File.Content != nil {
		if c.found == nil {
			c.found = map[string]protocol.File{}
		}
		c.found[m.File.Real] = *m.File
	}
	return *m.File, nil
}
