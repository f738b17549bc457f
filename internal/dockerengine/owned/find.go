package owned

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/laufwerk/laufwerk/internal/dockerengine"
	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/resource"
)

type lookup struct {
	presence  resource.Presence
	container container.InspectResponse
	evidence  []resource.Evidence
	err       error // why nothing could be learned, or whose it is
}

// find looks for the intent's container: by its id where that is known, which decides alone, else by its name.
func (c Container) find(ctx context.Context, e *dockerengine.Engine, in resource.Intent) lookup {
	by := cmp.Or(in.Resource, in.Name)
	got, presence, err := e.Inspect(ctx, by)
	switch {
	case presence == resource.Absent:
		return lookup{presence: presence, evidence: c.evidence("the %s has no container %s", in.Endpoint, by)}
	case presence != resource.Present:
		return lookup{err: err}
	case in.Resource != "":
		if got.ID != in.Resource { // an engine also takes names and beginnings of ids
			return lookup{presence: resource.Absent, evidence: c.evidence("the %s has no container with the id %s", in.Endpoint, by)}
		}
		return lookup{presence: presence, container: got, evidence: c.evidence("the container %s has the recorded id", got.ID)}
	}
	if why := foreignReason(got, in, c.Image); why != "" {
		return lookup{
			presence: resource.Foreign, container: got, evidence: c.evidence("a container that is not ours has the name %s: %s", in.Name, why),
			err: failure.New(failure.AlreadyExists, "a container that is not laufwerk's has the name %s (%s), and was not touched", in.Name, why).
				WithHint("docker rename %s other-name", in.Name),
		}
	}
	return lookup{presence: presence, container: got, evidence: c.evidence("the container %s has our name, labels and image, and was created after the intent", got.ID)}
}

// foreignReason says why a container of our name is not ours, "" if it is.
func foreignReason(got container.InspectResponse, in resource.Intent, image string) string {
	created, err := time.Parse(time.RFC3339Nano, got.Created)
	switch {
	case got.Name != "/"+in.Name:
		return "its name is " + strings.TrimPrefix(got.Name, "/")
	case got.Config == nil:
		return "the engine does not say how it was made"
	case in.Owner == "" || got.Config.Labels[LabelOwner] != in.Owner:
		return "it is not labelled with our owner"
	case in.Claim == "" || got.Config.Labels[LabelClaim] != in.Claim:
		return "it is not labelled with our claim"
	case image == "" || got.Image != image:
		return "it was made from another image"
	case err != nil:
		return "the engine does not say when it was created"
	case created.Before(in.At.Truncate(time.Second)):
		return "it was created before its claim"
	}
	return ""
}
