package cli

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/laufwerk/laufwerk/internal/claims"
	"github.com/laufwerk/laufwerk/internal/cli/render"
)

func newClaims(d *Deps) *cobra.Command {
	g := newGroup("claims", "List and show the resources that runs allocate, and abandon claims that cannot be released",
		newClaimsList(d), newClaimsShow(d), newClaimsAbandon(d))
	g.GroupID = sectionOperate
	return g
}

func printClaims(ui *render.UI, now time.Time, list []claims.Claim) {
	rows := make([][]any, 0, len(list))
	clock := func(t time.Time) string { return claimTime(now, t) }
	for _, c := range list {
		rows = append(rows, []any{c.ID, string(c.Kind), string(c.State), c.Run, clock(c.IntentAt), clock(c.AllocatedAt), clock(c.ReleasedAt), claimProof(c), claimLocation(c)})
	}
	ui.Table([]string{"CLAIM", "KIND", "STATE", "RUN", "INTENT", "ALLOCATED", "RELEASED", "PROOF", "WHERE"}, rows)
}

// claimLocation names a claim's resource, the image that it was made from, and its endpoint.
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

// claimTime is the time, with its date unless that is today.
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
		ui.Printf("%s %s (uid %d) accepted that %s is now %s\n", a.At.Local().Format(time.DateTime), a.Who.User, a.Who.UID, a.Old, a.New)
	}
	for _, e := range c.Evidence {
		ui.Printf("%s %s\n", e.At.Local().Format(time.DateTime), e.What)
	}
}
