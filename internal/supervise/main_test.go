package supervise

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/laufwerk/laufwerk/internal/system"
)

// workerVariable makes the test binary a worker that starts one command in the directory that it names.
const workerVariable = "SUPERVISE_TEST_WORKER"

// The test binary is its own supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		env := system.FromOS()
		os.Exit(Main(env, env.Args[1:]))
	}
	if dir := os.Getenv(workerVariable); dir != "" {
		os.Exit(worker(dir, os.Args[1]))
	}
	os.Exit(m.Run())
}

func worker(dir, script string) int {
	p, err := Start(context.Background(), LocalLauncher{Executable: system.Executable()}, dir, Spec{
		Argv: []string{"bash", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		MaxOutput: 1 << 20, Mark: Mark("worker", filepath.Base(filepath.Dir(filepath.Dir(dir)))),
	})
	if err == nil {
		_, err = p.Wait(context.Background())
	}
	if err != nil {
		return 1
	}
	return 0
}
