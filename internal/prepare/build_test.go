package prepare

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/image"

	"github.com/laufwerk/laufwerk/internal/agent/codex"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/redact"
)

const baseID = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

func dockerCache(dir string) imagecache.Cache {
	return docker.Images().Cache(dir, imagecache.NewProgram(codex.New()))
}

func openshellCache(dir string) imagecache.Cache {
	return openshell.Images().Cache(dir, imagecache.NewProgram(codex.New()))
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

func archive(t *testing.T, headers ...tar.Header) *bytes.Buffer {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range headers {
		data := ""
		if h.Typeflag == tar.TypeReg {
			data = "data of " + h.Name
			h.Size = int64(len(data))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, data); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return &b
}

// TestPack: what is taken out of a container belongs to nobody else afterwards, and has no rights but those of files.
func TestPack(t *testing.T) {
	in := archive(t,
		tar.Header{Name: "codex/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 1000, Uname: "x"},
		tar.Header{Name: "codex/tool", Typeflag: tar.TypeReg, Mode: 0o6711, Uid: 1000, Gid: 5, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "all"}},
		tar.Header{Name: "codex/data", Typeflag: tar.TypeReg, Mode: 0o602},
		tar.Header{Name: "codex/link", Typeflag: tar.TypeSymlink, Linkname: "../../etc/passwd", Mode: 0o777},
		tar.Header{Name: "codex/hard", Typeflag: tar.TypeLink, Linkname: "codex/tool"},
	)
	var out bytes.Buffer
	if err := pack(dockerCache("/x").Recipe(baseID, "linux/amd64"), &out, []byte("FROM x\n"), nil, in); err != nil {
		t.Fatal(err)
	}
	var got []string
	r := tar.NewReader(&out)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(r)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || len(h.PAXRecords) > 0 {
			t.Errorf("%+v", h)
		}
		got = append(got, strings.TrimSpace(strings.Join([]string{string(h.Typeflag), h.Name, h.FileInfo().Mode().Perm().String(), h.Linkname, strings.TrimSpace(string(b))}, " ")))
	}
	want := []string{
		"0 Dockerfile -rw-r--r--  FROM x", "5 tree/ -rwxr-xr-x", "0 tree/tool -rwxr-xr-x  data of codex/tool", "0 tree/data -rw-r--r--  data of codex/data",
		"2 tree/link -rwxrwxrwx ../../etc/passwd", "1 tree/hard -rw-r--r-- tree/tool",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for name, h := range map[string]tar.Header{
		"a device":       {Name: "codex/null", Typeflag: tar.TypeChar},
		"a fifo":         {Name: "codex/fifo", Typeflag: tar.TypeFifo},
		"out of it":      {Name: "codex/../../x", Typeflag: tar.TypeDir},
		"absolute":       {Name: "/etc/x", Typeflag: tar.TypeDir},
		"a link outside": {Name: "codex/x", Typeflag: tar.TypeLink, Linkname: "../x"},
	} {
		if err := pack(dockerCache("/x").Recipe(baseID, "linux/amd64"), io.Discard, nil, nil, archive(t, h)); err == nil {
			t.Errorf("%s is packed", name)
		}
	}
	cut := archive(t, tar.Header{Name: "codex/tool", Typeflag: tar.TypeReg, Mode: 0o755})
	cut.Truncate(520)
	if err := pack(dockerCache("/x").Recipe(baseID, "linux/amd64"), io.Discard, nil, nil, cut); err == nil {
		t.Error("a cut archive is packed")
	}
}

// An image of an OpenShell target is laid out from its root: with the directories that sandboxes need, and no other owner.
func TestPackFromTheRoot(t *testing.T) {
	in := archive(t, tar.Header{Name: "codex/", Typeflag: tar.TypeDir, Mode: 0o700, Uid: 1000}, tar.Header{Name: "codex/tool", Typeflag: tar.TypeReg, Mode: 0o755, Uid: 1000})
	var out bytes.Buffer
	if err := pack(openshellCache("/x").Recipe(baseID, "linux/amd64"), &out, nil, []string{"/sandbox/home", "/lib64"}, in); err != nil {
		t.Fatal(err)
	}
	var got []string
	r := tar.NewReader(&out)
	for h, err := r.Next(); err == nil; h, err = r.Next() {
		if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
			t.Errorf("%+v", h)
		}
		got = append(got, h.Name)
	}
	if want := []string{"Dockerfile", "tree/sandbox/home/", "tree/lib64/", "tree" + openshellCache("").Prefix + "/", "tree" + openshellCache("").Prefix + "/tool"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Whoever removes a sandbox would leave the volumes that its image declares.
func TestVolumesDoNotSuitOpenShell(t *testing.T) {
	base := labelled(t, image.InspectResponse{ID: baseID, Os: "linux", Architecture: "amd64"}, nil)
	base.Config.Volumes = map[string]struct{}{"/data": {}}
	if err := checkBase(openshellCache("/x"), base, "amd64"); !failure.Is(err, failure.NotReady) || !strings.Contains(err.Error(), "/data") {
		t.Error(err)
	}
	if err := checkBase(dockerCache("/x"), base, "amd64"); err != nil {
		t.Error(err)
	}
}

func TestDockerfile(t *testing.T) {
	c := dockerCache("/x")
	base := labelled(t, image.InspectResponse{ID: baseID}, map[string]string{"dev.laufwerk.owner": "x", "dev.laufwerk.recipe": "old", "maintainer": "y"})
	rec := c.Recipe(baseID, "linux/amd64")
	b, err := dockerfile(rec, base, "b1")
	if err != nil {
		t.Fatal(err)
	}
	want := "FROM " + baseID + "\nLABEL dev.laufwerk.bootstrap=\"" + rec.BootstrapFingerprint() + "\"\nLABEL dev.laufwerk.build=\"b1\"\nLABEL dev.laufwerk.owner=\"\"\nLABEL dev.laufwerk.recipe=\"" +
		rec.Fingerprint() + "\"\nCOPY [\"tree/\", \"" + dockerCache("").Prefix + "/\"]\n"
	if string(b) != want {
		t.Errorf("%s\n%s", b, want)
	}
	for _, line := range []string{"COPY [\"tree/\", \"/\"]\n", "WORKDIR /sandbox\n"} {
		if b, err := dockerfile(openshellCache("/x").Recipe(baseID, "linux/amd64"), base, ""); err != nil || !strings.Contains(string(b), line) {
			t.Errorf("%v\n%s\nlacks %s", err, b, line)
		}
	}
	base.Config.Labels["dev.laufwerk.x\nRUN rm"] = ""
	if _, err := dockerfile(rec, base, ""); err == nil {
		t.Error("a label with a line break is an instruction")
	}
}

func TestSecretsOfSettings(t *testing.T) {
	s := installSettings{
		NPMRC: []byte("registry=https://user:secret-in-url@registry.example/\n//registry.example/:_authToken=secret-token\n; comment\n_auth = \"secret-auth\"\nemail=me@example.org\n"),
		Env:   map[string]string{"https_proxy": "http://u:secret-proxy@proxy:1/"},
	}
	text := s.secrets().String("secret-in-url secret-token secret-auth secret-proxy me@example.org")
	if strings.Contains(text, "secret-") || !strings.Contains(text, "me@example.org") {
		t.Error(text)
	}
}

func TestOutputOfAnInstallation(t *testing.T) {
	s := redact.NewSecrets()
	s.Add("secret-token")
	var log, said strings.Builder
	o := &installOutput{log: &log, stream: s.Stream(), say: func(f string, a ...any) { said.WriteString(strings.ReplaceAll(f, "%s", a[0].(string))) }}
	for _, p := range []string{"Progress: resol", "ved 1\nmore secr", "et-token\n", strings.Repeat("x", 10_000), "\nlast"} {
		if n, err := o.Write([]byte(p)); n != len(p) || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	o.end()
	if strings.Contains(log.String(), "secret-token") || !strings.Contains(log.String(), "more ") || said.String() != "Progress: resolved 1\n" {
		t.Errorf("%.100q, %q", log.String(), said.String())
	}
	if tail := o.tail.String(); len(tail) > tailSize || !strings.HasSuffix(tail, "last\n") {
		t.Errorf("%d bytes: %q", len(tail), tail[max(0, len(tail)-20):])
	}
}
