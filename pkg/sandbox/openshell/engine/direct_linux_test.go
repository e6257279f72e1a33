package engine

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestHostsFile takes the place of Docker's, so the sandbox's own name is in it,
// and the machine's only where OpenShell's proxy has to find it there.
func TestHostsFile(t *testing.T) {
	alias := []sandbox.Direct{{Host: "Host.OpenShell.internal", Port: 1, Address: "127.0.1.1"}}
	if told := direct(sandbox.Spec{Direct: alias}); len(told) > 0 {
		t.Errorf("the forwarder is told %+v", told)
	}
	direct := []sandbox.Direct{{Host: "db.example", Port: 1, Address: "127.0.1.1"}, {Host: "db.example", Port: 2, Address: "127.0.1.1"}}
	const local = "::1 localhost ip6-localhost ip6-loopback\n"
	for _, tt := range []struct {
		spec sandbox.Spec
		at   string
		want string
	}{
		{sandbox.Spec{}, "172.18.0.1", ""},
		{sandbox.Spec{Direct: direct}, "127.0.0.1", "127.0.0.1 localhost sandbox\n" + local + "127.0.1.1 db.example\n"},
		{sandbox.Spec{Direct: direct, Hostname: "box"}, "172.18.0.1", "127.0.0.1 localhost box\n" + local + "172.18.0.1 host.openshell.internal\n127.0.1.1 db.example\n"},
		{sandbox.Spec{Direct: alias}, "172.18.0.1", "127.0.0.1 localhost sandbox\n" + local + "172.18.0.1 host.openshell.internal\n"},
		{sandbox.Spec{Direct: direct, Mounts: []sandbox.Mount{{Kind: sandbox.Text, Target: hostsFile, Content: []byte("127.0.0.1 here\n")}}}, "127.0.0.1", "127.0.0.1 here\n127.0.1.1 db.example\n"},
	} {
		var got strings.Builder
		if mounts := named(tt.spec, netip.MustParseAddr(tt.at)).Mounts; len(mounts) > 0 {
			got.Write(mounts[len(mounts)-1].Content)
		}
		if got.String() != tt.want {
			t.Errorf("%q, wanted %q", got.String(), tt.want)
		}
	}
}
