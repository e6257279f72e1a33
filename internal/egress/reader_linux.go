package egress

import (
	"io"
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// A reader borrows a buffer only when there is something to put into it.
type reader struct {
	conn net.Conn
	raw  syscall.RawConn    // nil: not a socket
	poll func(uintptr) bool // try, made once
	buf  *[copyBuffer]byte
	n    int
	err  error
}

func newReader(conn net.Conn) *reader {
	r := &reader{conn: conn}
	if tcp, ok := conn.(*net.TCPConn); ok {
		r.raw, _ = tcp.SyscallConn()
		r.poll = r.try
	}
	return r
}

// next waits for bytes, an end (io.EOF) or an error. The buffer is the
// caller's to give back; it is nil if nothing was read.
func (r *reader) next() (buf *[copyBuffer]byte, n int, err error) {
	if r.raw == nil {
		buf := copyBuffers.Get().(*[copyBuffer]byte)
		n, err := r.conn.Read(buf[:])
		return buf, n, err
	}
	r.buf, r.n, r.err = nil, 0, nil
	if err := r.raw.Read(r.poll); err != nil {
		return nil, 0, err
	}
	if r.err == nil && r.n == 0 {
		r.err = io.EOF
	}
	return r.buf, r.n, r.err
}

// try reads once without waiting and reports whether that is an answer.
func (r *reader) try(fd uintptr) bool {
	r.buf = copyBuffers.Get().(*[copyBuffer]byte)
	for {
		r.n, r.err = unix.Read(int(fd), r.buf[:])
		if r.err != unix.EINTR {
			break
		}
	}
	if r.err == nil {
		return true
	}
	copyBuffers.Put(r.buf)
	r.buf, r.n = nil, 0
	return r.err != unix.EAGAIN
}
