package gateway

import (
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// command is one that runs in a sandbox.
type command struct {
	argv    []string
	env     map[string]string // on top of what every process has
	dir     string            // "" is the sandbox's own
	stdin   []byte
	sandbox []string // the environment of every process
}

// maxEvent is what one event of an exec carries at most, in bytes.
const maxEvent = 4096

// ExecSandbox gives up on a command when its time is over or its client has gone. The command knows nothing of that.
func (l *life) ExecSandbox(req *wire.ExecSandboxRequest, stream wire.OpenShell_ExecSandboxServer) error {
	if err := validExec(req); err != nil {
		return err
	}
	l.g.mu.Lock()
	r := l.g.byID(req.GetSandboxId())
	ready := r != nil && r.phase() == wire.SandboxPhase_SANDBOX_PHASE_READY
	var env []string
	if ready {
		env = l.environment(r)
	}
	l.g.mu.Unlock()
	switch {
	case r == nil:
		return notFound()
	case !ready:
		return status.Error(codes.FailedPrecondition, "sandbox is not ready")
	}
	events, listens := make(chan *wire.ExecSandboxEvent), make(chan struct{})
	defer close(listens)
	tell := func(e *wire.ExecSandboxEvent) {
		select {
		case events <- e:
		case <-listens:
		}
	}
	failed := make(chan error, 1)
	l.begins(func() {
		code, err := l.g.back.exec(r.id(), command{argv: req.GetCommand(), env: req.GetEnvironment(), dir: req.GetWorkdir(), stdin: req.GetStdin(), sandbox: env},
			func(stderr bool, data []byte) {
				for chunk := range slices.Chunk(data, maxEvent) {
					if stderr {
						tell(&wire.ExecSandboxEvent{Payload: &wire.ExecSandboxEvent_Stderr{Stderr: &wire.ExecSandboxStderr{Data: chunk}}})
					} else {
						tell(&wire.ExecSandboxEvent{Payload: &wire.ExecSandboxEvent_Stdout{Stdout: &wire.ExecSandboxStdout{Data: chunk}}})
					}
				}
			})
		if err != nil {
			failed <- err
			return
		}
		tell(exit(code))
	})
	var over <-chan time.Time
	if req.GetTimeoutSeconds() > 0 {
		timer := time.NewTimer(time.Duration(req.GetTimeoutSeconds()) * time.Second)
		defer timer.Stop()
		over = timer.C
	}
	for {
		select {
		case e := <-events:
			if err := stream.Send(e); err != nil || e.GetExit() != nil {
				return err
			}
		case err := <-failed:
			return status.Errorf(codes.Unavailable, "supervisor relay failed: %v", err)
		case <-over:
			return stream.Send(exit(124))
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-l.ctx.Done():
			return broken()
		}
	}
}

func exit(code int) *wire.ExecSandboxEvent {
	return &wire.ExecSandboxEvent{Payload: &wire.ExecSandboxEvent_Exit{Exit: &wire.ExecSandboxExit{ExitCode: int32(code)}}} //nolint:gosec // at most 255
}

func validExec(req *wire.ExecSandboxRequest) error {
	switch {
	case req.GetSandboxId() == "":
		return invalid("sandbox_id is required")
	case len(req.GetCommand()) == 0:
		return invalid("command is required")
	case len(req.GetCommand()) > 1024:
		return invalid("command exceeds maximum arguments (%d > 1024)", len(req.GetCommand()))
	case len(req.GetWorkdir()) > 4096 || strings.ContainsAny(req.GetWorkdir(), "\x00\r\n"):
		return invalid("workdir is not valid")
	case req.GetTty():
		return status.Error(codes.Unimplemented, "the gateway for tests has no terminals")
	}
	for _, word := range req.GetCommand() {
		if len(word) > 32<<10 || strings.Contains(word, "\x00") {
			return invalid("command argument is too long or contains NUL")
		}
	}
	if err := validEnvironment("environment", req.GetEnvironment(), 256, 32<<10); err != nil {
		return err
	}
	if n := len(shell(command{argv: req.GetCommand(), env: req.GetEnvironment(), dir: req.GetWorkdir()})); n > 256<<10 {
		return invalid("command exceeds maximum length (%d > 262144)", n)
	}
	return nil
}

// shell is a command as `bash -lc` gets it.
func shell(c command) string {
	var out []string
	if c.dir != "" {
		out = append(out, "cd "+quote(c.dir)+" &&")
	}
	var keys []string
	for k := range c.env {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		out = append(out, k+"="+quote(c.env[k]))
	}
	for _, word := range c.argv {
		out = append(out, quote(word))
	}
	return strings.Join(out, " ")
}

func quote(word string) string { return "'" + strings.ReplaceAll(word, "'", `'"'"'`) + "'" }
