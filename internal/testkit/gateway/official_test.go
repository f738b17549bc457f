package gateway

import (
	"os"
	"os/exec"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// official is a life of a sandbox as the official client's users write it, from a registration folder; it ends with an error
// where anything is not as that client takes it.
const official = `
import sys, grpc
from google.protobuf import json_format, struct_pb2
from openshell import SandboxClient
from openshell._proto import datamodel_pb2, openshell_pb2, sandbox_pb2

image, source = sys.argv[1:]

def refused(code, call):
    try:
        call()
    except grpc.RpcError as e:
        assert e.code() == code, (e.code(), e.details())
        return e.details()
    raise AssertionError("nothing was refused")

with SandboxClient.from_active_cluster(cluster="here") as client:
    health = client.health()
    assert health.status == openshell_pb2.SERVICE_STATUS_HEALTHY and health.version == "0.0.116", health
    info = client._stub.GetGatewayInfo(openshell_pb2.GetGatewayInfoRequest())
    assert [d.name for d in info.compute_drivers] == ["docker"], info

    profile = client._stub.GetProviderProfile(openshell_pb2.GetProviderProfileRequest(id="codex", workspace="default")).profile
    assert profile.source == "builtin" and [c.env_vars[0] for c in profile.credentials if c.required] == [
        "CODEX_AUTH_ACCESS_TOKEN", "CODEX_AUTH_REFRESH_TOKEN", "CODEX_AUTH_ACCOUNT_ID"], profile
    profile.id = "mine"
    profile.binaries.add(path="/sandbox/**")
    imports = openshell_pb2.ImportProviderProfilesRequest(workspace="default", profiles=[openshell_pb2.ProviderProfileImportItem(profile=profile)])
    assert client._stub.ImportProviderProfiles(imports).imported
    again = client._stub.ImportProviderProfiles(imports)
    assert not again.imported and "already exists" in again.diagnostics[0].message, again
    made = client._stub.CreateProvider(openshell_pb2.CreateProviderRequest(workspace="default", provider=datamodel_pb2.Provider(
        metadata=datamodel_pb2.ObjectMeta(name="login"), type="mine", credentials={"CODEX_AUTH_ACCESS_TOKEN": "secret"}))).provider
    assert made.credentials["CODEX_AUTH_ACCESS_TOKEN"] == "REDACTED", made

    config = struct_pb2.Struct()
    json_format.ParseDict({"docker": {"mounts": [{"type": "bind", "source": source, "target": "/sandbox/work", "read_only": False}]}}, config)
    spec = openshell_pb2.SandboxSpec(
        template=openshell_pb2.SandboxTemplate(image=image, driver_config=config), command=["/bin/sleep", "infinity"], providers=["login"],
        policy=sandbox_pb2.SandboxPolicy(
            version=1, process=sandbox_pb2.ProcessPolicy(run_as_user="1234", run_as_group="1235"),
            filesystem=sandbox_pb2.FilesystemPolicy(read_only=["/usr", "/lib", "/lib64", "/bin", "/etc", "/proc"], read_write=["/tmp", "/dev/null", "/sandbox/work"]),
            landlock=sandbox_pb2.LandlockPolicy(compatibility="hard_requirement")))
    made = client.create(workspace="default", spec=spec, name="one", labels={"of": "official"})
    assert made.phase == openshell_pb2.SANDBOX_PHASE_PROVISIONING, made
    refused(grpc.StatusCode.ALREADY_EXISTS, lambda: client.create(workspace="default", spec=spec, name="one"))
    ready = client.wait_ready("one", workspace="default", timeout_seconds=60)
    assert ready.id == made.id and ready.labels["of"] == "official", ready
    result = client.exec(ready.id, ["sh", "-c", "cat; printf '%s' \"$K\" >&2; exit 7"], stdin=b"hello", env={"K": "a 'b'"}, workdir="/tmp")
    assert (result.exit_code, result.stdout, result.stderr) == (7, "hello", "a 'b'"), result
    config = client._stub.GetSandboxConfig(sandbox_pb2.GetSandboxConfigRequest(sandbox_id=ready.id))
    assert config.policy_source == sandbox_pb2.POLICY_SOURCE_SANDBOX and config.policy.process.run_as_user == "1234", config
    assert [s.name for s in client.list(workspace="default", label_selector="of=official")] == ["one"]
    assert client.list(workspace="default", label_selector="of=others") == []
    assert refused(grpc.StatusCode.NOT_FOUND, lambda: client.get("one", workspace="nope")) == "workspace 'nope' not found"
    assert client.delete("one", workspace="default")
    client.wait_deleted("one", workspace="default", timeout_seconds=60)
    assert refused(grpc.StatusCode.NOT_FOUND, lambda: client.delete("one", workspace="default")) == "sandbox not found"
    refused(grpc.StatusCode.OUT_OF_RANGE, lambda: client.exec(ready.id, ["cat"], stdin=b"x" * 1048576))
print("done")
`

// Both gateways are one to the official client.
func TestTheOfficialClient(t *testing.T) {
	python := testkit.OpenShellPython(t)
	run := func(t *testing.T, g *Gateway, source string) {
		t.Helper()
		home := t.TempDir()
		g.Register(home, "here")
		cmd := exec.CommandContext(bounded(t), python, "-c", official, engine.Base, source)
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "NO_PROXY=127.0.0.1"}
		if out, err := cmd.CombinedOutput(); err != nil || string(out) != "done\n" {
			t.Errorf("%v\n%s", err, out)
		}
	}
	t.Run("memory", func(t *testing.T) {
		run(t, Memory(t, Options{Run: func(p Process) int {
			if p.Main {
				<-p.Killed
			}
			_, _ = p.Stdout.Write(p.Stdin)
			_, _ = p.Stderr.Write([]byte(p.Env[len(p.Env)-1][len("K="):]))
			return 7
		}}), t.TempDir())
	})
	t.Run("containers", func(t *testing.T) { run(t, Containers(t, Options{}), shared(t)) })
}
