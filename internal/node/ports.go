package node

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// ports are a session's dev servers as the host reaches them: for each port
// that was asked for a listener on 127.0.0.1, which ends with the session.
type ports struct {
	allowed []uint16 // by the policy
	dialer  sandbox.Dialer
	ctx     context.Context // of the session's network: ends with close
	end     context.CancelFunc

	mu     sync.Mutex // guards what follows
	open   map[uint16]net.Listener
	conns  map[net.Conn]bool
	closed bool
	served sync.WaitGroup
}

func newPorts(ctx context.Context, allowed []uint16, box sandbox.Sandbox) *ports {
	p := &ports{allowed: slices.Sorted(slices.Values(allowed)), open: map[uint16]net.Listener{}, conns: map[net.Conn]bool{}}
	p.dialer, _ = box.(sandbox.Dialer)
	p.ctx, p.end = context.WithCancel(context.WithoutCancel(ctx))
	return p
}

// Ports lists the ports of a session that may be forwarded, and forwards those
// that are asked for.
func (n *Node) Ports(ctx context.Context, c console.Caller, id string, req api.PortsRequest) ([]api.Port, error) {
	l, err := n.living(ctx, c, id)
	if err != nil {
		return nil, asProblem(err)
	}
	in := l.inside.Load()
	if in == nil {
		return nil, fault.Negative("session %s does not run yet", l.id).WithCode("not-yet").
			WithHint("`mojoup-node session show %s` says how far it has come", l.id).Problem()
	}
	for _, port := range req.Open {
		address, err := in.ports.forward(port)
		if err != nil {
			return nil, asProblem(err)
		}
		l.diary.note(api.EventClient, "port "+strconv.Itoa(int(port))+" is forwarded from "+address)
	}
	return in.ports.list(), nil
}

func asProblem(err error) error { return fault.As(err).Problem() }

func (p *ports) list() []api.Port {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := []api.Port{}
	for _, port := range p.allowed {
		one := api.Port{Port: port}
		if ln := p.open[port]; ln != nil {
			one.Address = ln.Addr().String()
		}
		out = append(out, one)
	}
	return out
}

// forward listens for a port and returns where: on the same number, or on a
// free one where that is taken or not ours to take.
func (p *ports) forward(port uint16) (string, error) {
	if p.dialer == nil {
		return "", fault.Negative("the session has no network of its own: its ports are those of this machine").WithCode("not-sandboxed").
			WithHint("connect to 127.0.0.1:%d; an ordinary process needs no forwarding", port)
	}
	if !slices.Contains(p.allowed, port) {
		return "", fault.Negative("the session's policy does not forward port %d", port).WithCode("port-not-allowed").
			WithHint(`put "ports": [%d] into .mojoup/policy.json before the session starts`, port)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return "", fault.Negative("the session has ended").WithCode("ended").WithHint("`mojoup-node session list` shows those that run")
	}
	if ln := p.open[port]; ln != nil {
		return ln.Addr().String(), nil
	}
	ln, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		ln, err = net.Listen("tcp4", "127.0.0.1:0")
	}
	if err != nil {
		return "", fault.CannotRun("listening for port %d: %w", port, err).WithHint("end a program of yours that listens, or raise its limit of open files (`ulimit -n`), and ask again")
	}
	p.open[port] = ln
	p.served.Go(func() { p.serve(ln, port) })
	return ln.Addr().String(), nil
}

// mostForwarded bounds the connections of one session, of all its ports.
const mostForwarded = 512

func (p *ports) serve(ln net.Listener, port uint16) {
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many descriptors: others may end
			if !p.pause() {
				return
			}
			continue
		}
		if !p.keep(conn) {
			_ = conn.Close()
			continue
		}
		p.served.Go(func() {
			defer p.drop(conn)
			p.carry(conn, port)
		})
	}
}

// pause waits a little, and reports whether there is anything to go on for.
func (p *ports) pause() bool {
	<-time.After(50 * time.Millisecond)
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.closed
}

func (p *ports) keep(conn net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.conns) >= 2*mostForwarded {
		return false
	}
	p.conns[conn] = true
	return true
}

func (p *ports) drop(conn net.Conn) {
	p.mu.Lock()
	delete(p.conns, conn)
	p.mu.Unlock()
	_ = conn.Close()
}

// dialWithin bounds how long a server inside may take to accept.
const dialWithin = 10 * time.Second

// carry joins one connection to the server inside. What one side has sent to
// the end the other one sees ended.
func (p *ports) carry(conn net.Conn, port uint16) {
	ctx, cancel := context.WithTimeout(p.ctx, dialWithin)
	inside, err := p.dialer.Dial(ctx, port)
	cancel()
	if err != nil {
		return // nobody listens: the connection ends, as a refused one does
	}
	defer inside.Close()
	if !p.keep(inside) {
		return
	}
	defer p.drop(inside)
	var both sync.WaitGroup
	both.Go(func() { pour(inside, conn) })
	both.Go(func() { pour(conn, inside) })
	both.Wait()
}

func pour(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(interface{ CloseWrite() error }); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	_ = to.Close()
	_ = from.Close()
}

// close ends every listener and connection, and waits for them.
func (p *ports) close() {
	p.end()
	p.mu.Lock()
	p.closed = true
	for _, ln := range p.open {
		_ = ln.Close()
	}
	for conn := range p.conns {
		_ = conn.Close()
	}
	p.mu.Unlock()
	p.served.Wait()
}
