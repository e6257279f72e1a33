package guardwatch

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// place has two directories with what a session may protect.
func place(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(dir+"/git/hooks", 0o755))
	for _, name := range []string{"settings.json", "git/config", "other"} {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o644))
	}
	return dir
}

func watch(t *testing.T, w *Watcher, paths ...string) (lost chan Lost, stop func()) {
	t.Helper()
	lost = make(chan Lost, 10)
	watch, missed := w.Watch(paths, func(l Lost) { lost <- l })
	for _, m := range missed {
		t.Fatal(m.Err)
	}
	return lost, watch.Stop
}

func next(t *testing.T, lost chan Lost, path string, gone bool) {
	t.Helper()
	select {
	case l := <-lost:
		if l.Path != path || l.Gone != gone || time.Since(l.At) > time.Minute {
			t.Errorf("got %+v, want %s, gone %v", l, path, gone)
		}
	case <-time.After(time.Minute):
		t.Fatalf("nobody noticed %s", path)
	}
}

func TestNoticesWhatTheHostReplaces(t *testing.T) {
	dir := place(t)
	w := New(nil)
	defer w.Close()
	settings, config, hooks := dir+"/settings.json", dir+"/git/config", dir+"/git/hooks"
	lost, stop := watch(t, w, settings, config, hooks)
	other, stopOther := watch(t, w, settings)

	// None of these ends a mount.
	must(t, os.WriteFile(settings, []byte("in place"), 0o644))
	must(t, os.Chmod(config, 0o600))
	must(t, os.WriteFile(hooks+"/pre-commit", nil, 0o755))
	must(t, os.Rename(dir+"/other", dir+"/another"))

	must(t, os.WriteFile(dir+"/new", nil, 0o644))
	must(t, os.Rename(dir+"/new", settings))
	next(t, lost, settings, false)
	next(t, other, settings, false)
	must(t, os.RemoveAll(hooks))
	next(t, lost, hooks, true)
	must(t, os.WriteFile(dir+"/new", nil, 0o644))
	must(t, os.Rename(dir+"/new", settings)) // said once
	must(t, os.Rename(dir+"/git", dir+"/moved"))
	next(t, lost, config, true)

	stopOther()
	stop()
	late, stopLate := watch(t, w, settings)
	must(t, os.Remove(settings))
	stopLate()
	stopLate()
	if len(late) != 1 {
		t.Errorf("at the end %d were told", len(late))
	}
	if len(lost)+len(other) != 0 {
		t.Errorf("more was said: %d, %d", len(lost), len(other))
	}
	if len(w.dirs) != 0 {
		t.Errorf("%d directories are still watched", len(w.dirs))
	}
	must(t, w.Close())
}

// TestFloodsHideNothing: more events than the kernel keeps, and a number of an
// inode that is used again.
func TestFloodsHideNothing(t *testing.T) {
	kerneltest.Long(t)
	dir := place(t)
	w := New(nil)
	defer w.Close()
	lost, stop := watch(t, w, dir+"/settings.json")
	defer stop()
	for i := range 20000 {
		must(t, os.WriteFile(fmt.Sprintf("%s/f%d", dir, i%7), nil, 0o644))
		must(t, os.Remove(fmt.Sprintf("%s/f%d", dir, i%7)))
	}
	must(t, os.Remove(dir+"/settings.json"))
	must(t, os.WriteFile(dir+"/settings.json", []byte("x"), 0o644))
	next(t, lost, dir+"/settings.json", false)
}

func TestWhatCannotBeWatchedIsSaid(t *testing.T) {
	dir := place(t)
	w := New(nil)
	lost := make(chan Lost, 1)
	watch, missed := w.Watch([]string{dir + "/missing/x", dir + "/nothing", dir + "/other"}, func(l Lost) { lost <- l })
	if len(missed) != 2 || missed[0].Path != dir+"/missing/x" || missed[1].Path != dir+"/nothing" || !errors.Is(missed[1].Err, os.ErrNotExist) {
		t.Errorf("missed %+v", missed)
	}
	must(t, os.Remove(dir+"/other"))
	next(t, lost, dir+"/other", true)
	watch.Stop()
	must(t, w.Close())
	if _, missed := w.Watch([]string{dir}, nil); len(missed) != 1 {
		t.Error("a closed watcher watches")
	}
}

// TestExamine: who must know now does not wait for the kernel's word.
func TestExamine(t *testing.T) {
	dir := place(t)
	w := New(nil)
	defer w.Close()
	lost := make(chan Lost, 3)
	watch, _ := w.Watch([]string{dir + "/other", dir + "/git/hooks"}, func(l Lost) { lost <- l })
	defer watch.Stop()
	watch.Examine()
	if len(lost) != 0 {
		t.Errorf("lost %+v", <-lost)
	}
	must(t, os.Rename(dir+"/git/hooks", dir+"/git/old")) // or its number could be used again, in the same tick of the clock
	must(t, os.Mkdir(dir+"/git/hooks", 0o755))
	watch.Examine()
	if len(lost) != 1 {
		t.Fatalf("%d losses", len(lost))
	}
	if l := <-lost; l.Path != dir+"/git/hooks" {
		t.Errorf("lost %+v", l)
	}
}

// TestTakenRightsAreNoLoss: a session can take the right to look from its own
// tree. That ends no mount, and what the host did meanwhile is found later.
func TestTakenRightsAreNoLoss(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	dir := place(t)
	w := New(nil)
	lost, stop := watch(t, w, dir+"/git/config", dir+"/git/hooks")
	must(t, os.Chmod(dir+"/git", 0))
	stop()
	lost2, stop2 := func() (chan Lost, func()) {
		must(t, os.Chmod(dir+"/git", 0o755))
		return watch(t, w, dir+"/git/config", dir+"/git/hooks")
	}()
	must(t, os.Chmod(dir+"/git", 0))
	w.examine(map[int32]bool{-1: true})
	must(t, os.Chmod(dir+"/git", 0o755))
	must(t, os.Remove(dir+"/git/config"))
	stop2()
	if len(lost) != 0 || len(lost2) != 1 {
		t.Errorf("%d and %d losses were told, want 0 and 1", len(lost), len(lost2))
	}
	must(t, w.Close())
}

// asNobody runs this test again with a user's rights: root has all.
func asNobody(t *testing.T) {
	t.Helper()
	self, err := os.Executable()
	must(t, err)
	bin := t.TempDir() + "/test"
	content, err := os.ReadFile(self)
	must(t, err)
	must(t, os.WriteFile(bin, content, 0o755))
	for dir := filepath.Dir(bin); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		must(t, os.Chmod(dir, 0o755))
	}
	cmd := exec.Command(bin, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}
