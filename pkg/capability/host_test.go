package capability

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// files makes a file system of texts; a name that ends in "/" is a directory.
func files(texts map[string]string) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, text := range texts {
		name = strings.TrimPrefix(name, "/")
		if dir, ok := strings.CutSuffix(name, "/"); ok {
			fsys[dir] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			continue
		}
		fsys[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o644}
	}
	return fsys
}

// usual are the files of an ordinary machine with control groups v2.
func usual() map[string]string {
	return map[string]string{
		"/proc/version":                 "Linux version 6.8.0-107-generic (buildd@lcy02) (gcc 13) #107-Ubuntu SMP",
		"/proc/sys/kernel/osrelease":    "6.8.0-107-generic\n",
		"/proc/sys/kernel/core_pattern": "core\n",
		"/proc/self/status":             "Name:\tnode\nSeccomp:\t0\nSeccomp_filters:\t0\n",
		"/proc/1/status":                "Name:\tsystemd\nSeccomp:\t0\nSeccomp_filters:\t0\n",
		"/proc/self/cgroup":             "0::/user.slice/user-1000.slice/user@1000.service/app.slice/node.service\n",
		"/proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
			"23 22 0:21 / /proc rw - proc proc rw\n24 22 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"/proc/sys/user/max_user_namespaces": "63432\n",
		"/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/node.service/cgroup.controllers": "cpu memory pids\n",
	}
}

// changed are the usual files with some replaced, added, or taken away by "-".
func changed(changes map[string]string) fstest.MapFS {
	texts := usual()
	for name, text := range changes {
		if text == "-" {
			delete(texts, name)
			continue
		}
		texts[name] = text
	}
	return files(texts)
}

// goodHost is a machine on which everything passes; tests break what they ask.
func goodHost() Host {
	return Host{
		OS:         "linux",
		Files:      changed(nil),
		Getenv:     func(string) string { return "" },
		LookPath:   func(name string) (string, error) { return "/usr/bin/" + name, nil },
		UID:        1000,
		Groups:     func() ([]string, error) { return []string{"users"}, nil },
		Helper:     func() error { return nil },
		Landlock:   announces(7),
		Listener:   func(context.Context) error { return nil },
		Namespaces: func(context.Context) error { return nil },
		OpenTUN:    func() error { return nil },
		Writable:   func(string) error { return nil },
		Docker: func(context.Context) DockerAnswer {
			return DockerAnswer{Address: "unix:///var/run/docker.sock", API: "1.51", LeastAPI: "1.24", Engine: "28.5.2"}
		},
		Registered: func() (string, error) {
			return "", hinted{"no OpenShell gateway is registered for this user", "openshell gateway add"}
		},
		CLIVersion: func(context.Context, string) (string, error) { return "0.0.111", nil },
		Gateway: func(context.Context) (GatewayAnswer, error) {
			return GatewayAnswer{Version: "0.0.111", Family: "0.0.x", Drivers: []string{"docker"}}, nil
		},
		Image: func(context.Context) (string, error) { return "base:1", nil },
		Binds: func(context.Context) error { return nil },
		Reach: func(context.Context) error { return nil },
	}
}

// announces is a kernel whose Landlock has version and keeps its word.
func announces(version int) Landlock {
	return Landlock{Version: func() (int, error) { return version, nil }, Create: func(int) error { return nil }}
}

func environment(variables map[string]string) func(string) string {
	return func(name string) string { return variables[name] }
}

// check examines h and picks one check.
func check(t *testing.T, h Host, name string) Check {
	t.Helper()
	for _, c := range Examine(t.Context(), h, Auto).Checks {
		if c.Name == name {
			return c
		}
	}
	t.Fatalf("no check %q", name)
	return Check{}
}

// allText is everything that a person could read in a report.
func allText(r Report) string {
	text := r.Verdict.String()
	for _, c := range r.Checks {
		text += "\n" + strings.Join([]string{c.Title, c.Found, c.Needed, c.Mend, c.Reason}, " | ")
	}
	for _, e := range r.Engines {
		text += "\n" + e.Reason
	}
	return text
}

func TestGoodHost(t *testing.T) {
	r := Examine(t.Context(), goodHost(), Auto)
	if r.Verdict.String() != SentenceAble || r.Verdict.Chosen != "native" {
		t.Errorf("verdict %q by %q", r.Verdict, r.Verdict.Chosen)
	}
	for _, c := range r.Checks {
		want := OK
		switch c.Name {
		case NameGateway: // not registered in the fixture
			want = Fail
		}
		if c.State != want {
			t.Errorf("%s is %s: %s (%s)", c.Name, c.State, c.Found, c.Reason)
		}
	}
}

func TestB01_MirroredNetworkingHoldsTheListener(t *testing.T) {
	h := goodHost()
	h.Files = changed(map[string]string{
		"/proc/sys/kernel/osrelease": "6.6.87.2-microsoft-standard-WSL2",
		"/proc/version":              "Linux version 6.6.87.2-microsoft-standard-WSL2 (root@439a258ad544)",
		"/proc/1/status":             "Name:\tinit\nSeccomp:\t2\nSeccomp_filters:\t1\n",
	})
	h.Listener = func(context.Context) error {
		return &child.StageError{Stage: child.StageNotify, Errno: syscall.EBUSY}
	}
	for _, engine := range []Engine{Auto, Native} {
		r := Examine(t.Context(), h, engine)
		const want = "This machine cannot sandbox agents: WSL's mirrored networking mode already holds the one seccomp listener that Linux allows; NAT mode works"
		if r.Verdict.String() != want || !r.Verdict.Known {
			t.Errorf("%s: verdict %q, known %v", engine, r.Verdict, r.Verdict.Known)
		}
		for _, line := range r.Engines {
			if line.Able || line.Reason != r.Verdict.Reason {
				t.Errorf("%s: able %v, %q", line.Engine, line.Able, line.Reason)
			}
		}
	}
	if c := check(t, h, NameListener); c.State != Fail || !strings.Contains(c.Mend, "networkingMode=nat") {
		t.Errorf("%s, mend %q", c.State, c.Mend)
	}

	// NAT mode: the probe passes, and being WSL alone is no reason.
	h.Listener = func(context.Context) error { return nil }
	if r := Examine(t.Context(), h, Auto); r.Verdict.String() != SentenceAble {
		t.Errorf("NAT mode: %q", r.Verdict)
	}

	// Another holder elsewhere is not called WSL.
	h.Files = changed(nil)
	h.Listener = func(context.Context) error { return &child.StageError{Stage: child.StageNotify, Errno: syscall.EBUSY} }
	r := Examine(t.Context(), h, Native)
	if r.Verdict.Able || strings.Contains(r.Verdict.String(), "WSL") || !strings.Contains(r.Verdict.Reason, "another program") {
		t.Errorf("elsewhere: %q", r.Verdict)
	}
}

func TestB03_TellingWSLApart(t *testing.T) {
	tests := []struct {
		name, release, banner string
		paths                 map[string]string
		env                   map[string]string
		state                 State
		want                  wsl
	}{
		{"WSL 1", "4.4.0-19041-Microsoft", "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com) #1", nil, nil, Fail, wsl1},
		{"WSL 2", "6.6.87.2-microsoft-standard-WSL2", "Linux version 6.6.87.2-microsoft-standard-WSL2 (root@4)", nil, nil, OK, wsl2},
		{"early WSL 2", "4.19.84-microsoft-standard", "Linux version 4.19.84-microsoft-standard", nil, nil, OK, wsl2},
		{"own kernel in WSL 2", "6.18.0-mine", "Linux version 6.18.0-mine (me@box)", map[string]string{"/run/WSL/": ""},
			map[string]string{"WSL_INTEROP": "/run/WSL/12_interop"}, OK, wsl2},
		{"own kernel, root without the variable", "6.18.0-mine", "Linux version 6.18.0-mine (me@box)",
			map[string]string{"/run/WSL/": ""}, nil, OK, wsl2},
		{"own kernel, by the interop file", "6.18.0-mine", "Linux version 6.18.0-mine (me@box)",
			map[string]string{"/proc/sys/fs/binfmt_misc/WSLInterop": "enabled"}, nil, OK, wsl2},
		{"Azure", "6.8.0-1020-azure", "Linux version 6.8.0-1020-azure (Microsoft@builder) #23", nil, nil, OK, notWSL},
		{"plain", "6.8.0-107-generic", "Linux version 6.8.0-107-generic (buildd@lcy02)", nil, nil, OK, notWSL},
		{"a variable of somebody else", "6.8.0-107-generic", "Linux version 6.8.0-107-generic (buildd@lcy02)", nil,
			map[string]string{"WSL_INTEROP": "1"}, OK, notWSL},
		{"banner unreadable", "6.8.0-107-generic", "-", nil, nil, Warn, unknownWSL},
		{"nothing readable", "-", "-", nil, nil, Warn, unknownWSL},
		{"release unreadable, banner of WSL 1", "-", "Linux version 4.4.0-19041-Microsoft (Microsoft@Microsoft.com)", nil, nil, Fail, wsl1},
		{"banner unreadable, release of WSL 2", "6.6.87.2-microsoft-standard-WSL2", "-", nil, nil, OK, wsl2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := goodHost()
			changes := map[string]string{"/proc/sys/kernel/osrelease": tt.release, "/proc/version": tt.banner}
			for name, text := range tt.paths {
				changes[name] = text
			}
			h.Files, h.Getenv = changed(changes), environment(tt.env)
			if got := detectWSL(&h); got != tt.want {
				t.Errorf("detected %q, want %q", got, tt.want)
			}
			r := Examine(t.Context(), h, Native)
			if c := r.Checks[0]; c.State != tt.state {
				t.Errorf("%s is %s: %s", c.Name, c.State, c.Found)
			}
			if r.Verdict.Able != (tt.state != Fail) {
				t.Errorf("verdict %q", r.Verdict)
			}
			if text := allText(r); tt.want == notWSL && strings.Contains(text, "WSL") {
				t.Errorf("WSL is mentioned:\n%s", text)
			}
			if tt.want == wsl1 && !strings.Contains(r.Verdict.Reason, "WSL 1") {
				t.Errorf("WSL 1 is not named: %q", r.Verdict)
			}
			if tt.want == unknownWSL && !strings.Contains(r.Checks[0].Found, "unknown") {
				t.Errorf("unknown is not said: %q", r.Checks[0].Found)
			}
		})
	}
}

// wrapped is an errno as a caller may pass it on.
func wrapped(errno syscall.Errno) error { return os.NewSyscallError("landlock_create_ruleset", errno) }

func TestB04_LandlockByTheKernelsAnswer(t *testing.T) {
	refuseAbove := func(last int, errno syscall.Errno) func(int) error {
		return func(abi int) error {
			if abi > last {
				return wrapped(errno)
			}
			return nil
		}
	}
	tests := []struct {
		name    string
		version int
		err     error
		create  func(int) error
		state   State
		says    string // in the reason, or in what was found where it passes
	}{
		{name: "not built in", err: wrapped(syscall.ENOSYS), state: Fail, says: "built without Landlock"},
		{name: "off at boot", err: wrapped(syscall.EOPNOTSUPP), state: Fail, says: "switched off at boot"},
		{name: "1", version: 1, state: Fail, says: "ABI 1 found, 3 needed"},
		{name: "2", version: 2, state: Fail, says: "ABI 2 found, 3 needed"},
		{name: "3", version: 3, state: OK, says: "ABI 3, ruleset made"},
		{name: "4", version: 4, state: OK, says: "ABI 4, ruleset made"},
		{name: "7", version: 7, state: OK, says: "ABI 7, ruleset made"},
		{name: "99", version: 99, state: OK, says: "ABI 99, ruleset made"},
		{name: "4 with rights of 3 only", version: 4, create: refuseAbove(3, syscall.EINVAL), state: OK, says: "ABI 4 announced, a ruleset of ABI 3 made"},
		{name: "9 with an older structure", version: 9, create: refuseAbove(5, syscall.E2BIG), state: OK, says: "a ruleset of ABI 5 made"},
		{name: "4 with rights of 2 only", version: 4, create: refuseAbove(2, syscall.EINVAL), state: Fail, says: "accepts no ruleset of ABI 3"},
		{name: "4 and nothing at all", version: 4, create: refuseAbove(0, syscall.EINVAL), state: Fail, says: "accepts no ruleset"},
		{name: "4 and not permitted", version: 4, create: refuseAbove(0, syscall.EPERM), state: Fail, says: "refuses to make a ruleset"},
		{name: "4 and no descriptor left", version: 4, create: refuseAbove(0, syscall.EMFILE), state: Unknown, says: "could not be found out"},
		{name: "0", version: 0, state: Fail, says: "ABI 0 found"},
		{name: "-1", version: -1, state: Fail, says: "ABI -1 found"},
		{name: "an error that is none of the kernel's", err: errors.New("odd"), state: Unknown, says: "could not be found out"},
	}
	reasons := map[string]string{}
	for _, securityfs := range []string{"-", "lockdown,capability,landlock", "lockdown,capability"} {
		for _, tt := range tests {
			t.Run(tt.name+" securityfs "+securityfs, func(t *testing.T) {
				h := goodHost()
				h.Files = changed(map[string]string{"/sys/kernel/security/lsm": securityfs})
				h.Landlock = announces(tt.version)
				if tt.err != nil {
					h.Landlock.Version = func() (int, error) { return 0, tt.err }
				}
				if tt.create != nil {
					h.Landlock.Create = tt.create
				}
				c := check(t, h, NameLandlock)
				if c.State != tt.state || !strings.Contains(c.Found+c.Reason, tt.says) {
					t.Errorf("%s: %q, %q; want %s and %q", c.State, c.Found, c.Reason, tt.state, tt.says)
				}
				r := Examine(t.Context(), h, Native)
				if r.Verdict.Able != (tt.state == OK) {
					t.Errorf("verdict %q", r.Verdict)
				}
				if before, ok := reasons[tt.name]; ok && before != c.Reason {
					t.Errorf("securityfs changes the reason from %q to %q", before, c.Reason)
				}
				reasons[tt.name] = c.Reason
			})
		}
	}
	if a, b := reasons["not built in"], reasons["off at boot"]; a == b || a == reasons["2"] || reasons["1"] == reasons["2"] {
		t.Errorf("reasons are not told apart: %q %q %q %q", a, b, reasons["1"], reasons["2"])
	}
}

func TestLandlockHiddenByAFilter(t *testing.T) {
	h := goodHost()
	h.Files = changed(map[string]string{"/proc/self/status": "Seccomp:\t2\n", "/.dockerenv": ""})
	h.Landlock.Version = func() (int, error) { return 0, syscall.ENOSYS }
	if c := check(t, h, NameLandlock); c.State != Fail || !strings.Contains(c.Reason, "hides it") {
		t.Errorf("%s: %q", c.State, c.Reason)
	}
}
