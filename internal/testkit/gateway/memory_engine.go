package gateway

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	dockermount "github.com/docker/docker/api/types/mount"

	"github.com/laufwerk/laufwerk/internal/testkit"
)

// Engine is the endpoint of the Docker engine whose containers the sandboxes are, as unix:///path. Of Memory it is a small one
// that can be asked who it is, what containers and images there are, and to kill and remove containers.
func (g *Gateway) Engine() string { return g.back.engine() }

func (m *memory) engine() string { return "unix://" + m.socket }

func (m *memory) serve(t testkit.T) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "gw") // not the test's: the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	id := "MEMO:" + strings.ToUpper(random(8))
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("HEAD /_ping", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	mux.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) {
		say(w, http.StatusOK, map[string]any{
			"ID": id, "DockerRootDir": "/var/lib/docker", "OSType": "linux", "Architecture": "x86_64", "ServerVersion": m.version(), "NCPU": 8,
			"MemoryLimit": true, "SwapLimit": true, "PidsLimit": true, "CpuCfsPeriod": true, "CpuCfsQuota": true, "CgroupVersion": "2",
		})
	})
	mux.HandleFunc("GET /containers/json", m.listed)
	mux.HandleFunc("GET /containers/{id}/json", func(w http.ResponseWriter, r *http.Request) {
		if c := m.found(w, r); c != nil {
			say(w, http.StatusOK, c.inspected())
		}
	})
	mux.HandleFunc("DELETE /containers/{id}", func(w http.ResponseWriter, r *http.Request) {
		if c := m.found(w, r); c != nil {
			_, _ = m.remove(c.SandboxID)
			w.WriteHeader(http.StatusNoContent)
		}
	})
	mux.HandleFunc("POST /containers/{id}/kill", func(w http.ResponseWriter, r *http.Request) {
		c := m.found(w, r)
		switch {
		case c == nil:
		case c.State != running:
			say(w, http.StatusConflict, map[string]string{"message": "Container " + c.ID + " is not running"})
		default:
			_ = m.halt(c.SandboxID)
			w.WriteHeader(http.StatusNoContent)
		}
	})
	mux.HandleFunc("POST /containers/{id}/wait", func(w http.ResponseWriter, r *http.Request) {
		if c := m.found(w, r); c != nil {
			say(w, http.StatusOK, map[string]int{"StatusCode": c.Code}) // none is in the middle of its end
		}
	})
	mux.HandleFunc("GET /images/{ref...}", func(w http.ResponseWriter, r *http.Request) {
		ref := strings.TrimSuffix(r.PathValue("ref"), "/json")
		if m.images != nil && !m.has(ref) {
			say(w, http.StatusNotFound, map[string]string{"message": "No such image: " + ref})
			return
		}
		say(w, http.StatusOK, map[string]any{"Id": imageID(ref), "RepoTags": []string{ref}, "Config": map[string]any{"WorkingDir": root}})
	})
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if version, rest, ok := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/"); ok && strings.HasPrefix(version, "v1.") {
			r.URL.Path = "/" + rest
		}
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Ostype", "linux")
		mux.ServeHTTP(w, r)
	}))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	return socket
}

func say(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (m *memory) found(w http.ResponseWriter, r *http.Request) *Container {
	asked := r.PathValue("id")
	for _, c := range m.list() {
		if c.ID == asked || c.Name == asked {
			return &c
		}
	}
	say(w, http.StatusNotFound, map[string]string{"message": "No such container: " + asked})
	return nil
}

func (m *memory) listed(w http.ResponseWriter, r *http.Request) {
	wanted, err := filters.FromJSON(r.URL.Query().Get("filters"))
	if err != nil {
		say(w, http.StatusBadRequest, map[string]string{"message": err.Error()})
		return
	}
	all, _ := strconv.ParseBool(r.URL.Query().Get("all"))
	out := []container.Summary{}
	for _, c := range m.list() {
		if wanted.MatchKVList("label", c.Labels) && (all || c.State == running) {
			out = append(out, container.Summary{
				ID: c.ID, Names: []string{"/" + c.Name}, Image: c.Image, ImageID: imageID(c.Image), Labels: c.Labels, State: c.State, Mounts: c.points(), Created: c.Created.Unix(),
			})
		}
	}
	say(w, http.StatusOK, out)
}

func (c Container) points() []container.MountPoint {
	var out []container.MountPoint
	for _, m := range c.Mounts {
		out = append(out, container.MountPoint{Type: dockermount.TypeBind, Source: m.Source, Destination: m.Target, RW: !m.ReadOnly})
	}
	return out
}

func (c Container) inspected() container.InspectResponse {
	pids := maxPids
	host := &container.HostConfig{Resources: container.Resources{NanoCPUs: c.NanoCPUs, Memory: c.Memory, MemorySwap: 2 * c.Memory, PidsLimit: &pids}}
	for _, m := range c.Mounts {
		host.Mounts = append(host.Mounts, dockermount.Mount{Type: dockermount.TypeBind, Source: m.Source, Target: m.Target, ReadOnly: m.ReadOnly})
	}
	return container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{
			ID: c.ID, Name: "/" + c.Name, Image: imageID(c.Image), Created: c.Created.UTC().Format(time.RFC3339Nano), HostConfig: host,
			State: &container.State{Status: c.State, Running: c.State == running, ExitCode: c.Code},
		},
		Mounts: c.points(), Config: &container.Config{Image: c.Image, User: "0", Labels: c.Labels, WorkingDir: root},
	}
}

// maxPids is what the gateway lets a sandbox have.
const maxPids int64 = 2048
