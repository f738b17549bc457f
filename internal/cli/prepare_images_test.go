package cli

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/providers/docker"
	"github.com/laufwerk/laufwerk/internal/providers/openshell"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// recordingPreparation records the request for images, which are all there.
type recordingPreparation struct {
	Preparation
	request *prepare.ImageRequest
}

func (p recordingPreparation) Images(_ context.Context, r prepare.ImageRequest) ([]prepare.TargetImage, error) {
	*p.request = r
	return []prepare.TargetImage{{Image: "sha256:made", Reused: true}}, nil
}

// requestOf is what `laufwerk prepare` with these arguments asks for, outside of a project.
func requestOf(t *testing.T, dir string, args ...string) (r prepare.ImageRequest, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &system.Env{Args: append([]string{"prepare"}, args...), Vars: map[string]string{"HOME": t.TempDir()}, Dir: dir, Out: &stdout, Err: &stderr, Now: time.Now}
	code := Execute(t.Context(), env, func(d *Deps) Commands {
		return NewCommands(d, UseCases{
			Preparation: recordingPreparation{request: &r}, ImageKinds: []imagecache.Kind{docker.Images(), openshell.Images()},
		})
	})
	if code != 0 {
		t.Fatalf("%v: exit %d\n%s%s", args, code, stdout.String(), stderr.String())
	}
	return r, stdout.String(), stderr.String()
}

// Every flag reaches the preparation; paths are those of the working directory, and of what is not said nothing is made up.
func TestFlagsOfPrepare(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"docker", "openshell"} {
		got, out, errs := requestOf(t, dir, kind)
		if want := (prepare.ImageRequest{Kind: kind, Dir: dir}); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if out != "sha256:made\n" || !strings.Contains(errs, "the image is prepared already") {
			t.Errorf("%q, %q", out, errs)
		}
		got, _, _ = requestOf(t, dir, kind, "--image", "registry.example/team/node:22", "--cache-directory", "cache", "--ca", "ca.pem", "--npmrc", "/etc/npmrc",
			"--registry", "https://registry.example/", "--proxy", "http://proxy:3128", "--network", "build", "--cpus", "1.5", "--memory", "2GiB")
		want := prepare.ImageRequest{
			Kind: kind, Dir: dir, Image: "registry.example/team/node:22", Cache: dir + "/cache",
			Installation: prepare.Installation{
				Settings: prepare.InstallationSettings{CA: dir + "/ca.pem", NPMRC: "/etc/npmrc", Registry: "https://registry.example/", Proxy: "http://proxy:3128"},
				Network:  "build", Resources: targets.Resources{CPUs: 1.5, MemoryBytes: 2 << 30},
			},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
