package capability

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// What informs, and decides nothing.

func checkTUN(h *Host, _ facts) Check {
	if h.OpenTUN == nil {
		return unprobed("tunnel devices")
	}
	// Nothing of this version opens it: to miss it is worth no warning.
	const unused = "; this version does not use it"
	err := h.OpenTUN()
	switch {
	case err == nil:
		return Check{State: OK, Found: "/dev/net/tun opens"}
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENODEV), errors.Is(err, syscall.ENXIO):
		return Check{State: Skipped, Found: "no /dev/net/tun" + unused}
	case errors.Is(err, fs.ErrPermission):
		return Check{State: Skipped, Found: "/dev/net/tun: not as this user" + unused}
	}
	return Check{State: Skipped, Found: "/dev/net/tun: " + words(err) + unused}
}

// mighty are groups whose members reach, by a file or socket, what belongs to
// others. "disk" reads every file system, "docker" is root by another name.
var mighty = []string{
	"adm", "disk", "docker", "incus", "incus-admin", "input", "kvm", "libvirt", "lxd",
	"podman", "render", "root", "shadow", "systemd-journal", "video", "wireshark",
}

// checkGroups names groups that follow into a session. Only root can drop
// supplementary groups; a user namespace of one's own cannot (setgroups must be
// denied in it), so they stay effective even though they show as unknown.
func checkGroups(h *Host, _ facts) Check {
	if h.Groups == nil {
		return unprobed("supplementary groups")
	}
	groups, err := h.Groups()
	switch {
	case err != nil:
		return Check{State: Warn, Found: "unknown: " + words(err), Reason: "the groups of this node could not be read"}
	case h.UID == 0:
		return Check{State: OK, Found: "chosen per session, because this node is root"}
	}
	var risky []string
	for _, g := range groups {
		if slices.Contains(mighty, g) {
			risky = append(risky, plain(g))
		}
	}
	if len(risky) == 0 {
		return Check{State: OK, Found: "none that reaches what belongs to others"}
	}
	names := strings.Join(risky, ", ")
	return Check{State: Warn, Found: names + ": cannot be dropped without root, and stay effective in sessions",
		Reason: "sessions keep the groups " + names + " of this user",
		Mend:   fmt.Sprintf("run the node as a user outside of %s", names)}
}

func checkTIOCSTI(h *Host, _ facts) Check {
	switch h.text("/proc/sys/dev/tty/legacy_tiocsti") {
	case "0":
		return Check{State: OK, Found: "off in this kernel"}
	case "1":
		return Check{State: OK, Found: "on in this kernel; refused inside a session, which has a terminal of its own"}
	}
	return Check{State: OK, Found: "no switch in this kernel; refused inside a session"}
}

func checkCore(h *Host, _ facts) Check {
	switch to := sandbox.CoreHandlerOf(h.text(sandbox.CorePattern)); {
	case to.Socket != "":
		return Check{State: Warn, Found: "core dumps go to a program of the host, by the socket " + plain(to.Socket),
			Reason: "what crashes in a session is sent to that program with its memory, because the kernel asks no limit before it sends",
			Mend:   "have core dumps go to a file or to a program that the kernel starts: see core(5), kernel.core_pattern"}
	case to.Pipe != "":
		return Check{State: OK, Found: "core dumps go to a program of the host (" + plain(to.Pipe) + "); sessions dump none"}
	}
	return Check{State: OK, Found: "core dumps go to files"}
}

func checkVsock(h *Host, _ facts) Check {
	if h.exists("/dev/vsock") {
		return Check{State: OK, Found: "present; it ignores network namespaces, so system calls for it are refused inside"}
	}
	return Check{State: OK, Found: "no device"}
}

// checkSession looks for the user's service manager: without lingering it ends,
// and the node with it, when the person logs out.
func checkSession(h *Host, _ facts) Check {
	switch m := cgroup.ManagerOf(h.Files, h.env("XDG_RUNTIME_DIR"), h.env("USER"), h.UID); {
	case !m.Runs:
		return Check{State: OK, Found: "no service manager for this user"}
	case m.Lingers:
		return Check{State: OK, Found: "the user's service manager runs, and goes on after logout"}
	case h.Served:
		return Check{State: OK, Found: "the user's service manager runs until logout, which ends nothing: the system node serves this user"}
	}
	return Check{State: OK, Found: "the user's service manager runs until logout (to go on: loginctl enable-linger)"}
}
