package plan

import (
	"net/netip"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// mostDirect bounds the ports that stand inside: each costs a listener, and most
// sessions have one database.
const mostDirect = 128

// firstDirect is where the hosts of tcp rules stand inside, from there on upwards:
// nobody listens there by chance, as programs do on 127.0.0.1.
var firstDirect = netip.AddrFrom4([4]byte{127, 0, 1, 1})

// direct gives each host of a tcp rule an address inside.
func (b *builder) direct() []sandbox.Direct {
	all := b.in.Direct
	if len(all) > mostDirect {
		b.note("%d ports of hosts in tcp rules are more than %d, so those from %s on are reached by programs that speak the proxy's language", len(all), mostDirect, all[mostDirect].Host)
		all = all[:mostDirect]
	}
	var out []sandbox.Direct
	at := firstDirect
	for i, d := range all {
		if i > 0 && d.Host != all[i-1].Host {
			at = at.Next()
		}
		out = append(out, sandbox.Direct{Host: d.Host, Port: d.Port, Address: at.String()})
	}
	return out
}
