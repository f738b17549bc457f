package settings

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/system"
)

// surroundings is an Env whose settings file holds text; "" is no file.
func surroundings(t *testing.T, text string, vars map[string]string) *system.Env {
	t.Helper()
	home := t.TempDir()
	if text != "" {
		dir := filepath.Join(home, ".config", "laufwerk")
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]string{"HOME": home}
	for k, v := range vars {
		all[k] = v
	}
	return &system.Env{Vars: all, Dir: home}
}

func TestTheNearestLayerWinsForEverySetting(t *testing.T) {
	samples := map[string][4]string{ // default is the table's; then file (TOML), variable, flag
		Home:              {"", `"/file"`, "/var", "/flag"},
		Color:             {"", `"never"`, "always", "auto"},
		Debug:             {"", `true`, "false", "true"},
		ScriptMemory:      {"", `"64MiB"`, "65MiB", "1GiB"},
		ScriptConfigTime:  {"", `"1s"`, "3s", "4s"},
		ScriptStepTime:    {"", `"1s"`, "3s", "4s"},
		WriteBackMaxFiles: {"", `1`, "2", "3"},
		WriteBackMaxBytes: {"", `1`, "2", "3"},
		DockerHost:        {"", `"unix:///file"`, "unix:///variable", "unix:///flag"},
	}
	for _, row := range Table() {
		sample, ok := samples[row.Name]
		if !ok {
			t.Fatalf("no samples for %s", row.Name)
		}
		t.Run(row.Name, func(t *testing.T) {
			table, key, dotted := strings.Cut(row.Name, ".")
			text := row.Name + " = " + sample[1]
			if dotted {
				text = "[" + table + "]\n" + key + " = " + sample[1]
			}
			for _, c := range []struct {
				name, file string
				vars       map[string]string
				sets       []string
				want       string
				origin     string
			}{
				{"default", "", nil, nil, row.Default, "default"},
				{"file", text, nil, nil, strings.Trim(sample[1], `"`), "config.toml"},
				{"variable over file", text, map[string]string{row.Env(): sample[2]}, nil, sample[2], row.Env()},
				{"flag over all", text, map[string]string{row.Env(): sample[2]}, []string{row.Name + "=" + sample[3]}, sample[3], "--set"},
				{"case of a name does not count", "", nil, []string{strings.ToUpper(row.Name) + "=" + sample[3]}, sample[3], "--set"},
			} {
				s, err := Resolve(surroundings(t, c.file, c.vars), c.sets)
				if err != nil {
					t.Fatalf("%s: %v", c.name, err)
				}
				v := s.values[row.Name]
				if v.Text != c.want || !strings.HasSuffix(v.Origin, c.origin) {
					t.Errorf("%s: %q from %q, want %q from %q", c.name, v.Text, v.Origin, c.want, c.origin)
				}
			}
		})
	}
}

func TestValuesHaveTheirTypes(t *testing.T) {
	env := surroundings(t, "", map[string]string{"LAUFWERK_SCRIPT_MEMORY": "65536KiB", "LAUFWERK_SCRIPT_STEP_TIME": "1m30s", "LAUFWERK_HOME": "~/x/../here"})
	s, err := Resolve(env, []string{"writeback.maxBytes=3kB", "debug=true"})
	if err != nil {
		t.Fatal(err)
	}
	home, err := s.Home()
	if err != nil || home != filepath.Join(env.Home(), "here") {
		t.Errorf("home is %q, %v", home, err)
	}
	if s.Bytes(ScriptMemory) != 64<<20 || s.Bytes(WriteBackMaxBytes) != 3000 || s.Time(ScriptStepTime) != 90*time.Second || s.Count(WriteBackMaxFiles) != 10000 || !s.Bool(Debug) {
		t.Errorf("%+v", s.Values())
	}
}

func TestMistakesNameSettingValueOriginAndWhatWasExpected(t *testing.T) {
	for _, c := range []struct {
		name, file string
		vars       map[string]string
		sets       []string
		kind       failure.Kind
		words      []string
	}{
		{"a bad value of a variable", "", map[string]string{"LAUFWERK_SCRIPT_MEMORY": "much"}, nil, failure.SettingsInvalid, []string{"script.memory", "much", "LAUFWERK_SCRIPT_MEMORY", "64MiB"}},
		{"an empty variable", "", map[string]string{"LAUFWERK_HOME": ""}, nil, failure.SettingsInvalid, []string{"home", `""`, "absolute"}},
		{"a relative home", "", map[string]string{"LAUFWERK_HOME": "here"}, nil, failure.SettingsInvalid, []string{"here", "absolute"}},
		{"a bad value in the file", "[script]\nstepTime = \"-1s\"", nil, nil, failure.SettingsInvalid, []string{"script.stepTime", "-1s", "config.toml", "2s"}},
		{"a bad type in the file", "[writeback]\nmaxFiles = [1]", nil, nil, failure.SettingsInvalid, []string{"writeback.maxFiles", "[1]", "whole number"}},
		{"a fraction", "[writeback]\nmaxFiles = 1.5", nil, nil, failure.SettingsInvalid, []string{"1.5"}},
		{"zero", "", nil, []string{"writeback.maxFiles=0"}, failure.SettingsInvalid, []string{"--set", "at least 1"}},
		{"too little memory", "", nil, []string{"script.memory=1MiB"}, failure.SettingsInvalid, []string{"at least 64MiB"}},
		{"more than 64 bits", "", nil, []string{"script.memory=9000000000TiB"}, failure.SettingsInvalid, []string{"9000000000TiB"}},
		{"an unknown choice", "", nil, []string{"color=blue"}, failure.SettingsInvalid, []string{"auto, always, never"}},
		{"an unknown key in the file", "[script]\nmemroy = 1", nil, nil, failure.SettingsInvalid, []string{"script.memroy", "config.toml", "did you mean", "script.memory"}},
		{"a table where a value belongs", "[home]\nx = 1", nil, nil, failure.SettingsInvalid, []string{"home.x"}},
		{"a value where a table belongs", "script = 1", nil, nil, failure.SettingsInvalid, []string{`"script"`}},
		{"no TOML", "# mine\nhome = [", nil, nil, failure.SettingsInvalid, []string{"config.toml: line 2, column ", "toml: "}},
		{"an unknown name", "", nil, []string{"hom=1"}, failure.Usage, []string{"hom", "did you mean", "home"}},
		{"a name far from all", "", nil, []string{"zzzzzz=1"}, failure.Usage, []string{"the settings are"}},
		{"no value", "", nil, []string{"home"}, failure.Usage, []string{"no value"}},
		{"a named file that is not there", "", map[string]string{FileEnv: "nosuch.toml"}, nil, failure.SettingsInvalid, []string{"nosuch.toml", "no such file"}},
		{"a directory as file", "", map[string]string{FileEnv: "/"}, nil, failure.SettingsInvalid, []string{"not a file"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Resolve(surroundings(t, c.file, c.vars), c.sets)
			f := failure.As(err)
			if f == nil || f.Kind != c.kind || f.Hint == "" {
				t.Fatalf("%#v, want %s with a hint", err, c.kind)
			}
			for _, w := range c.words {
				if !strings.Contains(f.Error()+" "+f.Hint, w) {
					t.Errorf("%q (%q) does not say %q", f.Error(), f.Hint, w)
				}
			}
		})
	}
}

func TestTheSettingsFileMayBeNamed(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "laufwerk"), 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "laufwerk", "config.toml")
	if err := os.WriteFile(path, []byte(`color = "never"`), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, vars := range map[string]map[string]string{"XDG_CONFIG_HOME": {"XDG_CONFIG_HOME": dir}, FileEnv: {FileEnv: path}} {
		s, err := Resolve(surroundings(t, `color = "always"`, vars), nil)
		if err != nil || s.Text(Color) != "never" || s.File() != path {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
	s, err := Resolve(surroundings(t, `color = "always"`, map[string]string{"XDG_CONFIG_HOME": "relative"}), nil)
	if err != nil || s.Text(Color) != "always" {
		t.Errorf("a relative XDG_CONFIG_HOME is to be ignored: %v %v", s, err)
	}
}
