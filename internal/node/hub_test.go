package node

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// seat is a client as the hub sees one.
type seat struct {
	keys    *keyboard
	resizes chan api.Size
	signals chan int
	left    chan struct{}
	stuck   chan struct{} // writes wait until it is closed; nil: never

	mu      sync.Mutex
	out     bytes.Buffer
	notices []string
	hurried bool
}

func newSeat() *seat {
	return &seat{keys: newKeyboard(), resizes: make(chan api.Size, 1), signals: make(chan int, 16), left: make(chan struct{})}
}

func (s *seat) Started(api.Started) error { return nil }
func (s *seat) Notice(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notices = append(s.notices, line)
}
func (s *seat) Stdin() io.ReadCloser { return s.keys }
func (s *seat) Stdout() io.Writer    { return s }
func (s *seat) Stderr() io.Writer    { return s }
func (s *seat) Write(p []byte) (int, error) {
	if s.stuck != nil {
		<-s.stuck
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.Write(p)
}
func (s *seat) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}
func (s *seat) Hurry(time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hurried = true
}
func (s *seat) Resizes() <-chan api.Size  { return s.resizes }
func (s *seat) Signals() <-chan int       { return s.signals }
func (s *seat) Detached() <-chan struct{} { return s.left }

// hubLife is a session that is nothing but its hub.
func hubLife(terminal *api.Size) *life {
	return &life{n: &Node{o: Options{Times: Times{}.orDefault()}}, hub: newHub(terminal, false), gone: make(chan struct{})}
}

// look attaches s and returns what gives its end.
func (l *life) look(ctx context.Context, s *seat, req api.AttachRequest) <-chan api.Ended {
	out := make(chan api.Ended, 1)
	v := l.hub.join(s, req)
	go func() {
		end := l.hub.attend(v, false)
		ended := l.watch(ctx, v)
		end()
		l.hub.leave(v)
		out <- ended
	}()
	return out
}

// TestManyViewersOfOneSession: viewers come and go at random while a session
// writes. Its owner gets every byte in order; whoever stays to the end and
// keeps up has seen all from where the tail began; nobody holds it up.
func TestManyViewersOfOneSession(t *testing.T) {
	for seed := range uint64(5) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 4))
			l := hubLife(nil)
			owner := newSeat()
			endOwner := l.hub.attend(l.hub.own(owner), true)
			stuck := newSeat()
			stuck.stuck = make(chan struct{})
			stuckEnd := l.look(t.Context(), stuck, api.AttachRequest{})
			var want bytes.Buffer
			type looking struct {
				s    *seat
				end  <-chan api.Ended
				gone bool
			}
			var all []*looking
			for i := range 200 {
				piece := []byte(fmt.Sprintf("%d %s\n", i, strings.Repeat("x", random.IntN(8000))))
				want.Write(piece)
				l.hub.write(api.FrameStdout, piece)
				switch random.IntN(8) {
				case 0:
					s := newSeat()
					all = append(all, &looking{s: s, end: l.look(t.Context(), s, api.AttachRequest{})})
				case 1:
					if len(all) > 0 {
						if v := all[random.IntN(len(all))]; !v.gone {
							v.gone = true
							close(v.s.left)
						}
					}
				}
				synctest.Wait()
			}
			l.ended = api.Ended{Code: 7}
			close(stuck.stuck)
			l.hub.end()
			close(l.gone)
			for i, v := range all {
				end := <-v.end
				if v.gone != end.Detached || !v.gone && end.Code != 7 {
					t.Errorf("viewer %d, gone %v: %+v", i, v.gone, end)
				}
				if !v.gone && !strings.HasSuffix(want.String(), v.s.text()) {
					t.Errorf("viewer %d did not see the end as it was", i)
				}
				if !v.gone && v.s.out.Len() < min(tailLimit/2, 100) {
					t.Errorf("viewer %d saw %d bytes", i, v.s.out.Len())
				}
			}
			if end := <-stuckEnd; end.Code != 7 || len(stuck.notices) == 0 || !strings.Contains(stuck.notices[0], "skipped") {
				t.Errorf("the one who took nothing: %+v, told %q", end, stuck.notices)
			}
			endOwner()
			if !bytes.Equal(owner.out.Bytes(), want.Bytes()) {
				t.Errorf("the owner got %d bytes of %d", owner.out.Len(), want.Len())
			}
		})
	}
}

// TestOwnerHoldsTheSessionUp: what the command writes waits for its owner, and
// no longer once they have left.
func TestOwnerHoldsTheSessionUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHub(nil, false)
		owner := newSeat()
		owner.stuck = make(chan struct{})
		h.own(owner)
		wrote := make(chan struct{})
		go func() {
			h.write(api.FrameStdout, []byte("one"))
			close(wrote)
		}()
		synctest.Wait()
		select {
		case <-wrote:
			t.Fatal("the session did not wait")
		default:
		}
		h.disown()
		close(owner.stuck)
		<-wrote
		h.write(api.FrameStdout, []byte("two"))
		if got := owner.text(); got != "one" {
			t.Errorf("the owner got %q", got)
		}
		if n, err := h.Stdin().Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("input without an owner: %d, %v", n, err)
		}
	})
}

// TestViewersShareATerminal: all but those who only look type, and the size is
// that of the one who did something last.
func TestViewersShareATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hubLife(&api.Size{Columns: 100, Rows: 30})
		h := l.hub
		got := &lines{more: make(chan struct{}, 1)}
		var reader sync.WaitGroup
		reader.Go(func() { _, _ = io.Copy(got, h.Stdin()) })
		sizes := func() (last api.Size) {
			time.Sleep(2 * redrawAfter) // no time at all, in here
			for {
				synctest.Wait()
				select {
				case last = <-h.Resizes():
				default:
					return last
				}
			}
		}
		a, b, watcher := newSeat(), newSeat(), newSeat()
		endA := h.attend(h.own(a), true)
		endB := l.look(t.Context(), b, api.AttachRequest{Terminal: &api.Size{Columns: 80, Rows: 20}})
		endW := l.look(t.Context(), watcher, api.AttachRequest{Terminal: &api.Size{Columns: 10, Rows: 5}, ReadOnly: true})
		if s := sizes(); s != (api.Size{Columns: 80, Rows: 20}) {
			t.Errorf("size after the second came: %v", s)
		}
		a.keys.put([]byte("a"), nil)
		watcher.keys.put([]byte("no"), nil)
		watcher.resizes <- api.Size{Columns: 11, Rows: 6}
		if s := sizes(); s != (api.Size{Columns: 100, Rows: 30}) {
			t.Errorf("size after the first typed: %v", s)
		}
		b.resizes <- api.Size{Columns: 90, Rows: 21}
		if s := sizes(); s != (api.Size{Columns: 90, Rows: 21}) {
			t.Errorf("size after the second's changed: %v", s)
		}
		close(b.left)
		if end := <-endB; !end.Detached {
			t.Errorf("the second left: %+v", end)
		}
		if s := sizes(); s != (api.Size{Columns: 100, Rows: 30}) {
			t.Errorf("size after the second left: %v", s)
		}
		endA()
		close(l.gone)
		<-endW
		h.end()
		reader.Wait()
		if got.String() != "a" {
			t.Errorf("typed %q", got)
		}
	})
}

// TestLeavingDoesNotWait: one who types into a session that takes nothing can
// leave.
func TestLeavingDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hubLife(&api.Size{Columns: 80, Rows: 24})
		s := newSeat()
		end := l.look(t.Context(), s, api.AttachRequest{})
		s.keys.put([]byte("nobody reads this"), nil)
		synctest.Wait()
		close(s.left)
		if e := <-end; !e.Detached {
			t.Errorf("%+v", e)
		}
	})
}

// TestWhatWasTypedBeforeLeavingIsTaken: however soon after it they leave.
func TestWhatWasTypedBeforeLeavingIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := hubLife(&api.Size{Columns: 80, Rows: 24})
		s := newSeat()
		end := l.look(t.Context(), s, api.AttachRequest{})
		s.keys.put([]byte("typed"), nil)
		close(s.left)
		s.keys.end()
		synctest.Wait()
		buf := make([]byte, 10)
		n, err := l.hub.Stdin().Read(buf)
		if string(buf[:n]) != "typed" || err != nil {
			t.Errorf("the session got %q, %v", buf[:n], err)
		}
		if e := <-end; !e.Detached {
			t.Errorf("%+v", e)
		}
	})
}

// TestB67_TailIsWhatWasWritten: what is kept is the end of what was written,
// byte by byte, and of a terminal it begins between two characters.
func TestB67_TailIsWhatWasWritten(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	plain, screen := newTail(false), newTail(true)
	var all []byte
	for len(all) < 3*tailLimit {
		p := make([]byte, random.IntN(9000))
		for i := range p {
			p[i] = byte(random.Uint32())
		}
		all = append(all, p...)
		plain.add(api.FrameStdout, p)
		screen.add(api.FrameStdout, bytes.Repeat([]byte("é\x1b[31m"), 1+len(p)/7))
	}
	plain.add(api.FrameStderr, []byte("last"))
	var got []byte
	for _, p := range plain.replay() {
		got = append(got, p.data...)
	}
	want := append(all, "last"...)
	if want = want[len(want)-tailLimit:]; !bytes.Equal(got, want) {
		t.Errorf("kept %d bytes that are not the last %d", len(got), len(want))
	}
	shown := screen.replay()
	if len(shown) != 1 || len(shown[0].data) < tailLimit-10 {
		t.Fatalf("%d parts", len(shown))
	}
	if s := string(shown[0].data); !strings.HasPrefix(s, "é\x1b[31m") && !strings.HasPrefix(s, "\x1b[31mé") {
		t.Errorf("begins with %q", s[:12])
	}
	whole := newTail(true)
	whole.add(api.FrameStdout, []byte("\x1b[?1049h\x1b[?25lvim"))
	whole.add(api.FrameStdout, bytes.Repeat([]byte("~"), tailLimit))
	if s := string(whole.replay()[0].data); !strings.HasPrefix(s, "\x1b[?1049h\x1b[?25l~") {
		t.Errorf("the state before the tail is lost: %q", s[:20])
	}
	small := parts{limit: 10}
	small.add(api.FrameStdout, []byte("0123456789abcdef"))
	if diff := cmp.Diff("6789abcdef", string(small.list[0].data)); diff != "" || small.size != 10 {
		t.Errorf("size %d (-want +got):\n%s", small.size, diff)
	}
}
