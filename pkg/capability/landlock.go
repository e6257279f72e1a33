package capability

import (
	"errors"
	"fmt"
	"syscall"
)

const (
	// leastABI is the first Landlock ABI that can refuse truncation; without it
	// a file that may not be written can still be emptied.
	leastABI = 3
	// newestABI is the last one whose rights this build knows.
	newestABI = 10
)

const landlockMend = "use a kernel 6.2 or later, for example from your distribution's backports"

// checkLandlock asks the kernel, never a file: the list of security modules in
// securityfs is missing on kernels where Landlock works.
func checkLandlock(h *Host, f facts) Check {
	if h.Landlock.Version == nil || h.Landlock.Create == nil {
		return unprobed("Landlock")
	}
	version, err := h.Landlock.Version()
	if err != nil {
		return refusedLandlock(err, f)
	}
	if version < leastABI {
		return Check{State: Fail, Found: fmt.Sprintf("ABI %d (kernel %s)", version, first(f.release, "unknown")),
			Reason: fmt.Sprintf("this kernel's Landlock is too old: ABI %d found, %d needed", version, leastABI),
			Mend:   landlockMend}
	}
	return createLandlock(h, version)
}

// createLandlock makes the real ruleset. A kernel may announce an ABI and then
// refuse one of its rights, so it goes down as long as it is told that the
// request itself is wrong, and never below what is needed.
func createLandlock(h *Host, version int) Check {
	for abi := min(version, newestABI); abi >= leastABI; abi-- {
		err := h.Landlock.Create(abi)
		switch {
		case err == nil && abi < min(version, newestABI):
			return Check{State: OK, Found: fmt.Sprintf("ABI %d announced, a ruleset of ABI %d made", version, abi)}
		case err == nil:
			return Check{State: OK, Found: fmt.Sprintf("ABI %d, ruleset made", version)}
		case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.E2BIG):
			continue
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOMEM):
			return Check{State: Unknown, Found: "no ruleset could be made: " + words(err),
				Reason: "whether Landlock works could not be found out: " + words(err)}
		default:
			return Check{State: Fail, Found: fmt.Sprintf("ABI %d announced, but making a ruleset was refused: %s", version, words(err)),
				Reason: "this kernel announces Landlock but refuses to make a ruleset", Mend: landlockMend}
		}
	}
	return Check{State: Fail, Found: fmt.Sprintf("ABI %d announced, but every ruleset from ABI %d on was refused", version, leastABI),
		Reason: fmt.Sprintf("this kernel announces Landlock ABI %d but accepts no ruleset of ABI %d or later", version, leastABI),
		Mend:   landlockMend}
}

func refusedLandlock(err error, f facts) Check {
	c := Check{State: Fail, Found: "no answer: " + words(err)}
	switch {
	case errors.Is(err, syscall.EOPNOTSUPP):
		c.Found = "built in, but switched off at boot"
		c.Reason = "Landlock is switched off at boot on this machine"
		c.Mend = "add landlock to the list lsm= of the kernel's command line, then start the machine anew"
	case f.filtered && (errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM)):
		c.Found = "hidden by a seccomp filter that is already on this node, or not in this kernel"
		c.Reason = "Landlock is not in this kernel, or the container or service that this node runs in hides it"
		c.Mend = containerMend(f)
	case errors.Is(err, syscall.ENOSYS):
		c.Found = "not in this kernel (" + first(f.release, "unknown") + ")"
		c.Reason = "this kernel is built without Landlock"
		c.Mend = landlockMend
	default:
		c.State = Unknown
		c.Reason = "whether this kernel has Landlock could not be found out: " + words(err)
	}
	return c
}

// words is the text of an error for people: what the system call said, in the
// system's own words and never as a number alone.
func words(err error) string {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno.Error()
	}
	return plain(err.Error())
}

func unprobed(what string) Check {
	return Check{State: Unknown, Found: "not asked: this build has no probe for it",
		Reason: "this build cannot find out about " + what}
}
