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

// A supervisor that stands by has been started already, and becomes that of an operation once it is told of which: a program
// that an engine or a gateway starts in a sandbox takes 20 to 60 ms until it runs. It waits at a Unix socket in a directory that
// host and sandbox share, where an agent can take its place as it can change the records of its operations, and where sockets do
// not reach across there is none: then supervisors are started in the other way.

// StandbyName is the socket's name.
const StandbyName = supervise.StandbyArgument

// standingByLine is what one says first to whoever calls it, and taken what it then says to whoever started it.
const (
	standingByLine = "standing by\n"
	takenLine      = "taken"
)

const (
	greetingLimit = time.Second      // for that, on this host's side
	callLimit     = 10 * time.Second // to be told what to do
)

// standbyCall says what a supervisor that stands by is to be. Its Spec follows, to the end of the stream.
type standbyCall struct {
	Dir string   `json:"dir"` // of records, as the sandbox sees it
	Env []string `json:"env,omitempty"`
}

// runStandby waits at socket for a call, once it has told the environment. It does not where another one waits already.
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

// acceptCall is the first connection to socket; nil where another process waits there.
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
	// Whoever else comes finds nobody, rather than one that is busy. The next one is started when stdout ends.
	_, _ = l.Close(), dir.Remove(name)
	onlyOne.Release()
	_, _ = fmt.Fprintln(env.Out, takenLine)
	return conn, process.DetachStdio()
}

// readCall greets whoever has called, and reads what is wanted.
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

// oneShotConn is a connection that is over when something was said on it.
type oneShotConn struct{ net.Conn }

func (o oneShotConn) Write(b []byte) (int, error) {
	n, err := o.Conn.Write(b)
	_ = o.Close()
	return n, err
}

// TakeStandby makes the supervisor that stands by at socket, as this host knows it, the one of the operation whose directory of records
// the sandbox knows as dir. What it is to run is still to be given to the pipe's In. An error says that there is none, and that
// nothing was started.
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
		return errors.New("another process answers at the socket")
	}
	return nil
}

// input is the way into a connection, whose other direction stays open when it is closed.
type input struct{ net.Conn }

func (i input) Close() error {
	if c, ok := i.Conn.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return i.Conn.Close()
}

// minRestartPause and latest bound the pauses before a supervisor that did not come to stand by is started again.
const (
	minRestartPause = 100 * time.Millisecond
	maxRestartPause = time.Minute
)

// keepStandby keeps a supervisor standing by at socket, for as long as this process lives. told is called when the first one does,
// or could not.
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

// startStandby starts a supervisor that stands by, tells when it does, and returns when it was taken, or has ended otherwise.
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
