package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// attack is a list of system calls and what must come of them.
type attack struct {
	probes []child.Probe
	verify []func(all []child.Finding) string // "" where it is as it must be
}

// call adds a system call and returns its index.
func (a *attack) call(number uintptr, args ...child.Arg) int {
	a.probes = append(a.probes, child.Probe{Number: number, Args: args})
	return len(a.probes) - 1
}

// must wants that the call at index ends with one of these errnos; without
// any, that it succeeds.
func (a *attack) must(index int, what string, errnos ...unix.Errno) {
	a.verify = append(a.verify, func(all []child.Finding) string {
		got := all[index]
		for _, e := range errnos {
			if got.Errno == e {
				return ""
			}
		}
		switch {
		case len(errnos) == 0 && got.Errno == 0:
			return ""
		case got.Errno == 0:
			return what + " succeeded"
		}
		return fmt.Sprintf("%s: %v", what, got.Errno)
	})
}

// refused wants any refusal but those that say that nothing was tried.
func (a *attack) refused(index int, what string) {
	a.verify = append(a.verify, func(all []child.Finding) string {
		switch e := all[index].Errno; e {
		case 0:
			return what + " succeeded"
		case unix.ENOSYS, unix.EFAULT, unix.EMFILE, unix.ENOMEM, unix.EINTR:
			return fmt.Sprintf("%s could not be tried: %v", what, e)
		}
		return ""
	})
}

const cwd = unix.AT_FDCWD

func num(n int) child.Arg { return child.Number(n) }

// open adds an attempt to open; without O_CREAT nothing is changed by it.
func (a *attack) open(p string, flags int) int {
	return a.call(unix.SYS_OPENAT, num(cwd), child.Path(p), num(flags|unix.O_CLOEXEC|unix.O_NONBLOCK), num(0o600))
}

func (a *attack) mkdir(p string) int {
	return a.call(unix.SYS_MKDIRAT, num(cwd), child.Path(p), num(0o700))
}

func (a *attack) unlink(p string, flags int) int {
	return a.call(unix.SYS_UNLINKAT, num(cwd), child.Path(p), num(flags))
}

func (a *attack) rename(from, to string) int {
	return a.call(unix.SYS_RENAMEAT2, num(cwd), child.Path(from), num(cwd), child.Path(to), num(0))
}

// notWritable tries all that would change what stands at a path: a file, a
// directory, or nothing. Each kind refuses two of them by itself.
func (a *attack) notWritable(p, name string) {
	inside := path.Join(p, name)
	a.refused(a.open(p, unix.O_WRONLY|unix.O_NOFOLLOW), "opening "+p+" for writing")
	made := a.mkdir(inside)
	a.after(made, a.unlink(inside, unix.AT_REMOVEDIR))
	a.refused(made, "making something in "+p)
	made = a.mkdir(p)
	a.succeedsNot(made, "making "+p)
	// If that was made it goes again, and only then: by another name, so that
	// what the host has put in its place meanwhile stays.
	moved := p + name
	renamed := a.rename(p, moved)
	a.after(made, renamed)
	a.after(renamed, a.unlink(moved, unix.AT_REMOVEDIR))
}

// after has a call made only where an earlier one succeeded: what was made goes
// again, and nothing is spent on what was not.
func (a *attack) after(earlier, index int) { a.probes[index].After = earlier + 1 }

// succeedsNot takes any refusal, also that something stands there already.
func (a *attack) succeedsNot(index int, what string) {
	a.verify = append(a.verify, func(all []child.Finding) string {
		if all[index].Errno == 0 {
			return what + " succeeded"
		}
		return ""
	})
}

// device wants that the host's node can be written to but not changed. The
// attempt would touch a time of it and nothing else.
func (a *attack) device(p string) {
	a.must(a.open(p, unix.O_RDWR|unix.O_NOCTTY), "opening "+p, 0, unix.ENXIO) // of /dev/tty, without a terminal
	times := binary.NativeEndian.AppendUint64(nil, 0)
	for _, n := range []uint64{unix.UTIME_NOW, 0, unix.UTIME_OMIT} {
		times = binary.NativeEndian.AppendUint64(times, n)
	}
	a.must(a.call(unix.SYS_UTIMENSAT, num(cwd), child.Path(p), child.Data(times), num(0)), "changing the times of "+p, unix.EROFS)
}

// pinned wants something mounted at exactly this name, which the kernel lets
// nobody here rename or remove: nothing is tried, since a program of the host
// may put its own file there in this very moment, and that must not go away.
func (a *attack) pinned(p string) {
	i := a.statx(p)
	a.verify = append(a.verify, func(all []child.Finding) string {
		d := all[i].Data
		if all[i].Errno != 0 || len(d) < statxSize {
			return fmt.Sprintf("looking at %s: %v", p, all[i].Errno)
		}
		if !mountRoot(d) {
			return "nothing keeps " + p + " from being renamed"
		}
		return ""
	})
}

// standing looks whether something is still mounted on every protected path, and
// whether that is what the host has there. The kernel takes a mount away as soon as
// somebody outside replaces what it stands on, and may have before anybody watched
// for that: so these are the last attempts, after the proxy's answer.
func (a *attack) standing(s sandbox.Spec) {
	for _, p := range s.Protect {
		m := covering(s.Mounts, p.Path)
		if p.Guard == sandbox.Thaw || m == nil || m.Kind != sandbox.Bind {
			continue
		}
		on := path.Join(m.Source, p.Path[len(m.Target):])
		a.still(p.Path, on)
		if p.Guard == sandbox.Shelter {
			a.still(sandbox.ShelterDir(p.Path), sandbox.ShelterDir(on))
		}
	}
}

// covers looks likewise at what hides something of the host's.
func (a *attack) covers(s sandbox.Spec) {
	for _, m := range s.Mounts {
		if m.Optional || m.Kind != sandbox.Scratch && m.Kind != sandbox.Text {
			continue
		}
		if under := covering(s.Mounts, path.Dir(m.Target)); under != nil && under.Kind == sandbox.Bind && under.Access == sandbox.ReadWrite {
			a.still(m.Target, "")
		}
	}
}

// still wants a mount at exactly this name, of what the host has there.
func (a *attack) still(p, host string) {
	i := a.statx(p)
	a.verify = append(a.verify, func(all []child.Finding) string {
		d, e := all[i].Data, all[i].Errno
		lost := "nothing is mounted on " + p + " any more"
		switch {
		case e == unix.ENOENT || e == unix.ENOTDIR:
			return lost
		case e != 0 || len(d) < statxSize: // as without the right to look: that ends no mount
			return ""
		case !mountRoot(d):
			return lost
		}
		var now unix.Statx_t
		if host == "" || unix.Statx(unix.AT_FDCWD, host, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO, &now) != nil {
			return "" // what goes from now on is noticed by whoever watches
		}
		if device, inode := identityOf(d); inode != now.Ino || device != unix.Mkdev(now.Dev_major, now.Dev_minor) {
			return p + " is another one than outside"
		}
		return ""
	})
}

const statxSize = 256

// mountRoot reads from a struct statx whether something is mounted there.
func mountRoot(statx []byte) bool {
	const attributesAt = 8
	return binary.LittleEndian.Uint64(statx[attributesAt:])&unix.STATX_ATTR_MOUNT_ROOT != 0
}

// identityOf reads from a struct statx which one it is.
func identityOf(statx []byte) (device, inode uint64) {
	const inodeAt, majorAt, minorAt = 32, 136, 140
	major, minor := binary.LittleEndian.Uint32(statx[majorAt:]), binary.LittleEndian.Uint32(statx[minorAt:])
	return unix.Mkdev(major, minor), binary.LittleEndian.Uint64(statx[inodeAt:])
}

func (a *attack) statx(p string) int {
	return a.call(unix.SYS_STATX, num(cwd), child.Path(p), num(unix.AT_SYMLINK_NOFOLLOW), num(unix.STATX_BASIC_STATS), child.Buffer(statxSize))
}

// writable makes a file and moves it to another directory, as every tool
// does: Landlock without the right to refer refuses just that. What attempts
// have left that were broken off goes first: nobody else takes it away in what
// is the sandbox's alone.
func (a *attack) writable(p, name string) {
	dir := path.Join(p, name)
	file, moved := dir+triedFile, path.Join(dir, triedMoved)
	what := "making, moving and removing files in " + p
	a.unlink(file, 0)
	a.unlink(moved, 0)
	a.unlink(dir, unix.AT_REMOVEDIR)
	a.must(a.mkdir(dir), what)
	opened := a.open(file, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
	a.must(opened, what)
	// What is open as it is removed would cost its end a write to the disk.
	a.call(unix.SYS_CLOSE, child.Result(opened))
	a.must(a.rename(file, moved), what)
	a.must(a.unlink(moved, 0), what)
	a.unlink(file, 0)
	a.must(a.unlink(dir, unix.AT_REMOVEDIR), what)
}

// same wants the directory with this device and number: the one that was
// looked at on the host, and not another put in its place.
func (a *attack) same(c sandbox.Check) {
	i := a.statx(c.Path)
	a.verify = append(a.verify, func(all []child.Finding) string {
		d := all[i].Data
		if all[i].Errno != 0 || len(d) < statxSize {
			return fmt.Sprintf("looking at %s: %v", c.Path, all[i].Errno)
		}
		if device, inode := identityOf(d); inode != c.Inode || device != c.Device {
			return fmt.Sprintf("%s is another directory than outside", c.Path)
		}
		return ""
	})
}

// status wants that a process has no rights left.
func (a *attack) status(process string, want map[string]string) {
	file := path.Join("/proc", process, "status")
	fd := a.open(file, unix.O_RDONLY)
	i := a.call(unix.SYS_READ, child.Result(fd), child.Buffer(4096), num(4096))
	a.verify = append(a.verify, func(all []child.Finding) string {
		if all[fd].Errno != 0 || all[i].Errno != 0 {
			return fmt.Sprintf("reading %s: %v", file, errors.Join(errnoOf(all[fd]), errnoOf(all[i])))
		}
		have := map[string]string{}
		for line := range strings.Lines(string(all[i].Data[:all[i].Result])) {
			if k, v, ok := strings.Cut(line, ":"); ok {
				have[k] = strings.TrimSpace(v)
			}
		}
		for _, key := range statusKeys {
			if w, ok := want[key]; ok && have[key] != w {
				return fmt.Sprintf("%s says %s %q, not %q", file, key, have[key], w)
			}
		}
		return ""
	})
}

func errnoOf(f child.Finding) error {
	if f.Errno == 0 {
		return nil
	}
	return f.Errno
}

var statusKeys = []string{"Threads", "CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb", "NoNewPrivs", "Seccomp"}

// sealed is how every process inside, pid 1 too, must look. One thread only,
// so that what its status says is all there is.
func sealed() map[string]string {
	none := strings.Repeat("0", 16)
	return map[string]string{
		"Threads": "1", "CapInh": none, "CapPrm": none, "CapEff": none, "CapBnd": none, "CapAmb": none,
		"NoNewPrivs": "1", "Seccomp": "2",
	}
}
