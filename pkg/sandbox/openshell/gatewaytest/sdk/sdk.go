// Package sdk promises the public Python SDK of OpenShell, installed by pip
// into an environment of its own, for tests that want somebody else's word.
package sdk

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// Version is the one that is installed.
const Version = "0.1.5"

// Python is an interpreter that can import it. The environment is made once
// for each user of a machine and kept for the next run.
func Python(t testing.TB) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = t.TempDir()
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "mojoup-test-openshell-"+Version)
	python := filepath.Join(dir, "bin", "python")
	if works(python) {
		return python
	}
	host, err := exec.LookPath("python3")
	kerneltest.Require(t, "python3", err)
	// Made beside and moved into place, for other test programs do the same.
	// What stands in it names its own place, but for what is used here.
	made, err := os.MkdirTemp(cache, "mojoup-test-openshell-")
	if err != nil {
		t.Fatal(err)
	}
	run(t, host, "-m", "venv", made)
	run(t, filepath.Join(made, "bin", "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "openshell=="+Version)
	if err := os.Rename(made, dir); err != nil {
		os.RemoveAll(made)
	}
	if !works(python) {
		t.Fatalf("%s does not import openshell", python)
	}
	return python
}

func works(python string) bool {
	return exec.Command(python, "-c", "import openshell").Run() == nil
}

func run(t testing.TB, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}
