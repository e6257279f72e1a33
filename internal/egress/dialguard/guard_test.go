package dialguard

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestB15_Classify(t *testing.T) {
	for _, tt := range []struct {
		addr string
		want Class
	}{
		{"::ffff:127.0.0.1", Loopback},
		{"::ffff:7f00:1", Loopback},
		{"::ffff:0:7f00:1", Translated},
		{"::127.0.0.1", Translated},
		{"64:ff9b::7f00:1", Translated},
		{"64:ff9b:1::7f00:1", Translated},
		{"2002:7f00:1::", Translated},
		{"2001:0:1::1", Translated},
		{"fd00::1", Private},
		{"fd00::1%eth0", Private},
		{"fd00::1%25eth0", Private},
		{"fe80::1", LinkLocal},
		{"fe80::1%lo", LinkLocal},
		{"::1", Loopback},
		{"::1%lo", Loopback},
		{"::", Unspecified},
		{"0.0.0.0", Unspecified},
		{"0.1.2.3", Reserved},
		{"10.1.2.3", Private},
		{"100.64.0.1", CarrierNAT},
		{"127.8.9.10", Loopback},
		{"169.254.1.1", LinkLocal},
		{"169.254.169.254", Metadata},
		{"::ffff:169.254.169.254", Metadata},
		{"fd00:ec2::254", Metadata},
		{"fd00:ec2::254%eth0", Metadata},
		{"168.63.129.16", Metadata},
		{"172.15.255.255", Public},
		{"172.16.0.1", Private},
		{"172.31.255.255", Private},
		{"172.32.0.1", Public},
		{"192.0.0.8", Reserved},
		{"192.168.1.1", Private},
		{"198.18.0.1", Benchmark},
		{"198.19.255.255", Benchmark},
		{"198.20.0.1", Public},
		{"224.0.0.1", Multicast},
		{"ff02::1", Multicast},
		{"240.0.0.1", Reserved},
		{"255.255.255.255", Reserved},
		{"fec0::1", Reserved},
		{"100::1", Reserved},
		{"4000::1", Reserved},
		{"3fff::1", Reserved},
		{"8.8.8.8", Public},
		{"::ffff:8.8.8.8", Public},
		{"2606:4700::1111", Public},
		// Documentation ranges count as public.
		{"192.0.2.1", Public},
		{"198.51.100.1", Public},
		{"203.0.113.7", Public},
		{"2001:db8::1", Public},
	} {
		if got := Classify(netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("Classify(%s) = %v, want %v", tt.addr, got, tt.want)
		}
	}
	if got := Classify(netip.Addr{}); got != Unreadable {
		t.Errorf("Classify of nothing = %v", got)
	}
	if Class(0) == Public || Class(0).Openable() {
		t.Error("the zero class can be dialled")
	}
}

func TestB15_OpenedNeedsRuleAndNode(t *testing.T) {
	private := prefixes("10.0.0.0/8", "127.0.0.1/32", "fd00::/8", "100.64.0.0/10", "169.254.0.0/16", "198.18.0.0/15")
	own := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:7717"), netip.MustParseAddrPort("0.0.0.0:7718")}
	guard, err := New(private, own)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		to   string
		rule []string
		want string // part of the error; "" is allowed
	}{
		{"10.1.2.3:80", nil, "private"},
		{"10.1.2.3:80", []string{"10.1.2.3/32"}, ""},
		{"[::ffff:10.1.2.3]:80", []string{"10.1.2.3/32"}, ""},
		{"10.1.2.3:80", []string{"::ffff:10.1.2.0/120"}, ""},
		{"10.1.2.4:80", []string{"10.1.2.3/32"}, "private"},
		{"192.168.1.1:80", []string{"192.168.0.0/16"}, "node.network.private does not"},
		{"127.0.0.1:5432", []string{"127.0.0.1/32"}, ""},
		{"127.0.0.2:5432", []string{"127.0.0.0/8"}, "node.network.private does not"},
		{"127.0.0.1:7717", []string{"127.0.0.1/32"}, "the node itself"},
		{"127.0.0.1:7718", []string{"127.0.0.1/32"}, "the node itself"},
		{"[::1]:7718", []string{"::1/128"}, "the node itself"},
		{"[fd00::1]:443", []string{"fd00::/8"}, ""},
		{"[fd00::1%eth0]:443", []string{"fd00::/8"}, ""},
		{"[fd00:ec2::254]:443", []string{"fd00::/8"}, "metadata"},
		{"169.254.169.254:80", []string{"169.254.0.0/16"}, "metadata"},
		{"169.254.1.1:80", []string{"169.254.0.0/16"}, "link-local"},
		{"100.64.0.1:80", []string{"100.64.0.0/10"}, "carrier-grade"},
		{"198.18.0.1:80", []string{"198.18.0.0/15"}, "benchmark"},
		{"203.0.113.7:80", nil, ""},
		{"203.0.113.7:7718", nil, ""},
	} {
		err := guard.Check(netip.MustParseAddrPort(tt.to), prefixes(tt.rule...))
		if got := errText(err); (tt.want == "") != (got == "") || !strings.Contains(got, tt.want) {
			t.Errorf("Check(%s, %v) = %q, want %q", tt.to, tt.rule, got, tt.want)
		}
	}
}

func TestNewRefusesWhatItCannotRead(t *testing.T) {
	if _, err := New([]netip.Prefix{{}}, nil); err == nil {
		t.Error("an invalid range was taken")
	}
	if _, err := New(nil, []netip.AddrPort{{}}); err == nil {
		t.Error("an invalid listener was taken")
	}
}

type answers map[string][]string

func (r answers) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	list, ok := r[host]
	if !ok {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	var out []netip.Addr
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func TestB15_ResolveKeepsOnlyWhatMayBeDialled(t *testing.T) {
	guard, err := New(prefixes("10.0.0.0/8"), nil)
	if err != nil {
		t.Fatal(err)
	}
	r := answers{
		"mixed.example":  {"10.0.0.1", "::ffff:203.0.113.7", "203.0.113.7", "2001:db8::1", "169.254.169.254"},
		"inside.example": {"10.0.0.1", "::1"},
		"empty.example":  {},
	}
	for _, tt := range []struct {
		host  string
		rule  []string
		want  []string
		cause string
	}{
		{"mixed.example", nil, []string{"203.0.113.7", "2001:db8::1"}, ""},
		{"mixed.example", []string{"10.0.0.0/8"}, []string{"10.0.0.1", "203.0.113.7", "2001:db8::1"}, ""},
		{"inside.example", nil, nil, "inside.example leads to 10.0.0.1, a private address"},
		{"empty.example", nil, nil, "no such host"},
		{"unknown.example", nil, nil, "no such host"},
		{"203.0.113.7", nil, []string{"203.0.113.7"}, ""},
		{"127.0.0.1", nil, nil, "127.0.0.1, a loopback address"},
		{"::1", nil, nil, "::1, a loopback address"},
	} {
		got, err := guard.Resolve(t.Context(), r, tt.host, 443, prefixes(tt.rule...))
		var texts []string
		for _, a := range got {
			texts = append(texts, a.String())
		}
		if diff := cmp.Diff(tt.want, texts); diff != "" {
			t.Errorf("Resolve(%s, %v) (-want +got):\n%s", tt.host, tt.rule, diff)
		}
		if text := errText(err); (text == "") != (tt.cause == "") || !strings.Contains(text, tt.cause) {
			t.Errorf("Resolve(%s): %q, want %q", tt.host, text, tt.cause)
		}
	}
}

// The dialer itself refuses, whatever the caller hands it.
func TestB26_DialChecksAgain(t *testing.T) {
	ln, port := listen(t)
	guard, err := New(prefixes("127.0.0.1/32"), nil)
	if err != nil {
		t.Fatal(err)
	}
	local := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	var blocked *BlockedError
	if conn, err := guard.Dial(t.Context(), local, port, nil); !errors.As(err, &blocked) {
		t.Fatalf("dialling loopback: %v %v, want a BlockedError", conn, err)
	}
	conn, err := guard.Dial(t.Context(), local, port, prefixes("127.0.0.0/8"))
	if err != nil {
		t.Fatalf("dialling opened loopback: %v", err)
	}
	conn.Close()
	ln.Close()
}

func TestDialFallsThroughToTheAddressThatAnswers(t *testing.T) {
	_, port := listen(t)
	guard, err := New(prefixes("127.0.0.0/8", "::1/128"), nil)
	if err != nil {
		t.Fatal(err)
	}
	opened := prefixes("127.0.0.0/8")
	addrs := []netip.Addr{netip.MustParseAddr("127.0.0.9"), netip.MustParseAddr("::1"), netip.MustParseAddr("127.0.0.1")}
	conn, err := guard.Dial(t.Context(), addrs, port, opened)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := conn.RemoteAddr().String(); !strings.HasPrefix(got, "127.0.0.1:") {
		t.Errorf("connected to %s", got)
	}
	if _, err := guard.Dial(t.Context(), addrs[:2], port, opened); err == nil {
		t.Error("dialling only what does not answer succeeded")
	}
	if _, err := guard.Dial(t.Context(), nil, port, opened); err == nil {
		t.Error("dialling nothing succeeded")
	}
}

// Whatever an address is called, nothing is both refused by its class and let
// through by the guard, and a zone or a mapping changes no answer.
func FuzzClassify(f *testing.F) {
	for _, s := range []string{"127.0.0.1", "::1", "fe80::1%lo", "64:ff9b::7f00:1", "203.0.113.7", "2001:db8::1", "fd00::1%25eth0"} {
		a := netip.MustParseAddr(s)
		f.Add(a.AsSlice(), a.Zone())
	}
	guard := &Guard{}
	f.Fuzz(func(t *testing.T, b []byte, zone string) {
		a, ok := netip.AddrFromSlice(b)
		if !ok {
			return
		}
		class := Classify(a)
		if class == Public && (a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() || a.IsMulticast() || a.IsUnspecified()) {
			t.Errorf("%s counts as public", a)
		}
		if a.Is6() && zone != "" && Classify(a.WithZone(zone)) != class {
			t.Errorf("the zone changes the class of %s", a)
		}
		if a.Is4() && Classify(netip.AddrFrom16(a.As16())) != class {
			t.Errorf("mapping changes the class of %s", a)
		}
		if err := guard.Check(netip.AddrPortFrom(a, 443), nil); (err == nil) != (class == Public) {
			t.Errorf("Check(%s) = %v, class %v", a, err, class)
		}
	})
}

func listen(t *testing.T) (net.Listener, uint16) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln, netip.MustParseAddrPort(ln.Addr().String()).Port()
}

func prefixes(list ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
