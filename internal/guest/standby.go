package guest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
)

// An engine or a gateway takes 20 to 60 ms to start a program in a sandbox. So a supervisor is started ahead and waits at a Unix
// socket in a directory that host and sandbox share. An agent can take its place there, as it can change the records of its
// operations. Where sockets do not work across the boundary, supervisors are started when they are needed.

// StandbyName is the socket's name.
const StandbyName = supervise.StandbyArgument

// standingByLine greets the caller; takenLine goes to the parent after that.
const (
	standingByLine = "standing by\n"
	takenLine      = "taken"
)

const (
	greetingLimit = time.Second      // for the greeting, on the host
	callLimit     = 10 * time.Second // for the request
)

// standbyCall is the request to a waiting supervisor. The Spec follows, to the end of the stream.
type standbyCall struct {
	Dir string   `json:"dir"` // of records, as the sandbox sees it
	Env []string `json:"env,omitempty"`
}

// runStandby prints the environment and waits at socket for a call, unless another process waits there.
func runStandby(env *system.Env, socket string) int {
	process.UnignoreSignals()
	system.IgnorePipe() // what was called stays, also where nobody hears that it was
	conn, err := acceptCall(env, socket)
	if err == nil && conn == nil {
		return failure.ExitDone
	}
	var c standbyCall
	if err == nil {
		defer conn.Close()
		in := bufio.NewReader(conn)
		if c, err = readCall(conn, in); err == nil {
			crash.Adopt(c.Env)
			env.In, env.Out = in, oneShotConn{conn}
			return runSupervisor(env, c.Dir)
		}
	}
	_, _ = fmt.Fprintf(env.Err, "laufwerk %s standby: %v\n", Argument, err)
	return failure.ExitFailed
}

// acceptCall returns the first connection to socket; nil where another process waits there.
func acceptCall(env *system.Env, socket string) (net.Conn, error) {
	dir, err := safefs.OpenRoot(filepath.Dir(socket))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	name := filepath.Base(socket)
	f, err := dir.OpenOrCreate("."+name, 0o600)
	if err != nil {
		return nil, err
	}
	onlyOne, err := lock.Take(f, supervise.StandbyArgument)
	if failure.Is(err, failure.LockBusy) {
		return nil, printEnvironment(env, nil)
	}
	if err != nil {
		return nil, err
	}
	defer onlyOne.Release()
	l, err := dir.Listen(name)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	if err := printEnvironment(env, nil); err != nil {
		return nil, err
	}
	conn, err := l.Accept()
	if err != nil {
		return nil, err
	}
	// Other callers get no connection instead of waiting. The next supervisor is started when stdout ends.
	_, _ = l.Close(), dir.Remove(name)
	onlyOne.Release()
	_, _ = fmt.Fprintln(env.Out, takenLine)
	return conn, process.DetachStdio()
}

// readCall greets the caller and reads its request.
func readCall(conn net.Conn, in *bufio.Reader) (c standbyCall, err error) {
	limit := time.AfterFunc(callLimit, func() { _ = conn.Close() })
	defer limit.Stop()
	if _, err := io.WriteString(conn, standingByLine); err != nil {
		return c, err
	}
	line, err := in.ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &c)
	}
	return c, err
}

// oneShotConn is closed by the first write.
type oneShotConn struct{ net.Conn }

func (o oneShotConn) Write(b []byte) (int, error) {
	n, err := o.Conn.Write(b)
	_ = o.Close()
	return n, err
}

// TakeStandby takes the supervisor that waits at socket, a path of this host, for the operation in dir, a path of the sandbox. The
// Spec is still to be written to the pipe's In. After an error nothing was started.
func TakeStandby(ctx context.Context, socket, dir string, env []string) (supervise.Pipe, error) {
	var none supervise.Pipe
	at, err := safefs.OpenRoot(filepath.Dir(socket))
	if err != nil {
		return none, err
	}
	defer at.Close()
	conn, err := at.Connect(ctx, filepath.Base(socket))
	if err != nil {
		return none, err
	}
	if err := readGreeting(conn); err != nil {
		_ = conn.Close()
		return none, err
	}
	b, err := json.Marshal(standbyCall{Dir: dir, Env: env})
	if err == nil {
		_, err = conn.Write(append(b, '\n'))
	}
	if err != nil {
		_ = conn.Close()
		return none, err
	}
	return supervise.Pipe{In: input{conn}, Out: conn, Close: func() { _ = conn.Close() }}, nil
}

func readGreeting(conn net.Conn) error {
	limit := time.AfterFunc(greetingLimit, func() { _ = conn.Close() })
	defer limit.Stop()
	b := make([]byte, len(standingByLine))
	if _, err := io.ReadFull(conn, b); err != nil {
		return err
	}
	if string(b) != standingByLine {
		return errors.New("somebody else answers at the socket")
	}
	return nil
}

// input closes only the writing half of a connection.
type input struct{ net.Conn }

func (i input) Close() error {
	if c, ok := i.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return i.Conn.Close()
}

// The pauses before a supervisor that failed before it waited is started again.
const (
	minRestartPause = 100 * time.Millisecond
	maxRestartPause = time.Minute
)

// keepStandby keeps a supervisor waiting at socket while this process lives. ready is called when the first one waits or has failed.
func keepStandby(env *system.Env, socket string, ready func()) {
	vars := make([]string, 0, len(env.Vars))
	for name, value := range env.Vars {
		vars = append(vars, name+"="+value)
	}
	for pause := minRestartPause; ; {
		if startStandby(socket, vars, ready) {
			pause = minRestartPause
			continue
		}
		ready()
		time.Sleep(pause)
		pause = min(2*pause, maxRestartPause)
	}
}

// startStandby starts a supervisor, calls ready when it waits, and returns when it was taken or has ended.
func startStandby(socket string, vars []string, ready func()) (ok bool) {
	d, err := process.DetachReaped(Binary, Standby(socket), vars, "/dev/null")
	if err != nil {
		return false
	}
	defer d.Out.Close()
	_ = d.In.Close()
	for out := bufio.NewScanner(d.Out); out.Scan(); ready() {
		ok = out.Text() == takenLine
	}
	return ok
}
