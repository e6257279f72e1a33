package egress

import (
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/secrets"
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
	method string // where it is known and all that is
	// verdict is set where it is recorded: its head was in order, and has one of
	// its own.
	verdict Verdict
	misuse  *secrets.Misuse // where it is a stand-in
}

func (r *refusal) Error() string { return r.reason }

// text is what whoever asked is told of a refusal that is recorded.
func (r *refusal) text() string {
	if r.misuse != nil {
		return denialText(r.verdict)
	}
	return refusedText(r.verdict)
}

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

// A head is a request line with its fields, and what they say about where the
// request goes and where it ends.
type head struct {
	method, target string
	minor          byte    // '0' or '1': the digit after HTTP/1.
	fields         []field // as they were sent, in their order
	host           string
	hosts          int
	length         int64 // of the body; -1 if chunked
	upgrade        bool
	close          bool // the client wants no other answer on its connection
}

// A field is one line of a head. Its key is its name as net/http spells it.
type field struct{ name, key, value string }

// framing collects what several fields of one head say together.
type framing struct {
	lengths, codings int
	connection       []string
	upgrade          []string
}

// parseHead reads a whole request head, up to and with its empty line, more
// strictly than net/http: whatever it takes, net/http reads the same way.
// Every other reading that some server has is refused instead of repaired. The
// fields are put into room.
func parseHead(data []byte, room []field) (head, *refusal) {
	h := head{fields: room[:0]}
	lines, ok := strings.CutSuffix(string(data), "\r\n\r\n")
	if !ok {
		return head{}, malformed("the request head has no end")
	}
	line, rest, more := strings.Cut(lines, "\r\n")
	if why := h.requestLine(line); why != nil {
		return head{}, why
	}
	var f framing
	for more {
		line, rest, more = strings.Cut(rest, "\r\n")
		if len(h.fields) == maxFields {
			return head{}, tooLarge("more than 100 header fields")
		}
		one, why := parseField(line)
		if why != nil {
			return head{}, why
		}
		if why := h.note(&f, one); why != nil {
			return head{}, why
		}
		h.fields = append(h.fields, one)
	}
	return h, h.finish(&f)
}

func (h *head) requestLine(line string) *refusal {
	method, rest, ok := strings.Cut(line, " ")
	target, version, ok2 := strings.Cut(rest, " ")
	if !ok || !ok2 || len(target) == 0 {
		return malformed("the request line is not a method, a target and a version with one space between them")
	}
	if !isToken(method) {
		return malformed("the method is not a token")
	}
	if len(method) > maxMethod {
		return longMethod(method)
	}
	if !visible(target) {
		return malformed("the request target holds a byte that no target has")
	}
	switch version {
	case "HTTP/1.1":
		h.minor = '1'
	case "HTTP/1.0":
		h.minor = '0'
	default:
		return malformed("the version is neither HTTP/1.1 nor HTTP/1.0")
	}
	h.method, h.target = method, target
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

// parseField reads one line of a head or of trailers.
func parseField(line string) (field, *refusal) {
	if len(line) > 0 && (line[0] == ' ' || line[0] == '\t') {
		return field{}, malformed("a header field is folded over lines")
	}
	name, value, ok := strings.Cut(line, ":")
	if !ok || !isToken(name) {
		return field{}, malformed("a header field's name is not a token followed by a colon")
	}
	value = strings.Trim(value, " \t")
	if !isPlain(value) {
		return field{}, malformed("a header field holds a control character")
	}
	return field{name, textproto.CanonicalMIMEHeaderKey(name), value}, nil
}

// isPlain reports whether s has no control character but tabs.
func isPlain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// note remembers the fields on which routing and framing depend.
func (h *head) note(f *framing, one field) *refusal {
	switch one.key {
	case "Host":
		if h.hosts++; h.hosts > 1 {
			return malformed("more than one Host")
		}
		h.host = one.value
	case "Content-Length":
		if f.lengths++; f.lengths > 1 {
			return malformed("more than one Content-Length")
		}
		n, ok := decimal(one.value)
		if !ok {
			return malformed("Content-Length is not a plain number")
		}
		h.length = n
	case "Transfer-Encoding":
		if f.codings++; f.codings > 1 || one.value != "chunked" {
			return malformed("Transfer-Encoding is not exactly chunked")
		}
	case "Expect":
		if !strings.EqualFold(one.value, "100-continue") {
			return malformed("Expect is not 100-continue")
		}
	case "Connection":
		f.connection = append(f.connection, one.value)
	case "Upgrade":
		f.upgrade = append(f.upgrade, one.value)
	}
	return nil
}

func (h *head) finish(f *framing) *refusal {
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
	h.close = h.minor == '0' || hasToken(f.connection, "close")
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
	if !isPath(h.target) {
		if _, err := url.ParseRequestURI(h.target); err != nil {
			return malformed("the request target is no URL")
		}
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

// isPath reports whether a target is a path in which nothing is encoded. Such
// a one is a URL: most are, and need not be parsed for it.
func isPath(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	return target[0] == '/' && strings.IndexByte(path, '%') < 0
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
	if body || len(upgrade) != 1 || !isToken(strings.ReplaceAll(upgrade[0], "/", "")) {
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
func decimal(s string) (int64, bool) {
	if len(s) == 0 || len(s) > 18 {
		return 0, false
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil
}

// isToken reports whether s is a token of RFC 9110, section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= '0' && c <= '9', c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
