package egress

import (
	"bufio"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/egress/dialguard"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// TestNamesOfOneLabel: such a name is found in the hosts file, and nothing is
// ever put behind it.
func TestNamesOfOneLabel(t *testing.T) {
	hosts := &resolver{answers: map[string][][]string{"db": {{publicAddr}}, "db.x.example": {{"203.0.113.9"}}}}
	dns := &resolver{answers: map[string][][]string{"db.": {{"203.0.113.8"}}, "other.": {{"203.0.113.8"}}, "db.x.example.": {{"203.0.113.8"}}}}
	r := rooted{hosts: hosts, dns: dns}
	for name, want := range map[string]string{"db": publicAddr, "other": "203.0.113.8", "db.x.example": "203.0.113.8", "none": ""} {
		got, err := r.LookupNetIP(t.Context(), "ip", name)
		if want == "" && err == nil || want != "" && (err != nil || got[0].String() != want) {
			t.Errorf("%s: %v %v, want %q", name, got, err, want)
		}
	}
	if got := slices.DeleteFunc(dns.names(), func(n string) bool { return strings.HasSuffix(n, ".") }); len(got) > 0 {
		t.Errorf("asked for %q, behind which something may be put", got)
	}
	if text := Unreachable("db", &net.DNSError{IsNotFound: true}); !strings.Contains(text, "no search domain is put behind a name") {
		t.Error(text)
	}
	if text := Unreachable("db.x.example", &net.DNSError{IsNotFound: true}); strings.Contains(text, "search domain") {
		t.Error(text)
	}
}

// TestNamesOfOneLabelOfThisMachine asks the real hosts file.
func TestNamesOfOneLabelOfThisMachine(t *testing.T) {
	f, err := os.Open("/etc/hosts")
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		text, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(text)
		if len(fields) < 2 {
			continue
		}
		addr, err := netip.ParseAddr(fields[0])
		for _, name := range fields[1:] {
			if err != nil || !oneLabel(name) {
				continue
			}
			got, err := p.resolver.LookupNetIP(t.Context(), "ip", name)
			if err != nil || !slices.ContainsFunc(got, func(a netip.Addr) bool { return a.WithZone("").Unmap() == addr.WithZone("").Unmap() }) {
				t.Errorf("%s: %v %v, want %s", name, got, err, addr)
			}
		}
	}
}

// TestResolveIsTheWayOfSessions: whoever asks before gets the answer that a session
// gets, in the same words.
func TestResolveIsTheWayOfSessions(t *testing.T) {
	ten := netip.MustParsePrefix("10.0.0.0/8")
	var opened []netip.Prefix
	judge := judgeFunc(func(policy.Request) policy.Decision {
		return policy.Decision{Allowed: true, Raw: true, Addresses: opened}
	})
	for _, tt := range []struct {
		host         string
		rule, node   []netip.Prefix
		want, reason string
	}{
		{"db.x.example", nil, nil, "", `db.x.example leads to 10.0.0.1, a private address, which only a rule with "addresses" and the node's setting node.network.private open together`},
		{"db.x.example", []netip.Prefix{ten}, nil, "", "db.x.example leads to 10.0.0.1, a private address that the rule opens and the node's setting node.network.private does not"},
		{"db.x.example", nil, []netip.Prefix{ten}, "", `db.x.example leads to 10.0.0.1, a private address, which only a rule with "addresses" and the node's setting node.network.private open together`},
		{"db.x.example", []netip.Prefix{ten}, []netip.Prefix{ten}, "10.0.0.1", ""},
		{"169.254.9.9", []netip.Prefix{ten}, []netip.Prefix{ten}, "", "169.254.9.9, a link-local address, which nothing opens"},
		{"host.mojoup.internal", nil, nil, "", `host.mojoup.internal leads to 127.0.0.1, a loopback address, which only a rule with "addresses" and the node's setting node.network.private open together`},
	} {
		opened = tt.rule
		w := newWorld(t, judge, func(o *Options, _ *limits) { o.Private = tt.node })
		w.resolver.set("db.x.example", "10.0.0.1")
		got, err := w.proxy.Resolve(t.Context(), tt.host, 9000, tt.rule)
		if tt.want != "" {
			if err != nil || len(got) != 1 || got[0].String() != tt.want {
				t.Errorf("%s: %v %v", tt.host, got, err)
			}
			continue
		}
		blocked, ok := errors.AsType[*dialguard.BlockedError](err)
		if !ok || blocked.Error() != tt.reason {
			t.Errorf("%s: %v, want %s", tt.host, err, tt.reason)
		}
		c, line := w.connect(tt.host + ":9000")
		c.Close()
		if !strings.HasPrefix(line, "403") {
			t.Errorf("%s: a session gets %s", tt.host, line)
		}
		w.wait(tt.host, func(v Verdict) bool { return !v.Allowed && v.Reason == tt.reason })
	}
}
