package openshell

import (
	"context"
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
	"github.com/laufwerk/laufwerk/internal/system/crash"
)

// Create asks for a sandbox, which is made later: Get says what becomes of it. A name that is taken, also by a sandbox that is
// being deleted, is a failure of kind AlreadyExists; like every Unknown it has to be read back, by name and labels, and again
// later. NotDone is certain.
func (g *Gateway) Create(ctx context.Context, request *wire.CreateSandboxRequest) (*wire.Sandbox, resource.Outcome, error) {
	c, cancel := beginCall(ctx, g.limits.effect)
	defer cancel()
	r := proto.CloneOf(request)
	r.Workspace = Workspace
	if err := checkSize(r); err != nil {
		return nil, resource.NotDone, failure.Wrap(err, failure.Failed, "create the sandbox %s", r.GetName())
	}
	crash.Point("openshell/before-create")
	answer, err := g.client().CreateSandbox(c.ctx, r)
	crash.Point("openshell/after-create")
	if m := answer.GetSandbox().GetMetadata(); err == nil && (m.GetId() == "" || m.GetName() != r.GetName()) {
		return nil, resource.Unknown, failure.New(failure.OutcomeUnknown, "create the sandbox %s: the gateway answers with %q, which has no id or another name", r.GetName(), m.GetName())
	}
	done, err := g.endEffect(c, err, "create the sandbox %s", r.GetName())
	return answer.GetSandbox(), done, err
}

// Get looks at a sandbox. Absent is the gateway's own answer for this name, and not yet proof: a container may be left. Every
// other failure is Unobserved.
func (g *Gateway) Get(ctx context.Context, name string) (*wire.Sandbox, resource.Presence, error) {
	c, cancel := beginCall(ctx, g.limits.query)
	defer cancel()
	answer, err := g.client().GetSandbox(c.ctx, &wire.GetSandboxRequest{Name: name, Workspace: Workspace})
	if c.isAbsent(err, "sandbox not found") {
		return nil, resource.Absent, nil
	}
	if err != nil {
		return nil, resource.Unobserved, g.endRead(c, err, "inspect the sandbox %s", name)
	}
	if m := answer.GetSandbox().GetMetadata(); m.GetId() == "" || m.GetName() != name {
		return nil, resource.Unobserved, failure.New(failure.NotReady, "inspect the sandbox %s: the gateway answers with %q, which has no id or another name", name, m.GetName())
	}
	return answer.GetSandbox(), resource.Present, nil
}

// isAbsent says whether the gateway answered that it has no such thing. The same code is that of a workspace which is not there.
func (c *call) isAbsent(err error, words string) bool {
	return c.answered.Load() && c.hasAnswer(err, codes.NotFound, words) && strings.EqualFold(strings.TrimSpace(statusText(err)), words)
}

const (
	page      = 1000 // the most that a gateway lists at once
	maxPasses = 20
)

// List finds the sandboxes that carry all labels. Pages overlap by one: where the listing moved meanwhile, which would hide
// sandboxes, it begins again.
func (g *Gateway) List(ctx context.Context, labels map[string]string) ([]*wire.Sandbox, error) {
	for range maxPasses {
		found, whole, err := g.listPages(ctx, labels)
		if err != nil {
			return nil, err
		}
		if whole {
			return slices.DeleteFunc(found, func(s *wire.Sandbox) bool { return !hasLabels(s, labels) }), nil
		}
	}
	return nil, failure.New(failure.NotReady, "list the sandboxes of laufwerk: they change faster than %s lists them", g)
}

func (g *Gateway) listPages(ctx context.Context, labels map[string]string) (found []*wire.Sandbox, whole bool, err error) {
	c, cancel := beginCall(ctx, g.limits.query)
	defer cancel()
	for {
		offset := max(len(found)-1, 0)
		answer, err := g.client().ListSandboxes(c.ctx, &wire.ListSandboxesRequest{
			Limit: page, Offset: uint32(offset), LabelSelector: selector(labels), Workspace: Workspace, //nolint:gosec // a count of sandboxes
		})
		if err != nil {
			return nil, false, g.endRead(c, err, "list the sandboxes of laufwerk")
		}
		got := answer.GetSandboxes()
		if offset > 0 {
			if len(got) == 0 || got[0].GetMetadata().GetId() != found[offset].GetMetadata().GetId() {
				return nil, false, nil
			}
			found = append(found, got[1:]...)
		} else {
			found = got
		}
		if len(got) < page {
			return found, true, nil
		}
	}
}

func selector(labels map[string]string) string {
	var pairs []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, name+"="+labels[name])
	}
	return strings.Join(pairs, ",")
}

func hasLabels(s *wire.Sandbox, labels map[string]string) bool {
	has := s.GetMetadata().GetLabels()
	for name, value := range labels {
		if v, ok := has[name]; !ok || v != value {
			return false
		}
	}
	return true
}

// Delete asks that a sandbox be deleted, in whatever phase. It knows the name alone: whose it is has to be seen before. Yes says
// that the gateway took it, or has no such sandbox; that it is gone is observed afterwards.
func (g *Gateway) Delete(ctx context.Context, name string) (resource.Outcome, error) {
	c, cancel := beginCall(ctx, g.limits.effect)
	defer cancel()
	crash.Point("openshell/before-delete")
	_, err := g.client().DeleteSandbox(c.ctx, &wire.DeleteSandboxRequest{Name: name, Workspace: Workspace})
	crash.Point("openshell/after-delete")
	if c.isAbsent(err, "sandbox not found") {
		return resource.Done, nil
	}
	return g.endEffect(c, err, "delete the sandbox %s", name)
}

// PolicySource says whose policy holds in a sandbox: its own, or one of the gateway that replaces it.
func (g *Gateway) PolicySource(ctx context.Context, id string) (wire.PolicySource, error) {
	c, cancel := beginCall(ctx, g.limits.query)
	defer cancel()
	answer, err := g.client().GetSandboxConfig(c.ctx, &wire.GetSandboxConfigRequest{SandboxId: id})
	if err == nil && answer.GetPolicySource() == wire.PolicySource_POLICY_SOURCE_UNSPECIFIED {
		err = errors.New("the gateway does not say it")
	}
	if err != nil {
		return wire.PolicySource_POLICY_SOURCE_UNSPECIFIED, g.endRead(c, err, "read which policy applies to the sandbox %s", id)
	}
	return answer.GetPolicySource(), nil
}

// The labels of every sandbox of ours, on the sandbox, where selectors find them, and on its template, from where they get to
// the container.
const (
	LabelOwner = "dev.laufwerk.owner" // the store's id
	LabelClaim = "dev.laufwerk.claim"
	LabelRun   = "dev.laufwerk.run" // "" for preparation and probes
)

// Labels are the labels of a claim's sandbox. A gateway takes values of at most 63 letters, digits, "-", "_" and ".", which
// our ids are.
func Labels(owner, claim, run string) map[string]string {
	return map[string]string{LabelOwner: owner, LabelClaim: claim, LabelRun: run}
}

// Name is the name of a claim's sandbox. A gateway gives a name once, takes at most 19 characters of a-z, 0-9 and single
// hyphens, and deletes by name alone: so it is the same for the same claim, and nobody can guess that of another.
func Name(claim string) string {
	sum := sha256.Sum256([]byte(claim))
	return "lw-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:16]
}

// Workspace is the gateway's workspace of all that is ours. It is named in every request: where it is left out, it means this
// one for sandboxes and providers, and the whole platform for profiles.
const Workspace = "default"
