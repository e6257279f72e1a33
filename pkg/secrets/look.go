package secrets

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Request is what of a request may hold a stand-in, before it is sent on.
type Request struct {
	Host string // in normal form
	Port uint16
	// TLS reports whether the request came, and will go, over TLS.
	TLS    bool
	Method string
	Path   string // in normal form
	// Header and Query are as they were sent. Neither is changed.
	Header http.Header
	Query  string
	// Names are names of fields as they were sent, where one could be a stand-in.
	Names []string
}

// A Misuse is a stand-in where it does not belong. The request must be
// refused: whoever sent it has mistaken its recipient, or tries something.
type Misuse struct {
	// Secret is the name of the key whose stand-in it was, or of another
	// session's.
	Secret string
	// Reason is one sentence for people, lower case, without a full stop. It
	// holds neither key nor stand-in.
	Reason string
	// Signed says that the request is signed as AWS wants it: there is no place in
	// one where a stand-in would help.
	Signed bool
	// Withdrawn says that the key goes nowhere any more.
	Withdrawn bool
}

// SignIn begins the names of tokens that come from a person's sign-in to a tool.
// No key that a person sets can be called so.
const SignIn = "sign-in "

// ListedBy is the command that says where the key of that name may go.
func ListedBy(name string) string {
	if strings.HasPrefix(name, SignIn) {
		return "mojoup-node signin status"
	}
	return "mojoup-node secret list"
}

// Called is how a secret is called in a sentence.
func Called(name string) string {
	if strings.HasPrefix(name, SignIn) {
		return "the " + name
	}
	return name
}

// A Swap is what a request is sent on with.
type Swap struct {
	names  []string // of the secrets
	own    []string // names under which the session's own tokens stand in it
	header []headerSwap
	query  string
	asked  bool // query holds the new one
}

type headerSwap struct {
	name string
	at   int
	text string
}

// Names are the secrets whose keys the request takes along.
func (s *Swap) Names() []string {
	if s == nil {
		return nil
	}
	return s.names
}

// Own are the names under which tokens stand in the request that the session has
// itself.
func (s *Swap) Own() []string {
	if s == nil {
		return nil
	}
	return s.own
}

// Header puts the keys into the fields of the request that is sent on, a copy
// of those that were looked at.
func (s *Swap) Header(h http.Header) {
	if s == nil {
		return
	}
	for _, c := range s.header {
		if values := h[c.name]; c.at < len(values) {
			values = slices.Clone(values) // they may be shared with the request that came
			values[c.at] = c.text
			h[c.name] = values
		}
	}
}

// Query returns the query that the request is sent on with.
func (s *Swap) Query(raw string) string {
	if s == nil || !s.asked {
		return raw
	}
	return s.query
}

// Look finds the stand-ins in header and URL of a request: what is to be put
// in their place, nil where there is none, or a misuse. Nothing is ever added
// to a request, and nothing replaced but a stand-in.
func (r *Ring) Look(req Request) (*Swap, *Misuse) {
	if r == nil {
		return nil, nil
	}
	l := looker{ring: r, state: r.state.Load(), req: &req}
	for name, values := range req.Header {
		if len(name) >= minLength {
			l.anywhere(name, "the name of a header")
		}
		for at, v := range values {
			l.header(name, at, v)
		}
		if len(values) > 1 {
			l.overLines(name, values)
		}
	}
	for _, name := range req.Names {
		l.anywhere(name, "the name of a header")
	}
	if req.Query != "" {
		l.lookQuery()
	}
	l.anywhere(req.Path, "the path")
	l.anywhere(req.Method, "the method")
	if l.misuse != nil {
		return nil, l.misuse
	}
	return l.swap, nil
}

type looker struct {
	ring   *Ring
	state  *ringState
	req    *Request
	swap   *Swap
	misuse *Misuse
}

func (l *looker) swaps() *Swap {
	if l.swap == nil {
		l.swap = &Swap{}
	}
	return l.swap
}

func (l *looker) took(name string) *Swap {
	l.swaps()
	if !slices.Contains(l.swap.names, name) {
		l.swap.names = append(l.swap.names, name)
	}
	return l.swap
}

// anywhere is a place that no binding names.
func (l *looker) anywhere(text, place string) {
	blame := func(i *issued) bool {
		l.blame(i, place)
		return l.misuse == nil
	}
	l.ring.book.find(text, blame)
	if escaped(text) {
		l.encoded(text, "", place)
	}
}

// encoded is a text in which no key is put where its stand-in is percent-encoded.
// What stands in it as it is, or in known, somebody else looks at.
func (l *looker) encoded(text, known, place string) {
	for plain := range spellings(text) {
		l.ring.book.find(plain, func(i *issued) bool {
			if !strings.Contains(text, i.standIn) && !strings.Contains(known, i.standIn) {
				l.blame(i, place)
			}
			return l.misuse == nil
		})
	}
}

// overLines is about a stand-in that is cut in two by lines of one name.
func (l *looker) overLines(name string, values []string) {
	blame := func(i *issued) bool {
		if !slices.ContainsFunc(values, func(v string) bool { return strings.Contains(v, i.standIn) }) {
			l.blame(i, "the header "+name+", over several lines,")
		}
		return l.misuse == nil
	}
	whole := strings.Join(values, "")
	l.ring.book.find(whole, blame)
	if !escaped(whole) {
		return
	}
	for plain := range spellings(whole) {
		l.ring.book.find(plain, blame)
	}
}

// Extension looks at what stands in a request beside its body and its fields, and
// means nothing to anybody who has not agreed on it. req has nothing but where the
// request goes.
func (r *Ring) Extension(req Request, text string) *Misuse {
	if r == nil {
		return nil
	}
	l := looker{ring: r, state: r.state.Load(), req: &req}
	l.anywhere(text, "the extension of a chunk")
	return l.misuse
}

// Trailer finds a stand-in in fields that come behind a request's body, of which
// req has nothing else but where it goes. No binding names a place there.
func (r *Ring) Trailer(req Request) *Misuse { return r.fields(req, "trailer", "") }

// Connect finds a stand-in in the fields by which a program asks the proxy itself
// for a tunnel, in the clear. req has nothing else.
func (r *Ring) Connect(req Request) *Misuse { return r.fields(req, "header", " of CONNECT") }

// fields are of a kind in which no binding names a place.
func (r *Ring) fields(req Request, kind, of string) *Misuse {
	if r == nil {
		return nil
	}
	l := looker{ring: r, state: r.state.Load(), req: &req}
	for _, name := range req.Names {
		l.anywhere(name, "the name of a "+kind+of)
	}
	for name, values := range req.Header {
		in := "the " + kind + " " + name + of
		for _, v := range values {
			l.anywhere(v, in)
			for _, plain := range basicPlains(v) {
				l.anywhere(plain, in)
			}
		}
		if len(values) > 1 {
			l.anywhere(strings.Join(values, ""), in)
		}
	}
	return l.misuse
}

// header looks at a field as it stands and, of Basic, at what it encodes.
func (l *looker) header(name string, at int, value string) {
	l.inHeader(name, at, value, value)
	if escaped(value) {
		l.encoded(value, "", "the header "+name)
	}
	for _, plain := range basicPlains(value) {
		l.inHeader(name, at, value, plain)
		if escaped(plain) {
			l.encoded(plain, "", "the header "+name)
		}
	}
}

// inHeader looks at text, which is value or what that encodes.
func (l *looker) inHeader(name string, at int, value, text string) {
	l.ring.book.find(text, func(i *issued) bool {
		in := "the header " + name
		if h := l.mine(i, in); h != nil {
			if swapped, ok := swapHeader(h.bound.headers[name], value, h.standIn, string(h.value.RevealForTheWire())); ok {
				s := l.took(h.name)
				s.header = append(s.header, headerSwap{name, at, swapped})
			} else {
				l.misplaced(h, in)
			}
		}
		return l.misuse == nil
	})
}

// lookQuery goes by parameters, as servers do, and changes only their values.
func (l *looker) lookQuery() {
	pairs := strings.Split(l.req.Query, "&")
	changed := false
	for at, pair := range pairs {
		name, value, _ := strings.Cut(pair, "=")
		plainName := unescaped(strings.ReplaceAll(name, "+", " "))
		// No key has a blank in it: a plus is one that nobody encoded.
		plain := unescaped(value)
		l.anywhere(name, "the query")
		if escaped(value) {
			l.encoded(value, plain, "the parameter "+shown(plainName))
		}
		l.ring.book.find(plain, func(i *issued) bool {
			if h := l.mine(i, "the query"); h != nil {
				if plain == h.standIn && slices.Contains(h.bound.query, plainName) {
					pairs[at], changed = name+"="+url.QueryEscape(string(h.value.RevealForTheWire())), true
					l.took(h.name)
				} else {
					l.misplaced(h, "the parameter "+shown(plainName))
				}
			}
			return l.misuse == nil
		})
	}
	if changed && l.swap != nil {
		l.swap.query, l.swap.asked = strings.Join(pairs, "&"), true
	}
}

// mine returns the key of a stand-in of this session that came to a host and
// path where the key may go, or notes a misuse.
func (l *looker) mine(i *issued, in string) *held {
	h := l.state.named(i.name)
	if i.own || i.ring != l.ring || l.state.closed || h == nil || h.withdrawn != "" || !l.req.TLS || !h.bound.host(l.req.Host, l.req.Port) || !h.bound.path(l.req.Path) {
		l.blame(i, in)
		return nil
	}
	return h
}

// what stands inside in place of the key.
func (h *held) what() string {
	if len(h.own) > 0 {
		return "a token"
	}
	return "the stand-in"
}

// inside is each text that it is.
func (h *held) inside() []string {
	if len(h.own) > 0 {
		return h.own
	}
	return []string{h.standIn}
}

// blameOwn is about a token that the session has itself, this one or another.
func (l *looker) blameOwn(i *issued, in string) {
	h := l.state.named(i.name)
	switch {
	case i.ring != l.ring || h == nil || l.misuse != nil:
	case h.withdrawn != "":
		l.misuse = &Misuse{Secret: i.name, Withdrawn: true, Reason: in + " holds a token of " + Called(i.name) + h.whichWas()}
	case !slices.Contains(l.swap.Own(), i.name):
		l.swaps().own = append(l.swap.own, i.name)
	}
}

// blame says what is wrong about a stand-in that cannot be right where it is.
func (l *looker) blame(i *issued, in string) {
	if i.own {
		l.blameOwn(i, in)
		return
	}
	h := l.state.named(i.name)
	if l.misuse != nil {
		return
	}
	say := func(format string, a ...any) {
		reason := fmt.Sprintf("%s holds the stand-in of %s", in, Called(i.name)) + fmt.Sprintf(format, a...)
		l.misuse = &Misuse{Secret: i.name, Reason: reason}
	}
	switch {
	case i.ring == l.ring && h != nil && h.withdrawn == "" && !l.state.closed && l.req.signed():
		l.misplaced(h, in)
	case i.ring == l.ring && h != nil && h.withdrawn != "":
		say("%s", h.whichWas())
		l.misuse.Withdrawn = true
	case i.ring != l.ring && i.ring.closed():
		say(" of a session that has ended")
	case i.ring != l.ring:
		say(" of another session")
	case l.state.closed || h == nil:
		say(", which is void: the session has ended")
	case !l.req.TLS:
		say(", whose key never goes over plain HTTP")
	case !h.bound.host(l.req.Host, l.req.Port):
		say(", whose key goes to %s only", h.bound.whereHosts())
	case !h.bound.path(l.req.Path):
		say(", whose key goes to other paths only: %s", strings.Join(h.bound.text.Paths, ", "))
	default:
		l.misplaced(h, in)
	}
}

// misplaced is about a stand-in at the right host in the wrong place.
func (l *looker) misplaced(h *held, in string) {
	switch {
	case l.misuse != nil:
	case l.req.signed():
		l.misuse = &Misuse{Secret: h.name, Signed: true, Reason: fmt.Sprintf("%s holds the stand-in of %s in a request that is signed as AWS wants it, and a stand-in cannot sign", in, Called(h.name))}
	default:
		l.misuse = &Misuse{Secret: h.name, Reason: fmt.Sprintf("%s holds the stand-in of %s, whose key goes elsewhere there: %s", in, Called(h.name), h.bound.wherePlaces())}
	}
}

// shown keeps a name that somebody sent short and printable.
func shown(s string) string { return fmt.Sprintf("%.40q", s) }
