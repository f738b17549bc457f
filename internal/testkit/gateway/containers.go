package gateway

import (
	"context"
	"encoding/gob"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockermount "github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/client"

	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
	"github.com/laufwerk/laufwerk/internal/testkit/gateway/relay"
)

// Containers is a gateway whose sandboxes are containers of the tests' engine.
func Containers(t testkit.T, o Options) *Gateway {
	t.Helper()
	return ContainersOn(t, engine.Endpoint(t), o)
}

// ContainersOn is Containers with an engine of the test's own.
func ContainersOn(t testkit.T, endpoint string, o Options) *Gateway {
	t.Helper()
	if o.Poll == 0 {
		o.Poll = 200 * time.Millisecond
	}
	return begin(t, o, func(g *Gateway) backend { return newContainers(t, g, endpoint) })
}

// containers are those of an engine. Each has a directory on this side, see package relay.
type containers struct {
	t          testkit.T
	gateway    *Gateway
	endpoint   string
	docker     *client.Client
	supervisor string
	dir        string
	out        *egress
	engineSays string // its version
	work       sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	leaving map[string]net.Listener // of what wants out, by sandbox id
}

func newContainers(t testkit.T, g *Gateway, endpoint string) *containers {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") // not the test's: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	c := &containers{
		t: t, gateway: g, endpoint: endpoint, docker: engine.Client(t, endpoint), supervisor: testkit.Supervisor(t), dir: dir, out: newEgress(t, g),
		leaving: map[string]net.Listener{},
	}
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // sandboxes see their parts of it
		t.Fatal(err)
	}
	version, err := c.docker.ServerVersion(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	c.engineSays = version.Version
	return c
}

func (c *containers) version() string { return c.engineSays }
func (c *containers) engine() string  { return c.endpoint }

// effects are not given up when a gateway is killed: the engine was asked.
func effects() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 2*time.Minute)
}

func (c *containers) sandboxDir(id string) string { return filepath.Join(c.dir, id[:8]) }

// name is known before the container is, so that it can be removed without a search.
func (c *containers) name(id string) string { return "openshell-" + c.gateway.namespace + "-" + id }

func (c *containers) create(b blueprint) error {
	ctx, cancel := effects()
	defer cancel()
	spec := b.sandbox.GetSpec()
	image, err := c.docker.ImageInspect(ctx, spec.GetTemplate().GetImage())
	if err != nil {
		return &unfit{"ImagePullFailed", fmt.Sprintf("image '%s' is not present locally and image_pull_policy is Never", spec.GetTemplate().GetImage())}
	}
	work, user := root, ""
	if image.Config != nil {
		user = image.Config.User
		if image.Config.WorkingDir != "" && image.Config.WorkingDir != "/" {
			work = image.Config.WorkingDir
		}
	}
	s, err := describe(b, work, user)
	if err != nil {
		return &unfit{"ContainerCreateFailed", err.Error()}
	}
	s.Authority = string(c.out.authority.pem)
	if err := c.furnish(b.sandbox.GetMetadata().GetId(), s); err != nil {
		return &unfit{"SandboxTokenWriteFailed", err.Error()}
	}
	pids := maxPids
	host := &container.HostConfig{
		NetworkMode: "none", CapAdd: []string{"SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE", "SYSLOG"}, SecurityOpt: []string{"apparmor=unconfined", "seccomp=unconfined"},
		Resources: container.Resources{NanoCPUs: b.limits.nanoCPUs, Memory: b.limits.memory, MemorySwap: 2 * b.limits.memory, PidsLimit: &pids},
		Mounts: []dockermount.Mount{
			{Type: dockermount.TypeBind, Source: c.supervisor, Target: relay.Supervisor, ReadOnly: true},
			{Type: dockermount.TypeBind, Source: c.sandboxDir(b.sandbox.GetMetadata().GetId()), Target: relay.Dir},
		},
	}
	for _, m := range b.mounts {
		if err := m.fits(); err != nil {
			return err
		}
		host.Mounts = append(host.Mounts, dockermount.Mount{Type: dockermount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.readOnly()})
	}
	_, err = c.docker.ContainerCreate(ctx, &container.Config{
		Image: image.ID, User: "0", WorkingDir: work, Entrypoint: []string{relay.Supervisor}, Cmd: []string{}, Labels: labelsOf(b, ownLabels(c.gateway.namespace)),
	}, host, nil, nil, c.name(b.sandbox.GetMetadata().GetId()))
	if err != nil {
		return &unfit{"ContainerCreateFailed", err.Error()}
	}
	return nil
}

// describe is what the supervisor has to know.
func describe(b blueprint, work, user string) (relay.Sandbox, error) {
	policy := b.sandbox.GetSpec().GetPolicy()
	s := relay.Sandbox{
		Command: b.sandbox.GetSpec().GetCommand(), Env: b.env, Root: work, Proxy: proxyAddress, Hard: policy.GetLandlock().GetCompatibility() == "hard_requirement",
		ReadOnly: policy.GetFilesystem().GetReadOnly(), ReadWrite: policy.GetFilesystem().GetReadWrite(),
	}
	switch {
	case policy == nil:
		s.ReadOnly = []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", "/dev/urandom"}
		s.ReadWrite = []string{"/tmp", "/dev/null", work}
	case policy.GetFilesystem().GetIncludeWorkdir():
		s.ReadWrite = append(s.ReadWrite, work)
	}
	for _, of := range []struct {
		to   *int
		name string
	}{{&s.UID, policy.GetProcess().GetRunAsUser()}, {&s.GID, policy.GetProcess().GetRunAsGroup()}} {
		if of.name == "" || of.name == "sandbox" {
			of.name = user // of the image; the gateway for tests reads no names
		}
		id, err := strconv.Atoi(of.name)
		if err != nil || id <= 0 {
			return s, fmt.Errorf("no user to run as: the policy names no number, and the image has the user '%s'", user)
		}
		*of.to = id
	}
	return s, nil
}

// furnish makes the directory of a container, and listens there for what wants out.
func (c *containers) furnish(id string, s relay.Sandbox) error {
	dir := c.sandboxDir(id)
	if err := os.Mkdir(dir, 0o755); err != nil { //nolint:gosec // the sandbox's user enters it
		return err
	}
	content, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, relay.Description), content, 0o644) //nolint:gosec // there are no secrets in it
	}
	if err != nil {
		return err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, relay.Egress)})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return l.Close()
	}
	c.leaving[id] = l
	c.work.Go(func() { c.out.serve(l, id) })
	return nil
}

func (c *containers) start(id string) error {
	ctx, cancel := effects()
	defer cancel()
	if err := c.docker.ContainerStart(ctx, c.name(id), container.StartOptions{}); err != nil {
		return &unfit{"ContainerStartFailed", err.Error()}
	}
	return nil
}

func (c *containers) dial(id string) (net.Conn, error) {
	return net.DialTimeout("unix", filepath.Join(c.sandboxDir(id), relay.Commands), 10*time.Second)
}

func (c *containers) connect(ctx context.Context, id string) error {
	for {
		conn, err := c.dial(id)
		if err == nil {
			return conn.Close()
		}
		if !sleep(ctx, 5*time.Millisecond) {
			return err
		}
	}
}

func (c *containers) exec(id string, of command, emit func(stderr bool, data []byte)) (int, error) {
	conn, err := c.dial(id)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	if err := gob.NewEncoder(conn).Encode(relay.Request{Shell: shell(of), Env: of.sandbox, Stdin: of.stdin}); err != nil {
		return 0, err
	}
	for from := gob.NewDecoder(conn); ; {
		var e relay.Event
		switch err := from.Decode(&e); {
		case errors.Is(err, io.EOF):
			return 0, fmt.Errorf("relay channel dropped")
		case err != nil:
			return 0, err
		case e.Error != "":
			return 0, fmt.Errorf("%s", e.Error)
		case e.Done:
			return e.Code, nil
		}
		emit(e.Stderr, e.Data)
	}
}

func (c *containers) remove(id string) (bool, error) {
	ctx, cancel := effects()
	defer cancel()
	err := c.docker.ContainerRemove(ctx, c.name(id), container.RemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case errdefs.IsNotFound(err):
		return false, nil
	case errdefs.IsConflict(err): // somebody else removes it
		ended, failed := c.docker.ContainerWait(ctx, c.name(id), container.WaitConditionRemoved)
		select {
		case <-ended:
		case err := <-failed:
			if !errdefs.IsNotFound(err) {
				return false, err
			}
		}
	case err != nil:
		return false, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.leaving[id]; l != nil {
		_ = l.Close()
		delete(c.leaving, id)
	}
	_ = os.RemoveAll(c.sandboxDir(id))
	return true, nil
}

func (c *containers) halt(id string) error {
	ctx, cancel := effects()
	defer cancel()
	soon := 1
	err := c.docker.ContainerStop(ctx, c.name(id), container.StopOptions{Timeout: &soon})
	if errdefs.IsNotFound(err) {
		return nil
	}
	return err
}

func (c *containers) inspectAll() (map[string]observed, error) {
	ctx, cancel := effects()
	defer cancel()
	list, err := c.docker.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", "openshell.ai/sandbox-namespace="+c.gateway.namespace))})
	if err != nil {
		return nil, err
	}
	out := map[string]observed{}
	for _, one := range list {
		seen := observed{state: one.State}
		switch one.State {
		case created, exited:
		default: // "removing" and "restarting" come and go
			seen.state = running
		}
		if seen.state == exited {
			got, err := c.docker.ContainerInspect(ctx, one.ID)
			if err != nil {
				continue // it has gone meanwhile
			}
			seen.code = got.State.ExitCode
		}
		out[one.Labels["openshell.ai/sandbox-id"]] = seen
	}
	return out, nil
}

func (c *containers) close() {
	c.mu.Lock()
	c.closed = true
	for _, l := range c.leaving {
		_ = l.Close()
	}
	c.mu.Unlock()
	engine.Remove(c.t, c.endpoint, "openshell.ai/sandbox-namespace="+c.gateway.namespace)
	c.out.close()
	c.work.Wait()
	_ = os.RemoveAll(c.dir)
}
