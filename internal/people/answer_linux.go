package people

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// headWithin is how long a client may take to say what it wants, where the
// broker has to know.
const headWithin = 5 * time.Second

// refuse answers a request with a problem. It does not read what the request
// is: that it has a head which ends is enough.
func (b *Broker) refuse(conn *net.UnixConn, err error) {
	defer conn.Close()
	p, ok := errors.AsType[*api.Problem](err)
	if !ok {
		b.log.Error("request failed", "err", err)
		p = &api.Problem{Code: "internal", Sentence: "the system node met an error of its own", Exit: fault.ExitUnknown, Hint: "its log has the details"}
	}
	if conn.SetDeadline(time.Now().Add(headWithin)) != nil || !readHead(conn) {
		return
	}
	body, _ := json.Marshal(p) // strings and a number: cannot fail
	_, _ = fmt.Fprintf(conn, "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
	_ = conn.CloseWrite()
	drain(conn)
}

// longestHead bounds what is read of a request, in bytes.
const longestHead = 16 << 10

// readHead reads up to the empty line.
func readHead(conn net.Conn) bool {
	var head []byte
	var part [1024]byte
	for len(head) < longestHead {
		n, err := conn.Read(part[:])
		head = append(head, part[:n]...)
		if bytes.Contains(head, []byte("\r\n\r\n")) {
			return true
		}
		if err != nil {
			return false
		}
	}
	return false
}

// drain reads what a client still sends, within bounds: closed with something
// unread, the kernel would take the answer for lost.
func drain(conn net.Conn) {
	var part [4096]byte
	for range 64 {
		if _, err := conn.Read(part[:]); err != nil {
			return
		}
	}
}

// route hands root's connection to whoever is to answer it, by the first line
// of its request. That is looked at and left in the socket: who answers reads
// it again.
func (b *Broker) route(ctx context.Context, conn *net.UnixConn) error {
	line, err := peekLine(conn)
	if err != nil {
		return fmt.Errorf("reading what root asks: %w", err)
	}
	path := ""
	if words := strings.Fields(line); len(words) > 1 {
		path, _, _ = strings.Cut(words[1], "?")
	}
	elements := strings.Split(strings.TrimPrefix(path, "/"+api.Version+"/"), "/")
	switch {
	case len(elements) == 1 && (elements[0] == "status" || elements[0] == "sessions" || elements[0] == "shutdown"),
		len(elements) == 3 && elements[0] == "sessions" && elements[2] == "stop":
		b.own.put(conn)
		return nil
	case len(elements) > 1 && elements[0] == "sessions":
		who, err := b.holder(ctx, elements[1])
		if err != nil {
			return err
		}
		return b.hand(ctx, who, conn)
	}
	return b.hand(ctx, listed(0, 0), conn)
}

// peekLine is the first line that lies in a socket.
func peekLine(conn *net.UnixConn) (string, error) {
	if err := conn.SetReadDeadline(time.Now().Add(headWithin)); err != nil {
		return "", err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return "", err
	}
	room := make([]byte, 4096)
	line, ended := "", false
	err = raw.Read(func(fd uintptr) bool {
		n, _, err := unix.Recvfrom(int(fd), room, unix.MSG_PEEK|unix.MSG_DONTWAIT)
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
			return false
		}
		end := bytes.IndexByte(room[:max(n, 0)], '\n')
		ended = err != nil || n <= 0 || n == len(room) && end < 0
		if end >= 0 {
			line = strings.TrimSpace(string(room[:end]))
		}
		return ended || end >= 0
	})
	if err == nil && ended {
		err = errors.New("it is no request")
	}
	return line, errors.Join(err, conn.SetReadDeadline(time.Time{}))
}

// queued is a listener of the connections that are put into it.
type queued struct {
	addr  net.Addr
	conns chan net.Conn
	over  chan struct{}
	once  sync.Once
}

func newQueued(addr net.Addr) *queued {
	return &queued{addr: addr, conns: make(chan net.Conn), over: make(chan struct{})}
}

func (q *queued) put(c net.Conn) {
	select {
	case q.conns <- c:
	case <-q.over:
		_ = c.Close()
	}
}

func (q *queued) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.over:
		return nil, net.ErrClosed
	}
}

func (q *queued) Close() error {
	q.once.Do(func() { close(q.over) })
	return nil
}

func (q *queued) Addr() net.Addr { return q.addr }
