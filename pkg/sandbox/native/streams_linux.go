package native

import (
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// grace is how long output of a command's children is still read after the
// command itself has ended, where they hold the pipe open.
const grace = 100 * time.Millisecond

// streams are the three of a command, and what carries them. A nil *streams
// is a terminal's: there is nothing to do.
type streams struct {
	theirs  [3]*os.File // what the command gets
	lent    []*os.File  // of those, the ones to close once it has them
	input   io.Reader   // copied into feed, where not a file
	feed    *os.File
	outputs []*output
	done    chan struct{}
}

// connect opens what is needed. A file is handed over as it is.
func connect(s sandbox.Stdio) (_ *streams, err error) {
	st := &streams{done: make(chan struct{})}
	defer func() {
		if err != nil {
			st.release()
			st.close()
		}
	}()
	if st.theirs[0], err = st.from(s.Stdin); err != nil {
		return nil, err
	}
	if st.theirs[1], err = st.to(s.Stdout); err != nil {
		return nil, err
	}
	if sameWriter(s.Stdout, s.Stderr) {
		st.theirs[2] = st.theirs[1] // one pipe keeps the order
		return st, nil
	}
	st.theirs[2], err = st.to(s.Stderr)
	return st, err
}

// sameWriter reports whether both are one writer, without panicking on those
// that cannot be compared.
func sameWriter(a, b io.Writer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a != nil && a == b
}

func (s *streams) lend(f *os.File) *os.File {
	s.lent = append(s.lent, f)
	return f
}

func (s *streams) nothing(flag int) (*os.File, error) {
	f, err := os.OpenFile(os.DevNull, flag, 0)
	if err != nil {
		return nil, err
	}
	return s.lend(f), nil
}

func (s *streams) from(r io.Reader) (*os.File, error) {
	switch r := r.(type) {
	case nil:
		return s.nothing(os.O_RDONLY)
	case *os.File:
		return r, nil
	}
	theirs, ours, err := pipe()
	if err != nil {
		return nil, err
	}
	s.input, s.feed = r, ours
	return s.lend(theirs), nil
}

func (s *streams) to(w io.Writer) (*os.File, error) {
	switch w := w.(type) {
	case nil:
		return s.nothing(os.O_WRONLY)
	case *os.File:
		return w, nil
	}
	ours, theirs, err := pipe()
	if err != nil {
		return nil, err
	}
	s.outputs = append(s.outputs, &output{from: ours, to: w})
	return s.lend(theirs), nil
}

// pipe is one whose ends are both ours to make blocking or not.
func pipe() (r, w *os.File, err error) { return os.Pipe() }

// fds are the descriptors to send. Fd makes a file blocking, as a command
// expects it to be.
func (s *streams) fds() (fds [3]int) {
	for i, f := range s.theirs {
		fds[i] = int(f.Fd())
	}
	return fds
}

// release closes our copies of what the command has now.
func (s *streams) release() {
	if s == nil {
		return
	}
	for _, f := range s.lent {
		f.Close()
	}
	s.lent = nil
}

// close gives everything up where the command did not start.
func (s *streams) close() {
	if s == nil {
		return
	}
	if s.feed != nil {
		s.feed.Close()
	}
	for _, o := range s.outputs {
		o.from.Close()
	}
}

// start begins to copy. The goroutine that reads foreign input is not waited
// for: nobody can end another's Read. It ends with that Read at the latest.
func (s *streams) start(owner *sync.WaitGroup, exited, gone <-chan struct{}) {
	if s == nil {
		return
	}
	if s.input != nil {
		go func() {
			_, _ = io.Copy(s.feed, s.input) // a command may end without reading all
			s.feed.Close()
		}()
	}
	var copying sync.WaitGroup
	for _, o := range s.outputs {
		copying.Go(o.copy)
	}
	owner.Go(func() {
		select {
		case <-exited:
		case <-gone:
		}
		for _, o := range s.outputs {
			_ = o.from.SetReadDeadline(time.Now().Add(grace))
		}
		copying.Wait()
		if s.feed != nil {
			s.feed.Close()
		}
		close(s.done)
	})
}

// closed is for streams that have nothing to drain.
var closed = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// drained is closed when all output has been handed on.
func (s *streams) drained() <-chan struct{} {
	if s == nil {
		return closed
	}
	return s.done
}

// output carries one stream out.
type output struct {
	from *os.File
	to   io.Writer
}

func (o *output) copy() {
	defer o.from.Close()
	_, err := io.Copy(o.to, o.from)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		o.rest()
	}
}

// rest hands on what the pipe holds at this moment and no more, since a child
// of the command may be writing without end.
func (o *output) rest() {
	conn, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	var left []byte
	_ = conn.Control(func(fd uintptr) {
		size, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ)
		if err != nil || size <= 0 {
			return
		}
		left = make([]byte, size)
		n, _ := unix.Read(int(fd), left)
		left = left[:max(n, 0)]
	})
	if len(left) > 0 {
		_, _ = o.to.Write(left)
	}
}
