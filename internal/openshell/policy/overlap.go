package policy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/options"
)

type locatedEndpoint struct {
	at     string
	traits string // all of them: where they are the same, there is nothing to compare
	*wire.NetworkEndpoint
}

// trait is what two endpoints that one request could be for have to say in the same way: the gateway refuses a policy of which
// it could not tell which one holds. What they permit adds up.
type trait struct {
	name string
	of   func(*wire.NetworkEndpoint) string
}

func connection() []trait {
	return []trait{
		{"protocol", func(e *wire.NetworkEndpoint) string { // a connection that no proxy is asked for, or one that is
			if e.GetProtocol() == tcp {
				return tcp
			}
			return ""
		}},
		{"tls", func(e *wire.NetworkEndpoint) string {
			if e.GetTls() == skip {
				return skip
			}
			return ""
		}},
		{"allowedIps", func(e *wire.NetworkEndpoint) string {
			list := slices.Clone(e.GetAllowedIps())
			slices.Sort(list)
			return strings.ToLower(strings.Join(slices.Compact(list), " "))
		}},
		{"advisorProposed", func(e *wire.NetworkEndpoint) string { return fmt.Sprint(e.GetAdvisorProposed()) }},
	}
}

// handling are the traits of what happens to a request on its way.
func handling(a, b *wire.NetworkEndpoint) []trait {
	list := []trait{
		{"protocol", (*wire.NetworkEndpoint).GetProtocol},
		{"enforcement", (*wire.NetworkEndpoint).GetEnforcement},
		{"allowEncodedSlash", func(e *wire.NetworkEndpoint) string { return fmt.Sprint(e.GetAllowEncodedSlash()) }},
		{"websocketCredentialRewrite", func(e *wire.NetworkEndpoint) string { return fmt.Sprint(e.GetWebsocketCredentialRewrite()) }},
		{"requestBodyCredentialRewrite", func(e *wire.NetworkEndpoint) string { return fmt.Sprint(e.GetRequestBodyCredentialRewrite()) }},
		{"credentialSigning", (*wire.NetworkEndpoint).GetCredentialSigning},
		{"signingService", (*wire.NetworkEndpoint).GetSigningService},
		{"signingRegion", (*wire.NetworkEndpoint).GetSigningRegion},
		{"credentialBinding.provider", func(e *wire.NetworkEndpoint) string { return e.GetCredentialBinding().GetProvider() }},
	}
	limit := func(n uint32) string { return fmt.Sprint(cmp.Or(n, 64<<10)) }
	if a.GetProtocol() != b.GetProtocol() {
		return list
	}
	switch a.GetProtocol() {
	case graphql:
		list = append(list, trait{"graphqlMaxBodyBytes", func(e *wire.NetworkEndpoint) string { return limit(e.GetGraphqlMaxBodyBytes()) }})
	case websocket:
		list = append(list, trait{"rules", func(e *wire.NetworkEndpoint) string { return fmt.Sprintf("for GraphQL: %v", ofGraphQL(e)) }})
	case mcp:
		list = append(list, trait{"mcp.strictToolNames", func(e *wire.NetworkEndpoint) string {
			return fmt.Sprint(e.GetMcp().GetStrictToolNames() || e.GetMcp() == nil || e.GetMcp().StrictToolNames == nil)
		}})
		fallthrough
	case jsonRPC:
		list = append(list, trait{"jsonRpcMaxBodyBytes", func(e *wire.NetworkEndpoint) string { return limit(e.GetJsonRpcMaxBodyBytes()) }})
	}
	return list
}

// unambiguous refuses endpoints that the same request could be for, and that want different things done with it.
func unambiguous(p Policies) error {
	var list []locatedEndpoint
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for i, e := range p[name].GetEndpoints() {
			var all []string
			for _, t := range append(connection(), handling(e, e)...) {
				all = append(all, t.of(e))
			}
			list = append(list, locatedEndpoint{options.Index(options.Join(member(Option, name), "endpoints"), i), strings.Join(all, "\x00"), e})
		}
	}
	for j, b := range list {
		for _, a := range list[:j] {
			if a.traits == b.traits {
				continue
			}
			port := sharedPort(a.NetworkEndpoint, b.NetworkEndpoint)
			if port == 0 || !hostsOverlap(a.GetHost(), b.GetHost()) {
				continue
			}
			traits := connection()
			if handles(a.NetworkEndpoint) && handles(b.NetworkEndpoint) && pathsOverlap(a.GetPath(), b.GetPath()) {
				traits = append(traits, handling(a.NetworkEndpoint, b.NetworkEndpoint)...)
			}
			for _, t := range traits {
				if there, here := t.of(a.NetworkEndpoint), t.of(b.NetworkEndpoint); there != here {
					return options.Invalid(options.Join(b.at, t.name), "%s is for the same requests on port %d, and says %q where this one says %q: OpenShell could not decide which one applies", a.at, port, there, here)
				}
			}
		}
	}
	return nil
}

// handles says whether an endpoint has a say in what happens to a request.
func handles(e *wire.NetworkEndpoint) bool {
	return slices.Contains(inspected(), e.GetProtocol()) || len(e.GetAllowedIps()) > 0 || e.GetTls() != "" || e.GetCredentialBinding() != nil
}

func sharedPort(a, b *wire.NetworkEndpoint) uint32 {
	of := func(e *wire.NetworkEndpoint) []uint32 {
		if len(e.GetPorts()) > 0 {
			return e.GetPorts()
		}
		return []uint32{e.GetPort()}
	}
	for _, port := range of(b) {
		if slices.Contains(of(a), port) {
			return port
		}
	}
	return 0
}

func hostsOverlap(a, b string) bool {
	a, b = strings.ToLower(a), strings.ToLower(b)
	if a == "" || b == "" || !strings.Contains(a+b, "*") {
		return a == "" || b == "" || a == b
	}
	return overlap(pattern(a, false), pattern(b, false), '.')
}

// pathsOverlap is false for two paths of which one says more than the other: that one holds.
func pathsOverlap(a, b string) bool {
	all := func(p string) bool { return p == "" || p == "**" || p == "/**" }
	if specificity(a) != specificity(b) {
		return false
	}
	if all(a) || all(b) {
		return true
	}
	for _, x := range subtree(a) {
		for _, y := range subtree(b) {
			if overlap(pattern(x, true), pattern(y, true), '/') {
				return true
			}
		}
	}
	return false
}

// specificity is how OpenShell ranks paths.
func specificity(path string) int { return len([]rune(strings.ReplaceAll(path, "*", ""))) }

// subtree are the patterns that a path stands for: /a/** is /a itself, and what is below it.
func subtree(path string) []string {
	if dir, ok := strings.CutSuffix(path, "/**"); ok {
		return []string{dir, path}
	}
	return []string{path}
}

// sign is one place of a pattern.
type sign struct {
	r    rune // a letter; 0 is any letter
	many bool // any number of letters, also none
	far  bool // of those: separators too
}

// pattern splits a pattern. In paths a * crosses separators, and ? and [a-z] stand for one letter; what a class leaves out is not
// looked at.
func pattern(s string, path bool) (out []sign) {
	list := []rune(s)
	for i := 0; i < len(list); i++ {
		switch r := list[i]; {
		case r == '*':
			stars := 1
			for i+1 < len(list) && list[i+1] == '*' {
				stars, i = stars+1, i+1
			}
			out = append(out, sign{many: true, far: path || stars > 1})
		case path && r == '?':
			out = append(out, sign{})
		case path && r == '[':
			if n := slices.Index(list[i:], ']'); n > 0 {
				i += n
			}
			out = append(out, sign{})
		default:
			out = append(out, sign{r: r})
		}
	}
	return out
}

// overlap says whether any text matches both patterns.
func overlap(a, b []sign, separator rune) bool {
	type state struct{ i, j int }
	seen := map[state]bool{}
	var meet func(i, j int) bool
	meet = func(i, j int) bool {
		if seen[state{i, j}] {
			return false
		}
		seen[state{i, j}] = true
		moreA, moreB := i < len(a), j < len(b)
		switch {
		case !moreA && !moreB:
			return true
		case moreA && a[i].many && meet(i+1, j), moreB && b[j].many && meet(i, j+1):
			return true
		case !moreA || !moreB || a[i].many && b[j].many:
			return false
		case a[i].many:
			return (a[i].far || b[j].r != separator) && meet(i, j+1)
		case b[j].many:
			return (b[j].far || a[i].r != separator) && meet(i+1, j)
		default:
			return (a[i].r == b[j].r || a[i].r == 0 || b[j].r == 0) && meet(i+1, j+1)
		}
	}
	return meet(0, 0)
}
