package capability

import (
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// maskedProc is what a container runtime mounts over /proc.
const maskedProc = "22 1 8:1 / / rw - overlay overlay rw\n23 22 0:21 / /proc rw - proc proc rw\n" +
	"30 23 0:21 /sys /proc/sys ro - proc proc rw\n31 23 0:5 /null /proc/keys rw - tmpfs tmpfs rw\n"

func TestB10_UserNamespacesRefused(t *testing.T) {
	const (
		appArmorFile = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns"
		cloneFile    = "/proc/sys/kernel/unprivileged_userns_clone"
	)
	making := func(errno syscall.Errno) *child.StageError {
		return &child.StageError{Stage: child.StageUserNamespace, Errno: errno}
	}
	proc := func(errno syscall.Errno) *child.StageError {
		return &child.StageError{Stage: child.StageProc, Operand: "/proc", Errno: errno}
	}
	maps := func(errno syscall.Errno) *child.StageError {
		return &child.StageError{Stage: child.StageMaps, Operand: "/proc/self/uid_map", Errno: errno}
	}
	tests := []struct {
		name   string
		uid    int
		files  map[string]string
		no     *child.StageError
		reason string // "" passes
		mend   string
	}{
		{"all fine", 1000, nil, nil, "", ""},
		{"as root, the AppArmor switch does no harm", 0, map[string]string{appArmorFile: "1\n"}, nil, "", ""},
		{"an ordinary user whom AppArmor lets through", 1000, map[string]string{appArmorFile: "1\n"}, nil, "", ""},
		{"AppArmor at once", 1000, map[string]string{appArmorFile: "1\n"}, making(syscall.EPERM),
			"kernel.apparmor_restrict_unprivileged_userns is 1", "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"},
		{"AppArmor afterwards, as in Ubuntu 24.04", 1000, map[string]string{appArmorFile: "1\n"}, maps(syscall.EPERM),
			"kernel.apparmor_restrict_unprivileged_userns is 1", "AppArmor profile with the rule userns"},
		{"AppArmor at /proc", 1000, map[string]string{appArmorFile: "1\n"}, proc(syscall.EACCES),
			"kernel.apparmor_restrict_unprivileged_userns is 1", "sysctl"},
		{"AppArmor is off, so it is not named", 1000, map[string]string{appArmorFile: "0\n"}, making(syscall.EPERM),
			"something on this machine refuses user namespaces", "journalctl"},
		{"none allowed", 1000, map[string]string{"/proc/sys/user/max_user_namespaces": "0\n"}, making(syscall.ENOSPC),
			"user namespaces are switched off: user.max_user_namespaces is 0", "sysctl -w user.max_user_namespaces=15000"},
		{"no network namespace allowed", 1000, map[string]string{"/proc/sys/user/max_net_namespaces": "0\n"},
			&child.StageError{Stage: child.StageNetworkNamespace, Errno: syscall.ENOSPC},
			"net namespaces are switched off: user.max_net_namespaces is 0", "sysctl -w user.max_net_namespaces=15000"},
		{"used up", 1000, nil, making(syscall.ENOSPC), "used up", "raise user.max_user_namespaces"},
		{"Debian's switch", 1000, map[string]string{cloneFile: "0\n"}, making(syscall.EPERM),
			"kernel.unprivileged_userns_clone is 0", "sysctl -w kernel.unprivileged_userns_clone=1"},
		{"Debian's switch is not for root", 0, map[string]string{cloneFile: "0\n"}, making(syscall.EPERM),
			"a security module", "journalctl"},
		{"not in the kernel", 1000, nil, making(syscall.ENOSYS), "built without user namespaces", "CONFIG_USER_NS"},
		{"not in the kernel, by the flag", 1000, nil, making(syscall.EINVAL), "built without user namespaces", "CONFIG_USER_NS"},
		{"in Docker", 1000, map[string]string{"/.dockerenv": "", "/proc/self/status": "Seccomp:\t2\n"}, making(syscall.EPERM),
			"this node itself runs in a container (docker)", "seccomp=unconfined"},
		{"in Docker, filter off", 1000, map[string]string{"/.dockerenv": "", "/proc/self/mountinfo": maskedProc}, proc(syscall.EPERM),
			"a fresh /proc is refused here, because parts of it are masked: this node itself runs in a container (docker)", "systempaths=unconfined"},
		{"in a container that leaves no name", 1000, map[string]string{"/proc/self/mountinfo": maskedProc}, proc(syscall.EPERM),
			"this node itself runs in a container (of unknown kind)", "host itself"},
		{"in Podman, with AppArmor's switch on the host", 1000,
			map[string]string{"/run/.containerenv": "", appArmorFile: "1\n", "/proc/self/mountinfo": maskedProc}, proc(syscall.EPERM),
			"container (podman)", "host itself"},
		{"in a service with RestrictNamespaces", 1000, map[string]string{"/proc/self/status": "Seccomp:\t2\n"}, making(syscall.EPERM),
			"a seccomp filter of the service or container", "RestrictNamespaces="},
		{"in a chroot", 1000, map[string]string{"/proc/self/mountinfo": "23 22 0:21 / /proc rw - proc proc rw\n"}, making(syscall.EPERM),
			"this node runs in a chroot", "outside of the chroot"},
		{"no /proc", 1000, map[string]string{"/proc/self/status": "-", "/proc/self/mountinfo": "-"}, making(syscall.EPERM),
			"there is no /proc", "mount -t proc"},
		{"no /proc to mount on", 1000, nil, proc(syscall.ENOENT), "there is no /proc", "mount -t proc"},
		{"/proc read-only", 1000, nil, maps(syscall.EROFS), "/proc is read-only here", "systempaths=unconfined"},
		{"in another sandbox", 1000, nil, &child.StageError{Stage: child.StageMount, Operand: "/tmp", Errno: syscall.EPERM},
			"this node may itself run in a sandbox", "outside of the sandbox"},
		{"something else", 1000, nil, &child.StageError{Stage: child.StageLoopback, Errno: syscall.ENODEV}, "not set up: no such device", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := goodHost()
			h.UID, h.Files = tt.uid, changed(tt.files)
			h.Namespaces = func(context.Context) error {
				if tt.no == nil {
					return nil
				}
				return tt.no
			}
			r := Examine(t.Context(), h, Native)
			c := check(t, h, NameNamespaces)
			if tt.reason == "" {
				if !r.Verdict.Able || c.State != OK {
					t.Errorf("verdict %q, check %s: %q", r.Verdict, c.State, c.Reason)
				}
				return
			}
			if c.State != Fail || !strings.Contains(c.Reason, tt.reason) || !strings.Contains(c.Mend, tt.mend) {
				t.Errorf("%s: %q, mend %q; want %q, %q", c.State, c.Reason, c.Mend, tt.reason, tt.mend)
			}
			if r.Verdict.Able || !r.Verdict.Known || r.Verdict.Reason != c.Reason {
				t.Errorf("verdict %q", r.Verdict)
			}
			wellSaid(t, c)
			// A node that needs only Docker is not failed for it.
			checks := with(with(with(r.Checks, NameDocker, OK, ""), NameGateway, OK, ""), NameUser, OK, "")
			if _, v := Decide(checks, Docker); !v.Able {
				t.Errorf("docker is failed for it: %q", v)
			}
		})
	}
}

// wellSaid checks that a sentence is one: words, no full stop, no number of an
// error, no name of a Go type.
func wellSaid(t *testing.T, c Check) {
	t.Helper()
	for _, bad := range []string{"errno", "syscall.", "%!", "&{", "\n", "0x"} {
		if strings.Contains(c.Reason+c.Found+c.Mend, bad) {
			t.Errorf("%s holds %q: %q %q %q", c.Name, bad, c.Reason, c.Found, c.Mend)
		}
	}
	if strings.HasSuffix(c.Reason, ".") || len(c.Reason) < 10 {
		t.Errorf("%s: reason %q", c.Name, c.Reason)
	}
}

func TestListenerRefused(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		err   error
		state State
		says  string
	}{
		{"old kernel", nil, &child.StageError{Stage: child.StageNotify, Errno: syscall.EINVAL}, Fail, "no seccomp user notification"},
		{"no seccomp", nil, &child.StageError{Stage: child.StageNotify, Errno: syscall.ENOSYS}, Fail, "no seccomp user notification"},
		{"in a container", map[string]string{"/.dockerenv": ""}, &child.StageError{Stage: child.StageNotify, Errno: syscall.EPERM}, Fail, "in a container (docker)"},
		{"held in a container", map[string]string{"/.dockerenv": ""}, &child.StageError{Stage: child.StageNotify, Errno: syscall.EBUSY}, Fail, "another program"},
		{"something else", nil, &child.StageError{Stage: child.StageNotify, Errno: syscall.ENOMEM}, Fail, "could not be installed"},
		{"no /proc to start it from", map[string]string{"/proc/self/status": "-"}, errors.New("open /proc/self/fd/7: no such file"), Fail, "there is no /proc"},
		{"root of a namespace without groups", map[string]string{"/proc/self/setgroups": "deny\n"}, os.NewSyscallError("fork", syscall.EPERM), Fail,
			"root of a user namespace that forbids changing groups"},
		{"not permitted to start it", nil, os.NewSyscallError("fork", syscall.EPERM), Unknown, "could not be found out"},
		{"timed out", nil, context.DeadlineExceeded, Unknown, "did not end in time"},
		{"helper is not heard", nil, &child.StageError{Stage: child.StageProtocol, Errno: syscall.EPIPE}, Unknown, "could not be found out"},
		{"too many processes", nil, &child.StageError{Stage: child.StageFork, Errno: syscall.EAGAIN}, Unknown, "could not be found out"},
		{"helper does not start", nil, errors.New("starting the helper: \x1b[2Jtext file busy"), Unknown, `starting the helper: \x1b[2Jtext`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := goodHost()
			h.Files = changed(tt.files)
			h.UID = 0
			h.Listener = func(context.Context) error { return tt.err }
			h.Namespaces = h.Listener
			c := check(t, h, NameListener)
			if c.State != tt.state || !strings.Contains(c.Reason, tt.says) {
				t.Errorf("%s: %q, want %s: %q", c.State, c.Reason, tt.state, tt.says)
			}
			r := Examine(t.Context(), h, Native)
			if r.Verdict.Able || r.Verdict.Known != (tt.state == Fail) || strings.Contains(allText(r), "\x1b") {
				t.Errorf("verdict %q, known %v", r.Verdict, r.Verdict.Known)
			}
			if tt.state == Unknown {
				if c := check(t, h, NameNamespaces); c.State != Unknown {
					t.Errorf("namespaces are %s", c.State)
				}
			}
		})
	}
}

func TestWithoutHelper(t *testing.T) {
	h := goodHost()
	h.Helper = func() error { return errors.New("no helper for this processor") }
	h.Listener = func(context.Context) error { t.Error("the helper was used"); return nil }
	h.Namespaces = h.Listener
	r := Examine(t.Context(), h, Native)
	if r.Verdict.Able || r.Verdict.Reason != "this build has no helper for the native engine" {
		t.Errorf("verdict %q", r.Verdict)
	}
	if c := check(t, h, NameNamespaces); c.State != Skipped {
		t.Errorf("namespaces are %s", c.State)
	}
}

func TestB08_GatewayHalves(t *testing.T) {
	missing := func(string) (string, error) { return "", os.ErrNotExist }
	there := func() (string, error) { return "openshell at https://127.0.0.1:17670; registered", nil }
	none := func() (string, error) {
		return "", hinted{"no OpenShell gateway is registered for this user", "openshell gateway add"}
	}
	tests := []struct {
		name         string
		registered   func() (string, error)
		look         func(string) (string, error)
		cli, gateway State
		says         string
	}{
		{"both, whatever containers are called", there, nil, OK, OK, "https://127.0.0.1:17670"},
		{"no gateway", none, nil, OK, Fail, "no OpenShell gateway is registered"},
		{"no command line", there, missing, Fail, OK, "https://127.0.0.1:17670"},
		{"neither", none, missing, Fail, Fail, "no OpenShell gateway is registered"},
		{"nobody asked", nil, nil, OK, Unknown, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := goodHost()
			h.Registered = tt.registered
			if tt.look != nil {
				h.LookPath = tt.look
			}
			cli, gateway := check(t, h, NameCLI), check(t, h, NameGateway)
			if cli.State != tt.cli || gateway.State != tt.gateway || !strings.Contains(gateway.Found, tt.says) {
				t.Errorf("cli %s, gateway %s: %q", cli.State, gateway.State, gateway.Found)
			}
			_, v := Decide(Examine(t.Context(), h, Docker).Checks, Docker)
			if v.Able != (tt.cli == OK && tt.gateway == OK) {
				t.Errorf("verdict %q", v)
			}
			if tt.gateway == Fail && gateway.Mend != "openshell gateway add" {
				t.Errorf("how to mend it: %q", gateway.Mend)
			}
			if tt.cli == Fail && !strings.Contains(v.Reason, "command line") || tt.cli == OK && tt.gateway == Fail && !strings.Contains(v.Reason, "gateway") {
				t.Errorf("the missing half is not named: %q", v)
			}
		})
	}
}

func TestB90_MightyGroups(t *testing.T) {
	tests := []struct {
		name   string
		uid    int
		groups []string
		err    error
		state  State
		says   string
	}{
		{"none", 1000, nil, nil, OK, "none"},
		{"harmless", 1000, []string{"users", "cdrom"}, nil, OK, "none"},
		{"docker", 1000, []string{"users", "docker", "kvm"}, nil, Warn, "docker, kvm: cannot be dropped without root"},
		{"root drops them", 0, []string{"docker"}, nil, OK, "chosen per session"},
		{"unreadable", 1000, nil, syscall.EIO, Warn, "unknown"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := goodHost()
			h.UID, h.Groups = tt.uid, func() ([]string, error) { return tt.groups, tt.err }
			c := check(t, h, NameGroups)
			if c.State != tt.state || !strings.Contains(c.Found, tt.says) {
				t.Errorf("%s: %q", c.State, c.Found)
			}
			if !Examine(t.Context(), h, Native).Verdict.Able {
				t.Error("groups decide")
			}
		})
	}
}

func TestTUN(t *testing.T) {
	tests := []struct {
		err   error
		state State
		says  string
	}{
		{nil, OK, "opens"},
		{&os.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.EACCES}, Skipped, "not as this user"},
		{&os.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.EPERM}, Skipped, "not as this user"},
		{&os.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.ENOENT}, Skipped, "no /dev/net/tun"},
		{&os.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.ENODEV}, Skipped, "no /dev/net/tun"},
		{&os.PathError{Op: "open", Path: "/dev/net/tun", Err: syscall.EIO}, Skipped, "input/output error"},
	}
	for _, tt := range tests {
		h := goodHost()
		h.OpenTUN = func() error { return tt.err }
		if c := check(t, h, NameTUN); c.State != tt.state || !strings.Contains(c.Found, tt.says) {
			t.Errorf("%v: %s: %q", tt.err, c.State, c.Found)
		}
	}
}

func TestLimits(t *testing.T) {
	const own = "/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/app.slice/node.service"
	v1 := map[string]string{
		"/proc/self/cgroup": "5:memory:/node\n4:cpu,cpuacct:/node\n3:pids:/node\n1:name=systemd:/\n0::/node\n",
		"/proc/self/mountinfo": "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" +
			"31 22 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
			"32 22 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n" +
			"33 22 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" +
			"34 22 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
		"/sys/fs/cgroup/unified/node/cgroup.controllers": "hugetlb\n",
	}
	inside := map[string]string{
		"/proc/self/cgroup": "0::/\n",
		"/proc/self/mountinfo": "22 1 8:1 / / rw - overlay overlay rw\n" +
			"24 22 0:22 /../../docker/abc /sys/fs/cgroup rw - cgroup2 cgroup rw\n",
		"/sys/fs/cgroup/cgroup.controllers": "cpu memory pids\n",
	}
	// A login, with a service manager beside it that has controllers.
	const linger, manager = "/var/lib/systemd/linger/me", "/run/user/1000/systemd/private"
	offer := func(without string) map[string]string {
		m := map[string]string{
			"/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n", linger: "", manager: "",
			"/sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/cgroup.controllers": "cpu memory pids\n",
		}
		if without != "" {
			m[without] = "-"
		}
		return m
	}
	all := func(string) error { return nil }
	none := func(string) error { return syscall.EACCES }
	only := func(allowed string) func(string) error {
		return func(path string) error {
			if strings.HasPrefix(path, allowed) {
				return nil
			}
			return syscall.EACCES
		}
	}
	tests := []struct {
		name     string
		files    map[string]string
		writable func(string) error
		state    State
		found    string
	}{
		{"v2 delegated", nil, all, OK, "control groups v2: memory, processes, processor time"},
		{"v2 not delegated", nil, none, Warn, "memory limit: weaker, watched only"},
		{"v2, processes cannot be moved", nil, func(path string) error {
			if strings.HasSuffix(path, "cgroup.procs") {
				return syscall.EACCES
			}
			return nil
		}, Warn, "memory limit: weaker, watched only"},
		{"v2 of a service manager that goes on", offer(""), none, OK, "control groups v2, which a node asks your service manager for: memory, processes, processor time"},
		{"v2 of a service manager that ends at logout", offer(linger), none, Warn, "control groups v2: memory limit: weaker"},
		{"v2 without a service manager", offer(manager), none, Warn, "control groups v2: memory limit: weaker"},
		{"v2 with one controller", map[string]string{own + "/cgroup.controllers": "pids"}, all, Warn,
			"control groups v2: memory limit: weaker, watched only, processor time limit: weaker, a choice of processors only; enforced: processes"},
		{"v2 inside a container", inside, all, OK, "control groups v2: memory"},
		{"v1 as root", v1, all, OK, "control groups v1: memory, processes, processor time"},
		{"v1 as somebody", v1, none, Warn, "control groups v1: memory limit: weaker, watched only"},
		{"v1, one hierarchy", v1, only("/sys/fs/cgroup/pids/node"), Warn, "control groups v1: memory limit: weaker, watched only"},
		{"none", map[string]string{"/proc/self/cgroup": "-", "/proc/self/mountinfo": "-"}, all, Warn, "no control groups: memory limit: weaker, watched only"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			h := goodHost()
			h.Files, h.Writable = changed(tt.files), tt.writable
			h.Getenv = environment(map[string]string{"USER": "me"})
			c := check(t, h, NameLimits)
			if c.State != tt.state || !strings.HasPrefix(c.Found, tt.found) && !strings.Contains(c.Found, ": "+tt.found) {
				t.Errorf("%s: %q, want %s: %q", c.State, c.Found, tt.state, tt.found)
			}
			if !Examine(t.Context(), h, Native).Verdict.Able {
				t.Error("limits decide")
			}
		})
	}
}

// TestCoreDumpsBySocket: since Linux 6.16 the kernel may send them to a socket, and
// then no limit of a session keeps its memory from there.
func TestCoreDumpsBySocket(t *testing.T) {
	for pattern, want := range map[string]State{"@/run/dumps\n": Warn, "@@/run/dumps\n": Warn, "|/usr/lib/handler\n": OK, "core.%p\n": OK} {
		h := goodHost()
		h.Files = changed(map[string]string{"/proc/sys/kernel/core_pattern": pattern})
		c := check(t, h, NameCore)
		if c.State != want || (want == Warn) != (strings.HasSuffix(c.Found, "by the socket /run/dumps") && c.Reason != "" && c.Mend != "") {
			t.Errorf("%q: %+v", pattern, c)
		}
		if !Examine(t.Context(), h, Native).Verdict.Able {
			t.Errorf("%q decides", pattern)
		}
	}
}

func TestWhatInforms(t *testing.T) {
	h := goodHost()
	h.Files = changed(map[string]string{
		"/proc/sys/kernel/core_pattern":    "|/usr/lib/handler %P \x1b[2J",
		"/proc/sys/dev/tty/legacy_tiocsti": "1\n",
		"/dev/vsock":                       "",
		"/run/user/1000/systemd/private":   "",
		"/var/lib/systemd/linger/me":       "",
	})
	h.Getenv = environment(map[string]string{"USER": "me"})
	for name, want := range map[string]string{
		NameCore: `core dumps go to a program of the host (/usr/lib/handler %P \x1b[2J)`, NameTIOCSTI: "on in this kernel",
		NameVsock: "present", NameSession: "goes on after logout",
	} {
		if c := check(t, h, name); c.State != OK || !strings.Contains(c.Found, want) {
			t.Errorf("%s: %s, %q", name, c.State, c.Found)
		}
	}
}
