package wire_test

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/laufwerk/laufwerk/internal/openshell/wire"
	"github.com/laufwerk/laufwerk/internal/testkit"
)

// What the official client 0.0.116 says of every message, field, choice and call that is used here is the same.
func TestOfficialProtocolIsTheSame(t *testing.T) {
	python := testkit.OpenShellPython(t)
	version, err := exec.CommandContext(t.Context(), python, "-c", "import importlib.metadata as m; print(m.version('openshell'))").Output()
	if err != nil || strings.TrimSpace(string(version)) != "0.0.116" {
		t.Fatalf("the official client is %q: %v", version, err)
	}
	raw, err := exec.CommandContext(t.Context(), python, "-c", `
import sys
from google.protobuf import descriptor_pb2
from openshell._proto import datamodel_pb2, openshell_pb2, sandbox_pb2
files = descriptor_pb2.FileDescriptorSet()
for m in (datamodel_pb2, openshell_pb2, sandbox_pb2):
    m.DESCRIPTOR.CopyToProto(files.file.add())
sys.stdout.buffer.write(files.SerializeToString())
`).Output()
	if err != nil {
		t.Fatal(err)
	}
	var files descriptorpb.FileDescriptorSet
	if err := proto.Unmarshal(raw, &files); err != nil {
		t.Fatal(err)
	}
	official := index(files.GetFile())
	for _, difference := range official.differences(generated()) {
		t.Error(difference)
	}

	// The comparison sees each kind of difference.
	for what, change := range map[string]func(p *protocol){
		"a field's number": func(p *protocol) { field(p, "openshell.v1.ExecSandboxRequest", "stdin").Number = proto.Int32(60) },
		"a field's name": func(p *protocol) {
			field(p, "openshell.sandbox.v1.LandlockPolicy", "compatibility").Name = proto.String("compat")
		},
		"a field's type": func(p *protocol) {
			field(p, "openshell.v1.ListSandboxesRequest", "limit").Type = descriptorpb.FieldDescriptorProto_TYPE_INT32.Enum()
		},
		"a field's message": func(p *protocol) {
			field(p, "openshell.v1.SandboxSpec", "template").TypeName = proto.String(".openshell.v1.Other")
		},
		"a field's label": func(p *protocol) {
			field(p, "openshell.v1.SandboxSpec", "providers").Label = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum()
		},
		"a field's presence": func(p *protocol) { field(p, "openshell.v1.SandboxStatus", "exit_code").Proto3Optional = nil },
		"a field's choice":   func(p *protocol) { field(p, "openshell.v1.ExecSandboxEvent", "exit").OneofIndex = nil },
		"a map's value": func(p *protocol) {
			field(p, "openshell.datamodel.v1.ObjectMeta.LabelsEntry", "value").Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		},
		"no message":        func(p *protocol) { delete(p.messages, "openshell.sandbox.v1.McpOptions") },
		"a choice's number": func(p *protocol) { p.enums["openshell.v1.SandboxPhase"].Value[2].Number = proto.Int32(9) },
		"no choices":        func(p *protocol) { delete(p.enums, "openshell.sandbox.v1.PolicySource") },
		"a new choice":      func(p *protocol) { e := p.enums["openshell.sandbox.v1.PolicySource"]; e.Value = e.Value[:2] },
		"no call":           func(p *protocol) { delete(p.methods, "openshell.v1.OpenShell.CreateSandbox") },
		"a call's stream":   func(p *protocol) { p.methods["openshell.v1.OpenShell.ExecSandbox"].ServerStreaming = nil },
		"a call's answer": func(p *protocol) {
			p.methods["openshell.v1.OpenShell.GetSandbox"].OutputType = proto.String(".openshell.v1.Other")
		},
	} {
		var copied descriptorpb.FileDescriptorSet
		if err := proto.Unmarshal(raw, &copied); err != nil {
			t.Fatal(err)
		}
		p := index(copied.GetFile())
		change(p)
		if d := p.differences(generated()); len(d) != 1 {
			t.Errorf("%s: %q", what, d)
		}
	}
}

func field(p *protocol, message, name string) *descriptorpb.FieldDescriptorProto {
	m := p.messages[message]
	return m.GetField()[slices.IndexFunc(m.GetField(), func(f *descriptorpb.FieldDescriptorProto) bool { return f.GetName() == name })]
}

func generated() *protocol {
	var all []*descriptorpb.FileDescriptorProto
	for _, f := range []protoreflect.FileDescriptor{wire.File_datamodel_proto, wire.File_openshell_proto, wire.File_sandbox_proto} {
		all = append(all, protodesc.ToFileDescriptorProto(f))
	}
	return index(all)
}

// protocol is everything that has a full name.
type protocol struct {
	messages map[string]*descriptorpb.DescriptorProto
	enums    map[string]*descriptorpb.EnumDescriptorProto
	methods  map[string]*descriptorpb.MethodDescriptorProto
}

func index(files []*descriptorpb.FileDescriptorProto) *protocol {
	p := &protocol{map[string]*descriptorpb.DescriptorProto{}, map[string]*descriptorpb.EnumDescriptorProto{}, map[string]*descriptorpb.MethodDescriptorProto{}}
	var add func(below string, m *descriptorpb.DescriptorProto)
	add = func(below string, m *descriptorpb.DescriptorProto) {
		name := below + "." + m.GetName()
		p.messages[name] = m
		for _, n := range m.GetNestedType() {
			add(name, n)
		}
		for _, e := range m.GetEnumType() {
			p.enums[name+"."+e.GetName()] = e
		}
	}
	for _, f := range files {
		for _, m := range f.GetMessageType() {
			add(f.GetPackage(), m)
		}
		for _, e := range f.GetEnumType() {
			p.enums[f.GetPackage()+"."+e.GetName()] = e
		}
		for _, s := range f.GetService() {
			for _, m := range s.GetMethod() {
				p.methods[f.GetPackage()+"."+s.GetName()+"."+m.GetName()] = m
			}
		}
	}
	return p
}

// differences are what used has that p has not, or otherwise. Choices have to be the same in number too: one that is not known
// here would be taken for none.
func (p *protocol) differences(used *protocol) (out []string) {
	say := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for name, m := range used.messages {
		official := p.messages[name]
		if official == nil {
			say("there is no message %s", name)
			continue
		}
		for _, f := range m.GetField() {
			i := slices.IndexFunc(official.GetField(), func(o *descriptorpb.FieldDescriptorProto) bool { return o.GetName() == f.GetName() })
			if i < 0 {
				say("%s has no field %s", name, f.GetName())
			} else if a, b := shape(official, official.GetField()[i]), shape(m, f); a != b {
				say("%s.%s is %s, and not %s", name, f.GetName(), a, b)
			}
		}
	}
	for name, e := range used.enums {
		if a, b := choices(p.enums[name]), choices(e); a != b {
			say("%s has the choices %s, and not %s", name, a, b)
		}
	}
	for name, m := range used.methods {
		if a, b := call(p.methods[name]), call(m); a != b {
			say("%s is %s, and not %s", name, a, b)
		}
	}
	return out
}

func shape(m *descriptorpb.DescriptorProto, f *descriptorpb.FieldDescriptorProto) string {
	oneof := ""
	if f.OneofIndex != nil && !f.GetProto3Optional() {
		oneof = m.GetOneofDecl()[f.GetOneofIndex()].GetName()
	}
	return fmt.Sprintf("number %d, %s %s %s, optional %t, oneof %q, packed %t", f.GetNumber(), f.GetLabel(), f.GetType(), f.GetTypeName(), f.GetProto3Optional(), oneof,
		f.GetOptions() == nil || f.GetOptions().Packed == nil || f.GetOptions().GetPacked())
}

func choices(e *descriptorpb.EnumDescriptorProto) string {
	var all []string
	for _, v := range e.GetValue() {
		all = append(all, fmt.Sprintf("%s=%d", v.GetName(), v.GetNumber()))
	}
	return strings.Join(all, " ")
}

func call(m *descriptorpb.MethodDescriptorProto) string {
	if m == nil {
		return "no call"
	}
	return fmt.Sprintf("(%s stream %t) → (%s stream %t)", m.GetInputType(), m.GetClientStreaming(), m.GetOutputType(), m.GetServerStreaming())
}
