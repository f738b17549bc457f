package gateway

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// unsafePolicy is what a gateway finds wrong with a policy, "" for nothing. It does not look at enforcement, access, tls,
// binaries, landlock.compatibility, schemes in hosts or loopback addresses.
func unsafePolicy(p *wire.SandboxPolicy) string {
	if p == nil {
		return ""
	}
	for what, id := range map[string]string{"run_as_user": p.GetProcess().GetRunAsUser(), "run_as_group": p.GetProcess().GetRunAsGroup()} {
		if n, err := strconv.ParseUint(id, 10, 32); id != "" && id != "sandbox" && (err != nil || n == 0 || n > 4294967294) {
			return fmt.Sprintf("%s '%s' must be 'sandbox' or a number from 1 to 4294967294", what, id)
		}
	}
	all := slices.Concat(p.GetFilesystem().GetReadOnly(), p.GetFilesystem().GetReadWrite())
	if len(all) > 256 {
		return "too many filesystem paths"
	}
	for _, name := range all {
		if len(name) > 4096 || !path.IsAbs(name) || slices.Contains(strings.Split(name, "/"), "..") {
			return fmt.Sprintf("filesystem path '%s' must be absolute and without '..'", name)
		}
	}
	for _, name := range p.GetFilesystem().GetReadWrite() {
		if path.Clean(name) == "/" {
			return "read-write access to '/'"
		}
	}
	for key, rule := range p.GetNetworkPolicies() {
		if strings.HasPrefix(key, "_provider_") {
			return fmt.Sprintf("network policy key '%s' is reserved", key)
		}
		for _, e := range rule.GetEndpoints() {
			if why := unsafeEndpoint(e); why != "" {
				return fmt.Sprintf("network policy '%s': %s", key, why)
			}
		}
	}
	return ""
}

func unsafeEndpoint(e *wire.NetworkEndpoint) string {
	host := e.GetHost()
	if host == "" && len(e.GetAllowedIps()) == 0 {
		return "endpoint requires a host or allowed_ips"
	}
	if strings.HasPrefix(host, "*") {
		if domain, dot := strings.CutPrefix(strings.TrimLeft(host, "*"), "."); !dot || !strings.Contains(domain, ".") {
			return fmt.Sprintf("wildcard host '%s' is too wide", host)
		}
	}
	ports := e.GetPorts()
	if len(ports) == 0 {
		ports = []uint32{e.GetPort()}
	}
	for _, port := range ports {
		if port == 0 || port > 65535 {
			return fmt.Sprintf("port %d is not valid", port)
		}
	}
	protocol := e.GetProtocol()
	if !slices.Contains([]string{"", "tcp", "rest", "websocket", "graphql", "sql", "json-rpc", "mcp"}, protocol) {
		return fmt.Sprintf("unknown protocol '%s'", protocol)
	}
	rules, access := len(e.GetRules()) > 0, e.GetAccess() != ""
	l7 := protocol != "" && protocol != "tcp"
	switch {
	case rules && access:
		return "rules and access exclude each other"
	case (protocol == "mcp" || protocol == "json-rpc") && access:
		return fmt.Sprintf("protocol '%s' does not take access", protocol)
	case l7 && !rules && !access:
		return fmt.Sprintf("protocol '%s' requires rules or access", protocol)
	case len(e.GetDenyRules()) > 0 && (!l7 || !rules && !access):
		return "deny_rules require a protocol and rules or access"
	case protocol == "sql" && e.GetEnforcement() == "enforce":
		return "sql cannot be enforced"
	case e.GetPath() != "" && !strings.HasPrefix(e.GetPath(), "/"):
		return fmt.Sprintf("path '%s' must start with '/'", e.GetPath())
	}
	return ""
}

// enrich is what the supervisor adds to a policy that lets anything out; it says whether it did. g.mu is held.
func (r *row) enrich() bool {
	if len(r.policy.GetNetworkPolicies()) == 0 {
		return false
	}
	if r.policy.Filesystem == nil {
		r.policy.Filesystem = &wire.FilesystemPolicy{}
	}
	fs, changed := r.policy.Filesystem, false
	add := func(to *[]string, paths ...string) {
		for _, p := range paths {
			if !slices.Contains(fs.ReadOnly, p) && !slices.Contains(fs.ReadWrite, p) {
				*to, changed = append(*to, p), true
			}
		}
	}
	add(&fs.ReadOnly, "/usr", "/lib", "/etc", "/var/log", "/proc", "/dev/urandom")
	add(&fs.ReadWrite, "/tmp")
	if changed {
		r.sandbox.Spec.Policy = proto.CloneOf(r.policy)
	}
	return changed
}

func hash(p *wire.SandboxPolicy) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(p)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
