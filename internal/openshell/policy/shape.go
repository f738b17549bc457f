package policy

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/laufwerk/laufwerk/internal/lazyregexp"
	"github.com/laufwerk/laufwerk/internal/options"
)

// typeName is the member by which messages of OpenShell's TypeScript SDK say what they are.
const typeName = "$typeName"

// nameHere are names of policy files in YAML, and what they are called here.
func nameHere(name string) string {
	return map[string]string{"tool": "params.name", "json_rpc": "jsonRpcMaxBodyBytes", "graphql": "graphqlMaxBodyBytes"}[name]
}

// fill reads a JSON object into a message, as strictly as TypeScript's types would have it: every member is a field by its
// camelCase name, every value of the field's own type. What is null is left out.
func fill(path string, raw json.RawMessage, into protoreflect.Message) error {
	fields := into.Descriptor().Fields()
	known := make([]string, fields.Len())
	for i := range known {
		known[i] = fields.Get(i).JSONName()
	}
	if options.Kind(raw) != "an object" { // where something has to be, nothing is no empty object
		return options.Invalid(path, "expected an object, got %s", options.Show(raw))
	}
	raw, err := withoutTypeName(path, raw, string(into.Descriptor().FullName()), known)
	if err != nil {
		return err
	}
	given, err := options.Fields(path, raw, known...)
	if err != nil {
		return err
	}
	for i := range known {
		f := fields.Get(i)
		value := given[f.JSONName()]
		if options.Absent(value) {
			continue
		}
		if err := field(options.Join(path, f.JSONName()), value, into, f); err != nil {
			return err
		}
	}
	return nil
}

// withoutTypeName takes the name of its type out of an object, and answers for the names that other forms of a policy have for its members.
func withoutTypeName(path string, raw json.RawMessage, message string, known []string) (json.RawMessage, error) {
	var given map[string]json.RawMessage
	if err := json.Unmarshal(raw, &given); err != nil {
		return nil, options.Invalid(path, "expected an object: %v", err)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if name == typeName {
			if string(given[name]) != `"`+message+`"` {
				return nil, options.Invalid(options.Join(path, name), "expected %q, got %s", message, options.Show(given[name]))
			}
			continue
		}
		meant := cmp.Or(nameHere(name), camel(name))
		if !slices.Contains(known, name) && meant != name && slices.Contains(known, strings.Split(meant, ".")[0]) {
			return nil, options.Invalid(member(path, name), "there is no such option: it is `%s` here, as in OpenShell's TypeScript SDK", meant)
		}
	}
	if given[typeName] == nil {
		return raw, nil
	}
	delete(given, typeName)
	return json.Marshal(given)
}

func camel(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words[1:] {
		if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

func field(path string, raw json.RawMessage, into protoreflect.Message, f protoreflect.FieldDescriptor) error {
	switch {
	case f.IsMap():
		var given map[string]json.RawMessage
		if options.Kind(raw) != "an object" || json.Unmarshal(raw, &given) != nil {
			return options.Invalid(path, "expected an object, got %s", options.Show(raw))
		}
		to := into.Mutable(f).Map()
		for _, name := range slices.Sorted(maps.Keys(given)) {
			value := to.NewValue()
			if err := fill(member(path, name), given[name], value.Message()); err != nil {
				return err
			}
			to.Set(protoreflect.ValueOfString(name).MapKey(), value)
		}
	case f.IsList():
		var given []json.RawMessage
		if options.Kind(raw) != "an array" || json.Unmarshal(raw, &given) != nil {
			return options.Invalid(path, "expected an array, got %s", options.Show(raw))
		}
		to := into.Mutable(f).List()
		for i, e := range given {
			value, err := element(options.Index(path, i), e, f, to.NewElement)
			if err != nil {
				return err
			}
			to.Append(value)
		}
	default:
		value, err := element(path, raw, f, func() protoreflect.Value { return into.NewField(f) })
		if err != nil {
			return err
		}
		into.Set(f, value)
	}
	return nil
}

func element(path string, raw json.RawMessage, f protoreflect.FieldDescriptor, fresh func() protoreflect.Value) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.StringKind:
		s, err := options.String(path, raw, "a string")
		return protoreflect.ValueOfString(s), err
	case protoreflect.BoolKind:
		var b bool
		if options.Kind(raw) != "a boolean" || json.Unmarshal(raw, &b) != nil {
			return protoreflect.Value{}, options.Invalid(path, "expected true or false, got %s", options.Show(raw))
		}
		return protoreflect.ValueOfBool(b), nil
	case protoreflect.Uint32Kind:
		var n uint32
		if options.Kind(raw) != "a number" || json.Unmarshal(raw, &n) != nil {
			return protoreflect.Value{}, options.Invalid(path, "expected a whole number from 0 to 4294967295, got %s", options.Show(raw))
		}
		return protoreflect.ValueOfUint32(n), nil
	case protoreflect.MessageKind:
		value := fresh()
		return value, fill(path, raw, value.Message())
	default:
		return protoreflect.Value{}, options.Invalid(path, "a field of the kind %s is not part of this build", f.Kind())
	}
}

// plainName is one that a path has without quotes.
var plainName = lazyregexp.Regexp{Pattern: `^[A-Za-z_$][A-Za-z0-9_$-]*$`}

// member is the path of a member whose name anybody could choose.
func member(path, name string) string {
	if plainName.MatchString(name) {
		return options.Join(path, name)
	}
	return fmt.Sprintf("%s[%q]", path, name)
}
