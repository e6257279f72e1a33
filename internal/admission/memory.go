package admission

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

const (
	thisMachine = "this machine"
	thisGroup   = "the node's control group"
)

// readFrom reads what the kernel says below fsys, which is the root of the
// file system: MemAvailable and MemTotal of /proc/meminfo (proc(5)), "some
// avg10" of /proc/pressure/memory (Documentation/accounting/psi.rst; a kernel
// without it has no pressure), and the limits of the control groups that this
// process is in, where they leave less.
func readFrom(fsys fs.FS) (Reading, error) {
	text, err := fs.ReadFile(fsys, "proc/meminfo")
	if err != nil {
		return Reading{}, fmt.Errorf("reading the machine's memory: %w", err)
	}
	r := Reading{Where: thisMachine}
	var okA, okT bool
	r.Available, okA = field(text, "MemAvailable:")
	r.Total, okT = field(text, "MemTotal:")
	if !okA || !okT || r.Total == 0 {
		return Reading{}, fmt.Errorf("reading the machine's memory: /proc/meminfo has no MemAvailable and MemTotal")
	}
	r.Available, r.Total = r.Available<<10, r.Total<<10
	if text, err = fs.ReadFile(fsys, "proc/pressure/memory"); err == nil {
		r.Pressure = someAvg10(text)
	}
	all := r.Total
	for _, g := range groups(fsys) {
		g.narrow(fsys, all, &r)
	}
	return r, nil
}

// field is the number after a name at the beginning of a line.
func field(text []byte, name string) (int64, bool) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) > 1 && words[0] == name {
			n, err := strconv.ParseInt(words[1], 10, 64)
			return n, err == nil && n >= 0 && n < 1<<50
		}
	}
	return 0, false
}

// someAvg10 is the first figure of the line "some avg10=0.12 …", in percent.
func someAvg10(text []byte) float64 {
	for line := range strings.Lines(string(text)) {
		rest, ok := strings.CutPrefix(line, "some avg10=")
		if !ok {
			continue
		}
		figure, _, _ := strings.Cut(rest, " ")
		if p, err := strconv.ParseFloat(strings.TrimSpace(figure), 64); err == nil && p >= 0 && p <= 100 {
			return p
		}
	}
	return 0
}

// group is one control group with memory accounting, and what its files are
// called.
type group struct {
	dir, usage, cache string
	limits            []string
}

// groups are those that this process is in, up to the root. Where the mount is
// elsewhere, or shows less than the path says, as in a container, those that
// are not there are left out.
func groups(fsys fs.FS) (out []group) {
	text, err := fs.ReadFile(fsys, "proc/self/cgroup")
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		g := group{dir: "sys/fs/cgroup", usage: "memory.current", cache: "inactive_file", limits: []string{"memory.max", "memory.high"}}
		switch {
		case parts[0] == "0" && parts[1] == "":
		case strings.Contains(","+parts[1]+",", ",memory,"):
			g = group{dir: "sys/fs/cgroup/memory", usage: "memory.usage_in_bytes", cache: "total_inactive_file", limits: []string{"memory.limit_in_bytes"}}
		default:
			continue
		}
		for p := path.Clean("/" + parts[2]); ; p = path.Dir(p) {
			one := g
			one.dir = path.Join(g.dir, p)
			out = append(out, one)
			if p == "/" {
				break
			}
		}
	}
	return out
}

// narrow lowers r to what the group leaves of all the machine has. What it
// caches of files and has not used lately counts as free, as in MemAvailable.
func (g group) narrow(fsys fs.FS, all int64, r *Reading) {
	usage, ok := number(fsys, path.Join(g.dir, g.usage))
	if !ok {
		return
	}
	for _, name := range g.limits {
		limit, ok := number(fsys, path.Join(g.dir, name))
		if !ok || limit >= all { // "max", or what cgroup v1 calls no limit
			continue
		}
		text, _ := fs.ReadFile(fsys, path.Join(g.dir, "memory.stat"))
		cached, _ := field(text, g.cache)
		r.Total = min(r.Total, limit)
		if free := max(limit-usage+cached, 0); free < r.Available {
			r.Available, r.Where = free, thisGroup
		}
	}
}

// number is a file that holds one.
func number(fsys fs.FS, name string) (int64, bool) {
	text, err := fs.ReadFile(fsys, name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64)
	return n, err == nil && n >= 0
}
