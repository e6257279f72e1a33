package egress

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

const (
	maxHeadBytes = 64 << 10
	maxFields    = 100
)

// A refusal is a request that is not read any further: it could mean two
// things to two readers, or is no request to a proxy at all.
type refusal struct {
	status int
	reason string
	inBody bool   // its head was in order, and has a verdict of its own
	method string // where it is known and all that is
}

func (r *refusal) Error() string { return r.reason }

func malformed(reason string) *refusal {
	return &refusal{status: http.StatusBadRequest, reason: reason}
}

// longMethod refuses a method that nobody has defined: the longest of those
// that are registered has 17 characters (RFC 9110, section 16.1.1).
func longMethod(method string) *refusal {
	return &refusal{status: http.StatusNotImplemented, reason: fmt.Sprintf("the method is longer than %d characters", maxMethod), method: method}
}

func tooLarge(reason string) *refusal {
	return &refusal{status: http.StatusRequestHeaderFieldsTooLarge, reason: reason}
}

// A head is a request line with its fields, as far as they decide where the
// request goes and where it ends.
type head struct {
	method, target string
	minor          byte // '0' or '1': the digit after HTTP/1.
	host           string
	hosts          int
	length         int64 // of the body; -1 if chunked
	upgrade        bool
}

// fields collects what several fields of one head say together.
type fields struct {
	count, lengths, codings int
	connection              []string
	upgrade                 []string
}

// parseHead reads a whole request head, up to and with its empty line, more
// strictly than net/http: whatever it takes, net/http reads the same way.
// Every other reading that some server has is refused instead of repaired.
func parseHead(data []byte) (head, *refusal) {
	var h head
	lines, ok := bytes.CutSuffix(data, []byte("\r\n\r\n"))
	if !ok {
		return head{}, malformed("the request head has no end")
	}
	line, rest, more := bytes.Cut(lines, []byte("\r\n"))
	if why := h.requestLine(line); why != nil {
		return head{}, why
	}
	var f fields
	for more {
		line, rest, more = bytes.Cut(rest, []byte("\r\n"))
		if f.count++; f.count > maxFields {
			return head{}, tooLarge("more than 100 header fields")
		}
		name, value, why := field(line)
		if why != nil {
			return head{}, why
		}
		if why := h.note(&f, name, value); why != nil {
			return head{}, why
		}
	}
	return h, h.finish(&f)
}

func (h *head) requestLine(line []byte) *refusal {
	method, rest, ok := bytes.Cut(line, []byte(" "))
	target, version, ok2 := bytes.Cut(rest, []byte(" "))
	if !ok || !ok2 || len(target) == 0 {
		return malformed("the request line is not a method, a target and a version with one space between them")
	}
	if !isToken(method) {
		return malformed("the method is not a token")
	}
	if len(method) > maxMethod {
		return longMethod(string(method))
	}
	if !visible(string(target)) {
		return malformed("the request target holds a byte that no target has")
	}
	switch string(version) {
	case "HTTP/1.1":
		h.minor = '1'
	case "HTTP/1.0":
		h.minor = '0'
	default:
		return malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	h.method, h.target = string(method), string(target)
	return nil
}

// visible reports whether s could be a request target: with a blank in it, two
// readers of the line it stands in may find two targets.
func visible(s string) bool {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// field reads one line of a head or of trailers.
func field(line []byte) (name string, value []byte, why *refusal) {
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		return "", nil, malformed("a header field is folded over lines")
	}
	raw, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || !isToken(raw) {
		return "", nil, malformed("a header field's name is not a token followed by a colon")
	}
	value = bytes.Trim(value, " \t")
	for _, c := range value {
		if c < ' ' && c != '\t' || c == 0x7f {
			return "", nil, malformed("a header field holds a control character")
		}
	}
	return strings.ToLower(string(raw)), value, nil
}

// note remembers the fields on which routing and framing depend.
func (h *head) note(f *fields, name string, value []byte) *refusal {
	switch name {
	case "host":
		if h.hosts++; h.hosts > 1 {
			return malformed("more than one Host")
		}
		h.host = string(value)
	case "content-length":
		if f.lengths++; f.lengths > 1 {
			return malformed("more than one Content-Length")
		}
		n, ok := decimal(value)
		if !ok {
			return malformed("Content-Length is not a plain number")
		}
		h.length = n
	case "transfer-encoding":
		if f.codings++; f.codings > 1 || string(value) != "chunked" {
			return malformed("Transfer-Encoding is not exactly chunked")
		}
	case "expect":
		if !strings.EqualFold(string(value), "100-continue") {
			return malformed("Expect is not 100-continue")
		}
	case "connection":
		f.connection = append(f.connection, string(value))
	case "upgrade":
		f.upgrade = append(f.upgrade, string(value))
	}
	return nil
}

func (h *head) finish(f *fields) *refusal {
	switch {
	case f.codings > 0 && f.lengths > 0:
		return malformed("both Content-Length and Transfer-Encoding")
	case f.codings > 0 && h.minor == '0':
		return malformed("Transfer-Encoding in HTTP/1.0")
	case h.method == http.MethodConnect && f.codings+f.lengths > 0:
		return malformed("CONNECT with a body")
	case h.hosts == 0 && h.minor == '1' && h.method != http.MethodConnect:
		return malformed("no Host")
	}
	if why := h.checkTarget(); why != nil {
		return why
	}
	if f.codings > 0 {
		h.length = -1
	}
	h.upgrade = h.minor == '1' && upgrades(f.connection, f.upgrade, h.length != 0)
	return nil
}

// checkTarget refuses what net/http would refuse by itself, and unrecorded. It
// also holds Host to a target that names a host: net/http prefers the target
// and forgets the field, so that this is the only place to compare.
func (h *head) checkTarget() *refusal {
	if h.hosts > 0 {
		if _, why := parseAuthority(h.host, portHTTP); why != nil {
			return malformed("Host: " + why.reason)
		}
	}
	if h.method == http.MethodConnect {
		return nil // it is no URL; whoever opens the tunnel reads it
	}
	if _, err := url.ParseRequestURI(h.target); err != nil {
		return malformed("the request target is no URL")
	}
	after, ok := cutScheme(h.target)
	if !ok || h.hosts == 0 {
		return nil
	}
	t, why := parseAuthority(authorityOf(after), portHTTP)
	if why == nil && !agrees(h.host, t) {
		return malformed("Host names another place than the target")
	}
	return why
}

// cutScheme takes http:// off an absolute target.
func cutScheme(target string) (string, bool) {
	const scheme = "http://"
	if len(target) < len(scheme) || !strings.EqualFold(target[:len(scheme)], scheme) {
		return "", false
	}
	return target[len(scheme):], true
}

func authorityOf(afterScheme string) string {
	if end := strings.IndexAny(afterScheme, "/?"); end >= 0 {
		return afterScheme[:end]
	}
	return afterScheme
}

// upgrades reports whether a request may turn its connection into another
// protocol. HTTP in disguise may not: its later requests would not be judged.
// Nor may a request with a body, because then nothing says clearly where the
// other protocol begins.
func upgrades(connection, upgrade []string, body bool) bool {
	if body || len(upgrade) != 1 || !isToken([]byte(strings.ReplaceAll(upgrade[0], "/", ""))) {
		return false
	}
	protocol, _, _ := strings.Cut(strings.ToLower(upgrade[0]), "/")
	if protocol == "" || strings.HasPrefix(protocol, "h2") || protocol == "http" || protocol == "tls" {
		return false
	}
	return hasToken(connection, "upgrade")
}

// hasToken reports whether a list of comma-separated fields holds a word.
func hasToken(fields []string, word string) bool {
	for _, f := range fields {
		for t := range strings.SplitSeq(f, ",") {
			if strings.EqualFold(strings.Trim(t, " \t"), word) {
				return true
			}
		}
	}
	return false
}

// decimal reads digits and nothing else: ParseInt would take a sign.
func decimal(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > 18 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(string(b), 10, 64)
	return n, err == nil
}

// isToken reports whether b is a token of RFC 9110, section 5.6.2.
func isToken(b []byte) bool {
	for _, c := range b {
		switch {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return len(b) > 0
}
