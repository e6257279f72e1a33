package policy

import (
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
)

func checkSecretName(s string) *fault {
	if s == "" || len(s) > 128 || strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_") != "" || '0' <= s[0] && s[0] <= '9' {
		return faultf(`name the secret, as "GITHUB_TOKEN"; its value never stands in a policy`, "%s cannot be the name of a variable", showSecret(s))
	}
	return nil
}

// OptionalSecret ends the name of a secret, or of a tool with a sign-in, that a
// session can do without.
const OptionalSecret = "?"

func checkSecretAsk(s string) *fault { return checkSecretName(strings.TrimSuffix(s, OptionalSecret)) }

func checkSignInAsk(s string) *fault { return checkToolName(strings.TrimSuffix(s, OptionalSecret)) }

// showSecret does not repeat what may be a key that somebody pasted.
func showSecret(s string) string {
	if len(s) > 24 {
		return "this"
	}
	return show(s)
}

func checkToolName(s string) *fault {
	if !isSlug(s) {
		return faultf("a tool is called as in `run --tool`: small letters, digits and hyphens", "%s is no name of a tool, as %s are", show(s), list(quoteAll(toolNames()), "and"))
	}
	return nil
}

func isSlug(s string) bool {
	return s != "" && len(s) <= 64 && 'a' <= s[0] && s[0] <= 'z' && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}

func checkPresetName(s string) *fault {
	if !isSlug(s) {
		return faultf(didYouMean(s, presetNames()), "%s is no name of a preset, which are %s", show(s), list(presetNames(), "and"))
	}
	return nil
}

// checkRuleName keeps out what could draw on a terminal or turn a line round:
// the name is shown wherever a verdict is.
func checkRuleName(s string) *fault {
	if s == "" || strings.TrimSpace(s) != s || len([]rune(s)) > 80 {
		return faultf("shorten it, or take the blanks away", "a name is 1 to 80 characters, without blanks round it")
	}
	for _, c := range s {
		if !unicode.IsPrint(c) {
			return faultf("take it out", "the name holds %s, which does not print", strconv.QuoteRuneToASCII(c))
		}
	}
	return nil
}

var knownMethods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE", "LOCK", "UNLOCK", "REPORT", "SEARCH", "QUERY", "PURGE"}

func checkMethod(s string) *fault {
	switch {
	case s == "CONNECT":
		return faultf("take it out: a rule without methods and paths allows tunnels", `"CONNECT" opens a tunnel and is no method of a request`)
	case s == "*":
		return faultf(`leave "methods" out to allow every one`, "%s is no method", show(s))
	case !isMethod(s) && isMethod(strings.ToUpper(s)):
		return faultf("write "+show(strings.ToUpper(s)), "methods are compared exactly, and %s is not upper case", show(s))
	case !isMethod(s):
		return faultf("a method is capitals, as GET", "%s is no method", show(s))
	}
	return nil
}

func isMethod(s string) bool {
	return s != "" && len(s) <= 32 && 'A' <= s[0] && s[0] <= 'Z' && strings.Trim(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") == ""
}

// metadata lists the addresses from which clouds hand credentials to whoever
// asks. Sources: the providers' documentation of their instance metadata.
var metadata = []netip.Addr{
	netip.MustParseAddr("169.254.169.254"), // AWS, Azure, Google, and most others
	netip.MustParseAddr("169.254.170.2"),   // credentials of AWS containers
	netip.MustParseAddr("169.254.170.23"),  // of AWS pods
	netip.MustParseAddr("100.100.100.200"), // Alibaba
	netip.MustParseAddr("192.0.0.192"),     // Oracle
	netip.MustParseAddr("168.63.129.16"),   // Azure's agents, in a public range
	netip.MustParseAddr("fd00:ec2::254"),   // AWS over IPv6
	netip.MustParseAddr("fd00:ec2::23"),    // of AWS pods over IPv6
	netip.MustParseAddr("fd20:ce::254"),    // Google over IPv6
}

// IsMetadata reports whether a is an address at which a cloud hands credentials
// to whoever asks. No rule and no setting opens it.
func IsMetadata(a netip.Addr) bool { return slices.Contains(metadata, a) }

func checkRange(s string) *fault {
	_, f := parseRange(s)
	return f
}

func parseRange(s string) (netip.Prefix, *fault) {
	p, err := netip.ParsePrefix(s)
	if err != nil {
		addr, aerr := netip.ParseAddr(s)
		if aerr != nil || addr.Zone() != "" {
			return p, faultf(`write a range as "10.2.0.0/16"`, "%s is no range of addresses", show(s))
		}
		addr = addr.Unmap()
		return p, faultf("write "+show(netip.PrefixFrom(addr, addr.BitLen()).String()), "%s has no length", show(s))
	}
	switch {
	case p.Addr().Is4In6():
		return p, faultf("write the IPv4 range", "%s is a range of mapped addresses", show(s))
	case p.Masked() != p:
		return p, faultf("write "+show(p.Masked().String()), "%s has bits set beyond its length", show(s))
	case p.IsSingleIP() && IsMetadata(p.Addr()):
		return p, faultf("take it out", "%s is a cloud's metadata address, which is never opened", show(s))
	}
	return p, nil
}

// withoutMetadata cuts the metadata addresses out of a range.
func withoutMetadata(p netip.Prefix) []netip.Prefix {
	for _, m := range metadata {
		if !p.Contains(m) {
			continue
		}
		if p.IsSingleIP() {
			return nil
		}
		low, high := halves(p)
		return append(withoutMetadata(low), withoutMetadata(high)...)
	}
	return []netip.Prefix{p}
}

func halves(p netip.Prefix) (low, high netip.Prefix) {
	bits := p.Bits()
	low = netip.PrefixFrom(p.Addr(), bits+1)
	raw := p.Addr().AsSlice()
	raw[bits/8] |= 0x80 >> (bits % 8)
	addr, _ := netip.AddrFromSlice(raw)
	return low, netip.PrefixFrom(addr, bits+1)
}

func checkGlob(s string) *fault {
	if f := checkRelative(strings.TrimSuffix(s, "/")); f != nil {
		return f
	}
	for seg := range strings.SplitSeq(s, "/") {
		if strings.Contains(seg, "**") && seg != "**" {
			return faultf("write /**/ for any number of directories, and * for a part of one name", "%s: ** stands alone between two slashes", show(s))
		}
	}
	if strings.ContainsAny(s, "[]{}?!") {
		return faultf("the only wildcards are * and **", "%s holds a character that means nothing in a pattern", show(s))
	}
	return nil
}

// checkRelative accepts paths that cannot lead out of the repository.
func checkRelative(s string) *fault {
	switch {
	case s == "":
		return faultf("name a file or directory of the repository", "the path is empty")
	case strings.HasPrefix(s, "/") || strings.HasPrefix(s, "~"):
		return faultf("write it as seen from the top of the repository", "%s is not below the repository", show(s))
	case path.Clean(s) != s || s == "." || s == ".." || strings.HasPrefix(s, "../"):
		return faultf("write it from the top of the repository, without / before it and without . or .. in it", "%s is not a plain path below the repository", show(s))
	}
	return checkPathText(s)
}

func checkMountPath(s string) *fault {
	rest := s
	if strings.HasPrefix(s, "~/") {
		rest = s[1:]
	}
	switch {
	case !strings.HasPrefix(rest, "/"):
		return faultf(`write an absolute path, or "~/…"`, "%s is neither absolute nor below the home", show(s))
	case path.Clean(rest) != rest || rest == "/":
		return faultf("write an absolute path, or one that begins with ~/, without . or .. in it", "%s is not a plain path to one directory", show(s))
	}
	return checkPathText(s)
}

func checkPathText(s string) *fault {
	if len(s) > 4096 {
		return faultf("no file has such a name", "the path is longer than 4096 bytes")
	}
	for _, c := range s {
		if !unicode.IsPrint(c) || c == '\\' {
			return faultf("take it out, or name the directory above", "%s holds %s, which paths in a policy cannot", show(s), strconv.QuoteRuneToASCII(c))
		}
	}
	return nil
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

func checkSize(s string) *fault {
	_, f := parseSize(s)
	return f
}

func parseSize(s string) (int64, *fault) {
	for _, u := range sizeUnits {
		digits, ok := strings.CutSuffix(s, u.name)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(digits, 10, 64)
		if err != nil || n <= 0 || digits[0] == '+' || n > (1<<60)/u.bytes {
			break
		}
		return n * u.bytes, nil
	}
	return 0, faultf(`write it as "4GiB"`, "%s is no size: expected a whole number and KiB, MiB, GiB or TiB", show(s))
}

func formatSize(n int64) string {
	for _, u := range sizeUnits {
		if n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + "B"
}

func checkDuration(s string) *fault {
	_, f := parseDuration(s)
	return f
}

func parseDuration(s string) (time.Duration, *fault) {
	d, err := time.ParseDuration(s)
	if err != nil || d < time.Second {
		return 0, faultf(`write it as "8h", "90m" or "30s"`, "%s is no time of one second or more", show(s))
	}
	return d, nil
}

// formatDuration is as people write it: 8h, not 8h0m0s.
func formatDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// checkRule is what the keys of a rule mean together.
func checkRule(c *checker, n *node, p string) {
	checkSource(c, n, p, "rule")
	if has(n, "preset") != nil {
		return
	}
	for i, host := range items(n, "hosts") {
		at := p + ".hosts[" + strconv.Itoa(i) + "]"
		pattern, f := parseHostPattern(host.text)
		switch {
		case f != nil:
		case pattern.form == hostAddr && IsMetadata(pattern.addr):
			c.report(host.pos, at, "", "%s is a cloud's metadata address, which is never opened", pattern)
		case pattern.form == hostExact && pattern.name == HostService && !isHostServiceRule(n):
			c.report(host.pos, at, `write { "hosts": ["`+HostService+`"], "ports": [5432], "protocol": "tcp", "addresses": ["127.0.0.1/32"] }`,
				"a service of the machine itself needs the protocol tcp, its ports and the range 127.0.0.1/32")
		}
	}
}

func isHostServiceRule(n *node) bool {
	ranges := items(n, "addresses")
	return has(n, "protocol") != nil && len(items(n, "ports")) > 0 && len(ranges) == 1 && ranges[0].text == "127.0.0.1/32"
}

func checkDeny(c *checker, n *node, p string) {
	checkSource(c, n, p, "entry")
	if preset := has(n, "preset"); preset != nil && preset.text == presetPublic {
		c.report(preset.pos, p+".preset", `to allow nothing, write "rules": []`, "everything cannot be denied by name")
	}
}

// checkSource wants hosts from exactly one place.
func checkSource(c *checker, n *node, p, what string) {
	preset, hosts := has(n, "preset"), has(n, "hosts")
	switch {
	case preset == nil && hosts == nil:
		c.report(n.pos, p, `add "hosts": ["…"] or "preset": "…"`, "the %s names neither hosts nor a preset and would match nothing", what)
	case preset != nil:
		for _, m := range n.members {
			if m.name != "preset" && m.name != "name" {
				c.report(m.pos, join(p, m.name), "write a rule of its own with hosts", "a preset brings its own %s", m.name)
			}
		}
	}
}

func has(n *node, name string) *node {
	for _, m := range n.members {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func items(n *node, name string) []*node {
	if list := has(n, name); list != nil {
		return list.items
	}
	return nil
}
