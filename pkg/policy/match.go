package policy

import (
	"net/netip"
	"strings"
)

// query is a request whose parts are known to be in normal form.
type query struct {
	host         string
	addr         netip.Addr // valid where host is an address
	firstDot     int
	port         uint16
	tls          bool
	method, path string
	push         bool // path is one to which git pushes
	ref          string
	change       Change
}

// ask turns a request into a query, or says why it cannot be judged.
func ask(req *Request) (q query, why string) {
	q = query{host: req.Host, port: req.Port, tls: req.TLS, method: req.Method, path: req.Path, ref: req.Ref, change: req.Change}
	var ok bool
	q.addr, ok = isNormalHost(req.Host)
	switch {
	case !ok:
		return q, "the host is missing or not in its normal form"
	case req.Port == 0:
		return q, "there is no port 0"
	case q.addr.IsValid() && IsMetadata(q.addr):
		return q, "a cloud's metadata address is never opened"
	case req.Method == "CONNECT":
		return q, "a tunnel within a connection cannot be judged"
	case req.Method == "" && req.Path != "":
		return q, "a path without a method cannot be judged"
	case req.Method != "" && !isNormalPath(req.Path):
		return q, "the path is missing or not in its normal form"
	}
	q.firstDot = strings.IndexByte(q.host, '.')
	q.push = req.Method != "" && IsPush(req.Path)
	if req.Ref != "" && (!q.push || checkRef(req.Ref) != nil) {
		return q, "the reference is not in order, or the request is no push"
	}
	return q, ""
}

// verdict is what one layer says to a query. The zero value refuses.
type verdict struct {
	deny    *rule // that forbids it, or nil
	unseen  bool  // deny forbids what cannot be seen here
	allow   *rule
	inspect bool // method and path must be seen first
	push    bool // the references must be seen first
	raw     bool
	ranges  []netip.Prefix
	near    *rule // that came closest, where none allows
	nearBy  reason
}

func (v *verdict) allowed() bool { return v.deny == nil && v.allow != nil }

// judge asks one layer. It is the only place that does: deciding and
// explaining cannot differ.
func (l *layerIndex) judge(q *query) (v verdict) {
	var room [8][]int32
	l.forbids(q, &v, l.deny.lookup(q, room[:0]))
	if v.deny == nil {
		l.permits(q, &v, l.allow.lookup(q, room[:0]))
	}
	return v
}

func (l *layerIndex) forbids(q *query, v *verdict, lists [][]int32) {
	first := int32(-1)
	for _, list := range lists {
		for _, i := range list {
			r := l.deny.rules[i]
			switch fit := r.fits(q); {
			case fit == reasonInspect:
				v.inspect = true
			case (fit == reasonMatch || fit == reasonUnseen) && (first < 0 || i < first):
				v.deny, v.unseen, first = r, fit == reasonUnseen, i
			}
		}
	}
}

// permits prefers a rule that needs no look into the connection: what it
// allows, no other rule of the layer takes away.
func (l *layerIndex) permits(q *query, v *verdict, lists [][]int32) {
	best, bestAt := reasonNone, int32(0)
	claimed := l.allow.claimed(q, lists)
	var looked []netip.Prefix // opened by rules that must see the request first
	for _, list := range lists {
		for _, i := range list {
			r := l.allow.rules[i]
			fit := r.fits(q)
			if claimed && len(r.push) == 0 {
				fit = unclaimed(q, fit)
			}
			if fit > best || fit == best && i < bestAt {
				best, bestAt, v.near = fit, i, r
			}
			switch fit {
			case reasonInspect:
				looked = union(looked, r.ranges)
			case reasonMatch, reasonPush:
				v.raw = v.raw || r.raw
				v.ranges = union(v.ranges, r.ranges)
			}
		}
	}
	v.nearBy = best
	switch best {
	case reasonInspect:
		v.allow, v.inspect, v.ranges = v.near, true, looked
	case reasonPush:
		v.allow, v.push = v.near, true
	case reasonMatch:
		v.allow = v.near
		// A push must be seen, whatever else on this host need not be.
		v.inspect = v.inspect || claimed && q.method == ""
	}
}

// unclaimed is what is left of a rule's fit on a host where others say what may
// be pushed.
func unclaimed(q *query, fit reason) reason {
	if q.push || q.method == "" && !q.tls {
		return reasonNone
	}
	return fit
}

// union shares memory where one of the two is empty, which is nearly always.
func union(a, b []netip.Prefix) []netip.Prefix {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	return append(a[:len(a):len(a)], b...)
}

// CommonRanges are those that both lists open.
func CommonRanges(a, b []netip.Prefix) (out []netip.Prefix) {
	for _, p := range a {
		for _, q := range b {
			switch {
			case !p.Overlaps(q):
			case p.Bits() >= q.Bits():
				out = append(out, p)
			default:
				out = append(out, q)
			}
		}
	}
	return out
}

// refusal is the sentence for a layer that does not allow.
func (l *layerIndex) refusal(v *verdict) (label, text string) {
	switch {
	case v.deny != nil && v.unseen:
		return v.deny.label, v.deny.texts[reasonUnseen]
	case v.deny != nil:
		return v.deny.label, v.deny.texts[reasonMatch]
	case v.near != nil:
		return v.near.label, v.near.texts[v.nearBy]
	}
	return "", l.none
}

const nothingAllowed = "no layer of the policy has network rules, so nothing is allowed"

// Decide answers a request: allowed if and only if every layer that speaks of
// the network allows it and none denies it. It is a function of its arguments,
// safe for concurrent use, and denies what is not in normal form. A nil or
// zero Effective denies everything.
//
// A request without a method is a connection. It is allowed with
// [Decision.Inspect] where TLS must be ended and method and path be asked for.
// Where methods or paths matter and cannot be seen (neither a request nor
// TLS), it is denied.
func (e *Effective) Decide(req Request) Decision {
	q, why := ask(&req)
	if why != "" {
		return Decision{Reason: why}
	}
	if e == nil || len(e.layers) == 0 {
		return Decision{Reason: nothingAllowed}
	}
	var d Decision
	for i, l := range e.layers {
		v := l.judge(&q)
		if !v.allowed() {
			d = Decision{Layer: l.name}
			d.Rule, d.Reason = l.refusal(&v)
			return d
		}
		d.join(&v, i == 0)
	}
	d.Allowed = true
	// What must be looked into cannot be any bytes.
	d.Raw = d.Raw && !d.Inspect
	return d
}

// join takes the word of one more layer that allows. The rule named in the end
// is that of the lowest layer, which is the one that a person can change.
func (d *Decision) join(v *verdict, first bool) {
	d.Inspect = d.Inspect || v.inspect
	d.Push = d.Push || v.push
	d.Rule, d.Layer = v.allow.label, v.allow.source.Layer
	d.Reason = v.allow.texts[v.nearBy]
	if first {
		d.Raw, d.Addresses = v.raw, v.ranges
		return
	}
	d.Raw = d.Raw && v.raw
	if len(d.Addresses) > 0 {
		d.Addresses = CommonRanges(d.Addresses, v.ranges)
	}
}
