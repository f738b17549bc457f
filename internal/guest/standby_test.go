package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

// served is a box in which a supervisor stands by, and nothing else is started by the engine to run a command.
type served struct{ *box }

func newServed(t *testing.T) served { return served{newBoxOf(t, "busybox", nil, Serve)} }

func (s served) socket() string { return filepath.Join(s.ops, StandbyName) }

func (s served) Launch(ctx context.Context, dir string, spec supervise.Spec) error {
	return supervise.Handshake(ctx, dir, spec, func(ctx context.Context, _ []byte) (p supervise.Pipe, err error) {
		for err = errors.New("none yet"); err != nil && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
			if p, err = TakeStandby(ctx, s.socket(), "/laufwerk/ops/"+filepath.Base(dir), nil); err == nil {
				return p, nil
			}
		}
		return p, supervise.MarkRefused(err)
	})
}

func TestASupervisorThatStandsBy(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	if _, err := os.Lstat(s.socket()); err != nil {
		t.Fatalf("the first process is ready before one stands by: %v", err)
	}
	// What the first process ignores or catches is no matter of commands.
	for _, c := range []struct {
		name, script string
		code         int
	}{
		{"code", "echo said; exit 7", 7}, {"term", "kill -TERM $$; sleep 5", 143}, {"hangup", "kill -HUP $$; sleep 5", 129},
		{"pipe", "kill -PIPE $$; sleep 5", 141}, {"child", "kill -CHLD $$; (exit 4) & wait $!", 4}, {"input", "read x; exit $x", 9},
	} {
		spec := run("sh", "-c", c.script)
		spec.Stdin = []byte("9\n")
		p, err := supervise.Start(bounded(t), s, s.dir(c.name), spec)
		must(t, err)
		if exit := wait(t, p); exit.Code != c.code {
			t.Errorf("%s: %+v", c.name, exit)
		}
		if f := p.Fence(bounded(t)); !f.Sure || f.How != supervise.HowSubreaper {
			t.Errorf("%s: %+v", c.name, f)
		}
		if log, err := os.ReadFile(supervise.LogPath(p.Dir())); err != nil || len(log) > 0 {
			t.Errorf("%s: %q %v", c.name, log, err)
		}
	}
	long, err := supervise.Start(bounded(t), s, s.dir("long"), run("sh", "-c", "trap 'exit 8' INT; env -i setsid sleep 1000 & echo begin; while :; do sleep 0.1; done"))
	must(t, err)
	eventually(t, "it says something", func() bool { out, _, _ := long.Output(supervise.Stdout); return string(out) == "begin\n" })
	must(t, s.Interrupt(bounded(t), long.Dir()))
	if exit := wait(t, long); exit.Code != 8 || !exit.Interrupted {
		t.Errorf("%+v", exit)
	}
	eventually(t, "nothing is left of it", func() bool { f, settled := supervise.NeedsNoFence(long.Dir()); return settled && f.Sure })
	if err := s.Interrupt(bounded(t), long.Dir()); !errors.Is(err, process.ErrGone) {
		t.Errorf("after its end: %v", err)
	}
	hard, err := supervise.Start(bounded(t), s, s.dir("hard"), run("sh", "-c", "trap '' INT TERM; while :; do sleep 0.1; done"))
	must(t, err)
	if f := hard.Fence(bounded(t)); !f.Sure || f.How != supervise.HowSubreaper {
		t.Errorf("%+v", f)
	}
	eventually(t, "no zombie is left", func() bool {
		_, out := s.exec("", "sh", "-c", "grep -l '^State:.Z' /proc/[0-9]*/status")
		return out == ""
	})
}

// A command cannot tell in which way its supervisor was started, and has nothing of it.
func TestCommandsAreEqualInBothWays(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	said := map[string]string{}
	for name, l := range map[string]supervise.Launcher{"stood by": s, "started": s.box} {
		for i, argv := range [][]string{
			{"cat", "/proc/self/status", "/proc/self/oom_score_adj", "/proc/self/limits", "/proc/self/cgroup", "/proc/self/personality", "/proc/self/environ"},
			{"ls", "-l", "/proc/self/fd", "/proc/self/ns"}, {"ls", "-l", "/proc/self/cwd"}, {"cat", "/proc/self/stat"},
		} {
			spec := run(argv...)
			spec.Stdin = []byte("input\n")
			p, err := supervise.Start(bounded(t), l, s.dir(strings.Fields(name)[0]+strconv.Itoa(i)), spec)
			must(t, err)
			exit := wait(t, p)
			out, _, err := p.Output(supervise.Stdout)
			if err != nil || exit.Code != 0 {
				t.Fatalf("%s: %q: %+v %v", name, argv, exit, err)
			}
			said[name] += lasting(string(out))
		}
	}
	if said["stood by"] != said["started"] {
		t.Errorf("below one that stood by:\n%s\nbelow one that was started:\n%s", said["stood by"], said["started"])
	}
	for _, want := range []string{"fd:\ntotal 0\n0 -> pipe\n1 -> pipe\n2 -> pipe\n3 is closed\n\n", "leads its session\n", "SigIgn:\t0000000000000000\n", "SigBlk:\t0000000000000000\n"} {
		if !strings.Contains(said["stood by"], want) {
			t.Errorf("it does not say %q:\n%s", want, said["stood by"])
		}
	}
}

// lasting is what does not differ from process to process of what one said of itself.
func lasting(said string) (out string) {
	for line := range strings.Lines(said) {
		name, _, _ := strings.Cut(line, ":")
		_, link, isLink := strings.Cut(line, " -> ")
		stat := strings.Fields(line)
		switch {
		case strings.Contains(" Name State Tgid Ngid Pid PPid NStgid NSpid NSpgid NSsid SigQ Threads ", " "+name+" "),
			strings.HasPrefix(name, "Vm"), strings.HasPrefix(name, "Rss"), strings.HasSuffix(name, "ctxt_switches"):
		case isLink && strings.HasPrefix(link, "pipe:"):
			out += stat[len(stat)-3] + " -> pipe\n"
		case !isLink && strings.HasPrefix(line, "l"): // the list that ls reads itself
			out += stat[len(stat)-1] + " is closed\n"
		case isLink:
			out += stat[len(stat)-3] + " -> " + link
		case len(stat) > 40 && strings.HasPrefix(stat[1], "("): // proc_pid_stat(5)
			if stat[0] == stat[4] && stat[0] == stat[5] {
				out += "leads its session\n"
			}
			out += fmt.Sprintln("terminal", stat[6], "nice", stat[18], "policy", stat[40])
		default:
			out += line
		}
	}
	return out
}

// The first process has all threads that it ever needs before anything else runs: where others use up what the container may have,
// one more would be its end. It keeps nothing of the supervisors that it has started.
func TestTheFirstProcessDoesNotGrow(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	has := func() string {
		_, out := s.exec("", "sh", "-c", "grep Threads /proc/1/status; ls -l /proc/1/fd | grep -c pidfd")
		return out
	}
	first := has()
	for i := range 12 {
		_, err := supervise.Start(bounded(t), s, s.dir(strconv.Itoa(i)), run("sleep", "1000"))
		must(t, err)
	}
	var now string
	for end := time.Now().Add(limit / 4); now != first && time.Now().Before(end); now = has() { // the next one is just started
		time.Sleep(5 * time.Millisecond)
	}
	if now != first {
		t.Errorf("it had %q, and has %q", first, now)
	}
}

// Each attempt has a supervisor of its own, and an attempt that was given up has none.
func TestOneThatStandsByServesOnce(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	var got atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if p, err := TakeStandby(bounded(t), s.socket(), "/laufwerk/ops/none", nil); err == nil {
				got.Add(1)
				p.Close()
			}
		})
	}
	all.Wait()
	if got.Load() == 0 {
		t.Error("nobody was served")
	}
	dir := s.dir("op")
	if status, err := supervise.Abandon(dir); status != supervise.NotStarted || err != nil {
		t.Fatalf("%v %v", status, err)
	}
	if _, err := supervise.Start(bounded(t), s, dir, run("sleep", "0")); !errors.Is(err, supervise.ErrRefused) {
		t.Errorf("an attempt that was abandoned: %v", err)
	}
	// Of a worker that is killed while it writes nothing is run.
	half := s.dir("half")
	var p supervise.Pipe
	eventually(t, "one stands by", func() (ok bool) {
		var err error
		p, err = TakeStandby(bounded(t), s.socket(), "/laufwerk/ops/half", nil)
		return err == nil
	})
	_, _ = io.WriteString(p.In, `{"argv":["sh","-c","echo run"],"env":[],"dir":"/","maxOutp`)
	p.Close()
	eventually(t, "the next one stands by", func() bool { _, err := os.Lstat(s.socket()); return err == nil })
	if v, err := supervise.ReadState(half); err != nil || v.Status != supervise.NotStarted {
		t.Errorf("%+v %v", v, err)
	}
}

// An agent can end what stands by, take its place and hold its lock. The first process outlives that, and supervisors come up in
// the other way.
func TestAnAgentThatImpersonatesTheStandby(t *testing.T) {
	t.Parallel()
	s := newServed(t)
	s.exec("", "sh", "-c", "kill -9 -1")
	if !s.running() {
		t.Fatal("an agent has ended its container")
	}
	p, err := supervise.Start(bounded(t), s, s.dir("after"), run("sh", "-c", "exit 3"))
	must(t, err)
	if exit := wait(t, p); exit.Code != 3 {
		t.Errorf("%+v", exit)
	}
	for name, script := range map[string]string{
		"a directory": "mkdir standby", "a link": "ln -s /laufwerk/ops/ready standby", "a pipe": "mkfifo standby", "a file": "echo >standby",
	} {
		s.exec("", "sh", "-c", "cd /laufwerk/ops && rm -rf standby && "+script+" && kill -9 -1") // in place of the socket of one that was just killed
		eventually(t, name+" is there, or one that stands by", func() bool { _, err := os.Lstat(s.socket()); return err == nil })
		if _, err := TakeStandby(bounded(t), s.socket(), "/laufwerk/ops/none", nil); err != nil && errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		p, err := supervise.Start(bounded(t), s.box, s.dir(strings.Fields(name)[1]), run("sh", "-c", "exit 3"))
		must(t, err)
		if exit := wait(t, p); exit.Code != 3 {
			t.Errorf("%s: %+v", name, exit)
		}
	}
	if seen, err := Observe(s.ops+"/ready", s.nonce); seen != Locked || err != nil || !s.running() {
		t.Errorf("%v %v", seen, err)
	}
}

// Whoever sits at the socket instead is not waited for, and learns nothing of what was to be run.
func TestSomebodyElseAtTheSocket(t *testing.T) {
	dir := t.TempDir()
	at := filepath.Join(dir, StandbyName)
	ctx := bounded(t)
	if _, err := TakeStandby(ctx, at, "/x", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("nobody: %v", err)
	}
	for name, does := range map[string]func(net.Conn){
		"silent": func(net.Conn) {}, "closes": func(c net.Conn) { _ = c.Close() },
		"says something else": func(c net.Conn) { _, _ = io.WriteString(c, "standing in\n and on\n") },
	} {
		t.Run(name, func(t *testing.T) {
			must(t, os.RemoveAll(at))
			l, err := net.Listen("unix", at)
			must(t, err)
			defer l.Close()
			learned := make(chan string, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					return
				}
				does(c)
				b, _ := io.ReadAll(c)
				learned <- string(b)
			}()
			if _, err := TakeStandby(ctx, at, "/laufwerk/ops/secret", nil); err == nil {
				t.Error("it was taken")
			}
			if got := <-learned; got != "" {
				t.Errorf("it learned %q", got)
			}
		})
	}
	elsewhere := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", elsewhere)
	must(t, err)
	defer l.Close()
	must(t, os.RemoveAll(at))
	must(t, os.Symlink(elsewhere, at))
	if _, err := TakeStandby(ctx, at, "/x", nil); err == nil {
		t.Error("it went to where a link leads")
	}
}
