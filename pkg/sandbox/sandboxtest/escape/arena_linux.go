package escape

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// StageOptions say where an arena is made.
type StageOptions struct {
	Dir      string // outside all mounts, passable for UID
	Attack   string // the attack program, executable for UID
	Repo     string // the repository, mounted writable at its own path
	GitDir   string // its git directory
	Common   string // the common one
	Held     string // a placeholder that the sandbox will have, or ""
	UID, GID int    // whose session it will be
	Proxy    string
	Limit    int // of processes, 0 without
}

// A Staged arena is ready to be attacked until it is closed.
type Staged struct {
	Arena
	undo []func()
}

// Close takes everything away again.
func (s *Staged) Close() {
	for len(s.undo) > 0 {
		last := len(s.undo) - 1
		s.undo[last]()
		s.undo = s.undo[:last]
	}
}

// Stage makes an arena, with listeners and processes of the calling one.
func Stage(o StageOptions) (*Staged, error) {
	s := &Staged{Arena: Arena{Repo: o.Repo, GitDir: o.GitDir, Common: o.Common, Held: o.Held, Proxy: o.Proxy, Processes: o.Limit}}
	for _, step := range []func(StageOptions) error{s.files, s.sockets, s.ports, s.terminal, s.descriptor, s.setuid, s.victim} {
		if err := step(o); err != nil {
			s.Close()
			return nil, fmt.Errorf("staging an arena: %w", err)
		}
	}
	return s, nil
}

func (s *Staged) later(f func()) { s.undo = append(s.undo, f) }

func (s *Staged) files(o StageOptions) error {
	for _, f := range []struct {
		dir  string
		path *string
	}{{o.Dir, &s.Secret}, {"/tmp", &s.TmpSecret}, {"/dev/shm", &s.ShmSecret}} {
		file, err := os.CreateTemp(f.dir, "mojoup-arena-")
		if err != nil {
			return err
		}
		*f.path = file.Name()
		s.later(func() { _ = os.Remove(file.Name()) })
		_, err = io.WriteString(file, "secret of the host")
		if err := errors.Join(err, file.Chown(o.UID, o.GID), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Staged) sockets(o StageOptions) error {
	// Abstract names and those of sockets in the tree: 107 bytes at most, so
	// the one in the repository is opened by a short name.
	s.Socket = filepath.Join(o.Dir, "socket")
	s.InRepo = filepath.Join(o.Repo, "socket")
	s.Abstract = filepath.Base(s.TmpSecret) + "-stream" // as unique as that file
	s.Datagram = filepath.Base(s.TmpSecret) + "-datagram"
	for _, name := range []string{s.Socket, s.InRepo, "@" + s.Abstract} {
		l, err := net.Listen("unix", name)
		if err != nil {
			return err
		}
		s.later(func() { _ = l.Close() })
		if !strings.HasPrefix(name, "@") {
			if err := os.Chmod(name, 0o777); err != nil {
				return err
			}
		}
	}
	d, err := net.ListenPacket("unixgram", "@"+s.Datagram)
	if err != nil {
		return err
	}
	s.later(func() { _ = d.Close() })
	return nil
}

func (s *Staged) ports(StageOptions) error {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.later(func() { _ = l.Close() })
	s.TCP4 = l.Addr().(*net.TCPAddr).Port
	u, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.later(func() { _ = u.Close() })
	s.UDP4 = u.LocalAddr().(*net.UDPAddr).Port
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil { // a host may have no IPv6
		s.later(func() { _ = l.Close() })
		s.TCP6 = l.Addr().(*net.TCPAddr).Port
	}
	return nil
}

// terminal keeps one with a number that a fresh private set does not reach.
func (s *Staged) terminal(o StageOptions) error {
	for range 16 {
		master, slave, err := pty.Open()
		if err != nil {
			return err
		}
		s.later(func() { _, _ = master.Close(), slave.Close() })
		s.Terminal = slave.Name()
		if err := slave.Chown(o.UID, o.GID); err != nil {
			return err
		}
	}
	return nil
}

// descriptor leaves one open for every child, as a careless node would, under
// a number that nobody uses by chance.
func (s *Staged) descriptor(StageOptions) error {
	fd, err := unix.Open(s.Secret, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	s.Inherited, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD, 211)
	if err != nil {
		return err
	}
	s.later(func() { _ = unix.Close(s.Inherited) })
	return nil
}

func (s *Staged) setuid(o StageOptions) error {
	if os.Geteuid() != 0 {
		return nil // only root can make one
	}
	program, err := os.ReadFile(o.Attack)
	if err != nil {
		return err
	}
	path := filepath.Join(o.Repo, "setuid")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return err
	}
	s.later(func() { _ = os.Remove(path) })
	s.Setuid = path
	return os.Chmod(path, 0o755|os.ModeSetuid)
}

// victim starts a process of the session's user that wants to be attacked.
func (s *Staged) victim(o StageOptions) error {
	cmd := exec.Command(o.Attack, "victim")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)}}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	s.later(func() { _ = in.Close(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the victim says nothing: %w", err)
	}
	var about Arena
	if err := json.Unmarshal(line, &about); err != nil {
		return fmt.Errorf("the victim says %q: %w", line, err)
	}
	s.Victim, s.ShmID, s.Key = cmd.Process.Pid, about.ShmID, about.Key
	return nil
}

// victim owns a segment and a key until stdin ends.
func victim(stdin io.Reader, stdout io.Writer) int {
	shm, err := unix.SysvShmGet(unix.IPC_PRIVATE, 4096, unix.IPC_CREAT|0o600)
	if err != nil {
		return 1
	}
	defer unix.SysvShmCtl(shm, unix.IPC_RMID, nil)
	about := Arena{ShmID: shm}
	name := fmt.Sprintf("mojoup-arena-%d", os.Getpid())
	if key, err := unix.AddKey("user", name, []byte("x"), unix.KEY_SPEC_USER_KEYRING); err == nil {
		about.Key = name
		defer unix.KeyctlInt(unix.KEYCTL_INVALIDATE, key, 0, 0, 0)
		// Its possessor may do all, but others of the user only look: let
		// them find it, as a desktop's keys can be found.
		_ = unix.KeyctlSetperm(key, 0x3f3f0000)
	}
	if json.NewEncoder(stdout).Encode(about) != nil {
		return 1
	}
	_, _ = io.Copy(io.Discard, stdin)
	return 0
}
