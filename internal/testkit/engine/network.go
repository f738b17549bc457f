package engine

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/network"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// Gateway is this machine's address on the engine's network "bridge": containers there reach what listens on it.
func Gateway(t testing.TB, endpoint string) string {
	t.Helper()
	n, err := Client(t, endpoint).NetworkInspect(context.Background(), "bridge", network.InspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range n.IPAM.Config {
		if ip := net.ParseIP(c.Gateway); ip != nil && ip.To4() != nil {
			return c.Gateway
		}
	}
	t.Fatalf("the network bridge has no gateway: %+v", n.IPAM)
	return ""
}

// Registry is how a container that tests start reaches the npm registry that this machine uses: the registry's address and a
// file of certificates that stands for the proxies on the way ("" if nothing names one). A container that lacks the file
// does not fail: pnpm hangs.
func Registry(t testing.TB) (address, certificates string) {
	t.Helper()
	address = npmConfig(t, "registry")
	for _, file := range []string{os.Getenv("NODE_EXTRA_CA_CERTS"), npmConfig(t, "cafile"), os.Getenv("SSL_CERT_FILE")} {
		if _, err := os.Stat(file); err == nil {
			return address, file
		}
	}
	return address, ""
}

// Packages is a registry on the engine's network "bridge" with the packages of the one that this machine uses. It has the
// pinned Codex already, whose archive of 172 MB an installation would have to get in time otherwise.
func Packages(t testing.TB, endpoint string) *testkit.Registry {
	t.Helper()
	address, certificates := Registry(t)
	r := testkit.NewRegistry(t, Gateway(t, endpoint), address, certificates)
	platform := "linux-" + strings.Replace(runtime.GOARCH, "amd64", "x64", 1)
	for _, version := range []string{codex.Version, codex.Version + "-" + platform} {
		r.Archive("@openai/codex/-/codex-" + version + ".tgz")
	}
	return r
}

func npmConfig(t testing.TB, key string) string {
	t.Helper()
	var problems bytes.Buffer
	cmd := exec.Command("npm", "config", "get", key)
	cmd.Dir, cmd.Stderr = os.TempDir(), &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("npm config get %s: %v\n%s", key, err, problems.String())
	}
	if value := strings.TrimSpace(string(out)); value != "undefined" && value != "null" {
		return value
	}
	return ""
}
