package capability

import (
	"slices"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// Switches of the kernel that keep user namespaces from being made.
const (
	switchAppArmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns" // Ubuntu 23.10 and later
	switchClone    = "/proc/sys/kernel/unprivileged_userns_clone"             // Debian's kernels
)

// counters bound the namespaces of each kind; any of them may be zero.
var counters = []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"}

// making are the stages at which a namespace is refused altogether.
var making = []string{
	child.StageUserNamespace, child.StageMountNamespace, child.StagePIDNamespace, child.StageNetworkNamespace,
	child.StageIPCNamespace, child.StageUTSNamespace, child.StageCgroupNamespace,
}

// refusedNamespaces names the cause of a refusal. The stage matters: some
// systems let the namespace be made and then deny every right in it.
func refusedNamespaces(h *Host, no *child.StageError, f facts) Check {
	cause := atMount
	if slices.Contains(making, no.Stage) {
		cause = atMaking
	}
	c := cause(h, no, f)
	c.State, c.Found = Fail, found(no)
	return c
}

// atMaking explains a namespace that was not made at all.
func atMaking(h *Host, no *child.StageError, f facts) Check {
	switch no.Errno {
	case syscall.ENOSPC, syscall.EUSERS:
		return exhausted(h)
	case syscall.ENOSYS, syscall.EINVAL:
		return Check{Reason: "this kernel is built without user namespaces", Mend: "use a kernel with CONFIG_USER_NS"}
	}
	switch {
	case f.noProc:
		return noProc()
	case h.UID != 0 && h.text(switchClone) == "0":
		return Check{Reason: "user namespaces are switched off for ordinary users: kernel.unprivileged_userns_clone is 0",
			Mend: sysctl("kernel.unprivileged_userns_clone=1")}
	case f.chroot:
		return Check{Reason: "this node runs in a chroot, where Linux refuses user namespaces",
			Mend: "run the node outside of the chroot"}
	case f.container != "", f.filtered:
		return Check{Reason: "user namespaces are refused here: " + above(f), Mend: containerMend(f)}
	case h.text(switchAppArmor) == "1":
		return appArmor()
	}
	return Check{Reason: "something on this machine refuses user namespaces: a security module, or a chroot that this node runs in",
		Mend: "look for the refusal in the kernel's log: journalctl -k -g userns"}
}

// atMount explains a namespace that was made but cannot be filled.
func atMount(h *Host, no *child.StageError, f facts) Check {
	proc := no.Stage == child.StageProc
	switch {
	case f.noProc, no.Errno == syscall.ENOENT && (proc || no.Stage == child.StageMaps):
		return noProc()
	case no.Errno == syscall.EROFS:
		return Check{Reason: "/proc is read-only here: " + above(orContainer(f)), Mend: containerMend(orContainer(f))}
	case proc && (f.masked || f.container != ""):
		return Check{Reason: "a fresh /proc is refused here, because parts of it are masked: " + above(orContainer(f)),
			Mend: containerMend(orContainer(f))}
	case h.text(switchAppArmor) == "1":
		return appArmor()
	case no.Errno == syscall.ENOSPC:
		return exhausted(h)
	case no.Errno == syscall.EPERM || no.Errno == syscall.EACCES:
		return Check{Reason: "a user namespace can be made here, but gives no rights: this node may itself run in a sandbox",
			Mend: "run the node outside of the sandbox or container, and look for refusals in the kernel's log"}
	}
	return Check{Reason: "a user namespace can be made here, but not set up: " + words(no)}
}

// orContainer names a container that left no other trace than its masks.
func orContainer(f facts) facts {
	if f.container == "" {
		f.container = "of unknown kind"
	}
	return f
}

func appArmor() Check {
	return Check{
		Reason: "AppArmor forbids user namespaces to ordinary programs: kernel.apparmor_restrict_unprivileged_userns is 1",
		Mend:   sysctl("kernel.apparmor_restrict_unprivileged_userns=0") + "; or give the node an AppArmor profile with the rule userns",
	}
}

func noProc() Check {
	return Check{Reason: "there is no /proc where this node runs", Mend: "mount -t proc proc /proc"}
}

// exhausted explains that a count of namespaces is used up or zero.
func exhausted(h *Host) Check {
	zero := slices.IndexFunc(counters, func(kind string) bool {
		return h.text("/proc/sys/user/max_"+kind+"_namespaces") == "0"
	})
	if zero < 0 {
		return Check{Reason: "the number of namespaces that are allowed here is used up",
			Mend: "raise user.max_user_namespaces, or run the node outside of the sandbox or container that allows no more"}
	}
	name := "user.max_" + counters[zero] + "_namespaces"
	what := "user namespaces"
	if counters[zero] != "user" {
		what = counters[zero] + " namespaces"
	}
	return Check{Reason: what + " are switched off: " + name + " is 0", Mend: sysctl(name + "=15000")}
}

func sysctl(assignment string) string {
	return "sudo sysctl -w " + assignment + " (to keep it, write the same into a file in /etc/sysctl.d)"
}
