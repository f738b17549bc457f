package prepare_test

import (
	"bytes"
	"context"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	cliprepare "github.com/laufwerk/laufwerk/internal/cli/prepare"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/project"
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// asked is what `laufwerk prepare` with these arguments asks for, outside of a project.
func asked(t *testing.T, dir string, args ...string) (r cliprepare.ImageRequest, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &system.Env{Args: append([]string{"prepare"}, args...), Vars: map[string]string{"HOME": t.TempDir()}, Dir: dir, Out: &stdout, Err: &stderr, Now: time.Now}
	code := cli.Execute(t.Context(), env, func(d *cli.Deps) cli.Commands {
		load := func(context.Context, string) (*project.Project, error) {
			t.Error("a project is loaded")
			return nil, nil
		}
		images := func(_ context.Context, given cliprepare.ImageRequest) ([]cliprepare.Image, error) {
			r = given
			return []cliprepare.Image{{Image: "sha256:made", Reused: true}}, nil
		}
		return cli.Commands{"prepare": func() *cobra.Command { return cliprepare.New(d, load, images) }}
	})
	if code != 0 {
		t.Fatalf("%v: exit %d\n%s%s", args, code, stdout.String(), stderr.String())
	}
	r.Say = nil
	return r, stdout.String(), stderr.String()
}

// Every flag reaches the preparation; paths are those of the working directory, and of what is not said nothing is made up.
func TestFlagsOfPrepare(t *testing.T) {
	dir := t.TempDir()
	for _, kind := range []string{"docker", "openshell"} {
		got, out, errs := asked(t, dir, kind)
		if want := (cliprepare.ImageRequest{Kind: kind}); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if out != "sha256:made\n" || !strings.Contains(errs, "the image is prepared already") {
			t.Errorf("%q, %q", out, errs)
		}
		got, _, _ = asked(t, dir, kind, "--image", "registry.example/team/node:22", "--cache-directory", "cache", "--ca", "ca.pem", "--npmrc", "/etc/npmrc",
			"--registry", "https://registry.example/", "--proxy", "http://proxy:3128", "--network", "build", "--cpus", "1.5", "--memory", "2GiB")
		want := cliprepare.ImageRequest{
			Kind: kind, Image: "registry.example/team/node:22", Cache: dir + "/cache", Network: "build", Resources: targets.Resources{CPUs: 1.5, MemoryBytes: 2 << 30},
			Settings: prepare.DockerSettings{CA: dir + "/ca.pem", NPMRC: "/etc/npmrc", Registry: "https://registry.example/", Proxy: "http://proxy:3128"},
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
	}
}
