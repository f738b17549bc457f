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
	"github.com/laufwerk/laufwerk/internal/system"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// asked is what `laufwerk prepare` with these arguments asks for, outside of a project.
func asked(t *testing.T, dir string, args ...string) (r prepare.ImageRequest, out, errs string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := &system.Env{Args: append([]string{"prepare"}, args...), Vars: map[string]string{"HOME": t.TempDir()}, Dir: dir, Out: &stdout, Err: &stderr, Now: time.Now}
	code := cli.Execute(t.Context(), env, func(d *cli.Deps) cli.Commands {
		images := func(_ context.Context, given prepare.ImageRequest) ([]prepare.TargetImage, error) {
			r = given
			return []prepare.TargetImage{{Image: "sha256:made", Reused: true}}, nil
		}
		return cli.Commands{"prepare": func() *cobra.Command { return cliprepare.New(d, nil, images) }}
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
		got, out, errs := asked(t, dir, kind)
		if want := (prepare.ImageRequest{Kind: kind, Dir: dir}); !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, want %+v", got, want)
		}
		if out != "sha256:made\n" || !strings.Contains(errs, "the image is prepared already") {
			t.Errorf("%q, %q", out, errs)
		}
		got, _, _ = asked(t, dir, kind, "--image", "registry.example/team/node:22", "--cache-directory", "cache", "--ca", "ca.pem", "--npmrc", "/etc/npmrc",
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
