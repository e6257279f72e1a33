package native

import (
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A hostView is what stood at the sources of mounts when they were looked at,
// so that one can tell later whether the same mounts would show the same. What
// changes within a directory is seen through its mount; what takes the place of
// a file or a directory, or is mounted below one, is not.
type hostView struct {
	sources []source
	table   int // /proc/self/mountinfo, which tells that it has changed; or -1
	below   []string
}

type source struct {
	path        string
	errno       error
	device, ino uint64
}

func lookAtHost(mounts []sandbox.Mount) *hostView {
	v := &hostView{table: -1}
	for _, m := range mounts {
		if m.Kind == sandbox.Bind {
			v.sources = append(v.sources, lookAtSource(m.Source))
		}
	}
	if fd, err := unix.Open("/proc/self/mountinfo", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
		v.table = fd
		v.below = v.mountsBelow()
	}
	return v
}

func lookAtSource(path string) source {
	var stat unix.Stat_t
	err := unix.Fstatat(unix.AT_FDCWD, path, &stat, 0)
	if err != nil {
		return source{path: path, errno: err}
	}
	return source{path: path, device: stat.Dev, ino: stat.Ino}
}

// same reports whether everything is as it was.
func (v *hostView) same() bool {
	for _, was := range v.sources {
		if lookAtSource(was.path) != was {
			return false
		}
	}
	if v.table < 0 {
		return false // nobody knows
	}
	// The kernel marks the open table when a mount has come or gone anywhere.
	marks := []unix.PollFd{{Fd: int32(v.table), Events: unix.POLLPRI}}
	if n, err := unix.Poll(marks, 0); n == 0 && err == nil {
		return true
	}
	return slices.Equal(v.mountsBelow(), v.below)
}

// mountsBelow lists what is mounted below the sources: number and place, see
// proc_pid_mountinfo(5).
func (v *hostView) mountsBelow() (out []string) {
	if _, err := unix.Seek(v.table, 0, unix.SEEK_SET); err != nil {
		return []string{err.Error()}
	}
	var text []byte
	for buffer := make([]byte, 16<<10); ; {
		n, err := unix.Read(v.table, buffer)
		if err != nil {
			return []string{err.Error()}
		}
		if n == 0 {
			break
		}
		text = append(text, buffer[:n]...)
	}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) > 4 && slices.ContainsFunc(v.sources, func(s source) bool { return under(f[4], s.path) && f[4] != path.Clean(s.path) }) {
			out = append(out, f[0]+" "+f[4])
		}
	}
	return out
}

func (v *hostView) close() {
	if v.table >= 0 {
		unix.Close(v.table)
		v.table = -1
	}
}
