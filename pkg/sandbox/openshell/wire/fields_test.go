package wire_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/sdk"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v01"
)

// A table says of each field, enum value and method what stands on the wire.
// Names of packages are left out: ours have their own.
type table map[string]string

func (tb table) files(files ...protoreflect.FileDescriptor) table {
	for _, f := range files {
		tb.messages(f.Messages())
		tb.enums(f.Enums())
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				m := s.Methods().Get(j)
				tb["rpc "+string(m.Name())] = fmt.Sprintf("%s%s -> %s%s", streams(m.IsStreamingClient()), m.Input().Name(), streams(m.IsStreamingServer()), m.Output().Name())
			}
		}
	}
	return tb
}

func streams(yes bool) string {
	if yes {
		return "stream "
	}
	return ""
}

func (tb table) messages(ms protoreflect.MessageDescriptors) {
	for i := range ms.Len() {
		m := ms.Get(i)
		tb[string(m.Name())] = "message"
		for j := range m.Fields().Len() {
			f := m.Fields().Get(j)
			tb[string(m.Name())+"."+string(f.Name())] = fmt.Sprintf("%d %s", f.Number(), kind(f))
		}
		tb.enums(m.Enums())
	}
}

func (tb table) enums(es protoreflect.EnumDescriptors) {
	for i := range es.Len() {
		e := es.Get(i)
		for j := range e.Values().Len() {
			tb[string(e.Name())+"."+string(e.Values().Get(j).Name())] = fmt.Sprint(e.Values().Get(j).Number())
		}
	}
}

func kind(f protoreflect.FieldDescriptor) string {
	if f.IsMap() {
		return "map<" + kind(f.MapKey()) + "," + kind(f.MapValue()) + ">"
	}
	k := f.Kind().String()
	switch {
	case f.Message() != nil:
		k = string(f.Message().Name())
	case f.Enum() != nil:
		k = string(f.Enum().Name())
	}
	if f.IsList() {
		k = "repeated " + k
	}
	if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() {
		k += " in " + string(o.Name())
	}
	if f.HasOptionalKeyword() {
		k = "optional " + k
	}
	return k
}

// ours is what each generation's messages are here.
var ours = map[string]table{
	"0.0.111": table{}.files(v00.File_v00_proto).methods(),
	"0.1.5":   table{}.files(v01.File_v01_proto).methods(),
}

// methods adds those that are called, with their messages.
func (tb table) methods() table {
	for method, how := range map[string]string{
		wire.Health:         "HealthRequest -> HealthResponse",
		wire.GetGatewayInfo: "GetGatewayInfoRequest -> GetGatewayInfoResponse",
		wire.CreateSandbox:  "CreateSandboxRequest -> SandboxResponse",
		wire.GetSandbox:     "GetSandboxRequest -> SandboxResponse",
		wire.ListSandboxes:  "ListSandboxesRequest -> ListSandboxesResponse",
		wire.DeleteSandbox:  "DeleteSandboxRequest -> DeleteSandboxResponse",
		wire.WatchSandbox:   "WatchSandboxRequest -> stream SandboxStreamEvent",
		wire.Exec:           "stream ExecSandboxInput -> stream ExecSandboxEvent",
		wire.ExecOnce:       "ExecSandboxRequest -> stream ExecSandboxEvent",
	} {
		tb["rpc "+method] = how
	}
	return tb
}

// lines are what another table says of the same names.
func (tb table) lines(names table) string {
	var b strings.Builder
	for _, name := range sorted(names) {
		what, ok := tb[name]
		if !ok {
			what = "unknown"
		}
		fmt.Fprintf(&b, "%s = %s\n", name, what)
	}
	return b.String()
}

func sorted(tb table) []string {
	var names []string
	for name := range tb {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// TestFields compares what is used here with what the gateways' own
// descriptors said when they were read: testdata/fields-VERSION.txt.
func TestFields(t *testing.T) {
	for version, tb := range ours {
		want, err := os.ReadFile(committed(version))
		if err != nil {
			t.Fatal(err)
		}
		compare(t, version, tb.lines(tb), string(want))
	}
}

// TestHealthIsOneForBoth: it is asked before the generation is known.
func TestHealthIsOneForBoth(t *testing.T) {
	for name, what := range ours["0.0.111"] {
		if strings.HasPrefix(name, "Health") || strings.HasPrefix(name, "ServiceStatus") {
			if other := ours["0.1.5"][name]; other != what {
				t.Errorf("%s: %s and %s", name, what, other)
			}
		}
	}
}

// TestFieldsOfTheSDK reads the descriptors of the public SDK itself.
func TestFieldsOfTheSDK(t *testing.T) {
	kerneltest.Long(t)
	out, err := exec.Command(sdk.Python(t), "-c", `
import sys
from google.protobuf import descriptor_pb2
from openshell._proto import datamodel_pb2, openshell_pb2, sandbox_pb2
s = descriptor_pb2.FileDescriptorSet()
for m in (datamodel_pb2, sandbox_pb2, openshell_pb2):
    m.DESCRIPTOR.CopyToProto(s.file.add())
sys.stdout.buffer.write(s.SerializeToString())`).Output()
	if err != nil {
		t.Fatal(err)
	}
	against(t, sdk.Version, out)
}

// TestFieldsOfProtos reads the .proto files of a source tree of 0.0.x, where
// MOJOUP_TEST_OPENSHELL_PROTOS names their directory.
func TestFieldsOfProtos(t *testing.T) {
	dir := os.Getenv("MOJOUP_TEST_OPENSHELL_PROTOS")
	if dir == "" {
		t.Skip("wanted MOJOUP_TEST_OPENSHELL_PROTOS, found none: another project's sources are not part of this one")
	}
	set := filepath.Join(t.TempDir(), "set")
	cmd := exec.Command("protoc", "--include_imports", "--descriptor_set_out="+set, "-I"+dir, "openshell.proto", "sandbox.proto", "datamodel.proto")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	raw, err := os.ReadFile(set)
	if err != nil {
		t.Fatal(err)
	}
	against(t, "0.0.111", raw)
}

// against compares the committed table with what descriptors say now.
func against(t *testing.T, version string, raw []byte) {
	t.Helper()
	set := &descriptorpb.FileDescriptorSet{}
	if err := proto.Unmarshal(raw, set); err != nil {
		t.Fatal(err)
	}
	files, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	theirs := table{}
	files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		if strings.HasPrefix(string(f.Package()), "openshell.") {
			theirs.files(f)
		}
		return true
	})
	have := theirs.lines(ours[version])
	if *update {
		if err := os.WriteFile(committed(version), []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(committed(version))
	if err != nil {
		t.Fatal(err)
	}
	compare(t, version, have, string(want))
}

func committed(version string) string { return filepath.Join("testdata", "fields-"+version+".txt") }

func compare(t *testing.T, version, have, want string) {
	t.Helper()
	a, b := strings.Split(have, "\n"), strings.Split(want, "\n")
	for i := range max(len(a), len(b)) {
		var x, y string
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			t.Fatalf("%s: %q, the table has %q", version, x, y)
		}
	}
	if len(a) < 100 {
		t.Errorf("%s: only %d lines are compared", version, len(a))
	}
}
