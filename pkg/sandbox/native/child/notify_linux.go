package child

import (
	"errors"
	"io"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A Notifier has the system calls that a filter holds up until they are
// answered here. One goroutine at a time may call Next.
type Notifier struct {
	file *os.File
	conn syscall.RawConn
}

// A Notified is one system call that is held up: its caller waits.
type Notified struct {
	id     uint64
	Thread int // its caller, by the number that it has for the node
	Call   int
	Args   [6]uint64
}

// notification is struct seccomp_notif, with the struct seccomp_data in it.
type notification struct {
	id           uint64
	pid, flags   uint32
	call         int32
	architecture uint32
	pointer      uint64
	args         [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	value int64
	errno int32
	flags uint32
}

const (
	// setFlags is SECCOMP_IOCTL_NOTIF_SET_FLAGS.
	setFlags = 0x40082104
	// hereFor is how long a thread waits for one call after another.
	hereFor = 20 * time.Millisecond
	// mostHere is how many threads do so.
	mostHere = 4
)

// here counts them.
var here atomic.Int32

// newNotifier takes a filter's listener over. It waits in the runtime's poller,
// as sockets do: no thread is held while nothing comes.
func newNotifier(fd int) *Notifier {
	_ = unix.SetNonblock(fd, true) // or NewFile would not have it polled
	n := &Notifier{file: os.NewFile(uintptr(fd), "notifier")}
	n.conn, _ = n.file.SyscallConn() // fails on a nil file only
	return n
}

// Close lets go of it: whoever waits, and whoever asks later, gets ENOSYS.
func (n *Notifier) Close() error { return n.file.Close() }

// InTurn says whether a caller and who answers it run on one processor, one in
// the place of the other: to wake another processor takes longer than an answer.
// Before Linux 6.6 they never do.
func (n *Notifier) InTurn(are bool) {
	flags := 0
	if are {
		flags = unix.SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP
	}
	_ = n.conn.Control(func(fd uintptr) { _, _, _ = unix.Syscall(unix.SYS_IOCTL, fd, setFlags, uintptr(flags)) })
}

// NextSoon is like Next, for a call that will not be long in coming: a thread
// waits for it for a moment, since to go by the runtime's poller costs more than
// the answer.
func (n *Notifier) NextSoon() (Notified, error) {
	if here.Add(1) <= mostHere {
		_ = n.conn.Control(func(fd uintptr) {
			_, _ = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(hereFor.Milliseconds()))
		})
	}
	here.Add(-1)
	return n.Next()
}

// Next waits for a call. It is io.EOF once no process has the filter any more.
func (n *Notifier) Next() (Notified, error) {
	var got notification
	var failed error
	err := n.conn.Read(func(fd uintptr) (done bool) {
		got, failed = receive(int(fd))
		return !errors.Is(failed, unix.EAGAIN)
	})
	if err := errors.Join(err, failed); err != nil {
		return Notified{}, err
	}
	return Notified{id: got.id, Thread: int(got.pid), Call: int(got.call), Args: got.args}, nil
}

// receive takes one call that waits, or is EAGAIN. Asked for directly the
// kernel would wait, whatever the descriptor's flags say.
func receive(fd int) (notification, error) {
	for {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		count, err := unix.Poll(polled, 0)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return notification{}, err
		case count == 0:
			return notification{}, unix.EAGAIN
		case polled[0].Revents&unix.POLLIN == 0:
			return notification{}, io.EOF // POLLHUP
		}
		var got notification
		err = control(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, unsafe.Pointer(&got))
		// Its caller was killed in between, or the wait interrupted.
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue
		}
		return got, err
	}
}

// Refuse answers a call by an errno: it is not carried out. Where the caller
// has ended meanwhile, nobody is answered.
func (n *Notifier) Refuse(c Notified, errno syscall.Errno) error {
	answer := response{id: c.id, errno: -int32(errno)}
	return n.ask(unix.SECCOMP_IOCTL_NOTIF_SEND, unsafe.Pointer(&answer))
}

// Waits reports whether the caller still waits: what was read of its number is
// then of nobody else.
func (n *Notifier) Waits(c Notified) bool {
	return n.ask(unix.SECCOMP_IOCTL_NOTIF_ID_VALID, unsafe.Pointer(&c.id)) == nil
}

func (n *Notifier) ask(request uint, with unsafe.Pointer) (failed error) {
	err := n.conn.Control(func(fd uintptr) { failed = control(int(fd), request, with) })
	if errors.Is(failed, unix.ENOENT) && request == unix.SECCOMP_IOCTL_NOTIF_SEND {
		failed = nil
	}
	return errors.Join(err, failed)
}

func control(fd int, request uint, with unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), uintptr(request), uintptr(with)); errno != 0 {
		return errno
	}
	return nil
}
