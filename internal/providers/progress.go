package providers

import (
	"context"
	"fmt"
)

type progressKey struct{}

// WithProgress is a context in which a provider can report what takes its time, for whoever follows the operation.
func WithProgress(ctx context.Context, report func(line string)) context.Context {
	return context.WithValue(ctx, progressKey{}, report)
}

// Progress reports a line where somebody follows.
func Progress(ctx context.Context, format string, args ...any) {
	if report, ok := ctx.Value(progressKey{}).(func(string)); ok {
		report(fmt.Sprintf(format, args...))
	}
}
