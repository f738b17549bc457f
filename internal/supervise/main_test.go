package supervise

import (
	"os"
	"testing"

	"github.com/laufwerk/laufwerk/internal/system"
)

// The test binary is its own supervisor.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		env := system.FromOS()
		os.Exit(Main(env, env.Args[1:]))
	}
	os.Exit(m.Run())
}
