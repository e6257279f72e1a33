package native

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func TestValidate(t *testing.T) {
	check(t, validate(example()))
	mount := func(m sandbox.Mount) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) { s.Mounts = append(s.Mounts, m) }
	}
	protect := func(p ...sandbox.Protection) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) { s.Protect = append(s.Protect, p...) }
	}
	direct := func(d ...sandbox.Direct) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) { s.Direct = d }
	}
	for _, c := range []struct {
		change func(*sandbox.Spec)
		want   string // part of the sentence
	}{
		{func(s *sandbox.Spec) { s.ID = "a/b" }, "id: "},
		{func(s *sandbox.Spec) { s.ID = strings.Repeat("a", 33) }, "id: "},
		{func(s *sandbox.Spec) { s.Identity.GID = -1 }, "identity: "},
		{func(s *sandbox.Spec) { s.Hostname = "a b" }, "host name: "},
		{func(s *sandbox.Spec) { s.Proxy = "10.0.0.1:80" }, "proxy: "},
		{func(s *sandbox.Spec) { s.Proxy = "127.0.0.1:0" }, "proxy: "},
		{func(s *sandbox.Spec) { s.Proxy = "[::1%lo]:80" }, "proxy: "},
		{direct(sandbox.Direct{Host: "a.example\n127.0.0.1 b", Port: 1, Address: "127.0.1.1"}), "no name in lower case"},
		{direct(sandbox.Direct{Host: "A.example", Port: 1, Address: "127.0.1.1"}), "no name in lower case"},
		{direct(sandbox.Direct{Host: "10.0.0.1", Port: 1, Address: "127.0.1.1"}), "no name in lower case"},
		{direct(sandbox.Direct{Port: 1, Address: "127.0.1.1"}), "no name in lower case"},
		{direct(sandbox.Direct{Host: "a.example", Port: 1, Address: "10.0.0.1"}), "not a loopback address"},
		{direct(sandbox.Direct{Host: "a.example", Port: 1, Address: "127.0.0.1"}), "beside the proxy's"},
		{direct(sandbox.Direct{Host: "a.example", Address: "127.0.1.1"}), "port 0 of 127.0.1.1 is none"},
		{direct(sandbox.Direct{Host: "a.example", Port: 1, Address: "127.0.1.1"}, sandbox.Direct{Host: "b.example", Port: 1, Address: "127.0.1.1"}), "or taken"},
		{direct(sandbox.Direct{Host: "a.example", Port: 1, Address: "127.0.1.1"}, sandbox.Direct{Host: "a.example", Port: 2, Address: "127.0.1.2"}), "two addresses"},
		{func(s *sandbox.Spec) { s.WorkDir = "empty" }, "working directory: "},
		{func(s *sandbox.Spec) { s.WorkDir = "/home/u/repo/x" }, "contains the node's own"},
		{func(s *sandbox.Spec) { s.Env = []string{"SECRET\x00=value-of-it"} }, "environment: "},
		{func(s *sandbox.Spec) { s.Limits.Files = -1 }, "limits: "},
		{mount(sandbox.Mount{Kind: sandbox.Scratch, Target: "/"}), "the root is the engine's own"},
		{mount(sandbox.Mount{Kind: sandbox.Bind, Source: "/proc", Target: "/proc"}), "/proc is the engine's own"},
		{mount(sandbox.Mount{Kind: sandbox.Text, Target: "/.text0"}), "the engine's own"},
		{mount(sandbox.Mount{Kind: sandbox.Scratch, Target: "/a", Begin: []byte("x")}), "only a text has a beginning"},
		{mount(sandbox.Mount{Kind: sandbox.Bind, Source: "/dev/kvm", Target: "/dev/kvm"}), "/dev is the engine's own"},
		{mount(sandbox.Mount{Kind: sandbox.Scratch, Target: "/x//y"}), "not a clean absolute path"},
		{mount(sandbox.Mount{Kind: sandbox.Scratch, Target: "/x", Size: -1}), "negative size"},
		{mount(sandbox.Mount{Kind: sandbox.Text, Target: "/x", Access: sandbox.ReadWrite}), "a text is read-only"},
		{mount(sandbox.Mount{Kind: sandbox.Link, Target: "/x"}), "a link to nothing"},
		{mount(sandbox.Mount{Kind: sandbox.Link, Source: "a", Target: "/usr/x"}), "cannot be made in /usr"},
		{mount(sandbox.Mount{Kind: sandbox.Seed, Target: "/x"}), "in a writable scratch directory only"},
		{mount(sandbox.Mount{Kind: sandbox.Seed, Target: "/home/u/repo/x"}), "in a writable scratch directory only"},
		{mount(sandbox.Mount{Kind: 9, Target: "/x"}), "unknown kind"},
		{mount(sandbox.Mount{Kind: sandbox.Bind, Source: "/a", Target: "/x", Access: 9}), "unknown access"},
		{protect(sandbox.Protection{Path: "/usr/bin", Guard: sandbox.Freeze}), "in no writable mount"},
		{protect(sandbox.Protection{Path: "/elsewhere", Guard: sandbox.Freeze}), "in no writable mount"},
		{protect(sandbox.Protection{Path: "/home/u/repo/x", Guard: 9}), "unknown guard"},
		{protect(sandbox.Protection{Path: "/home/u/repo/a/b"}, sandbox.Protection{Path: "/home/u/repo/a"}), "is protected before it"},
		{func(s *sandbox.Spec) { s.Checks = []sandbox.Check{{Kind: 9, Path: "/"}} }, "unknown kind"},
		{func(s *sandbox.Spec) { s.Checks = []sandbox.Check{{Path: "x"}} }, "not a clean absolute path"},
	} {
		s := example()
		c.change(&s)
		err := validate(s)
		var wrong *SpecError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want a SpecError with %q", err, c.want)
		} else if strings.Contains(err.Error(), "value-of-it") {
			t.Errorf("shows a value that may be a secret: %v", err)
		}
	}
}

func TestIdentity(t *testing.T) {
	if os.Geteuid() == 0 {
		check(t, validateIdentity(sandbox.Identity{UID: 12345, GID: 6, Groups: []int{7}}))
		return
	}
	own := sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}
	check(t, validateIdentity(own))
	for _, id := range []sandbox.Identity{{UID: own.UID + 1, GID: own.GID}, {UID: own.UID, GID: own.GID + 1}, {UID: own.UID, GID: own.GID, Groups: []int{54321}}} {
		if err := validateIdentity(id); err == nil || !strings.Contains(err.Error(), "only a node that is root") {
			t.Errorf("%+v: %v", id, err)
		}
	}
}

func TestCandidates(t *testing.T) {
	for _, c := range []struct {
		name string
		env  []string
		want string
	}{
		{"ls", nil, "/usr/local/bin/ls /usr/bin/ls /bin/ls"},
		{"ls", []string{"PATH=/a:/b/"}, "/a/ls /b/ls"},
		{"ls", []string{"PATH=/a", "PATH=/c"}, "/c/ls"},
		{"ls", []string{"PATH=:.:bin:/a"}, "/a/ls"}, // the working directory is the session's
		{"./ls", []string{"PATH=/a"}, "./ls"},
		{"/x/ls", nil, "/x/ls"},
	} {
		if got := strings.Join(candidates(c.name, c.env), " "); got != c.want {
			t.Errorf("%s in %q: got %s, want %s", c.name, c.env, got, c.want)
		}
	}
}

func TestMerge(t *testing.T) {
	got := strings.Join(merge([]string{"A=1", "B=2", "A=3"}, []string{"B=4", "C="}), " ")
	if got != "A=3 B=4 C=" {
		t.Errorf("got %s", got)
	}
}
