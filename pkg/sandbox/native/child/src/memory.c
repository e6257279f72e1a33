/* The compiler may call these for a struct that it clears or copies. */
#include <stddef.h>

void *memset(void *to, int byte, size_t size)
{
	volatile char *t = to;
	while (size--)
		*t++ = (char)byte;
	return to;
}

void *memcpy(void *to, const void *from, size_t size)
{
	volatile char *t = to;
	const char *f = from;
	while (size--)
		*t++ = *f++;
	return to;
}
