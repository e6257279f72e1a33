package node

import (
	"io"
	"slices"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/recording"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// hub stands between one session and whoever looks at it, and is to the
// session what a single client would be: it is a console.Stream.
//
// The one who started the session in the foreground owns it: what the command
// writes waits for them, and nothing of it is lost. Everybody else is given
// what there is: for each there is a bounded queue, whose oldest bytes are
// skipped, and said, where they take it too slowly. So no viewer can hold up a
// session, and a session without an owner waits for nobody.
//
// Of a terminal everybody who is not only looking may type, and it has the size
// that the last one of them who did something has. Without a terminal the
// input is the owner's.
type hub struct {
	terminal bool
	detach   bool // let go of the owner once the command runs

	keyboard  *keyboard // stdin
	resizes   chan api.Size
	signals   chan int
	unowned   chan struct{} // closed when the owner has been let go
	letGo     sync.Once
	notedDown func(line string) // each notice, if not nil

	mu      sync.Mutex // guards what follows
	tail    *tail
	viewers []*viewer         // in the order of what they last did, the last one last
	owner   *viewer           // of viewers, or nil
	size    api.Size          // that the terminal was told
	kept    *recording.Writer // of what the terminal shows, or nil
}

// record gives what the terminal shows to r as well, from now on.
func (h *hub) record(r *recording.Writer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.kept = r
}

func newHub(terminal *api.Size, detach bool) *hub {
	h := &hub{
		terminal: terminal != nil, detach: detach, tail: newTail(terminal != nil), keyboard: newKeyboard(),
		resizes: make(chan api.Size, 1), signals: make(chan int, 16), unowned: make(chan struct{}),
	}
	if terminal != nil {
		h.size = *terminal
	}
	return h
}

// viewer is one who looks at a session.
type viewer struct {
	stream   console.Stream
	readOnly bool
	size     api.Size      // of their terminal, or zero
	wake     chan struct{} // something is in the queue
	heard    chan struct{} // closed when nothing more is typed

	queue   parts // guarded by the hub
	skipped int
}

// queueLimit is how much may wait for a viewer, in bytes: the tail, and as
// much again.
const queueLimit = 2 * tailLimit

// own makes the client that asked for the session its owner.
func (h *hub) own(s console.Stream) *viewer {
	h.mu.Lock()
	defer h.mu.Unlock()
	v := &viewer{stream: s, size: h.size, wake: make(chan struct{}, 1), heard: make(chan struct{})}
	h.owner, h.viewers = v, append(h.viewers, v)
	return v
}

// disown lets go of the owner. What the command writes waits for nobody from
// now on, and without a terminal its input ends.
func (h *hub) disown() {
	h.letGo.Do(func() {
		h.mu.Lock()
		if h.owner != nil {
			h.removeLocked(h.owner)
		}
		h.mu.Unlock()
		if !h.terminal {
			h.keyboard.end()
		}
		close(h.unowned)
	})
}

// join adds a viewer, with all that they must see first.
func (h *hub) join(s console.Stream, req api.AttachRequest) *viewer {
	v := &viewer{stream: s, readOnly: req.ReadOnly || !h.terminal, wake: make(chan struct{}, 1), heard: make(chan struct{}), queue: parts{limit: queueLimit}}
	v.queue.cut = func(p part) { v.skipped += len(p.data) }
	if req.Terminal != nil && !v.readOnly {
		v.size = *req.Terminal
	}
	h.mu.Lock()
	if h.kept != nil {
		v.queue.add(api.FrameNotice, []byte(recordedNotice))
	}
	for _, p := range h.tail.replay() {
		v.queue.add(p.kind, p.data)
	}
	h.viewers = append(h.viewers, v)
	h.mu.Unlock()
	v.nudge()
	if h.terminal {
		h.redraw(v)
	}
	return v
}

// leave takes a viewer out. The terminal gets the size of whoever did
// something last before them.
func (h *hub) leave(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.removeLocked(v)
}

func (h *hub) removeLocked(v *viewer) {
	h.viewers = slices.DeleteFunc(h.viewers, func(o *viewer) bool { return o == v })
	if h.owner == v {
		h.owner = nil
	}
	for _, o := range slices.Backward(h.viewers) {
		if o.size != (api.Size{}) {
			h.resizeLocked(o.size)
			return
		}
	}
}

// watching is how many look at the session.
func (h *hub) watching() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.viewers)
}

// acts notes that a viewer did something: the terminal has their size now.
func (h *hub) acts(v *viewer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := len(h.viewers) - 1
	at := slices.Index(h.viewers, v)
	if at < 0 || v.size == (api.Size{}) {
		return
	}
	if at != last {
		h.viewers = append(slices.Delete(h.viewers, at, at+1), v)
	}
	h.resizeLocked(v.size)
}

func (h *hub) resized(v *viewer, size api.Size) {
	if v.readOnly || size == (api.Size{}) {
		return
	}
	h.mu.Lock()
	v.size = size
	h.mu.Unlock()
	h.acts(v)
}

func (h *hub) resizeLocked(size api.Size) {
	if size != h.size {
		h.size = size
		h.tell(size)
	}
}

// tell keeps only the newest size for the terminal.
func (h *hub) tell(size api.Size) {
	for {
		select {
		case h.resizes <- size:
			return
		default:
		}
		select {
		case <-h.resizes:
		default:
		}
	}
}

// redrawAfter is how long a terminal has another size when its program is to
// draw anew: long enough for it to look.
const redrawAfter = 50 * time.Millisecond

// redraw makes the terminal's program draw anew. Programs do that when the
// size changes, and some only then: so it changes, if need be there and back.
func (h *hub) redraw(v *viewer) {
	h.acts(v)
	h.mu.Lock()
	defer h.mu.Unlock()
	other := h.size
	if other.Rows > 1 {
		other.Rows--
	} else {
		other.Rows++
	}
	h.tell(other)
	time.AfterFunc(redrawAfter, func() { // touches the hub only
		h.mu.Lock()
		defer h.mu.Unlock()
		h.tell(h.size)
	})
}

// write takes output: kept, queued for viewers, and handed to the owner, whom
// it waits for. It does not fail: an owner who is gone ends the session, and
// until then its command may as well write.
func (h *hub) write(kind api.FrameKind, p []byte) {
	h.mu.Lock()
	if kind != api.FrameNotice {
		h.tail.add(kind, p)
	}
	owner := h.owner
	for _, v := range h.viewers {
		if v != owner {
			v.queue.add(kind, p)
			v.nudge()
		}
	}
	if h.detach && kind != api.FrameNotice {
		owner = nil // who leaves at once is not told some of it by chance
	}
	kept := h.kept
	h.mu.Unlock()
	if kept != nil && kind != api.FrameNotice {
		kept.Output(p)
	}
	if owner != nil {
		_ = owner.show(part{kind, p})
	}
}

func (v *viewer) nudge() {
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

func (v *viewer) show(p part) (err error) {
	switch p.kind {
	case api.FrameStdout:
		_, err = v.stream.Stdout().Write(p.data)
	case api.FrameStderr:
		_, err = v.stream.Stderr().Write(p.data)
	case api.FrameNotice:
		v.stream.Notice(string(p.data))
	}
	return err
}

// next is the oldest part of a viewer's queue, and how many bytes before it
// were skipped since the last call.
func (h *hub) next(v *viewer) (p part, skipped int, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	skipped, v.skipped = v.skipped, 0
	p, ok = v.queue.take()
	return p, skipped, ok
}

// listen carries what a viewer types and asks until their input ends. Only the
// owner's end of input and signals are the command's.
func (h *hub) listen(v *viewer, owner bool, over <-chan struct{}) {
	buf := make([]byte, 32<<10)
	for {
		n, err := v.stream.Stdin().Read(buf)
		if n > 0 && !v.readOnly {
			if h.terminal {
				h.acts(v)
			}
			if !h.keyboard.put(buf[:n], over) {
				return
			}
		}
		if err != nil {
			if owner && !h.terminal {
				h.keyboard.end()
			}
			return
		}
	}
}

// heed carries a viewer's sizes and the owner's signals until over is closed.
func (h *hub) heed(v *viewer, owner bool, over <-chan struct{}) {
	for {
		select {
		case size := <-v.stream.Resizes():
			h.resized(v, size)
		case n := <-v.stream.Signals():
			if owner {
				select {
				case h.signals <- n:
				default: // as many as that unanswered: it is ending anyway
				}
			}
		case <-over:
			return
		}
	}
}

// attend carries what a viewer types and asks until the returned function is
// called.
func (h *hub) attend(v *viewer, owner bool) (end func()) {
	var both sync.WaitGroup
	over := make(chan struct{})
	both.Go(func() {
		defer close(v.heard)
		h.listen(v, owner, over)
	})
	both.Go(func() { h.heed(v, owner, over) })
	return func() {
		close(over)
		_ = v.stream.Stdin().Close()
		both.Wait()
	}
}

// hearOut waits until what one who leaves has typed before is taken, unless
// nobody takes it.
func (v *viewer) hearOut(gone <-chan struct{}) {
	late := time.NewTimer(hearFor)
	defer late.Stop()
	select {
	case <-v.heard:
	case <-late.C:
	case <-gone:
	}
}

// hearFor bounds how long leaving may wait for that.
const hearFor = time.Second

// end ends the input, so that nobody waits to write to a command that has
// ended.
func (h *hub) end() { _ = h.keyboard.Close() }

// What follows is the hub as the session's client.

// Started tells the owner that the command runs, and lets go of one who asked
// for no more than that.
func (h *hub) Started(v api.Started) error {
	h.mu.Lock()
	owner := h.owner
	h.mu.Unlock()
	if owner == nil {
		return nil
	}
	v.Terminal = h.terminal
	if err := owner.stream.Started(v); err != nil {
		return err
	}
	if h.detach {
		h.disown()
	}
	return nil
}

func (h *hub) Notice(line string) {
	h.write(api.FrameNotice, []byte(line))
	if h.notedDown != nil {
		h.notedDown(line)
	}
}

func (h *hub) Stdin() io.ReadCloser      { return h.keyboard }
func (h *hub) Stdout() io.Writer         { return hubWriter{h, api.FrameStdout} }
func (h *hub) Stderr() io.Writer         { return hubWriter{h, api.FrameStderr} }
func (h *hub) Resizes() <-chan api.Size  { return h.resizes }
func (h *hub) Signals() <-chan int       { return h.signals }
func (h *hub) Detached() <-chan struct{} { return h.unowned }

func (h *hub) Hurry(within time.Duration) {
	h.mu.Lock()
	owner := h.owner
	h.mu.Unlock()
	if owner != nil {
		owner.stream.Hurry(within)
	}
}

type hubWriter struct {
	h    *hub
	kind api.FrameKind
}

func (w hubWriter) Write(p []byte) (int, error) {
	w.h.write(w.kind, p)
	return len(p), nil
}
