package docker

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/laufwerk/laufwerk/internal/testkit"
	"github.com/laufwerk/laufwerk/internal/testkit/engine"
)

// All of this is the same for a user who may use the engine and is not root, in a group that the images know.
func TestAsAnOrdinaryUser(t *testing.T) {
	endpoint := engine.Endpoint(t)
	testkit.Need(t, "root", os.Getuid() == 0, "it becomes another user")
	setpriv, err := exec.LookPath("setpriv")
	testkit.Need(t, "setpriv", err == nil, "it becomes another user")
	info, err := os.Stat(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for from, to := range map[string]string{"/proc/self/exe": "test", testkit.Binary(t): "laufwerk"} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	tmp := filepath.Join(dir, "tmp")
	for _, step := range []error{os.Mkdir(tmp, 0o700), os.Chown(tmp, 1234, 20), os.Chmod(dir, 0o755)} {
		if step != nil {
			t.Fatal(step)
		}
	}
	group := strconv.Itoa(int(info.Sys().(*syscall.Stat_t).Gid))
	cmd := exec.Command(setpriv, "--reuid", "1234", "--regid", "20", "--groups", group, "--", filepath.Join(dir, "test"), "-test.v", "-test.skip", "^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, testkit.BinaryVariable + "=" + filepath.Join(dir, "laufwerk"),
		"LAUFWERK_TEST_DOCKER=" + endpoint, "LAUFWERK_CI=1",
	}
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS: TestLimitsAreEnforcedInside")) {
		t.Errorf("%v\n%s", err, out)
	}
}
