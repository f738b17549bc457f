package claims

import (
	"context"
	"time"

	"github.com/laufwerk/laufwerk/internal/resource"
)

// Matches says whether something that was found is this claim's resource, judged by its labels alone. Labels are inherited by
// copies of images and homes, so every one of them must fit, and the thing must have been made after the intent. Engines that
// report whole seconds are met half-way. Where the recorded id is known, that id decides instead: see Sighted.
func (c Claim) Matches(name, owner, claimLabel, image string, created time.Time) bool {
	return name != "" && name == c.Intent.Name &&
		owner != "" && owner == c.Intent.Owner &&
		claimLabel == c.ID && image == c.Image &&
		!created.Before(c.IntentAt.Truncate(time.Second))
}

// Identification is what a found resource is to this store.
type Identification struct {
	Found resource.Summary
	Claim Claim // the zero value for a stranger's
	Late  bool  // its claim was released: it arrived late, and Arrived takes it up again
}

// HasClaim says whether it is ours. Everything else is left alone.
func (s Identification) HasClaim() bool { return s.Claim.ID != "" }

// Identify tells whose the listed resources are. It reads the claims now, after the resources were listed: the other way
// round, a resource whose claim was written in between would look like nobody's.
func (d *Driver) Identify(ctx context.Context, found []resource.Summary) ([]Identification, error) {
	list, err := d.List(ctx, Filter{})
	if err != nil {
		return nil, err
	}
	out := make([]Identification, 0, len(found))
	for _, f := range found {
		s := Identification{Found: f}
		for _, c := range list {
			if c.State == Abandoned {
				continue
			}
			sameID := c.Intent.Resource != "" && c.Intent.Resource == f.Resource
			byLabels := (c.Intent.Resource == "" || !c.Outstanding()) && c.Matches(f.Name, f.Owner, f.Claim, f.Image, f.Created)
			if sameID || byLabels {
				s.Claim, s.Late = c, !c.Outstanding()
				break
			}
		}
		out = append(out, s)
	}
	return out, nil
}

// Readopt takes a released claim up again because its resource was seen after all. The claim is then deleting: Release ends it.
func (d *Driver) Readopt(ctx context.Context, claim, found string, evidence ...resource.Evidence) (Claim, error) {
	return d.advance(ctx, Claim{ID: claim}, Created, d.withEvidence("arrived late", found, evidence...))
}
