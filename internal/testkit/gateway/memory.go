package gateway

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// Process is one of a sandbox whose container is in memory.
type Process struct {
	Sandbox *wire.Sandbox
	Main    bool // the main process, whose end ends the sandbox
	Argv    []string
	Env     []string
	Dir     string // "" is the sandbox's own
	Stdin   []byte
	Mounts  map[string]string // target → source

	Stdout, Stderr writer
	Killed         <-chan struct{} // closed when the container ends
}

type writer interface{ Write(b []byte) (int, error) }

// Container is one in memory.
type Container struct {
	ID        string // of the engine
	Name      string
	SandboxID string
	State     string // created, running, exited
	Code      int
	Image     string
	Labels    map[string]string
	Mounts    []Mount
	NanoCPUs  int64
	Memory    int64
	Created   time.Time
}

// Mount is a bind mount of a container.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// memory is an engine that is nothing but a list.
type memory struct {
	images []string
	run    func(p Process) int
	own    map[string]string // labels of every container
	work   sync.WaitGroup
	socket string

	mu         sync.Mutex
	closed     bool
	containers map[string]*contained // by sandbox id
}

type contained struct {
	Container
	sandbox *wire.Sandbox
	env     []string
	killed  chan struct{} // of the present run
}

func newMemory(g *Gateway) *memory {
	m := &memory{images: g.options.Images, run: g.options.Run, own: ownLabels(g.namespace), containers: map[string]*contained{}}
	if m.run == nil {
		m.run = func(p Process) int {
			if p.Main {
				<-p.Killed
			}
			return 0
		}
	}
	m.socket = m.serve(g.t)
	return m
}

// ownLabels are on every container of a gateway.
func ownLabels(namespace string) map[string]string {
	return map[string]string{"openshell.ai/managed-by": "openshell", "openshell.ai/sandbox-namespace": namespace}
}

func labelsOf(b blueprint, own map[string]string) map[string]string {
	out := maps.Clone(b.labels)
	maps.Copy(out, own)
	meta := b.sandbox.GetMetadata()
	out["openshell.ai/sandbox-id"], out["openshell.ai/sandbox-name"], out["openshell.ai/sandbox-workspace"] = meta.GetId(), meta.GetName(), meta.GetWorkspace()
	return out
}

func imageID(ref string) string {
	if strings.HasPrefix(ref, "sha256:") {
		return ref
	}
	sum := sha256.Sum256([]byte(ref))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (m *memory) has(image string) bool {
	return slices.ContainsFunc(m.images, func(ref string) bool { return ref == image || imageID(ref) == image })
}

func (m *memory) version() string { return "20.10.24" }

func (m *memory) create(b blueprint) error {
	image := b.sandbox.GetSpec().GetTemplate().GetImage()
	if m.images != nil && !m.has(image) {
		return &unfit{"ImagePullFailed", fmt.Sprintf("image '%s' is not present locally and image_pull_policy is Never", image)}
	}
	c := &contained{sandbox: proto.CloneOf(b.sandbox), env: b.env, killed: make(chan struct{}), Container: Container{
		ID: random(32), Name: "openshell-" + b.sandbox.GetMetadata().GetName(), SandboxID: b.sandbox.GetMetadata().GetId(), State: created,
		Image: image, Labels: labelsOf(b, m.own), NanoCPUs: b.limits.nanoCPUs, Memory: b.limits.memory, Created: time.Now(),
	}}
	for _, mount := range b.mounts {
		if err := mount.fits(); err != nil {
			return err
		}
		c.Mounts = append(c.Mounts, Mount{mount.Source, mount.Target, mount.readOnly()})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.containers[c.SandboxID] = c
	return nil
}

func (m *memory) start(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.containers[id]
	if c == nil || m.closed {
		return &unfit{"ContainerStartFailed", "no such container"}
	}
	c.State, c.killed = running, make(chan struct{})
	killed := c.killed
	p := c.process(c.sandbox.GetSpec().GetCommand(), discard{}, discard{})
	p.Main = true
	m.work.Go(func() {
		code := m.run(p)
		m.mu.Lock()
		defer m.mu.Unlock()
		if c.State == running && c.killed == killed {
			c.end(code)
		}
	})
	return nil
}

// process is one of the container. m.mu is held.
func (c *contained) process(argv []string, stdout, stderr writer) Process {
	mounts := map[string]string{}
	for _, mount := range c.Mounts {
		mounts[mount.Target] = mount.Source
	}
	return Process{Sandbox: proto.CloneOf(c.sandbox), Argv: argv, Env: c.env, Mounts: mounts, Stdout: stdout, Stderr: stderr, Killed: c.killed}
}

// end is the end of all processes of a container. m.mu is held.
func (c *contained) end(code int) {
	if c.State == running {
		c.State, c.Code = exited, code
		close(c.killed)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

type emitter struct {
	emit   func(stderr bool, data []byte)
	stderr bool
}

func (e emitter) Write(b []byte) (int, error) { e.emit(e.stderr, slices.Clone(b)); return len(b), nil }

func (m *memory) connect(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.containers[id]; c == nil || c.State != running {
		return fmt.Errorf("its container does not run")
	}
	return nil
}

func (m *memory) exec(id string, c command, emit func(stderr bool, data []byte)) (int, error) {
	m.mu.Lock()
	box := m.containers[id]
	if box == nil || box.State != running {
		m.mu.Unlock()
		return 0, fmt.Errorf("no supervisor session")
	}
	p := box.process(c.argv, emitter{emit, false}, emitter{emit, true})
	m.mu.Unlock()
	p.Dir, p.Stdin, p.Env = c.dir, c.stdin, slices.Clone(c.sandbox)
	for _, key := range slices.Sorted(maps.Keys(c.env)) {
		p.Env = append(p.Env, key+"="+c.env[key])
	}
	code := m.run(p)
	select {
	case <-p.Killed:
		return 0, fmt.Errorf("relay channel dropped")
	default:
		return code, nil
	}
}

func (m *memory) remove(id string) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := m.containers[id]
	if c == nil {
		return false, nil
	}
	c.end(137)
	delete(m.containers, id)
	return true, nil
}

func (m *memory) halt(id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.containers[id]; c != nil {
		c.end(137)
	}
	return nil
}

func (m *memory) inspectAll() (map[string]observed, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]observed{}
	for id, c := range m.containers {
		out[id] = observed{state: c.State, code: c.Code}
	}
	return out, nil
}

func (m *memory) close() {
	m.mu.Lock()
	m.closed = true
	for _, c := range m.containers {
		c.end(137)
	}
	m.mu.Unlock()
	m.work.Wait()
}

// list are copies, in the order of their names.
func (m *memory) list() []Container {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []Container
	for _, c := range m.containers {
		out = append(out, c.Container)
	}
	slices.SortFunc(out, func(a, b Container) int { return strings.Compare(a.Name+a.ID, b.Name+b.ID) })
	return out
}

// InMemory are the containers of a gateway of Memory.
func (g *Gateway) InMemory() []Container { return g.back.(*memory).list() } //nolint:errcheck // of no other
