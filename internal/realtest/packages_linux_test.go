package realtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// claudePackage has the version whose behaviour the tests describe.
const claudePackage = "@anthropic-ai/claude-code@2.1.332"

// npmArch is the machine as npm's platform packages spell it.
func npmArch() string {
	if runtime.GOARCH == "amd64" {
		return "x64"
	}
	return runtime.GOARCH
}

// fetching lets one test at a time fetch.
var fetching sync.Mutex

// fetched installs an npm package once into the cache and returns the
// directory in it that holds program: below, in node_modules.
func fetched(t *testing.T, spec, name, program string, below string) string {
	t.Helper()
	programs(t, "npm")
	fetching.Lock()
	defer fetching.Unlock()
	cache := os.Getenv("MOJOUP_TEST_CACHE")
	if cache == "" {
		cache = filepath.Join(tmp, "cache")
	}
	dir := filepath.Join(cache, name)
	found := func() string {
		at := filepath.Join(dir, "node_modules", below)
		if st, err := os.Stat(filepath.Join(at, program)); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return at
		}
		return ""
	}
	if at := found(); at != "" {
		return at
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	// Scripts of a package are not run: the platform package has the program.
	cmd := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", dir, spec)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if err != nil {
		kerneltest.Lacking(t, "the npm package "+spec, fmt.Sprintf("%v: %s", err, said))
	}
	at := found()
	if at == "" {
		t.Fatalf("%s brought no %s", spec, program)
	}
	return at
}

// node24 is the directory of a Node whose fetch knows proxies. The package
// "node" only fetches the one for this machine, by a script.
func node24(t *testing.T) string {
	name := "node-linux-" + npmArch()
	return fetched(t, name+"@24", "node24", "node", name+"/bin")
}

// claude is the directory of the agent's own binary.
func claude(t *testing.T) string {
	return fetched(t, claudePackage, "claude", "claude", "@anthropic-ai/claude-code-linux-"+npmArch())
}
