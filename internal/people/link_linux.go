package people

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// takeWithin is how long the other side may take no packet before it is given
// up: its receiver does nothing but take them.
const takeWithin = 10 * time.Second

// link is one end of the pair. Its methods may be called concurrently.
type link struct {
	conn *net.UnixConn
	said *os.File   // what a deputy writes, nil on its side
	mu   sync.Mutex // guards sends, so that a deadline is its own send's
}

// pair makes both ends: one for this process, one to be handed to another.
func pair() (*link, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	theirs := os.NewFile(uintptr(fds[1]), "deputy")
	ours, err := newLink(os.NewFile(uintptr(fds[0]), "broker"))
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return ours, theirs, nil
}

// newLink takes f over.
func newLink(f *os.File) (*link, error) {
	conn, err := connOf(f)
	if err != nil {
		return nil, err
	}
	return &link{conn: conn}, nil
}

// connOf makes a connection of a descriptor, which it takes over.
func connOf(f *os.File) (*net.UnixConn, error) {
	conn, err := net.FileConn(f)
	_ = f.Close()
	if err != nil {
		return nil, fmt.Errorf("taking a connection over: %w", err)
	}
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return nil, errors.New("what was handed over is not a Unix socket")
	}
	return uc, nil
}

// send sends a packet and, where f is not nil, a descriptor with it.
func (l *link) send(m message, f *os.File) error {
	text, err := json.Marshal(m)
	if err != nil {
		return fmt.Errorf("BUG: packet %s: %w", m.Kind, err)
	}
	if len(text) > packet {
		return fmt.Errorf("BUG: packet %s of %d bytes", m.Kind, len(text))
	}
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.conn.SetWriteDeadline(time.Now().Add(takeWithin)); err != nil {
		return err
	}
	_, _, err = l.conn.WriteMsgUnix(text, rights, nil)
	return err
}

// A reader takes packets. With files it takes descriptors too; otherwise the
// kernel closes those that come.
type reader struct {
	link  *link
	files bool
	text  []byte
}

func (l *link) reader(files bool) *reader {
	return &reader{link: l, files: files, text: make([]byte, packet)}
}

// next is io.EOF where the other side is gone.
func (r *reader) next() (m message, f *os.File, err error) {
	var rights []byte
	if r.files {
		rights = make([]byte, unix.CmsgSpace(4))
	}
	n, oobn, _, _, err := r.link.conn.ReadMsgUnix(r.text, rights)
	if err != nil || n == 0 {
		return m, nil, io.EOF
	}
	if oobn > 0 {
		if f, err = received(rights[:oobn]); err != nil {
			return m, nil, err
		}
	}
	if err := json.Unmarshal(r.text[:n], &m); err != nil {
		if f != nil {
			_ = f.Close()
		}
		return m, nil, fmt.Errorf("reading a packet: %w", err)
	}
	return m, f, nil
}

func received(rights []byte) (*os.File, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, fmt.Errorf("reading what came with a packet: %w", err)
	}
	for _, m := range messages {
		if fds, err := unix.ParseUnixRights(&m); err == nil && len(fds) == 1 {
			return os.NewFile(uintptr(fds[0]), "connection"), nil
		}
	}
	return nil, errors.New("what came with a packet is not one descriptor")
}

// deaf ends the reading, once what has arrived is read.
func (l *link) deaf() { _ = l.conn.CloseRead() }

// close lets go of a deputy that has ended.
func (l *link) close() {
	_ = l.conn.Close()
	if l.said != nil {
		_ = l.said.SetReadDeadline(time.Now().Add(lastWords))
	}
}
