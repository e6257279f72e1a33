package node

import (
	"io"
	"slices"
	"sync"
)

// keyboard is a session's input, put together from what all who may type type.
// It holds nothing: who types waits until it is taken, or until they leave.
type keyboard struct {
	typed    chan []byte
	ended    chan struct{} // no more will come
	closed   chan struct{} // nobody takes any more
	endOnce  sync.Once
	shutOnce sync.Once
	rest     []byte // of the last piece; only Read touches it
}

func newKeyboard() *keyboard {
	return &keyboard{typed: make(chan []byte), ended: make(chan struct{}), closed: make(chan struct{})}
}

// put hands p over and reports whether somebody took it.
func (k *keyboard) put(p []byte, left <-chan struct{}) bool {
	select {
	case <-k.ended:
		return false
	default:
	}
	select {
	case k.typed <- slices.Clone(p):
		return true
	case <-k.ended:
	case <-k.closed:
	case <-left:
	}
	return false
}

// end is the end of the input: Read gives io.EOF.
func (k *keyboard) end() { k.endOnce.Do(func() { close(k.ended) }) }

// Close ends a Read that waits, and everybody's waiting in put.
func (k *keyboard) Close() error {
	k.shutOnce.Do(func() { close(k.closed) })
	return nil
}

// Read waits for what is typed. One goroutine at a time may call it.
func (k *keyboard) Read(p []byte) (int, error) {
	if len(k.rest) == 0 {
		select {
		case k.rest = <-k.typed:
		case <-k.ended:
			return 0, io.EOF
		case <-k.closed:
			return 0, io.EOF
		}
	}
	n := copy(p, k.rest)
	k.rest = k.rest[n:]
	return n, nil
}
