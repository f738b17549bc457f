package openshell

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/resource"
)

func TestProvidersAndProfiles(t *testing.T) {
	var code codes.Code
	var text string
	empty := false
	g := serve(t, &fake{do: func(_ context.Context, r any) (any, error) {
		switch r := r.(type) {
		case *wire.GetProviderRequest:
			if r.GetWorkspace() != "default" {
				return nil, status.Error(codes.NotFound, "provider not found")
			}
			out := &wire.ProviderResponse{Provider: &wire.Provider{Type: r.GetName()}}
			if empty {
				out.Provider = nil
			}
			return out, status.Error(code, text)
		case *wire.GetProviderProfileRequest:
			if r.GetWorkspace() != "default" {
				return nil, status.Error(codes.NotFound, "provider profile not found")
			}
			out := &wire.ProviderProfileResponse{Profile: &wire.ProviderProfile{Id: r.GetId()}}
			if empty {
				out.Profile = nil
			}
			return out, status.Error(code, text)
		}
		return nil, status.Error(codes.Unimplemented, "what?")
	}}).connect(t)
	check := func(what string, want resource.Presence, kind failure.Kind) {
		t.Helper()
		p, is, err := g.Provider(t.Context(), "codex")
		if is != want || failure.KindOf(err) != kind || is == resource.Present && p.GetType() != "codex" {
			t.Errorf("%s: provider %v, %s, %v", what, p, is, err)
		}
		f, is, err := g.Profile(t.Context(), "codex")
		if is != want || failure.KindOf(err) != kind || is == resource.Present && f.GetId() != "codex" {
			t.Errorf("%s: profile %v, %s, %v", what, f, is, err)
		}
	}
	check("there", resource.Present, "")
	empty = true
	check("empty", resource.Unobserved, failure.NotReady)
	code, text = codes.NotFound, "workspace 'default' not found"
	check("no workspace", resource.Unobserved, failure.NotReady)
	code, text = codes.Internal, "database is away"
	check("away", resource.Unobserved, failure.NotReady)

	code, text = codes.NotFound, "provider not found"
	if _, is, err := g.Provider(t.Context(), "codex"); is != resource.Absent || err != nil {
		t.Errorf("%s, %v", is, err)
	}
	text = "provider profile not found"
	if _, is, err := g.Profile(t.Context(), "codex"); is != resource.Absent || err != nil {
		t.Errorf("%s, %v", is, err)
	}
}

// An import that is refused is no error of the call.
func TestImportIsRefused(t *testing.T) {
	answer := &wire.ImportProviderProfilesResponse{Diagnostics: []*wire.ProviderProfileDiagnostic{
		{ProfileId: "mine", Field: "binaries", Message: "a glob that is none", Severity: "error"}, {Message: "two"},
	}}
	var got *wire.ImportProviderProfilesRequest
	g := serve(t, &fake{do: func(_ context.Context, r any) (any, error) {
		got = r.(*wire.ImportProviderProfilesRequest)
		return answer, nil
	}}).connect(t)
	done, err := g.ImportProfile(t.Context(), &wire.ProviderProfile{Id: "mine"}, "laufwerk")
	f := failure.As(err)
	if done != resource.NotDone || f == nil || f.Kind != failure.Failed || len(f.Conditions) != 2 || f.Conditions[0] != (failure.Condition{ID: "mine binaries", Message: "a glob that is none"}) {
		t.Errorf("%s, %#v", done, f)
	}
	if got.GetWorkspace() != "default" || len(got.GetProfiles()) != 1 || got.GetProfiles()[0].GetSource() != "laufwerk" {
		t.Errorf("asked %v", got)
	}
	answer = &wire.ImportProviderProfilesResponse{Diagnostics: []*wire.ProviderProfileDiagnostic{{Message: "Profile 'mine' already exists"}}}
	if done, err := g.ImportProfile(t.Context(), &wire.ProviderProfile{Id: "mine"}, "laufwerk"); done != resource.NotDone || !failure.Is(err, failure.AlreadyExists) {
		t.Errorf("%s, %v", done, err)
	}
}

// Whatever a gateway answers, no error repeats what was sent in confidence.
func TestCredentialsAreNotRepeated(t *testing.T) {
	token := "eyJhbGciOiJub25lIn0.c2VjcmV0LXBheWxvYWQ.c2lnbmF0dXJl\n\"quoted\""
	p := &wire.Provider{
		Metadata: &wire.ObjectMeta{Name: "p"}, CredentialExpiresAtMs: map[string]int64{"CODEX_AUTH_ACCESS_TOKEN": 42},
		Credentials: map[string]string{"CODEX_AUTH_ACCESS_TOKEN": token, "SHORT": "hunter2", "EMPTY": ""},
	}
	quoted, err := json.Marshal(token)
	if err != nil {
		t.Fatal(err)
	}
	for name, echo := range map[string]string{
		"whole": "bad value " + token, "quoted": "bad value " + string(quoted), "a part": "bad value …" + token[20:30] + "…", "short": "bad value hunter2",
		"far behind": strings.Repeat("x", 5000) + token,
	} {
		for _, code := range []codes.Code{codes.InvalidArgument, codes.Internal, codes.AlreadyExists, codes.PermissionDenied, codes.Unavailable, codes.Unimplemented} {
			g := serve(t, &fake{do: func(context.Context, any) (any, error) { return nil, status.Error(code, echo) }}).connect(t)
			for _, do := range []func(context.Context, *wire.Provider) (resource.Outcome, error){g.CreateProvider, g.UpdateProvider} {
				_, err := do(t.Context(), p)
				text := fmt.Sprintf("%v %+v %#v", err, failure.As(err), failure.As(err))
				if err == nil || strings.Contains(text, token[20:30]) || strings.Contains(text, "hunter2") || !strings.Contains(text, "is not shown") || !strings.Contains(text, code.String()) {
					t.Errorf("%s, %s: it says %s", name, code, text)
				}
			}
		}
	}
	g := serve(t, &fake{do: func(context.Context, any) (any, error) {
		return nil, status.Error(codes.InvalidArgument, "unknown provider type")
	}}).connect(t)
	if _, err := g.CreateProvider(t.Context(), p); err == nil || !strings.Contains(err.Error(), "unknown provider type") {
		t.Errorf("what has no credential in it is shown: %v", err)
	}
	p.Credentials["LARGE"] = strings.Repeat("secret", 1<<18)
	if done, err := g.CreateProvider(t.Context(), p); done != resource.NotDone || err == nil || len(err.Error()) > 300 || strings.Contains(err.Error(), "secret") {
		t.Errorf("too large: %s, %v", done, err)
	}
}

func TestProviderRequests(t *testing.T) {
	var got any
	g := serve(t, &fake{do: func(_ context.Context, r any) (any, error) { got = r; return &wire.ProviderResponse{}, nil }}).connect(t)
	p := &wire.Provider{Metadata: &wire.ObjectMeta{Name: "p"}, Type: "laufwerk-codex", Credentials: map[string]string{"K": "v"}, CredentialExpiresAtMs: map[string]int64{"K": 42}}
	if done, err := g.CreateProvider(t.Context(), p); done != resource.Done || err != nil {
		t.Fatal(done, err)
	}
	if r := got.(*wire.CreateProviderRequest); r.GetWorkspace() != "default" || r.GetProvider().GetCredentials()["K"] != "v" || r.GetProvider().GetCredentialExpiresAtMs()["K"] != 42 {
		t.Errorf("asked %v", r)
	}
	if done, err := g.UpdateProvider(t.Context(), p); done != resource.Done || err != nil {
		t.Fatal(done, err)
	}
	if r := got.(*wire.UpdateProviderRequest); r.GetWorkspace() != "default" || r.GetProvider().GetType() != "laufwerk-codex" || r.GetCredentialExpiresAtMs()["K"] != 42 {
		t.Errorf("asked %v", r)
	}
}
