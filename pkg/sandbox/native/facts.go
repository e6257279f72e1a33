package native

import (
	"fmt"
	"os"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// facts says what a sandbox of this Spec enforces once its check has passed.
func facts(s sandbox.Spec, abi int, tells bool) sandbox.Enforced {
	held := func(name, detail string) sandbox.Fact {
		return sandbox.Fact{Name: name, Strength: sandbox.Held, Detail: detail}
	}
	out := sandbox.Enforced{
		held("filesystem", fmt.Sprintf("only what was mounted exists; Landlock ABI %d beneath", abi)),
		held("network", "a network namespace of its own with no interface but loopback; the only way out is "+s.Proxy),
		held("system calls", "a seccomp filter; other machine types' calls kill, calls newer than it do not exist"),
		refusedCalls(tells),
		held("privileges", "no capabilities, none to be gained, no set-uid programs"),
		held("processes", "a process namespace of its own; outside ones can be neither seen nor signalled"),
		identity(s.Identity),
		sockets(abi),
	}
	if len(s.Protect) > 0 {
		out = append(out, held(sandbox.FactPaths, fmt.Sprintf("%d read-only or pinned by mounts", len(s.Protect))))
	}
	if len(s.Direct) > 0 {
		out = append(out, sandbox.Fact{Name: sandbox.FactDirect, Strength: sandbox.Absent,
			Detail: "hosts of tcp rules are reached through the proxy only, by programs that speak its language"})
	}
	return out
}

// CrashFacts say where the memory of what crashes inside goes now: that is the
// machine's to choose, at any time.
func CrashFacts() []sandbox.Fact {
	pattern, err := os.ReadFile(sandbox.CorePattern)
	if err != nil {
		return nil
	}
	return sandbox.CoreHandlerOf(string(pattern)).CrashFacts()
}

// refusedCalls says whether anybody hears of what the filter refuses.
func refusedCalls(tells bool) sandbox.Fact {
	if tells {
		return sandbox.Fact{Name: "refused calls", Strength: sandbox.Held, Detail: "named and counted, with the program that made them"}
	}
	return sandbox.Fact{Name: "refused calls", Strength: sandbox.Weaker, Detail: "refused all the same, but nobody is told of them: another program above this node listens to the filters of all below it"}
}

func identity(id sandbox.Identity) sandbox.Fact {
	f := sandbox.Fact{Name: "identity", Strength: sandbox.Held, Detail: fmt.Sprintf("user %d, group %d, the same inside and outside", id.UID, id.GID)}
	switch {
	case id.UID == 0:
		f.Strength, f.Detail = sandbox.Weaker, "user 0, without its privileges, yet the owner of all that root owns in writable mounts; /proc is read-only"
	case os.Geteuid() != 0:
		if groups, err := os.Getgroups(); err == nil && extra(groups, id.GID) {
			f.Strength, f.Detail = sandbox.Weaker, "supplementary groups of the user cannot be dropped without root and stay effective"
		}
	}
	return f
}

// unshelteredFacts says what a file that could not be moved is worth.
func unshelteredFacts(bare []string) []sandbox.Fact {
	var out []sandbox.Fact
	for _, file := range bare {
		out = append(out, sandbox.Fact{Name: "protected file", Strength: sandbox.Weaker,
			Detail: file + " could not be put into a directory of its own here: a program of the host that replaces it ends its protection"})
	}
	return out
}

func extra(groups []int, gid int) bool {
	for _, g := range groups {
		if g != gid {
			return true
		}
	}
	return false
}

func sockets(abi int) sandbox.Fact {
	if abi >= 9 {
		return sandbox.Fact{Name: sandbox.FactHostSockets, Strength: sandbox.Held, Detail: "sockets of the host in mounted directories cannot be connected to"}
	}
	return sandbox.Fact{Name: sandbox.FactHostSockets, Strength: sandbox.Weaker, Detail: fmt.Sprintf("none is mounted; one that a host program makes in a mounted directory could be connected to (Landlock ABI %d, needs 9)", abi)}
}
