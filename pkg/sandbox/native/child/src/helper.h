/* What the parts of the helper share. */
#ifndef HELPER_H
#define HELPER_H

#include "protocol.h"
#include "sys.h"

/* Where something failed. Kept in one place, because a command's failure
 * before exec is written by the child into memory that it shares. */
struct failure {
	uint32_t stage;
	int32_t error; /* a positive errno; zero means nothing failed */
	const char *operand;
};

/* failure.c: writes down a system call's answer, and is -1. Everybody may call
 * it, and it calls nobody. */
int fail(struct failure *failure, uint32_t stage, long result, const char *operand);

/* setup.c: carry out the operations; what it opens stays in *place. */
struct place {
	int root;	/* the new root directory */
	int pool;	/* memory that several directories share, or -1 */
	int listener;	/* to be handed to the node, or -1 */
	int ruleset;	/* Landlock rules being collected, or -1 */
	int domain;	/* Landlock rules that each command takes on, or -1 */
	int notifier;	/* the filter's listener, to be handed to the node, or -1 */
	int bound;	/* no program gets a capability by being executed */
	uint64_t files; /* how many each command may have open, or 0 */
	int parent;	/* the directory below root that was last worked in, or -1 */
	const char *parent_path; /* its path, of parent_size bytes, in the list */
	size_t parent_size;
	int list;	/* the file in which the list of operations is, at from */
	const char *from;
	char *id;	/* the sandbox's ID on this process' command line */
	size_t id_room; /* with its end mark */
};
int set_up(struct place *place, const char *list, size_t size, struct failure *failure);

/* capabilities.c: both together, but for the first where that is done already. */
void drop_bounding(void);
long drop_capabilities(int bound);

/* probe.c: system calls on behalf of a check, sealed as a command is. */
_Noreturn void run_probes(const char *list, size_t size, int out);

/* connect.c: a socket that connects to a port inside, or a negative errno. */
long connect_inside(int port, int six);

/* namespace.c: what the outer process does before it forks. */
int make_namespaces(uint32_t uid, uint32_t gid, struct failure *failure);
long probe_listener(void);

#endif
