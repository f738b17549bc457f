package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/failure"
)

type claimsAbandonOptions struct {
	*Deps
	Claim  string
	Reason string
}

func newClaimsAbandon(d *Deps) *cobra.Command {
	o := &claimsAbandonOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "abandon CLAIM",
		Short: "Abandon a claim whose resource can never be proved to be gone",
		Long: `Abandon a claim after you have looked for its resource yourself. The command prints the exact identity of what may still
exist, and records it permanently with your reason. A claim is refused if laufwerk cleanup was never tried on it.`,
		Example: "$ laufwerk claims abandon cabcdefghijklmno --reason 'the machine was reinstalled'",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Claim = args[0]
			return runClaimsAbandon(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Reason, "reason", "", "record `TEXT` as the reason (required)")
	return cmd
}

func runClaimsAbandon(ctx context.Context, o *claimsAbandonOptions) error {
	if err := refuseInsideSession("claims abandon"); err != nil {
		return err
	}
	if o.Reason == "" {
		return failure.New(failure.Usage, "abandoning a claim needs a reason, which is recorded permanently").
			WithHint("laufwerk claims abandon %s --reason 'why nothing can be proved'", failure.Quote(o.Claim))
	}
	s, err := o.Open(ctx, false)
	if err != nil {
		return err
	}
	c, err := s.Driver.Get(ctx, o.Claim)
	if err != nil {
		return err
	}
	if c, err = s.Driver.Abandon(ctx, c.ID, o.Reason); err != nil {
		return err
	}
	printClaim(o.UI, c)
	return o.UI.Document(c)
}
