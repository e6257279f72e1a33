// Package egress promises that no byte leaves a session except by an allow of
// its policy, and that every allow and every deny is recorded with its reason.
//
// One [Proxy] serves every session of a node. [Proxy.Serve] takes a session's
// listener, which lies inside the session's network namespace, and speaks
// HTTP/1.1 as a proxy there: CONNECT and absolute-form requests. A connection
// passes these stations, and what fails at one does not reach the next:
//
//	head      read strictly; whatever could be read in two ways is refused
//	target    one normal form of the name, used for everything that follows
//	judge     the policy, loaded once per request
//	resolve   once; what is not public (or opened twice) is dropped
//	dial      exactly those addresses, checked again at the socket
//	tunnel    only a ClientHello for that very name may open it, or
//	inspect   TLS ends here, and each request on it starts again at target
//
// On port 80 a tunnel may carry plain HTTP, because some clients open one even
// for that. It is then no tunnel: its requests are read and judged one by one.
// A rule with protocol tcp lets any bytes pass, whatever the port.
//
// A denied CONNECT to port 443 is answered inside TLS, under the session's own
// authority, with 403 and a short text. Programs show that text within a
// second; refused at CONNECT itself they show nothing and try again for
// minutes. Nothing is resolved or dialled for it. A denied WebSocket upgrade
// gets the same 403: a client that then asks over plain HTTPS would be denied
// too, so there is nothing that a 426 could lead it to.
//
// TLS is also ended for every host that a key of the session is bound to. A
// stand-in in header or URL of a request that is read is swapped where its
// binding says and is a denial anywhere else, on hosts that the policy denies
// too, and one behind a body, in a trailer, is a denial everywhere. Bodies are not
// searched, but for the fields that a binding names.
//
// Of a push by git that the policy limits by reference the list of commands is
// read before anything is sent on; each is judged, the old value by what the
// server said it has. What is refused is answered as a git server does it.
package egress

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/dialguard"
	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// A Judge answers whether a request may pass. *policy.Effective is one. It
// must be immutable: a changed policy is a new Judge.
type Judge interface {
	Decide(policy.Request) policy.Decision
}

// A Resolver answers names. It is asked for exactly the name that was judged.
type Resolver = dialguard.Resolver

// Options are what all sessions of a node share.
type Options struct {
	// Logger gets what an operator would want to know; nil discards it. No
	// query string, header or body is ever logged.
	Logger *slog.Logger
	// Roots verify upstream servers where TLS is ended; nil means the system's.
	Roots *x509.CertPool
	// Resolver answers names; nil means the system's, without search domains. A
	// name of one label is looked for in the machine's hosts file first.
	Resolver Resolver
	// Private holds the ranges that rules may open (node.network.private).
	Private []netip.Prefix
	// Own holds the node's own listeners. They are never dialled. An
	// unspecified address stands for every address of this machine.
	Own []netip.AddrPort
	// Now stamps verdicts; nil means time.Now.
	Now func() time.Time
}

// limits are the times and numbers that tests shorten.
type limits struct {
	head      time.Duration // for the first request of a connection
	hello     time.Duration // for a ClientHello, and for a whole handshake
	resolve   time.Duration
	dial      time.Duration
	idle      time.Duration // between two requests of a connection
	halfOpen  time.Duration // of silence in a tunnel that one side has ended
	linger    time.Duration // for a refused client to read why
	maxOpen   int           // connections of one session
	maxAskNew int           // names of one session that were not asked before, per minute
}

func defaultLimits() limits {
	return limits{
		head:      time.Minute,
		hello:     10 * time.Second,
		resolve:   10 * time.Second,
		dial:      30 * time.Second,
		idle:      10 * time.Minute,
		halfOpen:  15 * time.Minute,
		linger:    500 * time.Millisecond,
		maxOpen:   1024,
		maxAskNew: 300,
	}
}

// A Proxy is the way out of a node. It is safe for concurrent use.
type Proxy struct {
	log      *slog.Logger
	roots    *x509.CertPool
	resolver Resolver
	guard    *dialguard.Guard
	now      func() time.Time
	limits   limits
	// dial is the guard's; tests put in-memory connections here.
	dial func(context.Context, []netip.Addr, uint16, []netip.Prefix) (net.Conn, error)
}

// New returns a proxy that serves no session yet.
func New(o Options) (*Proxy, error) {
	guard, err := dialguard.New(o.Private, o.Own)
	if err != nil {
		return nil, fmt.Errorf("setting up the way out: %w", err)
	}
	p := &Proxy{log: o.Logger, roots: o.Roots, resolver: o.Resolver, guard: guard, now: o.Now, limits: defaultLimits(), dial: guard.Dial}
	if p.log == nil {
		p.log = slog.New(slog.DiscardHandler)
	}
	if p.resolver == nil {
		p.resolver = rooted{hosts: hostsOnly(), dns: net.DefaultResolver}
	}
	if p.now == nil {
		p.now = time.Now
	}
	return p, nil
}

// A Program is who opened a connection inside, as far as could be found out.
// It is shown to people and never decides anything.
type Program struct {
	PID  int
	Name string
}

// A Move is a reference of another machine that a push wants elsewhere.
type Move struct{ Reference, Was, Is string }

// A Session is one user of the way out.
type Session struct {
	// ID stands in every verdict.
	ID string
	// Judge returns the policy now in force. It is called once per request; nil
	// means that there is none, and the request is denied with 503.
	Judge func() Judge
	// CA signs for the hosts where TLS is ended here. Programs inside trust it.
	CA *leafcert.Authority
	// Keys holds the session's keys, or is nil. TLS is ended for the hosts that
	// they are bound to; their stand-ins are swapped there and refused anywhere
	// else that requests are read, and what such a host says is masked.
	Keys *secrets.Ring
	// Keeper, if set, keeps keys of the ring fresh.
	Keeper Keeper
	// Answers, if set, answers some requests in a host's place.
	Answers Answers
	// Record takes every verdict, from many goroutines and before the request
	// goes on, so it must be quick and must not block. See [Verdict].
	Record func(Verdict)
	// Closed, if set, says why nothing may pass now, or "". It is asked once per
	// request, before the policy; the request is denied with 503. It is for a
	// node that cannot write down what it lets through.
	Closed func() string
	// Failed, if set, gets an allow once more where what it allowed could not be
	// done, with its Failure. It must be as quick as Record.
	Failed func(Verdict)
	// Ended, if set, gets the verdict of a tunnel once more when it has ended,
	// with its bytes and the address that was reached.
	Ended func(Verdict)
	// Forward, if set, proves for each move of a reference that what it has led
	// to is an ancestor of what it is to lead to; an error is one sentence. nil
	// proves nothing.
	Forward func(context.Context, []Move) []error
	// WhoAsked names the program behind a connection, asked at most once for
	// each new one and before anything is answered: it must be quick. nil means
	// nobody knows.
	WhoAsked func(net.Addr) (Program, bool)
}

func (s Session) check() error {
	switch {
	case s.ID == "":
		return errors.New("serving a session: it has no id")
	case s.Judge == nil:
		return errors.New("serving a session: it has no judge")
	case s.CA == nil:
		return errors.New("serving a session: it has no authority")
	case s.Record == nil:
		return errors.New("serving a session: nobody records its verdicts")
	}
	return nil
}
