package wire_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

var update = flag.Bool("update", false, "write the Go code anew") //nolint:gochecknoglobals // a flag

func sources() []string { return []string{"datamodel.proto", "openshell.proto", "sandbox.proto"} }

// The Go code here is what the pinned generators make of the .proto files.
func TestGeneratedIsCurrent(t *testing.T) {
	request := request(t)
	want := map[string]string{}
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		for _, f := range generate(t, plugin, request) {
			want[f.GetName()] = f.GetContent()
		}
	}
	there, err := filepath.Glob("*.pb.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range there {
		if _, ok := want[name]; !ok {
			t.Errorf("%s is of no .proto file", name)
		}
	}
	for name, text := range want {
		if *update {
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if is, err := os.ReadFile(name); err != nil || string(is) != text {
			t.Errorf("%s is not what the .proto files say (make update-wire): %v", name, err)
		}
	}
}

// request is what protoc hands to its plugins.
func request(t *testing.T) []byte {
	t.Helper()
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{}),
		SourceInfoMode: protocompile.SourceInfoStandard, // the comments
	}
	files, err := compiler.Compile(t.Context(), sources()...)
	if err != nil {
		t.Fatal(err)
	}
	all := &pluginpb.CodeGeneratorRequest{FileToGenerate: sources(), Parameter: proto.String("paths=source_relative")}
	seen := map[string]bool{}
	var add func(f protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		all.ProtoFile = append(all.ProtoFile, described(f))
	}
	for _, f := range files {
		add(f)
	}
	out, err := proto.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// described keeps the comments, which protodesc leaves out.
func described(f protoreflect.FileDescriptor) *descriptorpb.FileDescriptorProto {
	if own, ok := f.(interface {
		FileDescriptorProto() *descriptorpb.FileDescriptorProto
	}); ok {
		return own.FileDescriptorProto()
	}
	return protodesc.ToFileDescriptorProto(f)
}

func generate(t *testing.T, plugin string, request []byte) []*pluginpb.CodeGeneratorResponse_File {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "go", "tool", plugin)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(request), &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s", plugin, err, errs.Bytes())
	}
	var answer pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out.Bytes(), &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Error != nil {
		t.Fatalf("%s: %s", plugin, answer.GetError())
	}
	return answer.GetFile()
}
