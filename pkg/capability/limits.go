package capability

import (
	"fmt"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// limited are the controllers behind a session's limits, how a person calls
// what they limit, and what the native engine does without one.
var limited = []struct {
	controller cgroup.Controller
	limit      string
	instead    string
}{
	{cgroup.Memory, "memory", "memory limit: weaker, watched only"},
	{cgroup.Processes, "processes", "processes limit: not enforced"},
	{cgroup.CPU, "processor time", "processor time limit: weaker, a choice of processors only"},
}

// checkLimits reports which limits control groups can enforce here, as the
// engine finds them itself. It decides nothing: a session says what holds in
// it.
//
// Unlike its neighbours it looks at permissions instead of making a group: a
// probe that is killed half-way would leave one behind.
func checkLimits(h *Host, _ facts) Check {
	if h.Served {
		return Check{State: Skipped, Found: "the system node serves this user, in control groups of its own; `mojoup-node session show` says what holds in a session"}
	}
	if h.Writable == nil {
		return unprobed("control groups")
	}
	groups := cgroup.Find(h.Files, h.Writable)
	offered := cgroup.Offered(h.Files, h.env("USER"), h.UID)
	mode := groups.Mode()
	if !groups.Has(cgroup.Memory) && len(offered) > 0 {
		mode += ", which a node asks your service manager for"
	}
	var held, lost []string
	for _, l := range limited {
		switch {
		case groups.Has(l.controller) || slices.Contains(offered, l.controller):
			held = append(held, l.limit)
		case l.controller == cgroup.Processes && h.UID != 0:
			held = append(held, "processes (by RLIMIT_NPROC)")
		default:
			lost = append(lost, l.instead)
		}
	}
	if len(lost) == 0 {
		return Check{State: OK, Found: fmt.Sprintf("%s: %s", mode, strings.Join(held, ", "))}
	}
	found := mode + ": " + strings.Join(lost, ", ")
	if len(held) > 0 {
		found += "; enforced: " + strings.Join(held, ", ")
	}
	return Check{State: Warn, Found: found, Needed: "control groups that this node may write",
		Reason: strings.Join(lost, ", "),
		Mend:   mendLimits(h)}
}

// mendLimits is shorter for a person who has a service manager: one that goes on
// after logout gives a node what it asks for.
func mendLimits(h *Host) string {
	if h.UID != 0 && cgroup.ManagerOf(h.Files, "", "", h.UID).Runs {
		return "loginctl enable-linger, and start the node again: it asks your service manager for control groups"
	}
	return "start the node as a systemd unit with Delegate=yes, on control groups v2"
}
