package script

import (
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"modernc.org/quickjs"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/sha256hex"
	"github.com/laufwerk/laufwerk/internal/system"
)

//go:embed prelude.js
var prelude string

// isolate is one engine with a loaded bundle. Only strings, numbers and booleans cross its boundary.
type isolate struct {
	vm        *quickjs.VM
	limits    Limits
	watch     *system.Watch
	frames    *sourceMap
	rules     Validator
	out       []*protocol.Message
	log       func(*protocol.Message)
	ask       func(protocol.HostCall) protocol.HostCall
	loadErr   string
	attached  bool
	answer    quickjs.Value     // __laufwerk.deliver
	positions map[string]string // where stacks begin in the project's files: a loop asks from the same place again and again
}

// maxPositions bounds the places that are remembered.
const maxPositions = 1000

// newIsolate makes an engine whose time and randomness follow from the start message alone. log gets console output, ask has
// the host's answers.
func newIsolate(s *protocol.Start, rules Validator, log func(*protocol.Message), ask func(protocol.HostCall) protocol.HostCall) (*isolate, error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	limits := s.Limits
	limits.MemoryBytes = max(limits.MemoryBytes, LeastMemory)
	vm.SetMemoryLimit(uintptr(limits.MemoryBytes))
	i := &isolate{vm: vm, limits: limits, watch: system.NewWatch(vm.Interrupt), rules: rules, log: log, ask: ask}
	for name, fn := range map[string]quickjs.HostFunc{
		"__post": i.post, "__validate": i.validate, "__call": i.call, "__digest": digest, "__url": parseURL, "__log": i.console,
		"__attach": func([]any) (any, error) { i.attached = true; return nil, nil },
		"__failed": func(a []any) (any, error) { i.loadErr = text(a, 0); return nil, nil },
	} {
		if err := vm.RegisterHostFunc(name, fn); err != nil {
			_ = vm.Close()
			return nil, err
		}
	}
	root, err := json.Marshal(s.Root)
	if err != nil {
		_ = vm.Close()
		return nil, err
	}
	if err := evalBuilt(vm, preludeBytecode, preludeScript()); err != nil {
		_ = vm.Close()
		return nil, fmt.Errorf("prelude: %w", err)
	}
	boot := fmt.Sprintf(`Object.defineProperty(globalThis, "__laufwerk", { value: Object.freeze(__prelude(__post, __validate, __call, __digest, __url, __log, __attach, %q, %d, %s)) });
globalThis.__load = (api => failed => api.load(%q, failed))(__laufwerk);
globalThis.__begin = (load => (failed => () => load(failed))(__failed))(__load);
for (const name of ["__post", "__validate", "__call", "__digest", "__url", "__log", "__attach", "__failed", "__load", "__prelude"]) delete globalThis[name];`,
		sha256hex.Of(s.Seed), s.Now, root, bundleName)
	if _, err := vm.Eval(boot, quickjs.EvalGlobal); err != nil {
		_ = vm.Close()
		return nil, fmt.Errorf("prelude: %w", err)
	}
	if i.answer, err = vm.EvalValue("__laufwerk.deliver", quickjs.EvalGlobal); err != nil {
		_ = vm.Close()
		return nil, fmt.Errorf("prelude: %w", err)
	}
	return i, nil
}

func (i *isolate) loadSDK(source string) *protocol.Error {
	return i.step(func() error { return evalSDK(i.vm, source) })
}

// load evaluates a bundle's modules, also those that await at their top level.
func (i *isolate) load(b *protocol.Bundle) *protocol.Error {
	i.frames = newSourceMap(b.Map)
	i.vm.SetModuleLoader(func(_ *quickjs.VM, name string) (string, error) {
		if name != bundleName {
			return "", fmt.Errorf("%q cannot be imported: an import must name its module in a string, so that it can be bundled", name)
		}
		return b.Code, nil
	}, func(_ *quickjs.VM, _, name string) (string, error) { return name, nil })
	// Evaluated by an import statement first: a dynamic import loses the place of an interrupted loop. What became of the
	// module is asked for by a dynamic import then, which finds it evaluated.
	late := i.step(func() error {
		_, err := i.vm.Eval(fmt.Sprintf("import %q", bundleName), quickjs.EvalModule)
		return err
	})
	e := i.step(func() error { _, err := i.vm.Call("__begin"); return err })
	if late != nil {
		if i.loadErr != "" && len(late.Frames) == 0 {
			late.Frames = i.workflowError(i.loadErr).Frames
		}
		return late
	}
	if e != nil {
		return e
	}
	switch {
	case i.loadErr != "":
		return i.workflowError(i.loadErr)
	case !i.attached:
		return &protocol.Error{Class: "Error", Code: string(failure.ProjectInvalid), Message: "the module awaits something at its top level that never settles: the isolate has no timers, files or network"}
	}
	return nil
}

// start begins what the start message asks for.
func (i *isolate) start(s *protocol.Start) *protocol.Error {
	request, err := json.Marshal(map[string]any{"mode": s.Mode, "export": s.Export, "call": s.Call, "args": s.Args, "input": s.Input})
	if err != nil {
		return &protocol.Error{Class: "Error", Code: string(failure.Internal), Message: err.Error()}
	}
	return i.step(func() error { _, err := i.vm.Call("__laufwerk.start", string(request)); return err })
}

// deliver hands the program one answer and runs it until nothing can go on.
func (i *isolate) deliver(m *protocol.Message) *protocol.Error {
	answer, err := json.Marshal(m)
	if err != nil {
		return &protocol.Error{Class: "Error", Code: string(failure.Internal), Message: err.Error()}
	}
	return i.step(func() error {
		_, err := i.answer.Call(quickjs.UndefinedValue, string(answer), float64(m.Now))
		return err
	})
}

func (i *isolate) takePosted() []*protocol.Message {
	out := i.out
	i.out = nil
	return out
}

// step runs one call and the jobs that follow from it, within the limits.
func (i *isolate) step(call func() error) *protocol.Error {
	if i.limits.StepMillis > 0 {
		i.watch.Begin(i.limits.Step())
	}
	err := call()
	for err == nil && !i.watch.IsLate() {
		var n int
		if n, err = i.vm.ExecutePendingJobs(); n == 0 {
			break
		}
	}
	if i.watch.End() {
		e := &protocol.Error{Class: "LimitExceeded", Code: string(failure.LimitExceeded), Message: fmt.Sprintf("it ran for more than %s without waiting for anything", i.limits.Step())}
		if js, ok := errors.AsType[*quickjs.Error](err); ok {
			e.Frames = i.frames.frames(js.Stack)
		}
		return e
	}
	if err == nil {
		return nil
	}
	js, ok := errors.AsType[*quickjs.Error](err)
	if !ok {
		return &protocol.Error{Class: "Error", Code: string(failure.Internal), Message: err.Error()}
	}
	message := js.Name
	if js.Message != "" {
		message += ": " + js.Message
	}
	return i.explainLimit(&protocol.Error{Class: js.Name, Code: string(failure.WorkflowFailed), Message: message, Frames: i.frames.frames(js.Stack)})
}

// workflowError reads an error that the program described.
func (i *isolate) workflowError(described string) *protocol.Error {
	var e struct {
		protocol.Error
		Stack string `json:"stack"`
	}
	if err := json.Unmarshal([]byte(described), &e); err != nil {
		return &protocol.Error{Class: "Error", Code: string(failure.Internal), Message: "an error that cannot be read: " + err.Error()}
	}
	e.Frames = i.frames.frames(e.Stack)
	return i.explainLimit(&e.Error)
}

// explainLimit knows the engine's own words for an exhausted limit.
func (i *isolate) explainLimit(e *protocol.Error) *protocol.Error {
	if e.Class == "InternalError" && strings.Contains(e.Message, "out of memory") {
		e.Class, e.Code = "LimitExceeded", string(failure.LimitExceeded)
		e.Message = fmt.Sprintf("it needs more than %d MiB of memory", i.limits.MemoryBytes>>20)
	}
	return e
}

func (i *isolate) post(args []any) (any, error) {
	var m struct {
		protocol.Message
		Error *struct {
			protocol.Error
			Stack string `json:"stack"`
		} `json:"error"`
	}
	if err := json.Unmarshal([]byte(text(args, 0)), &m); err != nil {
		return nil, fmt.Errorf("not a message: %w", err)
	}
	switch m.Type {
	case protocol.TypeCall:
		if m.Call == nil {
			return nil, errors.New("a call without a call")
		}
		m.Call.At = i.sourcePosition(m.Call.At)
	case protocol.TypeError:
		if m.Error == nil {
			return nil, errors.New("an error without an error")
		}
		e := m.Error.Error
		e.Frames = i.frames.frames(m.Error.Stack)
		m.Message.Error = i.explainLimit(&e)
	case protocol.TypeCancel, protocol.TypeDone:
	default:
		return nil, fmt.Errorf("%q is not for programs to say", m.Type)
	}
	i.out = append(i.out, &m.Message)
	return nil, nil
}

// sourcePosition is the first place of a stack that lies in the project's files, "" where there is none.
func (i *isolate) sourcePosition(stack string) string {
	at, known := i.positions[stack]
	if !known {
		if fs := i.frames.frames(stack); len(fs) > 0 {
			at, _, _ = strings.Cut(fs[0], " in ")
		}
		if len(i.positions) >= maxPositions || i.positions == nil {
			i.positions = map[string]string{}
		}
		i.positions[stack] = at
	}
	return at
}

func (i *isolate) validate(args []any) (any, error) {
	value, err := i.rules.Validate(text(args, 0), json.RawMessage(text(args, 1)))
	var answer struct {
		Value json.RawMessage `json:"value,omitempty"`
		Error *protocol.Error `json:"error,omitempty"`
	}
	if answer.Value = value; err != nil {
		answer.Value, answer.Error = nil, wireError(err)
	}
	b, err := json.Marshal(answer)
	return string(b), err
}

// call asks the host and waits: nothing else of the program runs meanwhile, and the time does not count as its own.
func (i *isolate) call(args []any) (any, error) {
	if i.limits.StepMillis > 0 && !i.watch.End() {
		defer i.watch.Begin(i.limits.Step())
	}
	a := i.ask(protocol.HostCall{Name: text(args, 0), Args: json.RawMessage(text(args, 1))})
	b, err := json.Marshal(struct {
		Value json.RawMessage `json:"value,omitempty"`
		Error *protocol.Error `json:"error,omitempty"`
	}{a.Value, a.Error})
	return string(b), err
}

// wireError is a failure on its way into a program.
func wireError(err error) *protocol.Error {
	kind := failure.KindOf(err)
	out := &protocol.Error{Class: kind.Class(), Code: string(kind), Message: err.Error()}
	if f := failure.As(err); f != nil {
		out.Hint = f.Hint
		if len(f.Paths) > 0 && f.Paths[0] != "" {
			out.Option = f.Paths[0]
			if !strings.HasPrefix(out.Message, out.Option+": ") {
				out.Message = out.Option + ": " + out.Message
			}
		}
	}
	if kind == failure.Failed || kind == failure.ProjectInvalid {
		out.Code = string(failure.Usage)
	}
	return out
}

func (i *isolate) console(args []any) (any, error) {
	v, err := json.Marshal(map[string]string{"level": text(args, 0), "text": text(args, 1)})
	if err == nil {
		i.log(&protocol.Message{Type: protocol.TypeLog, Value: v})
	}
	return nil, nil
}

func digest(args []any) (any, error) {
	b, err := base64.StdEncoding.DecodeString(text(args, 0))
	if err != nil {
		return nil, err
	}
	return sha256hex.Of(b), nil
}

// parseURL answers the parts of a URL as the WHATWG's URL class names them, null for what is not an absolute URL.
func parseURL(args []any) (any, error) {
	u := absoluteURL(strings.TrimSpace(text(args, 0)), text(args, 1))
	if u == nil {
		return "null", nil
	}
	u.Scheme = strings.ToLower(u.Scheme)
	u.Host = strings.ToLower(u.Host)
	port := u.Port()
	defaults := map[string]string{"http": "80", "https": "443", "ws": "80", "wss": "443", "ftp": "21"}
	standard, special := defaults[u.Scheme]
	if special {
		if u.Host == "" {
			return "null", nil
		}
		if port == standard {
			u.Host, port = strings.TrimSuffix(u.Host, ":"+port), ""
		}
		if u.Path == "" {
			u.Path = "/"
		}
	}
	prefixed := func(mark, s string) string {
		if s == "" {
			return ""
		}
		return mark + s
	}
	origin := "null"
	if special {
		origin = u.Scheme + "://" + u.Host
	}
	password, _ := u.User.Password()
	hostname := u.Hostname()
	if strings.Contains(hostname, ":") {
		hostname = "[" + hostname + "]"
	}
	pathname := u.EscapedPath()
	if u.Opaque != "" {
		pathname = u.Opaque
	}
	b, err := json.Marshal(map[string]string{
		"href": u.String(), "origin": origin, "protocol": u.Scheme + ":", "username": u.User.Username(), "password": password, "host": u.Host,
		"hostname": hostname, "port": port, "pathname": pathname, "search": prefixed("?", u.RawQuery), "hash": prefixed("#", u.EscapedFragment()),
	})
	return string(b), err
}

// absoluteURL is nil for what is not a URL.
func absoluteURL(given, base string) *url.URL {
	u, err := url.Parse(given)
	if err == nil && !u.IsAbs() && base != "" {
		var b *url.URL
		if b, err = url.Parse(base); err == nil {
			u = b.ResolveReference(u)
		}
	}
	if err != nil || !u.IsAbs() {
		return nil
	}
	return u
}

func text(args []any, n int) string {
	if n < len(args) {
		if s, ok := args[n].(string); ok {
			return s
		}
	}
	return ""
}
