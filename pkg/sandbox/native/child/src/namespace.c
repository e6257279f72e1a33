/* The outer process: namespaces and maps. It runs as the session's user, in
 * a root node too, so that there is one way and not two. */
#include "helper.h"

#include <linux/filter.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/seccomp.h>

static long write_file(const char *path, const char *text, size_t size)
{
	long fd = sys(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return fd;
	long n = sys(__NR_write, fd, text, size);
	sys(__NR_close, fd);
	return n < 0 ? n : 0;
}

static char *decimal(char *to, uint32_t value)
{
	char digits[10];
	int n = 0;
	do
		digits[n++] = (char)('0' + value % 10);
	while (value /= 10);
	while (n)
		*to++ = digits[--n];
	return to;
}

/* The same number inside and outside: the only map that needs no privilege
 * and leaves the owner of every file as it is. */
static long write_map(const char *path, uint32_t id)
{
	char line[32], *end = decimal(line, id);
	*end++ = ' ';
	end = decimal(end, id);
	*end++ = ' ';
	*end++ = '1';
	*end++ = '\n';
	return write_file(path, line, (size_t)(end - line));
}

int make_namespaces(uint32_t uid, uint32_t gid, struct failure *failure)
{
	/* One by one, so that a refusal has a name. The user namespace is first:
	 * it is what makes the others possible. */
	static const struct {
		uint32_t stage;
		long flag;
	} rest[] = {
		{STAGE_MOUNTNS, CLONE_NEWNS},	{STAGE_PIDNS, CLONE_NEWPID}, {STAGE_NETNS, CLONE_NEWNET},
		{STAGE_IPCNS, CLONE_NEWIPC},	{STAGE_UTSNS, CLONE_NEWUTS}, {STAGE_CGROUPNS, CLONE_NEWCGROUP},
	};
	long r = sys(__NR_unshare, CLONE_NEWUSER);
	if (r < 0)
		return fail(failure, STAGE_USERNS, r, "");

	/* In this order: without privilege a group map needs setgroups denied,
	 * and nothing may be made in a tmpfs before the maps stand (EOVERFLOW). */
	r = write_file("/proc/self/setgroups", "deny", 4);
	if (r < 0)
		return fail(failure, STAGE_MAPS, r, "/proc/self/setgroups");
	r = write_map("/proc/self/gid_map", gid);
	if (r < 0)
		return fail(failure, STAGE_MAPS, r, "/proc/self/gid_map");
	r = write_map("/proc/self/uid_map", uid);
	if (r < 0)
		return fail(failure, STAGE_MAPS, r, "/proc/self/uid_map");

	for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
		r = sys(__NR_unshare, rest[i].flag);
		if (r < 0)
			return fail(failure, rest[i].stage, r, "");
	}
	return 0;
}

/* Whether a filter that notifies a listener can be installed. Only doing it
 * tells: another holder of a listener (WSL has one) gives EBUSY. */
long probe_listener(void)
{
	struct sock_filter allow = {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW};
	struct sock_fprog program = {1, &allow};
	long r = sys(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	if (r < 0)
		return r;
	r = sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
	if (r >= 0)
		sys(__NR_close, r);
	return r < 0 ? r : 0;
}
