/*
 * mojoup-child ID: what stands between the node and a command.
 *
 * It is started by the node with a socket as descriptor 3 and becomes two
 * processes. The outer one makes the namespaces, forks, and waits. The inner
 * one is pid 1 of the sandbox: it carries out the operations that it is sent,
 * seals itself, and from then on starts commands, reaps whatever ends, and
 * leaves, with everything inside, when the node's end of the socket closes.
 *
 * With the path of a socket as second argument it joins: somebody else has made
 * the sandbox and started it there. It connects to its node and is one process.
 *
 * Why not Go: a Go program as pid 1 has threads that stay privileged when one
 * is sealed, starts three times slower, and a fork of the node would copy its
 * heap's page tables. The messages are drawn in protocol.go.
 */
#include "helper.h"

#include <asm/ioctls.h>
#include <asm/poll.h>
#include <asm/resource.h>
#include <asm/signal.h>
#include <linux/prctl.h>
#include <linux/sched.h>
#include <linux/wait.h>

#define CONTROL 3
#define MAX_FDS 4
#define MAX_COMMANDS 256

#define SOL_SOCKET_ 1
#define SCM_RIGHTS_ 1
#define MSG_CMSG_CLOEXEC_ 0x40000000
#define CLOSE_RANGE_CLOEXEC 4
#define MSG_NOSIGNAL_ 0x4000
#define MSG_CTRUNC_ 8


static char *own_id; /* the first argument */

struct iovec_ {
	void *base;
	size_t size;
};
struct msghdr_ {
	void *name;
	int namelen;
	struct iovec_ *iov;
	size_t iovlen;
	void *control;
	size_t controllen;
	unsigned flags;
};
struct rights {
	size_t size;
	int level, type;
	int fds[MAX_FDS];
};
#define RIGHTS_SIZE(n) (offsetof(struct rights, fds) + (n) * sizeof(int))

struct parcel {
	struct message message;
	int fds[MAX_FDS], count;
};

/* One packet. Zero bytes mean that the node has gone. */
static long receive(struct parcel *p)
{
	struct rights rights = {0};
	struct iovec_ iov = {&p->message, sizeof p->message};
	struct msghdr_ head = {0, 0, &iov, 1, &rights, sizeof rights, 0};
	long n;
	do
		n = sys(__NR_recvmsg, CONTROL, &head, MSG_CMSG_CLOEXEC_);
	while (n == -EINTR);
	p->count = 0;
	if (head.controllen >= RIGHTS_SIZE(1) && rights.type == SCM_RIGHTS_)
		p->count = (int)((rights.size - offsetof(struct rights, fds)) / sizeof(int));
	for (int i = 0; i < p->count; i++)
		p->fds[i] = rights.fds[i];
	if (n > 0 && (n != sizeof p->message || head.flags & MSG_CTRUNC_ || p->message.version != PROTOCOL_VERSION))
		return -EPROTO;
	return n;
}

static void discard(struct parcel *p)
{
	while (p->count > 0)
		sys(__NR_close, p->fds[--p->count]);
}

static void answer_with(const struct message *m, const char *operand, const int *fds, size_t count)
{
	struct rights rights = {RIGHTS_SIZE(count), SOL_SOCKET_, SCM_RIGHTS_, {0}};
	for (size_t i = 0; i < count; i++)
		rights.fds[i] = fds[i];
	struct iovec_ iov[2] = {{(void *)m, sizeof *m}, {(void *)operand, operand ? length(operand) : 0}};
	struct msghdr_ head = {0, 0, iov, 2, &rights, (RIGHTS_SIZE(count) + 7) & ~7ul, 0};
	if (!count)
		head.control = 0, head.controllen = 0;
	long r;
	do
		r = sys(__NR_sendmsg, CONTROL, &head, MSG_NOSIGNAL_);
	while (r == -EINTR);
	/* With descriptors only: the user may have too many under way. Unsaid,
	 * the node would wait for ever. */
	if (r < 0 && count) {
		struct message failed = {PROTOCOL_VERSION, MSG_FAILED, m->tag, STAGE_PROTOCOL, (int32_t)-r, 0};
		answer_with(&failed, 0, 0, 0);
	}
}

static void answer(uint32_t type, uint32_t tag, int32_t a, int32_t b, const char *operand, int fd)
{
	struct message m = {PROTOCOL_VERSION, type, tag, a, b, 0};
	answer_with(&m, operand, &fd, fd >= 0);
}

static void answer_failure(uint32_t tag, const struct failure *f)
{
	answer(MSG_FAILED, tag, (int32_t)f->stage, f->error, f->operand, -1);
}

/* A payload travels as a memory file, since a packet is too small for an
 * environment. Private and writable: argv wants plain pointers. */
static char *map(int fd, size_t *size)
{
	long end = sys(__NR_lseek, fd, 0, 2);
	if (end <= 0)
		return 0;
	*size = (size_t)end;
	long at = sys(__NR_mmap, 0, end, 3 /* READ|WRITE */, 2 /* PRIVATE */, fd, 0);
	return at < 0 && at > -4096 ? 0 : (char *)at;
}

/* ---- one command ---- */

struct command {
	const struct place *place;
	char *list;
	size_t size;
	int probes, terminal, bare;
	int stream[3];
	const char *dir;
	char **candidates, **argv, **env;
	struct failure failure;
};

/* What a device that was handed over is called inside, or 0 for all else. The
 * null device of a stream that nobody wants is one of them. It came by a mount
 * of the host's, on which a session of root could change its mode or owner. */
static const char *own_device(int fd)
{
	struct statx status;
	long r = sys(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &status);
	if (r < 0 || (status.stx_mode & S_IFMT) != S_IFCHR || status.stx_rdev_major != 1)
		return 0;
	switch (status.stx_rdev_minor) {
	case 3:
		return "/dev/null";
	case 5:
		return "/dev/zero";
	case 7:
		return "/dev/full";
	case 8:
		return "/dev/random";
	case 9:
		return "/dev/urandom";
	}
	return 0;
}

/* Makes what was handed over, or the same device of the sandbox's own, the
 * stream i. Everything that is open lies above 3, so that no dup3 runs over
 * another stream. */
static long put_stream(int fd, int i)
{
	const char *own = own_device(fd);
	long from = fd;
	if (own)
		from = sys(__NR_openat, AT_FDCWD, own, sys(__NR_fcntl, fd, F_GETFL) & O_ACCMODE);
	return from < 0 ? from : sys(__NR_dup3, from, i, 0);
}

/* Runs in pid 1's memory on a stack of its own until exec. Its capabilities,
 * no_new_privs, first Landlock domain and filter are pid 1's already. */
static void become(void *with)
{
	struct command *c = with;
	uint64_t none = 0;
	long r;

	sys(__NR_setsid);
	if (c->terminal) {
		r = sys(__NR_ioctl, c->stream[0], TIOCSCTTY, 0);
		if (r < 0)
			fail(&c->failure, STAGE_TERMINAL, r, ""), leave(126);
	}
	for (int i = 0; i < 3 && !c->probes; i++) {
		r = put_stream(c->stream[i], i);
		if (r < 0)
			fail(&c->failure, STAGE_STDIO, r, ""), leave(126);
	}
	r = c->bare ? 0 : sys(__NR_landlock_restrict_self, c->place->domain, 0);
	if (r < 0)
		fail(&c->failure, STAGE_LANDLOCK, r, ""), leave(126);
	if (c->place->files) {
		uint64_t most[2] = {c->place->files, c->place->files};
		r = sys(__NR_prlimit64, 0, RLIMIT_NOFILE, most, 0);
		if (r < 0)
			fail(&c->failure, STAGE_RLIMIT, r, "files"), leave(126);
	}
	sys(__NR_rt_sigprocmask, SIG_SETMASK, &none, 0, sizeof none);
	if (c->probes)
		run_probes(c->list, c->size, c->stream[0]);
	/* The control socket above all: whoever holds it speaks as pid 1. */
	sys(__NR_close_range, 3, ~0u, CLOSE_RANGE_CLOEXEC);

	r = sys(__NR_chdir, c->dir);
	if (r < 0)
		fail(&c->failure, STAGE_DIR, r, c->dir), leave(126);
	/* Like a shell: the first that can be executed; a refusal is remembered
	 * over "no such file", and nothing else is passed over. */
	long worst = -ENOENT;
	for (char **p = c->candidates; *p; p++) {
		r = sys(__NR_execve, *p, c->argv, c->env);
		if (r == -EACCES)
			worst = r;
		else if (r != -ENOENT && r != -ENOTDIR) {
			worst = r;
			break;
		}
	}
	fail(&c->failure, STAGE_PROGRAM, worst, c->argv[0]);
	leave(worst == -ENOENT ? 127 : 126);
}

static char **words(char ***next, uint32_t count, char **text)
{
	char **first = *next;
	for (uint32_t i = 0; i < count; i++) {
		*(*next)++ = *text;
		*text += length(*text) + 1;
	}
	*(*next)++ = 0;
	return first;
}

/* Where the pointers of a program lie: in front of nothing, so one mapping. */
static long unpack(struct command *c, size_t *room)
{
	const struct program *p = (const void *)c->list;
	if (c->size < sizeof *p || p->candidates > 4096 || p->argc > 1 << 20 || p->envc > 1 << 20)
		return -EBADMSG;
	*room = (p->candidates + p->argc + p->envc + 3) * sizeof(char *);
	long at = sys(__NR_mmap, 0, *room, 3, 0x22 /* PRIVATE|ANONYMOUS */, -1, 0);
	if (at < 0 && at > -4096)
		return at;
	char **next = (char **)at, *text = c->list + sizeof *p;
	c->dir = text;
	text += length(text) + 1;
	c->candidates = words(&next, p->candidates, &text);
	c->argv = words(&next, p->argc, &text);
	c->env = words(&next, p->envc, &text);
	return at;
}

/* A terminal of the sandbox's own devpts: opened inside, so that no name of
 * the host's leads to it, and its master side is handed out. */
static long open_terminal(struct command *c, int columns, int rows, int *master)
{
	uint16_t size[4] = {(uint16_t)rows, (uint16_t)columns, 0, 0};
	int unlocked = 0;
	long m = sys(__NR_openat, AT_FDCWD, "/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (m < 0)
		return m;
	long r = sys(__NR_ioctl, m, TIOCSPTLCK, &unlocked);
	if (r >= 0)
		r = sys(__NR_ioctl, m, TIOCSWINSZ, size);
	if (r >= 0)
		r = sys(__NR_ioctl, m, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (r < 0) {
		sys(__NR_close, m);
		return r;
	}
	c->stream[0] = c->stream[1] = c->stream[2] = (int)r;
	*master = (int)m;
	return r;
}

static struct {
	uint32_t tag;
	int pid, probes;
} running[MAX_COMMANDS];

static int slot_of(int pid)
{
	for (int i = 0; i < MAX_COMMANDS; i++)
		if (running[i].pid == pid)
			return i;
	return -1;
}

static void ended(int slot, int status)
{
	int pid = running[slot].pid;
	running[slot].pid = 0;
	answer(MSG_EXITED, running[slot].tag, pid, status, 0, -1);
}

/* Waits for probes of which the node has read everything, so that they only
 * have to leave: until then they count against the limits of what comes next. */
static void settle(void)
{
	int status;
	for (int i = 0; i < MAX_COMMANDS; i++)
		if (running[i].pid && running[i].probes && sys(__NR_wait4, running[i].pid, &status, __WALL, 0) > 0)
			ended(i, status);
}

/* Only one command is being started at a time, so one stack does. */
static char stack[16384] __attribute__((aligned(16)));

static void execute(const struct place *place, struct parcel *p)
{
	const struct message *m = &p->message;
	struct command c = {.place = place, .probes = m->c & EXEC_PROBES, .terminal = m->c & EXEC_TERMINAL, .bare = m->c & EXEC_BARE};
	int master = -1, slot = slot_of(0);
	size_t room = 0;
	long pointers = 0, r = -EBADMSG;
	if (m->c & EXEC_SETTLED)
		settle(), slot = slot_of(0);
	uint32_t stage = STAGE_PROTOCOL;
	int want = c.terminal ? 1 : c.probes ? 2 : 4;

	if (slot < 0)
		stage = STAGE_BUSY, r = -EAGAIN;
	else if (p->count == want && (c.list = map(p->fds[0], &c.size)))
		r = c.probes ? 0 : (pointers = unpack(&c, &room));
	if (r >= 0 && c.terminal)
		stage = STAGE_TERMINAL, r = open_terminal(&c, m->a, m->b, &master);
	if (r < 0) {
		fail(&c.failure, stage, r, "");
		goto out;
	}
	for (int i = 1; i < want; i++)
		c.stream[i - 1] = p->fds[i];
	if (c.probes) {
		/* Memory of its own, as a command has: who shares pid 1's may open
		 * it, and the check would judge itself. */
		r = sys(__NR_clone, SIGCHLD, 0, 0, 0, 0);
		if (r == 0)
			become(&c);
	} else
		r = spawn(CLONE_VM | CLONE_VFORK | SIGCHLD, stack + sizeof stack, become, &c);
	if (r < 0)
		fail(&c.failure, STAGE_FORK, r, "");
out:
	if (c.failure.error) {
		answer_failure(m->tag, &c.failure);
	} else {
		running[slot].tag = m->tag;
		running[slot].pid = (int)r;
		running[slot].probes = c.probes;
		answer(MSG_STARTED, m->tag, (int32_t)r, 0, 0, master);
	}
	if (master >= 0) {
		sys(__NR_close, master);
		sys(__NR_close, c.stream[0]);
	}
	if (room)
		sys(__NR_munmap, pointers, room);
	if (c.list)
		sys(__NR_munmap, c.list, c.size);
}

/* ---- pid 1 ---- */

static void reap(void)
{
	int status;
	for (;;) {
		long pid = sys(__NR_wait4, -1, &status, WNOHANG | __WALL, 0);
		if (pid <= 0)
			return;
		int slot = slot_of((int)pid);
		if (slot < 0)
			continue; /* an orphan: nobody else would collect it */
		ended(slot, status);
	}
}

static void pass_on(const struct message *m)
{
	for (int i = 0; i < MAX_COMMANDS; i++)
		/* Probes may not have got as far as to have a group. */
		if (running[i].pid && running[i].tag == m->tag && sys(__NR_kill, -running[i].pid, m->a) < 0)
			sys(__NR_kill, running[i].pid, m->a);
}

static void hand_connection(const struct message *m)
{
	long fd = connect_inside(m->a, m->b);
	if (fd < 0) {
		answer(MSG_FAILED, m->tag, STAGE_CONNECT, (int32_t)-fd, 0, -1);
		return;
	}
	answer(MSG_STARTED, m->tag, 0, 0, 0, (int)fd);
	sys(__NR_close, fd);
}

/* Receives one request and carries it out. */
static void take(const struct place *place)
{
	struct parcel p;
	if (receive(&p) <= 0)
		leave(0); /* the node has gone, and with pid 1 everything inside */
	if (p.message.type == MSG_EXEC)
		execute(place, &p);
	else if (p.message.type == MSG_SIGNAL)
		pass_on(&p.message);
	else if (p.message.type == MSG_CONNECT)
		hand_connection(&p.message);
	discard(&p);
}

struct polled {
	int fd;
	short events, revents;
};

static int has_request(void)
{
	struct polled control = {CONTROL, POLLIN, 0};
	int64_t at_once[2] = {0, 0};
	return sys(__NR_ppoll, &control, 1, at_once, 0, 0) > 0;
}

_Noreturn static void serve(const struct place *place, int children)
{
	struct polled poll[2] = {{CONTROL, POLLIN, 0}, {children, POLLIN, 0}};
	for (;;) {
		char info[128];
		long r = sys(__NR_ppoll, poll, 2, 0, 0, 0);
		if (r < 0 && r != -EINTR)
			leave(1);
		if (poll[1].revents) {
			sys(__NR_read, children, info, sizeof info);
			reap();
		}
		if (poll[0].revents)
			take(place);
	}
}

/* Receives one list of operations and carries it out. What a list leaves is
 * there for the next; between two, this process may wait for long. */
static int carry_out_list(struct place *place, long children)
{
	struct failure failure = {0};
	struct parcel p;
	size_t size = 0;

	if (receive(&p) <= 0)
		leave(0);
	char *list = p.message.type == MSG_OPERATIONS && p.count == 1 ? map(p.fds[0], &size) : 0;
	if (children < 0 || !list)
		fail(&failure, STAGE_PROTOCOL, -EBADMSG, "");
	else {
		place->list = p.fds[0];
		place->from = list;
		set_up(place, list, size, &failure);
	}
	if (failure.error) {
		answer_failure(0, &failure);
		leave(1);
	}
	discard(&p);
	sys(__NR_munmap, list, size);
	if (p.message.a == LIST_TELL)
		answer(MSG_MADE, 0, 0, 0, 0, -1);
	return p.message.a;
}

/* What was made inside for the node. We keep none of it: who holds the
 * listener of a filter when the node has died answers nobody. */
static void hand_out(const struct place *place)
{
	struct message m = {PROTOCOL_VERSION, MSG_READY, 0, 0, 0, 0};
	int fds[2];
	size_t count = 0;
	if (place->listener >= 0)
		m.a |= READY_LISTENER, fds[count++] = place->listener;
	if (place->notifier >= 0)
		m.a |= READY_NOTIFIER, fds[count++] = place->notifier;
	answer_with(&m, 0, fds, count);
	while (count)
		sys(__NR_close, fds[--count]);
}

/* Sets up what it is told to, and serves. */
_Noreturn static void lead(void)
{
	struct place place = {.root = -1, .pool = -1, .listener = -1, .ruleset = -1, .domain = -1, .notifier = -1, .parent = -1,
			      .id = own_id, .id_room = own_id ? length(own_id) + 1 : 0};
	uint64_t all = ~0ull, child = 1ull << (SIGCHLD - 1);

	/* Nobody inside may trace pid 1. Only now: a non-dumpable process' maps
	 * belong to root, and the outer one has just written them. */
	sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	sys(__NR_setsid);
	sys(__NR_rt_sigprocmask, 0, &all, 0, sizeof all);
	long children = sys(__NR_signalfd4, -1, &child, sizeof child, O_CLOEXEC);

	while (carry_out_list(&place, children) != LIST_LAST)
		;
	sys(__NR_close, place.root);
	sys(__NR_umask, 022);
	/* What has been asked for ahead is under way before the node hears that we
	 * are ready: to tell it wakes it, and mostly where we run. */
	while (has_request())
		take(&place);
	hand_out(&place);
	serve(&place, (int)children);
}

_Noreturn static void be_first(const int life[2])
{
	char nothing;
	sys(__NR_close, life[1]);
	/* The outer process may be killed; then nobody would wait for us. It may
	 * have been already: its end of the pipe closes before that signal is due,
	 * so one of the two tells. */
	sys(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
	if (sys(__NR_read, life[0], &nothing, 1) != -EAGAIN)
		leave(1);
	sys(__NR_close, life[0]);
	lead();
}

/* ---- a sandbox that somebody else has made ---- */

/* Connects to the node, which sends a socket of its own in answer: this one
 * belongs to the network inside, and could be seen there. */
_Noreturn static void join(const char *path)
{
	struct {
		uint16_t family;
		char path[108];
	} at = {1 /* AF_UNIX */, {0}};
	struct parcel p;
	size_t n = length(path);

	if (n >= sizeof at.path)
		leave(2);
	for (size_t i = 0; i < n; i++)
		at.path[i] = path[i];
	long fd = sys(__NR_socket, 1, 5 /* SEQPACKET */ | O_CLOEXEC, 0);
	if (fd < 0 || sys(__NR_connect, fd, &at, sizeof at.family + n + 1) < 0)
		leave(3);
	if (fd != CONTROL)
		sys(__NR_dup3, fd, CONTROL, O_CLOEXEC), sys(__NR_close, fd);
	if (receive(&p) <= 0 || p.message.type != MSG_ADOPT || p.count != 1)
		leave(4);
	sys(__NR_dup3, p.fds[0], CONTROL, O_CLOEXEC);
	discard(&p);
	/* What commands leave behind comes to us, not to whoever is first here. */
	sys(__NR_prctl, PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
	lead();
}

/* ---- the outer process ---- */

_Noreturn static void watch(long pid)
{
	int status = 0;
	while (sys(__NR_wait4, pid, &status, __WALL, 0) == -EINTR)
		;
	leave(status & 0x7f ? 128 + (status & 0x7f) : status >> 8);
}

_Noreturn static void begin(const char *socket)
{
	struct failure failure = {0};
	struct parcel p;
	int pidfd = -1, life[2] = {-1, -1};

	/* What the node was told to ignore is not the command's business. */
	for (int sig = 1; sig <= 64; sig++) {
		uint64_t fallback[4] = {0};
		sys(__NR_rt_sigaction, sig, fallback, 0, 8);
	}
	sys(__NR_prctl, PR_SET_NAME, "mojoup-child", 0, 0, 0);
	/* What we send counts for the user as a whole, so that another session's
	 * programs could have us refused: as late as the hard limit allows. */
	uint64_t files[2];
	if (sys(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, files) == 0) {
		files[0] = files[1];
		sys(__NR_prlimit64, 0, RLIMIT_NOFILE, files, 0);
	}
	sys(__NR_close_range, CONTROL + (socket ? 0 : 1), ~0u, 0);
	sys(__NR_umask, 0);
	if (socket)
		join(socket);
	/* Until this message comes the node puts us where our limits are: what is
	 * forked before would escape them. */
	long r = receive(&p);
	if (r == 0)
		leave(0);
	if (r < 0)
		fail(&failure, STAGE_PROTOCOL, r, "");
	else if (p.message.type == MSG_LISTENER) {
		r = probe_listener();
		if (r < 0)
			fail(&failure, STAGE_NOTIFY, r, "");
		else
			answer(MSG_READY, 0, 0, 0, 0, -1);
	} else if (p.message.type == MSG_NAMESPACES) {
		if (make_namespaces((uint32_t)p.message.a, (uint32_t)p.message.b, &failure) == 0) {
			r = sys(__NR_pipe2, life, O_CLOEXEC | O_NONBLOCK);
			if (r >= 0)
				r = sys(__NR_clone, CLONE_PIDFD | SIGCHLD, 0, &pidfd, 0, 0);
			if (r == 0)
				be_first(life);
			if (r < 0)
				fail(&failure, STAGE_FORK, r, "");
		}
	} else
		fail(&failure, STAGE_PROTOCOL, -EBADMSG, "");
	if (failure.error) {
		answer_failure(0, &failure);
		leave(1);
	}
	if (p.message.type == MSG_LISTENER)
		leave(0);
	answer(MSG_SPAWNED, 0, (int32_t)r, 0, 0, pidfd);
	/* From here on it only waits, with nothing open but what tells that it
	 * lives. The socket is pid 1's: were it open here too, nobody would notice
	 * that pid 1 has gone. */
	sys(__NR_dup3, life[1], 0, 0);
	sys(__NR_close_range, 1, ~0u, 0);
	sys(__NR_prctl, PR_SET_DUMPABLE, 0, 0, 0, 0);
	drop_capabilities(0);
	watch(r);
}

#if defined(__x86_64__)
__asm__(".globl _start\n_start:\n\txor %ebp, %ebp\n\tmov %rsp, %rdi\n\tand $-16, %rsp\n\tcall start\n");
#else
__asm__(".globl _start\n_start:\n\tmov x29, xzr\n\tmov x0, sp\n\tbl start\n");
#endif

/* The stack begins with the number of arguments, then they. */
_Noreturn void start(char **stack_)
{
	own_id = (long)stack_[0] > 1 ? stack_[2] : 0;
	begin((long)stack_[0] > 2 ? stack_[3] : 0);
}
