package script

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

// The test binary is its own child.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == Argument {
		os.Exit(Main(nil, os.Stdin, os.Stdout, testRules{}))
	}
	goleak.VerifyTestMain(m)
}

func testRunner(t testing.TB) *Runner {
	return &Runner{
		Executable: system.Executable(),
		Log:        func(level, text string) { t.Logf("console.%s: %s", level, text) },
	}
}

// testRules are small rules of the same shape as the providers'.
type testRules struct{}

func (testRules) Validate(subject string, value json.RawMessage) (json.RawMessage, error) {
	var options map[string]json.RawMessage
	if err := json.Unmarshal(value, &options); err != nil {
		return nil, err
	}
	switch subject {
	case "target/local":
		for name := range options {
			if name != "id" && name != "env" {
				return nil, failure.New(failure.Usage, "%s: createLocalExecution has no such option", name).WithPaths(name)
			}
		}
		id := "local"
		if raw, ok := options["id"]; ok {
			if err := json.Unmarshal(raw, &id); err != nil {
				return nil, failure.New(failure.Usage, "id: expected a string, got %s", raw).WithPaths("id")
			}
		}
		sum := sha256.Sum256(value)
		return json.Marshal(map[string]any{"kind": "local", "id": id, "options": options, "fingerprint": hex.EncodeToString(sum[:])})
	case "target/docker", "target/openshell":
		kind := strings.TrimPrefix(subject, "target/")
		return json.Marshal(map[string]any{"kind": kind, "id": kind, "options": options, "fingerprint": "f"})
	case "harness/command", "project":
		return value, nil
	case "agent":
		if _, ok := options["id"]; !ok {
			options["id"] = json.RawMessage(`"agent"`)
		}
		return json.Marshal(options)
	default:
		return nil, failure.New(failure.Unsupported, "%s is not part of this build", subject)
	}
}

// project writes files below a new root; content begins after the first newline.
func project(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(strings.TrimPrefix(content, "\n")), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}
