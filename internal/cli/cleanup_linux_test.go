package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// What cleanup could not undo is said, in words and in the exit code, and is
// there for the next try.
func TestCleanupSaysWhatItCouldNotUndo(t *testing.T) {
	run, err := os.MkdirTemp("", "mj") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	dir := t.TempDir()
	env := map[string]string{
		"HOME": dir, "MOJOUP_CONFIG": filepath.Join(dir, "node.toml"),
		"MOJOUP_STATE_DIR": filepath.Join(dir, "state"), "MOJOUP_RUNTIME_DIR": filepath.Join(run, "r"),
	}
	s, err := store.Open(t.Context(), env["MOJOUP_STATE_DIR"], store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	undo := []store.Undo{{Owner: "engine:of-another-build", Undo: sandbox.Undo{Kind: "thing", ID: "x"}}}
	if err := s.CreateSession(t.Context(), store.Session{ID: "one", State: session.Staging}, undo); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"cleanup"}, {"cleanup"}, {"cleanup", "--json"}} {
		var stdout, stderr bytes.Buffer
		code := Main(args, Process{
			Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, UID: os.Getuid(),
			Getenv: func(name string) string { return env[name] }, Environ: os.Environ, Executable: os.Executable,
		})
		if code != fault.ExitNegative || !strings.Contains(stdout.String(), "session one: could not undo yet: ") {
			t.Errorf("%v: code %d\n%s%s", args, code, stdout.String(), stderr.String())
		}
	}
}
