package policy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/options"
)

// The protocols that OpenShell looks into. Any other connection is permitted, or not, as a whole.
const (
	rest      = "rest"
	websocket = "websocket"
	graphql   = "graphql"
	jsonRPC   = "json-rpc"
	mcp       = "mcp"
)

func inspected() []string { return []string{rest, websocket, graphql, jsonRPC, mcp} }

const (
	tcp     = "tcp"     // the same as no protocol, for programs that do not ask a proxy
	skip    = "skip"    // of tls
	enforce = "enforce" // of enforcement
)

// purpose is which protocols a field of an endpoint means something for.
type purpose struct {
	field     string
	protocols []string
}

func purposes() []purpose {
	return []purpose{
		{"enforcement", inspected()},
		{"access", []string{rest, websocket, graphql}},
		{"rules", inspected()},
		{"denyRules", inspected()},
		{"path", inspected()},
		{"allowEncodedSlash", inspected()},
		{"credentialSigning", inspected()},
		{"signingService", inspected()},
		{"signingRegion", inspected()},
		{"persistedQueries", []string{graphql, websocket}},
		{"graphqlPersistedQueries", []string{graphql, websocket}},
		{"graphqlMaxBodyBytes", []string{graphql, websocket}},
		{"jsonRpcMaxBodyBytes", []string{jsonRPC, mcp}},
		{"mcp", []string{mcp}},
		{"websocketCredentialRewrite", []string{rest, websocket}},
		{"requestBodyCredentialRewrite", []string{rest}},
	}
}

func checkEndpoint(at string, e *wire.NetworkEndpoint) error {
	for _, check := range []func(string, *wire.NetworkEndpoint) error{
		checkWords, checkPurposes, checkEnforcement, checkHost, checkAddresses, checkPorts, checkCredentials, checkScope, checkRequests,
	} {
		if err := check(at, e); err != nil {
			return err
		}
	}
	return nil
}

// checkWords holds the choices, which are plain strings for OpenShell. It takes most words that it does not know for none.
func checkWords(at string, e *wire.NetworkEndpoint) error {
	switch {
	case e.GetProtocol() == "sql":
		return options.Invalid(at+".protocol", "sql is refused: OpenShell cannot enforce rules on SQL, it logs what breaks them and lets it through. Without a protocol the connection is permitted as a whole")
	case e.GetTls() == "passthrough":
		return options.Invalid(at+".tls", `"passthrough" is refused: it has no effect, and TLS is decrypted anyway; "skip" prevents that`)
	case e.GetEnforcement() == "audit":
		return options.Invalid(at+".enforcement", `"audit" is refused: it logs what breaks the rules, and allows it. Only "enforce" refuses it`)
	}
	for _, w := range []struct {
		field, got string
		words      []string
	}{
		{"protocol", e.GetProtocol(), append([]string{tcp}, inspected()...)},
		{"tls", e.GetTls(), []string{skip, "terminate"}},
		{"enforcement", e.GetEnforcement(), []string{enforce}},
		{"access", e.GetAccess(), []string{"read-only", "read-write", "full"}},
		{"persistedQueries", e.GetPersistedQueries(), []string{"deny", "allow_registered"}},
		{"credentialSigning", e.GetCredentialSigning(), []string{"sigv4", "sigv4:body", "sigv4:no_body"}},
	} {
		if w.got != "" && !slices.Contains(w.words, w.got) {
			return options.Invalid(at+"."+w.field, "expected %s, got %q", oneOf(w.words), w.got)
		}
	}
	return nil
}

// oneOf completes "expected …".
func oneOf(words []string) string { return `"` + strings.Join(words, `" or "`) + `"` }

// checkPurposes refuses what means nothing for the endpoint's protocol. Without one, nothing restricts what goes over the
// connection, whatever else the endpoint says.
func checkPurposes(at string, e *wire.NetworkEndpoint) error {
	m := e.ProtoReflect()
	has := func(name string) bool { return m.Has(m.Descriptor().Fields().ByJSONName(name)) }
	for _, p := range purposes() {
		switch {
		case !has(p.field) || slices.Contains(p.protocols, e.GetProtocol()):
		case e.GetProtocol() == jsonRPC && p.field == "access":
			return options.Invalid(at+".access", `is not for json-rpc: list the methods in rules, "*" for all`)
		case e.GetProtocol() == mcp && p.field == "access":
			return options.Invalid(at+".access", "is not for mcp: list the methods in rules, or give mcp.allowAllKnownMcpMethods")
		case slices.Contains(inspected(), e.GetProtocol()):
			return options.Invalid(at+"."+p.field, "has no effect for the protocol %q, only for %s", e.GetProtocol(), oneOf(p.protocols))
		default:
			return options.Invalid(at+"."+p.field, "has no effect without a protocol that OpenShell inspects: the connection is permitted as a whole. Give protocol %s", oneOf(p.protocols))
		}
	}
	if e.GetTls() == skip && slices.Contains(inspected(), e.GetProtocol()) {
		return options.Invalid(at+".tls", `with "skip" the connection is not inspected, so that the rules for the protocol %q would not apply: remove one of the two`, e.GetProtocol())
	}
	return nil
}

func checkEnforcement(at string, e *wire.NetworkEndpoint) error {
	if slices.Contains(inspected(), e.GetProtocol()) && e.GetEnforcement() != enforce {
		return options.Invalid(at+".enforcement", `expected "enforce", got none: without it OpenShell logs what breaks the rules, and allows it`)
	}
	return nil
}

// checkHost holds what a host can be: OpenShell compares it with the name that a program asks for, letter by letter.
func checkHost(at string, e *wire.NetworkEndpoint) error {
	host := e.GetHost()
	refuse := func(format string, args ...any) error { return options.Invalid(at+".host", format, args...) }
	switch {
	case host == "" && len(e.GetAllowedIps()) == 0:
		return refuse("expected a host, or allowedIps that a host of any name must resolve to, got neither")
	case host == "" && (e.GetProtocol() == tcp || e.GetProtocol() == mcp || e.GetCredentialBinding() != nil):
		return refuse("expected a host: an endpoint of the protocol %q, or with a credentialBinding, needs one", e.GetProtocol())
	case host == "":
		return nil
	case strings.Contains(host, "://"):
		return refuse("expected a name such as api.example.com, without a scheme, got %q: OpenShell accepts it, and it never matches", host)
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		switch {
		case e.GetProtocol() == tcp:
			return refuse("expected a DNS name for the protocol tcp, got the address %s", host)
		case addr.Zone() != "" || addr.String() != host:
			return refuse("expected the address as %s, got %q", addr.WithZone(""), host)
		case blocked(netip.PrefixFrom(addr, addr.BitLen())):
			return refuse("%s is refused: %s", host, never)
		}
		return nil
	}
	const expected = "a DNS name such as api.example.com, with *. or **. before it for names below it"
	labels := strings.Split(strings.ToLower(host), ".")
	switch {
	case strings.ContainsAny(host, "/?#"):
		return refuse("expected %s, got %q: a path of it is the field path", expected, host)
	case strings.Contains(host, ":") && strings.Trim(host[strings.LastIndex(host, ":")+1:], "0123456789") == "":
		return refuse("expected %s, got %q: its port is the field port", expected, host)
	case labels[len(labels)-1] == "localhost":
		return refuse("%s is refused: %s", host, never)
	case strings.HasSuffix(host, "."):
		return refuse("expected %s, got %q: without the dot at its end, which never matches", expected, host)
	case len(host) > 253 || !isName(labels):
		return refuse("expected %s, got %q", expected, host)
	case !strings.Contains(host, "*"):
		return nil
	case len(labels) <= 2:
		return refuse("expected %s, got %q, which covers too much: OpenShell takes wildcards below a name of two parts only", expected, host)
	}
	for i, label := range labels {
		if strings.Contains(label, "**") && (i > 0 || label != "**") {
			return refuse("expected ** as the whole first part of the name only, got %q", host)
		}
		if i > 0 && label != "*" && strings.Contains(label, "*") {
			return refuse("expected * as a whole part of the name (in the first one, also as a bit of it), got %q", host)
		}
	}
	return nil
}

func isName(labels []string) bool {
	return !slices.ContainsFunc(labels, func(l string) bool {
		return l == "" || len(l) > 63 || strings.Trim(l, "abcdefghijklmnopqrstuvwxyz0123456789_-*") != ""
	})
}

const never = "loopback, link-local and unspecified addresses are always blocked in a sandbox, whatever a policy says"

// blocked says whether a range has addresses that OpenShell never permits.
func blocked(p netip.Prefix) bool {
	for _, b := range []string{
		"127.0.0.0/8", "169.254.0.0/16", "0.0.0.0/32", "::1/128", "::/128", "fe80::/10",
		"::ffff:127.0.0.0/104", "::ffff:169.254.0.0/112", "::ffff:0.0.0.0/128",
	} {
		if p.Overlaps(netip.MustParsePrefix(b)) {
			return true
		}
	}
	return false
}

func checkAddresses(at string, e *wire.NetworkEndpoint) error {
	for i, s := range e.GetAllowedIps() {
		path := options.Index(at+".allowedIps", i)
		p, err := netip.ParsePrefix(s)
		if addr, aerr := netip.ParseAddr(s); aerr == nil && addr.Zone() == "" {
			p, err = netip.PrefixFrom(addr, addr.BitLen()), nil
		}
		switch {
		case err != nil:
			return options.Invalid(path, "expected an address or a range such as 10.0.5.0/24, got %q", s)
		case blocked(p):
			return options.Invalid(path, "%s is refused, or has addresses in it that are: %s", s, never)
		}
	}
	return nil
}

func checkPorts(at string, e *wire.NetworkEndpoint) error {
	type port struct {
		at string
		n  uint32
	}
	var ports []port
	for i, n := range e.GetPorts() {
		ports = append(ports, port{options.Index(at+".ports", i), n})
	}
	switch {
	case len(ports) > 0 && e.GetPort() != 0:
		return options.Invalid(at+".ports", "expected either port or ports, got both")
	case len(ports) == 0:
		ports = []port{{at + ".port", e.GetPort()}}
	}
	for _, p := range ports {
		switch {
		case p.n < 1 || p.n > 65535:
			return options.Invalid(p.at, "expected a port from 1 to 65535, got %s", map[bool]string{true: "none", false: fmt.Sprint(p.n)}[p.n == 0])
		case (len(e.GetAllowedIps()) > 0 || !strings.Contains(e.GetHost(), "*")) && slices.Contains([]uint32{2379, 2380, 6443, 10250, 10255}, p.n):
			return options.Invalid(p.at, "%d is refused: OpenShell always blocks the ports of control planes (2379, 2380, 6443, 10250, 10255)", p.n)
		}
	}
	return nil
}

func checkCredentials(at string, e *wire.NetworkEndpoint) error {
	switch signs := e.GetCredentialSigning() != ""; {
	case signs && e.GetSigningService() == "":
		return options.Invalid(at+".signingService", "expected the name of the service to sign for, as credentialSigning is given, got none")
	case signs && e.GetRequestBodyCredentialRewrite():
		return options.Invalid(at+".requestBodyCredentialRewrite", "cannot be together with credentialSigning")
	case !signs && e.GetSigningService() != "":
		return options.Invalid(at+".signingService", "has no effect without credentialSigning")
	case !signs && e.GetSigningRegion() != "":
		return options.Invalid(at+".signingRegion", "has no effect without credentialSigning")
	}
	if b := e.GetCredentialBinding(); b != nil && (b.GetProvider() == "" || strings.TrimSpace(b.GetProvider()) != b.GetProvider()) {
		return options.Invalid(at+".credentialBinding.provider", "expected a provider's name, without white space around it, got %q", b.GetProvider())
	}
	return nil
}

func checkScope(at string, e *wire.NetworkEndpoint) error {
	if p := e.GetPath(); p != "" {
		if !strings.HasPrefix(p, "/") && p != "**" {
			return options.Invalid(at+".path", "expected a path that begins with /, or **, got %q", p)
		}
		return checkGlob(at+".path", p)
	}
	return nil
}

// checkGlob refuses a pattern whose brackets do not match: OpenShell accepts it, and it never matches what it should.
func checkGlob(at, pattern string) error {
	for _, pair := range []string{"[]", "{}"} {
		depth := 0
		for _, r := range pattern {
			if r == rune(pair[0]) {
				depth++
			} else if r == rune(pair[1]) {
				depth--
			}
			if depth < 0 {
				break
			}
		}
		if depth != 0 {
			return options.Invalid(at, "expected a pattern, got %q, in which a %s has no counterpart", pattern, map[bool]string{true: pair[:1], false: pair[1:]}[depth > 0])
		}
	}
	return nil
}

func fieldsOf(m protoreflect.Message) (names []string) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		if f := fields.Get(i); m.Has(f) {
			names = append(names, f.JSONName())
		}
	}
	return names
}
