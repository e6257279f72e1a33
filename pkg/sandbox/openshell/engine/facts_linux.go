package engine

import (
	"fmt"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
)

// facts say what a sandbox of this Spec enforces once its check has passed.
func (b *box) facts(limits []sandbox.Fact) sandbox.Enforced {
	fact := func(name string, s sandbox.Strength, format string, a ...any) sandbox.Fact {
		return sandbox.Fact{Name: name, Strength: s, Detail: fmt.Sprintf(format, a...)}
	}
	g := b.client.Gateway()
	out := sandbox.Enforced{
		fact("filesystem", sandbox.Held, "a container of the image %s with what was mounted; Landlock by OpenShell, and this node's own beneath", b.e.o.Image),
		fact("network", sandbox.Held, "OpenShell's policy lets one program reach one port of this node, where every connection is decided; the only way out is %s, and nothing passes it before it has answered from inside", b.spec.Proxy),
		fact("system calls", sandbox.Held, "OpenShell's seccomp filter, and this node's own beneath"),
		fact("refused calls", sandbox.Weaker, "refused all the same, but nobody is told of them: OpenShell refuses the call by which a filter gets somebody who listens"),
		fact("privileges", sandbox.Held, "no capabilities, none to be gained, no set-uid programs"),
		fact("processes", sandbox.Held, "a process namespace of the container; outside ones can be neither seen nor signalled"),
		fact("identity", sandbox.Weaker, "user %d, group %d, the same inside and outside; the group 0 of the container stays as a supplementary one", b.spec.Identity.UID, b.spec.Identity.GID),
		fact(sandbox.FactHostSockets, sandbox.Weaker, "none is mounted; one that a host program makes in a mounted directory could be connected to (OpenShell's Landlock does not know that right)"),
		fact("gateway", sandbox.Held, "OpenShell %s at %s", g.Version, g.Endpoint),
	}
	if len(b.spec.Protect) > 0 {
		paths := fact(sandbox.FactPaths, sandbox.Held, "%d read-only or pinned by mounts of the container", len(b.spec.Protect))
		if len(b.lacking.Pinned) > 0 {
			paths.Strength = sandbox.Weaker
			paths.Detail += fmt.Sprintf("; but %s can be replaced inside: a gateway of %s has no right to hold links", strings.Join(b.lacking.Pinned, ", "), g.Generation)
		}
		out = append(out, paths)
	}
	for _, l := range b.lacking.Links {
		out = append(out, fact("link "+l.Target, sandbox.Absent, "a gateway of %s has no right to make it", g.Generation))
	}
	out = append(out, native.CrashFacts()...)
	out = append(out, b.directFacts()...)
	out = append(out, b.limitFacts()...)
	out = append(out, limits...)
	return append(out, b.held.Facts()...)
}

func (b *box) limitFacts() []sandbox.Fact {
	l := b.spec.Limits
	none := "none was asked for"
	memory := sandbox.Fact{Name: "memory limit", Strength: sandbox.Absent, Detail: none}
	if l.Memory > 0 {
		memory.Strength, memory.Detail = sandbox.Held, fmt.Sprintf("%d bytes by the container's control group, OpenShell's own programs inside included", l.Memory)
	}
	cpu := sandbox.Fact{Name: "processor limit", Strength: sandbox.Absent, Detail: none}
	if l.CPUs > 0 {
		cpu.Strength, cpu.Detail = sandbox.Held, fmt.Sprintf("%g processors' time by the container's control group", l.CPUs)
	}
	processes := sandbox.Fact{Name: "process limit", Strength: sandbox.Weaker, Detail: "what the gateway gives every container, 2048 unless its configuration says otherwise"}
	switch {
	case l.Processes > 0 && b.limited == nil:
		processes.Strength, processes.Detail = sandbox.Held, fmt.Sprintf("%d processes and threads by the container's control group, beside those that were there before and %d to spare", l.Processes, spareThreads)
	case l.Processes > 0:
		processes.Detail += fmt.Sprintf("; %d could not be had: %v", l.Processes, b.limited)
	}
	disk := sandbox.Fact{Name: "disk limit", Strength: sandbox.Absent, Detail: "none was asked for: home and other scratch directories lie on this machine's disk until the end"}
	if l.Disk > 0 {
		disk.Strength = sandbox.Weaker
		disk.Detail = fmt.Sprintf("%d bytes of home and other scratch directories together, measured about once a second: a session that passes them is ended; what is deleted and still open, or lies in a directory closed to its owner, is not seen", l.Disk)
	}
	return []sandbox.Fact{memory, cpu, processes, disk}
}
