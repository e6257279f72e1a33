/* A process gives up what it may. */
#include "helper.h"

#include <linux/capability.h>
#include <linux/prctl.h>

/* What no program gets by being executed any more. It needs CAP_SETPCAP. */
void drop_bounding(void)
{
	for (int cap = 0; cap < 64; cap++)
		if (sys(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0) < 0)
			break;
}

long drop_capabilities(int bound)
{
	if (!bound)
		drop_bounding(); /* first: capset takes away what it needs */
	sys(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
	struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
	return sys(__NR_capset, &head, none);
}
