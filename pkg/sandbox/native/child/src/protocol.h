/*
 * What the node and the helper say to each other. The other side is
 * protocol.go, which draws the conversation; a test there compares every
 * number of this file with Go's.
 */
#ifndef PROTOCOL_H
#define PROTOCOL_H

#include <stdint.h>

#define PROTOCOL_VERSION 1

/* Messages. Each is one packet: struct message, then an operand without end
 * mark; descriptors travel with it. */
#define MSG_NAMESPACES 1
#define MSG_OPERATIONS 2
#define MSG_EXEC       3
#define MSG_SIGNAL     4
#define MSG_LISTENER   5
#define MSG_CONNECT    6
#define MSG_ADOPT      7
#define MSG_SPAWNED    16
#define MSG_READY      17
#define MSG_FAILED     18
#define MSG_STARTED    19
#define MSG_EXITED     20
#define MSG_MADE       21

#define LIST_LAST 0 /* of operations: nothing follows */
#define LIST_MORE 1 /* another list follows */
#define LIST_TELL 2 /* another one follows when it has been said that this one is done */

#define READY_LISTENER 1 /* descriptors that came with "ready", in this order */
#define READY_NOTIFIER 2

#define EXEC_TERMINAL 1 /* open a terminal instead of taking three streams */
#define EXEC_PROBES   2 /* carry out system calls instead of a program */
#define EXEC_BARE     4 /* without the Landlock domain that commands take on */
#define EXEC_SETTLED  8 /* not before probes that have told everything are gone */

/* Operations. */
#define OP_END      0
#define OP_ROOT     1
#define OP_DIR      2
#define OP_FILE     3
#define OP_LINK     4
#define OP_BIND     5
#define OP_TMPFS    6
#define OP_PROC     7
#define OP_DEVPTS   8
#define OP_TEXT     9
#define OP_POOL     10
#define OP_PIVOT    11
#define OP_ATTRIBUTES 12
#define OP_LOOPBACK 13
#define OP_LISTEN   14
#define OP_HOSTNAME 15
#define OP_RLIMIT   16
#define OP_WRITE    17
#define OP_RULESET  18
#define OP_RULE     19
#define OP_RESTRICT 20
#define OP_KEEP     21
#define OP_SEAL     22
#define OP_FILTER   23
#define OP_FILES    24
#define OP_HERE     25
#define OP_TITLE     26
#define OP_BOUND     27

#define FLAG_OPTIONAL 1 /* what is missing is left out */
#define FLAG_MAKE     2 /* the mount point may be made */
#define FLAG_INSIDE   4 /* the source is a path below the new root */
#define FLAG_STRICT   8 /* the source may not pass through a symbolic link */
#define FLAG_SINGLE   16 /* a file with a second hard link is refused */
#define FLAG_IFTHERE  32 /* a missing mount point is left out */
#define FLAG_LINK     64 /* source and target are a symbolic link, which itself is meant */
#define FLAG_POOL     256 /* a directory of the pool is meant, by its name */
#define FLAG_NOTIFY   128 /* the filter's questions go to the node, if it can have them */

/* Stages: where something failed. */
#define STAGE_PROTOCOL   1
#define STAGE_USERNS     2
#define STAGE_MOUNTNS    3
#define STAGE_PIDNS      4
#define STAGE_NETNS      5
#define STAGE_IPCNS      6
#define STAGE_UTSNS      7
#define STAGE_CGROUPNS   8
#define STAGE_MAPS       9
#define STAGE_FORK       10
#define STAGE_PRIVATE    11
#define STAGE_ROOT       12
#define STAGE_SOURCE     13
#define STAGE_MAKE       14
#define STAGE_MOUNT      15
#define STAGE_PROC       16
#define STAGE_DEVPTS     17
#define STAGE_POOL       18
#define STAGE_PIVOT      19
#define STAGE_ATTRIBUTES 20
#define STAGE_LOOPBACK   21
#define STAGE_LISTEN     22
#define STAGE_HOSTNAME   23
#define STAGE_RLIMIT     24
#define STAGE_WRITE      25
#define STAGE_LANDLOCK   26
#define STAGE_RULE       27
#define STAGE_CAPS       28
#define STAGE_NNP        29
#define STAGE_SECCOMP    30
#define STAGE_TERMINAL   31
#define STAGE_STDIO      32
#define STAGE_DIR        33
#define STAGE_PROGRAM    34
#define STAGE_NOTIFY     35
#define STAGE_BUSY       36
#define STAGE_CONNECT    37

/* Probes: how one argument of a probed system call is to be understood. */
#define ARG_NUMBER 0 /* as it is */
#define ARG_DATA   1 /* an offset into the data that came along */
#define ARG_RESULT 2 /* what the probe of that index returned */
#define ARG_BUFFER 3 /* the buffer of that many bytes that is sent back */

#define PROBE_BUFFER 4096
#define MAX_PROBES   4096

struct message {
	uint32_t version, type;
	uint32_t tag; /* the command that is meant */
	int32_t a, b, c;
};

struct operation {
	uint32_t code, flags;
	uint64_t a, b, c;
	uint32_t first, second, blob; /* lengths; the strings without their end mark */
	uint32_t size;                /* of the whole operation, a multiple of eight */
};

struct program {
	uint32_t candidates, argc, envc, pad; /* then: directory, candidates, argv, env */
};

struct probes {
	uint32_t count, data; /* then: count of struct probe, then data bytes */
};

struct probe {
	uint64_t number, value[6];
	uint8_t kind[6];
	uint16_t after; /* not unless the probe before this index succeeded; 0: always */
};

struct finding {
	int64_t result;  /* of the system call, or minus errno */
	uint64_t length; /* bytes of the buffer that follow */
};

#endif
