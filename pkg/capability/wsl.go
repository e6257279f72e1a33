package capability

import "strings"

// wsl is whether this is the Windows Subsystem for Linux, and which one.
type wsl string

const (
	notWSL     wsl = ""
	wsl1       wsl = "WSL 1"
	wsl2       wsl = "WSL 2"
	unknownWSL wsl = "unknown"
)

// detectWSL reads the kernel's release and banner and what WSL leaves behind.
// It only explains: whether mirrored networking stands in the way is what the
// listener probe says.
func detectWSL(h *Host) wsl {
	release, err1 := h.read("/proc/sys/kernel/osrelease")
	banner, err2 := h.read("/proc/version")
	marks := h.exists("/run/WSL") || h.exists("/proc/sys/fs/binfmt_misc/WSLInterop") ||
		h.exists("/proc/sys/fs/binfmt_misc/WSLInterop-late") ||
		strings.HasPrefix(h.env("WSL_INTEROP"), "/run/WSL/")
	return classifyWSL(release, banner, err1 == nil && err2 == nil, marks)
}

// classifyWSL decides. The word "Microsoft" in a banner proves nothing: kernels
// for Azure are built by somebody of that name. What WSL 1 pretends to be ends
// in "-Microsoft", the kernels shipped for WSL 2 hold "microsoft-standard", and
// a kernel of one's own runs in WSL 2 only, where the paths are.
func classifyWSL(release, banner string, readable, marks bool) wsl {
	if release == "" {
		// "Linux version RELEASE (…"
		release, _, _ = strings.Cut(strings.TrimPrefix(banner, "Linux version "), " ")
	}
	switch {
	case strings.HasSuffix(release, "-Microsoft"):
		return wsl1
	case strings.Contains(release, "microsoft-standard"), strings.HasSuffix(release, "WSL2"), marks:
		return wsl2
	case !readable:
		return unknownWSL
	}
	return notWSL
}

func checkSystem(h *Host, f facts) Check {
	release := first(f.release, "of unknown release")
	switch f.wsl {
	case wsl1:
		return Check{State: Fail, Found: "WSL 1 (it calls itself " + release + ")",
			Reason: "WSL 1 has no Linux kernel of its own",
			Mend:   "in Windows: wsl --set-version DISTRIBUTION 2"}
	case wsl2:
		return Check{State: OK, Found: "Linux " + release + ", in WSL 2"}
	case unknownWSL:
		return Check{State: Warn, Found: "Linux " + release + "; whether in WSL: unknown, the kernel's banner cannot be read",
			Needed: "a readable /proc/version", Reason: "the kernel's banner cannot be read",
			Mend: "mount /proc where the node runs"}
	}
	return Check{State: OK, Found: "Linux " + release}
}
