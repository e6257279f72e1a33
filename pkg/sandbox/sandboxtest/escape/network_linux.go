package escape

import (
	"net/netip"

	"golang.org/x/sys/unix"
)

var (
	refused  = []string{"ECONNREFUSED"}
	noRoute  = []string{"ENETUNREACH", "EHOSTUNREACH"}
	noRoute6 = []string{"ENETUNREACH", "EHOSTUNREACH", "EADDRNOTAVAIL", "EAFNOSUPPORT"}
	noFamily = []string{"EAFNOSUPPORT", "EPERM", "EACCES"}
	// Names of families and protocols that this kernel may be built without.
	unbuilt = []string{"EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}
)

// networkAttempts reach for the host and beyond. Addresses of other machines
// are of the ranges set aside for documentation (RFC 5737, RFC 3849), where a
// mistake reaches nobody; the way to them is that of any public address.
func networkAttempts() []Attempt {
	return []Attempt{
		{Name: "tcp-host-loopback", Tries: "connect to a port of the host's 127.0.0.1", Want: refused, do: func(a *Arena) error { return tcp4(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.TCP4) }},
		{Name: "tcp-host-any", Tries: "connect to a port of the host by 0.0.0.0", Want: refused, do: func(a *Arena) error { return tcp4(netip.IPv4Unspecified(), a.TCP4) }},
		{Name: "tcp-host-mapped", Tries: "connect to a port of the host by ::ffff:127.0.0.1", Want: append(refused, noRoute6...), Lacking: unbuilt, do: func(a *Arena) error { return tcp6("::ffff:127.0.0.1", a.TCP4) }},
		{Name: "tcp-host-loopback6", Tries: "connect to a port of the host's ::1", Want: append(refused, noRoute6...), Lacking: []string{NoArena}, do: func(a *Arena) error {
			if a.TCP6 == 0 {
				return errNoArena
			}
			return tcp6("::1", a.TCP6)
		}},
		{Name: "tcp-metadata", Tries: "connect to a cloud's metadata service", Want: noRoute, Outside: beyondHost, do: func(*Arena) error { return tcp4(netip.AddrFrom4([4]byte{169, 254, 169, 254}), 80) }},
		{Name: "tcp-public", Tries: "connect to a public address", Want: noRoute, Outside: beyondHost, do: func(*Arena) error { return tcp4(netip.AddrFrom4([4]byte{203, 0, 113, 1}), 443) }},
		{Name: "tcp-private", Tries: "connect to an address of the local network", Want: noRoute, Outside: beyondHost, do: func(*Arena) error { return tcp4(netip.AddrFrom4([4]byte{10, 0, 0, 1}), 443) }},
		{Name: "tcp-public6", Tries: "connect to a public IPv6 address", Want: noRoute6, Outside: beyondHost, do: func(*Arena) error { return tcp6("2001:db8::1", 443) }},
		{Name: "tcp-fastopen", Tries: "send with MSG_FASTOPEN, which connects by itself", Want: append([]string{"EOPNOTSUPP"}, noRoute...), Outside: beyondHost, do: fastOpen},
		{Name: "udp-dns", Tries: "send a datagram to port 53 of a public address", Want: noRoute, Outside: beyondHost, do: func(*Arena) error {
			return datagram(unix.AF_INET, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{203, 0, 113, 1}})
		}},
		{Name: "udp-broadcast", Tries: "send a datagram to the whole network", Want: append([]string{"EACCES"}, noRoute...), Outside: beyondHost, do: func(*Arena) error {
			return datagram(unix.AF_INET, &unix.SockaddrInet4{Port: 53, Addr: [4]byte{255, 255, 255, 255}})
		}},
		{Name: "udp-multicast6", Tries: "send a datagram to all IPv6 neighbours", Want: noRoute6, Outside: beyondHost, do: func(*Arena) error {
			return datagram(unix.AF_INET6, &unix.SockaddrInet6{Port: 53, Addr: netip.MustParseAddr("ff02::1").As16()})
		}},
		{Name: "unix-outside", Tries: "connect to a host's socket outside all mounts", Want: notThere, do: func(a *Arena) error {
			return connects(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: a.Socket})
		}},
		{Name: "unix-docker", Tries: "connect to Docker's socket", Want: notThere, Outside: "only where Docker runs", do: func(*Arena) error {
			return connects(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "/var/run/docker.sock"})
		}},
		{Name: "unix-systemd", Tries: "connect to the service manager's private socket", Want: notThere, Outside: "only where systemd runs", do: func(*Arena) error {
			return connects(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "/run/systemd/private"})
		}},
		{Name: "unix-abstract", Tries: "connect to a host's abstract socket", Want: append([]string{"EPERM"}, refused...), do: func(a *Arena) error {
			return connects(unix.AF_UNIX, unix.SOCK_STREAM, &unix.SockaddrUnix{Name: "@" + a.Abstract})
		}},
		{Name: "unix-abstract-datagram", Tries: "send to a host's abstract socket", Want: append([]string{"EPERM"}, refused...), do: func(a *Arena) error {
			return datagram(unix.AF_UNIX, &unix.SockaddrUnix{Name: "@" + a.Datagram})
		}},
		{Name: "take-proxy-port", Tries: "listen where the way out listens", Want: []string{"EADDRINUSE", "EACCES"}, do: func(a *Arena) error { return takePort(a, 0) }},
		{Name: "share-proxy-port", Tries: "listen beside the way out with SO_REUSEPORT", Want: []string{"EADDRINUSE", "EACCES"}, do: func(a *Arena) error { return takePort(a, unix.SO_REUSEPORT) }},
		{Name: "vsock", Tries: "open a socket to the hypervisor, which network namespaces do not stop", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
		{Name: "af-alg", Tries: "open a socket of the kernel's ciphers", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }},
		{Name: "af-packet", Tries: "open a raw packet socket", Want: noFamily, Outside: needsCaps, do: func(*Arena) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
		{Name: "af-bluetooth", Tries: "open a Bluetooth socket", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_BLUETOOTH, unix.SOCK_STREAM, 3) }},
		{Name: "raw-icmp", Tries: "open a raw ICMP socket", Want: noFamily, Outside: needsCaps, do: func(*Arena) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
		{Name: "netlink-netfilter", Tries: "open the firewall's netlink socket", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) }},
		{Name: "netlink-audit", Tries: "open the audit netlink socket", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT) }},
		{Name: "netlink-uevent", Tries: "open the device events' netlink socket", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT) }},
	}
}

func tcp4(addr netip.Addr, port int) error {
	return connects(unix.AF_INET, unix.SOCK_STREAM, &unix.SockaddrInet4{Port: port, Addr: addr.As4()})
}

func tcp6(addr string, port int) error {
	return connects(unix.AF_INET6, unix.SOCK_STREAM, &unix.SockaddrInet6{Port: port, Addr: netip.MustParseAddr(addr).As16()})
}

func datagram(family int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("x"), 0, to)
}

func fastOpen(*Arena) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	to := &unix.SockaddrInet4{Port: 443, Addr: [4]byte{203, 0, 113, 1}}
	return reached(unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, to), unix.EINPROGRESS)
}

func takePort(a *Arena, option int) error {
	addr, err := netip.ParseAddrPort(a.Proxy)
	if err != nil {
		return errNoArena
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if option != 0 {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, 1); err != nil {
			return err
		}
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().As4()}); err != nil {
		return err
	}
	return unix.Listen(fd, 1)
}
