/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The process's bell (shm.h): its futex, and its pipe.
 *
 * The futex is not a private one, since processes share it.  It makes no difference which process a
 * thread belongs to.
 *
 * A thread in epoll_wait does not sleep on a futex.  For such threads each process whose bell has a name has a
 * pipe, which other processes open as /proc/<pid>/fd/<fd>: by the rule of the kernel that memfds are opened
 * by (shm.c), and with the same check, since the number may be that of another file by now.  (An eventfd
 * cannot be opened so: ENXIO.  Taking one by pidfd_getfd needs the permission to trace its process.)
 *
 * Each process has one descriptor of a pipe, open for reading and writing and without blocking.  So a writer
 * always has a reader in its own process, and the end of the owner is no SIGPIPE; and no write waits.  A byte
 * says nothing but that the bell was rung.
 *
 * What another process has written into its bell is copied, then compared with what was opened.
 *
 * Locks: pipes_lock guards the list of other processes' pipes, and is a leaf.  pthread_once guards what
 * is created once; bell and pipe exist for the life of the process.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "list.h"
#include "log.h"
#include "mem.h"
#include "shm.h"

struct batoni_pipe {
	struct batoni_list_node link; /* in `pipes`; not of this process's own */
	uint64_t device, inode;
	int fd;
	unsigned holders;
};

static struct batoni_bell private_bell;
static struct batoni_shm bell_shm;
static pthread_once_t bell_once = PTHREAD_ONCE_INIT;

static struct batoni_pipe own_pipe = {.fd = -1};
static pthread_once_t pipe_once = PTHREAD_ONCE_INIT;

static pthread_mutex_t pipes_lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node pipes = {&pipes, &pipes};

/* ---- the bell ---- */

static void
make_bell(void)
{
	if (batoni_shm_create((size_t)sysconf(_SC_PAGESIZE), &bell_shm) != BATON_OK)
		bell_shm.base = NULL;
}

struct batoni_bell *
batoni_bell(void)
{
	pthread_once(&bell_once, make_bell);
	return bell_shm.base ? bell_shm.base : &private_bell;
}

void
batoni_bell_ring(struct batoni_bell *bell)
{
	atomic_fetch_add(&bell->doorbell, 1);
	syscall(SYS_futex, &bell->doorbell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void
batoni_bell_sleep(struct batoni_bell *bell, uint32_t rung, uint64_t sleep_ns)
{
	struct timespec sleep = {
		.tv_sec = (time_t)(sleep_ns / 1000000000u),
		.tv_nsec = (long)(sleep_ns % 1000000000u),
	};

	syscall(SYS_futex, &bell->doorbell, FUTEX_WAIT, rung,
	        sleep_ns == UINT64_MAX ? NULL : &sleep, NULL, 0);
}

void
batoni_bell_call(struct batoni_bell *bell, const struct batoni_pipe *pipe_or_null)
{
	uint32_t listening = atomic_load(&bell->listening);
	long written = 0;

	if (listening & BATONI_LISTEN_FD && pipe_or_null) {
		/* The program first, as it is waited for.  A raw system call, since write() is a
		 * cancellation point. */
		if (atomic_fetch_and(&bell->listening, ~BATONI_LISTEN_FD) &
		    BATONI_LISTEN_FD)
			written = syscall(SYS_write, pipe_or_null->fd, "", 1);
		listening &= ~BATONI_LISTEN_FD;
		/* The kernel often puts the program on this core, where it would stand behind the
		 * ring of the others.  If the bit is set again the program has been here: its
		 * arming comes with a pass, behind what this thread rings for. */
		if (written == 1 && listening) {
			sched_yield();
			if (atomic_load(&bell->listening) & BATONI_LISTEN_FD)
				return;
		}
	}
	if (listening || written < 0)
		batoni_bell_ring(bell);
}

/* ---- its pipe ---- */

/* Open a descriptor of this process, or of another one, for both directions.  -1: errno says why, or it is no
 * pipe. */
static int
open_both_ways(pid_t pid, int32_t fd, struct stat *file)
{
	char path[64];
	int opened;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)pid, (int)fd);
	opened = open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (opened < 0)
		return -1;
	if (fstat(opened, file) == 0 && S_ISFIFO(file->st_mode))
		return opened;
	close(opened);
	return -1;
}

static void
make_pipe(void)
{
	struct batoni_bell *bell = batoni_bell();
	struct stat file;
	int ends[2];

	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
		return;
	own_pipe.fd = open_both_ways(getpid(), ends[0], &file);
	close(ends[0]);
	close(ends[1]);
	if (own_pipe.fd < 0) {
		batoni_log(BATONI_LOG_DEBUG,
		           "no pipe for programs that sleep in epoll: /proc does not "
		           "open it");
		return;
	}
	bell->pipe = own_pipe.fd;
	bell->pipe_device = file.st_dev;
	bell->pipe_inode = file.st_ino;
}

bool
batoni_bell_name(struct batoni_shm_name *name_p)
{
	pthread_once(&bell_once, make_bell);
	if (!bell_shm.base)
		return false;
	pthread_once(&pipe_once, make_pipe);
	batoni_shm_name(&bell_shm, name_p);
	return true;
}

int
batoni_pipe_fd(void)
{
	if (batoni_bell() == &private_bell)
		return -1;
	pthread_once(&pipe_once, make_pipe);
	return own_pipe.fd;
}

size_t
batoni_pipe_take(size_t most)
{
	char bytes[64];
	long n = syscall(SYS_read, own_pipe.fd, bytes,
	                 most < sizeof(bytes) ? most : sizeof(bytes));

	return n < 0 ? 0 : (size_t)n;
}

/* The caller holds the lock. */
static struct batoni_pipe *
find_pipe(uint64_t device, uint64_t inode)
{
	for (struct batoni_list_node *node = pipes.next; node != &pipes;
	     node = node->next) {
		struct batoni_pipe *pipe =
			batoni_container_of(node, struct batoni_pipe, link);

		if (pipe->device == device && pipe->inode == inode)
			return pipe;
	}
	return NULL;
}

/* The caller holds the lock. */
static struct batoni_pipe *
add_pipe(pid_t pid, int32_t number, uint64_t device, uint64_t inode)
{
	struct batoni_pipe *pipe;
	struct stat file;
	int fd = open_both_ways(pid, number, &file);

	if (fd < 0)
		return NULL;
	pipe = file.st_dev == device && file.st_ino == inode
	               ? batoni_alloc(1, sizeof(*pipe))
	               : NULL;
	if (!pipe) {
		close(fd);
		return NULL;
	}
	*pipe = (struct batoni_pipe){.device = device, .inode = inode, .fd = fd};
	batoni_list_append(&pipes, &pipe->link);
	return pipe;
}

struct batoni_pipe *
batoni_pipe_open(const struct batoni_bell *bell, pid_t pid)
{
	const struct batoni_bell name = {
		.pipe = bell->pipe,
		.pipe_device = bell->pipe_device,
		.pipe_inode = bell->pipe_inode,
	};
	struct batoni_pipe *pipe;

	if (bell == batoni_bell())
		return batoni_pipe_fd() < 0 ? NULL : &own_pipe;
	if (name.pipe_inode == 0)
		return NULL;
	pthread_mutex_lock(&pipes_lock);
	pipe = find_pipe(name.pipe_device, name.pipe_inode);
	if (!pipe)
		pipe = add_pipe(pid, name.pipe, name.pipe_device, name.pipe_inode);
	if (pipe)
		pipe->holders++;
	pthread_mutex_unlock(&pipes_lock);
	return pipe;
}

void
batoni_pipe_close(struct batoni_pipe *pipe_or_null)
{
	if (!pipe_or_null || pipe_or_null == &own_pipe)
		return;
	pthread_mutex_lock(&pipes_lock);
	if (--pipe_or_null->holders == 0) {
		batoni_list_remove(&pipe_or_null->link);
		close(pipe_or_null->fd);
		batoni_free(pipe_or_null);
	}
	pthread_mutex_unlock(&pipes_lock);
}
