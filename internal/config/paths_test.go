package config

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mojoup/mojoup-node/internal/fault"
)

// machine is a finder on an empty machine of this process's user.
func machine(t *testing.T, env map[string]string) finder {
	t.Helper()
	// The directories of tests have long names.
	top, err := os.MkdirTemp("/tmp", "p")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(top) })
	f := finder{
		getenv: func(k string) string { return env[k] }, uid: os.Getuid(),
		run: filepath.Join(top, "run"), tmp: filepath.Join(top, "tmp"),
		home: func(int) string { return "" },
	}
	for _, dir := range []string{f.run, f.tmp} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// user finds the paths as anybody but root does, though the test may be root.
func (f finder) user() (Paths, error) {
	p := Paths{}
	err := f.fill(&p)
	return p, err
}

func TestPathsOfAUser(t *testing.T) {
	f := finder{uid: 4711, run: "/nonexistent/run", tmp: "/nonexistent/tmp", home: func(int) string { return "/home/pw" }}
	for name, tt := range map[string]struct {
		env  map[string]string
		want Paths
	}{
		"Home":         {map[string]string{"HOME": "/home/u"}, Paths{Config: "/home/u/.config/mojoup/node.toml", State: "/home/u/.local/state/mojoup", Runtime: "/nonexistent/tmp/mojoup-4711"}},
		"NoHome":       {nil, Paths{Config: "/home/pw/.config/mojoup/node.toml", State: "/home/pw/.local/state/mojoup", Runtime: "/nonexistent/tmp/mojoup-4711"}},
		"XDG":          {map[string]string{"XDG_CONFIG_HOME": "/c/", "XDG_STATE_HOME": "/s"}, Paths{Config: "/c/mojoup/node.toml", State: "/s/mojoup", Runtime: "/nonexistent/tmp/mojoup-4711"}},
		"RelativeXDG":  {map[string]string{"HOME": "/home/u", "XDG_CONFIG_HOME": "c", "XDG_STATE_HOME": "."}, Paths{Config: "/home/u/.config/mojoup/node.toml", State: "/home/u/.local/state/mojoup", Runtime: "/nonexistent/tmp/mojoup-4711"}},
		"Moved":        {map[string]string{"MOJOUP_CONFIG": "/c/x.toml", "MOJOUP_STATE_DIR": "/s//x/", "MOJOUP_RUNTIME_DIR": "/r"}, Paths{Config: "/c/x.toml", State: "/s/x", Runtime: "/r"}},
		"ForeignXDG":   {map[string]string{"HOME": "/home/u", "XDG_RUNTIME_DIR": "/proc"}, Paths{Config: "/home/u/.config/mojoup/node.toml", State: "/home/u/.local/state/mojoup", Runtime: "/nonexistent/tmp/mojoup-4711"}},
		"RelativeHome": {map[string]string{"HOME": "u"}, Paths{Config: "/home/pw/.config/mojoup/node.toml", State: "/home/pw/.local/state/mojoup", Runtime: "/nonexistent/tmp/mojoup-4711"}},
	} {
		t.Run(name, func(t *testing.T) {
			f.getenv = func(k string) string { return tt.env[k] }
			got, err := f.find()
			if err != nil {
				t.Fatal(err)
			}
			register := tt.want.State + "/nodes"
			if name == "Moved" { // nothing of a node's own moves what all are found by
				register = "/home/pw/.local/state/mojoup/nodes"
			}
			tt.want.Register = register
			// D13d: their own node first, then that of the system, unless they
			// say which.
			if tt.want.OrSystem = "/run/mojoup/node.sock"; name == "Moved" {
				tt.want.OrSystem = ""
			}
			if diff := cmp.Diff(tt.want, got, cmpopts.IgnoreUnexported(Paths{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestPathsOfRoot(t *testing.T) {
	none := func(string) string { return "" }
	got, err := FindPaths(none, 0)
	want := Paths{System: true, Config: "/etc/mojoup/node.toml", State: "/var/lib/mojoup", Runtime: "/run/mojoup", Register: "/var/lib/mojoup/nodes"}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(Paths{})); diff != "" || err != nil {
		t.Error(diff, err)
	}
	if got.Socket() != "/run/mojoup/node.sock" {
		t.Error(got.Socket())
	}
}

func TestNoHomeIsASentence(t *testing.T) {
	_, err := machine(t, nil).user()
	var bad *PathError
	if !errors.As(err, &bad) || !strings.Contains(err.Error(), "HOME is not set") || fault.As(err).Exit != fault.ExitUnknown || !strings.Contains(bad.Hint(), "MOJOUP_CONFIG") {
		t.Errorf("%v", err)
	}
}

func TestMovedPathsAreAbsolute(t *testing.T) {
	for _, v := range []string{"MOJOUP_CONFIG", "MOJOUP_STATE_DIR", "MOJOUP_RUNTIME_DIR"} {
		_, err := machine(t, map[string]string{v: "here", "HOME": "/home/u"}).find()
		if err == nil || !strings.Contains(err.Error(), v+" is not an absolute path: here") {
			t.Errorf("%s: %v", v, err)
		}
	}
}

func TestLongSocketPathIsASentence(t *testing.T) {
	for n, ok := range map[int]bool{90: true, 91: false, 4000: false} {
		dir := "/" + strings.Repeat("r", n-1)
		p, err := machine(t, map[string]string{"MOJOUP_RUNTIME_DIR": dir, "HOME": "/home/u"}).find()
		if (err == nil) != ok {
			t.Errorf("%d: socket of %d bytes: %v", n, len(p.Socket()), err)
		}
		if err != nil && !strings.Contains(err.Error(), strconv.Itoa(n+10)+" bytes, 100 at most") {
			t.Errorf("%d: %v", n, err)
		}
	}
}

func TestRuntimeDirectory(t *testing.T) {
	env := map[string]string{"HOME": "/home/u"}
	f := machine(t, env)
	uid := strconv.Itoa(f.uid)
	find := func(want string) Paths {
		t.Helper()
		p, err := f.user()
		if err != nil || p.Runtime != want {
			t.Fatalf("%s, %v; want %s", p.Runtime, err, want)
		}
		return p
	}
	p := find(filepath.Join(f.tmp, "mojoup-"+uid))
	if err := p.MakeRuntime(); err != nil {
		t.Fatal(err)
	}
	if err := p.MakeRuntime(); err != nil { // a second time
		t.Fatal(err)
	}
	info, err := os.Stat(p.Runtime)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	find(p.Runtime)
	// What systemd makes goes before, what the session says before that.
	if err := os.Mkdir(filepath.Join(f.run, uid), 0o700); err != nil {
		t.Fatal(err)
	}
	find(filepath.Join(f.run, uid, "mojoup"))
	env["XDG_RUNTIME_DIR"] = filepath.Join(f.run, "missing")
	find(filepath.Join(f.run, uid, "mojoup"))
	env["XDG_RUNTIME_DIR"] = f.tmp
	p = find(filepath.Join(f.tmp, "mojoup"))
	if err := p.MakeRuntime(); err != nil {
		t.Fatal(err)
	}
}

// In /tmp anybody may have been there first.
func TestRuntimeDirectoryOfOthersIsRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(dir string) error
		says string
	}{
		"Symlink":  {func(d string) error { return os.Symlink("/", d) }, "is a symbolic link"},
		"Dangling": {func(d string) error { return os.Symlink("/nonexistent", d) }, "is a symbolic link"},
		"File":     {func(d string) error { return os.WriteFile(d, nil, 0o600) }, "is not a directory"},
		"Writable": {func(d string) error { return errors.Join(os.Mkdir(d, 0o700), os.Chmod(d, 0o770)) }, "others may write"},
	} {
		t.Run(name, func(t *testing.T) {
			f := machine(t, map[string]string{"HOME": "/home/u"})
			dir := filepath.Join(f.tmp, "mojoup-"+strconv.Itoa(f.uid))
			if err := tt.make(dir); err != nil {
				t.Fatal(err)
			}
			for what, err := range map[string]error{
				"find": func() error { _, err := f.user(); return err }(), "make": Paths{Runtime: dir}.MakeRuntime(),
			} {
				var bad *PathError
				if !errors.As(err, &bad) || !strings.Contains(err.Error(), tt.says) || !strings.Contains(bad.Hint(), "MOJOUP_RUNTIME_DIR") {
					t.Errorf("%s: %v", what, err)
				}
			}
		})
	}
	// One that belongs to somebody else: to every uid but this one, it does.
	dir := t.TempDir()
	if err := checkRuntime(dir, os.Getuid()+1); err == nil || !strings.Contains(err.Error(), "belongs to uid "+strconv.Itoa(os.Getuid())) && !strings.Contains(err.Error(), "belongs to root") {
		t.Errorf("%v", err)
	}
}

func TestRuntimeDirectoryThatCannotBeMade(t *testing.T) {
	for _, dir := range []string{"/proc/mojoup", "/proc/a/b/mojoup"} {
		err := Paths{Runtime: dir}.MakeRuntime()
		if err == nil || !strings.Contains(err.Error(), "cannot be made") || strings.Count(err.Error(), dir) != 1 {
			t.Errorf("%v", err)
		}
	}
}
