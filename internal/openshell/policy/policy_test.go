package policy

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/laufwerk/laufwerk/internal/failure"
	"github.com/laufwerk/laufwerk/internal/openshell/wire"
)

// endpoint is a policy of one endpoint.
func endpoint(fields string) string {
	return `{"p":{"endpoints":[{` + fields + `}],"binaries":[{"path":"/usr/bin/git"}]}}`
}

// call is one whose protocol is looked into.
func call(protocol, fields string) string {
	return endpoint(`"host":"api.example.com","port":443,"enforcement":"enforce","protocol":"` + protocol + `",` + fields)
}

const (
	at   = "policy.p.endpoints[0]"
	rule = at + ".rules[0].allow"
)

func TestPoliciesThatAreRight(t *testing.T) {
	for _, given := range []string{
		`{}`,
		endpoint(`"host":"example.com","port":22`),
		endpoint(`"host":"example.com","ports":[80,443],"protocol":""`),
		endpoint(`"host":"example.com","port":22,"protocol":"tcp"`),
		endpoint(`"host":"example.com","port":22,"tls":"skip"`),
		endpoint(`"host":"example.com","port":22,"tls":"terminate"`),
		endpoint(`"host":"*.example.com","port":443`),
		endpoint(`"host":"**.example.com","port":443`),
		endpoint(`"host":"api-*.example.com","port":443`),
		endpoint(`"host":"api.*.example.com","port":6443`),
		endpoint(`"host":"10.0.5.20","port":443`),
		endpoint(`"host":"fd00::1","port":443`),
		endpoint(`"port":443,"allowedIps":["10.0.5.0/24","192.168.1.7","fd00::/8"]`),
		endpoint(`"host":"example.com","port":443,"allowUninspectedCredentials":true,"advisorProposed":true,"providerCredentialed":true`),
		endpoint(`"host":"example.com","port":443,"credentialBinding":{"provider":"p"}`),
		endpoint(`"host":"example.com","port":443,"rules":[],"allowedIps":null`),
		call("rest", `"access":"read-write"`),
		call("rest", `"access":"full","path":"/repos/**","allowEncodedSlash":true,"websocketCredentialRewrite":true,"requestBodyCredentialRewrite":true`),
		call("rest", `"access":"read-only","credentialSigning":"sigv4","signingService":"bedrock","signingRegion":"eu-west-1"`),
		call("rest", `"rules":[{"allow":{"method":"GET","path":"/x/*","query":{"a b":{"glob":"1*"},"c":{"any":["1","2"]}}}}],"denyRules":[{"method":"*","path":"**"}]`),
		call("websocket", `"access":"full","denyRules":[{"method":"WEBSOCKET_TEXT","path":"/x"}]`),
		call("websocket", `"rules":[{"allow":{"method":"GET","path":"/x"}},{"allow":{"operationType":"query","fields":["a*"]}}]`),
		call("graphql", `"access":"read-only"`),
		call("graphql", `"rules":[{"allow":{"operationType":"mutation","operationName":"Do*","fields":["do"]}}],"graphqlMaxBodyBytes":1024,`+
			`"persistedQueries":"allow_registered","graphqlPersistedQueries":{"abc":{"operationType":"query","operationName":"Q","fields":["q"]}}`),
		call("json-rpc", `"rules":[{"allow":{"method":"*"}}],"denyRules":[{"method":"eth_sign"}],"jsonRpcMaxBodyBytes":1`),
		call("mcp", `"mcp":{"allowAllKnownMcpMethods":true},"denyRules":[{"method":"tools/call","params":{"name":{"any":["rm","dd"]}}}]`),
		call("mcp", `"rules":[{"allow":{"method":"initialize"}},{"allow":{"method":"tools/list"}},{"allow":{"method":"tools/call","params":{"name":{"glob":"read_*"}}}}],"mcp":{"strictToolNames":true}`),
		`{"p":{"name":"P","endpoints":[{"host":"example.com","port":443}],"binaries":[{"path":"/opt/**/bin/*","harness":true},{"path":"/usr/bin/["}]}}`,
		`{"p":{"$typeName":"openshell.sandbox.v1.NetworkPolicyRule","name":"","endpoints":[{"$typeName":"openshell.sandbox.v1.NetworkEndpoint","host":"example.com","port":0,"ports":[443],` +
			`"protocol":"","tls":"","enforcement":"","access":"","rules":[],"allowedIps":[],"denyRules":[],"allowEncodedSlash":false,"graphqlPersistedQueries":{},"jsonRpcMaxBodyBytes":0}],` +
			`"binaries":[{"$typeName":"openshell.sandbox.v1.NetworkBinary","path":"/usr/bin/git","harness":false}]}}`,
	} {
		p, err := Parse(json.RawMessage(given))
		if err != nil {
			t.Errorf("%s: %v", given, err)
			continue
		}
		normal, err := json.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(normal)
		if err != nil {
			t.Errorf("%s: its normal form is refused: %s %v", given, normal, err)
			continue
		}
		twice, _ := json.Marshal(again)
		var read Policies
		if err := json.Unmarshal(normal, &read); err != nil || string(twice) != string(normal) {
			t.Errorf("%s: the normal form changed: %s, %s, %v", given, normal, twice, err)
		}
		for name, r := range read {
			if !proto.Equal(r, p[name]) {
				t.Errorf("%s: read back as %s", given, protojson.Format(r))
			}
		}
	}
}

func TestPoliciesThatAreRefused(t *testing.T) {
	for _, c := range []struct{ given, path, message string }{
		{`null`, "policy", "expected OpenShell's networkPolicies"},
		{`[]`, "policy", "got an array"},
		{`{"p":null}`, "policy.p", "expected an object, got null"},
		{`{"networkPolicies":{}}`, "policy.networkPolicies", "give what is below networkPolicies"},
		{`{"version":1}`, "policy.version", "are configured by laufwerk"},
		{`{"filesystem":{"readOnly":["/"]}}`, "policy.filesystem", "are configured by laufwerk"},
		{`{"":{}}`, `policy[""]`, "not empty"},
		{`{"_provider_x":{}}`, "policy._provider_x", "OpenShell keeps"},
		{`{"a b":{}}`, `policy["a b"].endpoints`, "at least one endpoint"},
		{`{"p":{"endpoints":[],"binaries":[{"path":"/x"}]}}`, "policy.p.endpoints", "at least one endpoint"},
		{`{"p":{"endpoint":[]}}`, "policy.p.endpoint", "did you mean `endpoints`?"},
		{`{"p":{"endpoints":{}}}`, "policy.p.endpoints", "expected an array, got an object"},
		{`{"p":{"endpoints":[null]}}`, "policy.p.endpoints[0]", "expected an object, got null"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}]}}`, "policy.p.binaries", "at least one program"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":["/x"]}}`, "policy.p.binaries[0]", "expected an object"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":[{}]}}`, "policy.p.binaries[0].path", "got none"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":[{"path":"git"}]}}`, "policy.p.binaries[0].path", "never matches"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":[{"path":"**"}]}}`, "policy.p.binaries[0].path", "absolute"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":[{"path":"/usr/../git"}]}}`, "policy.p.binaries[0].path", ".. never matches"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":[{"path":"/usr/bin/"}]}}`, "policy.p.binaries[0].path", "an empty name"},
		{`{"p":{"endpoints":[{"host":"example.com","port":1}],"binaries":[{"path":"/usr/*/[a"}]}}`, "policy.p.binaries[0].path", "no counterpart"},
		{`{"p":{"$typeName":"openshell.sandbox.v1.SandboxPolicy"}}`, "policy.p.$typeName", `expected "openshell.sandbox.v1.NetworkPolicyRule"`},

		{endpoint(`"allowed_ips":["10.0.0.0/8"]`), at + ".allowed_ips", "it is `allowedIps` here"},
		{endpoint(`"json_rpc":{}`), at + ".json_rpc", "it is `jsonRpcMaxBodyBytes` here"},
		{endpoint(`"hots":"x"`), at + ".hots", "did you mean `host`?"},
		{endpoint(`"host":7`), at + ".host", "expected a string, got 7"},
		{endpoint(`"host":"example.com","port":"443"`), at + ".port", `expected a whole number from 0 to 4294967295, got "443"`},
		{endpoint(`"host":"example.com","port":1.5`), at + ".port", "got 1.5"},
		{endpoint(`"host":"example.com","port":-1`), at + ".port", "got -1"},
		{endpoint(`"host":"example.com","allowEncodedSlash":"yes"`), at + ".allowEncodedSlash", `expected true or false, got "yes"`},

		{endpoint(`"port":443`), at + ".host", "expected a host"},
		{endpoint(`"port":443,"protocol":"tcp","allowedIps":["10.0.0.0/8"]`), at + ".host", "expected a host"},
		{endpoint(`"host":"https://example.com","port":443`), at + ".host", "without a scheme"},
		{endpoint(`"host":"example.com/x","port":443`), at + ".host", "a path of it"},
		{endpoint(`"host":"example.com:443","port":443`), at + ".host", "its port"},
		{endpoint(`"host":"example.com.","port":443`), at + ".host", "without the dot"},
		{endpoint(`"host":" example.com","port":443`), at + ".host", `got " example.com"`},
		{endpoint(`"host":"exämple.com","port":443`), at + ".host", "expected a DNS name"},
		{endpoint(`"host":"a..example.com","port":443`), at + ".host", "expected a DNS name"},
		{endpoint(`"host":"{a,b}.example.com","port":443`), at + ".host", "expected a DNS name"},
		{endpoint(`"host":"[fd00::1]","port":443`), at + ".host", "expected a DNS name"},
		{endpoint(`"host":"FD00::1","port":443`), at + ".host", "expected the address as fd00::1"},
		{endpoint(`"host":"*","port":443`), at + ".host", "covers too much"},
		{endpoint(`"host":"*.com","port":443`), at + ".host", "covers too much"},
		{endpoint(`"host":"a**.example.com","port":443`), at + ".host", "expected ** as the whole first part"},
		{endpoint(`"host":"a.**.example.com","port":443`), at + ".host", "expected ** as the whole first part"},
		{endpoint(`"host":"a.b*.example.com","port":443`), at + ".host", "expected * as a whole part"},
		{endpoint(`"host":"localhost","port":443`), at + ".host", "always blocked"},
		{endpoint(`"host":"x.LOCALHOST","port":443`), at + ".host", "always blocked"},
		{endpoint(`"host":"127.0.0.1","port":443`), at + ".host", "always blocked"},
		{endpoint(`"host":"::1","port":443`), at + ".host", "always blocked"},
		{endpoint(`"host":"169.254.169.254","port":80`), at + ".host", "always blocked"},
		{endpoint(`"host":"10.0.0.1","port":22,"protocol":"tcp"`), at + ".host", "expected a DNS name for the protocol tcp"},

		{endpoint(`"host":"example.com"`), at + ".port", "got none"},
		{endpoint(`"host":"example.com","port":70000`), at + ".port", "got 70000"},
		{endpoint(`"host":"example.com","ports":[443,0]`), at + ".ports[1]", "got none"},
		{endpoint(`"host":"example.com","port":443,"ports":[443]`), at + ".ports", "got both"},
		{endpoint(`"host":"example.com","port":6443`), at + ".port", "control planes"},
		{endpoint(`"host":"*.example.com","port":6443,"allowedIps":["10.0.0.0/8"]`), at + ".port", "control planes"},

		{endpoint(`"port":443,"allowedIps":["127.0.0.1"]`), at + ".allowedIps[0]", "always blocked"},
		{endpoint(`"port":443,"allowedIps":["10.0.0.0/8","0.0.0.0/0"]`), at + ".allowedIps[1]", "always blocked"},
		{endpoint(`"port":443,"allowedIps":["::ffff:127.0.0.1"]`), at + ".allowedIps[0]", "always blocked"},
		{endpoint(`"port":443,"allowedIps":["fe80::1%eth0"]`), at + ".allowedIps[0]", "expected an address or a range"},
		{endpoint(`"port":443,"allowedIps":["example.com"]`), at + ".allowedIps[0]", "expected an address or a range"},

		{endpoint(`"host":"example.com","port":443,"protocol":"ftp"`), at + ".protocol", `expected "tcp" or "rest" or "websocket" or "graphql" or "json-rpc" or "mcp", got "ftp"`},
		{endpoint(`"host":"example.com","port":443,"protocol":"REST"`), at + ".protocol", `got "REST"`},
		{call("sql", `"access":"full"`), at + ".protocol", "sql is refused"},
		{endpoint(`"host":"example.com","port":443,"tls":"passthrough"`), at + ".tls", "TLS is decrypted anyway"},
		{endpoint(`"host":"example.com","port":443,"tls":"Skip"`), at + ".tls", `expected "skip" or "terminate", got "Skip"`},
		{call("rest", `"access":"full","tls":"skip"`), at + ".tls", "would not apply"},
		{endpoint(`"host":"example.com","port":443,"protocol":"rest","access":"full"`), at + ".enforcement", "and allows it"},
		{endpoint(`"host":"example.com","port":443,"protocol":"rest","access":"full","enforcement":"audit"`), at + ".enforcement", `"audit" is refused`},
		{endpoint(`"host":"example.com","port":443,"protocol":"rest","access":"full","enforcement":"enforced"`), at + ".enforcement", `expected "enforce", got "enforced"`},
		{endpoint(`"host":"example.com","port":443,"enforcement":"enforce"`), at + ".enforcement", "has no effect without a protocol"},
		{endpoint(`"host":"example.com","port":443,"access":"read-only"`), at + ".access", "the connection is permitted as a whole"},
		{endpoint(`"host":"example.com","port":443,"protocol":"tcp","rules":[{"allow":{}}]`), at + ".rules", "has no effect without a protocol"},
		{endpoint(`"host":"example.com","port":443,"denyRules":[{"method":"*"}]`), at + ".denyRules", "has no effect without a protocol"},
		{call("rest", `"access":"readonly"`), at + ".access", `expected "read-only" or "read-write" or "full", got "readonly"`},
		{call("rest", `"path":"/x"`), at + ".access", "got neither"},
		{call("rest", `"access":"full","rules":[{"allow":{"method":"*","path":"**"}}]`), at + ".access", "got both"},
		{call("rest", `"access":"full","path":"x"`), at + ".path", "begins with /"},
		{call("rest", `"access":"full","path":"/x/{a"`), at + ".path", "no counterpart"},
		{call("rest", `"access":"full","mcp":{}`), at + ".mcp", `has no effect for the protocol "rest", only for "mcp"`},
		{call("rest", `"access":"full","graphqlMaxBodyBytes":1`), at + ".graphqlMaxBodyBytes", "has no effect"},
		{call("graphql", `"access":"full","requestBodyCredentialRewrite":true`), at + ".requestBodyCredentialRewrite", "has no effect"},
		{call("rest", `"access":"full","credentialSigning":"sigv5"`), at + ".credentialSigning", `got "sigv5"`},
		{call("rest", `"access":"full","credentialSigning":"sigv4"`), at + ".signingService", "got none"},
		{call("rest", `"access":"full","signingRegion":"x"`), at + ".signingRegion", "has no effect without credentialSigning"},
		{call("rest", `"access":"full","credentialSigning":"sigv4","signingService":"s","requestBodyCredentialRewrite":true`), at + ".requestBodyCredentialRewrite", "cannot be together"},
		{endpoint(`"host":"example.com","port":443,"credentialBinding":{}`), at + ".credentialBinding.provider", "expected a provider's name"},
		{endpoint(`"host":"example.com","port":443,"credentialBinding":{"provider":" p"}`), at + ".credentialBinding.provider", `got " p"`},

		{call("rest", `"rules":[{}]`), rule, "got none"},
		{call("rest", `"rules":[{"allow":{"tool":"x"}}]`), rule + ".tool", "it is `params.name` here"},
		{call("rest", `"rules":[{"deny":{}}]`), at + ".rules[0].deny", "there is no such option"},
		{call("rest", `"rules":[{"allow":{"method":"GET"}}]`), rule + ".path", `got ""`},
		{call("rest", `"rules":[{"allow":{"path":"/x"}}]`), rule + ".method", `got ""`},
		{call("rest", `"rules":[{"allow":{"method":"get","path":"/x"}}]`), rule + ".method", `got "get"`},
		{call("rest", `"rules":[{"allow":{"method":"GET","path":"x"}}]`), rule + ".path", "begins with /"},
		{call("rest", `"rules":[{"allow":{"method":"GET","path":"/x","command":"SELECT"}}]`), rule + ".command", "has no effect in this rule"},
		{call("rest", `"rules":[{"allow":{"method":"GET","path":"/x","query":{"a":"1"}}}]`), rule + ".query.a", "expected an object"},
		{call("rest", `"rules":[{"allow":{"method":"GET","path":"/x","query":{"a":{}}}}]`), rule + ".query.a", "expected either { glob"},
		{call("rest", `"rules":[{"allow":{"method":"GET","path":"/x","query":{"a":{"glob":"1","any":["2"]}}}}]`), rule + ".query.a", "expected either { glob"},
		{call("rest", `"rules":[{"allow":{"method":"GET","path":"/x","query":{"a":{"any":["1",""]}}}}]`), rule + ".query.a.any[1]", "got none"},
		{call("rest", `"access":"full","denyRules":[{"method":"DELETE"}]`), at + ".denyRules[0].path", `got ""`},
		{call("rest", `"access":"full","denyRules":[{"method":"DELTE","path":"**"}]`), at + ".denyRules[0].method", `got "DELTE"`},
		{call("websocket", `"rules":[{"allow":{"method":"POST","path":"/x"}}]`), rule + ".method", `expected "GET" or "WEBSOCKET_TEXT" or "*"`},
		{call("websocket", `"rules":[{"allow":{"method":"GET","path":"/x","operationType":"query"}}]`), rule, "got some of both"},
		{call("websocket", `"rules":[{"allow":{"operationType":"query"}},{"allow":{"method":"WEBSOCKET_TEXT","path":"/x"}}]`), at + ".rules[1].allow.method", "they decide on messages"},
		{call("graphql", `"rules":[{"allow":{"operationType":"*"}}]`), rule + ".operationType", `expected "query" or "mutation" or "subscription", got "*"`},
		{call("graphql", `"rules":[{"allow":{"operationName":"x"}}]`), rule + ".operationType", `got ""`},
		{call("graphql", `"rules":[{"allow":{"operationType":"query","fields":[""]}}]`), rule + ".fields[0]", "got none"},
		{call("graphql", `"access":"full","persistedQueries":"allow"`), at + ".persistedQueries", `got "allow"`},
		{call("graphql", `"access":"full","graphqlPersistedQueries":{"k":{"operationType":"query","fields":["x"]}}`), at + ".persistedQueries", "as graphqlPersistedQueries is given"},
		{call("graphql", `"access":"full","persistedQueries":"allow_registered","graphqlPersistedQueries":{"k":{"operationType":"query"}}`), at + ".graphqlPersistedQueries.k.fields", "root fields"},
		{call("json-rpc", `"access":"full"`), at + ".access", "list the methods in rules"},
		{call("json-rpc", `"jsonRpcMaxBodyBytes":1`), at + ".rules", "got none"},
		{call("json-rpc", `"rules":[{"allow":{"method":"eth_*"}}]`), rule + ".method", `got the pattern "eth_*"`},
		{call("json-rpc", `"rules":[{"allow":{"method":"x","params":{"name":{"glob":"x"}}}}]`), rule + ".params", "has no effect in this rule"},
		{call("mcp", `"access":"full"`), at + ".access", "mcp.allowAllKnownMcpMethods"},
		{call("mcp", `"jsonRpcMaxBodyBytes":1`), at + ".rules", "got neither"},
		{call("mcp", `"rules":[{"allow":{"params":{"name":{"glob":"x"}}}}]`), rule + ".method", "got none"},
		{call("mcp", `"rules":[{"allow":{"method":"*"}}]`), rule + ".method", "begins with tools/"},
		{call("mcp", `"rules":[{"allow":{"method":"tools/list","params":{"name":{"glob":"x"}}}}]`), rule + ".method", `expected "tools/call"`},
		{call("mcp", `"rules":[{"allow":{"method":"tools/call","params":{"path":{"glob":"x"}}}}]`), rule + ".params.path", "by `name` only"},
		{call("mcp", `"mcp":{"strictToolNames":false},"rules":[{"allow":{"method":"tools/call","params":{"name":{"glob":"x*"}}}}]`), rule + ".params.name", "without wildcards"},
		{call("mcp", `"rules":[{"allow":{"method":"tools/call","params":{"name":{"glob":"x"}}}},{"allow":{"method":"tools/*"}}]`), at + ".rules[1].allow", "permits every tool"},
		{call("mcp", `"rules":[{"allow":{"method":"tools/call","params":{"name":{"glob":"x"}}}}],"denyRules":[{"method":"tools/call"}]`), at + ".denyRules[0]", "denies every tool"},

		{endpoint(`"host":"example.com","port":443` + strings.Repeat(`},{"host":"example.com","port":443`, 20_000)), "policy", "262144 bytes"},
	} {
		_, err := Parse(json.RawMessage(c.given))
		f := failure.As(err)
		if f == nil || !slices.Equal(f.Paths, []string{c.path}) || !strings.Contains(f.Message, c.message) {
			given := c.given[:min(len(c.given), 300)]
			t.Errorf("%s\n\t%v at %v\n\twant %q at %s", given, err, f, c.message, c.path)
		}
	}
}

func TestEndpointsThatAnswerForTheSameRequests(t *testing.T) {
	const whole = `"enforcement":"enforce","access":"full","protocol":"rest"`
	for _, c := range []struct{ a, b, conflict string }{
		{`"host":"example.com","port":443,` + whole, `"host":"example.com","port":443,` + whole + `,"denyRules":[{"method":"*","path":"/x"}]`, ""},
		{`"host":"a.example.com","port":443,"tls":"skip"`, `"host":"b.example.com","port":443`, ""},
		{`"host":"a.example.com","port":443,"tls":"skip"`, `"host":"a.example.com","port":444`, ""},
		{`"host":"a.example.com","port":443,"tls":"terminate"`, `"host":"a.example.com","port":443`, ""},
		{`"host":"a.example.com","port":443`, `"host":"a.example.com","port":443,` + whole, ""},
		{`"host":"*.example.com","port":443,"tls":"skip"`, `"host":"a.b.example.com","port":443`, ""},
		{`"host":"a.example.com","port":443,"path":"/graphql","protocol":"graphql","access":"full","enforcement":"enforce"`, `"host":"a.example.com","port":443,"path":"/repos/**",` + whole, ""},
		{`"host":"a.example.com","port":443,"path":"/aa","protocol":"graphql","access":"full","enforcement":"enforce"`, `"host":"a.example.com","port":443,"path":"/bb",` + whole, ""},

		{`"host":"A.example.com","port":443,"tls":"skip"`, `"host":"a.example.com","ports":[80,443]`, "tls"},
		{`"host":"*.example.com","port":443,"tls":"skip"`, `"host":"a.example.com","port":443`, "tls"},
		{`"host":"**.example.com","port":443,"tls":"skip"`, `"host":"a.*.example.com","port":443`, "tls"},
		{`"host":"a-*.example.com","port":443,"tls":"skip"`, `"host":"*.example.com","port":443`, "tls"},
		{`"host":"a.example.com","port":443,"protocol":"tcp"`, `"host":"a.example.com","port":443`, "protocol"},
		{`"host":"a.example.com","port":443`, `"allowedIps":["10.0.0.0/8"],"port":443`, "allowedIps"},
		{`"host":"a.example.com","port":443,"protocol":"graphql","access":"full","enforcement":"enforce"`, `"host":"a.example.com","port":443,` + whole, "protocol"},
		{`"host":"a.example.com","port":443,"path":"/a*","protocol":"graphql","access":"full","enforcement":"enforce"`, `"host":"a.example.com","port":443,"path":"/*/",` + whole, "protocol"},
		{`"host":"a.example.com","port":443,"path":"/a*b","protocol":"graphql","access":"full","enforcement":"enforce"`, `"host":"a.example.com","port":443,"path":"/*/b",` + whole, "protocol"},
		{`"host":"a.example.com","port":443,"path":"/?b","protocol":"graphql","access":"full","enforcement":"enforce"`, `"host":"a.example.com","port":443,"path":"/ab",` + whole, "protocol"},
		{`"host":"a.example.com","port":443,` + whole, `"host":"a.example.com","port":443,"allowEncodedSlash":true,` + whole, "allowEncodedSlash"},
		{`"host":"a.example.com","port":443,` + whole, `"host":"a.example.com","port":443,"credentialBinding":{"provider":"p"},` + whole, "credentialBinding.provider"},
	} {
		given := fmt.Sprintf(`{"a":{"endpoints":[{%s}],"binaries":[{"path":"/x"}]},"b":{"endpoints":[{%s}],"binaries":[{"path":"/y"}]}}`, c.a, c.b)
		_, err := Parse(json.RawMessage(given))
		if c.conflict == "" {
			if err != nil {
				t.Errorf("%s\n%s: %v", c.a, c.b, err)
			}
			continue
		}
		if f := failure.As(err); f == nil || !slices.Equal(f.Paths, []string{"policy.b.endpoints[0]." + c.conflict}) || !strings.Contains(f.Message, "policy.a.endpoints[0] is for the same requests on port 443") {
			t.Errorf("%s\n%s: %v", c.a, c.b, err)
		}
	}
}

// Whatever 0.0.116 has a field for reaches the gateway. full sets every field of a message, and fill reads what it looks like.
func TestEveryFieldPassesThrough(t *testing.T) {
	want := &wire.NetworkPolicyRule{}
	n := 0
	full(want.ProtoReflect(), &n)
	raw, err := protojson.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := &wire.NetworkPolicyRule{}
	if err := fill("policy.p", raw, got.ProtoReflect()); err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(got, want) {
		t.Errorf("got %s\nwant %s", protojson.Format(got), protojson.Format(want))
	}
	if n < 50 {
		t.Errorf("only %d fields were set", n)
	}
}

func full(m protoreflect.Message, n *int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		*n++
		value := func(fresh func() protoreflect.Value) protoreflect.Value {
			switch f.Kind() {
			case protoreflect.StringKind:
				return protoreflect.ValueOfString(fmt.Sprintf("text %d", *n))
			case protoreflect.BoolKind:
				return protoreflect.ValueOfBool(true)
			case protoreflect.Uint32Kind:
				return protoreflect.ValueOfUint32(uint32(*n))
			default:
				v := fresh()
				full(v.Message(), n)
				return v
			}
		}
		switch {
		case f.IsMap():
			to := m.Mutable(f).Map()
			v := to.NewValue()
			full(v.Message(), n)
			to.Set(protoreflect.ValueOfString("key").MapKey(), v)
		case f.IsList():
			to := m.Mutable(f).List()
			to.Append(value(to.NewElement))
			to.Append(value(to.NewElement))
		default:
			m.Set(f, value(func() protoreflect.Value { return m.NewField(f) }))
		}
	}
}

func TestWhatIsSentIsACopy(t *testing.T) {
	p, err := Parse(json.RawMessage(call("rest", `"access":"full"`)))
	if err != nil {
		t.Fatal(err)
	}
	p.Wire()["p"].Endpoints[0].Enforcement = "audit"
	if got := p["p"].GetEndpoints()[0].GetEnforcement(); got != "enforce" {
		t.Errorf("the policy says %q now", got)
	}
}

func TestBindings(t *testing.T) {
	p, err := Parse(json.RawMessage(`{"a b":{"endpoints":[{"host":"x.example.com","port":1},{"host":"y.example.com","port":2,"credentialBinding":{"provider":"other"}}],"binaries":[{"path":"/x"}]}}`))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{`policy["a b"].endpoints[1].credentialBinding.provider`: "other"}
	if got := p.Bindings(); !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestSandbox(t *testing.T) {
	p, err := Parse(json.RawMessage(endpoint(`"host":"example.com","port":22`)))
	if err != nil {
		t.Fatal(err)
	}
	paths := map[bool][]string{}
	for _, writable := range []bool{true, false} {
		s := Sandbox(p, writable, 1234, 1235)
		fs := s.GetFilesystem()
		if s.GetVersion() != 1 || s.GetLandlock().GetCompatibility() != "hard_requirement" || s.GetProcess().GetRunAsUser() != "1234" || s.GetProcess().GetRunAsGroup() != "1235" ||
			fs.GetIncludeWorkdir() || len(s.GetNetworkPolicies()) != 1 {
			t.Errorf("%s", protojson.Format(s))
		}
		if slices.Contains(fs.GetReadWrite(), Work) != writable || slices.Contains(fs.GetReadOnly(), Work) == writable {
			t.Errorf("writable %v: %s", writable, protojson.Format(fs))
		}
		paths[writable] = slices.Sorted(slices.Values(append(slices.Clone(fs.GetReadOnly()), fs.GetReadWrite()...)))
		if slices.Contains(fs.GetReadWrite(), Root) || slices.Contains(fs.GetReadWrite(), "/dev/ptmx") || !slices.Contains(fs.GetReadWrite(), "/dev/pts") {
			t.Errorf("%s", protojson.Format(fs))
		}
	}
	if !slices.Equal(paths[true], paths[false]) { // what one of them has is what an image is looked at for
		t.Errorf("the sandboxes name different paths: %q, and read-only %q", paths[true], paths[false])
	}
}
