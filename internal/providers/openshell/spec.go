package openshell

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/guest"
	client "github.com/laufwerk/laufwerk/internal/openshell"
	"github.com/laufwerk/laufwerk/internal/openshell/policy"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/providers/sessiondir"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// readyFile is made by the sandbox's main process, in policy.Ops.
const readyFile = "ready"

// bindMounts is the gateway's setting that allows mounts of this host's directories.
const bindMounts = "enable_bind_mounts"

// requestNote is written into the session's directory before a sandbox is requested.
const requestNote = "asked"

type spec struct {
	Dir       string            `json:"dir"`
	Workspace string            `json:"workspace"`
	ReadOnly  bool              `json:"readOnly,omitempty"`
	Mark      string            `json:"mark"`
	Gateway   string            `json:"gateway"` // its alias
	Engine    string            `json:"engine"`  // the identity of the engine that containers are on
	Socket    string            `json:"socket"`  // of that engine
	Image     string            `json:"image"`   // id
	UID       int               `json:"uid"`
	GID       int               `json:"gid"`
	Resources targets.Resources `json:"resources,omitzero"`
	Policy    policy.Policies   `json:"policy"`
	Provider  string            `json:"provider,omitempty"` // at the gateway: it has the credentials
	Binary    string            `json:"binary"`             // of the supervisor, on this host
	Nonce     string            `json:"nonce"`
}

// Owner is the worker: sandboxes run with its ids.
func (*Provider) Owner(context.Context, targets.Definition) (uid, gid int, ok bool, err error) {
	return 0, 0, false, nil
}

// Plan looks the image up and describes the sandbox.
func (p *Provider) Plan(ctx context.Context, def targets.Definition, need providers.Need, s providers.SessionSpec) (providers.Plan, []failure.Condition, error) {
	f, missing := p.find(ctx, def, need)
	if len(missing) > 0 {
		return providers.Plan{}, missing, nil
	}
	nonce := make([]byte, 16)
	_, _ = rand.Read(nonce) // never fails
	raw, err := json.Marshal(spec{
		Dir: s.Dir, Workspace: s.Workspace, ReadOnly: s.ReadOnly, Mark: s.Mark, Gateway: f.config.Gateway,
		Engine: f.engine.Facts().Identity(), Socket: f.engine.Endpoint().Host, Image: f.image.ID, UID: p.c.UID, GID: p.c.GID,
		Resources: f.config.Resources, Policy: f.config.Policy, Provider: f.config.Credentials.Provider,
		Binary: p.c.Executable, Nonce: hex.EncodeToString(nonce),
	})
	return providers.Plan{Spec: raw, Image: f.image.ID}, nil, err
}

func readSpec(in resource.Intent) (s spec, err error) {
	if err := json.Unmarshal(in.Spec, &s); err != nil {
		return s, fmt.Errorf("the intent's spec: %w", err)
	}
	return s, nil
}

func (p *Provider) directory(in resource.Intent, s spec) sessiondir.Session {
	return sessiondir.Session{
		Dir: s.Dir, Now: p.c.Now, What: "sandbox " + client.Name(in.Claim),
		ID: sessiondir.Identity{Claim: in.Claim, Name: in.Name, Owner: in.Owner, Mark: s.Mark},
	}
}

type mount struct {
	source, target string
	readOnly       bool
}

func (s spec) mounts() []mount {
	return []mount{
		{s.Workspace, policy.Work, s.ReadOnly},
		{filepath.Join(s.Dir, sessiondir.Home), policy.Home, false},
		{filepath.Join(s.Dir, sessiondir.Ops), policy.Ops, false},
		{s.Binary, guest.Binary, true},
	}
}

// nanoCPUs is the limit in billionths of a core, 0 is none.
func (s spec) nanoCPUs() int64 { return int64(math.Round(s.Resources.CPUs*1000)) * 1_000_000 }

func (s spec) policy() *wire.SandboxPolicy {
	return policy.Sandbox(s.Policy, !s.ReadOnly, s.UID, s.GID)
}

// request is the request for the sandbox. Containers get the template's labels; the gateway's list has those of the request.
func (s spec) request(in resource.Intent) (*wire.CreateSandboxRequest, error) {
	labels := client.Labels(in.Owner, in.Claim, in.Run)
	var mounts []any
	for _, m := range s.mounts() {
		mounts = append(mounts, map[string]any{"type": "bind", "source": m.source, "target": m.target, "read_only": m.readOnly})
	}
	driver, err := structpb.NewStruct(map[string]any{"docker": map[string]any{"mounts": mounts}})
	if err != nil {
		return nil, err
	}
	template := &wire.SandboxTemplate{Image: s.Image, Labels: labels, DriverConfig: driver}
	limits := map[string]any{} // strings: a number is refused, with a word about something else
	if s.Resources.CPUs > 0 {
		limits["cpu"] = strconv.FormatInt(s.nanoCPUs()/1_000_000, 10) + "m"
	}
	if s.Resources.MemoryBytes > 0 {
		limits["memory"] = strconv.FormatInt(s.Resources.MemoryBytes, 10)
	}
	if len(limits) > 0 {
		if template.Resources, err = structpb.NewStruct(map[string]any{"limits": limits}); err != nil {
			return nil, err
		}
	}
	out := &wire.SandboxSpec{Template: template, Policy: s.policy(), Command: guest.MainProcess(policy.Ops+"/"+readyFile, s.Nonce)}
	if s.Provider != "" {
		out.Providers = []string{s.Provider}
	}
	return &wire.CreateSandboxRequest{Name: client.Name(in.Claim), Labels: labels, Spec: out, Workspace: client.Workspace}, nil
}
