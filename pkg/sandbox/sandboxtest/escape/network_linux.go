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
	// A filter may answer as a kernel does that was built without the protocol.
	noProtocol = []string{"EPROTONOSUPPORT", "EPERM", "EACCES"}
	// Names of families and protocols that this kernel may be built without.
	unbuilt = []string{"EAFNOSUPPORT", "EPROTONOSUPPORT", "ESOCKTNOSUPPORT"}
)

// networkAttempts reach for the host and beyond. Nothing is ever sent to other
// machines: whether there is a way to them the kernel says when a datagram
// socket is connected, which sends nothing (connect(2), udp(7)). What goes to
// the host itself is really sent, over loopback.
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
		{Name: "tcp-fastopen", Tries: "send to the host's 127.0.0.1 with MSG_FASTOPEN, which connects by itself", Want: append([]string{"EOPNOTSUPP"}, refused...), Lacking: []string{"EOPNOTSUPP"}, do: fastOpen},
		{Name: "udp-host-loopback", Tries: "send a datagram to a port of the host's 127.0.0.1", Want: refused, do: udpHost},
		{Name: "route-metadata", Tries: "find a way to a cloud's metadata service", Want: noRoute, Lacking: noRoute, do: route("169.254.169.254", 80)},
		{Name: "route-public", Tries: "find a way to a public address", Want: noRoute, Lacking: noRoute, do: route("203.0.113.1", 443)},
		{Name: "route-dns", Tries: "find a way to a name server", Want: noRoute, Lacking: noRoute, do: route("198.51.100.1", 53)},
		{Name: "route-private", Tries: "find a way into the local network", Want: noRoute, Lacking: noRoute, do: route("10.0.0.1", 443)},
		{Name: "route-multicast", Tries: "find a way to all neighbours", Want: noRoute, Lacking: noRoute, do: route("224.0.0.1", 5353)},
		{Name: "route-public6", Tries: "find a way to a public IPv6 address", Want: noRoute6, Lacking: noRoute6, do: route("2001:db8::1", 443)},
		{Name: "route-mapped", Tries: "find a way to a public address by its IPv6 form", Want: noRoute6, Lacking: noRoute6, do: route("::ffff:203.0.113.1", 443)},
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
		{Name: "vsock", Call: "socket", Tries: "open a socket to the hypervisor, which network namespaces do not stop", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_VSOCK, unix.SOCK_STREAM, 0) }},
		{Name: "af-alg", Call: "socket", Tries: "open a socket of the kernel's ciphers", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_ALG, unix.SOCK_SEQPACKET, 0) }},
		{Name: "vsock-pair", Call: "socketpair", Tries: "the same by socketpair, which makes the socket before it finds that it cannot pair it", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error {
			_, err := unix.Socketpair(unix.AF_VSOCK, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			return reached(err, unix.EOPNOTSUPP)
		}},
		{Name: "mptcp", Tries: "open a socket of the second TCP", Want: []string{"EPROTONOSUPPORT"}, Lacking: []string{"EPROTONOSUPPORT", "ENOPROTOOPT", "EINVAL"}, do: func(*Arena) error { return socket(unix.AF_INET, unix.SOCK_STREAM, 262) }},
		{Name: "af-packet", Call: "socket", Tries: "open a raw packet socket", Want: noFamily, Outside: elsewhere, do: func(*Arena) error { return socket(unix.AF_PACKET, unix.SOCK_RAW, 0) }},
		{Name: "af-bluetooth", Call: "socket", Tries: "open a Bluetooth socket", Want: noFamily, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_BLUETOOTH, unix.SOCK_STREAM, 3) }},
		{Name: "raw-icmp", Tries: "open a raw ICMP socket", Want: noFamily, Outside: elsewhere, do: func(*Arena) error { return socket(unix.AF_INET, unix.SOCK_RAW, unix.IPPROTO_ICMP) }},
		{Name: "netlink-netfilter", Call: "socket", Tries: "open the firewall's netlink socket", Want: noProtocol, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER) }},
		{Name: "netlink-audit", Call: "socket", Tries: "open the audit netlink socket", Want: noProtocol, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_AUDIT) }},
		{Name: "netlink-uevent", Call: "socket", Tries: "open the device events' netlink socket", Want: noProtocol, Lacking: unbuilt, do: func(*Arena) error { return socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_KOBJECT_UEVENT) }},
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

// route asks the kernel for a way and sends nothing.
func route(addr string, port int) func(*Arena) error {
	to := netip.MustParseAddr(addr)
	return func(*Arena) error {
		if to.Is4() {
			return connects(unix.AF_INET, unix.SOCK_DGRAM, &unix.SockaddrInet4{Port: port, Addr: to.As4()})
		}
		return connects(unix.AF_INET6, unix.SOCK_DGRAM, &unix.SockaddrInet6{Port: port, Addr: to.As16()})
	}
}

// udpHost waits a little for the refusal, which comes after the sending.
func udpHost(a *Arena) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, &unix.SockaddrInet4{Port: a.UDP4, Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return err
	}
	if _, err := unix.Write(fd, []byte("x")); err != nil {
		return err
	}
	if n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 200); n == 0 { // ms
		return nil
	}
	_, err = unix.Read(fd, make([]byte, 1))
	return err
}

func fastOpen(a *Arena) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Sendto(fd, []byte("x"), unix.MSG_FASTOPEN, &unix.SockaddrInet4{Port: a.TCP4, Addr: [4]byte{127, 0, 0, 1}})
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
