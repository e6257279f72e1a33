package process

import (
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A pump carries one output of a command from its pipe to a writer until the
// command ends. What its children write later is read and thrown away, so that
// they neither block nor die of a broken pipe while the session lives, and the
// caller's writer is never touched after Wait.
type pump struct {
	r       *os.File
	w       io.Writer
	drained chan struct{} // closed once w has all that the command wrote
}

func newPump(r *os.File, w io.Writer) *pump {
	return &pump{r: r, w: w, drained: make(chan struct{})}
}

// run returns when the pipe has no writer left, or has been closed.
func (p *pump) run() {
	if p.copy() {
		_, _ = io.Copy(io.Discard, p.r)
	}
	_ = p.r.Close()
}

// copy reports whether somebody may still be writing.
func (p *pump) copy() (open bool) {
	defer close(p.drained)
	_, err := io.Copy(p.w, onlyReader{p.r})
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false // end of file, or a writer that has had enough: a broken pipe tells the command
	}
	if err := p.r.SetReadDeadline(time.Time{}); err != nil {
		return false
	}
	_, err = io.CopyN(p.w, p.r, p.waiting())
	return err == nil
}

// commandEnded makes copy take what is in the pipe now, and no more.
func (p *pump) commandEnded() { _ = p.r.SetReadDeadline(time.Unix(1, 0)) }

// waiting is how many bytes the pipe holds at this moment.
func (p *pump) waiting() int64 {
	conn, err := p.r.SyscallConn()
	if err != nil {
		return 0
	}
	n := 0 // TIOCINQ is FIONREAD (ioctl_pipe in pipe(7))
	_ = conn.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return int64(n)
}

// onlyReader hides WriteTo, which would splice to a socket or file where a
// deadline may lose bytes.
type onlyReader struct{ io.Reader }
