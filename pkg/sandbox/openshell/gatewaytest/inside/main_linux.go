package inside

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Main does what its first argument says and answers the exit code.
func Main(args []string) int {
	// The thread that joins a namespace is the one that execs.
	runtime.LockOSThread()
	if len(args) > 1 && args[0] == "enter" {
		return fail("enter", enter(args[1:]))
	}
	if len(args) == 1 && args[0] == "main" {
		code, err := first()
		if err != nil {
			return fail("supervisor", err)
		}
		return code
	}
	return fail("supervisor", errors.New("usage: main | enter DIR COMMAND…"))
}

func fail(what string, err error) int {
	fmt.Fprintln(os.Stderr, what+":", err)
	return 1
}

func load() (Config, error) {
	var c Config
	text, err := os.ReadFile(ConfigPath)
	if err != nil {
		return c, err
	}
	return c, json.Unmarshal(text, &c)
}

// first is the first process of the container.
func first() (int, error) {
	c, err := load()
	if err != nil {
		return 0, err
	}
	if err := workspace(c); err != nil {
		return 0, err
	}
	control, err := net.Dial("unix", Control)
	if err != nil {
		return 0, err
	}
	defer control.Close()
	listener, err := network(c)
	if err != nil {
		return 0, fmt.Errorf("making the network: %w", err)
	}
	go (&exit{rules: c.Rules, host: c.Host}).serve(listener)
	main := exec.Command(Program, append([]string{"enter", c.Workspace}, c.Main...)...)
	main.Env, main.Stdout, main.Stderr = c.Env, os.Stdout, os.Stderr
	main.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := main.Start(); err != nil {
		return 0, err
	}
	fmt.Fprintln(control, "ready")
	code := reap(main.Process.Pid)
	fmt.Fprintln(control, "exit", code)
	return code, nil
}

// reap collects every process of the container until the main one has ended:
// the kernel gives their orphans to the first.
func reap(main int) int {
	ended := make(chan os.Signal, 64)
	signal.Notify(ended, syscall.SIGCHLD)
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	for {
		for {
			var status unix.WaitStatus
			pid, err := unix.Wait4(-1, &status, unix.WNOHANG, nil)
			if err != nil || pid == 0 {
				break
			}
			if pid == main {
				if status.Signaled() {
					return 128 + int(status.Signal())
				}
				return status.ExitStatus()
			}
		}
		select {
		case <-ended:
		case <-stop:
			unix.Kill(-main, unix.SIGTERM)
		}
	}
}

// workspace makes the working directory, or refuses an image's that the
// identity cannot write.
func workspace(c Config) error {
	if c.MakeWorkspace {
		if err := os.MkdirAll(c.Workspace, 0o700); err != nil {
			return err
		}
		return os.Chown(c.Workspace, c.UID, c.GID)
	}
	var st unix.Stat_t
	err := unix.Stat(c.Workspace, &st)
	if err == nil && (int(st.Uid) != c.UID || st.Mode&0o200 == 0) && (int(st.Gid) != c.GID || st.Mode&0o020 == 0) && st.Mode&0o002 == 0 {
		err = unix.EACCES
	}
	if err != nil {
		return fmt.Errorf("workspace path component '%s' is not writable by the sandbox identity in the image: %w", c.Workspace, err)
	}
	return nil
}

// network makes the namespace that everything inside is in, and the listener
// in it that is its only exit. Nothing else is in it but loopback.
func network(c Config) (net.Listener, error) {
	type made struct {
		l   net.Listener
		err error
	}
	answer := make(chan made)
	go func() {
		// The thread is the namespace: it is kept for ever.
		runtime.LockOSThread()
		if c.Inner {
			if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
				answer <- made{err: err}
				return
			}
		}
		l, err := listen(c.Proxy)
		if err == nil {
			err = os.WriteFile(netnsFile, []byte(strconv.Itoa(unix.Gettid())), 0o600)
		}
		answer <- made{l, err}
		select {}
	}()
	m := <-answer
	return m.l, m.err
}

// listen gives the loopback interface the address and listens there.
func listen(proxy string) (net.Listener, error) {
	at, err := net.ResolveTCPAddr("tcp4", proxy)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	up := func(name string, ip net.IP) error {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if ip != nil {
			if err := r.SetInet4Addr(ip.To4()); err != nil {
				return err
			}
			if err := unix.IoctlIfreq(fd, unix.SIOCSIFADDR, r); err != nil {
				return fmt.Errorf("address of %s: %w", name, err)
			}
		}
		if r, err = unix.NewIfreq(name); err != nil {
			return err
		}
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
	}
	if err := up("lo", nil); err != nil {
		return nil, err
	}
	if !at.IP.IsLoopback() {
		if err := up("lo:1", at.IP); err != nil {
			return nil, err
		}
	}
	return net.ListenTCP("tcp4", at)
}
