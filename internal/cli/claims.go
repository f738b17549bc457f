package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cli/render"
)

func newClaims(d *Deps) *cobra.Command {
	g := Group("claims", "Look at everything that was allocated, and give up what can never be proved",
		newClaimsList(d), newClaimsShow(d), newClaimsAbandon(d))
	g.GroupID = SectionOperate
	return g
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
