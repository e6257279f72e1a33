package inlet

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
)

// health is the question that a node's proxy answers about itself, to nobody but
// sessions.
const health = "GET http://node.mojoup.internal/healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n"

const healthy = "204"

// mostLine bounds the first line of an answer.
const mostLine = 1 << 10

// Ask has a node's proxy answer about itself at the other end of conn.
func Ask(conn io.ReadWriter) error {
	if _, err := io.WriteString(conn, health); err != nil {
		return fmt.Errorf("it takes no question: %w", err)
	}
	line, err := bufio.NewReader(io.LimitReader(conn, mostLine)).ReadString('\n')
	if err != nil {
		return fmt.Errorf("it does not answer: %w", err)
	}
	if f := strings.Fields(line); len(f) < 2 || f[1] != healthy {
		return fmt.Errorf("it answers %q", strings.TrimSpace(line))
	}
	return nil
}

// Self gives whoever accepts a connection of this process' own, and is its other
// end: so the node finds out whether its half of the way out serves.
func (l *Listener) Self(ctx context.Context) (net.Conn, error) {
	ln, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, fmt.Errorf("asking the way out from here: %w", err)
	}
	defer ln.Close()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer stop()
	out, err := new(net.Dialer).DialContext(ctx, "tcp", ln.Addr().String())
	if err != nil {
		return nil, fmt.Errorf("asking the way out from here: %w", err)
	}
	in, err := ln.Accept()
	for err == nil && in.RemoteAddr().String() != out.LocalAddr().String() {
		_ = in.Close() // somebody else was quicker
		in, err = ln.Accept()
	}
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("asking the way out from here: %w", err)
	}
	select {
	case l.accepted <- in:
		return out, nil
	case <-l.done:
		err = net.ErrClosed
	case <-ctx.Done():
		err = errors.New("nobody serves it")
	}
	_, _ = in.Close(), out.Close()
	return nil, err
}
