package egress

import (
	"errors"
	"os"
	"time"
)

// watchAfter is how long an answer may take before it is worth looking whether
// somebody still waits for it. Most answers come before, and cost no look.
const watchAfter = 100 * time.Millisecond

// A watch looks whether a client is still there while it waits for an answer: a
// model thinks for minutes, and who is gone should not be paid for. What it
// reads stays in the client's buffer. Between attend and dismiss nobody else
// may read from the client.
type watch struct {
	timer *time.Timer
	armed bool
	gone  func()
	long  func()        // called first where it comes to a look; may be nil
	ended chan struct{} // one for each look
}

// attend calls gone, from a goroutine of its own, if the client leaves before
// [client.dismiss]. Whoever half-closes has left: no client that waits for an
// answer does.
func (c *client) attend(gone func()) {
	w := &c.watch
	w.armed, w.gone = true, gone
	if w.timer == nil {
		w.ended = make(chan struct{}, 1)
		w.timer = time.AfterFunc(watchAfter, c.look)
		return
	}
	w.timer.Reset(watchAfter)
}

func (c *client) look() {
	if c.watch.long != nil {
		c.watch.long()
	}
	var err error
	for err == nil && len(c.buffered()) < maxBuffer {
		err = c.fill()
	}
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		c.watch.gone()
	}
	c.watch.ended <- struct{}{}
}

// dismiss ends the watch. Then the client may be read again.
func (c *client) dismiss() {
	w := &c.watch
	if !w.armed {
		return
	}
	w.armed = false
	if w.timer.Stop() {
		return
	}
	// An error would come back from the next read as well.
	_ = c.SetReadDeadline(time.Unix(1, 0))
	<-w.ended
	_ = c.SetReadDeadline(time.Time{})
}
