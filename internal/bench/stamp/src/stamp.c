/* Writes the monotonic clock to stdout as its very first act, and ends: what is
 * measured is when a command's first instruction runs, so there is no C library
 * whose start would be measured too. Sixteen bytes: seconds and nanoseconds. */

struct timespec { long sec, nsec; };

#if defined(__x86_64__)
enum { write_nr = 1, exit_nr = 60, clock_nr = 228 };
static long call(long n, long a, long b, long c)
{
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return r;
}
#elif defined(__aarch64__)
enum { write_nr = 64, exit_nr = 93, clock_nr = 113 };
static long call(long n, long a, long b, long c)
{
	register long x8 __asm__("x8") = n, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
	return x0;
}
#else
#error "no system calls for this machine"
#endif

void _start(void)
{
	struct timespec now;
	call(clock_nr, 1 /* CLOCK_MONOTONIC */, (long)&now, 0);
	call(write_nr, 1, (long)&now, sizeof now);
	call(exit_nr, 0, 0, 0);
	__builtin_unreachable();
}
