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
		Short: "List what may exist, or with --all everything that ever did",
		Long: `List the ledger: every resource with its intent, its allocation and, once it is released, the proof of its absence.
Without --all only what is outstanding is listed.`,
		Example: "$ laufwerk claims list\n$ laufwerk claims list --all --run 261129-k3f9x2ab --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runClaimsList(cmd.Context(), o)
		},
	}
	cmd.Flags().BoolVar(&o.All, "all", false, "also what was released or abandoned")
	cmd.Flags().StringVar(&o.Run, "run", "", "only the claims of `RUN`")
	return cmd
}

func runClaimsList(ctx context.Context, o *claimsListOptions) error {
	s, err := o.Open.ToRead(ctx)
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
	return o.UI.Document(map[string]any{"claims": append([]claims.Claim{}, all...)})
}
