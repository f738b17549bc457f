package supervise

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/laufwerk/laufwerk/internal/system/process"
)

// fenceLimit bounds a fence whose context has no end.
const fenceLimit = 30 * time.Second

// markLimit bounds the search for marked processes, each time: a process that starts others with the mark faster than they
// can be found is named as a survivor.
const markLimit = 2 * time.Second

// Cancel is Fence: what else runs on this host is no matter of the operation.
func (l LocalLauncher) Cancel(ctx context.Context, dir string) FenceResult { return l.Fence(ctx, dir) }

// Fence ends everything of the operation in dir, with or without a living supervisor; where nothing had been started, nothing
// can be any more. It is bounded by ctx and by a limit of its own.
func (l LocalLauncher) Fence(ctx context.Context, dir string) FenceResult {
	ctx, cancel := context.WithTimeout(ctx, fenceLimit)
	defer cancel()
	f := l.fenceDir(ctx, dir)
	if l.Now != nil {
		f.At = l.Now().UTC()
	}
	return f
}

// FenceAll fences every operation of the list, and is sure only if each fence is.
func FenceAll(ctx context.Context, l Launcher, dirs []string) FenceResult {
	all := FenceResult{Sure: true, How: HowNothing}
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(8)
	for _, dir := range dirs {
		g.Go(func() error {
			f := l.Fence(ctx, dir)
			mu.Lock()
			defer mu.Unlock()
			all.add(f, filepath.Base(dir))
			return nil
		})
	}
	_ = g.Wait()
	return all
}

// add takes in the fence of one operation. How tells the weakest means that was needed; Later, that every one that is not
// sure may become so.
func (f *FenceResult) add(one FenceResult, name string) {
	strength := []string{HowNothing, HowBoot, HowContainer, HowSandbox, HowCgroup, HowSubreaper, HowMarks}
	if slices.Index(strength, one.How) > slices.Index(strength, f.How) {
		f.How = one.How
	}
	f.Survivors = append(f.Survivors, one.Survivors...)
	if one.At.After(f.At) {
		f.At = one.At
	}
	if !one.Sure {
		f.Later = one.Later && (f.Sure || f.Later)
		f.Sure = false
		if f.Why != "" {
			f.Why += "; "
		}
		f.Why += name + ": " + one.Why
	}
}

// NeedsNoFence is the fence of an operation that needs none, wherever it ran: nothing was started, and nothing can be any more, or
// its supervisor is gone and wrote that nothing is left. Where it says false, a Launcher has to fence. The boot that a record
// names is not compared: a place can have a kernel of its own.
func NeedsNoFence(dir string) (FenceResult, bool) {
	status, err := Abandon(dir)
	if err != nil {
		return FenceResult{}, false
	}
	if status == NotStarted {
		return FenceResult{Sure: true, How: HowNothing}, true
	}
	v, err := ReadState(dir)
	if err != nil || v.Locked || v.FinalFence == nil || !v.FinalFence.Sure {
		return FenceResult{}, false
	}
	return *v.FinalFence, true
}

func unsureFence(method, format string, args ...any) FenceResult {
	return FenceResult{How: method, Why: fmt.Sprintf(format, args...)}
}

func (l LocalLauncher) fenceDir(ctx context.Context, dir string) FenceResult {
	half := time.NewTimer(fenceLimit / 2)
	defer half.Stop()
	signalled := false
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		status, err := Abandon(dir)
		if errors.Is(err, ErrTampered) {
			return l.fenceTampered(ctx, dir, err)
		}
		if err != nil {
			return unsureFence(HowSubreaper, "%v", err)
		}
		if status == NotStarted {
			return l.fenceUnrecorded(ctx, dir)
		}
		v, err := ReadState(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return l.fenceUnrecorded(ctx, dir)
		}
		if err != nil {
			return unsureFence(HowSubreaper, "%v", err)
		}
		if !v.Locked && v.Started != nil {
			return l.fenceOrphans(ctx, v)
		}
		if !v.Locked && v.FinalFence != nil { // without a record of its start, which somebody removed
			if f := l.fenceUnrecorded(ctx, dir); !f.Sure {
				return f
			}
			return *v.FinalFence
		}
		if v.Started != nil && !signalled {
			signalled = true
			if err := l.terminate(v.Started.Supervisor, dir); err != nil {
				return unsureFence(HowSubreaper, "the supervisor holds its lock but cannot be signalled: %v", err)
			}
		}
		select {
		case <-ctx.Done():
			return stuckFence(v)
		case <-half.C:
			if v.Started != nil && v.Started.Cgroup != "" && l.isSupervisorOf(v.Started.Supervisor, dir) { // it does not answer, and it is not needed
				_ = l.signal(v.Started.Supervisor, syscall.SIGKILL)
			}
		case <-time.After(wait):
		}
	}
}

// salvageLimit is how long a supervisor whose records were spoilt may take to end everything.
const salvageLimit = 5 * time.Second

// fenceTampered ends what can be found of an operation whose records do not say any more how it stands. It is never sure.
func (l LocalLauncher) fenceTampered(ctx context.Context, dir string, why error) FenceResult {
	f := unsureFence(HowMarks, "%v", why)
	r, err := openRecords(dir)
	if err != nil {
		return f
	}
	defer r.close()
	st, err := read[StartRecord](r, startedName)
	if err != nil || process.Probe(st.Supervisor) == process.OtherNamespace {
		return f
	}
	_ = l.terminate(st.Supervisor, dir)
	ctx, cancel := context.WithTimeout(ctx, salvageLimit)
	defer cancel()
	for l.isSupervisorOf(st.Supervisor, dir) && ctx.Err() == nil {
		select {
		case <-ctx.Done():
			_ = l.signal(st.Supervisor, syscall.SIGKILL)
		case <-time.After(10 * time.Millisecond):
		}
	}
	_, _ = endCgroup(ctx, *st)
	f.Survivors = l.endMarked(context.WithoutCancel(ctx), func(v string) bool { return v == st.Mark })
	return f
}

// lateLimit is how long a supervisor takes at most to see that its operation was abandoned before it came, and to end.
const lateLimit = time.Second

// fenceUnrecorded fences an operation that has no record of a start. Nothing ran, unless somebody removed the records: then its
// supervisor is there as long as anything that it started, and what it ran cannot be told.
func (l LocalLauncher) fenceUnrecorded(ctx context.Context, dir string) FenceResult {
	isOf := func(operation string) bool { return operation == operationPath(dir) }
	if len(waitForSupervisors(ctx, lateLimit, isOf)) == 0 {
		return FenceResult{Sure: true, How: HowNothing}
	}
	f := unsureFence(HowMarks, "its records were removed while it ran")
	for _, id := range l.endSupervisors(ctx, isOf) {
		f.Survivors = append(f.Survivors, id.PID)
	}
	return f
}

// supervisors are the living ones on this host, but those that stand by, of operations that match accepts: see operationPath.
func supervisors(match func(operation string) bool) ([]process.Identity, error) {
	return process.FindByArguments(func(args []string) bool {
		n := len(args)
		return n >= 3 && (args[n-2] == Argument || args[n-2] == InsideArgument) && match(operationPath(args[n-1]))
	})
}

// waitForSupervisors waits until none is left, and returns those that are left after limit.
func waitForSupervisors(ctx context.Context, limit time.Duration, match func(operation string) bool) (left []process.Identity) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		left, _ = supervisors(match)
		if len(left) == 0 || ctx.Err() != nil {
			return left
		}
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// endSupervisors has supervisors end all that they run, and names those that remain.
func (l LocalLauncher) endSupervisors(ctx context.Context, match func(operation string) bool) []process.Identity {
	list, _ := supervisors(match)
	if len(list) == 0 {
		return nil
	}
	for _, id := range list {
		_ = l.signal(id, syscall.SIGTERM)
		_ = l.signal(id, syscall.SIGCONT)
	}
	for _, id := range waitForSupervisors(ctx, salvageLimit, match) {
		_ = l.signal(id, syscall.SIGKILL)
	}
	return waitForSupervisors(ctx, lateLimit, match)
}

// stuckFence tells what is below a supervisor that does not come to an end.
func stuckFence(v OperationState) FenceResult {
	f := unsureFence(HowSubreaper, "the supervisor did not end in time")
	if v.Started != nil && process.Probe(v.Started.Supervisor) == process.Alive {
		for _, id := range process.Descendants(v.Started.Supervisor.PID) {
			f.Survivors = append(f.Survivors, id.PID)
		}
	}
	return f
}

// fenceOrphans fences what a supervisor has left that is gone.
func (l LocalLauncher) fenceOrphans(ctx context.Context, v OperationState) FenceResult {
	st := *v.Started
	switch process.Probe(st.Supervisor) {
	case process.OtherBoot:
		return FenceResult{Sure: true, How: HowBoot}
	case process.OtherNamespace:
		return unsureFence(HowMarks, "it was started in another PID namespace")
	}
	empty, err := endCgroup(ctx, st)
	if v.FinalFence != nil && v.FinalFence.Sure && err == nil {
		return *v.FinalFence
	}
	survivors := l.endMarked(ctx, func(v string) bool { return v == st.Mark })
	switch {
	case len(survivors) > 0:
		f := unsureFence(HowMarks, "marked processes cannot be ended")
		f.Survivors = survivors
		return f
	case err != nil:
		return unsureFence(HowCgroup, "%v", err)
	case empty:
		return FenceResult{Sure: true, How: HowCgroup}
	default:
		return unsureFence(HowMarks, "the supervisor was killed, and there was no control group (%s): a process whose environment was cleared, or cannot be read from here, would not be found", st.NoCgroup)
	}
}

// endCgroup ends a recorded control group. True says that it is certain to be empty, false that there is none.
func endCgroup(ctx context.Context, st StartRecord) (bool, error) {
	if st.Cgroup == "" {
		return false, nil
	}
	if filepath.Base(st.Cgroup) != cgroupName(st.Mark) {
		return false, fmt.Errorf("the recorded control group %s is not one of ours", st.Cgroup)
	}
	c, err := process.OpenCgroup(st.Cgroup)
	if err == nil {
		return true, c.End(ctx)
	}
	// It is gone, or was never made: what could say so must be there to be asked.
	for dir := st.Cgroup; errors.Is(err, fs.ErrNotExist) && dir != filepath.Dir(dir); {
		dir = filepath.Dir(dir)
		if _, err = process.OpenCgroup(dir); err == nil {
			return true, nil
		}
	}
	return false, err
}

// endMarked kills the processes with a mark that match accepts and names those that remain.
func (l LocalLauncher) endMarked(ctx context.Context, match func(mark string) bool) (left []int) {
	ctx, cancel := context.WithTimeout(ctx, markLimit)
	defer cancel()
	for {
		left = nil
		ids, err := process.FindMarked(MarkVariable, match)
		if err != nil || len(ids) == 0 {
			return nil
		}
		for _, id := range ids {
			_ = l.signal(id, syscall.SIGKILL)
			left = append(left, id.PID)
		}
		select {
		case <-ctx.Done():
			return left
		case <-time.After(2 * time.Millisecond):
		}
	}
}

// EndRemaining ends what FindRemaining would find. It is for a session whose directory says nothing of it any more.
func (l LocalLauncher) EndRemaining(ctx context.Context, session string) {
	ctx, cancel := context.WithTimeout(ctx, fenceLimit)
	defer cancel()
	_ = l.endSupervisors(ctx, isOfSession(session))
	for _, dir := range process.FindCgroups(sessionPrefix(session)) {
		if c, err := process.OpenCgroup(dir); err == nil {
			_ = c.End(ctx)
		}
	}
	_ = l.endMarked(ctx, isMarkOf(session))
}

func isOfSession(session string) func(operation string) bool {
	return func(operation string) bool { return strings.HasPrefix(operation, session+"/") }
}

func isMarkOf(session string) func(mark string) bool {
	return func(mark string) bool { return mark == session || strings.HasPrefix(mark, session+"/") }
}

// FindRemaining looks for anything of a session that may still run: supervisors, marked processes and control groups that hold
// some. Empty groups are removed. It says what it found, and nothing where it found nothing, which alone is no proof.
func FindRemaining(session string) (found []string, err error) {
	ids, err := process.FindMarked(MarkVariable, isMarkOf(session))
	if err != nil {
		return nil, err
	}
	for _, id := range waitForSupervisors(context.Background(), lateLimit, isOfSession(session)) {
		found = append(found, fmt.Sprintf("supervisor %d", id.PID))
	}
	for _, id := range ids {
		found = append(found, fmt.Sprintf("process %d", id.PID))
	}
	for _, dir := range process.FindCgroups(sessionPrefix(session)) {
		c, err := process.OpenCgroup(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			var lives bool
			if lives, err = c.Populated(); err == nil && !lives {
				err = c.Remove()
				if err == nil {
					continue
				}
			}
		}
		found = append(found, "control group "+dir)
	}
	return found, nil
}

// isSupervisorOf says whether a live process is the supervisor of dir, and not one of somebody else's that a record names: the
// record lies where an agent may write. One that stood by does not say of which: where all are the session's own, it may be.
func (l LocalLauncher) isSupervisorOf(id process.Identity, dir string) bool {
	args := process.Arguments(id.PID)
	n := len(args)
	switch {
	case n < 3:
		return false
	case l.OwnsAllProcesses && args[n-2] == StandbyArgument:
	case args[n-2] != Argument && args[n-2] != InsideArgument || operationPath(args[n-1]) != operationPath(dir):
		return false
	}
	return process.Probe(id) == process.Alive
}

// operationPath is what tells operations' directories apart: the session, and the operation within it. What is above may be spelt in
// another way, through a link.
func operationPath(dir string) string {
	up := filepath.Dir(dir)
	return filepath.Join(filepath.Base(filepath.Dir(up)), filepath.Base(up), filepath.Base(dir))
}

// terminate asks a supervisor to end everything, also one that something has stopped.
func (l LocalLauncher) terminate(id process.Identity, dir string) error {
	switch live := process.Probe(id); {
	case live == process.OtherNamespace:
		return errors.New("it is in another PID namespace")
	case live == process.Alive && l.isSupervisorOf(id, dir):
		err := l.signal(id, syscall.SIGTERM)
		if err == nil {
			err = l.signal(id, syscall.SIGCONT)
		}
		if !errors.Is(err, process.ErrGone) {
			return err
		}
	}
	return nil // it is gone: then its lock is free by the next look, or what holds it is not what was recorded
}

func (l LocalLauncher) signal(id process.Identity, sig syscall.Signal) error {
	if l.OwnsAllProcesses {
		return process.SignalInSandbox(id, sig)
	}
	return process.Signal(id, sig)
}
