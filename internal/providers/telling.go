package providers

import (
	"context"
	"fmt"
)

type tellingKey struct{}

// Telling is a context in which a provider can say what takes its time, for whoever follows the operation.
func Telling(ctx context.Context, tell func(text string)) context.Context {
	return context.WithValue(ctx, tellingKey{}, tell)
}

// Tell says a line where somebody wants to hear it.
func Tell(ctx context.Context, format string, args ...any) {
	if tell, ok := ctx.Value(tellingKey{}).(func(string)); ok {
		tell(fmt.Sprintf(format, args...))
	}
}
