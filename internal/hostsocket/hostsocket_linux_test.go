package hostsocket

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func listen(t *testing.T, network, name string) {
	t.Helper()
	var closer interface{ Close() error }
	var err error
	if network == "unixgram" {
		closer, err = net.ListenPacket(network, name)
	} else {
		closer, err = net.Listen(network, name)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closer.Close() })
}

// TestSocketsOfTheHost finds what listens in a directory by whatever name it was
// bound, and nothing that nobody listens at.
func TestSocketsOfTheHost(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(top, "repo")
	for _, d := range []string{dir, filepath.Join(dir, "sub"), filepath.Join(top, "repository")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := filepath.Join(top, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	listen(t, "unix", filepath.Join(dir, "sub", "one"))
	listen(t, "unixgram", filepath.Join(link, "two"))
	listen(t, "unixpacket", filepath.Join(dir, "three"))
	listen(t, "unix", filepath.Join(top, "repository", "not-below"))
	t.Chdir(dir)
	listen(t, "unix", "relative")
	stale, err := net.Listen("unix", filepath.Join(dir, "stale"))
	if err != nil {
		t.Fatal(err)
	}
	stale.(*net.UnixListener).SetUnlinkOnClose(false)
	stale.Close()

	all, err := List()
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Join(dir, "relative"), filepath.Join(dir, "sub", "one"), filepath.Join(dir, "three"), filepath.Join(dir, "two")}
	if got := Below(all, []string{dir}); !slices.Equal(got, want) {
		t.Errorf("found %q, want %q", got, want)
	}
	var told []string
	stop := New(nil).Watch([]string{dir}, want, func(path string) { told = append(told, path) })
	listen(t, "unix", filepath.Join(dir, "late"))
	stop()
	if want := []string{filepath.Join(dir, "late")}; !slices.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}
