package egress

import (
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// An http2Conn is a connection from inside on which net/http answers HTTP/2. What
// is not in order net/http refuses by itself and tells nobody here: so what the
// connection carries is listened to, and each refusal has its record.
type http2Conn struct {
	net.Conn
	link *link

	in      http2Frames
	preface int         // how much of it came
	ended   atomic.Bool // nothing more is said of what is read

	out   http2Frames
	heads *hpack.Decoder // of answers; nil where that has come to nothing
}

func newHTTP2Conn(c net.Conn, l *link) *http2Conn {
	l.judged = map[string]*atomic.Int64{}
	for status := range ownAnswers {
		l.judged[status] = new(atomic.Int64)
	}
	h := &http2Conn{Conn: c, link: l}
	h.heads = hpack.NewDecoder(hpackTable, h.field)
	return h
}

// hpackTable is how large net/http lets the table be by which it shortens heads
// (RFC 7541, section 4.2).
const hpackTable = 4096

// record writes down what net/http has refused.
func (h *http2Conn) record(reason string) {
	if h.link.denied != nil {
		return // what the tunnel was refused for is recorded
	}
	v := h.link.serving.begin(h.link)
	v.about(h.link.inner.host, h.link.inner.port, "", "")
	v.deny(reason)
}

// Read listens for a beginning that is none of HTTP/2, and for a head that has
// no end: net/http ends such a connection without a word.
func (h *http2Conn) Read(p []byte) (int, error) {
	n, err := h.Conn.Read(p)
	if h.ended.Load() {
		return n, err
	}
	rest := p[:n]
	if h.preface < len(http2.ClientPreface) {
		part := rest[:min(len(rest), len(http2.ClientPreface)-h.preface)]
		if string(part) != http2.ClientPreface[h.preface:h.preface+len(part)] {
			h.ended.Store(true)
			h.record("what came is not HTTP/2, which had been agreed on")
			return n, err
		}
		h.preface, rest = h.preface+len(part), rest[len(part):]
	}
	h.in.feed(rest, nil)
	if err != nil && !h.ended.Swap(true) {
		if h.cutOff() && !errors.Is(err, net.ErrClosed) && h.link.serving.life.Err() == nil {
			h.record(errHeadCut.reason)
		}
	}
	return n, err
}

// cutOff reports whether what was read ends within a request's head.
func (h *http2Conn) cutOff() bool {
	if h.preface < len(http2.ClientPreface) {
		return h.preface > 0
	}
	return h.in.have > 0 && h.in.have < len(h.in.head) || h.in.inHead()
}

// Write listens to what net/http answers.
func (h *http2Conn) Write(p []byte) (int, error) {
	h.out.feed(p, h.said)
	return h.Conn.Write(p)
}

// said gets the frames that net/http writes, whole.
func (h *http2Conn) said(f *http2Frames) {
	switch f.kind() {
	case http2.FrameRSTStream:
		if why, ok := brokenStreams[codeAt(f.payload, 0)]; ok {
			h.record(why)
		}
	case http2.FrameGoAway:
		if code := codeAt(f.payload, 4); code != http2.ErrCodeNo {
			h.ended.Store(true)
			h.record(brokenBy(code))
		}
	case http2.FrameHeaders, http2.FrameContinuation:
		if h.heads == nil {
			return
		}
		_, err := h.heads.Write(f.payload)
		if err == nil && f.flags()&endHeaders != 0 {
			err = h.heads.Close()
		}
		if err != nil {
			h.heads = nil
		}
	}
}

// field gets the fields of every answer, and notices those that nobody has
// counted before: net/http has given them itself.
func (h *http2Conn) field(f hpack.HeaderField) {
	if f.Name != ":status" {
		return
	}
	if n := h.link.judged[f.Value]; n != nil && n.Add(-1) < 0 {
		n.Add(1)
		h.record(ownAnswers[f.Value])
	}
}

// ownAnswers are the statuses of answers that net/http gives over HTTP/2 itself,
// and why.
var ownAnswers = map[string]string{
	strconv.Itoa(http.StatusBadRequest):                  "the request has a field that HTTP/2 has no use for, as Connection",
	strconv.Itoa(http.StatusRequestHeaderFieldsTooLarge): errHeadTooLarge.reason,
}

// judged counts, of the answers to a request that was judged, those that look
// like net/http's own.
type judged struct {
	http.ResponseWriter
	link *link
}

// WriteHeader implements [http.ResponseWriter]. It returns when the head has
// been written, or never will be, so that what is counted is exact.
func (j *judged) WriteHeader(status int) {
	n := j.link.judged[strconv.Itoa(status)]
	if n == nil {
		j.ResponseWriter.WriteHeader(status)
		return
	}
	n.Add(1)
	j.ResponseWriter.WriteHeader(status)
	if http.NewResponseController(j.ResponseWriter).Flush() != nil {
		n.Add(-1)
	}
}

// Unwrap is for [http.ResponseController].
func (j *judged) Unwrap() http.ResponseWriter { return j.ResponseWriter }

// brokenStreams are why a request is refused while its connection goes on. What
// has no place here says nothing of a request: it was answered before it had
// ended, or its host's answer broke off.
var brokenStreams = map[http2.ErrCode]string{
	http2.ErrCodeProtocol:      "the request is not in order by the rules of HTTP/2",
	http2.ErrCodeFlowControl:   "more of the request's body was sent than there was room for",
	http2.ErrCodeFrameSize:     "a frame of the request is not as long as it must be",
	http2.ErrCodeRefusedStream: "more requests at once than a connection takes",
}

// brokenBy is why a connection is ended.
func brokenBy(code http2.ErrCode) string {
	switch code {
	case http2.ErrCodeFrameSize:
		return "a frame is not as long as it must be, and nothing more is read"
	case http2.ErrCodeFlowControl:
		return "more was sent than there was room for, and nothing more is read"
	case http2.ErrCodeCompression:
		return "the fields of a request cannot be read, and nothing more is read"
	case http2.ErrCodeEnhanceYourCalm:
		return "requests were begun and given up too often, and nothing more is read"
	}
	return "what was sent is not in order by the rules of HTTP/2, and nothing more is read"
}
