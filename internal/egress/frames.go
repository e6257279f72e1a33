package egress

import (
	"errors"
	"io"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// frames reads a server's side of a WebSocket (RFC 6455, section 5.2) and
// masks keys in its messages, also where a server cuts one in two over the
// fragments of one message, with control frames between them. A message's end is
// given on as soon as it is there, and what comes before it but for an end that
// may be the beginning of a key.
type frames struct {
	mask  *secrets.Masker
	from  io.Reader
	store []byte
	ready int // store[:ready] may be given on
	read  int // store[:read] was looked at
	have  int // store[:have] was read
	// held are the places in store of what may be the beginning of a key, bytes
	// of one message. All that comes behind the first of them waits.
	held    []int
	left    uint64 // of the frame's payload
	more    bool   // the message goes on in another frame
	control bool   // the frame is none of a message
	err     error
}

// maxWaiting is how much may wait for the end of what may be a key: more is
// only behind one that is cut into very many frames.
const maxWaiting = 1 << 20

var errFragments = errors.New("a message in so many fragments that a key could not be masked in it")

func (f *frames) Read(p []byte) (int, error) {
	for f.ready == 0 {
		if f.err != nil {
			return 0, f.err
		}
		if f.have == len(f.store) {
			f.store = append(f.store, make([]byte, max(4<<10, len(f.store)))...)
		}
		n, err := f.from.Read(f.store[f.have:])
		f.have += n
		f.advance()
		f.ready = f.read
		if len(f.held) > 0 {
			f.ready = f.held[0]
		}
		switch f.err = err; {
		case err != nil:
			f.mask.Mask(f.store[f.ready:f.have])
			f.ready = f.have // an unfinished frame is its reader's to judge
		case f.have-f.ready > maxWaiting:
			f.err = errFragments
		}
	}
	n := copy(p, f.store[:f.ready])
	copy(f.store, f.store[n:f.have])
	f.ready, f.read, f.have = f.ready-n, max(0, f.read-n), f.have-n
	for i := range f.held {
		f.held[i] -= n
	}
	return n, nil
}

// advance looks at what was read.
func (f *frames) advance() {
	for f.read < f.have {
		if f.left == 0 && !f.next() {
			return
		}
		n := int(min(f.left, uint64(f.have-f.read)))
		if f.control && uint64(n) < f.left {
			return // it is short, and looked at as a whole
		}
		f.left -= uint64(n)
		if f.control {
			f.mask.Mask(f.store[f.read : f.read+n])
		} else {
			f.payload(f.store[f.read:f.read+n], f.left == 0 && !f.more)
		}
		f.read += n
	}
}

// next reads the head of a frame and reports whether all of it was there.
func (f *frames) next() bool {
	head, length, ok := frameHead(f.store[f.read:f.have])
	if !ok {
		return false
	}
	const final, control, mostOfControl = 0x80, 0x08, 125
	first := f.store[f.read]
	f.read, f.left = f.read+head, length
	if f.control = first&control != 0 && length <= mostOfControl; !f.control {
		f.more = first&final == 0
	}
	return true
}

// payload masks what came of a message, together with what is held of it.
func (f *frames) payload(part []byte, last bool) {
	if len(f.held) == 0 {
		f.hold(f.masked(part, last), len(part), nil)
		return
	}
	whole := make([]byte, 0, len(f.held)+len(part))
	for _, at := range f.held {
		whole = append(whole, f.store[at])
	}
	before := f.held
	whole = append(whole, part...)
	hold := f.masked(whole, last)
	for i, at := range before {
		f.store[at] = whole[i]
	}
	copy(part, whole[len(before):])
	f.hold(hold, len(part), before)
}

// masked masks b and returns how many bytes at its end must wait.
func (f *frames) masked(b []byte, last bool) (hold int) {
	if last {
		f.mask.Mask(b)
		return 0
	}
	return f.mask.Part(b)
}

// hold holds the last bytes of those that were held before and of the n that
// come behind f.read.
func (f *frames) hold(count, n int, before []int) {
	var held []int
	if count > n {
		held = append(held, before[len(before)-(count-n):]...)
	}
	for at := f.read + max(0, n-count); at < f.read+n; at++ {
		held = append(held, at)
	}
	f.held = held
}

// frameHead reads the head of a frame and how many bytes follow it.
func frameHead(b []byte) (head int, length uint64, ok bool) {
	if len(b) < 2 {
		return 0, 0, false
	}
	head, length = 2, uint64(b[1]&0x7f)
	more := map[uint64]int{126: 2, 127: 8}[length]
	if b[1]&0x80 != 0 {
		head += 4 // no server masks its frames; one that does cannot be read
	}
	if len(b) < head+more {
		return 0, 0, false
	}
	if more > 0 {
		length = 0
		for _, c := range b[2 : 2+more] {
			length = length<<8 | uint64(c)
		}
	}
	return head + more, length, true
}
