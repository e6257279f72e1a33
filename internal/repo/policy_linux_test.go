package repo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestB94_AbsentIsNotUnreadable: only a missing file means "no policy"; every
// other case is a sentence of its own, and none hangs.
func TestB94_AbsentIsNotUnreadable(t *testing.T) {
	secret := filepath.Join(tempDir(t), "secret.json")
	write(t, secret, `{"version":1}`)
	for _, c := range []struct {
		name string
		make func(t *testing.T, top, file string)
		want string // content, or what the error says
		err  bool
	}{
		{"absent", func(*testing.T, string, string) {}, "", false},
		{"directory without the file", func(t *testing.T, top, file string) { mkdir(t, filepath.Dir(file)) }, "", false},
		{"there", func(t *testing.T, top, file string) { write(t, file, "{}") }, "{}", false},
		{"empty", func(t *testing.T, top, file string) { write(t, file, "") }, "", false},
		{"directory", func(t *testing.T, top, file string) { mkdir(t, file) }, "is a directory", true},
		{"dangling link", func(t *testing.T, top, file string) {
			mkdir(t, filepath.Dir(file))
			symlink(t, "nowhere", file)
		}, "symbolic link", true},
		{"link out", func(t *testing.T, top, file string) { mkdir(t, filepath.Dir(file)); symlink(t, secret, file) }, "symbolic link", true},
		{"link within", func(t *testing.T, top, file string) {
			write(t, top+"/p.json", "{}")
			mkdir(t, filepath.Dir(file))
			symlink(t, "../p.json", file)
		}, "symbolic link", true},
		{"linked directory", func(t *testing.T, top, file string) { symlink(t, filepath.Dir(secret), filepath.Dir(file)) }, "symbolic link", true},
		{"dangling linked directory", func(t *testing.T, top, file string) { symlink(t, "nowhere", filepath.Dir(file)) }, "symbolic link", true},
		{"file for a directory", func(t *testing.T, top, file string) { write(t, filepath.Dir(file), "x") }, ".mojoup is not a directory", true},
		{"pipe", func(t *testing.T, top, file string) {
			mkdir(t, filepath.Dir(file))
			if err := unix.Mkfifo(file, 0o644); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file", true},
		{"socket", func(t *testing.T, top, file string) {
			mkdir(t, filepath.Dir(file))
			if err := unix.Mknod(file, unix.S_IFSOCK|0o644, 0); err != nil {
				t.Fatal(err)
			}
		}, "not a regular file", true},
		{"too large", func(t *testing.T, top, file string) { write(t, file, strings.Repeat(" ", MaxPolicy+1)) }, "more than 1 MiB", true},
		{"as large as may be", func(t *testing.T, top, file string) { write(t, file, strings.Repeat(" ", MaxPolicy)) }, strings.Repeat(" ", MaxPolicy), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := tempDir(t)
			c.make(t, top, filepath.Join(top, PolicyFile))
			content, err := ReadPolicy(t.Context(), top)
			if !c.err {
				if absent := strings.HasPrefix(c.name, "absent") || strings.HasSuffix(c.name, "without the file"); absent != errors.Is(err, ErrNoPolicy) || !absent && err != nil {
					t.Fatalf("got %v", err)
				}
				if string(content) != c.want {
					t.Errorf("got %d bytes", len(content))
				}
				return
			}
			var e *Error
			if !errors.As(err, &e) || errors.Is(err, ErrNoPolicy) || content != nil {
				t.Fatalf("got %q, %v", content, err)
			}
			if !strings.Contains(e.Error(), c.want) || e.Hint() == "" || !strings.Contains(e.Error(), top) {
				t.Errorf("error %q, hint %q; want %q", e, e.Hint(), c.want)
			}
		})
	}
}

// TestB94_ModeZero needs somebody whom modes bind: root without its rights.
func TestB94_ModeZero(t *testing.T) {
	top := tempDir(t)
	write(t, filepath.Join(top, PolicyFile), "{}")
	for _, path := range []string{filepath.Join(top, PolicyFile), filepath.Join(top, ".mojoup")} {
		if err := os.Chmod(path, 0); err != nil {
			t.Fatal(err)
		}
		boundByModes(t, func() { wantDenied(t, top) })
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func wantDenied(t *testing.T, top string) {
	t.Helper()
	content, err := readPolicy(top)
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Error(), "permission denied") || content != nil {
		t.Errorf("got %q, %v", content, err)
	}
}

// boundByModes runs f on a thread that a file's mode binds, as it does
// everybody but root.
func boundByModes(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		if err := unix.Capget(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
		if err := unix.Capset(&hdr, &data[0]); err != nil {
			t.Error(err)
			return
		}
		f()
	}()
	<-done
}

// TestB94_ReplacedWhileRead: each answer is one whole version.
func TestB94_ReplacedWhileRead(t *testing.T) {
	top := tempDir(t)
	file := filepath.Join(top, PolicyFile)
	a, b := strings.Repeat("a", 300000), strings.Repeat("b", 200000)
	write(t, file, a)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			content := a
			if i%2 == 0 {
				content = b
			}
			// As editors and git do. Written in place a file passes through
			// states of its own, the empty one among them, which no policy is.
			_ = os.WriteFile(file+".new", []byte(content), 0o644)
			_ = os.Rename(file+".new", file)
		}
	}()
	whole := 0
	for range 200 {
		content, err := ReadPolicy(t.Context(), top)
		switch {
		case err != nil: // said, never guessed
		case string(content) == a || string(content) == b:
			whole++
		default:
			t.Errorf("%d bytes that nobody wrote as a whole", len(content))
		}
	}
	close(stop)
	<-done
	if whole == 0 {
		t.Error("no read was answered")
	}
}

// TestB94_TimesOut: a file system that does not answer ends with the context.
// A policy that a FUSE server withholds is not at hand; an ended context is
// the same code.
func TestB94_TimesOut(t *testing.T) {
	ctx, cancel := context.WithDeadlineCause(t.Context(), time.Unix(0, 0), syscall.ETIMEDOUT)
	defer cancel()
	for range 100 {
		_, err := ReadPolicy(ctx, tempDir(t))
		if errors.Is(err, ErrNoPolicy) {
			continue // the read was first
		}
		var e *Error
		if !errors.As(err, &e) || !errors.Is(err, syscall.ETIMEDOUT) || !strings.Contains(e.Error(), "in time") {
			t.Fatal(err)
		}
		return
	}
	t.Error("an ended context never won")
}
