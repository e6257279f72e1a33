// Package frame promises that what runs in a sandbox sees the end of its
// input, through a gateway that cannot pass it on.
//
// A frame is its length in four bytes, the highest first, and that many bytes.
// A frame without bytes is the end. Nothing here allocates by what a length
// says.
package frame

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Most is the longest frame.
const Most = 32 << 10

const head = 4

// Encode reads plain input and answers it in frames, the end too. The answered
// reader ends after that.
func Encode(r io.Reader) io.Reader { return &encoder{from: r} }

type encoder struct {
	from  io.Reader
	buf   [head + Most]byte
	ready []byte
	ended bool
}

func (e *encoder) Read(p []byte) (int, error) {
	for len(e.ready) == 0 {
		if e.ended {
			return 0, io.EOF
		}
		n, err := e.from.Read(e.buf[head:])
		e.ended = err != nil
		if n > 0 {
			e.ready = e.frame(n)
		}
		if e.ended {
			// The end stands behind what came with it.
			e.ready = append(e.ready, 0, 0, 0, 0)
		}
	}
	n := copy(p, e.ready)
	e.ready = e.ready[n:]
	return n, nil
}

func (e *encoder) frame(n int) []byte {
	binary.BigEndian.PutUint32(e.buf[:head], uint32(n))
	return e.buf[: head+n : head+n] // appending copies
}

// Decode answers the plain input of frames, with its end. A stream that breaks
// off before is [io.ErrUnexpectedEOF].
func Decode(r io.Reader) io.Reader { return &decoder{from: r} }

type decoder struct {
	from io.Reader
	left int
	err  error
}

func (d *decoder) Read(p []byte) (int, error) {
	if d.err != nil || len(p) == 0 {
		return 0, d.err
	}
	if d.left == 0 {
		var h [head]byte
		if _, err := io.ReadFull(d.from, h[:]); err != nil {
			return 0, d.broke(err)
		}
		n := binary.BigEndian.Uint32(h[:])
		switch {
		case n == 0:
			d.err = io.EOF
			return 0, io.EOF
		case n > Most:
			d.err = fmt.Errorf("a frame of %d bytes, %d is the most", n, Most)
			return 0, d.err
		}
		d.left = int(n)
	}
	n, err := d.from.Read(p[:min(len(p), d.left)])
	d.left -= n
	if err != nil {
		return n, d.broke(err)
	}
	return n, nil
}

func (d *decoder) broke(err error) error {
	if d.err = err; err == io.EOF {
		d.err = io.ErrUnexpectedEOF
	}
	return d.err
}
