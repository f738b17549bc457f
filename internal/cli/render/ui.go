// Package render is the only way from a command to its reader: stdout for data, stderr for talk, JSON or text, colour or
// not. Foreign text is sanitised here, so that no command can forget it.
package render

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/system"
)

// UI is a command's two output streams. Its methods may be called from several goroutines.
type UI struct {
	JSON   bool   // documents on stdout instead of text
	Schema string // of the documents, such as "laufwerk.version/1"
	Out    *Stream
	Err    *Stream
}

// New is the UI of a process. color answers "auto", "always" or "never" when the first styled text is made.
func New(env *system.Env, color func() string) *UI {
	mu := &sync.Mutex{}
	u := &UI{}
	mode := sync.OnceValue(func() string {
		if u.JSON {
			return "never"
		}
		return color()
	})
	b := &below{now: env.Now}
	u.Out = newStream(env.Out, env.OutTTY, env.Vars, mode, mu, b)
	u.Err = newStream(env.Err, env.ErrTTY, env.Vars, mode, mu, b)
	return u
}

// Printf writes data for people on stdout; with --json it writes nothing. Every text argument is sanitised but Styled.
func (u *UI) Printf(format string, args ...any) {
	if !u.JSON {
		u.Out.write(format, args)
	}
}

// Talkf writes to stderr what is not data: progress, explanations, next steps. With --json it writes nothing: whoever reads
// documents is told everything in them.
func (u *UI) Talkf(format string, args ...any) {
	if !u.JSON {
		u.Err.write(format, args)
	}
}

// Debugf writes to stderr, with --json too.
func (u *UI) Debugf(format string, args ...any) { u.Err.write(format, args) }

// Document writes doc, which encodes as an object, as one line of JSON with its schema first; without --json it writes
// nothing. A command calls it once, a stream once for every object.
func (u *UI) Document(doc any) error {
	if !u.JSON {
		return nil
	}
	return u.document(doc, nil)
}

// Attach adds the document that a command would have printed to the error that it ends with: with --json, both come out
// as one document.
func Attach(err error, doc any) error {
	if err == nil {
		return nil
	}
	return &attached{err, doc}
}

type attached struct {
	error
	doc any
}

func (a *attached) Unwrap() error { return a.error }

type errorDocument struct {
	Code       failure.Kind   `json:"code"`
	Message    string         `json:"message"`
	Hint       string         `json:"hint"`
	Paths      []string       `json:"paths,omitempty"`
	PathBase64 []string       `json:"pathBase64,omitempty"` // one for each of paths, "" where that is UTF-8
	Fields     map[string]any `json:"fields,omitempty"`
}

type failureDocument struct {
	Error      errorDocument       `json:"error"`
	Conditions []failure.Condition `json:"conditions"`
}

// Failure prints how a command failed: what, why, and the next command to type.
func (u *UI) Failure(err error) {
	f := failure.As(err)
	if f == nil {
		f = &failure.Error{Kind: failure.KindOf(err)}
	}
	if u.JSON {
		doc := failureDocument{
			Error:      errorDocument{Code: f.Kind, Message: err.Error(), Hint: f.Hint, Paths: f.Paths, PathBase64: failure.PathBase64(f.Paths), Fields: f.Fields},
			Conditions: append([]failure.Condition{}, f.Conditions...),
		}
		_ = u.document(docOf(err), doc)
		return
	}
	message := err.Error()
	u.Talkf("%s %s\n", u.Err.Bad("error:"), message)
	for _, p := range f.Paths {
		if !strings.Contains(message, p) && !slices.ContainsFunc(f.Conditions, func(c failure.Condition) bool { return c.ID == p }) {
			u.Talkf("  %s\n", Name(p))
		}
	}
	for _, c := range f.Conditions {
		if strings.HasSuffix(message, ": "+c.Message) {
			continue // it is what the message ends with
		}
		u.Talkf("  %s: %s\n", c.ID, indent(c.Message, "    "))
	}
	if f.Hint != "" {
		u.Next(f.Hint)
	}
}

// Next says what to type next: a command, or a line for each of several.
func (u *UI) Next(commands string) {
	u.Talkf("%s %s\n", u.Err.Bold("next:"), indent(commands, "      "))
}

func indent(text, by string) string { return strings.ReplaceAll(text, "\n", "\n"+by) }

func docOf(err error) any {
	for err != nil {
		if a, ok := err.(*attached); ok { //nolint:errorlint // walks the chain itself
			return a.doc
		}
		u, ok := err.(interface{ Unwrap() error })
		if !ok {
			return nil
		}
		err = u.Unwrap()
	}
	return nil
}

// document joins the fields of up to two objects behind the schema.
func (u *UI) document(docs ...any) error {
	line := bytes.NewBufferString("{")
	schema, err := encode(u.Schema)
	if err != nil {
		return err
	}
	line.WriteString(`"schema":`)
	line.Write(schema)
	for _, doc := range docs {
		if doc == nil {
			continue
		}
		object, err := encode(doc)
		if err != nil {
			return err
		}
		if len(object) < 2 || object[0] != '{' {
			return failure.New(failure.Internal, "a document must be an object, got %s", object)
		}
		if fields := object[1 : len(object)-1]; len(fields) > 0 {
			line.WriteByte(',')
			line.Write(fields)
		}
	}
	line.WriteString("}\n")
	u.Out.raw(redact.JSON(line.Bytes()))
	return nil
}

func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, failure.Wrap(err, failure.Internal, "encode the document")
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// WriteError is why something could not be written to stdout, nil if everything was. A reader that went away is no reason: the
// rest of the data is dropped.
func (u *UI) WriteError() error {
	u.Out.mu.Lock()
	defer u.Out.mu.Unlock()
	if u.Out.failed == nil || system.BrokenPipe(u.Out.failed) {
		return nil
	}
	return failure.Wrap(u.Out.failed, failure.Failed, "write to standard output")
}

// Name is a name for people: sanitised, on one line.
func Name(s string) Styled { return Styled{redact.Line(s)} }

// Styled is text that is ready to be written: sanitised, with its colour.
type Styled struct{ text string }

func (s Styled) String() string { return s.text }

func sanitise(args []any) []any {
	out := make([]any, len(args))
	for i, a := range args {
		switch v := a.(type) {
		case nil, bool, int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64, float32, float64:
			out[i] = a
		case Styled:
			out[i] = v.text
		case string:
			out[i] = redact.Terminal(v)
		case []byte:
			out[i] = redact.Terminal(string(v))
		default:
			out[i] = redact.Terminal(fmt.Sprint(v))
		}
	}
	return out
}

// ReaderGone says whether nobody reads stdout any more.
func (u *UI) ReaderGone() bool { return u.Closed() != nil || system.IsReaderGone(u.Out.w) }

// Closed fails once nobody reads stdout any more: a stream of data ends there.
func (u *UI) Closed() error {
	u.Out.mu.Lock()
	defer u.Out.mu.Unlock()
	return u.Out.failed
}
