package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// Two people whom no list of the machine names: what a system node does for
// them it does by their numbers.
const (
	ann = 70001
	bob = 70002
)

// town is a machine with a system node: its directories, a home for each of two
// people with a repository that nobody else may enter, and the program.
type town struct {
	t       *testing.T
	dir     string
	program string
	node    *exec.Cmd
	log     *said
	page    string // the setting; empty means none
	// files, by their place in the machine, that root's processes see instead
	// of what is there.
	files map[string]string
}

// said is what a process writes, to be read while it runs.
type said struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func newTown(t *testing.T) *town {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, which alone can serve other people")
	}
	if !canSandbox(t) {
		t.Skip("this machine cannot sandbox")
	}
	dir, err := os.MkdirTemp("/tmp", "mjt")
	if err != nil {
		t.Fatal(err)
	}
	w := &town{t: t, dir: dir, program: filepath.Join(dir, "mojoup-node"), log: &said{}}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	w.must(os.Chmod(dir, 0o755))
	self, err := os.ReadFile("/proc/self/exe")
	w.must(err)
	w.must(os.WriteFile(w.program, self, 0o755))
	for _, uid := range []int{ann, bob} {
		repo := w.repo(uid)
		w.must(os.MkdirAll(repo, 0o755))
		w.git(repo, "init", "-q")
		w.must(os.WriteFile(filepath.Join(repo, "secret"), []byte(fmt.Sprintf("of %d\n", uid)), 0o644))
		w.must(exec.Command("chown", "-R", fmt.Sprintf("%d:%d", uid, uid), w.home(uid)).Run())
		w.must(os.Chmod(repo, 0o700))
	}
	return w
}

func (w *town) home(uid int) string { return filepath.Join(w.dir, "home", strconv.Itoa(uid)) }
func (w *town) repo(uid int) string { return filepath.Join(w.home(uid), "work") }

func (w *town) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *town) git(dir string, args ...string) {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git %v: %v: %s", args, err, out)
	}
}

// command is the program as somebody calls it in their own repository.
func (w *town) command(uid int, args ...string) *exec.Cmd {
	args = append(w.calls(uid), args...)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "NO_COLOR=1", "MOJOUP_NODE_CONSOLE_LISTEN=" + cmp.Or(w.page, "off"), "HOME=" + w.home(uid), "MOJOUP_RUNTIME_DIR=" + filepath.Join(w.dir, "run")}
	if uid == 0 {
		cmd.Env = append(cmd.Env, "MOJOUP_CONFIG="+filepath.Join(w.dir, "etc/node.toml"), "MOJOUP_STATE_DIR="+filepath.Join(w.dir, "state"))
		cmd.Dir = w.dir
		return cmd
	}
	cmd.Dir = w.repo(uid)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	return cmd
}

// as runs a command to its end.
func (w *town) as(uid int, args ...string) (stdout, stderr string, code int) {
	w.t.Helper()
	var out, talk bytes.Buffer
	cmd := w.command(uid, args...)
	cmd.Stdout, cmd.Stderr = &out, &talk
	late := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer late.Stop()
	_ = cmd.Run()
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// fine is as, where it must not fail.
func (w *town) fine(uid int, args ...string) string {
	w.t.Helper()
	out, talk, code := w.as(uid, args...)
	if code != 0 {
		w.t.Fatalf("uid %d: %v: code %d: %s%s\nnode: %s", uid, args, code, out, talk, w.log)
	}
	return out
}

// serve starts the system node and waits until it answers root.
func (w *town) serve() {
	w.t.Helper()
	w.node = w.command(0, "serve", "--system")
	w.node.Stderr = w.log
	ready, tell, err := os.Pipe()
	w.must(err)
	defer ready.Close()
	w.node.ExtraFiles = []*os.File{tell}
	w.node.Env = append(w.node.Env, "MOJOUP_READY_FD=3")
	w.must(w.node.Start())
	_ = tell.Close()
	node := w.node
	w.t.Cleanup(func() {
		_ = node.Process.Signal(syscall.SIGTERM)
		_ = node.Wait()
		if w.t.Failed() {
			w.t.Logf("node: %s", w.log)
		}
	})
	if word, _ := io.ReadAll(ready); string(word) != "ready\n" {
		w.t.Fatalf("the node says %q: %s", word, w.log)
	}
}

func (w *town) allow(who string) { w.fine(0, "config", "set", "node.people.allow", who) }

// A stay is a session that somebody has begun and that waits to be let go.
type stay struct {
	w    *town
	cmd  *exec.Cmd
	out  *said
	go_  string // a pipe: a line ends the session's command
	done chan error
}

// begin starts a session whose command says "up" and then waits.
func (w *town) begin(uid int, flags ...string) *stay {
	w.t.Helper()
	s := &stay{w: w, out: &said{}, done: make(chan error, 1)}
	dir, err := os.MkdirTemp(w.repo(uid), "go")
	w.must(err)
	w.must(os.Chown(dir, uid, uid))
	s.go_ = filepath.Join(dir, "pipe")
	w.must(syscall.Mkfifo(s.go_, 0o600))
	w.must(os.Chown(s.go_, uid, uid))
	s.cmd = w.command(uid, append(append([]string{"run"}, flags...), "--", "sh", "-c", "echo up; read word <"+s.go_)...)
	s.cmd.Stdout, s.cmd.Stderr = s.out, s.out
	w.must(s.cmd.Start())
	go func() { s.done <- s.cmd.Wait() }()
	return s
}

// up waits until the session's command runs; says waits for a text.
func (s *stay) up() *stay { return s.says("up\n") }

func (s *stay) says(text string) *stay {
	s.w.t.Helper()
	s.w.until("a session says "+strconv.Quote(text), func() bool { return strings.Contains(s.out.String(), text) })
	return s
}

// let has the command end.
func (s *stay) let() {
	s.w.t.Helper()
	s.w.must(os.WriteFile(s.go_, []byte("on\n"), 0))
}

// code waits for the end.
func (s *stay) code() int {
	s.w.t.Helper()
	select {
	case <-s.done:
		return s.cmd.ProcessState.ExitCode()
	case <-time.After(2 * time.Minute):
		s.w.t.Fatalf("the session does not end: %s\nnode: %s", s.out, s.w.log)
	}
	return -1
}

func (w *town) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); {
		if time.Now().After(end) {
			w.t.Fatalf("waited for too long until %s\nnode: %s", what, w.log)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (w *town) status(uid int) (s api.Status) {
	w.t.Helper()
	w.must(json.Unmarshal([]byte(w.fine(uid, "status", "--json")), &s))
	return s
}

func (w *town) only(uid int) api.Session {
	w.t.Helper()
	s := w.status(uid)
	if len(s.Sessions) != 1 {
		w.t.Fatalf("uid %d sees %d sessions, not one: %+v", uid, len(s.Sessions), s.Sessions)
	}
	return s.Sessions[0]
}

// deputyOf is the process that serves somebody.
func (w *town) deputyOf(uid int) int {
	w.t.Helper()
	return w.status(uid).Node.PID
}

// kill ends a process as nothing can prevent.
func (w *town) kill(pid int) {
	w.t.Helper()
	w.must(syscall.Kill(pid, syscall.SIGKILL))
}

// clean wants a repository as it was: nothing of a session is left in it.
func (w *town) clean(uid int) {
	w.t.Helper()
	names, err := os.ReadDir(w.repo(uid))
	w.must(err)
	for _, n := range names {
		if name := n.Name(); name != ".git" && name != "secret" && !strings.HasPrefix(name, "go") {
			w.t.Errorf("%s is left in the repository of %d", name, uid)
		}
	}
}

// TestSystemNodeServesTwoAtOnce: each person's session is theirs, and so is all
// that they are told; root sees and ends both, and does nothing inside (H1, T8).
func TestSystemNodeServesTwoAtOnce(t *testing.T) {
	w := newTown(t)
	w.allow(fmt.Sprintf("%d,@%d", ann, bob))
	w.serve()
	a, b := w.begin(ann), w.begin(bob)
	a.up()
	b.up()
	hers, his := w.only(ann), w.only(bob)
	if hers.UID != ann || his.UID != bob || hers.ID == his.ID {
		t.Errorf("%+v, %+v", hers, his)
	}
	for _, args := range [][]string{
		{"session", "show", his.ID}, {"session", "stop", his.ID}, {"session", "logs", his.ID}, {"session", "attach", his.ID},
		{"session", "exec", his.ID, "--", "id"}, {"session", "diff", his.ID}, {"session", "ports", his.ID},
	} {
		if _, talk, code := w.as(ann, args...); code == 0 || !strings.Contains(talk, "there is no session") {
			t.Errorf("ann: %v: code %d: %s", args, code, talk)
		}
	}
	if all := w.status(0); len(all.Sessions) != 2 || all.Sessions[0].User == all.Sessions[1].User || !all.Node.System {
		t.Errorf("root sees %+v", all)
	}
	if out := w.fine(0, "session", "show", his.ID); !strings.Contains(out, w.repo(bob)) {
		t.Errorf("root is shown %s", out)
	}
	for _, args := range [][]string{{"session", "exec", his.ID, "--", "id"}, {"session", "attach", his.ID}} {
		if _, talk, code := w.as(0, args...); code == 0 || !strings.Contains(talk, "that is for user 70002 alone to do") {
			t.Errorf("root: %v: code %d: %s", args, code, talk)
		}
	}
	if _, talk, code := w.as(0, "session", "show", "zzzzzzzzzzzz"); code != 1 || !strings.Contains(talk, "there is no session") {
		t.Errorf("unknown: code %d: %s", code, talk)
	}
	w.fine(0, "session", "stop", his.ID[:8])
	if code := b.code(); code != 125 {
		t.Errorf("stopped by root: code %d: %s", code, b.out)
	}
	a.let()
	if code := a.code(); code != 0 {
		t.Errorf("code %d: %s", code, a.out)
	}
	if past := w.fine(ann, "session", "list", "--past"); !strings.Contains(past, hers.ID) || strings.Contains(past, his.ID) {
		t.Errorf("ann's past: %s", past)
	}
	if past := w.fine(0, "session", "list", "--past"); !strings.Contains(past, hers.ID) || !strings.Contains(past, his.ID) {
		t.Errorf("root's past: %s", past)
	}
	// Nobody but root ends the node.
	request := exec.Command("curl", "-s", "-X", "POST", "--unix-socket", filepath.Join(w.dir, "run/node.sock"), "http://mojoup-node/v1/shutdown")
	request.SysProcAttr = w.command(ann).SysProcAttr
	if out, err := request.Output(); err != nil || !strings.Contains(string(out), "root ends it") {
		t.Errorf("ann ends the node: %v: %s", err, out)
	}
	w.fine(0, "serve", "--stop")
}

// TestSystemNodeKeepsPeopleApart: what is closed to a person stays closed to
// them through the node, however they name it (H1, H2, H3).
func TestSystemNodeKeepsPeopleApart(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.serve()
	w.fine(bob, "run", "--", "true")
	refused := func(what string, args ...string) {
		t.Helper()
		out, talk, code := w.as(ann, args...)
		if code != 125 || strings.Contains(out, "of 70002") || strings.Count(talk, "mojoup-node: ") != 1 {
			t.Errorf("%s: code %d, %q, %s", what, code, out, talk)
		}
	}
	refused("somebody else's", "run", "--repo", w.repo(bob), "--", "cat", "secret")
	link := filepath.Join(w.home(ann), "link")
	w.must(os.Symlink(w.repo(bob), link))
	refused("a link to somebody else's", "run", "--repo", link, "--", "cat", "secret")
	for _, dir := range []string{"run", "state", "run/users", "state/users", fmt.Sprintf("state/users/%d", bob), fmt.Sprintf("state/users/%d", ann)} {
		refused("a directory of the node's", "run", "--repo", filepath.Join(w.dir, dir), "--", "ls")
	}
	refused("a home", "run", "--repo", w.home(ann), "--", "ls")
	refused("the top", "run", "--repo", "/", "--", "ls")

	for _, path := range []string{"state/users/%d", "run/users/%d", "state/users/%d/mojoup.db", "state/unfinished/%d"} {
		cmd := exec.Command("cat", fmt.Sprintf(filepath.Join(w.dir, path), bob))
		cmd.SysProcAttr = w.command(ann).SysProcAttr
		if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "ermission denied") {
			t.Errorf("%s: %v: %s", path, err, out)
		}
	}
}

// TestSystemNodeSwapsWhileStarting: a directory that is exchanged with a link
// to somebody else's while sessions start in it never shows what is in there
// (H2): whatever is opened is opened as the person.
func TestSystemNodeSwapsWhileStarting(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.serve()
	swapped := filepath.Join(w.home(ann), "swapped")
	w.git(w.home(ann), "init", "-q", swapped)
	w.must(exec.Command("chown", "-R", fmt.Sprintf("%d:%d", ann, ann), swapped).Run())
	w.must(os.WriteFile(filepath.Join(swapped, "secret"), []byte("mine\n"), 0o644))
	w.must(os.Symlink(w.repo(bob), swapped+".link"))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // as root: nothing but the node stands in the way
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = exchange(swapped, swapped+".link")
			}
		}
	}()
	ran := 0
	for range 20 {
		out, talk, code := w.as(ann, "run", "--repo", swapped, "--", "cat", "secret")
		if strings.Contains(out+talk, "of 70002") {
			t.Errorf("code %d: %s%s", code, out, talk)
		}
		if code == 0 {
			ran++
		}
	}
	close(stop)
	<-stopped
	t.Logf("%d of 20 sessions started", ran)
}

// TestSystemNodeServesWhomItIsTold: by name, number and group, from the next
// request on; and nobody from another user namespace (H30).
func TestSystemNodeServesWhomItIsTold(t *testing.T) {
	w := newTown(t)
	w.serve()
	served := func(uid int, want bool) {
		t.Helper()
		_, talk, code := w.as(uid, "session", "list")
		if (code == 0) != want || !want && !strings.Contains(talk, fmt.Sprintf("the system node does not serve user %d", uid)) {
			t.Errorf("uid %d: code %d: %s", uid, code, talk)
		}
	}
	served(ann, false)
	w.allow(strconv.Itoa(ann))
	served(ann, true)
	served(bob, false)
	w.allow(fmt.Sprintf("@%d", bob))
	served(ann, false)
	served(bob, true)
	w.allow("nobody-of-that-name,@none-of-that-name")
	served(bob, false)
	w.allow("*")
	served(bob, true)

	inside := w.command(bob, "session", "list")
	inside.Args = append([]string{"unshare", "--user", "--map-root-user"}, inside.Args...)
	inside.Path, _ = exec.LookPath("unshare")
	if out, err := inside.CombinedOutput(); err == nil || !strings.Contains(string(out), "cannot tell who is calling") {
		t.Errorf("from another user namespace: %v: %s", err, out)
	}
}

// TestSystemNodeQueueIsFair: who waits is served in turn with the other people,
// however many one of them has waiting.
func TestSystemNodeQueueIsFair(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.fine(0, "config", "set", "node.sandbox.max_sessions", "1")
	w.serve()
	first := w.begin(ann).up()
	second := w.begin(ann).says("place 1 of 1")
	third := w.begin(ann).says("place 2 of 2")
	his := w.begin(bob).says("place 1 of 3") // ann was served already
	second.says("place 2 of 3")
	queue := w.status(0).Queue
	if len(queue) != 3 || queue[0].UID != bob || queue[1].UID != ann || queue[2].UID != ann {
		t.Errorf("root sees the queue %+v", queue)
	}
	if mine := w.status(bob).Queue; len(mine) != 1 || mine[0].UID != bob || mine[0].Place != 1 {
		t.Errorf("bob sees the queue %+v", mine)
	}
	for _, s := range []*stay{first, his, second, third} {
		s.up()
		s.let()
		if code := s.code(); code != 0 {
			t.Errorf("code %d: %s", code, s.out)
		}
	}
}

// TestSystemNodeEnforcesLimits: a person without any privilege has limits by
// control groups, which the node of their own could not make.
func TestSystemNodeEnforcesLimits(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.serve()
	limits := filepath.Join(w.dir, "limits.json")
	w.must(os.WriteFile(limits, []byte(`{"version":1,"limits":{"memory":"64MiB","processes":50,"cpus":0.5}}`), 0o644))
	s := w.begin(ann, "--policy", limits)
	s.up()
	id := w.only(ann).ID
	shown := w.fine(ann, "session", "show", id)
	for _, limit := range []string{"memory", "process", "processor"} {
		if !grep(shown, "enforced", limit+" limit", "by control group") {
			t.Errorf("the %s limit is not enforced: %s", limit, shown)
		}
	}
	s.let()
	s.code()
	out, talk, code := w.as(ann, "run", "--policy", limits, "--", "sh", "-c", "exec tail /dev/zero")
	if code != 137 || !strings.Contains(talk, "killed for memory: limit 64 MiB") {
		t.Errorf("code %d: %s%s", code, out, talk)
	}
}

// grep reports whether one line has all of the words.
func grep(text string, words ...string) bool {
	for line := range strings.Lines(text) {
		all := true
		for _, word := range words {
			all = all && strings.Contains(line, word)
		}
		if all {
			return true
		}
	}
	return false
}

// TestSystemNodeLosesADeputy: kill -9 of a person's part ends that person's
// sessions only; their slots go to who waits, and another part undoes what is
// left without being asked (T9).
func TestSystemNodeLosesADeputy(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.fine(0, "config", "set", "node.sandbox.max_sessions", "2")
	w.serve()
	hers, his := w.begin(ann).up(), w.begin(bob).up()
	waits := w.begin(bob).says("place 1 of 1")
	id := w.only(ann).ID
	w.kill(w.deputyOf(ann))
	if code := hers.code(); code != 125 {
		t.Errorf("code %d: %s", code, hers.out)
	}
	waits.up()
	w.until("what was left is undone", func() bool {
		return strings.Contains(w.fine(0, "session", "list", "--past"), id)
	})
	if out := w.fine(ann, "session", "show", id); !strings.Contains(out, "lost") {
		t.Errorf("%s", out)
	}
	w.clean(ann)
	w.fine(ann, "session", "list")
	his.let()
	waits.let()
	if his.code() != 0 || waits.code() != 0 {
		t.Errorf("bob's: %s, %s", his.out, waits.out)
	}
}

// TestSystemNodeIsKilled: with the broker everybody's sessions end, each by its
// own journal; the next one undoes what is left and serves on, or cleanup does
// it where none is to (T9).
func TestSystemNodeIsKilled(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.serve()
	for _, how := range []string{"the next", "cleanup"} {
		hers, his := w.begin(ann).up(), w.begin(bob).up()
		if how == "cleanup" { // and one deputy cannot say goodbye
			w.kill(w.deputyOf(ann))
		}
		w.kill(w.node.Process.Pid)
		_ = w.node.Wait()
		if a, b := hers.code(), his.code(); a != 125 || b != 125 {
			t.Errorf("%s: codes %d and %d: %s%s", how, a, b, hers.out, his.out)
		}
		if how == "cleanup" {
			w.until("the deputies are gone", func() bool {
				w.fine(0, "cleanup")
				marks, _ := os.ReadDir(filepath.Join(w.dir, "state/unfinished"))
				return len(marks) == 0
			})
			w.clean(ann)
			w.clean(bob)
			return
		}
		w.serve()
		if out := w.fine(ann, "run", "--", "cat", "secret"); out != "of 70001\n" {
			t.Errorf("%q", out)
		}
		w.fine(bob, "run", "--", "true")
	}
}

// TestSystemNodeKilledAtAnyPoint kills a deputy or the broker at every moment of
// a session's life in turn: whatever had been made is undone, no slot is lost,
// and the next session starts (T9).
func TestSystemNodeKilledAtAnyPoint(t *testing.T) {
	kerneltest.Long(t)
	w := newTown(t)
	w.allow("*")
	w.fine(0, "config", "set", "node.sandbox.max_sessions", "1")
	w.serve()
	for i := range 40 {
		cmd := w.command(ann, "run", "--", "true")
		w.must(cmd.Start())
		<-time.After(time.Duration(i) * 4 * time.Millisecond)
		if i%2 == 0 {
			w.kill(w.node.Process.Pid)
			_ = w.node.Wait()
			// It may have met no node, and have started one of its own where
			// another person's directory is in the way: that is refused.
			_ = cmd.Wait()
			w.serve()
		} else {
			for _, pid := range w.deputies(ann) {
				w.kill(pid)
			}
			_ = cmd.Wait()
		}
		if out := w.fine(ann, "run", "--", "cat", "secret"); out != "of 70001\n" {
			t.Errorf("after kill %d: %q", i, out)
		}
		w.clean(ann)
	}
	if s := w.status(0); len(s.Sessions)+len(s.Queue)+len(s.Leftovers) > 0 {
		t.Errorf("%+v", s)
	}
}

// deputies are the processes that serve somebody, by the list of the kernel.
func (w *town) deputies(uid int) (pids []int) {
	w.t.Helper()
	found, err := filepath.Glob("/proc/[0-9]*/cmdline")
	w.must(err)
	for _, file := range found {
		line, _ := os.ReadFile(file)
		if string(line) != "mojoup-node\x00deputy\x00" {
			continue
		}
		status, _ := os.ReadFile(filepath.Dir(file) + "/status")
		if !strings.Contains(string(status), fmt.Sprintf("Uid:\t%d\t", uid)) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}

// TestDeputyIsThatPerson: a person's part of the node has their uid and groups
// only, nothing of root's open, and cannot be looked into.
func TestDeputyIsThatPerson(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.serve()
	pid := w.deputyOf(ann)
	proc := fmt.Sprintf("/proc/%d/", pid)
	status, err := os.ReadFile(proc + "status")
	w.must(err)
	for _, want := range []string{"Uid:\t70001\t70001\t70001\t70001", "Gid:\t70001\t70001\t70001\t70001", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("no %q in %s", want, status)
		}
	}
	if !grep(string(status), "Groups:\t70001") && !grep(string(status), "Groups:\t \n") && !strings.Contains(string(status), "Groups:\t\n") {
		t.Errorf("groups: %s", status)
	}
	env, err := os.ReadFile(proc + "environ")
	w.must(err)
	if strings.Contains(string(env), "MOJOUP") || strings.Contains(string(env), w.dir) {
		t.Errorf("environment: %q", env)
	}
	open, err := os.ReadDir(proc + "fd")
	w.must(err)
	for _, fd := range open {
		to, err := os.Readlink(proc + "fd/" + fd.Name())
		if err != nil {
			continue // closed meanwhile
		}
		mine := strings.HasPrefix(to, filepath.Join(w.dir, "state/users/70001")) || strings.HasPrefix(to, filepath.Join(w.dir, "run/users/70001"))
		mine = mine || strings.HasPrefix(to, "/sys/fs/cgroup/") && strings.Contains(to, "/mojoup.user-70001.") // Go looks at its own
		if strings.HasPrefix(to, "/") && !mine && to != "/dev/null" && !strings.HasPrefix(to, "/memfd:") {
			t.Errorf("descriptor %s is %s", fd.Name(), to)
		}
	}
	if info, err := os.Stat(proc + "mem"); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
		t.Errorf("its memory is its person's to read: %v", err)
	}
}

// exchange puts each of two names where the other one is.
func exchange(a, b string) error {
	return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
}

// TestSystemNodeAsksEachPersonsGateway: with engine docker each person's part of
// the node asks Docker and OpenShell as that person, and refuses with what it
// found; root is told whom to ask.
func TestSystemNodeAsksEachPersonsGateway(t *testing.T) {
	w := newTown(t)
	w.fine(0, "config", "set", "node.sandbox.engine", "docker")
	w.fine(0, "config", "set", "node.sandbox.image", "some/image:1")
	w.allow("*")
	w.serve()
	if out := w.fine(0, "status"); !strings.Contains(out, "told to each person") {
		t.Errorf("root is told %q", out)
	}
	_, talk, code := w.as(ann, "run", "--", "true")
	if code != 125 || !strings.Contains(talk, "This machine cannot sandbox agents: ") || strings.Contains(talk, "was not made") || strings.Contains(talk, "not asked") {
		t.Errorf("ann is told %q, code %d", talk, code)
	}
	if !strings.Contains(talk, "Docker") || strings.Contains(talk, "user 0") {
		t.Errorf("it was not asked as ann: %q", talk)
	}
	w.judgedByTheNode()
}
