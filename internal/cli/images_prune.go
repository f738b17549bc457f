package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/redact"
)

func newImagesPrune(d *Deps) *cobra.Command {
	o := &imagesOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "prune",
		Short: "Remove prepared images that are not needed any more",
		Long: `Remove the prepared images of the image caches that no receipt names and no claim needs: those of earlier versions and of
other base images. An image that is being prepared, that a container uses, or that has another name too is kept. Base images
and the images of other image caches are not touched.`,
		Example: "$ laufwerk images prune --dry-run\n$ laufwerk images prune",
	}
	cmd.Flags().BoolVar(&o.DryRun, "dry-run", false, "only list what would be removed")
	return o.complete(cmd, runImagesPrune)
}

type imagesPruneDocument struct {
	DryRun bool                     `json:"dryRun"`
	Images []imagecache.PruneResult `json:"images"`
}

func runImagesPrune(ctx context.Context, o *imagesOptions) error {
	if err := refuseInsideSession("images prune"); err != nil {
		return err
	}
	done, err := o.Preparation.PruneImages(ctx, o.Cache, o.DryRun)
	if err != nil && done == nil {
		return err
	}
	ui := o.UI
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
		rows = append(rows, []any{what, imageName(p.Image), imageSize(p.Bytes), redact.Line(p.Why)})
	}
	ui.Table([]string{"WHAT", "IMAGE", "SIZE", "WHY"}, rows)
	doc := imagesPruneDocument{o.DryRun, done}
	if err != nil {
		return failWithDocument(err, doc)
	}
	if n == 0 {
		ui.Talkf("nothing to remove\n")
	}
	return ui.Document(doc)
}
