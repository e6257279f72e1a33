package egress

import (
	"encoding/binary"

	"golang.org/x/net/http2"
)

// endHeaders is the flag of a frame with which a head ends.
const endHeaders = byte(http2.FlagHeadersEndHeaders)

// http2Frames finds the frames in one direction of a connection (RFC 9113, section
// 4.1). Of those about heads and ends it keeps the payload, where somebody wants
// it.
type http2Frames struct {
	head    [9]byte
	have    int // bytes of head
	left    int // of the payload
	payload []byte
}

func (f *http2Frames) kind() http2.FrameType { return http2.FrameType(f.head[3]) }
func (f *http2Frames) flags() byte           { return f.head[4] }

// isHead reports whether the frame is about a head.
func (f *http2Frames) isHead() bool {
	return f.kind() == http2.FrameHeaders || f.kind() == http2.FrameContinuation
}

// inHead reports whether the last frame leaves a head without its end.
func (f *http2Frames) inHead() bool {
	return f.have == len(f.head) && f.isHead() && (f.left > 0 || f.flags()&endHeaders == 0)
}

// feed takes what the connection carried next, in pieces of any size, and calls
// each, if not nil, for every frame that is whole.
func (f *http2Frames) feed(p []byte, each func(*http2Frames)) {
	for len(p) > 0 {
		if f.have == len(f.head) && f.left == 0 {
			f.have = 0
		}
		if f.have < len(f.head) {
			n := copy(f.head[f.have:], p)
			f.have, p = f.have+n, p[n:]
			if f.have < len(f.head) {
				return
			}
			f.left, f.payload = int(f.head[0])<<16|int(f.head[1])<<8|int(f.head[2]), f.payload[:0]
		}
		n := min(f.left, len(p))
		if each != nil && (f.isHead() || f.kind() == http2.FrameRSTStream || f.kind() == http2.FrameGoAway) {
			f.payload = append(f.payload, p[:n]...)
		}
		f.left, p = f.left-n, p[n:]
		if f.left == 0 && each != nil {
			each(f)
		}
	}
}

// codeAt is the error code in a frame's payload.
func codeAt(payload []byte, at int) http2.ErrCode {
	if len(payload) < at+4 {
		return http2.ErrCodeNo
	}
	return http2.ErrCode(binary.BigEndian.Uint32(payload[at:]))
}
