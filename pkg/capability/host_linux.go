package capability

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"runtime"
	"strconv"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// ThisHost is the machine that the program runs on, as its own user sees it.
func ThisHost(o Options) Host {
	wait := o.DockerWait
	if wait <= 0 {
		wait = 2 * time.Second
	}
	return Host{
		OS:         runtime.GOOS,
		Files:      os.DirFS("/"),
		Getenv:     os.Getenv,
		LookPath:   exec.LookPath,
		UID:        os.Geteuid(),
		Groups:     groups,
		Helper:     child.Available,
		Landlock:   Landlock{Version: landlockVersion, Create: createRuleset},
		Listener:   child.TryListener,
		Namespaces: child.TryNamespaces,
		OpenTUN:    openTUN,
		Writable: func(path string) error {
			return unix.Faccessat(unix.AT_FDCWD, path, unix.W_OK, unix.AT_EACCESS)
		},
		Docker: func(ctx context.Context) DockerAnswer {
			return askDocker(ctx, os.Getenv("DOCKER_HOST"), wait)
		},
		Limit: o.Limit,
	}
}

func groups() ([]string, error) {
	ids, err := os.Getgroups()
	if err != nil {
		return nil, fmt.Errorf("reading the supplementary groups: %w", err)
	}
	var list []string
	for _, id := range ids {
		if id != os.Getegid() {
			list = append(list, groupName(id))
		}
	}
	return list, nil
}

// groupName is the number itself where the group has no name here.
func groupName(id int) string {
	g, err := user.LookupGroupId(strconv.Itoa(id))
	if err != nil {
		return strconv.Itoa(id)
	}
	return g.Name
}

func openTUN() error {
	f, err := os.OpenFile("/dev/net/tun", os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	return f.Close()
}

func landlockVersion() (int, error) {
	version, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, unix.LANDLOCK_CREATE_RULESET_VERSION)
	if errno != 0 {
		return 0, errno
	}
	return int(version), nil
}

// createRuleset makes a ruleset that handles every right of abi, and closes it.
func createRuleset(abi int) error {
	attr := rights(abi)
	fd, _, errno := unix.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr), 0)
	if errno != 0 {
		return errno
	}
	return unix.Close(int(fd))
}

// rulesetAttr is struct landlock_ruleset_attr as far as its rights go. Kernels
// that know less of it accept it while the rest is zero.
type rulesetAttr struct{ fs, net, scoped uint64 }

// rights are those of an ABI, from the kernel's documentation of Landlock,
// "Previous limitations".
func rights(abi int) rulesetAttr {
	added := []struct {
		since int
		attr  rulesetAttr
	}{
		{1, rulesetAttr{fs: unix.LANDLOCK_ACCESS_FS_REFER - 1}}, // the thirteen first ones
		{2, rulesetAttr{fs: unix.LANDLOCK_ACCESS_FS_REFER}},
		{3, rulesetAttr{fs: unix.LANDLOCK_ACCESS_FS_TRUNCATE}},
		{4, rulesetAttr{net: unix.LANDLOCK_ACCESS_NET_BIND_TCP | unix.LANDLOCK_ACCESS_NET_CONNECT_TCP}},
		{5, rulesetAttr{fs: unix.LANDLOCK_ACCESS_FS_IOCTL_DEV}},
		{6, rulesetAttr{scoped: unix.LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET | unix.LANDLOCK_SCOPE_SIGNAL}},
		{9, rulesetAttr{fs: unix.LANDLOCK_ACCESS_FS_RESOLVE_UNIX}},
		{10, rulesetAttr{net: unix.LANDLOCK_ACCESS_NET_BIND_UDP | unix.LANDLOCK_ACCESS_NET_CONNECT_SEND_UDP}},
	}
	var sum rulesetAttr
	for _, a := range added {
		if a.since <= abi {
			sum.fs |= a.attr.fs
			sum.net |= a.attr.net
			sum.scoped |= a.attr.scoped
		}
	}
	return sum
}
