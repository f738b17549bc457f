package prepare

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/dockerengine/owned"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
	"github.com/laufwerk/laufwerk/internal/system/files"
	"github.com/laufwerk/laufwerk/internal/system/lock"
	"github.com/laufwerk/laufwerk/internal/system/safefs"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// Where things are in a container of ours.
const (
	readyDir   = "/laufwerk/ready"
	readyFile  = "ready"
	privateDir = "/laufwerk/private" // in memory: what must get into no layer
)

// root is who installs. It has no capabilities.
const root = "0:0"

type purpose string

const (
	toInstall purpose = "install" // the program is installed in it
	toProve   purpose = "prove"   // a new image is tried in it, as a session would use it
)

// ContainerProvider is the provider of the claims of preparations' containers, for images of every kind.
const ContainerProvider = "docker"

// containerSpec is what an intent says of such a container.
type containerSpec struct {
	Purpose   purpose           `json:"purpose"`
	Engine    string            `json:"engine"` // its endpoint: "unix:///…"
	Image     string            `json:"image"`  // id
	User      string            `json:"user"`   // uid:gid of the first process
	UserNS    string            `json:"userns,omitempty"`
	Network   string            `json:"network"`
	Resources targets.Resources `json:"resources,omitzero"`
	Binary    string            `json:"binary"`          // of the first process, on this host
	Stage     string            `json:"stage,omitempty"` // a directory on this host, made and removed with the container
	Nonce     string            `json:"nonce"`
	Volumes   []string          `json:"volumes,omitempty"` // paths at which the image would get volumes
}

// Containers makes and ends the containers of preparations.
type Containers struct {
	Engines dockerengine.Engines
	Now     func() time.Time
}

var _ resource.Manager = Containers{}

func (c Containers) of(in resource.Intent) (containerSpec, owned.Container, error) {
	var s containerSpec
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return s, owned.Container{}, failure.Wrap(err, failure.Internal, "read the intent of a preparation")
	}
	known := func(ctx context.Context) (*dockerengine.Engine, error) {
		return owned.EngineOf(ctx, c.Engines, in, s.Engine)
	}
	return s, owned.Container{Engine: known, Now: c.Now, Image: s.Image}, nil
}

// Create makes the container, which is not started, and its directory.
func (c Containers) Create(ctx context.Context, in resource.Intent) resource.Result {
	return c.make(ctx, in, owned.Container.Create)
}

// Resolve finds out what became of a Create.
func (c Containers) Resolve(ctx context.Context, in resource.Intent) resource.Result {
	return c.make(ctx, in, owned.Container.Resolve)
}

func (c Containers) make(ctx context.Context, in resource.Intent, create func(owned.Container, context.Context, resource.Intent, owned.ContainerSpec) resource.Result) resource.Result {
	s, one, err := c.of(in)
	if err == nil && s.Stage != "" {
		err = files.MkdirAll(s.Stage)
	}
	if err != nil {
		return resource.Result{Outcome: resource.NotDone, Err: err}
	}
	r := create(one, ctx, in, s.want())
	if r.Outcome == resource.NotDone {
		if err := s.clear(ctx); err != nil {
			return resource.Result{Resource: r.Resource, Err: errors.Join(r.Err, err), Evidence: r.Evidence}
		}
	}
	return r
}

// Observe looks at the container. Its directory goes with it: see Delete.
func (c Containers) Observe(ctx context.Context, in resource.Intent) resource.Observation {
	_, one, err := c.of(in)
	if err != nil {
		return resource.Observation{Err: err}
	}
	return one.Observe(ctx, in)
}

// Delete removes the directory and the container. The directory goes first, so that it is gone with the claim whatever becomes
// of the engine's answer.
func (c Containers) Delete(ctx context.Context, in resource.Intent) resource.Result {
	s, one, err := c.of(in)
	if err != nil {
		return resource.Result{Err: err}
	}
	left := s.clear(ctx)
	r := one.Delete(ctx, in)
	r.Err = errors.Join(r.Err, left)
	return r
}

// Lister lists containers of a label.
func (c Containers) Lister() resource.Lister { return c }

// List finds the containers of a store.
func (c Containers) List(ctx context.Context, in resource.Intent) ([]resource.Summary, error) {
	e, err := c.engine(ctx, in)
	if err != nil {
		return nil, err
	}
	return owned.List(ctx, e, in)
}

// ListCommand is how a person sees the containers of every store.
func (Containers) ListCommand() string { return owned.ListCommand }

// DeleteAll removes containers and their directories.
func (c Containers) DeleteAll(ctx context.Context, list []resource.Intent, there []resource.Summary, parallel int) []resource.Deletion {
	e, err := c.engine(ctx, list[0])
	if err != nil {
		return owned.UnreachableResults(len(list), err)
	}
	return owned.DeleteAll(ctx, e, owned.Deletions{
		Intents: list, Listed: there, Parallel: parallel, Now: c.Now,
		Absent: func(ctx context.Context, in resource.Intent, out *resource.Deletion) {
			s, _, err := c.of(in)
			if err == nil {
				err = s.clear(ctx)
			}
			if err != nil {
				out.Result.Err = err // an empty directory is no reason to doubt the container's end
			}
		},
	})
}

// engine is the one that an intent names, or the one that the settings lead to.
func (c Containers) engine(ctx context.Context, in resource.Intent) (*dockerengine.Engine, error) {
	if in.Endpoint == "" {
		return c.Engines.Connect(ctx, "")
	}
	_, one, err := c.of(in)
	if err != nil {
		return nil, err
	}
	return one.Engine(ctx)
}

func (s containerSpec) clear(ctx context.Context) error {
	if s.Stage == "" {
		return nil
	}
	parent, err := safefs.OpenRoot(filepath.Dir(s.Stage))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer parent.Close()
	refused, err := parent.RemoveAll(context.WithoutCancel(ctx), filepath.Base(s.Stage))
	if err == nil && len(refused) > 0 {
		err = failure.New(failure.Retained, "%s could not be removed: %s", refused[0].Path, refused[0].Why)
	}
	return err
}

func (s containerSpec) want() owned.ContainerSpec {
	host := owned.HardenedHostConfig(s.Resources)
	host.NetworkMode, host.UsernsMode = container.NetworkMode(s.Network), container.UsernsMode(s.UserNS)
	host.Mounts = []mount.Mount{owned.Bind(s.Binary, guest.Binary, true)}
	ready := "/tmp/" + readyFile
	if s.Purpose == toProve {
		host.ReadonlyRootfs = true
		host.Tmpfs["/tmp"] = "rw,nosuid,nodev,mode=1777"
	} else {
		ready = path.Join(readyDir, readyFile)
		host.Mounts = append(host.Mounts, owned.Bind(s.Stage, readyDir, false))
		host.Tmpfs[privateDir] = "rw,nosuid,nodev,noexec,size=8m,mode=0700"
	}
	for _, v := range s.Volumes {
		if _, ok := host.Tmpfs[v]; !ok && !strings.HasPrefix(v, "/laufwerk") && !strings.HasPrefix(v, path.Dir(guest.Binary)) {
			host.Tmpfs[v] = "rw,nosuid,nodev,exec,mode=1777"
		}
	}
	return owned.ContainerSpec{Host: host, Config: &container.Config{
		User: s.User, WorkingDir: "/", Entrypoint: []string{guest.Binary}, Cmd: guest.Init(ready, s.Nonce)[1:],
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}}, StopSignal: "SIGKILL",
	}}
}

// inContainer makes and starts a container of an image, uses it, and ends it. It is a claim of no run: whatever ends this
// process, the next preparation or cleanup --all knows of it.
func (p *preparation) inContainer(ctx context.Context, why purpose, from image.InspectResponse, use func(ctx context.Context, container string) error) error {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // never fails
	nonce := hex.EncodeToString(random)
	operation := "prepare/" + string(why) + "/" + nonce
	id := claims.ID("", operation)
	spec, err := p.containerSpec(ctx, why, from, nonce, id)
	if err != nil {
		return err
	}
	rawSpec, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	rawExtra, err := json.Marshal(claimExtra{Lock: p.Cache.LockFile(p.fingerprint)})
	if err != nil {
		return err
	}
	c, err := p.Claims.Allocate(ctx, claims.Request{
		ID: id, Kind: claims.KindPreparation, Provider: ContainerProvider, Operation: operation, Image: from.ID,
		Intent: resource.Intent{Name: owned.Name(id), Endpoint: p.engine.Facts().Identity(), Spec: rawSpec}, Extra: rawExtra,
	})
	if err != nil { // whatever may have come of it is not needed any more
		if _, rerr := p.Claims.Release(context.WithoutCancel(ctx), id); !failure.Is(rerr, failure.NotFound) {
			err = errors.Join(err, rerr)
		}
		return err
	}
	crash.Point("prepare/before-use")
	err = spec.start(ctx, p.engine, c.Intent.Resource)
	if err == nil {
		err = use(ctx, c.Intent.Resource)
	}
	crash.Point("prepare/after-use")
	if _, rerr := p.Claims.Release(context.WithoutCancel(ctx), id); rerr != nil {
		return errors.Join(err, rerr)
	}
	return err
}

// containerSpec says as whom the container of a claim runs, and what it must know of its image.
func (p *preparation) containerSpec(ctx context.Context, why purpose, from image.InspectResponse, nonce, claim string) (containerSpec, error) {
	worker := owned.ContainerUserFor(p.engine.Facts(), p.Cache.User, p.Cache.Group)
	s := containerSpec{
		Purpose: why, Engine: p.engine.Endpoint().Host, Image: from.ID, User: worker.User, UserNS: worker.UserNS, Network: "none",
		Volumes: owned.Volumes(from), Nonce: nonce,
	}
	if why == toInstall {
		s.Stage, s.Resources, s.Network = filepath.Join(p.Cache.Dir, "stage", claim), p.Resources, cmp.Or(p.Network, "bridge")
		if worker.Nobody {
			s.User = root
		}
	}
	var err error
	s.Binary, err = p.Binary(ctx, p.recipe.Platform)
	return s, err
}

// claimExtra is what a claim remembers for sweepers: whose lock says that its preparation lives.
type claimExtra struct {
	Lock string `json:"lock"`
}

// sweepContainers ends the containers of preparations that were killed. One that cannot be ended now stays for cleanup: it is in
// nobody's way.
func (p *preparation) sweepContainers(ctx context.Context) error {
	list, err := p.Claims.List(ctx, claims.Filter{NoRun: true, Kind: claims.KindPreparation, Outstanding: true})
	if err != nil {
		return err
	}
	own := p.Cache.LockFile(p.fingerprint)
	for _, c := range list {
		var x claimExtra
		_ = json.Unmarshal(c.Extra, &x)
		if _, held, err := lock.Query(x.Lock); x.Lock != own && (held || err != nil) {
			continue // its preparation lives
		}
		if _, err := p.Claims.Release(ctx, c.ID); err != nil {
			p.Say("an earlier preparation left something: %v\n%s\n", err, c.CleanupHint())
		}
	}
	return ctx.Err()
}

const startTime = 2 * time.Minute

// start starts a container and waits until its first process runs. Where it has a directory, that proves that the engine sees
// the files of this host: mounted is then what is meant, and not another host's directory of the same name.
func (s containerSpec) start(ctx context.Context, e *dockerengine.Engine, id string) error {
	done, err := e.Start(ctx, id)
	if done == resource.NotDone {
		return failure.Wrap(err, failure.NotReady, "start the container of the preparation")
	}
	ctx, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	for pause := 5 * time.Millisecond; done != resource.Done || s.Stage == ""; pause = min(2*pause, time.Second) {
		runs, err := s.runs(ctx, e, id)
		switch {
		case err != nil:
			return err
		case runs:
			done = resource.Done
			if s.Stage == "" {
				return nil
			}
			continue
		case done == resource.Unknown: // starting twice is starting once
			if done, err = e.Start(ctx, id); done == resource.NotDone {
				return failure.Wrap(err, failure.NotReady, "start the container of the preparation")
			}
		}
		select {
		case <-ctx.Done():
			return failure.New(failure.NotReady, "the container of the preparation does not start at the engine at %s", e.Endpoint().Host)
		case <-time.After(pause):
		}
	}
	var over error
	_, err = guest.AwaitProof(ctx, filepath.Join(s.Stage, readyFile), s.Nonce, guest.Seen, func(ctx context.Context) error {
		_, over = s.runs(ctx, e, id)
		return over
	})
	switch {
	case err == nil || over != nil:
		return over
	case !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled):
		return failure.Wrap(err, failure.Failed, "check whether the container of the preparation runs")
	}
	return failure.New(failure.NotReady, "the engine at %s does not see the files of this host: a file that its container wrote to %s did not appear there", e.Endpoint().Host, s.Stage).
		WithHint("use an engine of this machine that shares %s", failure.Quote(s.Stage))
}

// runs says whether the container runs, and fails where it will not.
func (s containerSpec) runs(ctx context.Context, e *dockerengine.Engine, id string) (bool, error) {
	got, presence, err := e.Inspect(ctx, id)
	switch {
	case presence == resource.Absent:
		return false, failure.New(failure.NotReady, "the container of the preparation is gone: somebody removed it")
	case presence == resource.Unobserved && ctx.Err() == nil:
		return false, err
	case presence == resource.Present && !got.State.Running && got.State.Status != container.StateCreated:
		return false, failure.New(failure.NotReady, "the container of the preparation ended at once, with exit code %s%s: can the image %s run this machine's programs?",
			strconv.Itoa(got.State.ExitCode), strings.TrimRight(" "+got.State.Error, " "), s.Image)
	}
	return presence == resource.Present && got.State.Running, nil
}
