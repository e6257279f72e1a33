package wire_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

var update = flag.Bool("update", false, "write the generated Go files anew")

// generators finds protoc, and makes protoc-gen-go of the version that go.mod
// names for the library, so that the two fit.
func generators(t *testing.T) (protoc, plugin string) {
	t.Helper()
	protoc, err := exec.LookPath("protoc")
	kerneltest.Require(t, "protoc (Debian: protobuf-compiler)", err)
	plugin = filepath.Join(t.TempDir(), "protoc-gen-go")
	out, err := exec.Command("go", "build", "-o", plugin, "google.golang.org/protobuf/cmd/protoc-gen-go").CombinedOutput()
	if err != nil {
		t.Fatalf("protoc-gen-go: %v: %s", err, out)
	}
	return protoc, plugin
}

// The version of protoc stands in the head of a generated file and says
// nothing about what it holds.
var compiler = regexp.MustCompile(`(?m)^//.*\bprotoc\b +v.*$`)

func TestGeneratedGoIsCurrent(t *testing.T) {
	if !*update {
		kerneltest.Long(t) // it builds a generator
	}
	protoc, plugin := generators(t)
	for _, generation := range []string{"v00", "v01"} {
		out := t.TempDir()
		cmd := exec.Command(protoc, "--plugin=protoc-gen-go="+plugin, "--go_out="+out, "--go_opt=paths=source_relative",
			"--proto_path="+generation, generation+".proto")
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", generation, err, text)
		}
		name := generation + ".pb.go"
		want, err := os.ReadFile(filepath.Join(out, name))
		if err != nil {
			t.Fatal(err)
		}
		committed := filepath.Join(generation, name)
		if *update {
			if err := os.WriteFile(committed, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		have, err := os.ReadFile(committed)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(compiler.ReplaceAll(have, nil), compiler.ReplaceAll(want, nil)) {
			t.Errorf("%s is not what %s.proto makes: make proto", committed, generation)
		}
	}
}
