package cgroup

import (
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func all(string) error  { return nil }
func none(string) error { return fs.ErrPermission }

func tree(files map[string]string) fs.FS {
	out := fstest.MapFS{}
	for name, text := range files {
		out[strings.TrimPrefix(name, "/")] = &fstest.MapFile{Data: []byte(text)}
	}
	return out
}

const unifiedMount = "24 22 0:22 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"

func TestFind(t *testing.T) {
	const unit, sys = "/system.slice/mojoup.service", "/sys/fs/cgroup"
	v2 := func(own string, more map[string]string) map[string]string {
		files := map[string]string{"/proc/self/cgroup": "0::" + own + "\n", "/proc/self/mountinfo": unifiedMount, "/proc/self/stat": "77 (node) S 1"}
		for name, text := range more {
			files[name] = text
		}
		return files
	}
	delegatedUnit := map[string]string{
		sys + unit + "/cgroup.controllers": "cpu memory pids\n", sys + unit + "/cgroup.type": "domain\n", sys + unit + "/cgroup.procs": "77\n",
		sys + "/cgroup.controllers": "cpu memory pids\n",
	}
	crowd := map[string]string{sys + unit + "/cgroup.controllers": "cpu memory pids\n", sys + unit + "/cgroup.procs": "77\n78\n", sys + "/cgroup.controllers": "cpu memory pids\n"}
	below := map[string]string{
		sys + unit + "/cgroup.controllers": "memory pids\n", sys + unit + "/cgroup.type": "domain\n",
		sys + unit + "/mojoup.node/cgroup.procs": "77\n",
	}
	notTop := func(p string) error {
		if strings.HasPrefix(p, sys+unit) {
			return nil
		}
		return fs.ErrPermission
	}
	v1 := map[string]string{
		"/proc/self/cgroup": "8:pids:/\n4:memory:/node\n1:cpu,cpuacct:/\n0::/\n",
		"/proc/self/mountinfo": "31 22 0:31 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n" +
			"32 22 0:32 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n33 22 0:33 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n" +
			"34 22 0:34 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
		"/sys/fs/cgroup/unified/cgroup.controllers": "hugetlb\n",
	}
	for _, c := range []struct {
		name     string
		files    map[string]string
		writable func(string) error
		mode     string
		paths    []string
	}{
		{"v2, own unit", v2(unit, delegatedUnit), all, "control groups v2", []string{sys + unit + "/mojoup-x"}},
		{"v2, started again below", v2(unit+"/mojoup.node", below), notTop, "control groups v2", []string{sys + unit + "/mojoup-x"}},
		{"v2, others in it, ordinary user", v2(unit, crowd), notTop, "control groups v2", nil},
		{"v2, others in it, root", v2(unit, crowd), all, "control groups v2", []string{sys + "/mojoup-x"}},
		{"v2, top of a container only", v2("/", map[string]string{sys + "/cgroup.controllers": "memory\n", sys + "/cgroup.type": "domain\n", sys + "/cgroup.procs": "77\n1\n"}), all, "control groups v2", nil},
		{"v2, not delegated", v2(unit, delegatedUnit), none, "control groups v2", nil},
		{"v1", v1, all, "control groups v1", []string{"/sys/fs/cgroup/cpu/mojoup-x", "/sys/fs/cgroup/memory/node/mojoup-x", "/sys/fs/cgroup/pids/mojoup-x"}},
		{"v1, ordinary user", v1, none, "control groups v1", nil},
		{"none", nil, all, "no control groups", nil},
	} {
		h := Find(tree(c.files), c.writable)
		got := h.Paths("x", Limits{Memory: 1, Processes: 1, CPUs: 1})
		if h.Mode() != c.mode || !cmp.Equal(got, c.paths) {
			t.Errorf("%s: %s, %v; want %s, %v", c.name, h.Mode(), got, c.mode, c.paths)
		}
	}
}

func TestBelow(t *testing.T) {
	for _, c := range []struct{ root, point, group, want string }{
		{"/", "/sys/fs/cgroup", "/", "/sys/fs/cgroup"},
		{"/", "/sys/fs/cgroup", "/a/b", "/sys/fs/cgroup/a/b"},
		{"/docker/abc", "/sys/fs/cgroup", "/docker/abc/x", "/sys/fs/cgroup/x"},
		{"/docker/abc", "/sys/fs/cgroup", "/docker/abcdef", "/sys/fs/cgroup"},
		{"/../../docker/abc", "/sys/fs/cgroup", "/", "/sys/fs/cgroup"},
		{"/", "/sys/fs/cgroup", "", "/sys/fs/cgroup"},
	} {
		if got := (mount{root: c.root, point: c.point}).below(c.group); got != c.want {
			t.Errorf("%s at %s, group %s: %s, want %s", c.root, c.point, c.group, got, c.want)
		}
	}
}

func TestNamed(t *testing.T) {
	for dir, want := range map[string]bool{
		"/sys/fs/cgroup/mojoup-a": true, "/sys/fs/cgroup/mojoup-b": false, "/sys/fs/cgroup": false,
		"mojoup-a": false, "/sys/../mojoup-a": false, "/mojoup-": false, "": false,
	} {
		if Named(dir, "a") != want {
			t.Errorf("%q: %v", dir, !want)
		}
	}
	if Named("/x/mojoup-", "") {
		t.Error("no ID at all names a group")
	}
}

// FuzzFind: what the kernel says of a foreign machine never panics.
func FuzzFind(f *testing.F) {
	f.Add("0::/a\n", unifiedMount)
	f.Add("1:name=systemd:/a:b\n::\n0::/../..\n", "1 2 3 /\n- -\n31 22 0:31 / /x rw - cgroup cgroup memory\n")
	f.Fuzz(func(_ *testing.T, own, mounts string) {
		h := Find(tree(map[string]string{"/proc/self/cgroup": own, "/proc/self/mountinfo": mounts}), all)
		h.Paths("x", Limits{Memory: 1})
	})
}
