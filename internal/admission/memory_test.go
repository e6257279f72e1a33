package admission

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

const (
	meminfo = "MemTotal:       16384000 kB\nMemFree:          1000 kB\nMemAvailable:    8192000 kB\n"
	quiet   = "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
)

func TestReadFrom(t *testing.T) {
	whole := Reading{Available: 8192000 << 10, Total: 16384000 << 10, Where: thisMachine}
	pressed := whole
	pressed.Pressure = 12.5
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  Reading
	}{
		{"the machine", nil, whole},
		{"pressure", map[string]string{"proc/pressure/memory": "some avg10=12.50 avg60=1.00 avg300=0.00 total=9\nfull avg10=3.00 avg60=0.00 avg300=0.00 total=1\n"}, pressed},
		{"garbage for pressure", map[string]string{"proc/pressure/memory": "some avg10=lots\nsome avg10=1e9\n"}, whole},
		{"v2 without a limit", map[string]string{
			"proc/self/cgroup": "0::/user.slice/node.service\n",
			"sys/fs/cgroup/user.slice/node.service/memory.max": "max\n", "sys/fs/cgroup/user.slice/node.service/memory.current": "5\n",
		}, whole},
		{"v2, limited above", map[string]string{
			"proc/self/cgroup": "0::/user.slice/node.service\n",
			"sys/fs/cgroup/user.slice/node.service/memory.max":     "max\n",
			"sys/fs/cgroup/user.slice/node.service/memory.current": "104857600\n",
			"sys/fs/cgroup/user.slice/memory.max":                  "1073741824\n",
			"sys/fs/cgroup/user.slice/memory.current":              "536870912\n",
			"sys/fs/cgroup/user.slice/memory.stat":                 "anon 400\ninactive_file 1048576\n",
		}, Reading{Available: 513 << 20, Total: 1 << 30, Where: thisGroup}},
		{"v2, throttled before the limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "1073741824\n", "sys/fs/cgroup/a/memory.high": "536870912\n",
			"sys/fs/cgroup/a/memory.current": "536870913\n",
		}, Reading{Available: 0, Total: 512 << 20, Where: thisGroup}},
		{"the outer group is the tighter one", map[string]string{
			"proc/self/cgroup":           "0::/a/b\n",
			"sys/fs/cgroup/a/memory.max": "8589934592\n", "sys/fs/cgroup/a/memory.current": "8589934591\n",
			"sys/fs/cgroup/a/b/memory.max": "4294967296\n", "sys/fs/cgroup/a/b/memory.current": "1\n",
		}, Reading{Available: 1, Total: 4 << 30, Where: thisGroup}},
		{"v1", map[string]string{
			"proc/self/cgroup": "9:name=systemd:/\n4:memory,hugetlb:/box\n0::/\n",
			"sys/fs/cgroup/memory/box/memory.limit_in_bytes": "2147483648\n", "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n", "sys/fs/cgroup/memory/memory.usage_in_bytes": "7\n",
		}, Reading{Available: 1 << 30, Total: 2 << 30, Where: thisGroup}},
		{"a path above the namespace", map[string]string{"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/memory.max": "max\n"}, whole},
		{"garbage for groups", map[string]string{"proc/self/cgroup": "x\n:::\n0::\n4:memory:\n"}, whole},
	} {
		t.Run(tt.name, func(t *testing.T) {
			fsys := fstest.MapFS{"proc/meminfo": {Data: []byte(meminfo)}, "proc/pressure/memory": {Data: []byte(quiet)}}
			for name, text := range tt.files {
				fsys[name] = &fstest.MapFile{Data: []byte(text)}
			}
			got, err := readFrom(fsys)
			if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
				t.Errorf("%v\n%s", err, diff)
			}
		})
	}
}

func TestReadFromNothing(t *testing.T) {
	for name, text := range map[string]string{"absent": "", "without MemAvailable": "MemTotal: 5 kB\n", "negative": "MemTotal: 5 kB\nMemAvailable: -1 kB\n"} {
		fsys := fstest.MapFS{}
		if text != "" {
			fsys["proc/meminfo"] = &fstest.MapFile{Data: []byte(text)}
		}
		if r, err := readFrom(fsys); err == nil || r != (Reading{}) {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}

// FuzzReadFrom: whatever the files hold, a reading makes sense.
func FuzzReadFrom(f *testing.F) {
	f.Add(meminfo, quiet, "0::/a\n", "1073741824", "5")
	f.Add("MemTotal: 9223372036854775807 kB\nMemAvailable: 1 kB\n", "some avg10=NaN", "4:memory:/..\n", "max", "-1")
	f.Fuzz(func(t *testing.T, mem, psi, cgroup, limit, usage string) {
		fsys := fstest.MapFS{}
		for name, text := range map[string]string{
			"proc/meminfo": mem, "proc/pressure/memory": psi, "proc/self/cgroup": cgroup,
			"sys/fs/cgroup/a/memory.max": limit, "sys/fs/cgroup/a/memory.current": usage,
		} {
			fsys[name] = &fstest.MapFile{Data: []byte(text)}
		}
		r, err := readFrom(fsys)
		if err != nil {
			if r != (Reading{}) {
				t.Errorf("an error and %+v", r)
			}
			return
		}
		if r.Available < 0 || r.Total < 0 || !(r.Pressure >= 0 && r.Pressure <= 100) || r.Where == "" {
			t.Errorf("%+v", r)
		}
	})
}
