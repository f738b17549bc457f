// Package images holds the commands `laufwerk images list|prune`.
package images

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/cli"
	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/prepare"
	"github.com/laufwerk/laufwerk/internal/redact"
)

// New makes the group.
func New(d *cli.Deps, images *prepare.Service) *cobra.Command {
	g := cli.Group("images", "List prepared images, and remove those that nothing needs", newList(d, images), newPrune(d, images))
	g.GroupID = cli.SectionOperate
	return g
}

// Options of both commands.
type Options struct {
	Deps   *cli.Deps
	Images *prepare.Service

	Cache  string // absolute; "" is those of $LAUFWERK_HOME/images
	DryRun bool
}

func (o *Options) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Cache, "cache-directory", "", "look at the image cache in `DIR` alone (default: those of $LAUFWERK_HOME/images)")
}

func (o *Options) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("cache-directory") && o.Cache == "" {
		return cli.Usage(cmd, "--cache-directory is empty")
	}
	if o.Cache != "" {
		o.Cache = o.Deps.Path(o.Cache)
	}
	return nil
}

func newList(d *cli.Deps, images *prepare.Service) *cobra.Command {
	o := &Options{Deps: d, Images: images}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List prepared images, with what needs them",
		Long: `List the prepared images of the engine, with the receipts that name them and the claims whose containers are made from
them. An image is current, or stale (its receipt is for another version of laufwerk), missing (a receipt names it, and the
engine does not have it), unused (laufwerk images prune removes it), unsure (a receipt that cannot be read may name it), or
foreign: of another image cache.`,
		Example: "$ laufwerk images list\n$ laufwerk images list --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return list(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	return cmd
}

func list(ctx context.Context, o *Options) error {
	all, err := o.Images.ListImages(ctx, o.Cache)
	if err != nil {
		return err
	}
	rows := make([][]any, 0, len(all))
	for _, i := range all {
		rows = append(rows, []any{name(i), i.Kind, i.State, i.Version, redact.Line(i.Base), size(i.Bytes), when(i.CreatedAt), needed(i)})
	}
	ui := o.Deps.UI
	ui.Table([]string{"IMAGE", "FOR", "STATE", "CODEX", "BASE", "SIZE", "CREATED", "NEEDED BY"}, rows)
	if len(all) == 0 {
		ui.Talkf("no prepared images\n")
	}
	return ui.Document(map[string]any{"images": all})
}

func newPrune(d *cli.Deps, images *prepare.Service) *cobra.Command {
	o := &Options{Deps: d, Images: images}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove the prepared images that nothing needs any more",
		Long: `Remove the prepared images of these image caches that no receipt names and no claim needs: those of earlier versions and of
other base images. An image that is just being prepared, that a container uses, or that you gave another name stays. Base
images and everything of other image caches are left alone.`,
		Example: "$ laufwerk images prune --dry-run\n$ laufwerk images prune",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(cmd); err != nil {
				return err
			}
			return prune(cmd.Context(), o)
		},
	}
	o.flags(cmd)
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only list what would be removed")
	return cmd
}

func prune(ctx context.Context, o *Options) error {
	if err := cli.RefuseInsideSession("images prune"); err != nil {
		return err
	}
	done, err := o.Images.PruneImages(ctx, o.Cache, o.DryRun)
	if err != nil && done == nil {
		return err
	}
	ui := o.Deps.UI
	verb, n := "removed", 0
	if o.DryRun {
		verb = "would remove"
	}
	rows := make([][]any, 0, len(done))
	for _, p := range done {
		what := "kept"
		if p.Removed {
			what = verb
			n++
		}
		rows = append(rows, []any{what, name(p.Image), size(p.Bytes), redact.Line(p.Why)})
	}
	ui.Table([]string{"WHAT", "IMAGE", "SIZE", "WHY"}, rows)
	doc := map[string]any{"images": done, "dryRun": o.DryRun}
	if err != nil {
		return cli.Fail(err, doc)
	}
	if n == 0 {
		ui.Talkf("nothing to remove\n")
	}
	return ui.Document(doc)
}

// name is what people know an image by.
func name(i imagecache.Image) string {
	if i.Tag != "" {
		return i.Tag
	}
	return i.ID
}

func size(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// needed names what keeps an image.
func needed(i imagecache.Image) string {
	by := append([]string{}, i.Claims...)
	for _, r := range i.Receipts {
		by = append(by, redact.Line(r))
	}
	return strings.Join(by, " ")
}
