package console

import (
	"io"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// inbox holds stdin between the connection, which must never wait, and the
// session, which takes it when it likes. It never holds more than
// api.StdinWindow bytes.
type inbox struct {
	credit func(n int) // called without the lock, after n bytes were taken

	mu    sync.Mutex // guards what follows
	ready sync.Cond
	held  []byte
	ended bool
}

func newInbox(credit func(int)) *inbox {
	b := &inbox{credit: credit}
	b.ready.L = &b.mu
	return b
}

// put adds bytes, none meaning the end, and reports whether they fit.
func (b *inbox) put(p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.held)+len(p) > api.StdinWindow {
		return false
	}
	if len(p) == 0 {
		b.ended = true
	}
	if !b.ended {
		b.held = append(b.held, p...)
	}
	b.ready.Broadcast()
	return true
}

// finish ends the input; what is held can still be read.
func (b *inbox) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	b.ready.Broadcast()
}

// Close ends the input and drops what is held.
func (b *inbox) Close() error {
	b.finish()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.held = nil
	return nil
}

// Read waits for bytes or the end.
func (b *inbox) Read(p []byte) (int, error) {
	b.mu.Lock()
	for len(b.held) == 0 && !b.ended {
		b.ready.Wait()
	}
	n := copy(p, b.held)
	b.held = b.held[n:]
	if len(b.held) == 0 {
		b.held = nil
	}
	b.mu.Unlock()
	if n == 0 && len(p) > 0 {
		return 0, io.EOF
	}
	b.credit(n)
	return n, nil
}
