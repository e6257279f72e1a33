package realtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSoak starts sessions and kills at random what carries them, for as long
// as MOJOUP_SOAK says. After each round nothing of it may be left.
func TestSoak(t *testing.T) {
	length := soakLength(t)
	everybody(t, func(t *testing.T, who somebody) {
		s := newSoak(t, who, length)
		s.goOn(func(random *rand.Rand) { s.round(random) })
		t.Logf("counted: %d sessions, of nodes that were killed", s.sessions)
	})
}

// TestSoakOfOneNode has one node carry sessions that end in every way, for as
// long as MOJOUP_SOAK says. After each round nothing of them may be left, and at
// the end the node has no more open, and hardly more memory, than when it was
// young.
func TestSoakOfOneNode(t *testing.T) {
	length := soakLength(t)
	everybody(t, func(t *testing.T, who somebody) {
		s := newSoak(t, who, length)
		serve := s.command("serve")
		s.must(serve.Start())
		t.Cleanup(func() {
			_ = s.command("serve", "--stop").Run()
			_ = serve.Wait()
		})
		for late := time.Now().Add(within); s.pid() == 0; {
			if time.Now().After(late) {
				t.Fatal("the node does not start")
			}
		}
		pid := s.pid()
		random := rand.New(rand.NewPCG(1, 0))
		for range 10 {
			s.roundOfOne(random) // what is made once is made now
		}
		young, young2, begun, before := memory(pid), descriptors(pid), time.Now(), s.sessions
		s.goOn(s.roundOfOne)
		took := time.Since(begun)
		old, old2 := memory(pid), descriptors(pid)
		t.Logf("counted: %d sessions in %s of one node: %d KiB and %d descriptors before, %d KiB and %d after",
			s.sessions-before, took.Round(time.Second), young, young2, old, old2)
		if now := s.pid(); now != pid {
			t.Errorf("process %d is the node now, it was %d", now, pid)
		}
		// It grows for some hundred sessions and no further.
		if old > young+8<<10 || old2 > young2 {
			t.Errorf("a node of %d KiB and %d descriptors has %d KiB and %d", young, young2, old, old2)
		}
	})
}

// A soak is one user's; sleep is an argument that only its sessions have.
type soak struct {
	*rig
	node, sleep string
	length      time.Duration // of one test and user
	sessions    int           // so far
}

// soakLength is for how long was asked.
func soakLength(t *testing.T) time.Duration {
	t.Helper()
	asked := os.Getenv("MOJOUP_SOAK")
	if asked == "" {
		t.Skip("wanted MOJOUP_SOAK, a duration, as make soak sets it, found none")
	}
	length, err := time.ParseDuration(asked)
	if err != nil {
		t.Fatal(err)
	}
	return length
}

func newSoak(t *testing.T, who somebody, length time.Duration) *soak {
	t.Helper()
	r := place(t, who, nil)
	node, err := binary()
	r.must(err)
	// Two tests and two users share the time.
	s := &soak{r, node, fmt.Sprintf("299.%d%d", os.Getpid(), who.uid), length / 4, 0}
	t.Cleanup(func() { _ = s.command("serve", "--stop").Run() })
	return s
}

// goOn makes rounds until the time is over.
func (s *soak) goOn(round func(*rand.Rand)) {
	s.t.Helper()
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	until := time.Now().Add(s.length)
	for rounds := 0; time.Now().Before(until) || rounds == 0; rounds++ {
		if round(random); s.t.Failed() {
			s.t.Fatalf("round %d of seed %d", rounds, seed)
		}
	}
}

// memory is a process' own, in KiB, once it has given back what it does not
// need: the least of some looks.
func memory(pid int) int {
	least := 0
	for range 40 {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		_, rest, _ := strings.Cut(string(text), "RssAnon:")
		n := 0
		if _, err := fmt.Sscan(rest, &n); err == nil && (least == 0 || n < least) {
			least = n
		}
		<-time.After(500 * time.Millisecond)
	}
	return least
}

func descriptors(pid int) int {
	entries, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	return len(entries)
}

// roundOfOne runs one to four sessions, ends each in one of six ways, and looks
// for what is left in the node that goes on.
func (s *soak) roundOfOne(random *rand.Rand) {
	s.t.Helper()
	var clients []*exec.Cmd
	for range 1 + random.IntN(4) {
		clients = append(clients, s.session())
	}
	for _, c := range clients {
		switch random.IntN(5) {
		case 0:
			s.must(c.Process.Signal(syscall.SIGKILL))
		case 1:
			s.must(c.Process.Signal(syscall.SIGTERM))
		case 2:
			s.must(c.Process.Signal(syscall.SIGINT))
		case 3:
			s.killOne(random) // of any that lives
		case 4:
			_ = s.command("session", "stop", s.listed(random)).Run() // perhaps it has ended
		}
	}
	// Who was not hit by chance is now.
	for _, c := range clients {
		_ = c.Process.Signal(syscall.SIGTERM)
	}
	for _, c := range clients {
		_ = c.Wait() // it was killed
	}
	s.sessions++
	if said, err := s.command("run", "--no-tty", "--", "true").CombinedOutput(); err != nil {
		s.t.Errorf("the next session: %v\n%s", err, said)
	}
	for late := time.Now().Add(within); s.listed(random) != ""; {
		if time.Now().After(late) {
			s.t.Fatal("a session does not end")
		}
	}
	s.left()
}

// killOne kills one of the sessions' own processes.
func (s *soak) killOne(random *rand.Rand) {
	if pids := s.processes(); len(pids) > 0 {
		_ = syscall.Kill(pids[random.IntN(len(pids))], syscall.SIGKILL)
	}
}

// listed is one of the sessions that live, or empty.
func (s *soak) listed(random *rand.Rand) string {
	s.t.Helper()
	said, err := s.command("session", "list", "--json").Output()
	s.must(err)
	var list []struct{ ID string }
	s.must(json.Unmarshal(said, &list))
	if len(list) == 0 {
		return ""
	}
	return list[random.IntN(len(list))].ID
}

// command is one of the command line, by the rig's person.
func (s *soak) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.node, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.repo, s.environ(), 5*time.Second
	if s.who.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.who.uid), Gid: uint32(s.who.gid)}}
	}
	return cmd
}

// round runs one to four sessions, ends them in one of four ways, and looks
// for what is left.
func (s *soak) round(random *rand.Rand) {
	s.t.Helper()
	var clients []*exec.Cmd
	for range 1 + random.IntN(4) {
		clients = append(clients, s.session())
	}
	switch way := random.IntN(4); way {
	case 0:
		s.must(syscall.Kill(s.nodePid(), syscall.SIGKILL))
	case 1:
		s.must(syscall.Kill(s.nodePid(), syscall.SIGTERM))
	default:
		for _, c := range clients {
			s.must(c.Process.Signal([]os.Signal{syscall.SIGKILL, syscall.SIGTERM}[way-2]))
		}
	}
	for _, c := range clients {
		_ = c.Wait() // it was killed
	}
	s.sessions++
	// Whoever comes next finds the place free, and undoes what is left.
	if said, err := s.command("run", "--no-tty", "--", "true").CombinedOutput(); err != nil {
		s.t.Errorf("the next session: %v\n%s", err, said)
	}
	if said, err := s.command("serve", "--stop").CombinedOutput(); err != nil {
		s.t.Errorf("stopping the node: %v\n%s", err, said)
	}
	s.left()
}

// session starts one that waits, and returns when it runs.
func (s *soak) session() *exec.Cmd {
	s.t.Helper()
	s.sessions++
	cmd := s.command("run", "--no-tty", "--", "sh", "-c", "echo up; exec sleep "+s.sleep)
	out, err := cmd.StdoutPipe()
	s.must(err)
	var said strings.Builder
	cmd.Stderr = &said
	s.must(cmd.Start())
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "up\n" {
		_ = cmd.Wait()
		s.t.Fatalf("the session said %q (%v)\n%s", line, err, said.String())
	}
	go io.Copy(io.Discard, out) //nolint:errcheck // ends with the client
	return cmd
}

func (s *soak) nodePid() int {
	s.t.Helper()
	pid := s.pid()
	if pid < 2 {
		s.t.Fatal("no node answers")
	}
	return pid
}

// pid is the node's, or 0.
func (s *soak) pid() int {
	s.t.Helper()
	said, _ := s.command("status", "--json").Output() // where none runs, too
	var status struct {
		PID  int `json:"pid"`
		Node struct {
			PID int `json:"pid"`
		} `json:"node"`
	}
	s.must(json.Unmarshal(said, &status))
	return max(status.PID, status.Node.PID)
}

// left fails for processes of sessions and for files in the repository.
func (s *soak) left() {
	s.t.Helper()
	if pids := s.processes(); len(pids) > 0 {
		s.t.Errorf("processes are left: %v", pids)
	}
	entries, err := os.ReadDir(s.repo)
	s.must(err)
	for _, e := range entries {
		if e.Name() != ".git" {
			s.t.Errorf("left in the repository: %s", e.Name())
		}
	}
}

// processes are those that bear the soak's mark.
func (s *soak) processes() (pids []int) {
	s.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	s.must(err)
	for _, file := range lines {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), s.sleep) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
			pids = append(pids, pid)
		}
	}
	return pids
}
