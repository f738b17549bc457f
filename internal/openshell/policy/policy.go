// Package policy holds the rules for the network policies of an OpenShell sandbox, and makes the policy that a sandbox is created
// with. What the gateway (0.0.116) or the supervisor inside would refuse is refused here, before anything is made, and so is what
// they accept and then do not enforce: misspelt words, fields that mean nothing where they stand, programs that can never match.
package policy

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/options"
)

// Policies are the network policies of a sandbox by their names, as they were given and found right. None at all permits no
// connection. As JSON they have the camelCase names of OpenShell's TypeScript SDK, in one normal form.
type Policies map[string]*wire.NetworkPolicyRule

// Option is the constructor's option that the policies are: the paths of failures begin with it.
const Option = "policy"

// largest is what a gateway takes, in bytes of the encoded policy of a sandbox.
const largest = 256 << 10

// reserved begins the names of the policies that a gateway makes of its providers.
const reserved = "_provider_"

// Parse reads the option `policy`. Its failures name the exact path, what was expected and what came.
func Parse(raw json.RawMessage) (Policies, error) {
	if options.Kind(raw) != "an object" {
		return nil, options.Invalid(Option, "expected OpenShell's networkPolicies, an object of named policies ({} permits no connection), got %s", options.Show(raw))
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, options.Invalid(Option, "expected an object of named policies: %v", err)
	}
	out := Policies{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		at := member(Option, name)
		if err := named(at, name, given[name]); err != nil {
			return nil, err
		}
		rule := &wire.NetworkPolicyRule{}
		if err := fill(at, given[name], rule.ProtoReflect()); err != nil {
			return nil, err
		}
		if err := checkRule(at, rule); err != nil {
			return nil, err
		}
		out[name] = rule
	}
	if n := proto.Size(Sandbox(out, true, 1, 1)); n > largest {
		return nil, options.Invalid(Option, "expected at most %d bytes, as OpenShell encodes them, got %d", largest, n)
	}
	return out, unambiguous(out)
}

// named refuses names that cannot be, and the parts of a whole policy file that are no network policies.
func named(at, name string, raw json.RawMessage) error {
	switch {
	case name == "networkPolicies" || name == "network_policies":
		return options.Invalid(at, "`%s` is the object of network policies itself: give what is below %s", Option, name)
	case options.Kind(raw) != "an object" && name == "version",
		slices.Contains([]string{"filesystem", "filesystem_policy", "landlock", "process"}, name) && !strings.Contains(string(raw), `"endpoints"`):
		return options.Invalid(at, "`%s` holds network policies only: files, Landlock and the process are configured by laufwerk", Option)
	case name == "":
		return options.Invalid(at, "expected a name that is not empty")
	case strings.HasPrefix(name, reserved):
		return options.Invalid(at, "expected a name that does not begin with %s, which OpenShell keeps for the policies of providers", reserved)
	}
	return nil
}

func checkRule(at string, rule *wire.NetworkPolicyRule) error {
	if len(rule.GetEndpoints()) == 0 {
		return options.Invalid(options.Join(at, "endpoints"), "expected at least one endpoint: without one the policy permits nothing")
	}
	for i, e := range rule.GetEndpoints() {
		if err := checkEndpoint(options.Index(options.Join(at, "endpoints"), i), e); err != nil {
			return err
		}
	}
	if len(rule.GetBinaries()) == 0 {
		return options.Invalid(options.Join(at, "binaries"), "expected at least one program, as in { path: \"/usr/bin/git\" }: without one no connection is permitted")
	}
	for i, b := range rule.GetBinaries() {
		if err := checkBinary(options.Join(options.Index(options.Join(at, "binaries"), i), "path"), b.GetPath()); err != nil {
			return err
		}
	}
	return nil
}

// checkBinary holds what can be the path of a program, which is compared with the kernel's: links are followed there.
func checkBinary(at, path string) error {
	const expected = "an absolute path, in which * stands for a part of one name and ** for any number of names"
	switch {
	case path == "":
		return options.Invalid(at, "expected %s, got none", expected)
	case !strings.HasPrefix(path, "/"):
		return options.Invalid(at, "expected %s, got %q: OpenShell accepts a relative one, and it never matches", expected, path)
	case strings.ContainsFunc(path, control):
		return options.Invalid(at, "expected %s, got control characters", expected)
	case slices.ContainsFunc(strings.Split(path[1:], "/"), func(name string) bool { return name == "" || name == "." || name == ".." }):
		return options.Invalid(at, "expected %s, got %q: an empty name, . or .. never matches", expected, path)
	case strings.Contains(path, "*"):
		return checkGlob(at, path)
	}
	return nil
}

func control(r rune) bool { return r < ' ' || r == 0x7f }

// Wire is what is sent.
func (p Policies) Wire() map[string]*wire.NetworkPolicyRule {
	out := make(map[string]*wire.NetworkPolicyRule, len(p))
	for name, rule := range p {
		out[name] = proto.CloneOf(rule)
	}
	return out
}

// Bindings are the providers that endpoints are bound to, by the paths of the options that say so.
func (p Policies) Bindings() map[string]string {
	out := map[string]string{}
	for name, rule := range p {
		for i, e := range rule.GetEndpoints() {
			if b := e.GetCredentialBinding(); b != nil {
				out[options.Index(options.Join(member(Option, name), "endpoints"), i)+".credentialBinding.provider"] = b.GetProvider()
			}
		}
	}
	return out
}

// MarshalJSON is the normal form: what is left out, or as it is by default, is not there.
func (p Policies) MarshalJSON() ([]byte, error) {
	rules := make(map[string]json.RawMessage, len(p))
	for name, rule := range p {
		b, err := protojson.Marshal(rule)
		if err != nil {
			return nil, err
		}
		var tidy bytes.Buffer // protojson's white space is different from build to build
		if err := json.Compact(&tidy, b); err != nil {
			return nil, err
		}
		rules[name] = tidy.Bytes()
	}
	return json.Marshal(rules)
}

// UnmarshalJSON reads the normal form back, without the rules of Parse.
func (p *Policies) UnmarshalJSON(b []byte) error {
	var rules map[string]json.RawMessage
	if err := json.Unmarshal(b, &rules); err != nil {
		return err
	}
	*p = make(Policies, len(rules))
	for name, raw := range rules {
		rule := &wire.NetworkPolicyRule{}
		if err := protojson.Unmarshal(raw, rule); err != nil {
			return err
		}
		(*p)[name] = rule
	}
	return nil
}

// The directories of a sandbox. All of them are in its image, and belong to the worker there.
const (
	Root = "/sandbox"      // its working directory, in which only what follows can be written
	Home = "/sandbox/home" // the session's private home
	// Programs is where images have agent programs, each in a folder of its name.
	Programs = "/sandbox/.harness-bootstrap"
	Ops      = "/sandbox/ops"  // the records of its commands
	Work     = "/sandbox/work" // the workspace
)

// readOnly and readWrite are the paths that every sandbox may use: under hard_requirement each of them has to be in the image.
// /dev/ptmx must not be listed: it is a link, and the supervisor would not start. Programs that open a terminal need /dev/pts.
func readOnly() []string {
	return []string{"/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/opt", "/proc", Root, "/dev/urandom", "/dev/random", "/dev/zero", "/dev/full"}
}

func readWrite() []string {
	return []string{"/tmp", "/dev/null", "/dev/shm", "/dev/tty", "/dev/pts", Home, Ops}
}

// Sandbox is the whole policy of a session's sandbox: laufwerk's part is files and process. The workspace can be written or not;
// uid and gid, which are not 0, are who works in it.
func Sandbox(p Policies, writable bool, uid, gid int) *wire.SandboxPolicy {
	files := &wire.FilesystemPolicy{ReadOnly: readOnly(), ReadWrite: readWrite()}
	if writable {
		files.ReadWrite = append(files.ReadWrite, Work)
	} else {
		files.ReadOnly = append(files.ReadOnly, Work)
	}
	return &wire.SandboxPolicy{
		Version:         1,
		Filesystem:      files,
		Landlock:        &wire.LandlockPolicy{Compatibility: "hard_requirement"}, // any other word is best effort
		Process:         &wire.ProcessPolicy{RunAsUser: strconv.Itoa(uid), RunAsGroup: strconv.Itoa(gid)},
		NetworkPolicies: p.Wire(),
	}
}

// Binaries are the executables of an agent program in prepared images, as profiles and policies name them. A rule for them also
// holds for what they start.
func Binaries(program string) string { return Programs + "/" + program + "/node_modules/**" }
