package openshell

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Command is what runs in a sandbox beside its main process, under the login shell of the sandbox's user.
type Command struct {
	Argv  []string
	Env   []string // name=value, in addition to the sandbox's; a gateway takes no line breaks in them
	Dir   string   // "" for the sandbox's
	Stdin []byte   // whole, then the end of input; with all the rest below 1 MiB
}

// Exec runs a command to its end.
//
//   - No: it was certainly not started.
//   - Yes: it ended with code. One that a signal ended has 1, one that is not there 127.
//   - Unknown: all else, also a stream that ends without the code. The command may run on: nothing ends it but itself, another
//     command, or the sandbox's end.
//
// It is bounded only by ctx: a gateway does not say when the command begins. One that vanishes is noticed. A child that keeps
// the outputs open delays the end by 3 s. What does not fit into one request is a *TooLarge.
func (g *Gateway) Exec(ctx context.Context, id string, cmd Command, stdout, stderr io.Writer) (code int, done resource.Outcome, err error) {
	c, cancel := beginCall(ctx, 0)
	defer cancel()
	what := "run " + name(cmd)
	r, err := request(id, cmd)
	if err == nil {
		err = checkSize(r)
	}
	if err != nil {
		return 0, resource.NotDone, failure.Wrap(err, failure.Failed, "%s", what)
	}
	crash.Point("openshell/before-exec")
	stream, err := g.client().ExecSandbox(c.ctx, r)
	if err != nil {
		done, err = g.endEffect(c, err, "%s", what)
		return 0, done, err
	}
	for begun := false; ; begun = true {
		event, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return 0, resource.Unknown, failure.New(failure.OutcomeUnknown, "%s: the gateway's stream ended without the command's exit code", what)
		}
		if err != nil {
			done, err = g.endEffect(c, err, "%s", what)
			if f := failure.As(err); begun && done != resource.Unknown { // it has spoken
				f.Kind, done = failure.OutcomeUnknown, resource.Unknown
			}
			return 0, done, err
		}
		switch e := event.GetPayload().(type) {
		case *wire.ExecSandboxEvent_Stdout:
			_, err = stdout.Write(e.Stdout.GetData())
		case *wire.ExecSandboxEvent_Stderr:
			_, err = stderr.Write(e.Stderr.GetData())
		case *wire.ExecSandboxEvent_Exit:
			return int(e.Exit.GetExitCode()), resource.Done, nil
		}
		if err != nil {
			return 0, resource.Unknown, failure.Wrap(err, failure.OutcomeUnknown, "%s: keep its output", what)
		}
	}
}

func request(id string, cmd Command) (*wire.ExecSandboxRequest, error) {
	r := &wire.ExecSandboxRequest{SandboxId: id, Command: cmd.Argv, Workdir: cmd.Dir, Stdin: cmd.Stdin, Environment: map[string]string{}}
	for _, kv := range cmd.Env {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			return nil, fmt.Errorf("%q is no variable: it has no =", kv)
		}
		r.Environment[name] = value
	}
	return r, nil
}

// name is the program alone: arguments may be long.
func name(cmd Command) string {
	if len(cmd.Argv) == 0 {
		return "no command"
	}
	return cmd.Argv[0]
}
