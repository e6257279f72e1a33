package capability

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// The probes that run in a child, and what their refusals mean.

func checkHelper(h *Host, f facts) Check {
	if h.Helper == nil {
		return unprobed("the helper of the native engine")
	}
	if f.helper != nil {
		return Check{State: Fail, Found: plain(f.helper.Error()), Needed: "the helper inside this program",
			Reason: "this build has no helper for the native engine",
			Mend:   "install a released build, or build with make on the machine's own architecture"}
	}
	return Check{State: OK, Found: "inside this program"}
}

// withoutHelper is the answer of probes that run in the helper.
func withoutHelper() Check {
	return Check{State: Skipped, Found: "not tried: this build has no helper to try it in"}
}

const listenerReason = "this kernel has no seccomp user notification"

func checkListener(ctx context.Context, h *Host, f facts) Check {
	if h.Listener == nil {
		return unprobed("seccomp user notification")
	}
	if f.helper != nil {
		return withoutHelper()
	}
	err := h.Listener(ctx)
	if err == nil {
		return Check{State: OK, Found: "a listener was installed"}
	}
	if no := refusal(err); no != nil {
		return refusedListener(no, f)
	}
	return unproven(h, f, "seccomp user notification", err)
}

func refusedListener(no *child.StageError, f facts) Check {
	c := Check{State: Fail, Found: found(no)}
	switch no.Errno {
	case syscall.EBUSY:
		return heldListener(f)
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP:
		c.Reason, c.Mend = listenerReason, "use a kernel 5.0 or later with CONFIG_SECCOMP_FILTER"
	case syscall.EPERM, syscall.EACCES:
		c.Reason = "seccomp filters are refused here: " + above(f)
		c.Mend = containerMend(f)
	default:
		c.Reason = "a seccomp listener could not be installed: " + words(no)
	}
	return c
}

// heldListener tells who holds the one listener that Linux allows per process
// and its descendants. WSL is named only where this is WSL.
func heldListener(f facts) Check {
	c := Check{State: Fail, Found: "the one listener that Linux allows is already held",
		Reason: "another program that this node runs under already holds the one seccomp listener that Linux allows"}
	switch {
	case f.wsl == wsl2:
		c.Found = "held by WSL's mirrored networking mode"
		if f.mirrored {
			c.Found += " (a filter sits on process 1)"
		}
		c.Reason = "WSL's mirrored networking mode already holds the one seccomp listener that Linux allows; NAT mode works"
		c.Mend = "in .wslconfig, section [wsl2], set networkingMode=nat, then run: wsl --shutdown"
	case f.container != "":
		c.Reason += " (this node runs in a container: " + f.container + ")"
		c.Mend = "run the node on the host itself"
	default:
		c.Mend = "start the node outside of the sandbox, container or debugger that it runs in now"
	}
	return c
}

func checkNamespaces(ctx context.Context, h *Host, f facts) Check {
	if h.Namespaces == nil {
		return unprobed("user namespaces")
	}
	if f.helper != nil {
		return withoutHelper()
	}
	err := h.Namespaces(ctx)
	if err == nil {
		return Check{State: OK, Found: "made to the end: identity, /proc and loopback"}
	}
	if no := refusal(err); no != nil {
		return refusedNamespaces(h, no, f)
	}
	return unproven(h, f, "user namespaces", err)
}

// unproven is a probe that came back without the kernel's answer, because the
// helper could not even be started. Where the reason is known to stand in the
// way of every session, that is an answer too.
func unproven(h *Host, f facts, what string, err error) Check {
	switch {
	case f.noProc: // the helper is started by its path there
		c := noProc()
		c.State, c.Found = Fail, plain(err.Error())
		return c
	case errors.Is(err, syscall.EPERM) && h.UID == 0 && h.text("/proc/self/setgroups") == "deny":
		return Check{State: Fail, Found: plain(err.Error()),
			Reason: "this node is root of a user namespace that forbids changing groups",
			Mend:   "run the node as an ordinary user, or as root of the machine itself"}
	}
	text := plain(err.Error())
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		text = "the probe did not end in time"
	}
	return Check{State: Unknown, Found: text,
		Reason: fmt.Sprintf("whether this machine has %s could not be found out: %s", what, text)}
}

// refusal is what the kernel refused, or nil where err has another cause: a
// helper that could not be started or heard says nothing about the machine.
func refusal(err error) *child.StageError {
	var no *child.StageError
	if !errors.As(err, &no) || no.Stage == child.StageProtocol || no.Stage == child.StageFork {
		return nil
	}
	return no
}

// found says in words what the kernel refused.
func found(no *child.StageError) string {
	return "refused at the step " + quote(strings.TrimSpace(no.Stage+" "+no.Operand)) + ": " + words(no)
}

// above names what this node runs under.
func above(f facts) string {
	if f.container != "" {
		return "this node itself runs in a container (" + f.container + ")"
	}
	return "a seccomp filter of the service or container that this node runs in forbids them"
}

func containerMend(f facts) string {
	if f.container == "" && f.filtered {
		return "in the service unit that starts the node, leave out RestrictNamespaces= and SystemCallFilter="
	}
	return "run the node on the host itself, or its container with --security-opt seccomp=unconfined --security-opt systempaths=unconfined"
}
