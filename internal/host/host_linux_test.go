package host

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/repo"
)

// home is a made-up home by its real path.
func home(t *testing.T, files map[string]string) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestGather(t *testing.T) {
	dir := home(t, map[string]string{
		".nvm/versions/node/v1/etc/npmrc": "x", ".nvm/versions/node/v1/bin/node": "x", "dotfiles/bin/x": "x", ".npmrc": "registry=x", ".config/git/ignore": "*.o\n", "ca.pem": "pem",
	})
	if err := os.MkdirAll(dir+"/.local", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../dotfiles/bin", dir+"/.local/bin"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nowhere", dir+"/.volta"); err != nil {
		t.Fatal(err)
	}
	// A pipe where a file is expected must not hang.
	if err := syscall.Mkfifo(dir+"/pipe", 0o644); err != nil {
		t.Fatal(err)
	}
	h, err := Gather(t.Context(), nil, dir, []string{
		"PATH=" + dir + "/.local/bin:" + dir + "/none", "SSL_CERT_FILE=" + dir + "/ca.pem", "NODE_EXTRA_CA_CERTS=" + dir + "/pipe", "GOPROXY=direct", "SECRET=x",
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]plan.Node{
		dir:                                      {Kind: plan.Dir, Real: dir},
		dir + "/.nvm":                            {Kind: plan.Dir, Real: dir + "/.nvm"},
		dir + "/.nvm/versions/node/v1/etc/npmrc": {Kind: plan.File, Real: dir + "/.nvm/versions/node/v1/etc/npmrc"},
		dir + "/.local/bin": {Kind: plan.Dir, Real: dir + "/dotfiles/bin", Text: "../dotfiles/bin",
			Links: []repo.Link{{At: dir + "/.local/bin", To: dir + "/dotfiles/bin"}}},
		dir + "/.volta": {Real: dir + "/.volta", Text: "nowhere"},
		dir + "/none":   {},
	} {
		if diff := cmp.Diff(want, h.At[path]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	type contents struct {
		OS, Ignore, Npmrc string
		CAs, Variables    []string
	}
	got := contents{h.OS, string(h.Ignore), string(h.Settings[dir+"/.npmrc"]), nil, h.Variables}
	for _, ca := range h.ExtraCAs {
		got.CAs = append(got.CAs, string(ca))
	}
	if diff := cmp.Diff(contents{runtime.GOOS, "*.o\n", "registry=x", []string{"pem"}, []string{"GOPROXY=direct"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestBundlesAreNamedByTheirRealPaths: what is mounted over a link would land
// elsewhere, and twice for two names of one file.
func TestBundlesAreNamedByTheirRealPaths(t *testing.T) {
	dir := home(t, map[string]string{"extracted/bundle.pem": "x", "other.pem": "y"})
	for at, to := range map[string]string{"cert.pem": "extracted/bundle.pem", "tls.pem": "cert.pem", "gone.pem": "nowhere"} {
		if err := os.Symlink(to, filepath.Join(dir, at)); err != nil {
			t.Fatal(err)
		}
	}
	got := bundles([]string{dir + "/tls.pem", dir + "/gone.pem", dir + "/cert.pem", dir, dir + "/other.pem", dir + "/extracted/bundle.pem"})
	want := []plan.Bundle{{Path: dir + "/extracted/bundle.pem", Content: []byte("x")}, {Path: dir + "/other.pem", Content: []byte("y")}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestGatherEndsWithContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := errors.New("gone")
	cancel(cause)
	if _, err := Gather(ctx, nil, "/", nil); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}

func TestPerson(t *testing.T) {
	if u := Person(0, 0, nil); u.Name != "root" || u.Group == "" || u.Home == "" || u.Shell == "" {
		t.Errorf("root is %+v", u)
	}
	if diff := cmp.Diff(plan.User{UID: 3999999, GID: 3999998, Groups: []int{7}}, Person(3999999, 3999998, []int{7})); diff != "" {
		t.Errorf("somebody without an entry (-want +got):\n%s", diff)
	}
}

func TestPlacesKnowMovedSignIns(t *testing.T) {
	p := Places("/home/ann", []string{"CODEX_HOME=/data/codex", "GH_CONFIG_DIR=relative"}, []string{"/data/node"})
	if len(p.Homes) == 0 || p.Home != "/home/ann" || cmp.Diff([]string{"/data/codex"}, p.SignIns) != "" || cmp.Diff([]string{"/data/node"}, p.Node) != "" {
		t.Errorf("got %+v", p)
	}
}
