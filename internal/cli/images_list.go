package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/redact"
)

func newImagesList(d *Deps) *cobra.Command {
	o := &imagesOptions{Deps: d}
	return o.complete(&cobra.Command{
		Use:   "list",
		Short: "List prepared images, with the receipts and claims that need them",
		Long: `List the prepared images of the engine, with the receipts that name them and the claims whose containers are made from
them. The state of an image is current, or stale (its receipt is for another version of laufwerk), missing (a receipt names
it, but the engine does not have it), unused (laufwerk images prune removes it), unsure (a receipt that cannot be read may
name it), or foreign (it belongs to another image cache).`,
		Example: "$ laufwerk images list\n$ laufwerk images list --json",
	}, runImagesList)
}

type imagesListDocument struct {
	Images []imagecache.Image `json:"images"`
}

func runImagesList(ctx context.Context, o *imagesOptions) error {
	all, err := o.Preparation.ListImages(ctx, o.Cache)
	if err != nil {
		return err
	}
	rows := make([][]any, 0, len(all))
	for _, i := range all {
		rows = append(rows, []any{imageName(i), i.Kind, i.State, i.Version, redact.Line(i.Base), imageSize(i.Bytes), imageTime(i.CreatedAt), imageUsers(i)})
	}
	ui := o.UI
	ui.Table([]string{"IMAGE", "FOR", "STATE", "VERSION", "BASE", "SIZE", "CREATED", "NEEDED BY"}, rows)
	if len(all) == 0 {
		ui.Talkf("no prepared images\n")
	}
	return ui.Document(imagesListDocument{all})
}
