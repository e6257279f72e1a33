package gatewaytest_test

import (
	"os"
	"path/filepath"
	"testing"
)

// reachable is a directory that everybody can get to.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o755)
	}
	return dir
}
