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
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestSoak starts sessions and kills at random what carries them, for as long
// as MOJOUP_SOAK says. After each round nothing of it may be left.
func TestSoak(t *testing.T) {
	asked := os.Getenv("MOJOUP_SOAK")
	if asked == "" {
		t.Skip("wanted MOJOUP_SOAK, a duration, as make soak sets it, found none")
	}
	length, err := time.ParseDuration(asked)
	if err != nil {
		t.Fatal(err)
	}
	everybody(t, func(t *testing.T, who somebody) {
		r := place(t, who, nil)
		node, err := binary()
		r.must(err)
		s := soak{r, node, fmt.Sprintf("299.%d%d", os.Getpid(), who.uid)}
		t.Cleanup(func() { _ = s.command("serve", "--stop").Run() })
		seed := uint64(time.Now().UnixNano())
		random := rand.New(rand.NewPCG(seed, 0))
		until := time.Now().Add(length / 2) // two users share the time
		rounds := 0
		for ; time.Now().Before(until) || rounds == 0; rounds++ {
			if s.round(random); t.Failed() {
				t.Fatalf("round %d of seed %d", rounds, seed)
			}
		}
		t.Logf("%d rounds of seed %d", rounds, seed)
	})
}

// A soak is one user's; sleep is an argument that only its sessions have.
type soak struct {
	*rig
	node, sleep string
}

// command is one of the command line, by the rig's person.
func (s soak) command(args ...string) *exec.Cmd {
	cmd := exec.Command(s.node, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.repo, s.environ(), 5*time.Second
	if s.who.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(s.who.uid), Gid: uint32(s.who.gid)}}
	}
	return cmd
}

// round runs one to four sessions, ends them in one of four ways, and looks
// for what is left.
func (s soak) round(random *rand.Rand) {
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
func (s soak) session() *exec.Cmd {
	s.t.Helper()
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

func (s soak) nodePid() int {
	s.t.Helper()
	said, err := s.command("status", "--json").Output()
	s.must(err)
	var status struct {
		PID  int `json:"pid"`
		Node struct {
			PID int `json:"pid"`
		} `json:"node"`
	}
	s.must(json.Unmarshal(said, &status))
	if pid := max(status.PID, status.Node.PID); pid > 1 {
		return pid
	}
	s.t.Fatalf("no process id in %s", said)
	return 0
}

// left fails for processes of sessions and for files in the repository.
func (s soak) left() {
	s.t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	s.must(err)
	for _, file := range lines {
		if line, err := os.ReadFile(file); err == nil && strings.Contains(string(line), s.sleep) {
			s.t.Errorf("%s is left: %q", filepath.Dir(file), line)
		}
	}
	entries, err := os.ReadDir(s.repo)
	s.must(err)
	for _, e := range entries {
		if e.Name() != ".git" {
			s.t.Errorf("left in the repository: %s", e.Name())
		}
	}
}
