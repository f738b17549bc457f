package imagecache

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/failure"
)

const (
	baseID  = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	imageID = "sha256:bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

// dockerCache and openshellCache are caches of the kinds of images that their providers have.
func dockerCache(dir string) Cache {
	return Kind{Name: "docker", Bootstrap: "/opt/laufwerk/.harness-bootstrap"}.Cache(dir, NewProgram(codex.New()))
}

func openshellCache(dir string) Cache {
	return Kind{Name: "openshell", Bootstrap: "/sandbox/.harness-bootstrap", Layout: Layout{
		Workdir: "/sandbox", Directories: []string{"/opt", "/sandbox/home", "/sandbox/ops", "/sandbox/work"},
		Paths: []string{"/bin", "/etc", "/lib", "/lib64", "/sbin", "/tmp", "/usr"}, Tools: []string{"ip"}, Volumeless: true,
	}}.Cache(dir, NewProgram(codex.New()))
}

// TestFingerprint changes every part of a recipe, also one that is added to it later.
func TestFingerprint(t *testing.T) {
	recipe := openshellCache(t.TempDir()).Recipe(baseID, "linux/amd64") // the one with more to it
	seen := map[string]string{recipe.Fingerprint(): "nothing"}
	differs := func(name string) {
		f := recipe.Fingerprint()
		if other, ok := seen[f]; ok {
			t.Errorf("%s makes no difference to %s", name, other)
		}
		seen[f] = name
	}
	v := reflect.ValueOf(&recipe).Elem()
	for _, part := range []reflect.Value{v, reflect.ValueOf(&recipe.bootstrap).Elem()} {
		for i := range part.NumField() {
			if name := part.Type().Field(i).Name; name != "bootstrap" { // which is the second part
				changeIn(t, name, part.Field(i), differs)
			}
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d changes: %v", len(seen), seen)
	}
	if recipe.Fingerprint() != openshellCache("/elsewhere").Recipe(baseID, "linux/amd64").Fingerprint() {
		t.Error("where the cache is makes a difference")
	}
}

// changeIn changes every value below v, one at a time.
func changeIn(t *testing.T, name string, v reflect.Value, check func(name string)) {
	t.Helper()
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			changeIn(t, name+"."+v.Type().Field(i).Name, v.Field(i), check)
		}
	case reflect.Slice:
		for i := range v.Len() {
			changeIn(t, name+"[]", v.Index(i), check)
		}
	case reflect.String:
		old := v.String()
		v.SetString(old + "x")
		check(name)
		v.SetString(old)
	case reflect.Bool:
		v.SetBool(!v.Bool())
		check(name)
		v.SetBool(!v.Bool())
	case reflect.Int:
		old := v.Int()
		v.SetInt(old + 1)
		check(name)
		v.SetInt(old)
	case reflect.Uint32:
		old := v.Uint()
		v.SetUint(old + 1)
		check(name)
		v.SetUint(old)
	default:
		t.Fatalf("%s is a %s", name, v.Kind())
	}
}

func TestContentsAndModesOfFilesCount(t *testing.T) {
	fingerprint := func(change func(p *Program)) string {
		c := dockerCache("/x")
		c.Program.Files = append([]File{}, c.Program.Files...)
		change(&c.Program)
		return c.Recipe(baseID, "linux/amd64").Fingerprint()
	}
	same := fingerprint(func(*Program) {})
	if again := fingerprint(func(*Program) {}); again != same {
		t.Errorf("%s and %s", same, again)
	}
	for name, change := range map[string]func(p *Program){
		"contents": func(p *Program) { p.Files[0].Data = append([]byte(" "), p.Files[0].Data...) },
		"mode":     func(p *Program) { p.Files[0].Mode = 0o755 },
		"fewer":    func(p *Program) { p.Files = p.Files[1:] },
		"install":  func(p *Program) { p.Install = append(p.Install, "--x") },
	} {
		if fingerprint(change) == same {
			t.Errorf("%s makes no difference", name)
		}
	}
}

func TestLoad(t *testing.T) {
	c := dockerCache(t.TempDir())
	c.User, c.Group = 1000, 20
	good := c.NewReceipt(imageID, c.Recipe(baseID, "linux/amd64"), Base{Name: "node:22", ID: baseID}, "an engine", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	path := filepath.Join(c.Dir, "receipt.json")
	for name, tt := range map[string]struct {
		change func(r *Receipt)
		raw    string
		base   string
		says   string
	}{
		"good":                  {change: func(*Receipt) {}},
		"good, with its base":   {change: func(*Receipt) {}, base: baseID},
		"made at another time":  {change: func(r *Receipt) { r.At = r.At.Add(time.Hour) }},
		"a newer minor format":  {change: func(r *Receipt) { r.Format = "1.7" }},
		"another base":          {change: func(*Receipt) {}, base: imageID, says: "was made from the base image " + baseID + ", not from " + imageID},
		"another version":       {change: func(r *Receipt) { r.Version = "0.1.0" }, says: "it has Codex 0.1.0, and this version of laufwerk needs "},
		"another user":          {change: func(r *Receipt) { r.User = 0 }, says: "is for the user 0:20, and this is 1000:20"},
		"another group":         {change: func(r *Receipt) { r.Group = 21 }, says: "is for the user 1000:21"},
		"another recipe":        {change: func(r *Receipt) { r.Recipe = imageID }, says: "another recipe"},
		"another platform":      {change: func(r *Receipt) { r.Platform = "linux/arm64" }, says: "another recipe"},
		"its base is exchanged": {change: func(r *Receipt) { r.Base.ID = imageID }, says: "another recipe"},
		"another program":       {change: func(r *Receipt) { r.Program = "claude" }, says: "is for claude, not for codex"},
		"a major format":        {change: func(r *Receipt) { r.Format = "2.0" }, says: "has the format 2.0"},
		"no id":                 {change: func(r *Receipt) { r.Image = "node:22" }, says: "is no receipt"},
		"nothing":               {raw: " ", says: "cannot be read"},
		"null":                  {raw: "null", says: "is no receipt"},
		"a list":                {raw: "[]", says: "cannot be read"},
		"cut":                   {raw: `{"format":"1.0`, says: "cannot be read"},
		"another document":      {raw: `{"name":"x"}`, says: "is no receipt"},
		"a number":              {raw: `{"format":1}`, says: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			b := []byte(tt.raw)
			if tt.change != nil {
				r := good
				tt.change(&r)
				b, _ = json.Marshal(r)
			}
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			r, err := c.Load(path, tt.base)
			switch {
			case tt.says == "" && (err != nil || r.Image != imageID):
				t.Errorf("%+v, %v", r, err)
			case tt.says != "" && (!failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), tt.says) || failure.As(err).Hint != "laufwerk prepare docker" || len(failure.As(err).Paths) != 1):
				t.Errorf("%v", err)
			}
		})
	}
	if _, err := c.Load(path+"x", ""); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "there is no receipt") {
		t.Errorf("%v", err)
	}
	if _, err := c.Standard(); !failure.Is(err, failure.NotReady) || failure.As(err).Hint == "" {
		t.Errorf("%v", err)
	}
}

// labelled gives an image labels, as an engine's answer has them.
func labelled(t *testing.T, i image.InspectResponse, labels map[string]string) image.InspectResponse {
	t.Helper()
	config, err := json.Marshal(map[string]any{"Config": map[string]any{"Labels": labels}})
	if err == nil {
		err = json.Unmarshal(config, &i)
	}
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestCarries(t *testing.T) {
	c := dockerCache("/x")
	other := c
	other.Program.Version = "0.1.0"
	elsewhere := c
	elsewhere.Prefix = "/sandbox/x"
	of := func(labels map[string]string) image.InspectResponse {
		return labelled(t, image.InspectResponse{ID: imageID, Os: "linux", Architecture: "amd64"}, labels)
	}
	if err := c.Carries(of(map[string]string{LabelBootstrap: c.bootstrap("linux/amd64").fingerprint()})); err != nil {
		t.Error(err)
	}
	for name, i := range map[string]image.InspectResponse{
		"no label":            of(nil),
		"no configuration":    {ID: imageID, Os: "linux", Architecture: "amd64"},
		"another version":     of(map[string]string{LabelBootstrap: other.bootstrap("linux/amd64").fingerprint()}),
		"for another machine": of(map[string]string{LabelBootstrap: c.bootstrap("linux/arm64").fingerprint()}),
		"at another place":    of(map[string]string{LabelBootstrap: elsewhere.bootstrap("linux/amd64").fingerprint()}),
		"for other targets":   of(map[string]string{LabelBootstrap: openshellCache("/x").bootstrap("linux/amd64").fingerprint()}),
	} {
		if err := c.Carries(i); !failure.Is(err, failure.NotReady) || failure.As(err).Hint == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDirectory(t *testing.T) {
	for option, want := range map[string]string{"": "/lw/images", "cache": "/project/cache", "../c": "/c", "/abs/../x": "/x", "~/c": "/home/u/c"} {
		if got := (Kind{}).CacheDirectory(option, "/project", "/home/u", "/lw"); got != want {
			t.Errorf("%q: %s, want %s", option, got, want)
		}
	}
}

func TestCachesDoNotShareNames(t *testing.T) {
	a, b := dockerCache("/a"), dockerCache("/b")
	f := a.Recipe(baseID, "linux/amd64").Fingerprint()
	if a.Tag(f) == b.Tag(f) || a.Tag(f) != dockerCache("/a").Tag(f) || !strings.HasPrefix(a.Tag(f), "laufwerk-codex:"+f[len("sha256:"):][:16]) {
		t.Errorf("%s, %s", a.Tag(f), b.Tag(f))
	}
}
