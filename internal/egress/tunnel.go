package egress

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A tunnel carries bytes both ways without looking at them.
type tunnel struct {
	inside, outside net.Conn
	wait            time.Duration // of silence once one side has ended
	half            atomic.Bool
	up, down        atomic.Int64
}

// run returns when both directions have ended. An end is passed on as an end,
// so that a client may say that it is done and still read the answer; an error
// is passed on as a reset, so that a cut answer never looks complete.
func (t *tunnel) run() {
	var group sync.WaitGroup
	group.Go(func() { t.carry(t.outside, t.inside, &t.up) })
	t.carry(t.inside, t.outside, &t.down)
	group.Wait()
	t.inside.Close()
	t.outside.Close()
}

func (t *tunnel) carry(to, from net.Conn, count *atomic.Int64) {
	err := t.copy(to, from, count)
	if err == nil {
		t.half.Store(true)
		// The other direction may wait in a read that knows of no limit yet.
		if to.SetReadDeadline(time.Now().Add(t.wait)) == nil && closeWrite(to) == nil {
			return
		}
	}
	reset(to)
	reset(from)
}

func (t *tunnel) copy(to, from net.Conn, count *atomic.Int64) error {
	read := newReader(from)
	for {
		buf, n, err := read.next()
		if n > 0 {
			count.Add(int64(n))
			if _, werr := to.Write(buf[:n]); werr != nil && err == nil {
				err = werr
			}
		}
		if buf != nil {
			copyBuffers.Put(buf)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case t.half.Load():
			if err := from.SetReadDeadline(time.Now().Add(t.wait)); err != nil {
				return err
			}
		}
	}
}

// reset closes so that the other side sees an error, not an end.
func reset(c net.Conn) {
	if l, ok := c.(interface{ SetLinger(int) error }); ok {
		_ = l.SetLinger(0)
	}
	c.Close()
}
