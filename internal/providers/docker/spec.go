package docker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Where things are in a container.
const (
	workdir   = "/workspace"
	homeDir   = "/laufwerk/home"
	opsDir    = "/laufwerk/ops"
	loginDir  = "/laufwerk/login" // in memory
	tmpDir    = "/tmp"
	readyFile = "ready" // in opsDir: made by the container's first process
)

type spec struct {
	Dir       string            `json:"dir"`
	Workspace string            `json:"workspace"`
	ReadOnly  bool              `json:"readOnly,omitempty"`
	Mark      string            `json:"mark"`
	Engine    string            `json:"engine"` // its socket
	Image     string            `json:"image"`  // id
	Prepared  bool              `json:"prepared,omitempty"`
	User      string            `json:"user"`            // uid:gid in the container
	FileOwner *sessiondir.User  `json:"gives,omitempty"` // owner of files on this host; nil is the worker
	UserNS    string            `json:"userns,omitempty"`
	Network   string            `json:"network"`
	Resources targets.Resources `json:"resources,omitzero"`
	Binary    string            `json:"binary"`            // of the supervisor, on this host
	Volumes   []string          `json:"volumes,omitempty"` // paths of the image's volumes
	Nonce     string            `json:"nonce"`
	Serves    bool              `json:"serves,omitempty"` // its first process keeps a supervisor waiting
}

// fileOwner is the owner of a container's files on this host; nil is the worker.
func fileOwner(w owned.ContainerUser) *sessiondir.User {
	if !w.Nobody {
		return nil
	}
	return &sessiondir.User{UID: owned.NobodyID, GID: owned.NobodyID}
}

// Owner is the owner of workspaces for sessions of this target.
func (p *Provider) Owner(ctx context.Context, _ targets.Definition) (uid, gid int, ok bool, err error) {
	e, err := p.c.Connect(ctx, "")
	if err != nil {
		return 0, 0, false, err
	}
	if u := fileOwner(owned.ContainerUserFor(e.Facts(), p.c.UID, p.c.GID)); u != nil {
		return u.UID, u.GID, true, nil
	}
	return 0, 0, false, nil
}

// Name is that of a claim's container.
func (*Provider) Name(claim string) string { return owned.Name(claim) }

// Plan looks the image up and describes the container.
func (p *Provider) Plan(ctx context.Context, def targets.Definition, need providers.Need, s providers.SessionSpec) (providers.Plan, []failure.Condition, error) {
	f, missing := p.find(ctx, def, need)
	if len(missing) > 0 {
		return providers.Plan{}, missing, nil
	}
	plan, err := p.plan(ctx, f, s)
	return plan, nil, err
}

func (p *Provider) plan(ctx context.Context, f sessionBase, s providers.SessionSpec) (providers.Plan, error) {
	binary, err := p.programs.Path(ctx, platform(f.engine.Facts()))
	if err != nil {
		return providers.Plan{}, err
	}
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	out := spec{
		Dir: s.Dir, Workspace: s.Workspace, ReadOnly: s.ReadOnly, Mark: s.Mark, Engine: f.engine.Endpoint().Host, Image: f.image.image.ID,
		Prepared: f.image.prepared, Network: f.config.Network, Resources: f.config.Resources, Binary: binary, Nonce: hex.EncodeToString(nonce), Serves: hasStandby(f.config.Resources),
	}
	w := owned.ContainerUserFor(f.engine.Facts(), p.c.UID, p.c.GID)
	out.User, out.FileOwner, out.UserNS, out.Volumes = w.User, fileOwner(w), w.UserNS, owned.Volumes(f.image.image)
	raw, err := json.Marshal(out)
	return providers.Plan{Spec: raw, Image: f.image.image.ID}, err
}

func readSpec(in resource.Intent) (s spec, id sessiondir.Identity, err error) {
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return s, id, fmt.Errorf("the intent's spec: %w", err)
	}
	return s, sessiondir.Identity{Claim: in.Claim, Name: in.Name, Owner: in.Owner, Mark: s.Mark}, nil
}

func (s spec) containerSpec() owned.ContainerSpec {
	host := owned.HardenedHostConfig(s.Resources)
	host.NetworkMode, host.UsernsMode, host.ReadonlyRootfs = container.NetworkMode(s.Network), container.UsernsMode(s.UserNS), true
	host.Mounts = []mount.Mount{ // at mounts(), as are the first of Tmpfs
		owned.Bind(s.Workspace, workdir, s.ReadOnly),
		owned.Bind(filepath.Join(s.Dir, sessiondir.Home), homeDir, false),
		owned.Bind(filepath.Join(s.Dir, sessiondir.Ops), opsDir, false),
		owned.Bind(filepath.Join(s.Dir, sessiondir.Tmp), tmpDir, false),
		owned.Bind(s.Binary, guest.Binary, true),
	}
	host.Tmpfs = map[string]string{
		loginDir: s.memory("size=1m,mode=0700,noexec"), "/run": s.memory("size=16m,mode=0755,noexec"), "/var/tmp": s.memory("mode=1777,exec"),
	}
	for _, v := range s.Volumes {
		if !slices.Contains(mounts(), v) {
			host.Tmpfs[v] = s.memory("mode=0755,exec")
		}
	}
	first := guest.Init
	if s.Serves {
		first = guest.Serve
	}
	return owned.ContainerSpec{Host: host, Config: &container.Config{
		User: s.User, WorkingDir: workdir, Entrypoint: []string{guest.Binary}, Cmd: first(opsDir+"/"+readyFile, s.Nonce, mounts()...)[1:],
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, StopSignal: "SIGKILL",
	}}
}

// hasStandby says whether these limits leave room for a waiting supervisor: about ten threads and 16 MiB.
func hasStandby(r targets.Resources) bool {
	return (r.PIDs == 0 || r.PIDs >= 2*lowPIDLimit) && (r.MemoryBytes == 0 || r.MemoryBytes >= 128<<20)
}

// memory is the options of a tmpfs that belongs to the container's user.
func (s spec) memory(options string) string {
	uid, gid, _ := strings.Cut(s.User, ":")
	return "rw,nosuid,nodev," + options + ",uid=" + uid + ",gid=" + gid
}

// mounts are where something is mounted in every session.
func mounts() []string {
	return []string{workdir, homeDir, opsDir, tmpDir, guest.Binary, loginDir, "/run", "/var/tmp"}
}

// refuseVolumes refuses an image with volumes below our mounts: the engine would make their directories on this host, as root.
func refuseVolumes(i image.InspectResponse) error {
	for _, v := range owned.Volumes(i) {
		for _, own := range []string{workdir, homeDir, opsDir, tmpDir, guest.Binary} {
			if v == "/" || v != own && isWithin(v, own) {
				return failure.New(failure.NotReady, "the image has a volume at %s, where sessions have files of their own: take that VOLUME out of its Dockerfile", v)
			}
		}
	}
	return nil
}

func isWithin(path, dir string) bool {
	rel, err := filepath.Rel(dir, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, "../")
}
