package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Connect connects to a port of 127.0.0.1 inside, and where nothing listens
// there to the same one of ::1, as programs that listen on "localhost" may.
// A refusal is an error that is [unix.ECONNREFUSED].
func (h *Helper) Connect(ctx context.Context, port uint16) (net.Conn, error) {
	conn, err := h.connect(ctx, port, 0)
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrGone) {
		return conn, err
	}
	if six, err6 := h.connect(ctx, port, 1); err6 == nil {
		return six, nil
	}
	return nil, err
}

func (h *Helper) connect(ctx context.Context, port uint16, six int32) (net.Conn, error) {
	c := &Running{helper: h, started: make(chan reply, 1), exited: make(chan struct{})}
	h.mu.Lock()
	h.tag++
	c.tag = h.tag
	h.waiting[c.tag] = c
	h.mu.Unlock()
	defer h.forget(c.tag)
	if err := h.send(message{kind: msgConnect, tag: c.tag, a: int32(port), b: six}); err != nil {
		if hasLeft(err) {
			return nil, ErrGone
		}
		return nil, err
	}
	got, err := h.await(ctx, c.started)
	if err != nil {
		select {
		case late := <-c.started: // it came as the caller gave up
			closeAll([]int{late.fd})
		default:
		}
		return nil, err
	}
	return connected(ctx, got.fd)
}

// connected waits until a socket that connects has done so, and takes it over.
func connected(ctx context.Context, fd int) (net.Conn, error) {
	if fd < 0 {
		return nil, fmt.Errorf("%s: no socket came", StageConnect)
	}
	file := os.NewFile(uintptr(fd), "connection") // it does not block: the runtime waits for it
	defer file.Close()
	hurry := context.AfterFunc(ctx, func() { _ = file.SetWriteDeadline(time.Now()) })
	defer hurry()
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageConnect, err)
	}
	var failed error
	err = raw.Write(func(fd uintptr) bool {
		polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		if n, err := unix.Poll(polled, 0); err != nil && !errors.Is(err, unix.EINTR) || n == 0 {
			failed = err
			return err != nil && !errors.Is(err, unix.EINTR)
		}
		if errno, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); err != nil {
			failed = err
		} else if errno != 0 {
			failed = syscall.Errno(errno)
		}
		return true
	})
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := errors.Join(err, failed); err != nil {
		return nil, fmt.Errorf("%s: %w", StageConnect, err)
	}
	return net.FileConn(file)
}
