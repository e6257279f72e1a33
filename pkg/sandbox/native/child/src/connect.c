/* A connection to what listens inside, for the node. It is not waited for:
 * pid 1 serves everybody, and the node sees the socket become writable. */
#include "helper.h"

#include <linux/in.h>
#include <linux/in6.h>

#define SOCK_STREAM_ 1
#define SOCK_NONBLOCK_ 04000
#define AF_INET_ 2
#define AF_INET6_ 10

/* The socket, or a negative errno. Loopback only: 127.0.0.1, or ::1. */
long connect_inside(int port, int six)
{
	uint16_t big = (uint16_t)(port << 8 | (port >> 8 & 0xff));
	struct sockaddr_in in4 = {.sin_family = AF_INET_, .sin_port = big, .sin_addr = {0x0100007f}};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6_, .sin6_port = big};
	in6.sin6_addr.in6_u.u6_addr8[15] = 1;

	long fd = sys(__NR_socket, six ? AF_INET6_ : AF_INET_, SOCK_STREAM_ | SOCK_NONBLOCK_ | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	long r = sys(__NR_connect, fd, six ? (void *)&in6 : (void *)&in4, six ? sizeof in6 : sizeof in4);
	if (r < 0 && r != -EINPROGRESS) {
		sys(__NR_close, fd);
		return r;
	}
	return fd;
}
