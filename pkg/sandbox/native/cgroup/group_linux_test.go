package cgroup

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// pretend is a tree in a plain directory: names and values are those that the
// kernel would get, and nothing is limited.
type pretend struct{ refuse string }

func (p pretend) write(file, value string) error {
	if p.refuse != "" && strings.HasSuffix(file, p.refuse) {
		return unix.EBUSY
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value + "\n")
	return errors.Join(err, f.Close())
}

func (pretend) mkdir(dir string) error { return os.Mkdir(dir, 0o755) }

func pretended(dir string, crowded, unified bool) *Host {
	h := &Host{mode: "control groups v2", at: map[Controller]place{}, os: pretend{}}
	for _, c := range Controllers() {
		p := place{dir: dir, unified: unified, crowded: crowded}
		if !unified {
			p.dir = filepath.Join(dir, string(c))
			_ = os.Mkdir(p.dir, 0o755)
		}
		h.at[c] = p
	}
	return h
}

var some = Limits{Memory: 256 << 20, Processes: 64, CPUs: 1.5}

// contents are all files below dir.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(p)
		out[strings.TrimPrefix(p, dir)] = strings.ReplaceAll(strings.TrimSpace(string(text)), "\n", "|")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestFilesOfVersion2 was never run on controllers of version 2: it says which
// files would get which values, as cgroup-v2.rst of the kernel names them.
func TestFilesOfVersion2(t *testing.T) {
	dir := t.TempDir()
	g, err := pretended(dir, true, true).Make("s1", some)
	if err != nil {
		t.Fatal(err)
	}
	pid := strconv.Itoa(os.Getpid())
	want := map[string]string{
		"/mojoup.node/cgroup.procs":   pid + "|" + pid + "|" + pid,
		"/cgroup.subtree_control":     "+cpu|+memory|+pids",
		"/mojoup-s1/cpu.max":          "150000 100000",
		"/mojoup-s1/memory.max":       "268435456",
		"/mojoup-s1/memory.swap.max":  "0",
		"/mojoup-s1/memory.oom.group": "0",
		"/mojoup-s1/pids.max":         "66",
	}
	if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	write(t, dir+"/mojoup-s1/memory.events", "low 0\noom 3\noom_kill 2\noom_group_kill 0\n")
	write(t, dir+"/mojoup-s1/pids.events", "max 9\n")
	if got := g.Counts(); got != (Counts{Killed: 2, Refused: 9}) || g.Version(Memory) != "v2" {
		t.Errorf("counts %+v, %s", got, g.Version(Memory))
	}
}

func TestFilesOfVersion1(t *testing.T) {
	dir := t.TempDir()
	if _, err := pretended(dir, false, false).Make("s1", some); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		"/cpu/mojoup-s1/cpu.cfs_period_us":                 "100000",
		"/cpu/mojoup-s1/cpu.cfs_quota_us":                  "150000",
		"/memory/mojoup-s1/memory.limit_in_bytes":          "268435456",
		"/memory/mojoup-s1/memory.memsw.limit_in_bytes":    "268435456",
		"/memory/mojoup-s1/memory.swappiness":              "0",
		"/memory/mojoup-s1/memory.kmem.tcp.limit_in_bytes": "268435456",
		"/pids/mojoup-s1/pids.max":                         "66",
	}
	if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestOneControllerRefuses keeps what the others hold, and says which is lost.
func TestOneControllerRefuses(t *testing.T) {
	h := pretended(t.TempDir(), false, true)
	h.os = pretend{refuse: "cpu.max"}
	g, err := h.Make("s1", some)
	if err != nil {
		t.Fatal(err)
	}
	if g.Holds(CPU) || !g.Holds(Memory) || !g.Holds(Processes) || !errors.Is(g.Lost(CPU), unix.EBUSY) || g.Lost(Memory) != nil {
		t.Errorf("holds %v %v %v, lost %v", g.Holds(CPU), g.Holds(Memory), g.Holds(Processes), g.Lost(CPU))
	}
	h.os = pretend{refuse: "cgroup.subtree_control"}
	if _, err := h.Make("s2", some); !errors.Is(err, unix.EBUSY) {
		t.Errorf("nothing is passed on: %v", err)
	}
	if _, err := os.Stat(filepath.Join(h.at[CPU].dir, "mojoup-s2")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// unifiedHere is a tree of version 2 in which this process may make groups,
// with whatever controllers: what a group does with processes needs none.
func unifiedHere(t *testing.T) string {
	t.Helper()
	l := look{os.DirFS("/"), func(p string) error { return unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS) }}
	for _, m := range parseMounts(l.text("/proc/self/mountinfo")) {
		if p, ok := l.unified(m, parseOwn(l.text("/proc/self/cgroup"))[""]); m.kind == "cgroup2" && ok {
			return p.dir
		}
	}
	t.Skip("wanted a writable tree of control groups v2, found none")
	return ""
}

// TestBornInAGroupOfVersion2: clone puts the process in, cgroup.kill ends it,
// and the group goes. Limits were not set: no controller is needed for that.
func TestBornInAGroupOfVersion2(t *testing.T) {
	top := unifiedHere(t)
	dir := filepath.Join(top, name("test-born-"+strconv.Itoa(os.Getpid())))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	g := &Group{os: kernel{}, parts: []*part{{place: place{dir: top, unified: true}, group: dir}}}
	cmd := exec.Command("sh", "-c", "setsid sleep 600 & exec sleep 600")
	err := g.Start(func(fd int) error {
		cmd.SysProcAttr = &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: fd}
		return cmd.Start()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := g.Verify(os.Getpid()); err == nil {
		t.Error("this process is said to be in it")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	if err := g.Remove(ctx); err != nil {
		t.Error(err)
	}
	<-gone
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("left behind: %v", err)
	}
	if err := g.Remove(ctx); err != nil {
		t.Errorf("once more: %v", err)
	}
}

// TestCountedWhileRemoved: whoever waits for a command reads the counts while the
// sandbox around it is removed, and they never fall back.
func TestCountedWhileRemoved(t *testing.T) {
	for range 20 {
		dir := t.TempDir()
		g, err := pretended(dir, false, true).Make("s1", some)
		if err != nil {
			t.Fatal(err)
		}
		group := dir + "/mojoup-s1"
		write(t, group+"/memory.events", "oom_kill 2\n")
		write(t, group+"/pids.events", "max 9\n")
		read := make(chan Counts)
		for range 3 {
			go func() { read <- g.Counts() }()
		}
		_ = g.Remove(t.Context()) // a plain directory is not removed while it has files
		if err := os.RemoveAll(group); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			<-read
		}
		if got := g.Counts(); got != (Counts{Killed: 2, Refused: 9}) {
			t.Fatalf("afterwards: %+v", got)
		}
	}
}

// TestBornInAGroupOfVersion1: no thread of this process stays in it.
func TestBornInAGroupOfVersion1(t *testing.T) {
	h := Find(os.DirFS("/"), func(p string) error { return unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS) })
	g, err := h.Make("test-one-"+strconv.Itoa(os.Getpid()), some)
	if err != nil || g.Version(Memory) != "v1" {
		t.Skipf("wanted control groups v1 that can be written, found %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	defer func() {
		if err := g.Remove(ctx); err != nil {
			t.Error(err)
		}
	}()
	cmd := exec.Command("sleep", "600")
	if err := g.Start(func(int) error { return cmd.Start() }); err != nil {
		t.Fatal(err)
	}
	if err := g.Verify(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	for _, p := range g.parts {
		tasks, err := os.ReadFile(filepath.Join(p.group, "tasks"))
		if got := strings.TrimSpace(string(tasks)); err != nil || got != strconv.Itoa(cmd.Process.Pid) {
			t.Errorf("%s holds %q, want the command alone (%v)", p.group, got, err)
		}
	}
	gone := make(chan error, 1)
	go func() { gone <- cmd.Wait() }()
	if err := g.Remove(ctx); err != nil {
		t.Error(err)
	}
	<-gone
}

// BenchmarkEnter is what bounding costs a start: making the group, being born
// in it, and removing it.
func BenchmarkEnter(b *testing.B) {
	h := Find(os.DirFS("/"), func(p string) error { return unix.Faccessat(unix.AT_FDCWD, p, unix.W_OK, unix.AT_EACCESS) })
	for b.Loop() {
		g, err := h.Make("bench-enter", some)
		if err != nil {
			b.Skip(err)
		}
		if err := g.Start(func(int) error { return nil }); err != nil {
			b.Fatal(err)
		}
		if err := g.Remove(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
