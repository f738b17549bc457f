package targets

import (
	"errors"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
)

func TestNotReadySaysWhatToTypeForEachAndThenResume(t *testing.T) {
	image := Missing("docker", "image", failure.New(failure.NotReady, "the image is not there").WithHint("docker pull x"))
	login := Missing("docker", "codex.login", failure.New(failure.NotReady, "not logged in").WithHint("codex login"))
	plain := Missing("docker", "env", errors.New("A is not set"))
	for _, c := range []struct {
		missing []failure.Condition
		hint    string
	}{
		{[]failure.Condition{image}, "docker pull x\nlaufwerk resume RUN"},
		{[]failure.Condition{image, login, image}, "docker pull x\ncodex login\nlaufwerk resume RUN"},
		{[]failure.Condition{plain}, "laufwerk resume RUN"},
	} {
		e := NotReady(Definition{ID: "box"}, c.missing)
		if e.Kind != failure.NotReady || e.Hint != c.hint || e.Message != `the target "box" is not ready: `+c.missing[0].Message || len(e.Conditions) != len(c.missing) {
			t.Errorf("NotReady = %+v, want the hint %q", e, c.hint)
		}
	}
}
