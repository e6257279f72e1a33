package capability

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// limited are the controllers behind a session's limits, and how a person
// calls what they limit.
var limited = []struct{ controller, limit string }{
	{"memory", "memory"},
	{"pids", "processes"},
	{"cpu", "processor time"},
}

// checkLimits reports which limits control groups can enforce here. It decides
// nothing: an engine says itself what it enforced.
//
// Unlike its neighbours it looks at permissions instead of making a group: a
// probe that is killed half-way would leave one behind.
func checkLimits(h *Host, _ facts) Check {
	if h.Writable == nil {
		return unprobed("control groups")
	}
	mode, usable := delegated(h)
	var held, lost []string
	for _, l := range limited {
		if slices.Contains(usable, l.controller) {
			held = append(held, l.limit)
		} else {
			lost = append(lost, l.limit+" limit: not enforced")
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
		Mend:   "start the node as a systemd unit with Delegate=yes, on control groups v2"}
}

// delegated finds the controllers that this node may use below its own groups.
func delegated(h *Host) (mode string, controllers []string) {
	own := parseCgroups(h.text("/proc/self/cgroup"))
	unified := false
	for _, m := range parseMounts(h.text("/proc/self/mountinfo")) {
		switch m.kind {
		case "cgroup2":
			unified = true
			if group := m.below(own[""]); writableGroup(h, group) {
				controllers = append(controllers, strings.Fields(h.text(path.Join(group, "cgroup.controllers")))...)
			}
		case "cgroup":
			for _, l := range limited {
				if slices.Contains(m.options, l.controller) && h.Writable(m.below(own[l.controller])) == nil {
					controllers, mode = append(controllers, l.controller), "control groups v1"
				}
			}
		}
	}
	switch {
	case mode != "":
	case own["memory"] != "" || own["pids"] != "" || own["cpu"] != "":
		mode = "control groups v1"
	case unified:
		mode = "control groups v2"
	default:
		mode = "no control groups"
	}
	return mode, controllers
}

// writableGroup reports whether a group of the unified tree is delegated: one
// must be able to make groups in it, move processes and pass controllers on.
func writableGroup(h *Host, group string) bool {
	for _, p := range []string{group, path.Join(group, "cgroup.procs"), path.Join(group, "cgroup.subtree_control")} {
		if h.Writable(p) != nil {
			return false
		}
	}
	return true
}

// parseCgroups reads /proc/PID/cgroup: the group's path by controller, and by
// "" for the unified tree. See cgroups(7).
func parseCgroups(text string) map[string]string {
	own := map[string]string{}
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for controller := range strings.SplitSeq(parts[1], ",") {
			own[controller] = parts[2]
		}
	}
	return own
}

// below is where a group's directory is seen through m. Where m shows only a
// part of the tree, as inside a container, the part itself is the group.
func (m mount) below(group string) string {
	rel, inside := strings.CutPrefix(group, strings.TrimSuffix(m.root, "/"))
	if !inside || rel != "" && rel[0] != '/' {
		return m.point
	}
	return path.Join(m.point, rel)
}
