package dockerengine

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// realEngine is the real engine, and a label of this test's own.
type realEngine struct {
	*Engine
	t     *testing.T
	label string
}

func real(t *testing.T) realEngine {
	t.Helper()
	return at(t, engine.Endpoint(t))
}

func at(t *testing.T, endpoint string) realEngine {
	t.Helper()
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	w := realEngine{t: t, label: "test-" + hex.EncodeToString(b)}
	e, err := Connect(t.Context(), Endpoint{endpoint, "LAUFWERK_TEST_DOCKER"})
	if err != nil {
		t.Fatal(err)
	}
	w.Engine = e
	t.Cleanup(func() { engine.Remove(t, endpoint, w.label); e.Close() })
	return w
}

// container is one that runs argv, started.
func (w realEngine) container(name string, argv ...string) string {
	w.t.Helper()
	id := w.created(name, argv...)
	if done, err := w.Start(w.t.Context(), id); done != resource.Done {
		w.t.Fatal(err)
	}
	return id
}

func (w realEngine) created(name string, argv ...string) string {
	w.t.Helper()
	id, done, err := w.Create(w.t.Context(), w.label+name, w.config(argv...), &container.HostConfig{NetworkMode: "none"})
	if done != resource.Done {
		w.t.Fatal(err)
	}
	return id
}

func (w realEngine) config(argv ...string) *container.Config {
	return &container.Config{Image: engine.Busybox, Cmd: argv, Labels: map[string]string{w.label: "yes"}}
}

func (w realEngine) run(id string, c Command) (code int, done resource.Outcome, out, problems string, err error) {
	w.t.Helper()
	var o, p bytes.Buffer
	code, done, err = w.Exec(w.t.Context(), id, c, &o, &p)
	return code, done, o.String(), p.String(), err
}

func (w realEngine) sh(id, script string) (int, string) {
	w.t.Helper()
	code, done, out, problems, err := w.run(id, Command{Argv: []string{"sh", "-c", script}})
	if done != resource.Done {
		w.t.Fatal(err)
	}
	return code, out + problems
}

func TestRealEngineSaysWhoItIs(t *testing.T) {
	w := real(t)
	f := w.Facts()
	if f.ID == "" || f.RootDir == "" || f.Version == "" || f.API == "" || f.OS != "linux" || f.Arch != "amd64" && f.Arch != "arm64" || !f.Memory {
		t.Errorf("%+v", f)
	}
	again, err := w.Refresh(t.Context())
	if err != nil || again.Identity() != f.Identity() {
		t.Error(again.Identity(), err)
	}
}

func TestRealContainerFromCreateToRemove(t *testing.T) {
	w := real(t)
	id := w.created("", "sleep", "1000")
	got, p, err := w.Inspect(t.Context(), w.label)
	if p != resource.Present || got.ID != id || got.State.Running || got.Config.Labels[w.label] != "yes" {
		t.Fatalf("%s, %v", p, err)
	}
	if _, done, err := w.Create(t.Context(), w.label, w.config("true"), &container.HostConfig{}); done != resource.NotDone || !failure.Is(err, failure.AlreadyExists) {
		t.Errorf("the same name again: %s, %v", done, err)
	}
	for range 2 {
		if done, err := w.Start(t.Context(), id); done != resource.Done {
			t.Fatal(err)
		}
	}
	if got, _, _ := w.Inspect(t.Context(), id); !got.State.Running {
		t.Error("it does not run")
	}
	for _, labels := range []map[string]string{{w.label: ""}, {w.label: "yes"}} {
		if list, err := w.List(t.Context(), labels); err != nil || len(list) != 1 || list[0].ID != id {
			t.Errorf("%v, %v", list, err)
		}
	}
	if list, err := w.List(t.Context(), map[string]string{w.label: "yes", "other": "x"}); err != nil || len(list) != 0 {
		t.Errorf("%v, %v", list, err)
	}
	for range 2 { // what does not run is killed
		if done, err := w.Kill(t.Context(), id); done != resource.Done {
			t.Fatal(err)
		}
		if got, _, _ := w.Inspect(t.Context(), id); got.State.Running || got.State.ExitCode != 137 {
			t.Errorf("%+v", got.State)
		}
	}
	if list, err := w.List(t.Context(), map[string]string{w.label: ""}); err != nil || len(list) != 1 {
		t.Errorf("what does not run is listed too: %v, %v", list, err)
	}
	for range 2 {
		if done, err := w.Remove(t.Context(), id); done != resource.Done {
			t.Fatal(err)
		}
	}
	if _, p, err := w.Inspect(t.Context(), id); p != resource.Absent {
		t.Errorf("%s, %v", p, err)
	}
	if done, err := w.Kill(t.Context(), id); done != resource.Done {
		t.Error(err)
	}
	if done, err := w.Start(t.Context(), id); done != resource.NotDone || !errors.Is(err, ErrNoContainer) {
		t.Errorf("%s, %v", done, err)
	}
}

func TestRealEngineRefusesToCreate(t *testing.T) {
	w := real(t)
	missing := w.config("true")
	missing.Image = "laufwerk-test/nosuch:1"
	for name, c := range map[string]struct {
		config *container.Config
		host   *container.HostConfig
		kind   failure.Kind
		says   string
	}{
		"no image":        {missing, &container.HostConfig{}, failure.NotReady, "nosuch"},
		"no mount source": {w.config("true"), &container.HostConfig{Mounts: []mount.Mount{{Type: mount.TypeBind, Source: "/nosuch/dir", Target: "/x"}}}, failure.Failed, "/nosuch/dir"},
	} {
		t.Run(name, func(t *testing.T) {
			_, done, err := w.Create(t.Context(), w.label+"refused", c.config, c.host)
			if done != resource.NotDone || !failure.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %v (%s)", done, err, failure.KindOf(err))
			}
			if _, p, err := w.Inspect(t.Context(), w.label+"refused"); p != resource.Absent {
				t.Errorf("%s, %v", p, err)
			}
		})
	}
}

func TestRealNameHasOneWinner(t *testing.T) {
	w := real(t)
	var group sync.WaitGroup
	results := make(chan error, 8)
	for range cap(results) {
		group.Go(func() {
			_, _, err := w.Create(t.Context(), w.label, w.config("true"), &container.HostConfig{})
			results <- err
		})
	}
	group.Wait()
	close(results)
	won := 0
	for err := range results {
		if err == nil {
			won++
		} else if !failure.Is(err, failure.AlreadyExists) {
			t.Error(err)
		}
	}
	if won != 1 {
		t.Errorf("%d winners", won)
	}
	removals := make(chan error, 4)
	for range cap(removals) {
		group.Go(func() {
			_, err := w.Remove(t.Context(), w.label)
			removals <- err
		})
	}
	group.Wait()
	close(removals)
	for err := range removals {
		if err != nil {
			t.Error(err)
		}
	}
	if _, p, err := w.Inspect(t.Context(), w.label); p != resource.Absent {
		t.Errorf("%s, %v", p, err)
	}
}

func TestRealExecCodes(t *testing.T) {
	w := real(t)
	id := w.container("", "sleep", "1000")
	for script, want := range map[string]int{"true": 0, "exit 7": 7, "exit 126": 126, "kill -9 $$": 137, "kill -TERM $$": 143, "exit 255": 255} {
		if code, out := w.sh(id, script); code != want {
			t.Errorf("%s: %d %s", script, code, out)
		}
	}
	for _, argv := range []string{"nosuch", "/etc/passwd"} { // Docker 20.10 has 126 for both
		code, done, out, problems, err := w.run(id, Command{Argv: []string{argv}})
		if done != resource.Done || code != 126 && code != 127 {
			t.Errorf("%s: %d, %s, %v\n%s%s", argv, code, done, err, out, problems)
		}
	}
}

func TestRealExecTakesAndGivesAnyBytes(t *testing.T) {
	w := real(t)
	id := w.container("", "sleep", "1000")
	in := make([]byte, 4<<20)
	_, _ = rand.Read(in)
	_, done, out, problems, err := w.run(id, Command{Argv: []string{"cat"}, Stdin: bytes.NewReader(in)})
	if done != resource.Done || out != string(in) || problems != "" {
		t.Errorf("%s, %v: %d of %d bytes, %q", done, err, len(out), len(in), problems)
	}
	_, done, out, problems, err = w.run(id, Command{Argv: []string{"sh", "-c", "cat; head -c 1000000 /dev/zero >&2; echo end"}, Stdin: strings.NewReader("")})
	if done != resource.Done || out != "end\n" || len(problems) != 1000000 {
		t.Errorf("%s, %v: %q and %d bytes", done, err, out, len(problems))
	}
	// without an input there is none to wait for
	_, done, out, _, err = w.run(id, Command{Argv: []string{"cat"}})
	if done != resource.Done || out != "" {
		t.Errorf("%s, %v: %q", done, err, out)
	}
	_, done, out, _, err = w.run(id, Command{Argv: []string{"sh", "-c", `echo "$A|$(id -u):$(id -g)|$PWD"`}, Env: []string{"A=b c\n=d"}, User: "1234:20", Dir: "/etc"})
	if done != resource.Done || out != "b c\n=d|1234:20|/etc\n" {
		t.Errorf("%s, %v: %q", done, err, out)
	}
}

func TestRealExecWhereNothingRuns(t *testing.T) {
	w := real(t)
	id := w.created("", "sleep", "1000")
	if _, done, _, _, err := w.run(id, Command{Argv: []string{"true"}}); done != resource.NotDone || !errors.Is(err, ErrNotRunning) {
		t.Errorf("%s, %v", done, err)
	}
	if _, done, _, _, err := w.run(w.label+"nosuch", Command{Argv: []string{"true"}}); done != resource.NotDone || !errors.Is(err, ErrNoContainer) {
		t.Errorf("%s, %v", done, err)
	}
}

func TestRealCommandOutlivesItsConnection(t *testing.T) {
	w := real(t)
	id := w.container("", "sleep", "1000")
	ctx, cancel := context.WithCancel(t.Context())
	s, _, err := w.Open(ctx, id, Command{Argv: []string{"sh", "-c", "echo started; read x; exec sleep 777"}})
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	if _, err := io.ReadFull(s.Out, b); err != nil || string(b) != "started\n" {
		t.Fatalf("%q, %v", b, err)
	}
	if _, err := io.WriteString(s.In, "\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() bool { code, _ := w.sh(id, "ps | grep '[s]leep 777'"); return code == 0 })
	cancel()
	if _, done, err := s.Exit(); done != resource.Unknown || !errors.Is(err, context.Canceled) {
		t.Errorf("%s, %v", done, err)
	}
	if code, out := w.sh(id, "ps | grep '[s]leep 777'"); code != 0 {
		t.Errorf("it is gone: %s", out)
	}
}

// An engine ends the stream with the command's first process, neither sooner nor later: what still runs after the end of a
// stream was cut off.
func TestRealStreamEndsWithItsCommand(t *testing.T) {
	w := real(t)
	id := w.container("", "sleep", "1000")
	code, done, out, _, err := w.run(id, Command{Argv: []string{"sh", "-c", "echo out; exec >&- 2>&-; sleep 1; exit 3"}})
	if code != 3 || done != resource.Done || out != "out\n" {
		t.Errorf("%d, %s, %v: %q", code, done, err, out)
	}
	code, done, out, _, err = w.run(id, Command{Argv: []string{"sh", "-c", "sleep 1000 & echo out; exit 3"}})
	if code != 3 || done != resource.Done || out != "out\n" {
		t.Errorf("%d, %s, %v: %q", code, done, err, out)
	}
}

func TestRealKillEndsCommandsToo(t *testing.T) {
	w := real(t)
	id := w.container("", "sh", "-c", `trap "" TERM INT; while :; do sleep 1; done`)
	s, _, err := w.Open(t.Context(), id, Command{Argv: []string{"sh", "-c", "echo started; exec sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.ReadFull(s.Out, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, s.Out) }()
	go func() { _, _ = io.Copy(io.Discard, s.Err) }()
	if done, err := w.Kill(t.Context(), id); done != resource.Done {
		t.Fatal(err)
	}
	if code, done, err := s.Exit(); done == resource.Done && code != 137 || done == resource.NotDone {
		t.Errorf("%d, %s, %v", code, done, err)
	}
}

func TestRealEngineThatIsKilledInTheMiddle(t *testing.T) {
	private := engine.Private(t, engine.Busybox)
	w := at(t, private.Endpoint)
	id := w.container("", "sleep", "1000")
	s, _, err := w.Open(t.Context(), id, Command{Argv: []string{"sh", "-c", "echo started; exec sleep 1000"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := io.ReadFull(s.Out, make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	private.Kill()
	if _, done, err := s.Exit(); done != resource.Unknown || !failure.Is(err, failure.OutcomeUnknown) {
		t.Errorf("%s, %v", done, err)
	}
	if done, err := w.Start(t.Context(), id); done != resource.NotDone || !failure.Is(err, failure.NotReady) {
		t.Errorf("without an engine: %s, %v", done, err)
	}
	if _, p, err := w.Inspect(t.Context(), id); p != resource.Unobserved || !failure.Is(err, failure.NotReady) {
		t.Errorf("without an engine: %s, %v", p, err)
	}
	before := w.Facts()
	private.Start()
	if after, err := w.Refresh(t.Context()); err != nil || after.Identity() != before.Identity() {
		t.Errorf("%v: %s, then %s", err, before.Identity(), after.Identity())
	}
	got, p, err := w.Inspect(t.Context(), id)
	if p != resource.Present || got.State.Running {
		t.Errorf("%s, %v", p, err)
	}
	if done, err := w.Remove(t.Context(), id); done != resource.Done {
		t.Error(err)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	for range 600 {
		if ok() {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it does not come to pass")
}

// archive is a tar archive of files.
func archive(t *testing.T, files map[string]string) io.Reader {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, text := range files {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(text))}); err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(w, text)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

func TestRealImageFromBuildToRemoval(t *testing.T) {
	w := real(t)
	ref, other := w.label+":one", w.label+":two"
	if _, p, err := w.Image(t.Context(), ref); p != resource.Absent {
		t.Fatalf("%s, %v", p, err)
	}
	var log bytes.Buffer
	var lines []string
	id, done, err := w.Build(t.Context(), BuildInput{
		Context: archive(t, map[string]string{"Dockerfile": "FROM " + engine.Busybox + "\nCOPY file /file\nLABEL " + w.label + "=image\n", "file": "hello"}),
		Tags:    []string{ref}, Network: "none", Log: &log, Progress: func(l string) { lines = append(lines, l) },
	})
	if done != resource.Done || !strings.HasPrefix(id, "sha256:") {
		t.Fatalf("%s, %v\n%s", done, err, &log)
	}
	t.Cleanup(func() {
		_, _ = w.RemoveImage(context.Background(), ref)
		_, _ = w.RemoveImage(context.Background(), other)
	})
	if !strings.Contains(log.String(), "Successfully tagged "+ref) || len(lines) == 0 || !strings.HasPrefix(lines[0], "Step 1/3 : FROM") {
		t.Errorf("%q\n%s", lines, &log)
	}
	got, p, err := w.Image(t.Context(), ref)
	if p != resource.Present || got.ID != id || got.Config.Labels[w.label] != "image" {
		t.Fatalf("%s, %v", p, err)
	}
	if list, err := w.Images(t.Context(), map[string]string{w.label: "image"}); err != nil || len(list) != 1 || list[0].ID != id {
		t.Errorf("%v, %v", list, err)
	}
	if done, err := w.Tag(t.Context(), id, other); done != resource.Done {
		t.Error(err)
	}
	if done, err := w.Tag(t.Context(), w.label+":nosuch", other); done != resource.NotDone || !failure.Is(err, failure.NotReady) {
		t.Errorf("%s, %v", done, err)
	}

	c := w.config("true")
	c.Image = id
	made, done, err := w.Create(t.Context(), w.label, c, &container.HostConfig{})
	if done != resource.Done {
		t.Fatal(err)
	}
	body, err := w.CopyFrom(t.Context(), made, "/file")
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	r := tar.NewReader(body)
	h, err := r.Next()
	if err != nil || h.Name != "file" {
		t.Fatal(h, err)
	}
	if b, err := io.ReadAll(r); string(b) != "hello" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if _, err := w.CopyFrom(t.Context(), made, "/nosuch"); err == nil || !strings.Contains(err.Error(), "/nosuch") {
		t.Error(err)
	}

	if done, err := w.RemoveImage(t.Context(), other); done != resource.Done {
		t.Error(err)
	}
	if done, err := w.RemoveImage(t.Context(), ref); done != resource.NotDone || err == nil {
		t.Errorf("a container uses it: %s, %v", done, err)
	}
	if done, err := w.Remove(t.Context(), made); done != resource.Done {
		t.Fatal(err)
	}
	for range 2 {
		if done, err := w.RemoveImage(t.Context(), ref); done != resource.Done {
			t.Error(err)
		}
	}
	if _, p, err := w.Image(t.Context(), id); p != resource.Absent {
		t.Errorf("%s, %v", p, err)
	}
}

func TestRealBuildThatFails(t *testing.T) {
	w := real(t)
	for name, c := range map[string]struct{ dockerfile, says string }{
		"a step that fails":  {"FROM " + engine.Busybox + "\nRUN echo before && false\n", "non-zero code: 1"},
		"a file not there":   {"FROM " + engine.Busybox + "\nCOPY nosuch /x\n", "nosuch"},
		"no such instructon": {"FROM " + engine.Busybox + "\nNOSUCH x\n", "NOSUCH"},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			ref := w.label + ":failed"
			id, done, err := w.Build(t.Context(), BuildInput{Context: archive(t, map[string]string{"Dockerfile": c.dockerfile}), Tags: []string{ref}, Network: "none", Log: &log})
			if done != resource.NotDone || id != "" || err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s, %v\n%s", done, err, &log)
			}
			if name == "a step that fails" && (!strings.Contains(log.String(), "before\n") || !strings.Contains(log.String(), c.says)) {
				t.Errorf("the log is not whole:\n%s", &log)
			}
			if _, p, err := w.Image(t.Context(), ref); p != resource.Absent {
				t.Errorf("%s, %v", p, err)
			}
		})
	}
	broken := errors.New("the archive cannot be read")
	if _, done, err := w.Build(t.Context(), BuildInput{Context: io.MultiReader(archive(t, map[string]string{"x": "y"}), failing{broken})}); done == resource.Done || !errors.Is(err, broken) {
		t.Errorf("%s, %v", done, err)
	}
}

type failing struct{ error }

func (f failing) Read([]byte) (int, error) { return 0, f.error }

func TestRealPullThatFails(t *testing.T) {
	w := real(t)
	ref := "127.0.0.1:1/" + w.label + ":1"
	done, err := w.Pull(t.Context(), ref, nil)
	f := failure.As(err)
	if done == resource.Done || f == nil || f.Kind != failure.NotReady || f.Hint != "docker pull "+ref {
		t.Errorf("%s, %v", done, err)
	}
}
