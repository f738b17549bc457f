package supervise

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// Argument is the hidden command of the binary that is the supervisor; the directory of records follows.
const Argument = "__supervise"

// InsideArgument is the word before the directory where a supervisor is started in another way, see package inside.
const InsideArgument = "supervise"

// StandbyArgument is the word before the socket at which one waits that is told later what it is the supervisor of, see package inside.
const StandbyArgument = "standby"

const (
	pipeGrace   = 50 * time.Millisecond // for the output of the command's own children after its end
	killGrace   = 10 * time.Second      // for the tree of a command that was ended, before its end is recorded all the same
	recordTries = 60                    // of writing a record on a disk that refuses, a second apart
	cgroupGrace = 5 * time.Second
	spawnTries  = 20                    // of starting a command where there is no room for a process more
	spawnPause  = 50 * time.Millisecond // between them
)

// ack is the one line that a supervisor says on stdout, once it is clear whether it will run the command.
type ack struct {
	Started bool   `json:"started"`
	Reason  string `json:"reason,omitempty"` // why not
}

// Main is the supervisor: it runs the Spec on env.In under the directory that args name, and returns when nothing of it is
// left. SIGINT interrupts the command, SIGTERM ends everything.
func Main(env *system.Env, args []string) int {
	if len(args) != 1 {
		_, _ = fmt.Fprintf(env.Err, "usage: laufwerk %s DIRECTORY < SPEC\n", Argument)
		return failure.ExitUsage
	}
	return run(env, args[0], false)
}

// MainInSandbox is Main on the directory dir in a sandbox, whose memory may be limited: where it runs out, the command and what it
// started are to be killed, and its end to be recorded.
func MainInSandbox(env *system.Env, dir string) int { return run(env, dir, true) }

func run(env *system.Env, dir string, contained bool) int {
	signals, err := process.BecomeOwner()
	if err == nil {
		err = supervise(env, dir, signals, contained)
	}
	if err != nil {
		_, _ = fmt.Fprintf(env.Err, "laufwerk %s %s: %v\n", Argument, dir, err)
		return failure.ExitFailed
	}
	return failure.ExitDone
}

func supervise(env *system.Env, dir string, signals <-chan syscall.Signal, contained bool) error {
	spec, err := readSpec(env.In)
	if err != nil {
		return err // nobody meant this: the worker was killed while it wrote, and reads no answer
	}
	s := &supervisor{spec: spec, now: env.Now, signals: signals, contained: contained}
	defer s.close()
	if err := s.prepare(dir); err != nil {
		_ = json.NewEncoder(env.Out).Encode(ack{Reason: err.Error()})
		return err
	}
	crash.Point("supervise/before-ack")
	_ = json.NewEncoder(env.Out).Encode(ack{Started: true})
	if err := process.DetachStdio(); err != nil {
		return err
	}
	ended := process.ChildEnded()
	if err := s.spawn(); err != nil {
		return err
	}
	s.superviseTree(ended)
	return s.finish()
}

// readSpec reads to the end, so that a spec of which a part is missing is never run.
func readSpec(r io.Reader) (Spec, error) {
	var spec Spec
	b, err := io.ReadAll(r)
	if err != nil {
		return spec, err
	}
	if err := json.Unmarshal(b, &spec); err != nil {
		return spec, fmt.Errorf("the spec is not whole: %w", err)
	}
	if len(spec.Argv) == 0 || spec.Mark == "" || !filepath.IsAbs(spec.Dir) {
		return spec, errors.New("the spec needs argv, mark and an absolute dir")
	}
	return spec, nil
}

type supervisor struct {
	spec    Spec
	now     func() time.Time
	signals <-chan syscall.Signal
	// contained says that memory may be limited here for this process and the command together.
	contained bool

	r                *records
	lk               *lock.Lock
	exit, goneRecord *recordSlot
	out              [2]*streamSink
	started          StartRecord
	cgroup           *process.Cgroup

	pid      int // of the command; 0 where it could not be started
	streams  [2]*process.Stream
	result   Exit
	ended    bool // the command was reaped
	none     bool // no child is left
	recorded bool // the exit record is written
	stopping bool // asked to stop, or out of time
	killing  bool
	waited   <-chan time.Time // since killing began: the end is recorded now, whatever still lives
	late     bool             // waited is over
	passes   int              // of killing
	timeout  <-chan time.Time
	grace    <-chan time.Time
}

func (s *supervisor) close() {
	s.lk.Release()
	if s.r != nil {
		s.r.close()
	}
}

// prepare takes the directory and writes that the command is about to be started.
func (s *supervisor) prepare(dir string) (err error) {
	if s.r, err = openRecords(dir); err != nil {
		return err
	}
	crash.Point("supervise/before-lock")
	if s.lk, err = s.r.acquireLock(Argument); err != nil {
		return err
	}
	if err := s.r.root.Check(dir); err != nil {
		return err
	}
	for _, name := range []string{abandonedName, startedName, exitName, goneName} {
		if has, err := s.r.root.Exists(name); err != nil {
			return err
		} else if has {
			return fmt.Errorf("this attempt has ended: there is a record %q", name)
		}
	}
	if s.exit, err = s.r.reserve(exitName); err != nil {
		return err
	}
	if s.goneRecord, err = s.r.reserve(goneName); err != nil {
		return err
	}
	for i := range s.out {
		f, err := s.r.file(streamName(Stdout + i))
		if err != nil {
			return err
		}
		s.out[i] = &streamSink{f: f, max: s.spec.MaxOutput}
	}
	if s.started.Supervisor, err = process.Self(); err != nil {
		return err
	}
	s.started.Mark = s.spec.Mark
	s.started.Cgroup, s.started.NoCgroup = process.CgroupPath(cgroupName(s.spec.Mark))
	crash.Point("supervise/before-started")
	if err := s.recordStarted(); err != nil {
		return err
	}
	crash.Point("supervise/after-started")
	return nil
}

func (s *supervisor) recordStarted() error {
	s.started.At = s.now().UTC()
	return s.r.write(startedName, s.started)
}

// spawn starts the command, in a control group where one can be had. That it could not be started is its result, but not that a
// sandbox has no room for a process more: others have taken that up, and only its end gives it back. Without a record of an end
// this supervisor is one that was killed.
func (s *supervisor) spawn() error {
	s.result.StartedAt = s.now().UTC()
	var files []*process.File // to be closed once the command has them
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	c := process.Command{Argv: s.spec.Argv, Dir: s.spec.Dir, Env: environment(s.spec.Env, s.spec.Mark), Expendable: s.contained}
	for i, to := range []**process.File{&c.Stdout, &c.Stderr} {
		st, w, err := process.NewStream(s.out[i].write)
		if err != nil {
			s.recordFailure(126, err)
			return nil
		}
		s.streams[i], *to = st, w
		files = append(files, w)
		go st.Run()
	}
	feed, err := stdin(&c, s.spec.Stdin)
	if err != nil {
		s.recordFailure(126, err)
		return nil
	}
	files = append(files, c.Stdin)
	if c.Path, err = process.Find(c.Argv[0], environmentValue(c.Env, "PATH"), c.Dir); err != nil {
		s.recordFailure(notFound(err), err)
		return nil
	}
	if s.started.Cgroup != "" {
		crash.Point("supervise/before-cgroup")
		if s.cgroup, err = process.MakeCgroup(s.started.Cgroup); err == nil {
			crash.Point("supervise/after-cgroup")
			c.Cgroup = s.cgroup
		} else if err := s.withoutCgroup(err); err != nil {
			s.recordFailure(126, err)
			return nil
		}
	}
	crash.Point("supervise/before-spawn")
	pid, err := process.Spawn(c, true)
	if err != nil && s.cgroup != nil {
		// An old kernel, or a filter that refuses clone3: nothing has run yet.
		c.Cgroup = nil
		if e := s.withoutCgroup(err); e == nil {
			pid, err = process.Spawn(c, true)
		}
	}
	for tries := 1; s.contained && process.IsProcessLimit(err); tries++ {
		if tries == spawnTries {
			return err
		}
		time.Sleep(spawnPause)
		pid, err = process.Spawn(c, true)
	}
	if err != nil {
		feed(false)
		s.recordFailure(notFound(err), err)
		return nil
	}
	s.pid = pid
	feed(true)
	crash.Point("supervise/after-spawn")
	return nil
}

// withoutCgroup records, before anything runs, that there is no control group after all.
func (s *supervisor) withoutCgroup(why error) error {
	if s.cgroup != nil {
		_ = s.cgroup.Remove()
		s.cgroup = nil
	}
	s.started.Cgroup, s.started.NoCgroup = "", why.Error()
	return s.recordStarted()
}

func (s *supervisor) recordFailure(code int, err error) {
	s.ended = true
	why := err.Error()
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(s.spec.Argv[0], "/") {
		why = "no directory of PATH has it"
	}
	s.result.Code, s.result.Error = code, fmt.Sprintf("%s could not be started: %s", s.spec.Argv[0], why)
	for i := range s.streams {
		s.streams[i] = nil
	}
}

// notFound is the exit code that shells give a command that is not there, or that cannot be run.
func notFound(err error) int {
	if errors.Is(err, fs.ErrNotExist) {
		return 127
	}
	return 126
}

// superviseTree keeps the command's whole tree until nothing is left of it and its end is recorded. All reaping and all killing is
// done here, by one goroutine: so the id of a child is never used by another process while it may be signalled.
func (s *supervisor) superviseTree(childEnded <-chan struct{}) {
	if s.spec.Timeout > 0 {
		t := time.NewTimer(s.spec.Timeout)
		defer t.Stop()
		s.timeout = t.C
	}
	for {
		s.reap()
		if s.killing && !s.none {
			s.killAll()
			s.reap()
		}
		if s.ended && !s.recorded && (!s.killing || s.none || s.late) {
			s.recordExit()
		}
		if s.none && s.recorded {
			return
		}
		s.waitForEvent(childEnded)
	}
}

func (s *supervisor) waitForEvent(childEnded <-chan struct{}) {
	var again <-chan time.Time
	if s.killing {
		again = time.After(min(time.Duration(s.passes)*100*time.Microsecond, 20*time.Millisecond))
	}
	select {
	case <-childEnded:
	case <-again:
	case <-s.waited:
		s.late = true
	case <-s.timeout:
		if s.stopEndsCommand() {
			s.result.TimedOut = true
		}
		s.stop()
	case <-s.grace:
		s.kill()
	case sig := <-s.signals:
		if s.stopEndsCommand() {
			s.result.Interrupted = true
		}
		if sig == syscall.SIGTERM {
			s.kill()
		} else {
			s.stop()
		}
	}
}

// stopEndsCommand says whether a request to stop now is the one that ends the command.
func (s *supervisor) stopEndsCommand() bool { return !s.ended && !s.stopping && !s.killing }

func (s *supervisor) stop() {
	if !s.stopEndsCommand() {
		return
	}
	s.stopping = true
	if s.spec.Grace <= 0 {
		s.kill()
		return
	}
	sig := s.spec.Interrupt
	if sig == 0 {
		sig = syscall.SIGINT
	}
	_ = process.SignalGroup(s.pid, sig)
	s.grace = time.After(s.spec.Grace)
}

// killAll kills what can be seen now. It is repeated until no child is left.
func (s *supervisor) killAll() {
	s.passes++
	if s.cgroup != nil {
		_ = s.cgroup.Kill()
	}
	process.KillDescendants()
	process.KillChildren()
}

func (s *supervisor) kill() {
	if !s.killing {
		s.killing, s.waited = true, time.After(killGrace)
		crash.Point("supervise/before-kill")
	}
}

func (s *supervisor) reap() {
	ended, empty := process.Reap()
	s.none = empty
	for _, st := range ended {
		if st.PID == s.pid && !s.ended {
			s.ended = true
			s.result.Code, s.result.Signal = st.Code, st.Signal
			if s.stopping {
				s.kill() // what it left behind goes with it
			}
		}
	}
}

// recordExit writes how the command ended, after everything that it wrote itself.
func (s *supervisor) recordExit() {
	s.result.EndedAt = s.now().UTC()
	bound := time.NewTimer(pipeGrace)
	defer bound.Stop()
	late := false
	for _, st := range s.streams {
		if st == nil {
			continue
		}
		if !late {
			select {
			case <-st.Done():
			case <-bound.C:
				late = true // a process in the background holds it
			}
		}
		st.Drain()
	}
	var problems []error
	for i, total := range []*int64{&s.result.StdoutBytes, &s.result.StderrBytes} {
		n, err := s.out[i].settle()
		*total = n
		if err != nil {
			problems = append(problems, fmt.Errorf("%s could not be stored: %w", streamName(Stdout+i), err))
		}
	}
	if err := errors.Join(problems...); err != nil {
		s.result.Incomplete = err.Error()
	}
	crash.Point("supervise/before-exit")
	s.commitRecord(s.exit, s.result)
	crash.Point("supervise/after-exit")
	s.recorded = true
}

// commitRecord tries for a while: a full or failing disk may recover, and without the record the end is lost.
func (s *supervisor) commitRecord(to *recordSlot, v any) {
	for tries := 1; to.commit(v) != nil && tries < recordTries; tries++ {
		time.Sleep(time.Second)
	}
}

// finish writes that nothing is left, and gives the lock up last.
func (s *supervisor) finish() error {
	f := FenceResult{Sure: true, How: HowSubreaper, At: s.now().UTC()}
	if s.cgroup != nil {
		ctx, cancel := context.WithTimeout(context.Background(), cgroupGrace)
		defer cancel()
		f.How = HowCgroup
		if err := s.cgroup.End(ctx); err != nil {
			f.Sure, f.Why, f.Survivors = false, err.Error(), s.cgroup.PIDs()
		}
	}
	crash.Point("supervise/before-gone")
	s.commitRecord(s.goneRecord, f)
	crash.Point("supervise/after-gone")
	return nil
}

// streamSink stores the first max bytes of a stream and counts all of them. It never makes the writer wait for long.
type streamSink struct {
	mu    sync.Mutex
	f     *files.File
	max   int64
	total int64
	err   error
}

func (k *streamSink) write(b []byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if room := k.max - k.total; room > 0 && k.err == nil {
		_, k.err = k.f.Write(b[:min(int64(len(b)), room)])
	}
	k.total += int64(len(b))
}

// settle makes what is stored durable, and says how much was written until now.
func (k *streamSink) settle() (total int64, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil && k.total > 0 {
		k.err = k.f.Sync()
	}
	return k.total, k.err
}

// stdin gives c its input: a pipe that is filled once the command runs, or nothing at all. A command that ends without
// having read it is no error.
func stdin(c *process.Command, data []byte) (feed func(started bool), err error) {
	r, w, err := process.Pipe(len(data) > 0)
	if err != nil {
		return nil, err
	}
	c.Stdin = r
	return func(started bool) {
		if w == nil {
			return
		}
		if !started {
			_ = w.Close()
			return
		}
		go func() {
			_, _ = bytes.NewReader(data).WriteTo(w)
			_ = w.Close()
		}()
	}, nil
}
