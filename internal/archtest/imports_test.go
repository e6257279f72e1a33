package archtest

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// rules bind every package below from. Each says why, so that a failing build
// explains itself, and must bind at least one package, so that a renamed folder
// cannot make it silent.
var rules = []struct {
	from    string   // package prefix, relative to the module; "" is all of it
	except  []string // prefixes that the rule does not bind
	deny    []string // import prefixes: relative to the module, or a path of others
	allow   []string // what of that may be imported all the same
	because string
}{
	{from: "pkg", deny: []string{"internal"}, because: "pkg is what others may use: its API cannot lean on what they cannot import"},
	{from: "", deny: []string{"cmd"}, because: "nobody imports a command"},
	{from: "", except: []string{"cmd", "internal/cli"}, deny: []string{"internal/cli", "github.com/spf13/cobra"}, because: "only the command tree knows about commands"},
	{from: "", except: []string{"internal/cli", "internal/node"}, deny: []string{"internal/node"}, because: "parts do not know the whole"},
	{from: "", except: []string{"internal/store"}, deny: []string{"database/sql", "modernc.org/sqlite"}, because: "only the store speaks SQL"},
	// The tests of pure packages may read golden files: their imports are not asked.
	{from: "pkg/policy", deny: []string{"os", "net/http"}, because: "a decision is a pure function: no file, process or socket"},
	{from: "pkg/secrets", except: []string{"pkg/secrets/source", "pkg/secrets/vault", "pkg/secrets/signin", "pkg/secrets/keyringtest"}, deny: []string{"os"}, because: "a key goes from a source to one request: no file or process in between"},
	{from: "pkg/secrets/signin/profile", deny: []string{"os"}, because: "what is known of tools is data"},
	{from: "pkg/sandbox", deny: []string{"pkg/policy", "pkg/secrets", "pkg/console"}, because: "an engine obeys a Spec; it does not read policy"},
	{from: "", except: []string{"pkg/sandbox/openshell"}, deny: []string{"pkg/sandbox/openshell/wire", "google.golang.org/grpc", "google.golang.org/protobuf"}, because: "what a gateway's bytes look like stays below its engine"},
	{from: "", except: []string{"pkg/sandbox/openshell", "internal/cli"}, deny: []string{"pkg/sandbox/openshell"}, allow: []string{"pkg/sandbox/openshell/product", "pkg/sandbox/openshell/enginetest"}, because: "which engines there are is wired in one place"},
	{from: "pkg/sandbox/openshell/product", deny: []string{"pkg", "internal"}, because: "names are for everybody, and bring nothing along"},
	{from: "pkg/sandbox/openshell/forwarder", deny: []string{"os/exec", "flag", "github.com/spf13", "crypto/tls", "net/http"}, because: "the one program that a sandbox lets out starts nothing, takes no arguments and reads nobody's bytes"},
	{from: "internal/egress", deny: []string{"os/exec", "pkg/sandbox"}, because: "the way out knows sessions by their listener, never by process"},
	{from: "internal/egress/gitpush", deny: []string{"os", "net", "pkg", "internal"}, because: "what a push asks for is read from bytes, and judged by others"},
	{from: "internal/lineage", deny: []string{"os", "net", "pkg", "internal"}, because: "a proof rests on hashes alone: whoever reads the store is not believed"},
	{from: "pkg/console", deny: []string{"pkg/sandbox", "pkg/policy", "pkg/capability"}, allow: []string{"pkg/sandbox/kerneltest"}, because: "the API shows what the node tells it; it decides nothing"},
	{from: "internal/session", deny: []string{"pkg", "internal"}, because: "what a session is depends on nothing"},
	{from: "internal/plan", deny: []string{"os", "os/exec", "golang.org/x/sys/unix", "syscall"}, because: "a plan is a pure function: facts of the machine come in as values"},
	{from: "internal/admission", deny: []string{"pkg", "internal", "os/exec"}, because: "the door serves every kind of start and knows none of them"},
	{from: "internal/client", deny: []string{"internal/store", "internal/egress", "pkg/sandbox"}, because: "a client knows a node by its socket only"},
}

// pure packages decide from values, or are kept to one task; their tests may
// use what they may not.
var pure = map[string]bool{"pkg/secrets/signin/profile": true, "pkg/policy": true, "internal/plan": true, "internal/lineage": true, "pkg/sandbox/openshell/forwarder": true}

// packages parses the tree itself rather than asking go list: the go command
// caches test results by the files a test opens, and would go on reporting an
// old answer from a subprocess.
func packages(t *testing.T) (imports map[string][]string, docs map[string]string) {
	t.Helper()
	imports, docs = map[string][]string{}, map[string]string{}
	root := filepath.Join("..", "..")
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(mod), "\n")
	module := strings.TrimSpace(strings.TrimPrefix(first, "module")) + "/"
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || path != root && strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		dir = filepath.ToSlash(dir)
		for _, spec := range f.Imports {
			if pure[dir] && strings.HasSuffix(path, "_test.go") {
				break
			}
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports[dir] = append(imports[dir], strings.TrimPrefix(imp, module))
		}
		if !strings.HasSuffix(path, "_test.go") && f.Doc != nil {
			docs[dir] += f.Doc.Text()
		}
		if _, ok := docs[dir]; !ok {
			docs[dir] = ""
		}
		if _, ok := imports[dir]; !ok {
			imports[dir] = nil
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return imports, docs
}

func TestImports(t *testing.T) {
	imports, _ := packages(t)
	for _, r := range rules {
		bound := 0
		for pkg, imps := range imports {
			if !under(pkg, r.from) || underAny(pkg, r.except) {
				continue
			}
			bound++
			for _, imp := range imps {
				if underAny(imp, r.deny) && !underAny(imp, r.allow) {
					t.Errorf("%s imports %s: %s", pkg, imp, r.because)
				}
			}
		}
		if bound == 0 {
			t.Errorf("the rule for %q binds no package", r.from)
		}
	}
}

func TestEveryPackageSaysItsPromise(t *testing.T) {
	_, docs := packages(t)
	for pkg, doc := range docs {
		if len(doc) < 30 {
			t.Errorf("%s: package comment missing or too short: %q", pkg, doc)
		}
	}
}

func under(path, prefix string) bool {
	return prefix == "" || path == prefix || strings.HasPrefix(path, prefix+"/")
}

func underAny(path string, prefixes []string) bool {
	for _, p := range prefixes {
		if under(path, p) {
			return true
		}
	}
	return false
}
