package owned

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// TestDiffers takes what a real engine says of a container as it was wanted, and changes one thing after the other.
func TestDiffers(t *testing.T) {
	endpoint := engine.Endpoint(t)
	cl := engine.Client(t, endpoint)
	i, err := cl.ImageInspect(t.Context(), engine.Busybox)
	if err != nil {
		t.Fatal(err)
	}
	pids := int64(50)
	in := resource.Intent{Owner: "test-differs", Claim: "c1", Name: "laufwerk-differs-" + time.Now().Format("150405.000000"), Run: "r"}
	w := ContainerSpec{
		Config: &container.Config{User: "1000:20", Env: []string{"A=b"}, Entrypoint: []string{"/bin/sleep"}, Cmd: []string{"1"}},
		Host: &container.HostConfig{
			NetworkMode: "bridge", ReadonlyRootfs: true, CapDrop: []string{"ALL"}, SecurityOpt: []string{"no-new-privileges"}, Tmpfs: map[string]string{"/tmp": "rw,mode=1777"},
			RestartPolicy: container.RestartPolicy{Name: container.RestartPolicyDisabled},
			Resources:     container.Resources{Memory: 64 << 20, NanoCPUs: 5e8, PidsLimit: &pids},
			Mounts: []mount.Mount{
				{Type: mount.TypeBind, Source: t.TempDir(), Target: "/work space:odd", ReadOnly: true},
				{Type: mount.TypeBind, Source: t.TempDir(), Target: "/w"}, {Type: mount.TypeTmpfs, Target: "/mem"},
			},
		},
	}
	c := Container{Image: i.ID}
	made, err := cl.ContainerCreate(t.Context(), c.config(in, w), w.Host, nil, nil, in.Name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { engine.Remove(t, endpoint, LabelOwner+"=test-differs") })
	real, err := cl.ContainerInspect(t.Context(), made.ID)
	if err != nil {
		t.Fatal(err)
	}
	if why := difference(real, i.ID, w, in); why != "" {
		t.Fatalf("as it was wanted: %s", why)
	}
	if why := difference(real, "sha256:other", w, in); why == "" {
		t.Error("another image is no difference")
	}
	for name, change := range map[string]func(g *container.InspectResponse){
		"user":              func(g *container.InspectResponse) { g.Config.User = "" },
		"variable":          func(g *container.InspectResponse) { g.Config.Env = nil },
		"entry point":       func(g *container.InspectResponse) { g.Config.Entrypoint = []string{"/bin/sh"} },
		"command":           func(g *container.InspectResponse) { g.Config.Cmd = nil },
		"claim":             func(g *container.InspectResponse) { g.Config.Labels[LabelClaim] = "c2" },
		"network":           func(g *container.InspectResponse) { g.HostConfig.NetworkMode = "host" },
		"memory":            func(g *container.InspectResponse) { g.HostConfig.Memory = 0 },
		"cpus":              func(g *container.InspectResponse) { g.HostConfig.NanoCPUs = 0 },
		"processes":         func(g *container.InspectResponse) { g.HostConfig.PidsLimit = nil },
		"privileged":        func(g *container.InspectResponse) { g.HostConfig.Privileged = true },
		"root":              func(g *container.InspectResponse) { g.HostConfig.ReadonlyRootfs = false },
		"capabilities":      func(g *container.InspectResponse) { g.HostConfig.CapDrop = nil },
		"more capabilities": func(g *container.InspectResponse) { g.HostConfig.CapAdd = []string{"CAP_SYS_ADMIN"} },
		"security":          func(g *container.InspectResponse) { g.HostConfig.SecurityOpt = nil },
		"user namespace":    func(g *container.InspectResponse) { g.HostConfig.UsernsMode = "host" },
		"device":            func(g *container.InspectResponse) { g.HostConfig.Devices = []container.DeviceMapping{{}} },
		"restart":           func(g *container.InspectResponse) { g.HostConfig.RestartPolicy.Name = "always" },
		"its end":           func(g *container.InspectResponse) { g.HostConfig.AutoRemove = true },
		"tmpfs":             func(g *container.InspectResponse) { g.HostConfig.Tmpfs = nil },
		"a writable mount":  func(g *container.InspectResponse) { at(g, "/work space:odd").RW = true },
		"a read-only mount": func(g *container.InspectResponse) { at(g, "/w").RW = false },
		"a mount less":      func(g *container.InspectResponse) { at(g, "/w").Destination = "/elsewhere" },
		"another source":    func(g *container.InspectResponse) { g.HostConfig.Mounts[1].Source = "/etc" },
		"a mount more": func(g *container.InspectResponse) {
			g.Mounts = append(g.Mounts, container.MountPoint{Type: mount.TypeVolume, Destination: "/v"})
		},
		"mounts of the past":  func(g *container.InspectResponse) { g.HostConfig.Binds = []string{"/:/host"} },
		"nothing but its id":  func(g *container.InspectResponse) { g.HostConfig = nil },
		"others' mounts":      func(g *container.InspectResponse) { g.HostConfig.VolumesFrom = []string{"x"} },
		"a read-only request": func(g *container.InspectResponse) { g.HostConfig.Mounts[0].ReadOnly = false },
	} {
		raw, err := json.Marshal(real)
		if err != nil {
			t.Fatal(err)
		}
		var got container.InspectResponse
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatal(err)
		}
		change(&got)
		if why := difference(got, i.ID, w, in); why == "" {
			t.Errorf("%s: no difference", name)
		}
	}
}

func at(g *container.InspectResponse, to string) *container.MountPoint {
	for i := range g.Mounts {
		if g.Mounts[i].Destination == to {
			return &g.Mounts[i]
		}
	}
	return &container.MountPoint{}
}
