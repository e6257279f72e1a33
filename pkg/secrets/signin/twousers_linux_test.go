package signin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// somebodyElse is a user that has nothing to do with the sign-in.
const somebodyElse = 12345

// A snooper is another user who is told of whatever happens in a directory, and
// opens all that lies there then.
type snooper struct {
	dir  string
	read chan string // what could be read, by path and content
	over chan error
}

// shared is what everybody may read, and last the file after which the snooper
// ends.
const (
	shared = "for everybody"
	last   = "last"
)

// snoop starts one. Its thread alone becomes the other user, and ends with it.
func snoop(t *testing.T, dir string) *snooper {
	t.Helper()
	s := &snooper{dir: dir, read: make(chan string, 16), over: make(chan error, 1)}
	watching := make(chan struct{})
	go func() {
		runtime.LockOSThread() // and never unlocked
		s.over <- s.run(watching)
	}()
	select {
	case <-watching:
	case err := <-s.over:
		t.Fatal(err)
	}
	return s
}

func (s *snooper) run(watching chan<- struct{}) error {
	for _, call := range [][4]uintptr{
		{syscall.SYS_SETGROUPS, 0, 0, 0},
		{syscall.SYS_SETRESGID, somebodyElse, somebodyElse, somebodyElse},
		{syscall.SYS_SETRESUID, somebodyElse, somebodyElse, somebodyElse},
	} {
		if _, _, e := syscall.RawSyscall(call[0], call[1], call[2], call[3]); e != 0 {
			return e
		}
	}
	fd, err := syscall.InotifyInit1(syscall.IN_CLOEXEC)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	if _, err := syscall.InotifyAddWatch(fd, s.dir, syscall.IN_ALL_EVENTS&^(syscall.IN_OPEN|syscall.IN_ACCESS|syscall.IN_CLOSE_NOWRITE)); err != nil {
		return err
	}
	close(watching)
	events := make([]byte, 16<<10)
	for {
		if _, err := syscall.Read(fd, events); err != nil && !errors.Is(err, syscall.EINTR) {
			return err
		}
		entries, err := os.ReadDir(s.dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			path := filepath.Join(s.dir, e.Name())
			if b, err := os.ReadFile(path); err == nil {
				s.read <- fmt.Sprintf("%s: %.40q", path, b)
			}
		}
		if slices.ContainsFunc(entries, func(e os.DirEntry) bool { return e.Name() == last }) {
			return nil
		}
	}
}

// looks has it look at what is there now, and is what it could read since the
// last time that is not shared.
func (s *snooper) looks(t *testing.T, name string) (read []string) {
	t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".x", []byte(shared), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(path+".x", 0o644), os.Rename(path+".x", path)); err != nil {
		t.Fatal(err)
	}
	late, over := time.After(time.Minute), s.over
	for {
		select {
		case r := <-s.read:
			if r == fmt.Sprintf("%s: %q", path, shared) {
				return read
			}
			if !strings.HasSuffix(r, fmt.Sprintf(": %q", shared)) {
				read = append(read, r)
			}
		case err := <-over:
			if err != nil || name != last {
				t.Fatalf("the other user ended: %v", err)
			}
			over = nil // what it has read is still to come
		case <-late:
			t.Fatal("the other user is not told, or does not look")
		}
	}
}

// TestB46_NobodyElseReadsARenewal: another user who may list the directory, and
// is told of all that happens there, opens nothing that a renewal makes, whatever the umask.
func TestB46_NobodyElseReadsARenewal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wanted root, which alone can be somebody else as well")
	}
	for _, mask := range []int{0, 0o022} {
		before := syscall.Umask(mask)
		t.Cleanup(func() { syscall.Umask(before) })
		for _, name := range []string{"claude", "codex"} {
			h := newHost(t, name)
			dir := filepath.Dir(h.path)
			for d := dir; d != os.TempDir(); d = filepath.Dir(d) {
				if err := os.Chmod(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			s := snoop(t, dir)
			h.clock.move(tokenLife - 5*time.Minute)
			r := h.refresher()
			var read, steps []string
			r.Step = func(step string) {
				steps = append(steps, step)
				read = append(read, s.looks(t, step)...)
			}
			if _, err := r.Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
				t.Fatal(err)
			}
			read = append(read, s.looks(t, last)...)
			if len(read) > 0 || len(steps) < 5 {
				t.Errorf("%s, umask %03o: in steps %v somebody else read %v", name, mask, steps, read)
			}
			h.usable(name)
		}
	}
}

// TestB46_WhatLiesInTheWay: links and directories where a renewal puts its files
// are not followed and not written to. Where they cannot be taken away, nothing is
// spent; and no token lies anywhere but in the tool's own file.
func TestB46_WhatLiesInTheWay(t *testing.T) {
	for name, c := range map[string]struct {
		at      string
		make    func(t *testing.T, path, victim string)
		renewed bool
	}{
		"a link for the document":           {".mojoup-next-", link, true},
		"a link for the intent":             {".mojoup-renewing-", link, true},
		"a full directory for the document": {".mojoup-next-", directory, false},
		"a full directory for the intent":   {".mojoup-renewing-", directory, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, "claude")
			h.clock.move(tokenLife - 5*time.Minute)
			victim := filepath.Join(t.TempDir(), "victim")
			if err := os.WriteFile(victim, []byte("as it was"), 0o600); err != nil {
				t.Fatal(err)
			}
			in := filepath.Join(filepath.Dir(h.path), c.at+filepath.Base(h.path))
			c.make(t, in, victim)
			s, err := h.refresher().Refresh(t.Context(), h.tool, h.path, h.soon)
			if s != nil {
				s.Wipe()
			}
			spent, _ := h.srv.Counts()
			if (err == nil) != c.renewed || (spent == 1) != c.renewed {
				t.Errorf("spent %d, %v", spent, err)
			}
			if b, err := os.ReadFile(victim); err != nil || string(b) != "as it was" {
				t.Errorf("the victim is %q, %v", b, err)
			}
			_ = os.RemoveAll(in)
			h.usable(name)
			for _, dir := range []string{filepath.Dir(h.path), filepath.Dir(victim)} {
				entries, err := os.ReadDir(dir)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range entries {
					if path := filepath.Join(dir, e.Name()); path != h.path && path != victim {
						t.Errorf("%s is left", path)
					}
				}
			}
		})
	}
}

func link(t *testing.T, path, victim string) {
	if err := os.Symlink(victim, path); err != nil {
		t.Fatal(err)
	}
}

func directory(t *testing.T, path, _ string) {
	if err := os.MkdirAll(filepath.Join(path, "something"), 0o777); err != nil {
		t.Fatal(err)
	}
}
