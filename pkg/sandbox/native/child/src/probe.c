/*
 * A check's attempts. What is tried and what must come of it is decided and
 * tested in Go; here a list of system calls is carried out one after the
 * other by a process sealed as a command is, and every result is sent back.
 */
#include "helper.h"

static char buffer[PROBE_BUFFER];

/* What was found, kept until there is enough of it: each write would wake the
 * node, and that costs more than the attempt. */
static struct {
	int out;
	size_t used;
	char bytes[16 * PROBE_BUFFER];
} report;

static void flush(void)
{
	const char *p = report.bytes;
	while (report.used) {
		long n = sys(__NR_write, report.out, p, report.used);
		if (n <= 0)
			leave(1);
		p += n;
		report.used -= (size_t)n;
	}
}

static void put(const void *from, size_t size)
{
	if (report.used + size > sizeof report.bytes)
		flush();
	for (const char *p = from; size; size--)
		report.bytes[report.used++] = *p++;
}

_Noreturn void run_probes(const char *list, size_t size, int out)
{
	static long results[MAX_PROBES];
	const struct probes *head = (const void *)list;
	const struct probe *probe = (const void *)(head + 1);
	if (size < sizeof *head || head->count > MAX_PROBES ||
	    size < sizeof *head + head->count * sizeof *probe + head->data)
		leave(2);
	const char *data = (const char *)(probe + head->count);
	report.out = out;

	for (uint32_t i = 0; i < head->count; i++) {
		long args[6];
		struct finding finding = {0, 0};
		uint32_t after = probe[i].after;
		if (after && results[(after - 1) % MAX_PROBES] < 0) {
			finding.result = results[i] = -ECANCELED;
			put(&finding, sizeof finding);
			continue;
		}
		for (int k = 0; k < 6; k++) {
			uint64_t value = probe[i].value[k];
			switch (probe[i].kind[k]) {
			case ARG_DATA:
				args[k] = (long)(data + value);
				break;
			case ARG_RESULT:
				args[k] = results[value % MAX_PROBES];
				break;
			case ARG_BUFFER:
				args[k] = (long)buffer;
				finding.length = value > PROBE_BUFFER ? PROBE_BUFFER : value;
				break;
			default:
				args[k] = (long)value;
			}
		}
		results[i] = sys(probe[i].number, args[0], args[1], args[2], args[3], args[4], args[5]);
		finding.result = results[i];
		if (results[i] < 0)
			finding.length = 0;
		put(&finding, sizeof finding);
		put(buffer, finding.length);
	}
	flush();
	leave(0);
}
