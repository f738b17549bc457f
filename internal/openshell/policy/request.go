package policy

import (
	"maps"
	"path"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/options"
)

// request is what a rule permits or denies: both have the same fields.
type request interface {
	proto.Message
	GetMethod() string
	GetPath() string
	GetQuery() map[string]*wire.L7QueryMatcher
	GetOperationType() string
	GetOperationName() string
	GetFields() []string
	GetParams() map[string]*wire.L7QueryMatcher
}

// checkRequests holds what an endpoint says of single requests.
func checkRequests(at string, e *wire.NetworkEndpoint) error {
	if !slices.Contains(inspected(), e.GetProtocol()) {
		return nil // checkPurposes found that it says nothing of them
	}
	everything := e.GetProtocol() == mcp && e.GetMcp().GetAllowAllKnownMcpMethods()
	switch {
	case len(e.GetRules()) > 0 && e.GetAccess() != "":
		return options.Invalid(at+".access", "expected either access or rules, got both")
	case len(e.GetRules()) == 0 && e.GetProtocol() == jsonRPC:
		return options.Invalid(at+".rules", `expected rules that say which methods are permitted ("*" for all), got none`)
	case len(e.GetRules()) == 0 && e.GetProtocol() == mcp && !everything:
		return options.Invalid(at+".rules", "expected rules that say which methods are permitted, or mcp.allowAllKnownMcpMethods, got neither")
	case len(e.GetRules()) == 0 && e.GetAccess() == "" && !everything:
		return options.Invalid(at+".access", "expected %s, or rules that say what is permitted, got neither", oneOf([]string{"read-only", "read-write", "full"}))
	}
	if err := checkRegistry(at, e); err != nil {
		return err
	}
	for i, r := range e.GetRules() {
		path := options.Index(at+".rules", i) + ".allow"
		if r.GetAllow() == nil {
			return options.Invalid(path, "expected an object that says what is permitted, got none")
		}
		if err := checkRequest(path, e, r.GetAllow()); err != nil {
			return err
		}
		if narrowed(e) && r.GetAllow().GetParams() == nil && callsTools(r.GetAllow().GetMethod()) {
			return options.Invalid(path, "permits every tool, so that the rules for single tools have no effect: give it params.name, or remove them")
		}
	}
	for i, r := range e.GetDenyRules() {
		path := options.Index(at+".denyRules", i)
		if err := checkRequest(path, e, r); err != nil {
			return err
		}
		if narrowed(e) && r.GetParams() == nil && callsTools(r.GetMethod()) {
			return options.Invalid(path, "denies every tool, so that the rules that permit single ones have no effect: give it params.name, or remove them")
		}
	}
	return nil
}

// checkRequest holds one rule. What it lacks, OpenShell takes for an empty word, which no request has.
func checkRequest(at string, e *wire.NetworkEndpoint, r request) error {
	possible, err := possibleFields(at, e, r)
	if err != nil {
		return err
	}
	for _, name := range fieldsOf(r.ProtoReflect()) {
		if !slices.Contains(possible, name) {
			return options.Invalid(options.Join(at, name), "has no effect in this rule of the protocol %q; there are `%s`", e.GetProtocol(), strings.Join(possible, "`, `"))
		}
	}
	for _, check := range []func(string, *wire.NetworkEndpoint, request) error{checkMethod, checkTool, checkOperation, checkPatterns} {
		if err := check(at, e, r); err != nil {
			return err
		}
	}
	return nil
}

// possibleFields are those that mean something. A rule for websockets is either for the connection and its messages, or for the
// GraphQL operations in them.
func possibleFields(at string, e *wire.NetworkEndpoint, r request) ([]string, error) {
	transport, operation := []string{"method", "path", "query"}, []string{"operationType", "operationName", "fields"}
	has := fieldsOf(r.ProtoReflect())
	ofOperation := slices.ContainsFunc(has, func(name string) bool { return slices.Contains(operation, name) })
	switch e.GetProtocol() {
	case websocket:
		if ofOperation && slices.ContainsFunc(has, func(name string) bool { return slices.Contains(transport, name) }) {
			return nil, options.Invalid(at, "expected either `%s` or `%s` in a rule for websockets, got some of both", strings.Join(transport, "`, `"), strings.Join(operation, "`, `"))
		}
		if ofOperation {
			return operation, nil
		}
		return transport, nil
	case graphql:
		return operation, nil
	case jsonRPC:
		return []string{"method"}, nil
	case mcp:
		return []string{"method", "params"}, nil
	default:
		return transport, nil
	}
}

func checkMethod(at string, e *wire.NetworkEndpoint, r request) error {
	method, path := r.GetMethod(), options.Join(at, "method")
	words := []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "*"}
	if e.GetProtocol() == websocket {
		words = []string{"GET", "WEBSOCKET_TEXT", "*"}
	}
	const wild = "*?[]{}"
	switch {
	case e.GetProtocol() == graphql || e.GetProtocol() == websocket && operations(r):
	case e.GetProtocol() == rest || e.GetProtocol() == websocket:
		if !slices.Contains(words, method) {
			return options.Invalid(path, "expected %s, got %q", oneOf(words), method)
		}
		if e.GetProtocol() == websocket && method == "WEBSOCKET_TEXT" && ofGraphQL(e) {
			return options.Invalid(path, "cannot be WEBSOCKET_TEXT where the endpoint has rules for GraphQL operations: they decide on messages")
		}
	case method == "":
		return options.Invalid(path, "expected the name of a method, got none")
	case e.GetProtocol() == jsonRPC && method != "*" && strings.ContainsAny(method, wild):
		return options.Invalid(path, `expected the name of one method, or "*" for all, got the pattern %q`, method)
	case e.GetProtocol() == mcp && strings.ContainsAny(method, wild) && !strings.HasPrefix(method, "tools/"):
		return options.Invalid(path, "expected the name of one method, or a pattern that begins with tools/, got %q; mcp.allowAllKnownMcpMethods permits all", method)
	}
	return nil
}

// checkTool holds the parameters of a call, of which only a tool's name can be told apart.
func checkTool(at string, e *wire.NetworkEndpoint, r request) error {
	for _, name := range slices.Sorted(maps.Keys(r.GetParams())) {
		path := member(options.Join(at, "params"), name)
		m := r.GetParams()[name]
		switch {
		case name != "name":
			return options.Invalid(path, "there is no such parameter: OpenShell tells tools apart by `name` only, not by their arguments")
		case r.GetMethod() != "tools/call":
			return options.Invalid(options.Join(at, "method"), "expected %q in a rule for a tool's name, got %q", "tools/call", r.GetMethod())
		case e.GetMcp().GetStrictToolNames() || e.GetMcp() == nil || e.GetMcp().StrictToolNames == nil:
		case slices.ContainsFunc(append([]string{m.GetGlob()}, m.GetAny()...), func(s string) bool { return strings.ContainsAny(s, "*?[]{}") }):
			return options.Invalid(path, "expected names without wildcards where mcp.strictToolNames is false")
		}
	}
	return nil
}

func checkOperation(at string, e *wire.NetworkEndpoint, r request) error {
	if e.GetProtocol() != graphql && !operations(r) {
		return nil
	}
	return operationType(options.Join(at, "operationType"), r.GetOperationType())
}

func operationType(at, got string) error {
	if words := []string{"query", "mutation", "subscription"}; !slices.Contains(words, got) {
		return options.Invalid(at, "expected %s, got %q", oneOf(words), got)
	}
	return nil
}

// checkPatterns holds what is matched by patterns.
func checkPatterns(at string, e *wire.NetworkEndpoint, r request) error {
	if p := r.GetPath(); (e.GetProtocol() == rest || e.GetProtocol() == websocket && !operations(r)) && !strings.HasPrefix(p, "/") && p != "**" {
		return options.Invalid(options.Join(at, "path"), "expected a path that begins with /, or ** for all, got %q", p)
	}
	patterns := []struct{ at, pattern string }{
		{options.Join(at, "method"), r.GetMethod()}, {options.Join(at, "path"), r.GetPath()}, {options.Join(at, "operationName"), r.GetOperationName()},
	}
	for i, f := range r.GetFields() {
		path := options.Index(options.Join(at, "fields"), i)
		if f == "" {
			return options.Invalid(path, "expected the name of a field, or a pattern, got none")
		}
		patterns = append(patterns, struct{ at, pattern string }{path, f})
	}
	for _, p := range patterns {
		if err := checkGlob(p.at, p.pattern); err != nil {
			return err
		}
	}
	if err := checkMatchers(options.Join(at, "query"), r.GetQuery()); err != nil {
		return err
	}
	return checkMatchers(options.Join(at, "params"), r.GetParams())
}

func checkMatchers(at string, matchers map[string]*wire.L7QueryMatcher) error {
	for _, key := range slices.Sorted(maps.Keys(matchers)) {
		if err := checkMatcher(member(at, key), matchers[key]); err != nil {
			return err
		}
	}
	return nil
}

func checkMatcher(at string, m *wire.L7QueryMatcher) error {
	if (m.GetGlob() == "") == (len(m.GetAny()) == 0) {
		return options.Invalid(at, "expected either { glob: \"…\" } or { any: [\"…\", \"…\"] }")
	}
	for i, p := range m.GetAny() {
		if p == "" {
			return options.Invalid(options.Index(at+".any", i), "expected a pattern, got none")
		}
		if err := checkGlob(options.Index(at+".any", i), p); err != nil {
			return err
		}
	}
	return checkGlob(at+".glob", m.GetGlob())
}

func checkRegistry(at string, e *wire.NetworkEndpoint) error {
	if len(e.GetGraphqlPersistedQueries()) > 0 && e.GetPersistedQueries() != "allow_registered" {
		return options.Invalid(at+".persistedQueries", `expected "allow_registered", as graphqlPersistedQueries is given, got %q`, e.GetPersistedQueries())
	}
	for _, key := range slices.Sorted(maps.Keys(e.GetGraphqlPersistedQueries())) {
		path, q := member(at+".graphqlPersistedQueries", key), e.GetGraphqlPersistedQueries()[key]
		if err := operationType(path+".operationType", q.GetOperationType()); err != nil {
			return err
		}
		if len(q.GetFields()) == 0 || slices.Contains(q.GetFields(), "") {
			return options.Invalid(path+".fields", "expected the names of the root fields that the query selects")
		}
	}
	return nil
}

func operations(r request) bool {
	return r.GetOperationType() != "" || r.GetOperationName() != "" || len(r.GetFields()) > 0
}

// ofGraphQL says whether an endpoint has anything to say of GraphQL operations.
func ofGraphQL(e *wire.NetworkEndpoint) bool {
	return len(e.GetGraphqlPersistedQueries()) > 0 || e.GetPersistedQueries() == "allow_registered" ||
		slices.ContainsFunc(e.GetRules(), func(r *wire.L7Rule) bool { return operations(r.GetAllow()) }) ||
		slices.ContainsFunc(e.GetDenyRules(), func(r *wire.L7DenyRule) bool { return operations(r) })
}

func narrowed(e *wire.NetworkEndpoint) bool {
	return slices.ContainsFunc(e.GetRules(), func(r *wire.L7Rule) bool { return len(r.GetAllow().GetParams()) > 0 })
}

// callsTools says whether a method, or a pattern of methods, is that of a tool's call.
func callsTools(method string) bool {
	// A * of OpenShell's crosses slashes here.
	ok, err := path.Match(strings.ReplaceAll(method, "/", "\x00"), "tools\x00call")
	return ok && err == nil
}
