package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cli/render"
	"github.com/laufwerk/laufwerk/internal/failure"
)

func newClaims(d *Deps) *cobra.Command {
	g := Group("claims", "Look at everything that was allocated, and give up what can never be proved",
		newClaimsList(d), newClaimsShow(d), newClaimsAbandon(d))
	g.GroupID = SectionOperate
	return g
}

type claimsListOptions struct {
	Deps *Deps
	All  bool
	Run  string
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
	s, err := o.Deps.Open.ToRead(ctx)
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
	printClaims(o.Deps.UI, o.Deps.Env.Now(), all)
	if len(all) == 0 {
		o.Deps.UI.Talkf("no claims\n")
	}
	return o.Deps.UI.Document(map[string]any{"claims": append([]claims.Claim{}, all...)})
}

// printClaims prints claims as people read them: what, when it was meant, when it was there, and what proved its end.
func printClaims(ui *render.UI, now time.Time, list []claims.Claim) {
	rows := make([][]any, 0, len(list))
	clock := func(t time.Time) string { return claimTime(now, t) }
	for _, c := range list {
		rows = append(rows, []any{c.ID, string(c.Kind), string(c.State), c.Run, clock(c.IntentAt), clock(c.AllocatedAt), clock(c.ReleasedAt), claimProof(c), claimLocation(c)})
	}
	ui.Table([]string{"CLAIM", "KIND", "STATE", "RUN", "INTENT", "ALLOCATED", "RELEASED", "PROOF", "WHERE"}, rows)
}

// claimLocation is where a claim's resource is: what it is called there, what it was made from, and on which endpoint.
func claimLocation(c claims.Claim) string {
	if c.Image == "" {
		return c.Intent.Endpoint
	}
	resource := c.Intent.Resource
	if resource == "" {
		resource = c.Intent.Name
	}
	return shortID(resource) + " from " + shortID(c.Image) + " on the " + c.Intent.Endpoint
}

// shortID is the beginning of an id, as engines print it; names stay as they are.
func shortID(id string) string {
	hex := strings.TrimPrefix(id, "sha256:")
	if len(hex) != 64 {
		return id
	}
	return strings.TrimSuffix(id, hex) + hex[:12]
}

// claimTime is a time of today, or with its day.
func claimTime(now, t time.Time) string {
	const day = "2006-01-02"
	switch {
	case t.IsZero():
		return "-"
	case t.Local().Format(day) != now.Local().Format(day):
		return t.Local().Format(day + " 15:04:05")
	}
	return t.Local().Format("15:04:05.000")
}

func claimProof(c claims.Claim) string {
	switch {
	case c.Keep != "":
		return "kept: " + c.Keep
	case c.State == claims.Released && len(c.Evidence) > 0:
		return c.Evidence[len(c.Evidence)-1].What
	default:
		return c.Last
	}
}

type claimsShowOptions struct {
	Deps  *Deps
	Claim string
}

func newClaimsShow(d *Deps) *cobra.Command {
	o := &claimsShowOptions{Deps: d}
	return &cobra.Command{
		Use:     "show CLAIM",
		Short:   "Show one claim with its exact identity and all evidence",
		Example: "$ laufwerk claims show cabcdefghijklmno",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Claim = args[0]
			return runClaimsShow(cmd.Context(), o)
		},
	}
}

func runClaimsShow(ctx context.Context, o *claimsShowOptions) error {
	s, err := o.Deps.Open.ToRead(ctx)
	if err != nil {
		return err
	}
	c, err := s.Driver.Get(ctx, o.Claim)
	if err != nil {
		return err
	}
	printClaim(o.Deps.UI, c)
	if r, err := s.Get(ctx, c.Run); c.Outstanding() && err == nil && !r.Terminal() {
		o.Deps.UI.Next("laufwerk runs show " + r.ID)
	} else if c.Outstanding() {
		o.Deps.UI.Next(c.CleanupHint())
	}
	return o.Deps.UI.Document(c)
}

func printClaim(ui *render.UI, c claims.Claim) {
	ui.Printf("claim %s\nkind %s, state %s\nrun %s, operation %s\n", ui.Out.Bold(c.ID), string(c.Kind), string(c.State), c.Run, c.Operation)
	ui.Printf("name %s, owner %s, endpoint %s, resource %s\n", c.Intent.Name, c.Intent.Owner, c.Intent.Endpoint, c.Intent.Resource)
	if c.Image != "" {
		ui.Printf("image %s\n", c.Image)
	}
	ui.Printf("spec %s\n", string(c.Intent.Spec))
	if c.Keep != "" {
		ui.Printf("kept: %s\n", c.Keep)
	}
	if c.Reason != "" {
		ui.Printf("abandoned: %s\n", c.Reason)
	}
	for _, a := range c.Accepted {
		ui.Printf("%s %s (uid %d) said that %s is %s now\n", a.At.Local().Format(time.DateTime), a.Who.User, a.Who.UID, a.Old, a.New)
	}
	for _, e := range c.Evidence {
		ui.Printf("%s %s\n", e.At.Local().Format(time.DateTime), e.What)
	}
}

type claimsAbandonOptions struct {
	Deps   *Deps
	Claim  string
	Reason string
}

func newClaimsAbandon(d *Deps) *cobra.Command {
	o := &claimsAbandonOptions{Deps: d}
	cmd := &cobra.Command{
		Use:   "abandon CLAIM",
		Short: "Give up a claim whose end can never be proved",
		Long: `Give up a claim after you looked for its resource yourself. The command prints the exact identity of what may still
exist, and keeps it with your reason for ever. A claim that clean-up was never tried on is refused.`,
		Example: "$ laufwerk claims abandon cabcdefghijklmno --reason 'the machine was reinstalled'",
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Claim = args[0]
			return runClaimsAbandon(cmd.Context(), o)
		},
	}
	cmd.Flags().StringVar(&o.Reason, "reason", "", "why nothing can be proved (needed)")
	return cmd
}

func runClaimsAbandon(ctx context.Context, o *claimsAbandonOptions) error {
	if err := RefuseInsideSession("claims abandon"); err != nil {
		return err
	}
	if o.Reason == "" {
		return failure.New(failure.Usage, "abandoning a claim needs a reason, which is kept for ever").
			WithHint("laufwerk claims abandon %s --reason 'why nothing can be proved'", failure.Quote(o.Claim))
	}
	s, err := o.Deps.Open(ctx, false)
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
	printClaim(o.Deps.UI, c)
	return o.Deps.UI.Document(c)
}
