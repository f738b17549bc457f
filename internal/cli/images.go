package cli

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/imagecache"
	"github.com/laufwerk/laufwerk/internal/redact"
)

func newImages(d *Deps) *cobra.Command {
	g := newGroup("images", "List prepared images, and remove those that are not needed", newImagesList(d), newImagesPrune(d))
	g.GroupID = sectionOperate
	return g
}

type imagesOptions struct {
	*Deps

	Cache  string // absolute; "" is those of $LAUFWERK_HOME/images
	DryRun bool
}

// complete gives a command what both have: the flag of the cache, and its check before run.
func (o *imagesOptions) complete(cmd *cobra.Command, run func(context.Context, *imagesOptions) error) *cobra.Command {
	cmd.Flags().StringVar(&o.Cache, "cache-directory", "", "use the image cache in `DIR` alone (default: the image caches in $LAUFWERK_HOME/images)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Changed("cache-directory") && o.Cache == "" {
			return usageError(cmd, "--cache-directory is empty")
		}
		if o.Cache != "" {
			o.Cache = o.Path(o.Cache)
		}
		return run(cmd.Context(), o)
	}
	return cmd
}

func imageName(i imagecache.Image) string { return cmp.Or(i.Tag, i.ID) }

func imageSize(bytes int64) string {
	if bytes == 0 {
		return "-"
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

func imageTime(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func imageUsers(i imagecache.Image) string {
	by := append([]string{}, i.Claims...)
	for _, r := range i.Receipts {
		by = append(by, redact.Line(r))
	}
	return strings.Join(by, " ")
}
