package egress

import (
	"bytes"
	"math"
)

// The part of a request that a framer expects next.
type part uint8

const (
	inHead part = iota
	inBody
	inChunkSize
	inChunk
	inChunkEnd
	inTrailer
	inOther // after CONNECT or an upgrade: bytes of another protocol
)

const (
	// maxChunkLine bounds a chunk's size with its extensions.
	maxChunkLine = 256
	crlf         = "\r\n"
)

var (
	errHeadTooLarge   = tooLarge("the request head is longer than 64 KiB")
	errHeadCut        = malformed("the request head did not come to its end")
	errChunkLine      = malformed("a chunk's size line is too long")
	errTrailerTooLong = malformed("a trailer is longer than 64 KiB")
)

// A framer follows a stream of HTTP/1 requests and says how much of it may be
// read on. It lets a head pass only as a whole and only if [parseHead] takes
// it, and it knows where each body ends, so that no server behind it finds a
// request that was not looked at.
type framer struct {
	part    part
	left    int64                 // bytes left of a body or chunk
	trailer int                   // bytes of trailers so far
	behind  int                   // how many there are
	look    func(field) *refusal  // at each trailer, or nil
	aside   func(string) *refusal // at each extension of a chunk, or nil
	scanned int                   // bytes of an unfinished head or line already looked at
	last    head                  // the head that passed last; its fields lie in room
	room    []field
	heads   int // how many did
}

// passable returns how many bytes may pass without being looked at.
func (f *framer) passable() int64 {
	switch f.part {
	case inBody, inChunk:
		return f.left
	case inOther:
		return math.MaxInt64
	}
	return 0
}

// passed notes that n passable bytes went by.
func (f *framer) passed(n int64) {
	if f.part == inOther || n == 0 {
		return
	}
	f.left -= n
	if f.left > 0 {
		return
	}
	if f.part == inChunk {
		f.part = inChunkEnd
	} else {
		f.part = inHead
	}
}

// feed looks at data, all that was read and not yet let through, and returns
// how many of its leading bytes may be. None means that more must be read.
func (f *framer) feed(data []byte) (int, *refusal) {
	if len(data) == 0 {
		return 0, nil
	}
	switch f.part {
	case inHead:
		return f.head(data)
	case inChunkSize:
		return f.chunkSize(data)
	case inChunkEnd:
		return f.chunkEnd(data)
	case inTrailer:
		return f.trailerLine(data)
	}
	n := min(f.passable(), int64(len(data)))
	f.passed(n)
	return int(n), nil
}

func (f *framer) head(data []byte) (int, *refusal) {
	end, why := f.end(data, crlf+crlf, maxHeadBytes, errHeadTooLarge)
	if why != nil || end == 0 {
		return 0, why
	}
	h, why := parseHead(data[:end], f.room)
	if why != nil {
		return 0, why
	}
	if h.method == "CONNECT" && f.heads > 0 {
		return 0, malformed("CONNECT is not the first request of its connection")
	}
	f.last, f.room = h, h.fields
	f.heads++
	switch {
	case h.method == "CONNECT" || h.upgrade:
		f.part = inOther
	case h.length < 0:
		f.part = inChunkSize
	case h.length > 0:
		f.part, f.left = inBody, h.length
	}
	return end, nil
}

// end returns where mark ends in data, or 0 if it is not there yet. It refuses
// a line that ends in anything but CR LF as soon as it sees one: a head of
// bare LFs would never end otherwise.
func (f *framer) end(data []byte, mark string, limit int, over *refusal) (int, *refusal) {
	for i := f.scanned; i < len(data); i++ {
		switch c := data[i]; {
		case i >= limit:
			return 0, over
		case c == '\n' && (i == 0 || data[i-1] != '\r'):
			return 0, malformed("a line ends in a bare LF")
		case c != '\n' && i > 0 && data[i-1] == '\r':
			return 0, malformed("a CR stands alone")
		case c == 0:
			return 0, malformed("a NUL stands in the head")
		case c == '\n' && bytes.HasSuffix(data[:i+1], []byte(mark)):
			f.scanned = 0
			return i + 1, nil
		}
	}
	f.scanned = len(data)
	return 0, nil
}

func (f *framer) chunkSize(data []byte) (int, *refusal) {
	end, why := f.end(data, crlf, maxChunkLine, errChunkLine)
	if why != nil || end == 0 {
		return 0, why
	}
	size, extension, _ := bytes.Cut(data[:end-2], []byte(";"))
	n, ok := hexadecimal(size)
	if !ok {
		return 0, malformed("a chunk's size is not a plain hexadecimal number")
	}
	for _, c := range extension {
		if c < ' ' && c != '\t' || c >= 0x7f {
			return 0, malformed("a chunk's extension holds a control character")
		}
	}
	if f.aside != nil && len(extension) > 0 {
		if why := f.aside(string(extension)); why != nil {
			return 0, why
		}
	}
	if n == 0 {
		f.part, f.trailer, f.behind = inTrailer, 0, 0
	} else {
		f.part, f.left = inChunk, n
	}
	return end, nil
}

func (f *framer) chunkEnd(data []byte) (int, *refusal) {
	if data[0] != '\r' || len(data) > 1 && data[1] != '\n' {
		return 0, malformed("a chunk is not as long as it says")
	}
	if len(data) == 1 {
		return 0, nil
	}
	f.part = inChunkSize
	return 2, nil
}

func (f *framer) trailerLine(data []byte) (int, *refusal) {
	end, why := f.end(data, crlf, maxHeadBytes, errTrailerTooLong)
	if why != nil || end == 0 {
		return 0, why
	}
	if f.trailer += end; f.trailer > maxHeadBytes {
		return 0, malformed("the trailers are longer than 64 KiB")
	}
	if end == len(crlf) {
		f.part = inHead
		return end, nil
	}
	one, why := parseField(string(data[:end-2]))
	if why != nil {
		return 0, why
	}
	switch one.key {
	case "Content-Length", "Transfer-Encoding", "Trailer", "Host":
		return 0, malformed("a trailer speaks about framing or routing")
	}
	if f.behind++; f.behind > maxFields {
		return 0, malformed("more than 100 trailers")
	}
	if f.look != nil {
		if why := f.look(one); why != nil {
			return 0, why
		}
	}
	return end, nil
}

// hexadecimal reads 1 to 15 hexadecimal digits, so that the result is positive.
func hexadecimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 15 {
		return 0, false
	}
	var n int64
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | int64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | int64(c-'a'+10)
		case c >= 'A' && c <= 'F':
			n = n<<4 | int64(c-'A'+10)
		default:
			return 0, false
		}
	}
	return n, true
}
