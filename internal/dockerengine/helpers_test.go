package dockerengine

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestHelpers(t *testing.T) {
	for config, want := range map[string][]string{
		``:                      nil,
		`{}`:                    nil,
		`{"auths":{"x":{}}}`:    nil,
		`{"credsStore":"nope"}`: {"docker-credential-nope"},
		`{"credsStore":"b","credHelpers":{"x":"a","y":"b"}}`: {"docker-credential-a", "docker-credential-b"},
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "config.json")
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		got, at, err := Finder{Vars: map[string]string{"DOCKER_CONFIG": dir}}.Helpers()
		if err != nil || !slices.Equal(got, want) || at != path {
			t.Errorf("%s: %q in %s, %v", config, got, at, err)
		}
	}
	if got, _, err := (Finder{Home: t.TempDir()}).Helpers(); err != nil || got != nil {
		t.Errorf("without a config: %q, %v", got, err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte("null{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := (Finder{Vars: map[string]string{"DOCKER_CONFIG": dir}}).Helpers(); err == nil {
		t.Error("a broken config is none")
	}
}
