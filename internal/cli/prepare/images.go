package prepare

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/targets"
)

// The kinds of targets whose sessions start from images.
const (
	dockerKind    = "docker"
	openshellKind = "openshell"
)

// Images prepares the images of targets.
type Images func(ctx context.Context, r prepare.ImageRequest) ([]prepare.TargetImage, error)

// ImageOptions of `prepare docker` and `prepare openshell`.
type ImageOptions struct {
	Deps    *cli.Deps
	Prepare Images

	CPUs    string
	Memory  string
	Request prepare.ImageRequest
}

// about is what the help of a command says.
type about struct{ short, long, example, cache string }

// abouts are by kind.
func abouts() map[string]about {
	return map[string]about{dockerKind: {
		short: "Make the images that sessions in containers start from",
		long: `Make the images of the project's Docker targets: a base image with the Codex that this version of laufwerk is made for,
installed from a lockfile with checksums, tried inside, and recorded in a receipt. A receipt that still holds is reused, so
that the command can stand in front of every run; after an upgrade of laufwerk it makes the images anew. Outside of a project
the standard image is made. No workspace and no login is ever near an image that is being made.

The base image needs Node.js 22 or newer with npm or pnpm, git, bash and setsid. What is given with --ca, --npmrc, --registry
and --proxy is for the installation alone and stays in no image.`,
		example: "$ laufwerk prepare docker\n\n# One target, from a base image of your own\n$ laufwerk prepare docker --target docker --image registry.example/team/node:22\n\n" +
			"# Behind a proxy that looks into TLS\n$ laufwerk prepare docker --proxy http://proxy.example:3128 --ca /etc/ssl/certs/ca-certificates.crt",
		cache: "images/",
	}, openshellKind: {
		short: "Make the images that sandboxes of OpenShell start from",
		long: `Make the images of the project's OpenShell targets: a base image with the Codex that this version of laufwerk is made for,
below /sandbox/.harness-bootstrap, where network policies expect it, and with the directories that a sandbox's file system
policy names. It is installed from a lockfile with checksums, tried inside, and recorded in a receipt that is reused as long
as it holds. No workspace and no credential is ever near an image that is being made.

Then a sandbox is made from it and removed, which shows that the gateway makes sandboxes on this host's engine, and that they
see this host's files. Without a registered gateway or without the target's provider that is pending: the image is made all
the same.

The base image needs Node.js 22 or newer with npm or pnpm, git, bash, setsid and ip (iproute2), and no VOLUME. What is given
with --ca, --npmrc, --registry and --proxy is for the installation alone and stays in no image.`,
		example: "$ laufwerk prepare openshell\n\n# One target, from a base image of your own\n$ laufwerk prepare openshell --target secure-coding --image registry.example/team/node:22",
		cache:   "images/openshell/",
	}}
}

func newImages(d *cli.Deps, kind string, images Images) *cobra.Command {
	o := &ImageOptions{Deps: d, Prepare: images, Request: prepare.ImageRequest{Kind: kind, Dir: d.Env.Dir}}
	says := abouts()[kind]
	cmd := &cobra.Command{
		Use:     kind,
		Short:   says.short,
		Long:    says.long,
		Example: says.example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return runImages(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Request.Target, "target", "", "prepare for the target `ID` alone")
	f.StringVar(&o.Request.Image, "image", "", "begin with the image `REF` instead of the public one of Node.js 22")
	f.StringVar(&o.Request.Cache, "cache-directory", "", "keep receipts in `DIR` (default: what the target says, else "+says.cache+" in $LAUFWERK_HOME)")
	f.StringVar(&o.Request.Settings.CA, "ca", "", "also trust the certificates in `FILE`, in PEM (default: the file that NODE_EXTRA_CA_CERTS or npm_config_cafile names)")
	f.StringVar(&o.Request.Settings.NPMRC, "npmrc", "", "install with the npm configuration in `FILE`")
	f.StringVar(&o.Request.Settings.Registry, "registry", "", "install from the npm registry at `URL` (default: what npm_config_registry says, or the public one)")
	f.StringVar(&o.Request.Settings.Proxy, "proxy", "", "install through the HTTP proxy at `URL` (default: that of this environment)")
	f.StringVar(&o.Request.Network, "network", "", "install on the engine's network `NAME` (default: the engine's own default)")
	f.StringVar(&o.CPUs, "cpus", "", "give the installation `N` cores, such as 1.5 (default: all)")
	f.StringVar(&o.Memory, "memory", "", "give the installation memory of `SIZE`, such as 2GiB (default: all)")
	return cmd
}

func (o *ImageOptions) check(cmd *cobra.Command) error {
	for _, name := range []string{"target", "image", "cache-directory", "ca", "npmrc", "registry", "proxy", "network", "cpus", "memory"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return cli.Usage(cmd, "--%s is empty", name)
		}
	}
	r := &o.Request
	if r.Image != "" {
		quoted, err := json.Marshal(r.Image)
		if err == nil {
			_, err = targets.Image("--image", quoted)
		}
		if err != nil {
			return cli.Usage(cmd, "--image: %v", err)
		}
	}
	for flag, u := range map[string]string{"--registry": r.Settings.Registry, "--proxy": r.Settings.Proxy} {
		if at, err := url.Parse(u); u != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
			return cli.Usage(cmd, "%s: expected the address of a server, http://… or https://…", flag)
		}
	}
	var err error
	if o.CPUs != "" {
		raw := json.RawMessage(o.CPUs)
		if !json.Valid(raw) || options.Kind(raw) != "a number" {
			return cli.Usage(cmd, "--cpus: expected cores > 0 with at most 3 decimals, got %q", o.CPUs)
		}
		if r.Resources.CPUs, err = targets.CPUs("--cpus", raw); err != nil {
			return cli.Usage(cmd, "--cpus: %v", err)
		}
	}
	if o.Memory != "" {
		n, ok := settings.Size(o.Memory)
		if !ok || n < targets.LeastMemory {
			return cli.Usage(cmd, "--memory: expected a size of at least 6MiB, such as 2GiB, got %q", o.Memory)
		}
		r.Resources.MemoryBytes = n
	}
	for _, path := range []*string{&r.Cache, &r.Settings.CA, &r.Settings.NPMRC} {
		if *path != "" {
			*path = o.Deps.Path(*path)
		}
	}
	return nil
}

func runImages(ctx context.Context, o *ImageOptions) error {
	d := o.Deps
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	ui := d.UI
	o.Request.Project = d.Flags.Project
	made, err := o.Prepare(ctx, o.Request)
	if err != nil && made == nil {
		return err
	}
	out := []prepare.TargetImage{}
	for _, m := range made {
		name := ""
		if m.Target != "" {
			name = "target " + m.Target + ": "
		}
		switch {
		case m.Image == "":
			ui.Talkf("%sit has an image of its own: there is nothing to prepare\n", name)
			continue
		case m.Reused:
			ui.Talkf("%sthe image is prepared already\n", name)
		default:
			ui.Talkf("%sthe image is prepared\n", name)
		}
		if p := m.Probe; p != nil && p.Status == prepare.ProbePending {
			ui.Talkf("%sno sandbox was made from it yet, for that waits for this: %s\n", name, redact.Line(strings.Join(p.Waiting, "; ")))
			if p.Next != "" {
				ui.Talkf("next: %s\n", p.Next)
			}
		}
		ui.Printf("%s\n", m.Image)
		out = append(out, m)
	}
	doc := map[string]any{"targets": out}
	if err != nil {
		return cli.Fail(err, doc)
	}
	return ui.Document(doc)
}
