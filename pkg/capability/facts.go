package capability

import (
	"slices"
	"strings"
)

// facts are what the machine's files say beforehand. None of them decides
// anything: they only tell apart the causes of what a probe was answered.
type facts struct {
	release   string // of the kernel
	wsl       wsl
	mirrored  bool   // WSL's own filter sits on PID 1
	noProc    bool   // /proc is not there at all
	container string // what kind, or ""
	filtered  bool   // a seccomp filter is already on this node
	masked    bool   // something is mounted over parts of /proc
	chroot    bool
	helper    error // why there is no helper
}

func look(h *Host) facts {
	_, noProc := h.read("/proc/self/status")
	f := facts{
		release:   plain(h.text("/proc/sys/kernel/osrelease")),
		wsl:       detectWSL(h),
		noProc:    noProc != nil,
		container: detectContainer(h),
		filtered:  statusField(h.text("/proc/self/status"), "Seccomp") == "2",
	}
	f.mirrored = f.wsl == wsl2 && statusField(h.text("/proc/1/status"), "Seccomp") == "2"
	points := mountPoints(h.text("/proc/self/mountinfo"))
	for _, point := range points {
		f.masked = f.masked || masks(point)
	}
	// A chroot into an ordinary directory sees no mount at its root.
	f.chroot = len(points) > 0 && !slices.Contains(points, "/")
	if h.Helper != nil {
		f.helper = h.Helper()
	}
	return f
}

// detectContainer names the container that the node runs in, or "".
func detectContainer(h *Host) string {
	switch kind := first(h.text("/run/systemd/container"), h.env("container")); {
	case kind != "" && kind != "wsl":
		return plain(kind)
	case h.exists("/.dockerenv"):
		return "docker"
	case h.exists("/run/.containerenv"):
		return "podman"
	case h.env("KUBERNETES_SERVICE_HOST") != "":
		return "kubernetes"
	}
	return ""
}

// statusField reads one field of a /proc/PID/status text.
func statusField(status, name string) string {
	for line := range strings.Lines(status) {
		if key, value, ok := strings.Cut(line, ":"); ok && key == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// masks reports whether a mount at point hides a part of /proc, which makes the
// kernel refuse a fresh /proc in a user namespace. What stands on directories
// that are always empty does not count.
func masks(point string) bool {
	switch point {
	case "/proc/sys/fs/binfmt_misc", "/proc/fs/nfsd":
		return false
	}
	return strings.HasPrefix(point, "/proc/")
}

// mountPoints reads where things are mounted out of /proc/PID/mountinfo, see
// proc_pid_mountinfo(5).
func mountPoints(text string) []string {
	var points []string
	for line := range strings.Lines(text) {
		if fields := strings.Fields(line); len(fields) >= 5 {
			points = append(points, unescape(fields[4]))
		}
	}
	return points
}

// unescape undoes what the kernel does to white space in mountinfo.
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}
