package policy

import (
	"net/netip"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/net/idna"
)

// NormalHost returns the one spelling of a host that is judged, resolved and
// dialled. A name is lower case, in ASCII (IDNA 2008 with the mapping of
// UTS 46), without the dot that may end it. An address is as [netip.Addr]
// prints it; an IPv6 one may stand in brackets, a mapped IPv4 one (::ffff:…)
// is the IPv4 one.
//
// Refused, because programs differ in what they read there: empty labels and
// names, control characters, blanks, %, @ and every other character that names
// do not have, brackets round a name, zones, names that end in a number
// without being an address (203.0.113.07, 0xcb007107, 3405803783). The error
// has a Hint method where something can be advised.
func NormalHost(s string) (string, error) {
	h, f := normalHost(s)
	if f != nil {
		return "", f
	}
	return h, nil
}

func normalHost(s string) (string, *fault) {
	switch {
	case s == "":
		return "", faultf("name one, as api.x.example", "the host is empty")
	case len(s) > 1024: // 253 letters, each of several bytes before the mapping
		return "", faultf("no server has such a name", "the host is longer than a name can be (253 characters)")
	case strings.HasPrefix(s, "[") || strings.Contains(s, ":"):
		return normalIPv6(s)
	}
	name := s
	if !plainASCII(name) || hasPunycode(name) {
		var f *fault
		if name, f = international(name); f != nil {
			return "", f
		}
	}
	name = strings.TrimSuffix(lowerASCII(name), ".")
	if f := checkName(name, s); f != nil {
		return "", f
	}
	if !endsInNumber(name) {
		return name, nil
	}
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return "", faultf("write an address as four plain decimal numbers: 203.0.113.7", "%s ends in a number and is no address in the usual form", show(s))
	}
	return addr.String(), nil
}

func normalIPv6(s string) (string, *fault) {
	inner := s
	if strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]") {
		inner = s[1 : len(s)-1]
	}
	if strings.Contains(inner, "%") {
		return "", faultf("name the address without its zone", "%s has a zone, which means something on one machine only", show(s))
	}
	addr, err := netip.ParseAddr(inner)
	if err != nil || !strings.Contains(inner, ":") {
		return "", faultf("a name has neither brackets nor colons; a port is written apart", "%s is no IPv6 address", show(s))
	}
	return addr.Unmap().String(), nil
}

// international maps a name with other letters than ASCII, or with labels that
// claim to be such, to its only ASCII form.
func international(s string) (string, *fault) {
	for _, c := range s {
		if unicode.IsControl(c) || unicode.IsSpace(c) || c == unicode.ReplacementChar || unicode.Is(unicode.Cf, c) {
			return "", faultf("a host is letters, digits, hyphens and points, as api.x.example", "%s has a character that names do not have", show(s))
		}
	}
	mapped, err := idna.Lookup.ToASCII(s)
	if err != nil {
		return "", faultf("write it as its owner does, or in the form xn--…", "%s is not a valid international name", show(s))
	}
	// A mapping that is not its own fixed point would be judged in one form
	// and dialled in another.
	if again, err := idna.Lookup.ToASCII(mapped); err != nil || again != mapped {
		return "", faultf("write it in the form xn--…", "%s has no single normal form", show(s))
	}
	return mapped, nil
}

// checkName checks labels; written is what the person wrote.
func checkName(name, written string) *fault {
	if name == "" || name[0] == '.' || strings.Contains(name, "..") || name[len(name)-1] == '.' {
		return faultf("take the point too many out", "%s has an empty label", show(written))
	}
	if len(name) > 253 {
		return faultf("no server has such a name", "%s is longer than a name can be (253 characters)", show(clip(written)))
	}
	start := 0
	for i := 0; i <= len(name); i++ {
		if i < len(name) && name[i] != '.' {
			if !isNameByte(name[i]) {
				return faultf("a host is letters, digits, hyphens and points, as api.x.example", "%s has a character that names do not have: %s", show(written), strconv.QuoteRuneToASCII(rune(name[i])))
			}
			continue
		}
		if i-start > 63 {
			return faultf("no server has such a name", "%s has a label longer than 63 characters", show(clip(written)))
		}
		if name[start] == '-' || name[i-1] == '-' {
			return faultf("take the hyphen out", "%s has a label that starts or ends with a hyphen", show(written))
		}
		start = i + 1
	}
	return nil
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '_' || c == '.'
}

// endsInNumber is the rule of the WHATWG URL standard: such a host is an
// address to browsers, to curl and to inet_aton, whatever a resolver says.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	hex := len(last) >= 2 && last[0] == '0' && last[1] == 'x'
	if hex {
		last = last[2:]
	}
	for i := 0; i < len(last); i++ {
		if c := last[i]; (c < '0' || c > '9') && !(hex && 'a' <= c && c <= 'f') {
			return false
		}
	}
	return true
}

func plainASCII(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

func hasPunycode(s string) bool {
	for i := 0; i+4 <= len(s); i++ {
		if (i == 0 || s[i-1] == '.') && strings.EqualFold(s[i:i+4], "xn--") {
			return true
		}
	}
	return false
}

// lowerASCII is for ASCII only and returns s itself where nothing changes.
func lowerASCII(s string) string {
	for i := 0; i < len(s); i++ {
		if 'A' <= s[i] && s[i] <= 'Z' {
			return strings.ToLower(s)
		}
	}
	return s
}

// show quotes what somebody wrote so that no terminal obeys it.
func show(s string) string { return strconv.QuoteToASCII(clip(s)) }

// isNormalHost reports whether s may be compared byte for byte. It is the
// guard of [Effective.Decide] against a caller who forgot [NormalHost]: "*.x"
// would match a spelling that a deny rule for a name below x misses.
func isNormalHost(s string) (addr netip.Addr, ok bool) {
	if s == "" || len(s) > 253 {
		return addr, false
	}
	if strings.IndexByte(s, ':') >= 0 {
		return normalAddr(s)
	}
	for i := 0; i < len(s); i++ {
		if !isNameByte(s[i]) || s[i] == '.' && (i == 0 || s[i-1] == '.') {
			return addr, false
		}
	}
	if s[len(s)-1] == '.' {
		return addr, false
	}
	if endsInNumber(s) {
		return normalAddr(s)
	}
	return addr, true
}

func normalAddr(s string) (netip.Addr, bool) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, false
	}
	var buf [64]byte
	return addr, string(addr.AppendTo(buf[:0])) == s
}

// hostForm is how a pattern compares.
type hostForm uint8

const (
	hostExact  hostForm = iota // this name
	hostAddr                   // this address
	hostOne                    // *.name
	hostMany                   // **.name
	hostPublic                 // every name with a dot in it: preset "public"
)

// A hostPattern is one entry of "hosts".
type hostPattern struct {
	form hostForm
	name string // without the stars
	addr netip.Addr
}

func (p hostPattern) String() string {
	switch p.form {
	case hostOne:
		return "*." + p.name
	case hostMany:
		return "**." + p.name
	case hostPublic:
		return "any public host"
	case hostAddr:
		return p.addr.String()
	}
	return p.name
}

// matches is the plain meaning of a pattern. Decide looks patterns up in maps
// instead; a test keeps the two together.
func (p hostPattern) matches(host string) bool {
	addr, ok := isNormalHost(host)
	if !ok {
		return false
	}
	if addr.IsValid() {
		return p.form == hostAddr && p.addr == addr
	}
	if p.form != hostExact && host == HostService {
		return false
	}
	label, below := strings.CutSuffix(host, "."+p.name)
	switch p.form {
	case hostExact:
		return host == p.name
	case hostOne:
		return below && strings.IndexByte(label, '.') < 0
	case hostMany:
		return below
	case hostPublic:
		return strings.IndexByte(host, '.') >= 0
	}
	return false
}

// HostService is the name under which a service of the machine itself is
// reached. No wildcard means it.
const HostService = "host.mojoup.internal"

// IsInside reports whether a name or address, in normal form, is the session
// itself to programs in it: their variables say that no proxy is asked for it.
func IsInside(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || host == "127.0.0.1" || host == "::1"
}

func checkHostPattern(s string) *fault {
	_, f := parseHostPattern(s)
	return f
}

func parseHostPattern(s string) (hostPattern, *fault) {
	if f := foreignHostForm(s); f != nil {
		return hostPattern{}, f
	}
	form, rest := hostExact, s
	if r, ok := strings.CutPrefix(s, "**."); ok {
		form, rest = hostMany, r
	} else if r, ok := strings.CutPrefix(s, "*."); ok {
		form, rest = hostOne, r
	}
	name, f := normalHost(rest)
	if f != nil {
		return hostPattern{}, f
	}
	addr, err := netip.ParseAddr(name)
	switch {
	case err != nil:
		return hostPattern{form: form, name: name}, nil
	case form != hostExact:
		return hostPattern{}, faultf("name the address alone", "%s is a star before an address, which has nothing below it", show(s))
	}
	return hostPattern{form: hostAddr, addr: addr}, nil
}

// foreignHostForm refuses what other programs accept as a pattern, and says
// how it is written here: stored as it is it would match nothing.
func foreignHostForm(s string) *fault {
	rest := strings.TrimPrefix(strings.TrimPrefix(s, "**."), "*.")
	scheme, afterScheme, hasScheme := strings.Cut(s, "://")
	host, port, hasPort := strings.Cut(s, ":")
	switch {
	case s == "":
		return faultf(`write a name, as "api.example.com"`, "the host is empty")
	case strings.TrimSpace(s) != s:
		return faultf("take them out", "%s has blanks round it", show(s))
	case s == "*" || s == "**":
		return faultf(`name the hosts; hub and node policies may say {"preset": "public"}`, "%s would be any host, which is not a pattern", show(s))
	case hasScheme:
		name, _, _ := strings.Cut(afterScheme, "/")
		return faultf("write "+show(name)+`, and the port under "ports"`, "%s is a URL of %s, expected a host", show(s), show(scheme))
	case isRange(s):
		return faultf(`name the host, and put the range under "addresses"`, "%s is a range, expected a host", show(s))
	case strings.Contains(s, "/"):
		name, _, _ := strings.Cut(s, "/")
		return faultf("write "+show(name)+`, and the path under "paths"`, "%s has a path, expected a host", show(s))
	case hasPort && !strings.Contains(port, ":") && !strings.HasPrefix(s, "["):
		return faultf("write "+show(host)+`, and "ports": [`+clip(port)+"]", "%s has a port, expected a host", show(s))
	case strings.HasPrefix(s, "."):
		return faultf("write "+show("**"+s)+" for every name below it, "+show(s[1:])+" for the name itself", "%s starts with a dot", show(s))
	case strings.Contains(rest, "*"):
		return faultf(`name the hosts one by one, or put *. before the part they share`, "%s has a star that is not the whole first label", show(s))
	}
	return nil
}

func isRange(s string) bool {
	if strings.IndexByte(s, '/') < 0 {
		return false
	}
	_, err := netip.ParsePrefix(s)
	return err == nil
}
