package child

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// require skips, saying what is missing, or fails where that was forbidden.
func require(t *testing.T, err error) {
	t.Helper()
	kerneltest.Require(t, "namespaces", err)
}

func TestTryNamespaces(t *testing.T) { require(t, TryNamespaces(t.Context())) }

func TestTryListener(t *testing.T) { require(t, TryListener(t.Context())) }

// TestAsOrdinaryUser runs the trials as somebody without privileges.
func TestAsOrdinaryUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wanted root, who can become one, found an ordinary user")
	}
	require(t, TryNamespaces(t.Context()))
	dir, err := os.MkdirTemp("", "child-test-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "child.test")
	own, err := os.ReadFile("/proc/self/exe")
	for _, err := range []error{err, os.WriteFile(program, own, 0o755), os.Chmod(dir, 0o755)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(program, "-test.run=^TestTry|^TestRefusals|^TestNoNamespaces", "-test.v")
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PASS: TestTryNamespaces") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestRefusals: what cannot be carried out comes back with place and reason,
// and nothing of the helper stays.
func TestRefusals(t *testing.T) {
	require(t, TryNamespaces(t.Context()))
	image, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	root := Op{Code: Root, First: "/tmp", A: 1 << 20, B: 64, C: 0o755}
	for _, c := range []struct {
		ops  []Op
		want StageError
	}{
		{[]Op{{Code: Root, First: "/nowhere"}}, StageError{StageRoot, "/nowhere", unix.ENOENT}},
		{[]Op{root, {Code: Bind, First: "/nowhere", Second: "/x"}}, StageError{StageSource, "/nowhere", unix.ENOENT}},
		{[]Op{root, {Code: Bind, First: "/usr", Second: "/x"}}, StageError{StageMount, "/x", unix.ENOENT}},
		{[]Op{root, {Code: Link, First: "/l", Second: "/usr"}, {Code: Bind, First: "/usr", Second: "/l"}}, StageError{StageMount, "/l", unix.ELOOP}},
		{[]Op{root, {Code: Link, First: "/l", Second: "/usr"}, {Code: Dir, First: "/l/x", C: 0o755}}, StageError{StageMake, "/l/x", unix.ENOTDIR}},
		{[]Op{root, {Code: Bind, Flags: Inside, First: "/../usr", Second: "/x"}}, StageError{StageSource, "/../usr", unix.EXDEV}},
		{[]Op{root, {Code: File, First: "/f", C: 0o644}, {Code: File, First: "/f", C: 0o644}}, StageError{StageMake, "/f", unix.EEXIST}},
		{[]Op{root, {Code: Tmpfs, First: "/x", A: 1 << 20, B: 8, C: 0o755}}, StageError{StageMount, "/x", unix.ENOENT}},
		{[]Op{root, {Code: Loopback}, {Code: Listen, First: "192.0.2.1:1", A: 1, Blob: []byte{192, 0, 2, 1}}}, StageError{StageListen, "192.0.2.1:1", unix.EADDRNOTAVAIL}},
		{[]Op{root, {Code: Hostname, First: strings.Repeat("h", 65)}}, StageError{StageHostname, strings.Repeat("h", 65), unix.EINVAL}},
		{[]Op{root, {Code: Rlimit, First: "none", A: 99}}, StageError{StageRlimit, "none", unix.EINVAL}},
		{[]Op{root, {Code: Write, First: "/nowhere", Second: "0"}}, StageError{StageWrite, "/nowhere", unix.ENOENT}},
		{[]Op{root, {Code: Filter, Blob: []byte("12345678")}}, StageError{StageSeccomp, "", unix.EINVAL}},
		{[]Op{root, {Code: 99}}, StageError{StageProtocol, "", unix.ENOSYS}},
	} {
		h, err := image.Start(Options{ID: "refusals", UID: os.Geteuid(), GID: os.Getegid()})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.MakeNamespaces(os.Geteuid(), os.Getegid()); err != nil {
			t.Fatal(err)
		}
		_, err = h.SetUp(t.Context(), c.ops)
		var got *StageError
		if !errors.As(err, &got) || *got != c.want {
			t.Errorf("%+v: got %v, want %v", c.ops[len(c.ops)-1], err, &c.want)
		}
		if err := h.Kill(t.Context()); err != nil {
			t.Error(err)
		}
		<-h.Done()
	}
}

// TestNoNamespaces names the namespace that is refused, by asking for maps of
// somebody else.
func TestNoNamespaces(t *testing.T) {
	require(t, TryNamespaces(t.Context()))
	if os.Geteuid() == 0 {
		t.Skip("wanted an ordinary user, found root, who may map anybody")
	}
	image, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	h, err := image.Start(Options{ID: "foreign", UID: os.Geteuid(), GID: os.Getegid()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Kill(t.Context())
	if err := h.MakeNamespaces(os.Geteuid()+1, os.Getegid()); err != nil {
		t.Fatal(err)
	}
	_, err = h.SetUp(t.Context(), nil)
	var got *StageError
	if !errors.As(err, &got) || got.Stage != StageMaps || got.Errno != unix.EPERM {
		t.Errorf("got %v", err)
	}
	if _, err := h.Exec(t.Context(), Request{Candidates: []string{"/usr/bin/true"}, Argv: []string{"true"}}); !errors.Is(err, ErrGone) {
		t.Errorf("Exec on one that has ended: %v", err)
	}
}

// TestOtherVersion: a node and a helper of two builds refuse each other.
func TestOtherVersion(t *testing.T) {
	require(t, Available())
	image, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	h, err := image.Start(Options{ID: "version", UID: os.Geteuid(), GID: os.Getegid()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Kill(t.Context())
	packet := message{kind: msgNamespaces}.encode()
	packet[0]++
	if _, _, err := h.conn.WriteMsgUnix(packet, nil, nil); err != nil {
		t.Fatal(err)
	}
	_, err = h.SetUp(t.Context(), nil)
	var got *StageError
	if !errors.As(err, &got) || got.Stage != StageProtocol || got.Errno != unix.EPROTO {
		t.Errorf("got %v", err)
	}
}

// TestImageIsSealed: what runs cannot be changed, nor be found as a file.
func TestImageIsSealed(t *testing.T) {
	require(t, Available())
	image, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	if _, err := unix.Pwrite(int(image.program.Fd()), []byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("writing: %v", err)
	}
	if flags, err := unix.FcntlInt(image.program.Fd(), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("it would reach commands: %v, %v", flags, err)
	}
}

// TestNoDescriptorStays: each helper gives everything back.
func TestNoDescriptorStays(t *testing.T) {
	require(t, TryNamespaces(t.Context()))
	count := func() int {
		names, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	var seen []int
	for range 8 {
		require(t, TryNamespaces(t.Context()))
		seen = append(seen, count())
	}
	if slices.Max(seen[1:]) > seen[1]+1 {
		t.Errorf("descriptors after each trial: %v", seen)
	}
}

func TestMissingHelper(t *testing.T) {
	_, err := embedded("m68k")
	var missing *MissingError
	if !errors.As(err, &missing) || missing.Arch != "m68k" || !strings.Contains(missing.Hint(), "make") {
		t.Errorf("got %v", err)
	}
}

// TestStartsBesideOtherDescriptors starts many while others open and close
// descriptors: whatever numbers the runtime gives out between fork and exec, the
// program is found.
func TestStartsBesideOtherDescriptors(t *testing.T) {
	require(t, TryNamespaces(t.Context()))
	image, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	defer image.Close()
	var starting, churning sync.WaitGroup
	over := make(chan struct{})
	for range 4 {
		churning.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				var open []*os.File
				for range 12 {
					if f, err := os.Open(os.DevNull); err == nil {
						open = append(open, f)
					}
				}
				for _, f := range open {
					f.Close()
				}
			}
		})
	}
	for range 8 {
		starting.Go(func() {
			for range kerneltest.Rounds(50, 10) {
				h, err := image.Start(Options{ID: "beside", UID: os.Getuid(), GID: os.Getgid()})
				if err != nil {
					t.Error(err)
					return
				}
				if err := h.Kill(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	starting.Wait()
	close(over)
	churning.Wait()
}
