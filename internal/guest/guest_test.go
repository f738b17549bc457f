package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/process"
)

func mkfifo(path string) error { return unix.Mkfifo(path, 0o600) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// as is an environment whose streams a test has.
func as(in string) (env *system.Env, out *bytes.Buffer) {
	out = &bytes.Buffer{}
	return &system.Env{In: strings.NewReader(in), Out: out, Err: out, Now: time.Now}, out
}

func TestObserveTellsWhatTheFirstProcessWrote(t *testing.T) {
	for name, plant := range map[string]func(ready string){
		"nothing before":  func(string) {},
		"an earlier one":  func(ready string) { must(t, os.WriteFile(ready, []byte("nonce"), 0o600)) },
		"a directory":     func(ready string) { must(t, os.MkdirAll(ready+"/full/of", 0o700)) },
		"a link":          func(ready string) { must(t, os.Symlink("victim", ready)) },
		"a link as draft": func(ready string) { must(t, os.Symlink("victim", filepath.Dir(ready)+"/.new-ready")) },
		"a fifo":          func(ready string) { must(t, mkfifo(ready)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			ready, victim := dir+"/ready", dir+"/victim"
			must(t, os.WriteFile(victim, []byte("v"), 0o600))
			plant(ready)
			if seen, _ := Observe(ready, "nonce"); seen == Locked {
				t.Fatal("seen before it was there")
			}
			f, err := announce(ready, "nonce")
			must(t, err)
			if seen, err := Observe(ready, "nonce"); seen != Locked || err != nil {
				t.Errorf("%v %v", seen, err)
			}
			if seen, err := Observe(ready, "another"); seen != Unobserved || err != nil {
				t.Errorf("another nonce: %v %v", seen, err)
			}
			must(t, f.Close())
			if seen, err := Observe(ready, "nonce"); seen != Seen || err != nil {
				t.Errorf("after its end: %v %v", seen, err)
			}
			if b, _ := os.ReadFile(victim); string(b) != "v" {
				t.Error("a link was followed")
			}
		})
	}
	if seen, err := Observe(t.TempDir()+"/gone/ready", "nonce"); seen != Unobserved || err != nil {
		t.Errorf("no directory: %v %v", seen, err)
	}
	if _, err := announce("ready", "nonce"); err == nil {
		t.Error("a relative path is taken")
	}
	if _, err := announce("/nowhere/ready", "nonce"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestPut(t *testing.T) {
	for name, c := range map[string]struct {
		plant func(dir string) error
		at    string
		in    string
		size  string
		says  string // the error; "" is none
	}{
		"new":                   {at: "f", in: "content"},
		"with directories":      {at: "a/b/f", in: "content"},
		"empty":                 {at: "f", in: ""},
		"over a file":           {at: "f", in: "content", plant: func(d string) error { return os.WriteFile(d+"/f", []byte("longer than before"), 0o644) }},
		"over a directory":      {at: "f", in: "content", plant: func(d string) error { return os.MkdirAll(d+"/f/g", 0o755) }},
		"over a link":           {at: "f", in: "content", plant: func(d string) error { return os.Symlink("victim", d+"/f") }},
		"over a fifo":           {at: "f", in: "content", plant: func(d string) error { return mkfifo(d + "/f") }},
		"a draft that was left": {at: "f", in: "content", plant: func(d string) error { return os.Symlink("victim", d+"/.new-f") }},
		"a link on the way":     {at: "a/f", in: "content", plant: func(d string) error { return os.Symlink(".", d+"/a") }, says: "a"},
		"a file on the way":     {at: "a/f", in: "content", plant: func(d string) error { return os.WriteFile(d+"/a", nil, 0o600) }, says: "a"},
		"cut off":               {at: "f", in: "conte", size: "7", says: "not as many came"},
		"cut off, over a file":  {at: "f", in: "", size: "7", says: "not as many came", plant: func(d string) error { return os.WriteFile(d+"/f", []byte("v"), 0o600) }},
		"more than announced":   {at: "f", in: "content and", size: "7", says: "not as many came"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			victim := dir + "/victim"
			must(t, os.WriteFile(victim, []byte("v"), 0o600))
			if c.plant != nil {
				must(t, c.plant(dir))
			}
			before := names(t, dir)
			argv := PutFile(filepath.Join(dir, c.at), 0o640, len(c.in))
			if c.size != "" {
				argv[len(argv)-1] = c.size
			}
			env, said := as(c.in)
			code := Main(env, argv[2:])
			if (code != 0) != (c.says != "") || !strings.Contains(said.String(), c.says) {
				t.Fatalf("%d %q", code, said)
			}
			if b, _ := os.ReadFile(victim); string(b) != "v" {
				t.Error("a link was followed")
			}
			if c.says != "" {
				if after := names(t, dir); after != before {
					t.Errorf("before %s, after %s", before, after)
				}
				return
			}
			info, err := os.Lstat(filepath.Join(dir, c.at))
			must(t, err)
			if b, err := os.ReadFile(filepath.Join(dir, c.at)); err != nil || string(b) != c.in || info.Mode() != 0o640 {
				t.Errorf("%q %v %v", b, info.Mode(), err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, filepath.Dir(c.at), ".new-*")); len(left) > 0 {
				t.Errorf("left: %q", left)
			}
		})
	}
}

// names are all paths below dir with their sizes.
func names(t *testing.T, dir string) string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && path != dir {
			info, e := d.Info()
			if err = e; err == nil {
				out = append(out, path+" "+info.Mode().String())
			}
		}
		return err
	}))
	return strings.Join(out, "\n")
}

func TestAnswers(t *testing.T) {
	env, out := as("")
	dir := t.TempDir()
	if code := Main(env, Interrupt(dir)[2:]); code != 0 {
		t.Fatal(out)
	}
	if err := ReadInterrupt(out.Bytes()); !errors.Is(err, process.ErrGone) {
		t.Errorf("nothing to interrupt: %v", err)
	}
	out.Reset()
	if code := Main(env, Fence(dir)[2:]); code != 0 {
		t.Fatal(out)
	}
	if f, err := ReadFence(out.Bytes()); err != nil || !f.Sure || f.At.IsZero() {
		t.Errorf("%+v %v", f, err)
	}
	out.Reset()
	// What cannot be decided is said, and is no failure of the command.
	held, err := lock.Acquire(context.Background(), dir+"/lock", lock.Exclusive, 0, "somebody")
	must(t, err)
	defer held.Release()
	must(t, os.Remove(dir+"/abandoned"))
	must(t, os.WriteFile(dir+"/started", []byte("garbage"), 0o600))
	if code := Main(env, Fence(dir)[2:]); code != 0 {
		t.Fatal(out)
	}
	if f, err := ReadFence(out.Bytes()); err != nil || f.Sure || f.Why == "" {
		t.Errorf("%+v %v", f, err)
	}
	for _, none := range []string{"", "OCI runtime exec failed", "[]", `{"sure":`} {
		if f, err := ReadFence([]byte(none)); err == nil || f.Sure {
			t.Errorf("%q: %+v", none, f)
		}
		if err := ReadInterrupt([]byte(none)); err == nil || errors.Is(err, process.ErrGone) {
			t.Errorf("%q: %v", none, err)
		}
	}
}

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	for name, script := range map[string]string{
		"bash": "#!/bin/sh\necho 'version one'\necho more\n", "git": "#!/bin/sh\nexit 3\n", "node": "#!/bin/sh\nprintf 'v22\\033[31m'\n", "pnpm": "not a program",
	} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755))
	}
	must(t, os.WriteFile(dir+"/setsid", nil, 0o644)) //nolint:gosec // one that cannot be run
	env, out := as("")
	env.Vars = map[string]string{"PATH": dir}
	if code := Main(env, Probe()[2:]); code != 0 {
		t.Fatal(out)
	}
	p, err := ReadProbe(out.Bytes())
	must(t, err)
	if p.UID != os.Getuid() || p.GID != os.Getgid() || p.Kernel == "" || p.Path != dir {
		t.Errorf("%+v", p)
	}
	b, err := json.Marshal(p.Tools)
	must(t, err)
	at := func(name string) Tool { return p.Tools[name] }
	if len(p.Tools) != 4 || at("bash").Version != "version one" || at("git") != (Tool{Path: dir + "/git"}) || strings.Contains(at("node").Version, "\x1b") || at("pnpm").Version != "" {
		t.Errorf("%s", b)
	}
}

func TestWrongCommandLines(t *testing.T) {
	for _, args := range [][]string{nil, {"init"}, {"init", "/x"}, {"put", "/x"}, {"nosuch"}, {"fence"}, {"supervise"}, {"probe", "x"}} {
		env, said := as("")
		if code := Main(env, args); code != 2 || !strings.Contains(said.String(), "usage:") {
			t.Errorf("%q: %d %s", args, code, said)
		}
	}
	for _, args := range [][]string{{"put", "relative", "600", "0"}, {"put", "/", "600", "0"}, {"put", "/a/../b", "600", "0"}, {"put", "/x", "4755", "0"}, {"put", "/x", "6o0", "0"}, {"put", "/x", "600", "-1"}} {
		env, said := as("")
		if code := Main(env, args); code != 1 {
			t.Errorf("%q: %d %s", args, code, said)
		}
	}
}
