package people

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// Command is how this program is called as a deputy.
const Command = "deputy"

// pairAt is the descriptor by which a deputy speaks to its broker: the only
// one that it inherits beside the standard three.
const pairAt = 3

// start starts this same program as a person: their uid and groups are set
// before it is executed, its environment says nothing of root's, its terminal
// and session are nobody's, and what it writes comes through a pipe.
func start(who Person, group *cgroup.Group, log *slog.Logger) (*exec.Cmd, *link, error) {
	l, theirs, err := pair()
	if err != nil {
		return nil, nil, err
	}
	defer theirs.Close()
	said, writes, err := os.Pipe()
	if err != nil {
		l.close()
		return nil, nil, fmt.Errorf("starting a deputy: %w", err)
	}
	defer writes.Close()
	groups := make([]uint32, 0, len(who.Groups))
	for _, g := range who.Groups {
		groups = append(groups, uint32(g))
	}
	// The file that this process runs, also where it has been replaced since:
	// the two sides are always of one version.
	cmd := &exec.Cmd{
		Path: "/proc/self/exe", Args: []string{"mojoup-node", Command}, Env: environment(who), Dir: "/",
		Stdout: writes, Stderr: writes, ExtraFiles: []*os.File{theirs},
		SysProcAttr: &syscall.SysProcAttr{
			Setsid:     true,
			Credential: &syscall.Credential{Uid: uint32(who.UID), Gid: uint32(who.GID), Groups: groups},
		},
	}
	if err := bornIn(group, cmd); err != nil {
		l.close()
		_ = said.Close()
		return nil, nil, fmt.Errorf("starting a deputy of %s: %w", who.Name, err)
	}
	l.said = said
	go relay(said, log)
	return cmd, l, nil
}

// lastWords is how long is waited for what a deputy has written before its end.
// Somebody whom it started may keep the pipe open for ever.
const lastWords = time.Second

// bornIn starts cmd in a control group, and with a session keyring of its own:
// root's would be inherited.
func bornIn(group *cgroup.Group, cmd *exec.Cmd) error {
	begin := func(fd int) error {
		if fd >= 0 {
			cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, fd
		}
		_, _ = unix.KeyctlJoinSessionKeyring("") // a kernel without keys has none to inherit
		return cmd.Start()
	}
	if group == nil {
		group = new(cgroup.Group) // of no tree: only a thread to start from
	}
	return group.Start(begin)
}

// environment is that of a fresh log-in, without what only a terminal has.
func environment(who Person) []string {
	env := []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "USER=" + who.Name, "LOGNAME=" + who.Name}
	if who.Home != "" {
		env = append(env, "HOME="+who.Home)
	}
	return env
}

const (
	longestLine = 8 << 10
	mostLines   = 10000 // of one deputy: the log is everybody's
)

// relay logs what a deputy writes, line by line, until it has ended. It is that
// person's text and stands as such in the log.
func relay(said io.ReadCloser, log *slog.Logger) {
	defer said.Close()
	lines := bufio.NewReaderSize(said, longestLine)
	for n := 0; ; n++ {
		part, cut, err := lines.ReadLine()
		line := string(part)
		for cut && err == nil {
			_, cut, err = lines.ReadLine()
		}
		if err != nil {
			return
		}
		if n < mostLines {
			log.Info("deputy says", "line", line)
		} else if n == mostLines {
			log.Warn("deputy says too much: the rest is left out")
		}
	}
}
