package cli

import (
	"context"

	"github.com/spf13/cobra"
)

type claimsShowOptions struct {
	*Deps
	Claim string
}

func newClaimsShow(d *Deps) *cobra.Command {
	o := &claimsShowOptions{Deps: d}
	return &cobra.Command{
		Use:     "show CLAIM",
		Short:   "Show a claim with the exact identity of its resource and all evidence",
		Example: "$ laufwerk claims show cabcdefghijklmno",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Claim = args[0]
			return runClaimsShow(cmd.Context(), o)
		},
	}
}

func runClaimsShow(ctx context.Context, o *claimsShowOptions) error {
	s, err := o.Open.OpenToRead(ctx)
	if err != nil {
		return err
	}
	c, err := s.Driver.Get(ctx, o.Claim)
	if err != nil {
		return err
	}
	printClaim(o.UI, c)
	if r, err := s.Get(ctx, c.Run); c.Outstanding() && err == nil && !r.Terminal() {
		o.UI.Next("laufwerk runs show " + r.ID)
	} else if c.Outstanding() {
		o.UI.Next(c.CleanupHint())
	}
	return o.UI.Document(c)
}
