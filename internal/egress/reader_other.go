//go:build !linux

package egress

import "net"

// A reader holds its buffer while it waits: sandboxes need Linux, and
// elsewhere this only has to compile and be right.
type reader struct{ conn net.Conn }

func newReader(conn net.Conn) *reader { return &reader{conn} }

func (r *reader) next() (buf *[copyBuffer]byte, n int, err error) {
	buf = copyBuffers.Get().(*[copyBuffer]byte)
	n, err = r.conn.Read(buf[:])
	return buf, n, err
}
