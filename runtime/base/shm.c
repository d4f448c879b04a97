/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory shared between processes of one node, and pidfds.  (The bell is in bell.c.)
 *
 * Shared memory is a memfd, which other processes open as /proc/<pid>/fd/<fd>.  The kernel
 * itself checks the permission (by the rule for reading another process's memory), no name
 * is left in a file system when all processes are killed, and nothing has to be passed over
 * a socket.  The process may have ended, and its pid and descriptors may be in use again,
 * before its name arrives.  So a name contains the inode too, and what was opened is
 * compared with it.
 *
 * Whoever can map a memfd can also truncate it, and then every access to the bytes behind the new end is a
 * SIGBUS, in all processes.  So the length is sealed, by the creator, before anybody has the name, and
 * memory that is not sealed against shrinking is not mapped.  Freeing pages (FALLOC_FL_PUNCH_HOLE) is still
 * permitted: they read as zeros, and a store allocates them again.
 *
 * Processes are of one node when they have the same boot id and the same pid namespace: a
 * container with a pid namespace of its own counts as another node.
 *
 * Locks: processes_lock guards the list of processes, and is a leaf.  pthread_once guards
 * what is looked up once.
 */
#include "shm.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "list.h"
#include "log.h"
#include "mem.h"

/* The most for one process_vm_writev: the kernel takes no more than 2 GiB in a call. */
#define PIECE_MAX ((size_t)1 << 30)
/* MADV_POPULATE_WRITE, from Linux 5.14 on; older headers do not have it. */
#define POPULATE_WRITE 23
/* The most for one fallocate, which takes less than half a millisecond. */
#define ALLOCATE_MAX ((size_t)2 << 20)

/* ---- this node ---- */

static struct {
	unsigned char id[16];
	bool known;
} this_node;
static pthread_once_t node_once = PTHREAD_ONCE_INIT;

/* FNV-1a, 64 bits. */
static uint64_t
hash(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *byte = data;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ byte[i]) * 0x100000001b3u;
	return h;
}

static void
find_node(void)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	uint64_t halves[2] = {0xcbf29ce484222325u, 0x9e3779b97f4a7c15u};
	struct stat numbers;
	char boot[64];
	ssize_t n = -1;

	if (fd >= 0) {
		n = read(fd, boot, sizeof(boot));
		close(fd);
	}
	if (n <= 0 || stat("/proc/self/ns/pid", &numbers) != 0)
		return;
	for (int i = 0; i < 2; i++) {
		halves[i] = hash(halves[i], boot, (size_t)n);
		halves[i] = hash(halves[i], &numbers.st_ino,
		                 sizeof(numbers.st_ino));
	}
	static_assert(sizeof(halves) == sizeof(this_node.id), "two halves");
	memcpy(this_node.id, halves, sizeof(this_node.id));
	this_node.known = true;
}

void
batoni_shm_node(struct batoni_shm_name *name_p)
{
	pthread_once(&node_once, find_node);
	memcpy(name_p->node, this_node.id, sizeof(this_node.id));
}

void
batoni_shm_pretend_node(unsigned char number)
{
	pthread_once(&node_once, find_node);
	this_node.id[0] ^= number;
}

bool
batoni_shm_is_here(const struct batoni_shm_name *name)
{
	pthread_once(&node_once, find_node);
	return this_node.known && memcmp(name->node, this_node.id, sizeof(this_node.id)) == 0;
}

/* ---- shared memory ---- */

static size_t
page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Allocate all of it, in pieces.  Kernels before 6.7 free what a call has allocated when a
 * signal comes, so a long call in a program that is profiled would never end. */
static int
allocate(int fd, size_t bytes)
{
	size_t piece;

	for (size_t done = 0; done < bytes; done += piece) {
		int failed;

		piece = bytes - done < ALLOCATE_MAX ? bytes - done
		                                    : ALLOCATE_MAX;
		do
			failed = fallocate(fd, 0, (off_t)done, (off_t)piece);
		while (failed && errno == EINTR);
		if (failed)
			return failed;
	}
	return 0;
}

/* Set the length of the file, and allocate it.  Returns the call that failed, with errno set,
 * or NULL.  The limit of file sizes (ulimit -f) counts for a memfd too; its signal, which
 * would end the process, is taken back. */
static const char *
extend(int fd, size_t bytes, bool sparse)
{
	const struct timespec at_once = {0, 0};
	const char *failed = NULL;
	sigset_t limit, before, pending;
	int error;

	sigemptyset(&limit);
	sigaddset(&limit, SIGXFSZ);
	sigpending(&pending);
	pthread_sigmask(SIG_BLOCK, &limit, &before);
	if (ftruncate(fd, (off_t)bytes) != 0)
		failed = "ftruncate";
	else if (!sparse && allocate(fd, bytes) != 0)
		failed = "fallocate";
	error = errno;
	if (failed && error == EFBIG && !sigismember(&pending, SIGXFSZ))
		sigtimedwait(&limit, NULL, &at_once);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return failed;
}

/* The length stays.  F_SEAL_SEAL: no process can forbid others to map it for writing
 * (F_SEAL_FUTURE_WRITE).  -1: errno is set. */
static int
seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
}

/* Returns the call that failed, with errno set, or NULL. */
static const char *
create_mapping(size_t bytes, bool sparse, struct batoni_shm *shm_p)
{
	const char *call = "memfd_create";
	struct batoni_shm shm = {.bytes = bytes};
	int error;

	shm.fd = memfd_create("baton", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (shm.fd < 0)
		return call;
	call = extend(shm.fd, bytes, sparse);
	if (call)
		goto close_fd;
	call = "fcntl(F_ADD_SEALS)";
	if (seal(shm.fd) != 0)
		goto close_fd;
	call = "mmap";
	shm.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shm.fd,
	                0);
	if (shm.base == MAP_FAILED)
		goto close_fd;
	*shm_p = shm;
	return NULL;

close_fd:
	error = errno;
	close(shm.fd);
	errno = error;
	return call;
}

static enum baton_status
create(size_t bytes, bool sparse, struct batoni_shm *shm_p)
{
	size_t pages = (size_t)sysconf(_SC_PHYS_PAGES);
	const char *failed;
	bool full;

	assert(bytes > 0);
	/* The kernel would use up its memory before it refuses. */
	if (!sparse && bytes / page_bytes() >= pages)
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "no shared memory of %zu bytes: the node "
		                     "has less",
		                     bytes);
	failed = create_mapping(bytes, sparse, shm_p);
	if (!failed)
		return BATON_OK;
	full = errno == ENOMEM || errno == ENOSPC || errno == EFBIG;
	return batoni_refuse(full ? BATON_ERR_NOMEM : BATON_ERR_SYSTEM,
	                     "no shared memory of %zu bytes: %s: %s", bytes,
	                     failed, strerror(errno));
}

enum baton_status
batoni_shm_create(size_t bytes, struct batoni_shm *shm_p)
{
	return create(bytes, false, shm_p);
}

static bool can_populate;
static pthread_once_t populate_once = PTHREAD_ONCE_INIT;

static void
try_to_populate(void)
{
	void *page = mmap(NULL, page_bytes(), PROT_READ | PROT_WRITE,
	                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (page == MAP_FAILED)
		return;
	can_populate = madvise(page, page_bytes(), POPULATE_WRITE) == 0;
	munmap(page, page_bytes());
}

bool
batoni_shm_is_sparse(void)
{
	pthread_once(&populate_once, try_to_populate);
	return can_populate;
}

enum baton_status
batoni_shm_create_sparse(size_t bytes, struct batoni_shm *shm_p, bool *sparse_p)
{
	enum baton_status status;

	*sparse_p = batoni_shm_is_sparse();
	status = create(bytes, *sparse_p, shm_p);
	if (status != BATON_OK || !*sparse_p ||
	    batoni_shm_populate(shm_p->base, 1))
		return status;
	batoni_shm_destroy(shm_p);
	return batoni_refuse(BATON_ERR_NOMEM,
	                     "no shared memory: the node has no page left");
}

bool
batoni_shm_populate(void *from, size_t bytes)
{
	size_t before = (uintptr_t)from % page_bytes();
	int failed;

	do
		failed = madvise((char *)from - before, before + bytes,
		                 POPULATE_WRITE);
	while (failed && (errno == EINTR || errno == EAGAIN));
	return !failed;
}

void
batoni_shm_destroy(struct batoni_shm *shm)
{
	if (!shm->base)
		return;
	munmap(shm->base, shm->bytes);
	close(shm->fd);
	shm->base = NULL;
}

void
batoni_shm_abandon(struct batoni_shm *shm)
{
	/* A page that is still written to is allocated again. */
	(void)fallocate(shm->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
	                (off_t)shm->bytes);
	close(shm->fd);
	shm->base = NULL;
}

void
batoni_shm_name(const struct batoni_shm *shm, struct batoni_shm_name *name_p)
{
	struct stat file;

	memset(name_p, 0, sizeof(*name_p));
	batoni_shm_node(name_p);
	name_p->pid = (int32_t)getpid();
	name_p->fd = (int32_t)shm->fd;
	name_p->bytes = shm->bytes;
	/* fstat of an open memfd does not fail; a name without an inode maps nowhere. */
	if (fstat(shm->fd, &file) != 0)
		return;
	name_p->device = file.st_dev;
	name_p->inode = file.st_ino;
}

/* Is it sealed against becoming shorter?  False for a file that knows no seals. */
static bool
is_sealed(int fd)
{
	int seals = fcntl(fd, F_GET_SEALS);

	return seals >= 0 && (seals & F_SEAL_SHRINK);
}

/* A descriptor of the memory with this name, or -1 with errno set. */
static int
open_named(const struct batoni_shm_name *name, int access)
{
	char path[64];
	struct stat file;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)name->pid,
	         (int)name->fd);
	/* The descriptor may be a pipe or a terminal by now. */
	fd = open(path, access | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -1;
	/* The seal first: the length that is read behind it is there for good. */
	if (is_sealed(fd) && fstat(fd, &file) == 0 && file.st_dev == name->device &&
	    file.st_ino == name->inode && file.st_size >= 0 &&
	    (uint64_t)file.st_size == name->bytes)
		return fd;
	close(fd);
	errno = ENOENT;
	return -1;
}

static enum baton_status
map_named(const struct batoni_shm_name *name, size_t offset, size_t bytes, bool to_read,
          void **base_p)
{
	size_t before = offset % page_bytes();
	void *map;
	int fd;

	assert(bytes > 0);
	if (!batoni_shm_is_here(name) || offset > name->bytes ||
	    bytes > name->bytes - offset)
		return BATON_ERR_UNSUPPORTED;
	fd = open_named(name, to_read ? O_RDONLY : O_RDWR);
	if (fd < 0)
		return errno == ENOMEM || errno == EMFILE || errno == ENFILE
		               ? BATON_ERR_NOMEM
		               : BATON_ERR_UNSUPPORTED;
	map = mmap(NULL, before + bytes, to_read ? PROT_READ : PROT_READ | PROT_WRITE,
	           MAP_SHARED, fd, (off_t)(offset - before));
	close(fd);
	if (map == MAP_FAILED)
		return errno == ENOMEM ? BATON_ERR_NOMEM
		                       : BATON_ERR_UNSUPPORTED;
	*base_p = (char *)map + before;
	return BATON_OK;
}

enum baton_status
batoni_shm_map(const struct batoni_shm_name *name, size_t offset, size_t bytes,
               void **base_p)
{
	return map_named(name, offset, bytes, false, base_p);
}

enum baton_status
batoni_shm_map_to_read(const struct batoni_shm_name *name, void **base_p)
{
	return map_named(name, 0, (size_t)name->bytes, true, base_p);
}

void
batoni_shm_unmap(void *base, size_t bytes)
{
	size_t before = (uintptr_t)base % page_bytes();

	munmap((char *)base - before, before + bytes);
}

/* ---- other processes ---- */

/* A process whose pidfd is open.  Every communicator opens all its peers of this node, so they
 * share descriptors, of which a process has few. */
struct process {
	struct batoni_list_node link;
	pid_t pid;
	int fd;
	unsigned holders;
};

static pthread_mutex_t processes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node processes = {&processes, &processes};

static enum baton_status
vm_status(int error)
{
	if (error == ESRCH)
		return BATON_ERR_PEER;
	return error == EFAULT ? BATON_ERR_INVALID : BATON_ERR_UNSUPPORTED;
}

typedef ssize_t vm_call(pid_t pid, const struct iovec *local, unsigned long locals,
                        const struct iovec *remote, unsigned long remotes,
                        unsigned long flags);

static enum baton_status
vm_copy(vm_call *call, pid_t pid, uint64_t address, char *here, size_t bytes)
{
	size_t done = 0;

	while (done < bytes) {
		size_t piece = bytes - done < PIECE_MAX ? bytes - done
		                                        : PIECE_MAX;
		struct iovec local = {here + done, piece};
		struct iovec remote = {(void *)(uintptr_t)(address + done),
		                       piece};
		ssize_t n = call(pid, &local, 1, &remote, 1, 0);

		if (n < 0)
			return vm_status(errno);
		/* It copies less where the mapped memory ends. */
		if (n == 0)
			return BATON_ERR_INVALID;
		done += (size_t)n;
	}
	return BATON_OK;
}

enum baton_status
batoni_vm_write(pid_t pid, uint64_t address, const void *from, size_t bytes)
{
	union { /* an iovec is for reading and for writing */
		const void *read;
		char *bytes;
	} source = {.read = from};

	return vm_copy(process_vm_writev, pid, address, source.bytes, bytes);
}

enum baton_status
batoni_vm_read(pid_t pid, uint64_t address, void *to, size_t bytes)
{
	return vm_copy(process_vm_readv, pid, address, to, bytes);
}

enum baton_status
batoni_vm_read_parts(pid_t pid, const struct iovec *from, const struct iovec *to,
                     size_t n)
{
	ssize_t done = process_vm_readv(pid, to, n, from, n, 0);
	size_t bytes = 0;

	if (done < 0)
		return vm_status(errno);
	for (size_t i = 0; i < n; i++)
		bytes += to[i].iov_len;
	/* It copies less where the mapped memory ends. */
	return (size_t)done == bytes ? BATON_OK : BATON_ERR_INVALID;
}

/* Caller holds the lock.  An entry whose process has ended does not count: another process may
 * have the same pid now. */
static struct process *
find_process(pid_t pid)
{
	for (struct batoni_list_node *node = processes.next; node != &processes;
	     node = node->next) {
		struct process *process =
			batoni_container_of(node, struct process, link);

		if (process->pid == pid && !batoni_pidfd_gone(process->fd))
			return process;
	}
	return NULL;
}

/* A pidfd has CLOEXEC set. */
static struct process *
open_process(pid_t pid)
{
	struct process *process = batoni_alloc(1, sizeof(*process));

	if (!process)
		return NULL;
	process->pid = pid;
	process->fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (process->fd < 0) {
		batoni_free(process);
		return NULL;
	}
	batoni_list_append(&processes, &process->link);
	return process;
}

int
batoni_pidfd_open(pid_t pid)
{
	struct process *process;
	int fd = -1;

	pthread_mutex_lock(&processes_lock);
	process = find_process(pid);
	if (!process)
		process = open_process(pid);
	if (process) {
		process->holders++;
		fd = process->fd;
	}
	pthread_mutex_unlock(&processes_lock);
	return fd;
}

void
batoni_pidfd_close(int fd)
{
	struct batoni_list_node *node;
	struct process *process;

	pthread_mutex_lock(&processes_lock);
	for (node = processes.next; node != &processes; node = node->next) {
		process = batoni_container_of(node, struct process, link);
		if (process->fd != fd)
			continue;
		if (--process->holders == 0) {
			batoni_list_remove(node);
			close(fd);
			batoni_free(process);
		}
		break;
	}
	pthread_mutex_unlock(&processes_lock);
}

bool
batoni_pidfd_gone(int fd)
{
	struct pollfd ended = {.fd = fd, .events = POLLIN};
	struct timespec at_once = {0, 0};

	/* It ignores negative descriptors.  A raw system call, since poll() is a cancellation point. */
	return syscall(SYS_ppoll, &ended, 1, &at_once, NULL, 0) == 1 &&
	       (ended.revents & POLLIN);
}
