package writeback

import (
	"fmt"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
)

// finding is one reason why one path cannot be written back.
type finding struct {
	Path    rawPath `json:"path"`
	Why     string  `json:"why"`
	Refused bool    `json:"refused,omitempty"` // may never be written, whatever the source holds
}

type findings []finding

func (f *findings) refuse(path, format string, args ...any) {
	*f = append(*f, finding{rawPath(path), fmt.Sprintf(format, args...), true})
}

func (f *findings) conflict(path, format string, args ...any) {
	*f = append(*f, finding{rawPath(path), fmt.Sprintf(format, args...), false})
}

func (f findings) paths() []string {
	var out []string
	for _, x := range f {
		out = append(out, string(x.Path))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// failure is the one failure that stands for all findings, nil where there are none. outcome says what became of the source.
func (f findings) failure(outcome string) *failure.Error {
	if len(f) == 0 {
		return nil
	}
	slices.SortStableFunc(f, func(a, b finding) int { return strings.Compare(string(a.Path), string(b.Path)) })
	refused := slices.ContainsFunc(f, func(x finding) bool { return x.Refused })
	paths := f.paths()
	var e *failure.Error
	if refused {
		e = failure.New(failure.WriteBackRefused, "the write-back is refused because of %s; %s. What is there has to be undone in the workspace", countPaths(len(paths)), outcome).
			WithHint("laufwerk diff RUN")
	} else {
		e = failure.New(failure.WriteBackConflict,
			"the source and the workspace both changed %s; %s. Bring the source back to what it was when the workspace was opened, or to what the workspace holds, and resume",
			countPaths(len(paths)), outcome).WithHint("laufwerk diff RUN\nlaufwerk resume RUN")
	}
	e.Paths = paths
	for _, x := range f {
		e.Conditions = append(e.Conditions, failure.Condition{ID: string(x.Path), Message: x.Why})
	}
	return e
}

func countPaths(n int) string {
	if n == 1 {
		return "1 path"
	}
	return fmt.Sprintf("%d paths", n)
}
