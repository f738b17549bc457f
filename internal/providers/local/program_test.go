package local

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/agent"
	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/agent/command"
	"github.com/laufwerk/laufwerk/internal/providers"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

func TestCodexIsReadyWithProgramAndLogin(t *testing.T) {
	home := t.TempDir()
	host := map[string]string{"HOME": home, "PATH": os.Getenv("PATH")}
	state := t.TempDir()
	p := New("/proc/self/exe", host, time.Now).WithPrograms(agent.Programs{codex.New(), command.New(host)}, state)
	def, err := p.Validate(json.RawMessage(`{"credentials":"codex-subscription"}`))
	if err != nil {
		t.Fatal(err)
	}
	ids := func(need providers.Need) (out []string) {
		for _, c := range p.Ready(context.Background(), def, need) {
			out = append(out, c.ID)
			if c.Hint == "" {
				t.Errorf("%s does not say what to type: %s", c.ID, c.Message)
			}
		}
		return out
	}
	if got := ids(providers.Need{Program: "codex"}); !slices.Equal(got, []string{"local.codex.program", "local.codex.login"}) {
		t.Errorf("missing %v", got)
	}
	if got := ids(providers.Need{Program: "command"}); got != nil {
		t.Errorf("a program of one's own needs %v", got)
	}
	content, _ := testkit.CodexLogin("x", time.Now().Add(time.Hour))
	if err := os.Mkdir(filepath.Join(home, ".codex"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, ".codex/auth.json"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	receipt, err := json.Marshal(agent.Receipt{Format: agent.ReceiptFormat, Program: "codex", Version: "1.2.3", Path: "/proc/self/exe", Recipe: agent.OwnBinary})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(agent.Folder(state, "codex"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(agent.ReceiptPath(state, "codex"), receipt, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := ids(providers.Need{Program: "codex"}); got != nil {
		t.Errorf("still missing %v", got)
	}
	if got := def.Credentials(); !slices.Equal(got, []string{"codex-subscription"}) {
		t.Errorf("credentials %v", got)
	}
}

// What is put into a home replaces whatever the agent has put there, and follows nothing.
func TestPlacingIntoAHomeThatTheAgentWrote(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	target := filepath.Join(outside, "file")
	for _, err := range []error{
		os.MkdirAll(filepath.Join(dir, "home/codex"), 0o700),
		os.WriteFile(target, []byte("mine"), 0o600),
		os.Symlink(target, filepath.Join(dir, "home/codex/auth.json")),
		os.Symlink(target, filepath.Join(dir, "home/codex/.placing-auth.json")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	s := &sandbox{spec: spec{Dir: dir}}
	if err := s.PutFile(context.Background(), "codex", agent.File{Path: "auth.json", Content: []byte("new"), Mode: 0o600}); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(target); string(b) != "mine" {
		t.Errorf("a link was followed: %q", b)
	}
	placed := filepath.Join(dir, "home/codex/auth.json")
	info, err := os.Lstat(placed)
	if err != nil || info.Mode() != 0o600 {
		t.Fatalf("%v, %v", info, err)
	}
	if b, _ := os.ReadFile(placed); string(b) != "new" {
		t.Errorf("placed %q", b)
	}
	if err := os.RemoveAll(filepath.Join(dir, "home/codex")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(dir, "home/codex")); err != nil {
		t.Fatal(err)
	}
	if err := s.PutFile(context.Background(), "codex", agent.File{Path: "auth.json", Content: []byte("new"), Mode: 0o600}); err == nil {
		t.Error("a home that is a link was followed")
	}
	for _, path := range []string{"../x", "/x", "", "a/../../x"} {
		if err := s.PutFile(context.Background(), "codex", agent.File{Path: path, Mode: 0o600}); err == nil {
			t.Errorf("%q was taken", path)
		}
	}
}

func TestSecretsOfASession(t *testing.T) {
	s := &sandbox{provider: New("", nil, time.Now), own: []string{"API_TOKEN=abc", "Db_Password=def", "PLAIN=ghi"}}
	if got := s.Secrets(); !slices.Equal(got, []string{"abc", "def"}) {
		t.Errorf("%v", got)
	}
}
