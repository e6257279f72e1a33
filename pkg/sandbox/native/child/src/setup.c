/*
 * Pid 1's set-up: the operations that Go has listed, each one or two system
 * calls. No decision is taken here and no order: compile.go gives both, with
 * the reasons, and its golden files show them.
 *
 * Mounts go by descriptor (open_tree, mount_setattr, move_mount) and targets
 * by openat2 without symbolic links: a name that was checked and then
 * followed is a name that somebody can exchange in between.
 */
#include "helper.h"

#include <linux/filter.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <linux/prctl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <linux/stat.h>

#define MNT_DETACH_ 2
#define SOCK_STREAM_ 1
#define SOCK_DGRAM_ 2
#define AF_INET_ 2
#define AF_INET6_ 10
#define SOL_SOCKET_ 1
#define SO_REUSEADDR_ 2
#define NAME_MAX_ 255
#define LARGE 32768 /* bytes */
#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV /* Linux 5.19 */
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5)
#endif

/* linux/if.h draws in the C library's headers. */
struct ifreq {
	char ifr_name[16];
	union {
		struct sockaddr_in ifr_addr;
		short ifr_flags;
		char pad[24];
	};
};
#define IFF_UP 1
#define IFF_RUNNING 0x40

static const char *relative(const char *path)
{
	while (*path == '/')
		path++;
	return *path ? path : ".";
}

static long look(int below, const char *path, uint64_t flags, uint64_t resolve)
{
	struct open_how how = {.flags = flags | O_CLOEXEC, .resolve = resolve};
	return sys(__NR_openat2, below, path, &how, sizeof how);
}

/* A place below the new root. Nothing in it may be a link: a link of the
 * repository would lead the mount elsewhere. */
static long inside(const struct place *place, const char *path, uint32_t flags)
{
	/* With O_NOFOLLOW a link as the last name is opened itself. */
	return look(place->root, relative(path), O_PATH | (flags & FLAG_LINK ? O_NOFOLLOW : 0),
		    RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

/* Whether path is dir or lies below it. */
static int below(const char *path, const char *dir, size_t size)
{
	for (size_t i = 0; i < size; i++)
		if (path[i] != dir[i])
			return 0;
	return !path[size] || path[size] == '/';
}

static int same(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static void forget_parent(struct place *place)
{
	if (place->parent >= 0)
		sys(__NR_close, place->parent);
	place->parent = -1;
}

/* Makes the directories that lead to path's last name, where they are missing,
 * and opens the one that holds it. */
static long walk(const struct place *place, const char *path)
{
	char part[NAME_MAX_ + 1];
	long at = look(place->root, ".", O_PATH | O_DIRECTORY, 0);
	for (;;) {
		size_t n = 0;
		while (path[n] && path[n] != '/')
			n++;
		if (!path[n] || at < 0)
			return at;
		if (n > NAME_MAX_) {
			sys(__NR_close, at);
			return -ENAMETOOLONG;
		}
		for (size_t i = 0; i < n; i++)
			part[i] = path[i];
		part[n] = 0;
		sys(__NR_mkdirat, at, part, 0755); /* what exists is opened below, or refused there */
		long next = sys(__NR_openat, at, part, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		sys(__NR_close, at);
		at = next;
		path += n + 1;
	}
}

/* The directory that holds path's last name, at which *name then points. It
 * stays open, for what is next mostly lies beside it. */
static long parent(struct place *place, const char *path, const char **name)
{
	size_t size = 0;
	path = relative(path);
	for (size_t i = 0; path[i]; i++)
		if (path[i] == '/')
			size = i;
	*name = path + size + (size > 0);
	if (place->parent >= 0 && size == place->parent_size && (!size || below(path, place->parent_path, size)))
		return place->parent;
	forget_parent(place);
	long at = walk(place, path);
	if (at >= 0) {
		place->parent = (int)at;
		place->parent_path = path;
		place->parent_size = size;
	}
	return at;
}

/* A mount covers what was at target: a directory below that was opened before
 * is not the one of that name any more. */
static void covered(struct place *place, const char *target)
{
	target = relative(target);
	if (place->parent >= 0 && below(place->parent_path, target, length(target)))
		forget_parent(place);
}

static long make_dir(struct place *place, const char *path, uint32_t mode)
{
	const char *name;
	long at = parent(place, path, &name);
	if (at < 0)
		return at;
	long r = sys(__NR_mkdirat, at, name, mode);
	return r == -EEXIST ? 0 : r;
}

static long make_file(struct place *place, const char *path, uint32_t mode, const char *text, size_t size)
{
	const char *name;
	long at = parent(place, path, &name);
	if (at < 0)
		return at;
	long fd = sys(__NR_openat, at, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
	if (fd < 0)
		return fd;
	int64_t at_text = text - place->from;
	while (size) {
		/* What is large goes from file to file: to read it here would cost a
		 * fault for each page. */
		long n = size < LARGE ? sys(__NR_write, fd, text, size) : sys(__NR_sendfile, fd, place->list, &at_text, size);
		if (n == 0)
			n = -EIO;
		if (n < 0) {
			sys(__NR_close, fd);
			return n;
		}
		text += n;
		size -= (size_t)n;
	}
	sys(__NR_close, fd);
	return 0;
}

static long make_link(struct place *place, const char *path, const char *to)
{
	const char *name;
	long at = parent(place, path, &name);
	return at < 0 ? at : sys(__NR_symlinkat, to, at, name);
}

static long status(long fd, struct statx *out)
{
	return sys(__NR_statx, fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, out);
}

static int is_dir(const struct statx *s) { return (s->stx_mode & S_IFMT) == S_IFDIR; }
static int is_link(const struct statx *s) { return (s->stx_mode & S_IFMT) == S_IFLNK; }

/* Puts a detached mount on what is open as at, or on the name of it in the
 * directory at, and closes the mount. */
static int put(struct place *place, long tree, long at, const char *name, const char *target, struct failure *failure)
{
	long r = sys(__NR_move_mount, tree, "", at, name,
		     MOVE_MOUNT_F_EMPTY_PATH | (*name ? 0 : MOVE_MOUNT_T_EMPTY_PATH));
	sys(__NR_close, tree);
	if (r < 0)
		return fail(failure, STAGE_MOUNT, r, target);
	covered(place, target);
	return 0;
}

/* Puts a detached mount at target and closes it. */
static int attach(struct place *place, long tree, const struct operation *op, int dir, const char *target,
		  struct failure *failure)
{
	if (op->flags & FLAG_MAKE) {
		/* Made by us, in memory that nobody else has: the name is safe. */
		const char *name;
		long made = parent(place, target, &name), r = made;
		if (made >= 0)
			r = dir ? sys(__NR_mkdirat, made, name, 0755)
				: sys(__NR_mknodat, made, name, S_IFREG | 0444, 0);
		if (r >= 0)
			return put(place, tree, made, name, target, failure);
		if (r != -EEXIST)
			return fail(failure, STAGE_MAKE, r, target);
	}
	long at = inside(place, target, op->flags);
	if (at < 0)
		return fail(failure, STAGE_MOUNT, at, target);
	int r = put(place, tree, at, "", target, failure);
	sys(__NR_close, at);
	return r;
}

/* a: attributes to set, b: attributes to clear, on the whole tree. Adding by
 * mount_setattr needs no knowledge of what the source has already, and
 * reaches what is mounted below it; a remount does neither. */
static int bind_tree(struct place *place, const struct operation *op, const char *source, const char *target,
		struct failure *failure)
{
	struct statx stat = {0};
	long from, r = 0;
	if (op->flags & FLAG_IFTHERE) {
		/* Before anything is cloned: a tree that is put nowhere costs a wait
		 * for all processors when it is closed. */
		long to = inside(place, target, op->flags);
		if (to < 0)
			return to == -ENOENT ? 0 : fail(failure, STAGE_MOUNT, to, target);
		sys(__NR_close, to);
	}
	if (op->flags & FLAG_POOL)
		from = look(place->pool, source, O_PATH, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	else if (op->flags & FLAG_INSIDE)
		from = inside(place, source, op->flags);
	else
		from = look(AT_FDCWD, source, O_PATH,
			    op->flags & FLAG_STRICT ? RESOLVE_NO_SYMLINKS : RESOLVE_NO_MAGICLINKS);
	if ((from == -ENOENT || from == -ENOTDIR) && op->flags & FLAG_OPTIONAL)
		return 0;
	if (from < 0)
		r = from;
	else if (op->flags & (FLAG_LINK | FLAG_SINGLE | FLAG_MAKE))
		r = status(from, &stat);
	if (r < 0)
		return fail(failure, STAGE_SOURCE, r, source);
	if (op->flags & FLAG_LINK && !is_link(&stat))
		return fail(failure, STAGE_SOURCE, -EINVAL, source);
	if (op->flags & FLAG_SINGLE && !is_dir(&stat) && stat.stx_nlink > 1)
		return fail(failure, STAGE_SOURCE, -EMLINK, source);

	long tree = sys(__NR_open_tree, from, "",
			OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE);
	if (tree < 0)
		return fail(failure, STAGE_SOURCE, tree, source);
	struct mount_attr attr = {.attr_set = op->a, .attr_clr = op->b};
	r = sys(__NR_mount_setattr, tree, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof attr);
	if (r < 0)
		return fail(failure, STAGE_MOUNT, r, target);
	if (op->flags & FLAG_INSIDE && !(op->flags & FLAG_MAKE) && same(source, target))
		r = put(place, tree, from, "", target, failure); /* what is open is the target too */
	else
		r = attach(place, tree, op, is_dir(&stat), target, failure);
	sys(__NR_close, from);
	return (int)r;
}

struct option {
	const char *key, *value;
};

/* A new file system, not yet put anywhere. */
static long fresh(const char *kind, const struct option *options, uint64_t attributes)
{
	long fs = sys(__NR_fsopen, kind, FSOPEN_CLOEXEC);
	if (fs < 0)
		return fs;
	long r = 0;
	for (; options && options->key && r >= 0; options++)
		r = sys(__NR_fsconfig, fs, options->value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, options->key,
			options->value, 0);
	if (r >= 0)
		r = sys(__NR_fsconfig, fs, FSCONFIG_CMD_CREATE, 0, 0, 0);
	if (r >= 0)
		r = sys(__NR_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
	sys(__NR_close, fs);
	return r;
}

static const char *text(char *to, uint64_t value, unsigned base)
{
	char *p = to + 24;
	*p = 0;
	do
		*--p = (char)('0' + value % base);
	while (value /= base);
	return p;
}

/* a: bytes, b: files, c: mode. Both limits are always given, since zero and
 * nothing mean unlimited or half of the memory. */
static long fresh_tmpfs(const struct operation *op, uint64_t attributes)
{
	char size[25], files[25], mode[25];
	const struct option options[] = {
		{"size", text(size, op->a, 10)},
		{"nr_inodes", text(files, op->b, 10)},
		{"mode", text(mode, op->c, 8)},
		{0, 0},
	};
	return fresh("tmpfs", options, attributes);
}

/* Memory on a directory of the host, which nobody outside sees: the new root,
 * or what will be below that and goes with all the rest of the host. */
static int mount_outside(int *kept, const struct operation *op, uint32_t stage, const char *at, struct failure *failure)
{
	long r = sys(__NR_mount, 0, "/", 0, 0x44000 /* MS_REC|MS_PRIVATE */, 0);
	if (r < 0)
		return fail(failure, STAGE_PRIVATE, r, "/");
	long to = look(AT_FDCWD, at, O_PATH | O_DIRECTORY, RESOLVE_NO_MAGICLINKS);
	if (to < 0)
		return fail(failure, stage, to, at);
	long tree = fresh_tmpfs(op, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	if (tree < 0)
		return fail(failure, stage, tree, at);
	r = sys(__NR_move_mount, tree, "", to, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	sys(__NR_close, to);
	*kept = (int)tree;
	return r < 0 ? fail(failure, stage, r, at) : 0;
}

static int mount_fresh(struct place *place, const struct operation *op, uint32_t stage, const char *target,
		       struct failure *failure)
{
	static const struct option terminals[] = {
		/* max: a pty bomb ends there. ptmxmode: else nobody may open ptmx. */
		{"newinstance", 0}, {"ptmxmode", "0666"}, {"mode", "0600"}, {"max", "64"}, {0, 0},
	};
	uint64_t hard = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
	long tree;
	if (stage == STAGE_PROC)
		tree = fresh("proc", 0, hard | MOUNT_ATTR_NODEV);
	else
		tree = fresh("devpts", terminals, hard);
	if (tree < 0)
		return fail(failure, stage, tree, target);
	return attach(place, tree, op, 1, target, failure);
}

/* What has been begun gets its end. */
static long end_file(const struct place *place, const char *path, const char *text, size_t size)
{
	long fd = look(place->root, relative(path), O_WRONLY | O_APPEND, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
	if (fd < 0)
		return fd;
	long n = sys(__NR_write, fd, text, size);
	sys(__NR_close, fd);
	return n < 0 || (size_t)n == size ? n : -ENOSPC;
}

/* A read-only file of our own over one that exists already, or in a
 * directory that stays writable. The name it is made under is taken away
 * again; the mount keeps it alive. */
static int put_text(struct place *place, const struct operation *op, const char *target, const char *begun, const char *blob,
		    struct failure *failure)
{
	const char *name = op->second ? begun : "/.text";
	long r = op->second ? end_file(place, name, blob, op->blob) : make_file(place, name, (uint32_t)op->c, blob, op->blob);
	if (r < 0)
		return fail(failure, STAGE_MAKE, r, target);
	r = bind_tree(place, op, name, target, failure);
	sys(__NR_unlinkat, place->root, relative(name), 0);
	return (int)r;
}

/* The directory becomes "/", what was "/" is gone. */
static long pivot(struct place *place)
{
	if (place->pool >= 0)
		sys(__NR_close, place->pool);
	place->pool = -1;
	long r = sys(__NR_fchdir, place->root);
	if (r >= 0)
		r = sys(__NR_pivot_root, ".", ".");
	if (r >= 0)
		r = sys(__NR_umount2, ".", MNT_DETACH_);
	if (r >= 0)
		r = sys(__NR_chdir, "/");
	return r;
}

static void copy(void *to, const void *from, size_t size)
{
	volatile char *t = to;
	const char *f = from;
	while (size--)
		*t++ = *f++;
}

static uint16_t big16(uint64_t v) { return (uint16_t)(v << 8 | (v >> 8 & 0xff)); }

static long set_address(long fd, const char *name, unsigned long request, uint32_t address)
{
	struct ifreq ifr = {0};
	struct sockaddr_in in = {.sin_family = AF_INET_, .sin_addr = {address}};
	copy(ifr.ifr_name, name, length(name));
	copy(&ifr.ifr_addr, &in, sizeof in);
	return sys(__NR_ioctl, fd, request, &ifr);
}

/* a: a second address in network order, with a mask of its own alone. Old
 * ioctls rather than netlink: three calls, and nothing to parse. */
static long loopback(const struct operation *op)
{
	struct ifreq ifr = {0};
	long fd = sys(__NR_socket, AF_INET_, SOCK_DGRAM_ | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	copy(ifr.ifr_name, "lo", 2);
	ifr.ifr_flags = IFF_UP | IFF_RUNNING;
	long r = sys(__NR_ioctl, fd, SIOCSIFFLAGS, &ifr);
	if (r >= 0 && op->a) {
		r = set_address(fd, "lo:0", SIOCSIFADDR, (uint32_t)op->a);
		if (r >= 0)
			r = set_address(fd, "lo:0", SIOCSIFNETMASK, 0xffffffff);
	}
	sys(__NR_close, fd);
	return r;
}

/* a: port, blob: the address, four or sixteen bytes. */
static long listen_inside(struct place *place, const struct operation *op, const char *blob)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET_, .sin_port = big16(op->a)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6_, .sin6_port = big16(op->a)};
	int six = op->blob == 16, on = 1;
	copy(six ? (void *)&in6.sin6_addr : (void *)&in4.sin_addr, blob, six ? 16 : 4);

	long fd = sys(__NR_socket, six ? AF_INET6_ : AF_INET_, SOCK_STREAM_ | O_CLOEXEC, 0);
	if (fd < 0)
		return fd;
	place->listener = (int)fd;
	sys(__NR_setsockopt, fd, SOL_SOCKET_, SO_REUSEADDR_, &on, sizeof on);
	long r = sys(__NR_bind, fd, six ? (void *)&in6 : (void *)&in4, six ? sizeof in6 : sizeof in4);
	return r < 0 ? r : sys(__NR_listen, fd, 4096);
}

/* a: resource, b: soft, c: hard; never more than the hard limit there is,
 * which nobody in a user namespace may raise. */
static long limit(const struct operation *op)
{
	uint64_t now[2];
	long r = sys(__NR_prlimit64, 0, op->a, 0, now);
	if (r < 0)
		return r;
	uint64_t hard = op->c < now[1] ? op->c : now[1];
	uint64_t want[2] = {op->b < hard ? op->b : hard, hard};
	return sys(__NR_prlimit64, 0, op->a, want, 0);
}

static long write_value(const struct place *place, const char *path, const char *value)
{
	long fd = look(place->root, relative(path), O_WRONLY, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
	if (fd < 0)
		return fd;
	long r = sys(__NR_write, fd, value, length(value));
	sys(__NR_close, fd);
	return r;
}

/* linux/landlock.h of the build machine may be older than the kernel. */
struct rules {
	uint64_t files, network, scopes;
};
struct __attribute__((packed)) rule {
	uint64_t access;
	int32_t below;
};

static long add_rule(const struct place *place, const struct operation *op, const char *path)
{
	struct statx stat;
	/* What a link leads to below the root is what stands there once that is /. */
	long fd = look(place->root, path, O_PATH, RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS);
	if (fd == -ENOENT && op->flags & FLAG_OPTIONAL)
		return 0;
	long r = fd < 0 ? fd : status(fd, &stat);
	if (r >= 0) {
		/* a: rights below a directory, b: those that a file can have. */
		struct rule rule = {is_dir(&stat) ? op->a : op->a & op->b, (int32_t)fd};
		r = sys(__NR_landlock_add_rule, place->ruleset, 1, &rule, 0);
	}
	if (fd >= 0)
		sys(__NR_close, fd);
	return r;
}

/* Questions to a listener become plain refusals by the errno that they hold. */
static void answer_by_itself(struct sock_filter *at, unsigned count)
{
	for (; count--; at++)
		if (at->code == (BPF_RET | BPF_K) && (at->k & SECCOMP_RET_ACTION_FULL) == SECCOMP_RET_USER_NOTIF)
			at->k = SECCOMP_RET_ERRNO | (at->k & SECCOMP_RET_DATA);
}

/* Once the node has taken a call, only what kills its caller interrupts the
 * wait: a signal would have it made, and counted, again. There is at most one
 * listener above a process, and a filter that stands already may refuse the call
 * that makes one: then the filter answers by itself. */
static long load_filter(struct place *place, const struct operation *op, const char *blob)
{
	struct sock_fprog program = {(unsigned short)(op->blob / sizeof(struct sock_filter)), (void *)blob};
	if (op->flags & FLAG_NOTIFY) {
		long r = sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER,
			     SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, &program);
		if (r >= 0)
			place->notifier = (int)r;
		if (r != -EBUSY && r != -EPERM)
			return r;
	}
	answer_by_itself(program.filter, program.len);
	long r = sys(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
	if (r == -EPERM) /* as above, and it may not refuse this one */
		r = sys(__NR_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0);
	return r;
}

/* One case for each operation, in the order of protocol.h: long because the
 * list is, and each is a line or two. */
static int carry_out(struct place *place, const struct operation *op, const char *first, const char *second,
		     const char *blob, struct failure *failure)
{
	uint32_t stage = STAGE_PROTOCOL;
	const char *operand = first;
	long r = 0;
	switch (op->code) {
	case OP_ROOT:
		return mount_outside(&place->root, op, STAGE_ROOT, first, failure);
	case OP_POOL:
		return mount_outside(&place->pool, op, STAGE_POOL, first, failure);
	case OP_DIR:
		stage = STAGE_MAKE;
		r = op->flags & FLAG_POOL ? sys(__NR_mkdirat, place->pool, first, op->c) : make_dir(place, first, (uint32_t)op->c);
		break;
	case OP_FILE:
		stage = STAGE_MAKE, r = make_file(place, first, (uint32_t)op->c, blob, op->blob);
		break;
	case OP_LINK:
		stage = STAGE_MAKE, r = make_link(place, first, second);
		break;
	case OP_BIND:
		return bind_tree(place, op, first, second, failure);
	case OP_TMPFS:
		r = fresh_tmpfs(op, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
		if (r >= 0)
			return attach(place, r, op, 1, first, failure);
		stage = STAGE_MOUNT;
		break;
	case OP_PROC:
		return mount_fresh(place, op, STAGE_PROC, first, failure);
	case OP_DEVPTS:
		return mount_fresh(place, op, STAGE_DEVPTS, first, failure);
	case OP_TEXT:
		return put_text(place, op, first, second, blob, failure);
	case OP_PIVOT:
		stage = STAGE_PIVOT, r = pivot(place);
		break;
	case OP_ATTRIBUTES: {
		struct mount_attr attr = {.attr_set = op->a};
		stage = STAGE_ATTRIBUTES;
		long at = inside(place, first, 0);
		r = at < 0 ? at : sys(__NR_mount_setattr, at, "", AT_EMPTY_PATH, &attr, sizeof attr);
		sys(__NR_close, at);
		break;
	}
	case OP_LOOPBACK:
		stage = STAGE_LOOPBACK, r = loopback(op);
		break;
	case OP_LISTEN:
		stage = STAGE_LISTEN, r = listen_inside(place, op, blob);
		break;
	case OP_HOSTNAME:
		stage = STAGE_HOSTNAME, r = sys(__NR_sethostname, first, op->first);
		break;
	case OP_RLIMIT:
		stage = STAGE_RLIMIT, r = limit(op);
		break;
	case OP_WRITE:
		stage = STAGE_WRITE, r = write_value(place, first, second);
		if (op->flags & FLAG_OPTIONAL)
			r = 0;
		break;
	case OP_RULESET: {
		struct rules rules = {op->a, 0, op->b};
		stage = STAGE_LANDLOCK;
		r = sys(__NR_landlock_create_ruleset, &rules, sizeof rules, 0);
		place->ruleset = (int)r;
		break;
	}
	case OP_RULE:
		stage = STAGE_RULE, r = add_rule(place, op, first);
		break;
	case OP_RESTRICT:
		stage = STAGE_LANDLOCK;
		r = sys(__NR_landlock_restrict_self, place->ruleset, 0);
		sys(__NR_close, place->ruleset);
		break;
	case OP_KEEP:
		place->domain = place->ruleset;
		break;
	case OP_SEAL:
		stage = STAGE_CAPS, r = drop_capabilities(place->bound);
		if (r < 0)
			break;
		stage = STAGE_NNP, r = sys(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
		break;
	case OP_FILTER:
		stage = STAGE_SECCOMP, r = load_filter(place, op, blob);
		break;
	case OP_BOUND:
		drop_bounding();
		place->bound = 1;
		break;
	case OP_FILES:
		place->files = op->a;
		break;
	case OP_TITLE:
		/* In a process list, where who sweeps looks for it. It was made
		 * under the longest name. */
		if (op->first >= place->id_room)
			r = -ENAMETOOLONG;
		for (size_t i = 0; r == 0 && i < place->id_room; i++)
			place->id[i] = i < op->first ? first[i] : 0;
		break;
	case OP_HERE:
		stage = STAGE_ROOT, operand = "/";
		r = look(AT_FDCWD, "/", O_PATH | O_DIRECTORY, 0);
		place->root = (int)r;
		break;
	default:
		r = -ENOSYS;
	}
	return r < 0 ? fail(failure, stage, r, operand) : 0;
}

int set_up(struct place *place, const char *list, size_t size, struct failure *failure)
{
	for (size_t at = 0; at + sizeof(struct operation) <= size;) {
		const struct operation *op = (const void *)(list + at);
		uint64_t need = sizeof *op + (uint64_t)op->first + op->second + op->blob + 2;
		if (op->code == OP_END) {
			forget_parent(place); /* its name goes with the list */
			return 0;
		}
		if (op->size > size - at || need > op->size)
			break;
		const char *first = (const char *)(op + 1);
		const char *second = first + op->first + 1;
		if (carry_out(place, op, first, second, second + op->second + 1, failure) < 0)
			return -1;
		at += op->size;
	}
	return fail(failure, STAGE_PROTOCOL, -EBADMSG, "");
}
