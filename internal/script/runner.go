package script

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
	"github.com/laufwerk/laufwerk/internal/system/projectfs"
	"github.com/laufwerk/laufwerk/sdk"
)

// Bounds from outside, for what the limits inside the child do not stop.
const (
	stepGrace  = 2 * time.Second  // beyond the step's own limit
	bundleTime = 60 * time.Second // bundling, with the serving of its files
)

// Runner evaluates modules and starts workflows in children.
type Runner struct {
	Executable                   string // a path that starts this binary; see system.Executable
	ConfigLimits, WorkflowLimits Limits // zero values are the defaults
	// Overlay are files that stand before the project's own, by their slash-separated path relative to the root: a project can
	// be evaluated as it would be before anything is written.
	Overlay map[string][]byte
	// Bundles is a directory of this user's alone in which bundles are remembered, "" where they are not. It need not exist.
	// With Recalls nothing is added to it: for commands that change nothing.
	Bundles string
	Recalls bool
	// Log gets what modules print with console.*, if it is set. Text is untrusted.
	Log func(level, text string)
	// Host answers what modules ask of the host while they are evaluated; it may take its time. Nil knows nothing. A workflow
	// that is started hears what it heard when its bundle was made.
	Host Host
}

// Host does what a function of the SDK stands for; root is the project's. Failures reach the module as typed ones.
type Host func(ctx context.Context, root, function string, args json.RawMessage) (json.RawMessage, error)

// EvalOptions say what of a module is wanted.
type EvalOptions struct {
	Export string          // "" is the default export
	Call   bool            // call the export with Args and await it, instead of reading it
	Args   json.RawMessage // an array of arguments, or a single one
	NoTime bool            // no limit of time
	Seed   string          // of every random number
	Now    int64           // what the module's clock says, ms since 1970
}

// Evaluate bundles entry (a file, relative to root, an absolute directory) and returns the JSON form of one of its exports;
// functions in it are left out. The bundle can be pinned and started as a workflow later. Failures of the module are of
// kind ProjectInvalid (of the host's own kind where it could not do what the module asked of it) and begin with
// file:line:column; their fields `frames` and `option` say more; one that exceeded a limit wraps a LimitExceeded.
func (r *Runner) Evaluate(ctx context.Context, root, entry string, opts EvalOptions) (json.RawMessage, protocol.Bundle, error) {
	limits, _ := r.limits()
	if opts.NoTime {
		limits.StepMillis = 0
	}
	fs, err := projectfs.Open(root)
	if err != nil {
		return nil, protocol.Bundle{}, failure.Wrap(err, failure.ProjectInvalid, "open the project %s", root)
	}
	defer fs.Close()
	t, err := r.newConversation()
	if err != nil {
		return nil, protocol.Bundle{}, err
	}
	defer t.kill()
	// While the child's process begins:
	entry = filepath.ToSlash(entry)
	memory := r.bundleMemory(root, entry)
	known := memory.recall(&fileServer{fs: fs})
	if err := t.start(&protocol.Start{
		Mode: evaluate, Root: root, Entry: entry, Bundle: known, Export: opts.Export, Call: opts.Call, Args: opts.Args,
		Seed: opts.Seed, Now: opts.Now, Limits: limits,
	}); err != nil {
		return nil, protocol.Bundle{}, causeOf(ctx, err)
	}

	server := &fileServer{fs: fs, overlay: r.Overlay}
	var conversation []fileExchange
	var bundle protocol.Bundle
	died := func(err error) error { return r.childDied(causeOf(ctx, err), entry, limits, bundle.Code != "") }
	defer t.endWith(ctx)()
	t.watch.Begin(bundleTime)
	for {
		m, err := t.receive(ctx)
		if err != nil {
			return nil, bundle, died(err)
		}
		switch {
		case m.Type == protocol.TypeFile && m.File != nil:
			answer := server.answer(*m.File)
			conversation = append(conversation, newFileExchange(*m.File, *answer))
			if err := t.send(&protocol.Message{Type: protocol.TypeFile, File: answer}); err != nil {
				return nil, bundle, died(err)
			}
		case m.Type == protocol.TypeBundle && m.Bundle != nil:
			if bundle = *m.Bundle; known != nil {
				bundle = *known
			} else if !r.Recalls {
				defer memory.keep(conversation, bundle)
			}
			bundle.SDK = sdk.Script // the child is this binary too
			if limits.StepMillis > 0 {
				t.watch.Begin(limits.Step() + stepGrace)
			} else {
				t.watch.End()
			}
		case m.Type == protocol.TypeHost && m.Host != nil:
			t.watch.End()
			answer, err := r.answerHostCall(ctx, root, *m.Host, len(bundle.Answers))
			if err != nil && ctx.Err() != nil {
				return nil, bundle, failure.Wrap(err, failure.Cancelled, "evaluate %s", entry)
			}
			bundle.Answers = append(bundle.Answers, answer)
			if err := t.send(&protocol.Message{Type: protocol.TypeHost, Host: &bundle.Answers[len(bundle.Answers)-1]}); err != nil {
				return nil, bundle, died(err)
			}
			if limits.StepMillis > 0 {
				t.watch.Begin(limits.Step() + stepGrace)
			}
		case m.Type == protocol.TypeLog:
			r.log(m)
		case m.Type == protocol.TypeDone:
			return m.Value, bundle, nil
		case m.Type == protocol.TypeError && m.Error != nil:
			return nil, bundle, Invalid(entry, m.Error)
		default:
			return nil, bundle, failure.New(failure.Internal, "the isolate said %q while %s was evaluated", m.Type, entry)
		}
	}
}

// causeOf is why a call that met err ended: the end of its context, where there was one.
func causeOf(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Start starts a workflow from a pinned bundle. No file of the project is needed any more. Start.Limits, where they are
// zero, become the runner's. Read its first calls with Step(ctx, nil).
func (r *Runner) Start(ctx context.Context, start protocol.Start) (*Child, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if start.Bundle == nil {
		return nil, failure.New(failure.Internal, "a workflow is started from a bundle")
	}
	start.Mode = workflow
	if start.Limits == (Limits{}) {
		_, start.Limits = r.limits()
	}
	t, err := r.newConversation()
	if err != nil {
		return nil, err
	}
	if err := t.start(&start); err != nil {
		if ctx.Err() != nil { // a signal to the whole process group may reach a child before it has one of its own
			err = ctx.Err()
		}
		return nil, err
	}
	return &Child{talk: t, limits: start.Limits}, nil
}

func (r *Runner) limits() (config, workflow Limits) {
	config, workflow = DefaultLimits()
	if r.ConfigLimits != (Limits{}) {
		config = r.ConfigLimits
	}
	if r.WorkflowLimits != (Limits{}) {
		workflow = r.WorkflowLimits
	}
	return config, workflow
}

// answerHostCall answers one question of a module that has had so many answers before.
func (r *Runner) answerHostCall(ctx context.Context, root string, q protocol.HostCall, before int) (answer protocol.HostCall, err error) {
	answer = protocol.HostCall{Name: q.Name, Args: q.Args}
	switch {
	case before >= maxHostCalls:
		err = failure.New(failure.LimitExceeded, "a module asks the host at most %d times", maxHostCalls)
	case r.Host == nil:
		err = failure.New(failure.Unsupported, "%s is not part of this build", q.Name)
	default:
		answer.Value, err = r.Host(ctx, root, q.Name, q.Args)
	}
	if err != nil {
		answer.Value, answer.Error = nil, wireError(err)
		if e := answer.Error; e.Code != string(failure.Usage) { // its path is no option's
			e.Message, e.Option = strings.TrimPrefix(e.Message, e.Option+": "), ""
		}
	}
	return answer, err
}

func (r *Runner) log(m *protocol.Message) {
	if r.Log == nil {
		return
	}
	var line struct{ Level, Text string }
	if json.Unmarshal(m.Value, &line) == nil {
		r.Log(line.Level, line.Text)
	}
}

// Invalid is a failure of a project's module as people read it.
func Invalid(entry string, e *protocol.Error) error {
	at := entry
	if len(e.Frames) > 0 {
		at, _, _ = strings.Cut(e.Frames[0], " in ")
	}
	file := at
	if name, _, ok := strings.Cut(at, ":"); ok {
		file = name
	}
	out := failure.New(failure.ProjectInvalid, "%s: %s", at, e.Message).WithPaths(file)
	if failure.Kind(e.Code) == failure.LimitExceeded {
		out = failure.New(failure.ProjectInvalid, "%s", at).WithPaths(file)
		out.Err = failure.New(failure.LimitExceeded, "%s", e.Message)
	}
	switch kind := failure.Kind(e.Code); kind {
	case failure.Internal, failure.NotReady, failure.LockBusy, failure.OutcomeUnknown, failure.Retained:
		out.Kind = kind // not the module's fault: what it asked of the host did not go well
	}
	if len(e.Frames) > 0 {
		out.WithField("frames", e.Frames)
	}
	if e.Option != "" {
		out.WithField("option", e.Option)
	}
	out.Hint = e.Hint
	return out
}

// childDied says why a child that was evaluating a module had to be given up.
func (r *Runner) childDied(err error, entry string, limits Limits, evaluating bool) error {
	var ended *endedError
	switch {
	case errors.Is(err, errLate) && evaluating:
		return Invalid(entry, &protocol.Error{Code: string(failure.LimitExceeded), Message: stepLimitMessage(limits)})
	case errors.Is(err, errLate):
		return Invalid(entry, &protocol.Error{Code: string(failure.LimitExceeded), Message: fmt.Sprintf("bundling it took more than %s", bundleTime)})
	case errors.As(err, &ended) && ended.outOfMemory():
		return Invalid(entry, &protocol.Error{Code: string(failure.LimitExceeded), Message: memoryMessage(limits)})
	default:
		return failure.Wrap(err, failure.Internal, "evaluate %s", entry)
	}
}

func stepLimitMessage(l Limits) string {
	return fmt.Sprintf("it ran for more than %s and did not let itself be interrupted, so its process was ended", l.Step())
}

func memoryMessage(l Limits) string {
	return fmt.Sprintf("its process needed far more than the %d MiB of memory that it may have, and was ended", l.MemoryBytes>>20)
}
