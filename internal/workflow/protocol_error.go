package workflow

import (
	"encoding/json"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/protocol"
)

// WireError is a failure as the workflow catches it.
func WireError(err error) *protocol.Error {
	kind := failure.KindOf(err)
	out := &protocol.Error{Class: kind.Class(), Code: string(kind), Message: err.Error()}
	if f := failure.As(err); f != nil {
		out.Hint = f.Hint
		for k, v := range f.Fields {
			if out.Fields == nil {
				out.Fields = map[string]any{}
			}
			out.Fields[k] = v
		}
		if len(f.Paths) > 0 || len(f.Conditions) > 0 {
			if out.Fields == nil {
				out.Fields = map[string]any{}
			}
		}
		if len(f.Paths) > 0 {
			out.Fields["paths"] = f.Paths
			if raw := failure.PathBase64(f.Paths); raw != nil {
				out.Fields["pathBase64"] = raw
			}
		}
		if len(f.Conditions) > 0 {
			out.Fields["conditions"] = f.Conditions
		}
	}
	return out
}

// Failure is the inverse: what a workflow did not catch, as a failure of the command.
func Failure(w *protocol.Error) error {
	f := failure.New(failure.Kind(w.Code), "%s", w.Message)
	known := false
	for _, r := range failure.Table() {
		known = known || r.Kind == f.Kind
	}
	if !known || f.Kind.Exit() == failure.ExitFailed || f.Kind == failure.Usage {
		f.Kind = failure.WorkflowFailed
	}
	if w.Class != "" && !known {
		f.Message = w.Class + ": " + w.Message
	}
	f.Hint = w.Hint
	var raw []string
	for k, v := range w.Fields {
		switch {
		case k == "paths" && convertJSON(v, &f.Paths):
		case k == "pathBase64" && convertJSON(v, &raw):
		case k == "conditions" && convertJSON(v, &f.Conditions):
		default:
			_ = f.WithField(k, v)
		}
	}
	failure.RestorePaths(f.Paths, raw)
	for _, frame := range w.Frames {
		f.Message += "\n    at " + frame
	}
	return f
}

// convertJSON reads a field through JSON, which it may have passed already or not.
func convertJSON(v, into any) bool {
	b, err := json.Marshal(v)
	return err == nil && json.Unmarshal(b, into) == nil
}
