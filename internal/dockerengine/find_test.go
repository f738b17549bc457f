package dockerengine

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// testEndpoint is a directory whose path is short enough for sockets.
func testEndpoint(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "lw-engine-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// listen makes a socket that nobody answers at.
func listen(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return "unix://" + path
}

func TestFindInTheOrderOfDockersCLI(t *testing.T) {
	dir := testEndpoint(t)
	sock := func(name string) string { return listen(t, filepath.Join(dir, name)) }
	set, variable, chosen, current, standard := sock("setting.sock"), sock("variable.sock"), sock("chosen.sock"), sock("current.sock"), sock("standard.sock")
	run, home := filepath.Join(dir, "run"), filepath.Join(dir, "home")
	rootless := sock("run/docker.sock")
	config := engine.Config(t, "current", map[string]string{"current": current, "chosen": chosen, "hostless": ""})
	all := map[string]string{"DOCKER_HOST": variable, "DOCKER_CONTEXT": "chosen", "DOCKER_CONFIG": config, "XDG_RUNTIME_DIR": run}
	without := func(names ...string) map[string]string {
		out := map[string]string{}
		for k, v := range all {
			out[k] = v
		}
		for _, n := range names {
			delete(out, n)
		}
		return out
	}
	with := func(vars map[string]string, name, value string) map[string]string { vars[name] = value; return vars }
	standardPath := strings.TrimPrefix(standard, "unix://")
	absent := filepath.Join(dir, "absent.sock")
	broken := filepath.Join(dir, "broken.sock")
	if err := os.Symlink("/nowhere/docker.sock", broken); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		f            Finder
		host, origin string
	}{
		"setting before all":         {Finder{Vars: all, Setting: set, standard: standardPath}, set, "the setting docker.host"},
		"then DOCKER_HOST":           {Finder{Vars: all, standard: standardPath}, variable, "DOCKER_HOST"},
		"then DOCKER_CONTEXT":        {Finder{Vars: without("DOCKER_HOST"), standard: standardPath}, chosen, `the context "chosen"`},
		"then the current context":   {Finder{Vars: without("DOCKER_HOST", "DOCKER_CONTEXT"), standard: standardPath}, current, `the context "current"`},
		"empty variables are unset":  {Finder{Vars: with(with(without(), "DOCKER_HOST", ""), "DOCKER_CONTEXT", ""), standard: standardPath}, current, `the context "current"`},
		"then the default socket":    {Finder{Vars: without("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"), standard: standardPath}, standard, "the default socket"},
		"the context default":        {Finder{Vars: with(without("DOCKER_HOST"), "DOCKER_CONTEXT", "default"), standard: standardPath}, standard, "the default socket"},
		"then the rootless socket":   {Finder{Vars: without("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"), standard: absent}, rootless, "the rootless socket"},
		"past an unusable default":   {Finder{Vars: without("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"), standard: broken}, rootless, "the rootless socket, for unix://" + broken + " (the default socket) is a symbolic link to /nowhere/docker.sock, which does not exist"},
		"an older home socket":       {Finder{Vars: map[string]string{"XDG_RUNTIME_DIR": dir}, Home: home, standard: absent}, listen(t, filepath.Join(home, ".docker/run/docker.sock")), "the rootless socket"},
		"Desktop's":                  {Finder{Vars: map[string]string{"XDG_RUNTIME_DIR": dir}, Home: home + "2", standard: absent}, listen(t, filepath.Join(home+"2", ".docker/desktop/docker.sock")), "the rootless socket"},
		"the home's configuration":   {Finder{Home: homeWith(t, `{"currentContext": ""}`), standard: standardPath}, standard, "the default socket"},
		"an empty configuration":     {Finder{Home: homeWith(t, ""), standard: standardPath}, standard, "the default socket"},
		"null for configuration":     {Finder{Home: homeWith(t, "null"), standard: standardPath}, standard, "the default socket"},
		"logins that do not decode":  {Finder{Home: homeWith(t, `{"auths": {"x": {"auth": "!!"}}, "credsStore": "nope", "credHelpers": {"y": "z"}, "unknown": [1]}`), standard: standardPath}, standard, "the default socket"},
		"no home and no environment": {Finder{standard: standardPath}, standard, "the default socket"},
	} {
		t.Run(name, func(t *testing.T) {
			c.f.UID = 4_000_000 // has no /run/user
			e, err := c.f.Find()
			if err != nil {
				t.Fatal(err)
			}
			if e.Host != c.host || e.Origin != c.origin {
				t.Errorf("found %s from %s\nwant  %s from %s", e.Host, e.Origin, c.host, c.origin)
			}
			if e.Socket() != strings.TrimPrefix(c.host, "unix://") {
				t.Errorf("socket %q", e.Socket())
			}
		})
	}
}

func homeWith(t *testing.T, config string) string {
	t.Helper()
	home := testEndpoint(t)
	if err := os.Mkdir(filepath.Join(home, ".docker"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".docker/config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	return home
}

func TestWhatCannotBeFoundSaysWhy(t *testing.T) {
	dir := testEndpoint(t)
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, err := range []error{
		os.Symlink("/nope/docker.sock", at("broken")), os.WriteFile(at("file"), nil, 0o600), os.Mkdir(at("directory"), 0o755),
		os.Symlink("loop", at("loop")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	config := engine.Config(t, "", map[string]string{"remote": "ssh://user@host", "gone": "unix://" + at("absent")})
	host := func(h string) Finder { return Finder{Vars: map[string]string{"DOCKER_HOST": h}} }
	context := func(name string) Finder {
		return Finder{Vars: map[string]string{"DOCKER_CONTEXT": name, "DOCKER_CONFIG": config}}
	}
	long := "/tmp/" + strings.Repeat("x", 110)
	for name, c := range map[string]struct {
		f    Finder
		kind failure.Kind
		says []string
	}{
		"tcp":                            {host("tcp://127.0.0.1:2375"), failure.NotReady, []string{"DOCKER_HOST", "tcp", "another host", "mounts"}},
		"ssh":                            {host("ssh://host"), failure.NotReady, []string{"DOCKER_HOST", "ssh", "another host"}},
		"http":                           {host("http://127.0.0.1:2375"), failure.NotReady, []string{"another host"}},
		"https":                          {host("https://host"), failure.NotReady, []string{"another host"}},
		"npipe":                          {host("npipe:////./pipe/docker_engine"), failure.NotReady, []string{"Windows"}},
		"a remote context":               {context("remote"), failure.NotReady, []string{`the context "remote"`, "ssh://user@host", "another host"}},
		"a remote setting":               {Finder{Setting: "tcp://h:1"}, failure.NotReady, []string{"the setting docker.host", "another host"}},
		"no scheme":                      {host("/var/run/docker.sock"), failure.NotReady, []string{"begins with its scheme"}},
		"no endpoint":                    {host("localhost:2375"), failure.NotReady, []string{"unix:///path"}},
		"a relative socket":              {host("unix://docker.sock"), failure.NotReady, []string{"absolute path"}},
		"no socket":                      {host("unix://"), failure.NotReady, []string{"absolute path"}},
		"a broken link":                  {host("unix://" + at("broken")), failure.NotReady, []string{at("broken"), "symbolic link to /nope/docker.sock", "does not exist"}},
		"a loop":                         {host("unix://" + at("loop")), failure.NotReady, []string{"cannot be followed"}},
		"a file":                         {host("unix://" + at("file")), failure.NotReady, []string{"is not a socket"}},
		"a directory":                    {host("unix://" + at("directory")), failure.NotReady, []string{"is a directory"}},
		"nothing there":                  {host("unix://" + at("absent")), failure.NotReady, []string{"no socket at unix://" + at("absent"), "DOCKER_HOST"}},
		"a long path":                    {host("unix://" + long), failure.NotReady, []string{"too long", "115 bytes"}},
		"an unknown context":             {context("nosuch"), failure.NotReady, []string{"DOCKER_CONTEXT", `"nosuch"`, config}},
		"an unknown current context":     {Finder{Vars: map[string]string{"DOCKER_CONFIG": engine.Config(t, "nosuch", nil)}}, failure.NotReady, []string{"config.json", `"nosuch"`}},
		"a context whose socket is gone": {context("gone"), failure.NotReady, []string{`the context "gone"`, "no socket"}},
		"a context without a home":       {Finder{Vars: map[string]string{"DOCKER_CONTEXT": "x"}}, failure.NotReady, []string{"HOME", "DOCKER_CONFIG"}},
		"a damaged configuration":        {Finder{Home: homeWith(t, `{"currentContext": `)}, failure.NotReady, []string{"config.json", "current Docker context"}},
		"a byte order mark":              {Finder{Home: homeWith(t, "\ufeff{}")}, failure.NotReady, []string{"config.json"}},
		"nothing at all":                 {Finder{Home: at("home"), UID: 4_000_000, standard: at("absent")}, failure.NotReady, []string{"no Docker engine was found", at("absent"), "/run/user/4000000/docker.sock", at("home/.docker/run/docker.sock")}},
		"only a broken default":          {Finder{UID: 4_000_000, standard: at("broken")}, failure.NotReady, []string{"the default socket", "symbolic link to /nope/docker.sock"}},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := c.f.Find()
			if err == nil {
				t.Fatalf("found %s", e)
			}
			f := failure.As(err)
			if f == nil || f.Kind != c.kind {
				t.Fatalf("kind %s of %v, want %s", failure.KindOf(err), err, c.kind)
			}
			for _, s := range c.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if f.Hint == "" {
				t.Errorf("%q has no command to type", err)
			}
		})
	}
}

func TestDamagedContextIsNamed(t *testing.T) {
	config := engine.Config(t, "here", map[string]string{"here": "unix:///run/x.sock"})
	metas, err := filepath.Glob(filepath.Join(config, "contexts/meta/*/meta.json"))
	if err != nil || len(metas) != 1 {
		t.Fatal(metas, err)
	}
	for _, text := range []string{"", "null", "{", `{"Name": "here", "Endpoints": {"docker": null}}`, `{"Name": "here", "Endpoints": {"docker": 5}}`, `{"Name": "here"}`} {
		if err := os.WriteFile(metas[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Finder{Vars: map[string]string{"DOCKER_CONFIG": config}}.Find()
		if !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), `context "here"`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// Root may do everything: another user looks.
func TestSocketThatIsNotPermitted(t *testing.T) {
	if dir := os.Getenv("LAUFWERK_TEST_SOCKETS"); dir != "" {
		for name, says := range map[string]string{"closed.sock": "has no permission to connect to the engine", "closed/docker.sock": "has no access to the directory", "link.sock": "to which this user has no access"} {
			_, err := Finder{Vars: map[string]string{"DOCKER_HOST": "unix://" + filepath.Join(dir, name)}}.Find()
			if f := failure.As(err); f == nil || f.Kind != failure.NotReady || !strings.Contains(f.Message, says) || !strings.Contains(f.Hint, "group docker") || !strings.Contains(f.Hint, "rootless") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := (Finder{Vars: map[string]string{"DOCKER_HOST": "unix://" + filepath.Join(dir, "open.sock")}}).Find(); err != nil {
			t.Error(err)
		}
		return
	}
	setpriv, err := exec.LookPath("setpriv")
	testkit.Need(t, "setpriv and root", err == nil && os.Getuid() == 0, "another user is refused the socket")
	dir := testEndpoint(t)
	for name, mode := range map[string]os.FileMode{"closed.sock": 0o660, "closed/docker.sock": 0o666, "open.sock": 0o666} {
		listen(t, filepath.Join(dir, name))
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
	self := filepath.Join(dir, "test")
	b, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Symlink("closed/docker.sock", filepath.Join(dir, "link.sock")), os.Chmod(filepath.Join(dir, "closed"), 0o700),
		os.WriteFile(self, b, 0o755), os.Chmod(dir, 0o755),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups", self, "-test.run", "^TestSocketThatIsNotPermitted$", "-test.v")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LAUFWERK_TEST_SOCKETS="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestSocketThatIsNotPermitted") {
		t.Fatalf("%v\n%s", err, out)
	}
}
