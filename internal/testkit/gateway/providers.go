package gateway

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// provider is one with its values; told is what the gateway says of it.
type provider struct {
	shown  *wire.Provider
	values map[string]string
}

func (p *provider) response() *wire.ProviderResponse {
	told := proto.CloneOf(p.shown)
	told.Credentials = map[string]string{}
	for key := range p.values {
		told.Credentials[key] = "REDACTED"
	}
	return &wire.ProviderResponse{Provider: told}
}

// builtin are the profiles that every gateway has, of those one that matters here.
func builtin() map[string]*wire.ProviderProfile {
	codex := &wire.ProviderProfile{
		Id: "codex", DisplayName: "Codex", Description: "OpenAI Codex CLI", Category: wire.ProviderProfileCategory_PROVIDER_PROFILE_CATEGORY_AGENT,
		InferenceCapable: true, Source: "builtin", Discovery: &wire.ProviderProfileDiscovery{},
	}
	for _, of := range []struct{ name, env, description string }{
		{"access_token", "CODEX_AUTH_ACCESS_TOKEN", "Codex OAuth access token"}, {"refresh_token", "CODEX_AUTH_REFRESH_TOKEN", "Codex OAuth refresh token"},
		{"account_id", "CODEX_AUTH_ACCOUNT_ID", "Codex account identifier"}, {"id_token", "CODEX_AUTH_ID_TOKEN", "Codex OAuth ID token"},
	} {
		codex.Credentials = append(codex.Credentials, &wire.ProviderProfileCredential{
			Name: of.name, Description: of.description, EnvVars: []string{of.env}, Required: of.name != "id_token",
		})
		codex.Discovery.Credentials = append(codex.Discovery.Credentials, of.name)
	}
	for _, host := range []string{"api.openai.com", "auth.openai.com", "chatgpt.com", "ab.chatgpt.com"} {
		codex.Endpoints = append(codex.Endpoints, &wire.NetworkEndpoint{Host: host, Port: 443, Protocol: "rest", Access: "read-write", Enforcement: "enforce"})
	}
	for _, path := range []string{"/usr/bin/codex", "/usr/local/bin/codex", "/usr/lib/node_modules/@openai/**"} {
		codex.Binaries = append(codex.Binaries, &wire.NetworkBinary{Path: path})
	}
	return map[string]*wire.ProviderProfile{"codex": codex}
}

func (l *life) GetProviderProfile(_ context.Context, req *wire.GetProviderProfileRequest) (*wire.ProviderProfileResponse, error) {
	if req.GetWorkspace() != "" {
		if err := workspace(req.GetWorkspace()); err != nil {
			return nil, err
		}
	}
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	p := l.g.profiles[req.GetId()]
	if p == nil || req.GetWorkspace() == "" { // "" is the platform, which has none
		return nil, status.Error(codes.NotFound, "provider profile not found")
	}
	return &wire.ProviderProfileResponse{Profile: proto.CloneOf(p)}, nil
}

var profilePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`) //nolint:gochecknoglobals // constant

// ImportProviderProfiles imports all or nothing. What is wrong with a profile is no error of the call.
func (l *life) ImportProviderProfiles(_ context.Context, req *wire.ImportProviderProfilesRequest) (*wire.ImportProviderProfilesResponse, error) {
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	if len(req.GetProfiles()) == 0 {
		return nil, invalid("profiles are required")
	}
	out := &wire.ImportProviderProfilesResponse{}
	wrong := func(item *wire.ProviderProfileImportItem, field, format string, args ...any) {
		out.Diagnostics = append(out.Diagnostics, &wire.ProviderProfileDiagnostic{
			Source: item.GetSource(), ProfileId: item.GetProfile().GetId(), Field: field, Message: fmt.Sprintf(format, args...), Severity: "error",
		})
	}
	if !l.change(func() {
		for _, item := range req.GetProfiles() {
			p := item.GetProfile()
			switch {
			case !profilePattern.MatchString(p.GetId()):
				wrong(item, "id", "provider profile id '%s' is not valid", p.GetId())
			case l.g.profiles[p.GetId()] != nil:
				wrong(item, "id", "provider profile '%s' already exists", p.GetId())
			}
			for _, c := range p.GetCredentials() {
				if c.GetName() == "" || len(c.GetEnvVars()) == 0 {
					wrong(item, "credentials", "credential '%s' needs a name and environment variables", c.GetName())
				}
			}
			for _, e := range p.GetEndpoints() {
				if why := unsafeEndpoint(e); why != "" {
					wrong(item, "endpoints", "%s", why)
				}
			}
		}
		if len(out.GetDiagnostics()) > 0 {
			return
		}
		out.Imported = true
		for _, item := range req.GetProfiles() {
			p := proto.CloneOf(item.GetProfile())
			p.Source, p.Scope, p.ResourceVersion = "user", "workspace", 1
			l.g.profiles[p.GetId()] = p
			out.Profiles = append(out.Profiles, proto.CloneOf(p))
		}
	}) {
		return nil, broken()
	}
	return out, nil
}

func (l *life) GetProvider(_ context.Context, req *wire.GetProviderRequest) (*wire.ProviderResponse, error) {
	if req.GetName() == "" {
		return nil, invalid("name is required")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	p := l.g.providers[req.GetName()]
	if p == nil {
		return nil, status.Error(codes.NotFound, "provider not found")
	}
	return p.response(), nil
}

func (l *life) CreateProvider(_ context.Context, req *wire.CreateProviderRequest) (*wire.ProviderResponse, error) {
	asked := req.GetProvider()
	name := asked.GetMetadata().GetName()
	switch {
	case name == "" || len(name) > 253:
		return nil, invalid("provider.metadata.name is required, with at most 253 characters")
	case asked.GetType() == "" || len(asked.GetType()) > 64:
		return nil, invalid("provider.type is required, with at most 64 characters")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	if err := validCredentials(asked.GetCredentials(), asked.GetConfig()); err != nil {
		return nil, err
	}
	var out *wire.ProviderResponse
	var err error
	if !l.change(func() {
		if l.g.providers[name] != nil {
			err = status.Errorf(codes.AlreadyExists, "provider '%s' already exists", name)
			return
		}
		p := &provider{shown: proto.CloneOf(asked), values: maps.Clone(asked.GetCredentials())}
		p.shown.Metadata = &wire.ObjectMeta{
			Id: newID(), Name: name, CreatedAtMs: time.Now().UnixMilli(), Labels: asked.GetMetadata().GetLabels(), ResourceVersion: 1, Workspace: "default",
		}
		l.g.providers[name] = p
		out = p.response()
	}) {
		err = broken()
	}
	return out, err
}

// UpdateProvider merges; an empty value takes a key away.
func (l *life) UpdateProvider(_ context.Context, req *wire.UpdateProviderRequest) (*wire.ProviderResponse, error) {
	asked := req.GetProvider()
	name := asked.GetMetadata().GetName()
	if name == "" {
		return nil, invalid("provider.metadata.name is required")
	}
	if err := workspace(req.GetWorkspace()); err != nil {
		return nil, err
	}
	if err := validCredentials(asked.GetCredentials(), asked.GetConfig()); err != nil {
		return nil, err
	}
	var out *wire.ProviderResponse
	var err error
	if !l.change(func() {
		p := l.g.providers[name]
		version := asked.GetMetadata().GetResourceVersion()
		switch {
		case p == nil:
			err = status.Error(codes.NotFound, "provider not found")
			return
		case asked.GetType() != "" && asked.GetType() != p.shown.GetType():
			err = invalid("provider type cannot be changed")
			return
		case version != 0 && version != p.shown.GetMetadata().GetResourceVersion():
			err = status.Error(codes.Aborted, "provider was modified concurrently")
			return
		}
		merge(&p.values, asked.GetCredentials())
		merge(&p.shown.Config, asked.GetConfig())
		if p.shown.CredentialExpiresAtMs == nil {
			p.shown.CredentialExpiresAtMs = map[string]int64{}
		}
		maps.Copy(p.shown.CredentialExpiresAtMs, req.GetCredentialExpiresAtMs())
		maps.DeleteFunc(p.shown.CredentialExpiresAtMs, func(key string, at int64) bool { return at == 0 || p.values[key] == "" })
		p.shown.Metadata.ResourceVersion++
		out = p.response()
	}) {
		err = broken()
	}
	return out, err
}

func merge(into *map[string]string, from map[string]string) {
	if *into == nil {
		*into = map[string]string{}
	}
	maps.Copy(*into, from)
	maps.DeleteFunc(*into, func(_, value string) bool { return value == "" })
}

func validCredentials(values, config map[string]string) error {
	if len(values) > 32 || len(config) > 64 {
		return invalid("provider exceeds its limits (32 credentials, 64 config entries)")
	}
	for key, value := range values {
		switch {
		case !variablePattern.MatchString(key) || strings.HasPrefix(key, "OPENSHELL_"):
			return invalid("credential key '%s' is not valid", key)
		case len(value) > 8192:
			return invalid("credential value of '%s' exceeds maximum length (%d > 8192)", key, len(value))
		}
	}
	return nil
}

// exposable says why providers cannot be given to a sandbox.
func (g *Gateway) exposable(names []string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	of := map[string]string{}
	for _, name := range names {
		p := g.providers[name]
		if p == nil {
			return refused("provider '%s' not found", name)
		}
		for key := range p.values {
			if other, twice := of[key]; twice {
				return refused("providers '%s' and '%s' both expose '%s'", other, name, key)
			}
			of[key] = name
		}
	}
	return nil
}

const placeholder = "openshell:resolve:env:"

// expired keys are not handed out. g.mu is held.
func (p *provider) expired(key string) bool {
	at := p.shown.GetCredentialExpiresAtMs()[key]
	return at != 0 && at <= time.Now().UnixMilli()
}

// environment is what every process of a sandbox has. g.mu is held.
func (l *life) environment(r *row) []string {
	user := r.sandbox.GetSpec().GetPolicy().GetProcess().GetRunAsUser()
	out := []string{
		"OPENSHELL_SANDBOX=1", "HOME=/sandbox", "USER=" + user, "SHELL=/bin/bash", "TERM=xterm-256color",
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	for _, env := range []map[string]string{r.sandbox.GetSpec().GetTemplate().GetEnvironment(), r.sandbox.GetSpec().GetEnvironment()} {
		for _, key := range slices.Sorted(maps.Keys(env)) {
			out = append(out, key+"="+env[key])
		}
	}
	const proxy, local = "http://" + proxyAddress, "127.0.0.1,localhost,::1"
	for _, name := range []string{"ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "grpc_proxy"} {
		out = append(out, name+"="+proxy)
	}
	out = append(out, "NO_PROXY="+local, "no_proxy="+local, "NODE_USE_ENV_PROXY=1", "NODE_EXTRA_CA_CERTS="+authorityFile)
	for _, name := range []string{"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"} {
		out = append(out, name+"="+bundleFile)
	}
	for _, name := range r.sandbox.GetSpec().GetProviders() {
		p := l.g.providers[name]
		if p == nil {
			continue
		}
		for _, key := range slices.Sorted(maps.Keys(p.values)) {
			if !p.expired(key) {
				out = append(out, fmt.Sprintf("%s=%sv%d_%s", key, placeholder, p.shown.GetMetadata().GetResourceVersion(), key))
			}
		}
	}
	return out
}

// Where a sandbox finds the proxy, and its authority's certificate alone and with those of the image.
const (
	proxyAddress  = "127.0.0.1:3128"
	authorityFile = "/etc/openshell-tls/openshell-ca.pem"
	bundleFile    = "/etc/openshell-tls/ca-bundle.pem"
)
