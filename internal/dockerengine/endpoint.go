package dockerengine

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system/files"
)

// Endpoint is where an engine is spoken to.
type Endpoint struct {
	Host   string `json:"host"`   // unix:///path
	Origin string `json:"origin"` // why this one: "DOCKER_HOST", `the context "x"`, "the setting docker.host", "the default socket", "the rootless socket"
}

// Socket is the path of the engine's socket.
func (e Endpoint) Socket() string { return strings.TrimPrefix(e.Host, unixScheme) }

func (e Endpoint) String() string { return e.Host + " (" + e.Origin + ")" }

const (
	unixScheme    = "unix://"
	defaultSocket = "/var/run/docker.sock"

	settingOrigin   = "the setting docker.host"
	contextVariable = "DOCKER_CONTEXT"
)

// Finder finds the engine of this host in the order of Docker's own CLI, with our setting before everything and the sockets
// of rootless engines after it: the setting docker.host, DOCKER_HOST, DOCKER_CONTEXT, the current context, the default
// socket, the rootless sockets.
type Finder struct {
	Vars    map[string]string // the environment
	Home    string            // the user's, "" where there is none
	Setting string            // the setting docker.host, "" where it is not set
	UID     int               // the effective user

	standard string // instead of /var/run/docker.sock, for tests
}

// Find names the engine's endpoint. It looks at files only; whether an engine answers there is Connect's to say. Engines of
// other hosts, and what is missing, broken or not permitted, are failures of kind NotReady.
func (f Finder) Find() (Endpoint, error) {
	if f.Setting != "" {
		return endpointByName(f.Setting, settingOrigin)
	}
	if host := f.Vars["DOCKER_HOST"]; host != "" {
		return endpointByName(host, "DOCKER_HOST")
	}
	name, from, err := f.context()
	if err != nil {
		return Endpoint{}, err
	}
	if name == "" {
		return f.search()
	}
	host, err := f.contextHost(name, from)
	if err != nil {
		return Endpoint{}, err
	}
	return endpointByName(host, fmt.Sprintf("the context %q", name))
}

// search tries the sockets that need no configuration. The first that can be used wins; where none can, the first that is
// there says why.
func (f Finder) search() (Endpoint, error) {
	places := []Endpoint{{Host: unixScheme + cmp.Or(f.standard, defaultSocket), Origin: "the default socket"}}
	for _, path := range f.rootless() {
		places = append(places, Endpoint{Host: unixScheme + path, Origin: "the rootless socket"})
	}
	var why error
	for _, e := range places {
		err := checkUsable(e)
		if err == nil {
			if why != nil {
				e.Origin += ", for " + failure.As(why).Message
			}
			return e, nil
		}
		if why == nil && !errors.Is(err, fs.ErrNotExist) {
			why = err
		}
	}
	if why != nil {
		return Endpoint{}, why
	}
	looked := make([]string, len(places))
	for i, e := range places {
		looked[i] = e.Socket()
	}
	return Endpoint{}, failure.New(failure.NotReady, "no Docker engine was found: there is no socket at %s, and neither docker.host, DOCKER_HOST nor a context names another",
		strings.Join(looked, ", ")).WithHint("%s", startHint).WithPaths(looked...)
}

// startHint names no more than Docker's own ways to start an engine.
const startHint = "sudo systemctl start docker   # or: systemctl --user start docker (rootless), or start Docker Desktop"

func (f Finder) rootless() []string {
	run := f.Vars["XDG_RUNTIME_DIR"]
	if run == "" && runtime.GOOS == "linux" {
		run = fmt.Sprintf("/run/user/%d", f.UID)
	}
	var out []string
	if filepath.IsAbs(run) {
		out = append(out, filepath.Join(run, "docker.sock"))
	}
	if filepath.IsAbs(f.Home) {
		out = append(out, filepath.Join(f.Home, ".docker/run/docker.sock"), filepath.Join(f.Home, ".docker/desktop/docker.sock"))
	}
	return out
}

func endpointByName(host, origin string) (Endpoint, error) {
	e := Endpoint{Host: host, Origin: origin}
	scheme, rest, ok := strings.Cut(host, "://")
	switch {
	case ok && scheme == "unix":
		if !filepath.IsAbs(rest) {
			return Endpoint{}, failure.New(failure.NotReady, "%s is %q: expected the absolute path of a socket", origin, host).
				WithHint("%s", withDefaultSocket(origin))
		}
		return e, checkUsable(e)
	case ok && (scheme == "tcp" || scheme == "ssh" || scheme == "http" || scheme == "https"):
		return Endpoint{}, failure.New(failure.NotReady,
			"%s is %q: an engine that is reached over %s may be on another host, where the directories that laufwerk mounts are that host's, not the workspace's", origin, host, scheme).
			WithHint("%s   # or another socket of an engine on this machine", withDefaultSocket(origin))
	case ok && scheme == "npipe":
		return Endpoint{}, failure.New(failure.NotReady, "%s is %q: Windows pipes are not supported", origin, host).
			WithHint("run laufwerk inside WSL 2, with the engine's unix socket")
	case filepath.IsAbs(host):
		return Endpoint{}, failure.New(failure.NotReady, "%s is %q: an endpoint begins with its scheme", origin, host).WithHint("%s", set(origin, unixScheme+host))
	default:
		return Endpoint{}, failure.New(failure.NotReady, "%s is %q: that is not an endpoint; expected unix:///path", origin, host).
			WithHint("%s", withDefaultSocket(origin))
	}
}

// set is the command that puts an engine's address where origin had a wrong one: DOCKER_HOST comes before every context, and a
// variable before the settings file.
func set(origin, host string) string {
	name := "DOCKER_HOST"
	if origin == settingOrigin {
		name = "LAUFWERK_DOCKER_HOST"
	}
	return "export " + name + "=" + failure.Quote(host)
}

// withDefaultSocket is set with the address that most engines have.
func withDefaultSocket(origin string) string { return set(origin, unixScheme+defaultSocket) }

// maxSocketPath is what fits into the address of a unix socket, in bytes.
func maxSocketPath() int {
	if runtime.GOOS == "linux" {
		return 107
	}
	return 103
}

// checkUsable says why nothing can be asked at an endpoint, nil where an engine may listen. A socket that is not there at all is
// fs.ErrNotExist.
func checkUsable(e Endpoint) error {
	path := e.Socket()
	fail := func(err error, format string, args ...any) *failure.Error {
		return failure.New(failure.NotReady, format, args...).WithPaths(path).WithCause(err)
	}
	if len(path) > maxSocketPath() {
		return fail(nil, "%s is too long for a unix socket: %d bytes, at most %d are possible", e, len(path), maxSocketPath()).
			WithHint("ln -s %s /tmp/docker.sock && export DOCKER_HOST=unix:///tmp/docker.sock", failure.Quote(path))
	}
	link, err := files.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fail(fs.ErrNotExist, "there is no socket at %s", e).WithHint("%s", startHint)
	case errors.Is(err, fs.ErrPermission):
		return fail(err, "this user has no access to the directory of %s", e).WithHint("%s", permissionHint)
	case err != nil:
		return fail(err, "cannot inspect %s", e).WithHint("ls -l %s", failure.Quote(path))
	}
	info := link
	if link.Mode()&fs.ModeSymlink != 0 {
		target, _ := files.Readlink(path)
		info, err = files.Stat(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fail(nil, "%s is a symbolic link to %s, which does not exist", e, target).WithHint("%s", startHint)
		case errors.Is(err, fs.ErrPermission):
			return fail(err, "%s is a symbolic link to %s, to which this user has no access", e, target).WithHint("%s", permissionHint)
		case err != nil:
			return fail(err, "%s is a symbolic link to %s, which cannot be followed", e, target).WithHint("ls -l %s", failure.Quote(path))
		}
	}
	switch mode := info.Mode(); {
	case mode.IsDir():
		return fail(nil, "%s is a directory, not a socket: it was created for a container that mounted the socket before it existed", e).
			WithHint("rmdir %s && sudo systemctl restart docker", failure.Quote(path))
	case mode&fs.ModeSocket == 0:
		return fail(nil, "%s is not a socket", e).WithHint("%s", startHint)
	}
	if err := files.CheckConnectable(path); err != nil {
		return fail(err, "this user has no permission to connect to the engine at %s", e).WithHint("%s", permissionHint)
	}
	return nil
}

const permissionHint = `sudo usermod -aG docker "$USER" && newgrp docker   # members of the group docker have the rights of root; a rootless engine needs none: dockerd-rootless-setuptool.sh install`
