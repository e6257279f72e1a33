package egress

import (
	"crypto/rand"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// A Verdict is one answer to one request, or to a connection where requests
// are not read. Its zero value is a denial.
//
// Session.Record gets each verdict exactly once: a denial before it is
// answered, an allow before anything is sent on. A denied CONNECT to port 443
// is answered by answering the request inside it, so its verdict comes with
// that request, or after ten seconds without one. A connection whose TLS is
// ended gives one verdict for its CONNECT and one for each request on it.
type Verdict struct {
	// ID is short enough to be quoted and cannot be guessed.
	ID      string
	Session string
	Time    time.Time
	Allowed bool
	// Host and Port are empty where the request was not understood, and is not in a
	// tunnel whose host is known.
	Host string
	Port uint16
	// Method is CONNECT where only the connection was judged and nothing more
	// was seen. Path is in normal form and never holds a query.
	Method, Path string
	// Rule, Layer and Reason are the policy's, or Reason is the proxy's own.
	Rule, Layer, Reason string
	// Address is where an allowed request went, if it got that far.
	Address netip.Addr
	// Failure is why what was allowed could not be done all the same, as one
	// sentence. It is empty in a denial.
	Failure string
	// Misused names the secret whose stand-in stood where its key may not go,
	// whatever else the policy says to the request.
	Misused string
	// Signed says that it is a request that no stand-in can sign.
	Signed bool
	// Withdrawn says of that key that it goes nowhere any more.
	Withdrawn bool
	// BytesUp and BytesDown are those of a tunnel that has ended: only
	// Session.Ended sees them.
	BytesUp, BytesDown int64
	// Program is who asked, if that could be found out.
	Program string
}

// What a verdict holds at most, in bytes: whoever asks must not be able to fill
// the disk with what is recorded of it.
const (
	maxMethod       = 32
	maxHost         = 253
	maxRecordedPath = 2048
	maxReason       = 512
)

// cut bounds a text of whoever asked.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "")
}

// newID returns 8 characters of base32: 40 bits, read out over a desk.
func newID() string { return rand.Text()[:8] }

// pending is a verdict on its way. It is made on the first line of whatever
// handles a request and settled by defer, so that no return can pass without a
// record; until it is told otherwise it is a denial.
type pending struct {
	// mu guards all: the transport tells the address from its own goroutine.
	mu       sync.Mutex
	v        Verdict
	record   func(Verdict)
	failed   func(Verdict) // or nil
	recorded bool
}

func (s *serving) begin(l *link) *pending {
	return &pending{record: s.session.Record, failed: s.session.Failed, v: Verdict{
		ID:      newID(),
		Session: s.session.ID,
		Time:    s.proxy.now(),
		Reason:  "the request was not understood",
		Program: l.program(),
	}}
}

// about says what the request is, once that is known.
func (p *pending) about(host string, port uint16, method, path string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.v.Host, p.v.Port, p.v.Method, p.v.Path = cut(host, maxHost), port, cut(method, maxMethod), cut(path, maxRecordedPath)
}

// decide takes over what the policy said. An allow is recorded only when the
// address has been accepted too, or at the end.
func (p *pending) decide(d policy.Decision) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.v.Allowed, p.v.Rule, p.v.Layer, p.v.Reason = d.Allowed, cut(d.Rule, maxReason), cut(d.Layer, maxReason), cut(d.Reason, maxReason)
}

// blame makes it a denial for a reason of the proxy's own.
func (p *pending) blame(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.recorded {
		p.v.Allowed, p.v.Reason = false, cut(reason, maxReason)
	}
}

// misuse adds that a stand-in stood where its key may not go: of all that is
// wrong it is the most urgent.
func (p *pending) misuse(m *secrets.Misuse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.recorded {
		p.v.Misused, p.v.Signed, p.v.Withdrawn = cut(m.Secret, maxReason), m.Signed, m.Withdrawn
		p.v.Reason = cut(m.Reason+"; and "+p.v.Reason, maxReason)
	}
}

// misused names the secret whose stand-in is the reason of a denial.
func (p *pending) misused(m *secrets.Misuse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.v.Misused, p.v.Signed, p.v.Withdrawn = cut(m.Secret, maxReason), m.Signed, m.Withdrawn
}

// deny records a denial for a reason of the proxy's own and returns it.
func (p *pending) deny(reason string) Verdict {
	p.blame(reason)
	return p.settle()
}

// asked completes the denial of a connection by what was asked on it first,
// and records that. It returns the denial as the asker of this request sees it.
func (p *pending) asked(method, path string) Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.v
	v.Method, v.Path = cut(method, maxMethod), cut(path, maxRecordedPath)
	if !p.recorded {
		p.v = v
	}
	p.settleLocked()
	return v
}

// reached records an allow with the address that it leads to.
func (p *pending) reached(a netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.recorded {
		p.v.Address = a
	}
	p.settleLocked()
}

// fail says why what was allowed could not be done, and records it.
func (p *pending) fail(why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.v.Allowed || p.v.Failure != "" {
		return
	}
	p.v.Failure = cut(why, maxReason)
	if p.recorded && p.failed != nil {
		p.failed(p.v)
	}
	p.settleLocked()
}

// settle records what is known now, unless that was done.
func (p *pending) settle() Verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settleLocked()
	return p.v
}

func (p *pending) settleLocked() {
	if !p.recorded {
		p.recorded = true
		p.record(p.v)
	}
}

// drop says that there was no verdict: the question was for the proxy itself,
// or belongs to a verdict that is already recorded.
func (p *pending) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recorded = true
}
