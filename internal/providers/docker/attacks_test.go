package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/supervise"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// made is an image: busybox with another configuration, and with files, given by their headers.
func made(t *testing.T, endpoint string, c *container.Config, files ...tar.Header) string {
	t.Helper()
	cl := engine.Client(t, endpoint)
	id, err := cl.ContainerCreate(t.Context(), &container.Config{Image: busybox, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.ContainerRemove(context.Background(), id.ID, container.RemoveOptions{Force: true}) }()
	if len(files) > 0 {
		var b bytes.Buffer
		tw := tar.NewWriter(&b)
		for _, h := range files {
			content := h.PAXRecords["content"]
			h.PAXRecords, h.Mode, h.Size = nil, 0o644, int64(len(content))
			if err := tw.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
			if _, err := tw.Write([]byte(content)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(tw.Close(), cl.CopyToContainer(t.Context(), id.ID, "/", &b, container.CopyToContainerOptions{})); err != nil {
			t.Fatal(err)
		}
	}
	i, err := cl.ContainerCommit(t.Context(), id.ID, container.CommitOptions{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = cl.ImageRemove(context.Background(), i.ID, image.RemoveOptions{Force: true, PruneChildren: true})
	})
	return i.ID
}

func file(name, content string) tar.Header {
	return tar.Header{Typeflag: tar.TypeReg, Name: name, PAXRecords: map[string]string{"content": content}}
}

func paths(all ...string) map[string]struct{} {
	out := map[string]struct{}{}
	for _, p := range all {
		out[p] = struct{}{}
	}
	return out
}

// below are the paths below a directory, with their types.
func below(t *testing.T, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && path != dir {
			out = append(out, d.Type().String()[:1]+path[len(dir):])
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return out
}

// TestAnImageThatMeansNoGood in all that can be withstood: volumes at odd places, variables, an entry point, a health check, a
// user, labels of ours.
func TestAnImageThatMeansNoGood(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	id := made(t, w.endpoint, &container.Config{
		Volumes: paths("/laufwerk", "/laufwerk/login", "/workspace", "/tmp", "/run/a/b", "/var", "/data/", "/data/../more", "/a:b", "/etc"),
		Env: []string{
			"PATH=/nowhere", "LD_PRELOAD=/x.so", "HOME=/h", "TMPDIR=/t", "GODEBUG=inittrace=1", "GOMEMLIMIT=1", "GOGC=off", "GOTRACEBACK=crash",
			"LAUFWERK_MARK=m", "LAUFWERK_HOME=/x", "OPENAI_API_KEY=k", "CODEX_API_KEY=k", "KEPT=yes",
		},
		Entrypoint: []string{"/nowhere"}, Healthcheck: &container.HealthConfig{Test: []string{"CMD", "touch", "/workspace/healthy"}, Interval: time.Second},
		User: "nobody-knows", StopSignal: "SIGCONT", WorkingDir: "/proc", OnBuild: []string{"RUN false"},
		Labels: map[string]string{owned.LabelOwner: "x", owned.LabelClaim: "y", owned.LabelRun: "z"},
	})
	def := w.target(`{"image":"` + id + `"}`)
	if missing := w.Ready(w.ctx(), def, providers.Need{Workspace: true}); len(missing) > 0 {
		t.Errorf("%+v", missing)
	}
	in, sb := w.open(def, false)
	script := `export PATH=/bin:/usr/bin; env | grep -c -e API_KEY -e LAUFWERK_HOME; echo $KEPT $HOME $TMPDIR $LAUFWERK_MARK $PWD; echo kept >kept
mkdir /laufwerk/mine /var/mine /data/mine /a:b/mine && mv /laufwerk/ops /laufwerk/other; rm -f /opt/laufwerk/laufwerk; umount /laufwerk/home; ls /laufwerk`
	said, _ := w.run(in, sb, "1", "/bin/sh", "-c", script)
	if want := "0\nyes /laufwerk/home /tmp " + in.Claim + "/1 /workspace\nhome\nlogin\nmine\nops\n"; !strings.HasPrefix(said, want) {
		t.Errorf("%q, want %q", said, want)
	}
	if said, code := w.run(in, sb, "2", "/bin/cat", "kept"); said != "kept\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if got := below(t, w.workspace); !slices.Equal(got, []string{"-/kept"}) {
		t.Errorf("%q", got)
	}
	for _, c := range engine.Containers(t, w.endpoint, owned.LabelClaim+"="+in.Claim) {
		for _, m := range c.Mounts {
			if m.Type == "volume" {
				t.Errorf("a volume: %+v", m)
			}
		}
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

// TestAnImageThatIsRefused: where its volumes or links would put what sessions mount somewhere else, or its users a session
// into another group.
func TestAnImageThatIsRefused(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	e, err := w.c.Connect(w.ctx(), "")
	if err != nil {
		t.Fatal(err)
	}
	uid, gid, _ := strings.Cut(owned.ContainerUserFor(e.Facts(), os.Getuid(), os.Getgid()).User, ":")
	for _, c := range []struct {
		name, says string
		config     container.Config
		files      []tar.Header
	}{
		{"volume", "a volume at /workspace/a/b", container.Config{Volumes: paths("/workspace/a/b")}, nil},
		{"link", "a link where sessions need a directory", container.Config{}, []tar.Header{{Typeflag: tar.TypeSymlink, Name: "laufwerk", Linkname: "/workspace"}}},
		{"group", "a member of further groups", container.Config{}, []tar.Header{
			file("etc/passwd", uid+":x:0:0::/:/bin/sh\n"), file("etc/group", gid+":x:0:\n"),
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			def := w.target(`{"image":"` + made(t, w.endpoint, &c.config, c.files...) + `"}`)
			if c.files == nil { // else only the start of a container shows it
				missing := w.Ready(w.ctx(), def, providers.Need{Workspace: true})
				if len(missing) != 1 || !strings.Contains(missing[0].Message, c.says) {
					t.Errorf("%+v", missing)
				}
				return
			}
			in, sb := w.open(def, false)
			s, _, _ := readSpec(in)
			_, err := supervise.Start(w.ctx(), sb.Launcher(), filepath.Join(s.Dir, sessiondir.Ops, "1"), supervise.Spec{
				Argv: []string{"true"}, Dir: "/", Mark: supervise.Mark(s.Mark, "1"),
			})
			if !failure.Is(err, failure.NotReady) || !errors.Is(err, supervise.ErrRefused) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v", err)
			}
			if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
				t.Errorf("%+v", r)
			}
			w.absent(in)
		})
	}
}

// stops is a background process that keeps everything else in the container from going on, and writes into the outputs of all. It
// leaves the file BEGUN when it has come around once.
const stops = `env -i setsid sh -c 'while :; do for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = 1 ] || [ $p = $$ ] || { kill -STOP $p; echo nonsense >/proc/$p/fd/1; }; done; : >BEGUN; done' >/dev/null 2>&1 &`

// TestNothingInsideHoldsTheHostUp: everything that laufwerk starts in the container is stopped by the agent, and its outputs
// are written to. Each of what the host does there comes to an end all the same.
func TestNothingInsideHoldsTheHostUp(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	w.patience = 2 * time.Second
	in, sb := w.open(w.target(`{"image":"`+busybox+`","resources":{"cpus":0.5}}`), false)
	stop := func(name string) {
		w.start(in, sb, name, "sh", "-c", strings.ReplaceAll(stops, "BEGUN", name)+" sleep 1000")
		w.appears(name)
	}
	stop("2")
	if err := sb.(*sandbox).putSecret(w.ctx(), codex.Name, "auth.json", []byte("{}")); err != nil {
		t.Errorf("put: %v", err)
	}
	stop("3")
	if said, code := w.next(in, sb, "echo", "well"); said != "well\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

// TestRecordsThatTheAgentTampersWith: whatever it makes of them, waiting for the operation ends, its fence ends what it ran,
// and the session goes on.
func TestRecordsThatTheAgentTampersWith(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	in, sb := w.open(w.target(`{"image":"`+busybox+`"}`), false)
	for name, script := range map[string]string{
		"taken-away": "cd /; mv /laufwerk/ops/taken-away /laufwerk/home/; kill -9 $PPID",
		"closed":     "chmod 000 /laufwerk/ops/closed /laufwerk/ops; kill -9 $PPID",
		"link":       "cd /; mv /laufwerk/ops/link /tmp/; ln -s /etc /laufwerk/ops/link; kill -9 $PPID",
		"endless":    "rm stdout; truncate -s 1000G stdout; echo '{\"code\":0,\"stdoutBytes\":1000000000000}' >e; mv e exit",
		"removed":    "cd /; rm -rf /laufwerk/ops/removed",
		"unlocked":   "rm lock started",
		"gone":       "echo '{\"sure\":false}' >gone; kill -9 $PPID",
	} {
		p := w.start(in, sb, name, "sh", "-c", "cd /laufwerk/ops/"+name+"; env -i setsid sh -c 'while :; do date >>/workspace/"+name+"; sleep 0.1; done' >/dev/null 2>&1 & while [ ! -e /workspace/"+name+" ]; do sleep 0.05; done; "+script+"; sleep 1000")
		_, err := p.Wait(w.ctx())
		if w.ctx().Err() != nil {
			t.Errorf("%s: %v", name, err)
		}
		if out, _, err := p.Output(supervise.Stdout); err == nil && len(out) > 1<<20 {
			t.Errorf("%s: %d bytes", name, len(out))
		}
		if f := p.Fence(w.ctx()); !f.Sure {
			t.Errorf("%s: %+v", name, f)
		}
		before, _ := os.ReadFile(filepath.Join(w.workspace, name))
		time.Sleep(300 * time.Millisecond)
		if after, _ := os.ReadFile(filepath.Join(w.workspace, name)); len(after) != len(before) {
			t.Errorf("%s: it still writes", name)
		}
	}
	if said, code := w.run(in, sb, "after", "echo", "well"); said != "well\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

// TestAnAgentThatActsAsASupervisor: it waits where one stands by, and says whatever it likes of what it is to run. That is not
// taken for a command that runs, nor for one of which nothing was started, and the session goes on.
func TestAnAgentThatActsAsASupervisor(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	w.patience = 2 * time.Second
	in, sb := w.open(w.target(`{"image":"`+busybox+`"}`), false)
	s, _, _ := readSpec(in)
	for name, says := range map[string]string{
		"started": `{"started":true}` + "\n", "not": `{"started":false,"reason":"so"}` + "\n", "nothing": "", "nonsense": strings.Repeat("x", 1<<20),
	} {
		if said, code := w.run(in, sb, "before-"+name, "echo", "well"); said != "well\n" || code != 0 {
			t.Fatalf("%s: %q %d", name, said, code)
		}
		ops, err := safefs.OpenRoot(filepath.Join(s.Dir, sessiondir.Ops))
		if err != nil {
			t.Fatal(err)
		}
		l, err := ops.Listen(guest.StandbyName)
		if err != nil {
			t.Fatal(err)
		}
		var once sync.Once
		heard := make(chan struct{})
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				defer c.Close()
				_, _ = io.WriteString(c, "standing by\n")
				go func() {
					_, _ = io.Copy(io.Discard, c)
					once.Do(func() { close(heard) })
				}()
				_, _ = io.WriteString(c, says)
			}
		}()
		dir := filepath.Join(s.Dir, sessiondir.Ops, name)
		p, err := supervise.Start(w.ctx(), sb.Launcher(), dir, supervise.Spec{Argv: []string{"true"}, Dir: "/", Env: sb.BaseEnv(), Mark: supervise.Mark(s.Mark, name)})
		<-heard
		switch {
		case (err == nil) != (name == "started"):
			t.Errorf("%s: %v", name, err)
		case err == nil:
			if _, err := p.Wait(w.ctx()); !errors.Is(err, supervise.ErrLost) {
				t.Errorf("%s: %v", name, err)
			}
			if f := p.Fence(w.ctx()); !f.Sure || f.How != supervise.HowContainer {
				t.Errorf("%s: %+v", name, f)
			}
		default:
			if status, aerr := supervise.Abandon(dir); status != supervise.NotStarted || aerr != nil {
				t.Errorf("%s: %v, and then %s %v", name, err, status, aerr)
			}
		}
		_, _ = l.Close(), ops.Close()
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
}

// TestWhatAnAgentLeavesBehindIsRemoved: deep trees, many files, long names, closed folders, fifos, sockets, setuid files, files
// of enormous size and links that lead out, everywhere that it can write; the session's own beginning finds its way through.
func TestWhatAnAgentLeavesBehindIsRemoved(t *testing.T) {
	w := newProviderFixture(t, engine.Endpoint(t))
	in, sb := w.open(w.target(`{"image":"`+busybox+`"}`), false)
	outside := filepath.Join(w.dir, "outside")
	if err := os.Mkdir(outside, 0o777); err != nil {
		t.Fatal(err)
	}
	script := `set -e
for d in /laufwerk/home /laufwerk/ops /tmp; do
  cd $d
  ln -s ` + outside + ` out; ln -s / root; mkfifo fifo; truncate -s 1000G big; cp /bin/busybox setuid; chmod 6777 setuid
  mkdir -p closed/in/it; touch closed/in/it/file; chmod 000 closed/in/it closed/in closed
  touch $(printf %0255d 0) "$(printf 'a
b\033[31m\377')"
  mkdir many; (cd many; i=0; while [ $i -lt 3000 ]; do : >$i; i=$((i+1)); done)
  deep=$(printf 'd/%.0s' $(seq 1500)); mkdir -p a/$deep b/$deep; mv a b/$deep
done
cd /laufwerk/ops; rm -f ready; mkdir -p ready/x .new-ready/y; touch ready/x/z
nc -ll -p 1 -s local:/tmp/socket 2>/dev/null & true
chmod 000 /laufwerk/home /laufwerk/ops /tmp; touch /workspace/done`
	p := w.start(in, sb, "mess", "sh", "-c", script)
	w.appears("done")
	if exit, err := p.Wait(w.ctx()); exit.Code != 0 || err != nil && !errors.Is(err, supervise.ErrTampered) { // the closed folder is its user's
		t.Fatalf("%+v %v", exit, err)
	}
	if f := sb.Fence(w.ctx()); !f.Sure {
		t.Errorf("%+v", f)
	}
	if said, code := w.run(in, sb, "after", "sh", "-c", "ls /tmp/setuid"); said != "/tmp/setuid\n" || code != 0 {
		t.Errorf("%q %d", said, code)
	}
	if r := w.Delete(w.ctx(), in); r.Outcome != resource.Done {
		t.Errorf("%+v", r)
	}
	w.absent(in)
	if got := below(t, outside); len(got) > 0 {
		t.Errorf("%q", got)
	}
}

// TestACommandThatTakesAllProcesses is ended, where there is no room for the next one, also with a supervisor that stands by.
func TestACommandThatTakesAllProcesses(t *testing.T) {
	for _, pids := range []string{"30", "96"} {
		t.Run(pids, func(t *testing.T) {
			w := newProviderFixture(t, engine.Endpoint(t))
			in, sb := w.open(w.target(`{"image":"`+busybox+`","resources":{"pids":`+pids+`}}`), false)
			bomb := "while :; do setsid sleep 1000 & done 2>/dev/null"
			p := w.start(in, sb, "1", "sh", "-c", "echo x >begun; "+bomb)
			w.appears("begun")
			if f := p.Fence(w.ctx()); !f.Sure {
				t.Errorf("%+v", f)
			}
			w.start(in, sb, "2", "sh", "-c", "echo x >again; "+bomb)
			w.appears("again")
			if said, code := w.next(in, sb, "echo", "well"); said != "well\n" || code != 0 {
				t.Errorf("%q %d", said, code)
			}
		})
	}
}

// next runs a command as a session does: where its supervisor does not come up, or is gone, in another attempt.
func (w *providerFixture) next(in resource.Intent, sb providers.Sandbox, argv ...string) (string, int) {
	w.t.Helper()
	s, _, _ := readSpec(in)
	for _, name := range []string{"next-1", "next-2", "next-3"} {
		dir := filepath.Join(s.Dir, sessiondir.Ops, name)
		p, err := supervise.Start(w.ctx(), sb.Launcher(), dir, supervise.Spec{
			Argv: argv, Dir: "/", Env: sb.BaseEnv(), Mark: supervise.Mark(s.Mark, name), MaxOutput: 1 << 20,
		})
		if err != nil {
			status, aerr := supervise.Abandon(dir)
			if aerr != nil {
				w.t.Fatalf("%v, and then %v", err, aerr)
			}
			if status == supervise.NotStarted {
				continue
			}
			p = supervise.Attach(sb.Launcher(), dir, 1<<20)
		}
		exit, err := p.Wait(w.ctx())
		if errors.Is(err, supervise.ErrLost) {
			if f := p.Fence(w.ctx()); !f.Sure {
				w.t.Fatalf("%+v", f)
			}
			continue
		}
		if err != nil {
			w.t.Fatal(err)
		}
		out, _, err := p.Output(supervise.Stdout)
		if err != nil {
			w.t.Error(err)
		}
		return string(out), exit.Code
	}
	w.t.Fatal("no supervisor came up")
	return "", 0
}
