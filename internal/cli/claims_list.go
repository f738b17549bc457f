package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/claims"
)

type claimsListOptions struct {
	*Deps
	All bool
	Run string
}

func newClaimsList(d *Deps) *cobra.Command {
	o := &claimsListOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the resources that may exist, or with --all also those that are gone",
		Long: `List claims. Every resource that a run allocates is recorded as a claim before it is made: with the time of that intent, of
the allocation and of the release, and with the proof that the resource is gone. Without --all only claims whose resource may
still exist are listed.`,
		Example: "$ laufwerk claims list\n$ laufwerk claims list --all --run 261129-k3f9x2ab --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runClaimsList(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "also list claims that were released or abandoned")
	cmd.Flags().StringVar(&o.Run, "run", "", "list only the claims of `RUN`")
	return cmd
}

type claimsListDocument struct {
	Claims []claims.Claim `json:"claims"`
}

func runClaimsList(ctx context.Context, o *claimsListOptions) error {
	s, err := o.Open.OpenToRead(ctx)
	if err != nil {
		return err
	}
	f := claims.Filter{Outstanding: !o.All}
	if o.Run != "" {
		r, err := s.Get(ctx, o.Run)
		if err != nil {
			return err
		}
		f.Run = r.ID
	}
	all, err := s.Driver.List(ctx, f)
	if err != nil {
		return err
	}
	printClaims(o.UI, o.Env.Now(), all)
	if len(all) == 0 {
		o.UI.Talkf("no claims\n")
	}
	return o.UI.Document(claimsListDocument{append([]claims.Claim{}, all...)})
}
