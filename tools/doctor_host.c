/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What the kernel lets processes of one node do.  Ranks are siblings, so what they do to each other is tried
 * by a child on its older sibling: to its own children a process may do more.
 *
 * A child ends by _exit with the errno of what it tried, so 0 is success.
 */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)
#define SHM_LEAST (64 * MIB)
#define LOCK_TRIED (64 * MIB)
#define WORD 0x6261746f6e
/* More than this is a system call for each reading of the clock. */
#define CLOCK_SLOW_NS 250
#define CLOCK_READS 10000

/* The first line of a file, or "". */
static void
read_line(const char *path, char *line, int size)
{
	FILE *file = fopen(path, "r");

	line[0] = '\0';
	if (!file)
		return;
	if (fgets(line, size, file))
		line[strcspn(line, "\n")] = '\0';
	fclose(file);
}

/* ---- memory ---- */

static void
check_locked_memory(json_t *findings)
{
	const bool fabric = access("/sys/class/infiniband", F_OK) == 0;
	void *memory = mmap(NULL, LOCK_TRIED, PROT_READ | PROT_WRITE,
	                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	int error = memory == MAP_FAILED || mlock(memory, LOCK_TRIED) != 0
	                    ? errno
	                    : 0;

	if (memory != MAP_FAILED)
		munmap(memory, LOCK_TRIED);
	if (error == 0)
		doctor_find(findings, "locked memory", GOOD, "", "",
		            "64 MiB can be locked");
	else if (!fabric)
		doctor_find(findings, "locked memory", GOOD, "", "",
		            "64 MiB cannot be locked (%s), which only adapters of "
		            "InfiniBand need, and there are none",
		            strerror(error));
	else
		doctor_find(findings, "locked memory", SLOW,
		            "MPI and NCCL cannot register buffers with the adapter, "
		            "and copy or fail",
		            "ulimit -l unlimited (a container: docker run --ulimit "
		            "memlock=-1)",
		            "64 MiB cannot be locked (%s)", strerror(error));
}

/* A file of 1 MiB, all of it there.  0, or an errno. */
static int
try_dev_shm(void)
{
	char name[64];
	int fd, error;

	snprintf(name, sizeof(name), "/dev/shm/baton-doctor-%d", (int)getpid());
	fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return errno;
	error = posix_fallocate(fd, 0, (off_t)MIB);
	close(fd);
	unlink(name);
	return error;
}

static void
check_dev_shm(json_t *findings)
{
	static const char costs[] = "MPI and NCCL keep buffers there, and fail or "
				    "take slower ways (Baton's own memory is no "
				    "file there)";
	static const char mend[] = "mount -o remount,size=50% /dev/shm (a "
				   "container: docker run --shm-size=1g)";
	int error = try_dev_shm();
	struct statvfs there;

	if (error != 0)
		doctor_find(findings, "/dev/shm", SLOW, costs, mend,
		            "no file of 1 MiB can be made (%s)",
		            strerror(error));
	else if (statvfs("/dev/shm", &there) == 0 &&
	         there.f_bavail * there.f_bsize < SHM_LEAST)
		doctor_find(findings, "/dev/shm", SLOW, costs, mend,
		            "less than 64 MiB are free");
	else
		doctor_find(findings, "/dev/shm", GOOD, "", "",
		            "at least 64 MiB are free");
}

/* ---- other processes ---- */

/* What the older of two siblings shows to the younger one. */
struct shown {
	pid_t pid;
	int fd;             /* of a memfd with the word, in that process */
	void *word;         /* in its memory, at the same address in all of its siblings */
};

static unsigned long long word;

/* Wait for a child, and return what it exited with; EINTR, where a signal killed it. */
static int
end_of(pid_t child)
{
	int status;

	while (waitpid(child, &status, 0) < 0) {
		if (errno != EINTR)
			return errno;
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : EINTR;
}

/* Run `inspect` in a child, a sibling of the one that it looks at.  0, or an errno. */
static int
try_in_child(int (*inspect)(const struct shown *shown), const struct shown *shown)
{
	pid_t child = fork();

	if (child < 0)
		return errno;
	if (child == 0)
		_exit(inspect(shown));
	return end_of(child);
}

static int
open_shared(const struct shown *shown)
{
	const unsigned long long *seen;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)shown->pid, shown->fd);
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return errno;
	seen = mmap(NULL, sizeof(*seen), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
	            0);
	if (seen == MAP_FAILED)
		return errno;
	return *seen == WORD ? 0 : EIO;
}

static int
read_memory(const struct shown *shown)
{
	unsigned long long seen = 0;
	struct iovec to = {&seen, sizeof(seen)};
	struct iovec from = {shown->word, sizeof(seen)};

	if (process_vm_readv(shown->pid, &to, 1, &from, 1, 0) < 0)
		return errno;
	return seen == WORD ? 0 : EIO;
}

static int
open_pidfd(const struct shown *shown)
{
	return syscall(SYS_pidfd_open, shown->pid, 0) < 0 ? errno : 0;
}

/* The older sibling: it has the word in its memory and in a memfd, says so by the pipe, and lives
 * until it is killed, with its parent at the latest. */
static void
show_word(int pipe_fd)
{
	const unsigned long long mine = WORD;
	int fd = memfd_create("baton-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	word = WORD;
	if (fd >= 0 && write(fd, &mine, sizeof(mine)) != (ssize_t)sizeof(mine))
		fd = -1;
	if (write(pipe_fd, &fd, sizeof(fd)) != (ssize_t)sizeof(fd))
		_exit(1);
	for (;;)
		pause();
}

static bool
start_shown(struct shown *shown)
{
	int ends[2];

	if (pipe(ends) != 0)
		return false;
	shown->word = &word;
	shown->pid = fork();
	if (shown->pid == 0)
		show_word(ends[1]);
	close(ends[1]);
	if (shown->pid > 0 &&
	    read(ends[0], &shown->fd, sizeof(shown->fd)) !=
	            (ssize_t)sizeof(shown->fd)) {
		kill(shown->pid, SIGKILL);
		end_of(shown->pid);
		shown->pid = -1;
	}
	close(ends[0]);
	return shown->pid > 0;
}

static void
check_shared(json_t *findings, const struct shown *shown)
{
	int error = shown->fd < 0 ? ENOSYS : try_in_child(open_shared, shown);

	if (error == 0)
		doctor_find(findings, "shared memory", GOOD, "", "",
		            "a process opens a memfd of another one");
	else
		doctor_find(findings, "shared memory", BROKEN,
		            "messages between ranks of this node take MPI, and "
		            "puts go by message; without MPI there is no "
		            "communicator",
		            "run the ranks as one user, in one container, with /proc "
		            "mounted without hidepid",
		            "a process cannot open a memfd of another one (%s)",
		            strerror(error));
}

static void
check_reading(json_t *findings, const struct shown *shown)
{
	int error = try_in_child(read_memory, shown);
	char scope[16];

	read_line("/proc/sys/kernel/yama/ptrace_scope", scope, sizeof(scope));
	if (error == 0)
		doctor_find(findings, "process_vm_readv", GOOD, "", "",
		            "a process reads memory of another one");
	else
		doctor_find(findings, "process_vm_readv", SLOW,
		            "long messages between ranks of this node are copied "
		            "twice, and puts into memory that is not of "
		            "baton_mem_alloc go by message",
		            "sysctl -w kernel.yama.ptrace_scope=0 (a container: "
		            "docker run --cap-add=SYS_PTRACE)",
		            "a process may not read memory of another one (%s%s%s)",
		            strerror(error),
		            *scope ? "; kernel.yama.ptrace_scope is " : "",
		            scope);
}

/* The descriptor of a process has to become readable when the process is killed, which this does. */
static void
check_pidfd(json_t *findings, const struct shown *shown)
{
	int error = try_in_child(open_pidfd, shown);
	struct pollfd end = {.events = POLLIN};
	bool told = false;

	end.fd = (int)syscall(SYS_pidfd_open, shown->pid, 0);
	if (end.fd < 0 && error == 0)
		error = errno;
	kill(shown->pid, SIGKILL);
	if (end.fd >= 0) {
		told = poll(&end, 1, 10000) == 1;
		close(end.fd);
	}
	end_of(shown->pid);
	if (error == 0 && told)
		doctor_find(findings, "pidfd", GOOD, "", "",
		            "the end of another process is told");
	else
		doctor_find(findings, "pidfd", BROKEN,
		            "when the process of a peer dies, operations that name "
		            "it end by their deadlines alone; puts into memory "
		            "that is not of baton_mem_alloc go by message",
		            "Linux 5.3 or later, and a filter of system calls that "
		            "allows pidfd_open (a container: docker run "
		            "--security-opt seccomp=unconfined)",
		            "the end of another process is not told (%s)",
		            error ? strerror(error) : "no event came");
}

static void
check_processes(json_t *findings)
{
	struct shown shown;

	if (!start_shown(&shown)) {
		doctor_find(findings, "processes", BROKEN,
		            "nothing that ranks do to each other could be tried",
		            "ulimit -u unlimited",
		            "no process can be started (%s)", strerror(errno));
		return;
	}
	check_shared(findings, &shown);
	check_reading(findings, &shown);
	check_pidfd(findings, &shown);
}

/* ---- the clock ---- */

/* The least of some rounds, since other work delays some. */
static long long
clock_cost_ns(void)
{
	long long least = -1;

	for (int round = 0; round < 5; round++) {
		struct timespec from, now;
		long long ns;

		clock_gettime(CLOCK_MONOTONIC, &from);
		for (int i = 0; i < CLOCK_READS; i++)
			clock_gettime(CLOCK_MONOTONIC, &now);
		ns = (now.tv_sec - from.tv_sec) * 1000000000LL +
		     (now.tv_nsec - from.tv_nsec);
		if (least < 0 || ns < least)
			least = ns;
	}
	return least / CLOCK_READS;
}

static void
check_clock(json_t *findings)
{
	long long cost = clock_cost_ns();
	char source[64];

	read_line("/sys/devices/system/clocksource/clocksource0/"
		  "current_clocksource",
		  source, sizeof(source));
	if (cost <= CLOCK_SLOW_NS)
		doctor_find(findings, "clock", GOOD, "", "",
		            "%s, read without a system call",
		            *source ? source : "CLOCK_MONOTONIC");
	else
		doctor_find(findings, "clock", SLOW,
		            "each deadline, time stamp and pause of a waiting "
		            "thread costs a system call",
		            "echo tsc > /sys/devices/system/clocksource/"
		            "clocksource0/current_clocksource",
		            "%s, a read takes more than %d ns",
		            *source ? source : "CLOCK_MONOTONIC", CLOCK_SLOW_NS);
}

void
doctor_host(json_t *findings)
{
	check_locked_memory(findings);
	check_dev_shm(findings);
	check_processes(findings);
	check_clock(findings);
}
