package cli

import (
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/term"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// terminalFor is the terminal that a command gets: one where stdin and stdout
// are one, unless a flag says otherwise.
func terminalFor(p Process, tty, noTTY bool) *api.Size {
	both := isTerminal(p.Stdin) && isTerminal(p.Stdout)
	if noTTY || !both && !tty {
		return nil
	}
	if f := screenFile(p); f != nil {
		size := sizeOf(f)
		return &size
	}
	return &api.Size{Columns: 80, Rows: 24}
}

// screenFile is the terminal of this process among its streams, or nil.
func screenFile(p Process) *os.File {
	for _, v := range []any{p.Stdin, unwrapped(p.Stdout), p.Stderr} {
		if f, ok := v.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
			return f
		}
	}
	return nil
}

func unwrapped(v any) any {
	if a, ok := v.(*answer); ok {
		return a.w
	}
	return v
}

func sizeOf(f *os.File) api.Size {
	w, h, err := term.GetSize(int(f.Fd()))
	if err != nil || w <= 0 || h <= 0 {
		return api.Size{Columns: 80, Rows: 24}
	}
	return api.Size{Columns: uint16(min(w, 1<<15)), Rows: uint16(min(h, 1<<15))}
}

// screen is the person's terminal while a session uses it, and the signals
// that reach this process meanwhile.
type screen struct {
	resizes chan api.Size
	signals chan int
	file    *os.File // nil without a terminal inside
	before  *term.State
	caught  chan os.Signal
	over    chan struct{}
	watcher sync.WaitGroup
	once    sync.Once
	closed  bool
}

// forwarded reach the command instead of ending this process. SIGHUP is not
// among them: a client that is hung up goes, and the node tells the command.
var forwarded = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH}

func openScreen(p Process, terminal bool) (*screen, error) {
	s := &screen{
		resizes: make(chan api.Size, 1), signals: make(chan int, 16),
		caught: make(chan os.Signal, 16), over: make(chan struct{}),
	}
	if terminal {
		s.file = screenFile(p)
	}
	signal.Notify(s.caught, forwarded...)
	s.watcher.Go(s.watch)
	return s, nil
}

func (s *screen) watch() {
	for {
		select {
		case sig := <-s.caught:
			s.pass(sig.(syscall.Signal))
		case <-s.over:
			return
		}
	}
}

func (s *screen) pass(sig syscall.Signal) {
	if sig != syscall.SIGWINCH {
		select {
		case s.signals <- int(sig):
		case <-s.over:
		}
		return
	}
	if s.file == nil {
		return
	}
	select {
	case s.resizes <- sizeOf(s.file):
	case <-s.over:
	}
}

// raw hands the keyboard to the command, once it runs.
func (s *screen) raw() {
	if s.file == nil {
		return
	}
	if before, err := term.MakeRaw(int(s.file.Fd())); err == nil {
		s.before = before
	}
}

// isRaw reports whether the keyboard is the command's now, wasRaw whether it
// ever was.
func (s *screen) isRaw() bool  { return s.before != nil && !s.closed }
func (s *screen) wasRaw() bool { return s.before != nil }

// close gives the terminal back as it was.
func (s *screen) close() {
	s.once.Do(func() {
		signal.Stop(s.caught)
		close(s.over)
		s.watcher.Wait()
		if s.before != nil {
			_ = term.Restore(int(s.file.Fd()), s.before)
		}
		s.closed = true
	})
}

// supported reports nothing: sandboxes are made here.
func supported() error { return nil }
