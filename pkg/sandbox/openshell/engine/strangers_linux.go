package engine

import (
	"fmt"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
)

// mostStrangers bounds what is remembered of those who were turned away:
// whoever can reach the port decides how many they are.
const mostStrangers = 32

// strangers counts who was turned away at a session's way out.
type strangers struct {
	mu   sync.Mutex // guards what follows
	at   map[string]int
	seen []sandbox.Stranger
	news chan struct{} // closed and replaced when there is one more
}

func newStrangers() *strangers {
	return &strangers{at: map[string]int{}, news: make(chan struct{})}
}

func (s *strangers) add(r inlet.Refusal) {
	who := r.Peer.String()
	if r.UID >= 0 {
		who = fmt.Sprintf("user %d at %s", r.UID, who)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := who + " " + r.Reason
	i, known := s.at[key]
	switch {
	case known:
		s.seen[i].Count++
	case len(s.seen) < mostStrangers:
		s.at[key] = len(s.seen)
		s.seen = append(s.seen, sandbox.Stranger{Who: who, Reason: r.Reason, Count: 1})
		close(s.news)
		s.news = make(chan struct{})
	}
}

var _ sandbox.Doorkeeper = (*box)(nil)

// Strangers are those who were turned away at the session's way out.
func (b *box) Strangers() ([]sandbox.Stranger, <-chan struct{}) {
	s := b.strangers
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]sandbox.Stranger(nil), s.seen...), s.news
}
