package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"strings"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli/settings"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/options"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/redact"
	"github.com/laufwerk/laufwerk/internal/targets"
)

type prepareImagesOptions struct {
	*Deps

	CPUs    string
	Memory  string
	Request prepare.ImageRequest
}

func newPrepareImages(d *Deps, kind imagecache.Kind) *cobra.Command {
	o := &prepareImagesOptions{Deps: d, Request: prepare.ImageRequest{Kind: kind.Name, Dir: d.Env.Dir}}
	cmd := &cobra.Command{
		Use:     kind.Name,
		Short:   kind.Help.Short,
		Long:    fmt.Sprintf(kind.Help.Long, d.installedTitles()),
		Example: kind.Help.Example,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.checkFlags(cmd); err != nil {
				return err
			}
			return runPrepareImages(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.Request.Target, "target", "", "build the image of the target `ID` alone")
	f.StringVar(&o.Request.Image, "image", "", "use the base image `REF` instead of the public image of Node.js 22")
	f.StringVar(&o.Request.Cache, "cache-directory", "", "keep receipts in `DIR` (default: the directory in the target's options, or else "+path.Join("images", kind.Directory)+"/ in $LAUFWERK_HOME)")
	f.StringVar(&o.Request.Settings.CA, "ca", "", "also trust the certificates in `FILE`, in PEM (default: the file that NODE_EXTRA_CA_CERTS or npm_config_cafile names)")
	f.StringVar(&o.Request.Settings.NPMRC, "npmrc", "", "install with the npm configuration in `FILE`")
	f.StringVar(&o.Request.Settings.Registry, "registry", "", "install from the npm registry at `URL` (default: npm_config_registry, or else the public registry)")
	f.StringVar(&o.Request.Settings.Proxy, "proxy", "", "install through the HTTP proxy at `URL` (default: the proxy of this environment)")
	f.StringVar(&o.Request.Network, "network", "", "install on the engine's network `NAME` (default: the engine's own default)")
	f.StringVar(&o.CPUs, "cpus", "", "give the installation `N` cores, such as 1.5 (default: all)")
	f.StringVar(&o.Memory, "memory", "", "give the installation memory of `SIZE`, such as 2GiB (default: all)")
	return cmd
}

func (o *prepareImagesOptions) checkFlags(cmd *cobra.Command) error {
	for _, name := range []string{"target", "image", "cache-directory", "ca", "npmrc", "registry", "proxy", "network", "cpus", "memory"} {
		if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
			return usageError(cmd, "--%s is empty", name)
		}
	}
	r := &o.Request
	if r.Image != "" {
		quoted, err := json.Marshal(r.Image)
		if err == nil {
			_, err = targets.Image("--image", quoted)
		}
		if err != nil {
			return usageError(cmd, "--image: %v", err)
		}
	}
	for flag, u := range map[string]string{"--registry": r.Settings.Registry, "--proxy": r.Settings.Proxy} {
		if at, err := url.Parse(u); u != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
			return usageError(cmd, "%s: expected the address of a server, http://… or https://…", flag)
		}
	}
	var err error
	if o.CPUs != "" {
		raw := json.RawMessage(o.CPUs)
		if !json.Valid(raw) || options.Kind(raw) != "a number" {
			return usageError(cmd, "--cpus: expected cores > 0 with at most 3 decimals, got %q", o.CPUs)
		}
		if r.Resources.CPUs, err = targets.CPUs("--cpus", raw); err != nil {
			return usageError(cmd, "--cpus: %v", err)
		}
	}
	if o.Memory != "" {
		n, ok := settings.Size(o.Memory)
		if !ok || n < targets.LeastMemory {
			return usageError(cmd, "--memory: expected a size of at least 6MiB, such as 2GiB, got %q", o.Memory)
		}
		r.Resources.MemoryBytes = n
	}
	for _, named := range []*string{&r.Cache, &r.Settings.CA, &r.Settings.NPMRC} {
		if *named != "" {
			*named = o.Path(*named)
		}
	}
	return nil
}

type prepareImagesDocument struct {
	Targets []prepare.TargetImage `json:"targets"`
}

func runPrepareImages(ctx context.Context, o *prepareImagesOptions) error {
	d := o.Deps
	ctx, stop := d.Interruptible(ctx)
	defer stop()
	ui := d.UI
	o.Request.Project = d.Flags.Project
	made, err := o.Preparation.Images(ctx, o.Request)
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
			ui.Talkf("%sit uses its own image: there is nothing to prepare\n", name)
			continue
		case m.Reused:
			ui.Talkf("%sthe image is prepared already\n", name)
		default:
			ui.Talkf("%sthe image is prepared\n", name)
		}
		if p := m.Probe; p != nil && p.Status == prepare.ProbePending {
			ui.Talkf("%sno sandbox could be made from the image yet: %s\n", name, redact.Line(strings.Join(p.Waiting, "; ")))
			if p.Hint != "" {
				ui.Next(p.Hint)
			}
		}
		ui.Printf("%s\n", m.Image)
		out = append(out, m)
	}
	doc := prepareImagesDocument{out}
	if err != nil {
		return failWithDocument(err, doc)
	}
	return ui.Document(doc)
}
