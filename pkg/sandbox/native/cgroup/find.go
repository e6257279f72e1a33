// Package cgroup promises one control group per sandbox, of whichever version
// this machine has and this process may use, and what its limits have seen.
//
// [Find] looks and makes nothing: who reports on a machine and who makes
// sandboxes on it see the same. A group's name follows from the sandbox's ID,
// so that it can be written down before it is made, and swept by name.
package cgroup

import (
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
)

// A Controller is a kind of limit, as the kernel names it.
type Controller string

// The controllers that limits need.
const (
	Memory    Controller = "memory"
	Processes Controller = "pids"
	CPU       Controller = "cpu"
)

// Controllers are all of them, in the order in which they are shown.
func Controllers() []Controller { return []Controller{Memory, Processes, CPU} }

// leaf is the group into which a node moves itself on version 2, where a group
// that has processes cannot pass controllers on. No ID of a sandbox has a dot.
const leaf = "mojoup.node"

// A Host is what of control groups this process can use.
type Host struct {
	mode string
	at   map[Controller]place
	os   system
}

// A place is a group below which groups may be made.
type place struct {
	dir     string // absolute
	unified bool
	// crowded: this process is in it, and must leave it before.
	crowded bool
}

// Mode is the version in words: "control groups v1".
func (h *Host) Mode() string { return h.mode }

// Has reports whether a controller can be used.
func (h *Host) Has(c Controller) bool { _, ok := h.at[c]; return ok }

// Find looks for the groups of this process. files is the machine from its
// root, writable says by an error why a path cannot be written.
func Find(files fs.FS, writable func(path string) error) *Host {
	h := &Host{at: map[Controller]place{}, os: kernel{}}
	l := look{files, writable}
	own := parseOwn(l.text("/proc/self/cgroup"))
	unified := false
	for _, m := range parseMounts(l.text("/proc/self/mountinfo")) {
		switch m.kind {
		case "cgroup2":
			unified = true
			if p, ok := l.unified(m, own[""]); ok {
				has := strings.Fields(l.text(path.Join(p.dir, "cgroup.controllers")))
				for _, c := range Controllers() {
					if slices.Contains(has, string(c)) {
						h.at[c] = p
					}
				}
			}
		case "cgroup":
			for _, c := range Controllers() {
				dir := m.below(own[string(c)])
				if slices.Contains(m.options, string(c)) && writable(dir) == nil {
					h.at[c] = place{dir: dir}
				}
			}
		}
	}
	h.mode = modeOf(h.at, own, unified)
	return h
}

func modeOf(at map[Controller]place, own map[string]string, unified bool) string {
	const one, two = "control groups v1", "control groups v2"
	for _, p := range at {
		if !p.unified {
			return one
		}
	}
	switch {
	case len(at) > 0:
		return two
	case own["memory"] != "" || own["pids"] != "" || own["cpu"] != "":
		return one
	case unified:
		return two
	}
	return "no control groups"
}

// look reads what a machine's files say.
type look struct {
	files    fs.FS
	writable func(string) error
}

// text is "" where a file cannot be read.
func (l look) text(file string) string {
	if l.files == nil {
		return ""
	}
	text, _ := fs.ReadFile(l.files, strings.TrimPrefix(file, "/"))
	return strings.TrimSpace(string(text))
}

// unified finds the group of version 2 below which others may be made: this
// process' own where it is delegated and nobody else is in it, else the top of
// the whole tree, which only root can write and where other makers of groups
// that are not systemd's make theirs too.
func (l look) unified(m mount, own string) (place, bool) {
	dir := m.below(own)
	if path.Base(dir) == leaf {
		if up := path.Dir(dir); l.delegated(up) {
			return place{dir: up, unified: true}, true
		}
	}
	if top := l.top(m, dir); l.delegated(dir) && (top || l.alone(dir)) {
		return place{dir: dir, unified: true, crowded: !top}, true
	}
	if l.top(m, m.point) && l.delegated(m.point) {
		return place{dir: m.point, unified: true}, true
	}
	return place{}, false
}

// delegated reports whether one can make groups there, move processes and pass
// controllers on.
func (l look) delegated(dir string) bool {
	for _, p := range []string{dir, path.Join(dir, "cgroup.procs"), path.Join(dir, "cgroup.subtree_control")} {
		if l.writable(p) != nil {
			return false
		}
	}
	return true
}

// top reports whether dir is the top of the whole tree, and not only of what a
// container sees: there alone the kernel has no cgroup.type.
func (l look) top(m mount, dir string) bool {
	if m.root != "/" || dir != m.point || l.files == nil {
		return false
	}
	_, err := fs.Stat(l.files, strings.TrimPrefix(path.Join(dir, "cgroup.type"), "/"))
	return err != nil && l.text(path.Join(dir, "cgroup.controllers")) != ""
}

// alone reports whether no other process is in the group: those of others are
// not this node's to move.
func (l look) alone(dir string) bool {
	self, _, _ := strings.Cut(l.text("/proc/self/stat"), " ")
	for _, pid := range strings.Fields(l.text(path.Join(dir, "cgroup.procs"))) {
		if pid != self {
			return false
		}
	}
	return true
}

// parseOwn reads /proc/PID/cgroup: the group's path by controller, and by ""
// for the unified tree. See cgroups(7).
func parseOwn(text string) map[string]string {
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

// mount is one line of /proc/PID/mountinfo, see proc_pid_mountinfo(5).
type mount struct {
	root, point, kind string
	options           []string // of the super block: for version 1 they name the controllers
}

func parseMounts(text string) []mount {
	var mounts []mount
	space := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		mounts = append(mounts, mount{
			root: space.Replace(left[3]), point: space.Replace(left[4]),
			kind: right[0], options: strings.Split(right[2], ","),
		})
	}
	return mounts
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

// Limits are what a group shall bound. Zero fields are not bounded.
type Limits struct {
	Memory    int64   // bytes
	Processes int     // processes and threads
	CPUs      float64 // processors' worth of time
}

// Needs are the controllers behind the limits.
func (l Limits) Needs() []Controller {
	var out []Controller
	for c, wanted := range map[Controller]bool{Memory: l.Memory > 0, Processes: l.Processes > 0, CPU: l.CPUs > 0} {
		if wanted {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}

// Paths are the directories that [Host.Make] may make for a sandbox.
func (h *Host) Paths(id string, l Limits) []string {
	dirs := map[string]bool{}
	for _, c := range l.Needs() {
		if p, ok := h.at[c]; ok {
			dirs[path.Join(p.dir, name(id))] = true
		}
	}
	return slices.Sorted(maps.Keys(dirs))
}

// prefix marks groups as a node's own.
const prefix = "mojoup-"

func name(id string) string { return prefix + id }

// Named reports whether dir could be the group of sandbox id.
func Named(dir, id string) bool {
	return path.IsAbs(dir) && path.Clean(dir) == dir && id != "" && path.Base(dir) == name(id)
}
