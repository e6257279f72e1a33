package capability

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// TestExamineThisHost examines the machine that runs the test. What it finds
// must hold together; that it is able is demanded where kernel tests are
// obligatory.
func TestExamineThisHost(t *testing.T) { examine(t) }

func TestExamineThisHostAsUser(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		need(t, os.Geteuid() == 0, "uid 0, to become another user", "an ordinary user")
	}
	if inChild(t, "user", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}) {
		examine(t)
	}
}

func examine(t *testing.T) {
	t.Helper()
	r := Examine(t.Context(), ThisHost(Options{}), Native)
	logReport(t, r)
	need(t, r.Verdict.Able, "a machine that can sandbox agents", r.Verdict.String())
	if r.Verdict.String() != SentenceAble {
		t.Errorf("verdict %q", r.Verdict)
	}
	// Half a second is what a person is promised; a busy machine gets more.
	if r.Took > 3*time.Second {
		t.Errorf("took %v", r.Took)
	}
	for _, c := range r.Checks {
		if c.State == Unknown && !slices.Equal(c.Engines, []string{string(Docker)}) { // whose gateway only the command line can ask
			t.Errorf("%s could not be found out: %s", c.Name, c.Reason)
		}
		if c.State != OK && c.State != Skipped {
			wellSaid(t, c)
		}
	}
}

func logReport(t *testing.T, r Report) {
	t.Helper()
	for _, c := range r.Checks {
		t.Logf("%-8s %-28s %s", r.Shown(c), c.Title, c.Found)
	}
	t.Logf("%s, in %v", r.Verdict, r.Took)
}

// TestLeavesNothing counts descriptors, goroutines, children and mounts before
// and after.
func TestLeavesNothing(t *testing.T) {
	h := ThisHost(Options{})
	Examine(t.Context(), h, Auto) // what is made once is made now
	count := func() [3]int {
		mounts, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return [3]int{descriptors(t), strings.Count(string(mounts), "\n"), children(t)}
	}
	goroutines, before := runtime.NumGoroutine(), count()
	for range 5 {
		Examine(t.Context(), h, Auto)
	}
	if !settled(goroutines) {
		t.Errorf("%d goroutines before, %d after", goroutines, runtime.NumGoroutine())
	}
	if after := count(); after != before {
		t.Errorf("descriptors, mounts, children: %v before, %v after", before, after)
	}
}

// children counts this process's own, dead ones that nobody waited for too.
func children(t *testing.T) int {
	t.Helper()
	n := 0
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		text, _ := os.ReadFile("/proc/self/task/" + task.Name() + "/children")
		n += len(strings.Fields(string(text)))
	}
	return n
}

// TestB01_AnotherHolderOfTheListener holds a real listener above a process of
// its own, as WSL's mirrored mode does.
func TestB01_AnotherHolderOfTheListener(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		runtime.LockOSThread() // not unlocked: the thread keeps its filter and must end
		fd, err := holdListener()
		need(t, err == nil, "a kernel with seccomp user notification", describe(0, err))
		kerneltest.Require(t, "the helper", child.Available())
		defer unix.Close(fd)
	}
	if !inChild(t, "held", nil) {
		return
	}
	h := ThisHost(Options{})
	f := look(&h)
	c := checkListener(t.Context(), &h, f)
	if c.State != Fail || !strings.Contains(c.Reason, "another program") || strings.Contains(c.Reason+c.Found+c.Mend, "WSL") {
		t.Errorf("%s: %q, found %q", c.State, c.Reason, c.Found)
	}
	if r := Examine(t.Context(), h, Native); r.Verdict.Able || r.Verdict.Reason != c.Reason {
		t.Errorf("verdict %q", r.Verdict)
	}
}

// holdListener gives this thread, and what it starts, a filter that allows
// everything and has a listener.
func holdListener() (int, error) {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return 0, err
	}
	allow := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}
	program := unix.SockFprog{Len: 1, Filter: &allow}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return 0, errno
	}
	return int(fd), nil
}

// TestB10_NoNamespacesLeft gives a process a real limit of zero.
func TestB10_NoNamespacesLeft(t *testing.T) {
	if os.Getenv(childVariable) == "" {
		probe := exec.CommandContext(t.Context(), "true")
		probe.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER}
		err := probe.Run()
		need(t, err == nil, "user namespaces", describe(0, err))
		kerneltest.Require(t, "the helper", child.Available())
		need(t, os.Geteuid() == 0 || os.Geteuid() == 1000, "uid 0 or 1000", "another user")
	}
	attr := &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 1000, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 1000, HostID: 1000, Size: 1}},
		Credential:  &syscall.Credential{Uid: 1000, Gid: 1000, NoSetGroups: true},
		AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE, unix.CAP_DAC_OVERRIDE},
	}
	if !inChild(t, "none", attr) {
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	r := Examine(t.Context(), ThisHost(Options{}), Native)
	want := "This machine cannot sandbox agents: user namespaces are switched off: user.max_user_namespaces is 0"
	if r.Verdict.String() != want || !r.Verdict.Known {
		t.Errorf("verdict %q, known %v", r.Verdict, r.Verdict.Known)
	}
	if c := r.Checks[4]; c.Name != NameNamespaces || !strings.Contains(c.Mend, "sysctl -w user.max_user_namespaces") {
		t.Errorf("%s: mend %q", c.Name, c.Mend)
	}
}

func BenchmarkExamine(b *testing.B) {
	h := ThisHost(Options{})
	for b.Loop() {
		Examine(b.Context(), h, Native)
	}
}
