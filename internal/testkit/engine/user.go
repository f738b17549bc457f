package engine

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
)

// AsOrdinaryUser runs tests of this test binary, those that match run and the calling one not, as a user who may use the
// engine and is not root, in a group that the images know. Each of passed has to pass.
func AsOrdinaryUser(t *testing.T, run string, passed ...string) {
	t.Helper()
	endpoint := Endpoint(t)
	testkit.Need(t, "root", os.Getuid() == 0, "it becomes another user")
	setpriv, err := exec.LookPath("setpriv")
	testkit.Need(t, "setpriv", err == nil, "it becomes another user")
	socket, err := os.Stat(strings.TrimPrefix(endpoint, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "user")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for from, to := range map[string]string{"/proc/self/exe": "test", testkit.Binary(t): "laufwerk", testkit.Supervisor(t): "supervisor"} {
		b, err := os.ReadFile(from)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, to), b, 0o755) //nolint:gosec // another user runs it
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const uid, gid = 1234, 20
	tmp := filepath.Join(dir, "tmp")
	for _, err := range []error{os.Mkdir(tmp, 0o700), os.Chown(tmp, uid, gid), os.Chmod(dir, 0o755)} { //nolint:gosec // another user enters it
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(setpriv, "--reuid", strconv.Itoa(uid), "--regid", strconv.Itoa(gid), "--groups", strconv.Itoa(int(socket.Sys().(*syscall.Stat_t).Gid)), "--",
		filepath.Join(dir, "test"), "-test.v", "-test.run", run, "-test.skip", "^"+t.Name()+"$")
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + tmp, "TMPDIR=" + tmp, testkit.BinaryVariable + "=" + filepath.Join(dir, "laufwerk"),
		testkit.SupervisorVariable + "=" + filepath.Join(dir, "supervisor"),
		"LAUFWERK_TEST_DOCKER=" + endpoint, "LAUFWERK_CI=1",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, name := range passed {
		if !bytes.Contains(out, []byte("--- PASS: "+name)) {
			t.Errorf("%s did not pass:\n%s", name, out)
		}
	}
}
