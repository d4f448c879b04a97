/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mem.h"
#include "run_tests.h"
#include "shared_memory.h"
#include "shm.h"

#define BYTES ((size_t)10000)

/* What the other process sees and says: one shared page of the test's. */
struct meeting {
	struct batoni_shm_name name;
	enum baton_status status;
	int matches;
	char room[64];
};

static void
await(pid_t child)
{
	int status = -1;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	ck_assert_int_eq(WEXITSTATUS(status), 0);
}

/* In a process of its own, since the limit is the process's. */
START_TEST(limit_of_file_sizes_is_a_status_and_no_signal)
{
	const struct rlimit little = {.rlim_cur = 4096, .rlim_max = 4096};
	pid_t child = fork();
	sigset_t pending;
	struct batoni_shm shm;

	ck_assert_int_ge(child, 0);
	if (child > 0) {
		await(child);
		return;
	}
	if (setrlimit(RLIMIT_FSIZE, &little) != 0)
		_exit(2);
	if (batoni_shm_create(BYTES, &shm) != BATON_ERR_NOMEM ||
	    !strstr(baton_last_error(), "too large"))
		_exit(3);
	sigpending(&pending);
	if (sigismember(&pending, SIGXFSZ))
		_exit(4);
	_exit(batoni_shm_create(4096, &shm) == BATON_OK ? 0 : 5);
}
END_TEST

START_TEST(abandoned_memory_stays_mapped)
{
	struct batoni_shm shm;
	char *base;

	ck_assert_int_eq(batoni_shm_create(BYTES, &shm), BATON_OK);
	base = shm.base;
	memset(base, 1, BYTES);
	batoni_shm_abandon(&shm);
	batoni_shm_destroy(&shm);
	/* Whole pages have gone. */
	ck_assert_int_eq(base[0], 0);
	base[0] = 1;
	base[BYTES - 1] = 1;
	ck_assert_int_eq(fcntl(shm.fd, F_GETFD), -1);
}
END_TEST

START_TEST(memory_is_zeroed_and_can_be_mapped_at_any_offset)
{
	static const size_t offsets[] = {0, 1, 4095, 4096, 5000, BYTES - 1};
	struct batoni_shm shm;
	struct batoni_shm_name name;

	ck_assert_int_eq(batoni_shm_create(BYTES, &shm), BATON_OK);
	ck_assert_uint_eq(shm.bytes, BYTES);
	ck_assert_uint_eq((uintptr_t)shm.base % 4096, 0);
	for (size_t i = 0; i < BYTES; i++)
		ck_assert_int_eq(((char *)shm.base)[i], 0);
	batoni_shm_name(&shm, &name);
	ck_assert(batoni_shm_is_here(&name));
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		size_t bytes = BYTES - offsets[i];
		void *base = NULL;

		ck_assert_int_eq(batoni_shm_map(&name, offsets[i], bytes,
		                                &base),
		                 BATON_OK);
		ck_assert_ptr_ne(base, shm.base);
		memset(base, 1 + (int)i, bytes);
		ck_assert_int_eq(((char *)shm.base)[offsets[i]], 1 + (int)i);
		batoni_shm_unmap(base, bytes);
	}
	ck_assert_int_eq(((char *)shm.base)[4094], 2);
	ck_assert_int_eq(((char *)shm.base)[BYTES - 1], 6);
	batoni_shm_destroy(&shm);
	ck_assert_ptr_null(shm.base);
	batoni_shm_destroy(&shm);
}
END_TEST

START_TEST(a_name_maps_nothing_but_what_it_was_made_of)
{
	struct batoni_shm shm, other;
	struct batoni_shm_name name, changed;
	void *base = NULL;

	ck_assert_int_eq(batoni_shm_create(BYTES, &shm), BATON_OK);
	batoni_shm_name(&shm, &name);
	ck_assert_int_eq(batoni_shm_map(&name, 1, BYTES, &base),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(batoni_shm_map(&name, BYTES + 1, 1, &base),
	                 BATON_ERR_UNSUPPORTED);
	changed = name;
	changed.node[3] ^= 1;
	ck_assert(!batoni_shm_is_here(&changed));
	ck_assert_int_eq(batoni_shm_map(&changed, 0, 1, &base),
	                 BATON_ERR_UNSUPPORTED);
	changed = name;
	changed.inode++;
	ck_assert_int_eq(batoni_shm_map(&changed, 0, 1, &base),
	                 BATON_ERR_UNSUPPORTED);
	/* The descriptor's number is used again by another. */
	batoni_shm_destroy(&shm);
	ck_assert_int_eq(batoni_shm_map(&name, 0, 1, &base),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(batoni_shm_create(BYTES, &other), BATON_OK);
	ck_assert_int_eq(other.fd, name.fd);
	ck_assert_int_eq(batoni_shm_map(&name, 0, 1, &base),
	                 BATON_ERR_UNSUPPORTED);
	batoni_shm_destroy(&other);
	ck_assert_ptr_null(base);
}
END_TEST

START_TEST(memory_that_cannot_be_had_is_nomem)
{
	struct batoni_shm shm = {.base = NULL};

	ck_assert_int_eq(batoni_shm_create(SIZE_MAX, &shm), BATON_ERR_NOMEM);
	ck_assert_int_eq(batoni_shm_create((size_t)1 << 60, &shm),
	                 BATON_ERR_NOMEM);
	ck_assert_ptr_null(shm.base);
}
END_TEST

static bool alarms; /* a timer goes off every millisecond or so */
static unsigned broken_off;

/* Instead of the C library's: what kernels before 6.7 do in a profiled program. */
int
fallocate(int fd, int mode, off_t offset, off_t bytes)
{
	if (!alarms || bytes <= (4 << 20))
		return (int)syscall(SYS_fallocate, fd, mode, offset, bytes);
	if (++broken_off > 1000)
		ck_abort_msg("it is broken off again and again");
	errno = EINTR;
	return -1;
}

START_TEST(signals_that_never_rest_do_not_hinder_it)
{
	const size_t bytes = ((size_t)64 << 20) + 5;
	struct batoni_shm shm = {.base = NULL};
	struct stat file;

	alarms = true;
	ck_assert_int_eq(batoni_shm_create(bytes, &shm), BATON_OK);
	ck_assert_int_eq(fstat(shm.fd, &file), 0);
	ck_assert_uint_eq((size_t)file.st_size, bytes);
	/* All of it is there. */
	ck_assert_uint_ge((size_t)file.st_blocks * 512, bytes);
	batoni_shm_destroy(&shm);
}
END_TEST

/* The child was forked before the memory was made: it has only the name. */
START_TEST(another_process_maps_by_the_name_alone)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	struct batoni_shm shm;
	int go[2];
	pid_t child;

	ck_assert_int_eq(pipe(go), 0);
	child = fork();
	if (child == 0) {
		_Atomic uint64_t *counter = NULL;
		void *base = NULL;
		char byte;

		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		meeting->status =
			batoni_shm_map(&meeting->name, 4104, 8, &base);
		counter = base;
		if (meeting->status == BATON_OK)
			atomic_fetch_add(counter, 7);
		_exit(0);
	}
	ck_assert_int_eq(batoni_shm_create(BYTES, &shm), BATON_OK);
	batoni_shm_name(&shm, &meeting->name);
	((_Atomic uint64_t *)shm.base)[513] = 35;
	ck_assert_int_eq(write(go[1], "g", 1), 1);
	await(child);
	ck_assert_int_eq(meeting->status, BATON_OK);
	ck_assert_uint_eq(((_Atomic uint64_t *)shm.base)[513], 42);
	batoni_shm_destroy(&shm);
}
END_TEST

/* ---- seals ---- */

/* As a peer that has the name alone. */
static int
open_as_peer(const struct batoni_shm_name *name)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)name->pid, (int)name->fd);
	return open(path, O_RDWR | O_CLOEXEC);
}

static bool
is_refused(int failed)
{
	return failed == -1 && errno == EPERM;
}

/* Everything that could take the memory, or others' mapping of it, away. */
START_TEST(no_process_changes_the_length_of_memory_that_is_mapped)
{
	struct batoni_shm shm;
	struct batoni_shm_name name;
	void *mapped = NULL;
	pid_t child;

	ck_assert_int_eq(batoni_shm_create(BYTES, &shm), BATON_OK);
	batoni_shm_name(&shm, &name);
	ck_assert_int_eq(batoni_shm_map(&name, 0, BYTES, &mapped), BATON_OK);
	memset(shm.base, 7, BYTES);
	child = fork();
	if (child == 0) {
		int fd = open_as_peer(&name);

		if (fd < 0 || !is_refused(ftruncate(fd, 0)))
			_exit(1);
		if (!is_refused(ftruncate(fd, BYTES - 1)))
			_exit(2);
		if (!is_refused(ftruncate(fd, 2 * BYTES)))
			_exit(3);
		_exit(is_refused(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE)) ? 0 : 4);
	}
	await(child);
	for (size_t i = 0; i < BYTES; i++) {
		ck_assert_int_eq(((char *)shm.base)[i], 7);
		ck_assert_int_eq(((char *)mapped)[i], 7);
	}
	batoni_shm_unmap(mapped, BYTES);
	ck_assert_int_eq(batoni_shm_map(&name, 0, BYTES, &mapped), BATON_OK);
	batoni_shm_unmap(mapped, BYTES);
	batoni_shm_destroy(&shm);
}
END_TEST

START_TEST(sparse_memory_and_the_bell_are_sealed_too)
{
	struct batoni_shm shm;
	struct batoni_shm_name name;
	bool sparse;
	int fd;

	ck_assert_int_eq(batoni_shm_create_sparse(BYTES, &shm, &sparse), BATON_OK);
	ck_assert(is_refused(ftruncate(shm.fd, 0)));
	ck_assert(batoni_shm_populate(shm.base, BYTES));
	batoni_shm_destroy(&shm);
	ck_assert_ptr_nonnull(batoni_bell());
	ck_assert(batoni_bell_name(&name));
	fd = open_as_peer(&name);
	ck_assert_int_ge(fd, 0);
	ck_assert(is_refused(ftruncate(fd, 0)));
	close(fd);
}
END_TEST

/* Try to map it by a name that is right; closes it. */
static enum baton_status
map_file(int fd)
{
	const struct batoni_shm file = {.bytes = BYTES, .fd = fd};
	struct batoni_shm_name name;
	enum baton_status status;
	void *mapped = NULL;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	batoni_shm_name(&file, &name);
	status = batoni_shm_map(&name, 0, BYTES, &mapped);
	if (status == BATON_OK)
		batoni_shm_unmap(mapped, BYTES);
	close(fd);
	return status;
}

static int
memfd_with(int seals)
{
	int fd = memfd_create("other", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, BYTES), 0);
	ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

START_TEST(memory_that_could_shrink_is_not_mapped)
{
	FILE *plain = tmpfile();

	ck_assert_ptr_nonnull(plain);
	ck_assert_int_eq(map_file(dup(fileno(plain))), BATON_ERR_UNSUPPORTED);
	fclose(plain);
	ck_assert_int_eq(map_file(memfd_create("unsealed", MFD_CLOEXEC)),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(map_file(memfd_with(0)), BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(map_file(memfd_with(F_SEAL_GROW | F_SEAL_SEAL)),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_int_eq(map_file(memfd_with(F_SEAL_SHRINK)), BATON_OK);
}
END_TEST

/* ---- other processes ---- */

static char target[3 * 4096];

START_TEST(a_child_is_written_into_whole_or_not_at_all)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	char from[sizeof(target)];
	int go[2];
	pid_t child;

	memset(from, 'x', sizeof(from));
	ck_assert_int_eq(pipe(go), 0);
	child = fork();
	if (child == 0) {
		char byte;

		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		meeting->matches =
			memcmp(target, from, sizeof(target)) == 0;
		_exit(0);
	}
	ck_assert_int_eq(batoni_vm_write(child, (uintptr_t)target, from,
	                                 sizeof(from)),
	                 BATON_OK);
	ck_assert_int_eq(batoni_vm_write(child, 0, from, 0), BATON_OK);
	ck_assert_int_eq(batoni_vm_write(child, 64, from, sizeof(from)),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(write(go[1], "g", 1), 1);
	await(child);
	ck_assert_int_eq(meeting->matches, 1);
	ck_assert_int_eq(target[0], 0);
	ck_assert_int_eq(batoni_vm_write(child, (uintptr_t)target, from,
	                                 sizeof(from)),
	                 BATON_ERR_PEER);
}
END_TEST

/* Memory that ends within the write: the kernel writes a part of it. */
START_TEST(a_write_beyond_the_memory_is_invalid)
{
	char from[2 * 4096] = {1};
	char *pages = mmap(NULL, sizeof(from), PROT_READ | PROT_WRITE,
	                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(pages, MAP_FAILED);
	ck_assert_int_eq(munmap(pages + 4096, 4096), 0);
	ck_assert_int_eq(batoni_vm_write(getpid(), (uintptr_t)pages, from,
	                                 sizeof(from)),
	                 BATON_ERR_INVALID);
}
END_TEST

START_TEST(the_end_of_a_process_is_noticed)
{
	int go[2];
	pid_t child;
	char byte;
	int fd;

	ck_assert_int_eq(pipe(go), 0);
	child = fork();
	if (child == 0) {
		if (read(go[0], &byte, 1) != 1)
			_exit(1);
		_exit(0);
	}
	fd = batoni_pidfd_open(child);
	ck_assert_int_ge(fd, 0);
	ck_assert(!batoni_pidfd_gone(fd));
	ck_assert(!batoni_pidfd_gone(-1));
	ck_assert_int_eq(write(go[1], "g", 1), 1);
	await(child);
	ck_assert(batoni_pidfd_gone(fd));
	/* It is not taken for another that gets its number. */
	ck_assert_int_eq(batoni_pidfd_open(child), -1);
	batoni_pidfd_close(fd);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(all_that_hold_a_process_share_a_descriptor)
{
	int fd = batoni_pidfd_open(getppid());
	int other = batoni_pidfd_open(getpid());

	ck_assert_int_ge(fd, 0);
	ck_assert_int_ne(other, fd);
	ck_assert_int_eq(batoni_pidfd_open(getppid()), fd);
	ck_assert_int_eq(batoni_pidfd_open(getpid()), other);
	batoni_pidfd_close(fd);
	batoni_pidfd_close(other);
	batoni_pidfd_close(-1);
	ck_assert_int_ge(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert_int_ge(fcntl(other, F_GETFD), FD_CLOEXEC);
	batoni_pidfd_close(fd);
	batoni_pidfd_close(other);
	ck_assert_int_eq(fcntl(fd, F_GETFD), -1);
	ck_assert_int_eq(fcntl(other, F_GETFD), -1);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	batoni_mem_fail_at(1);
	ck_assert_int_eq(batoni_pidfd_open(getppid()), -1);
}
END_TEST

/* ---- where the kernel says no ---- */

/* Be nobody in particular, as jobs are. */
static void
drop_privileges(void)
{
	if (geteuid() == 0 && (setgid(65534) != 0 || setuid(65534) != 0))
		_exit(2);
}

/* A process that may not be traced (as by yama, or other users'). */
START_TEST(a_process_that_may_not_be_looked_into_is_unsupported)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	int told[2], over[2];
	pid_t hidden, looker;
	char byte = 0;

	ck_assert_int_eq(pipe(told), 0);
	ck_assert_int_eq(pipe(over), 0);
	hidden = fork();
	if (hidden == 0) {
		struct batoni_shm shm;

		close(over[1]);
		drop_privileges();
		if (prctl(PR_SET_DUMPABLE, 0) != 0 ||
		    batoni_shm_create(BYTES, &shm) != BATON_OK)
			_exit(1);
		batoni_shm_name(&shm, &meeting->name);
		if (write(told[1], "n", 1) != 1)
			_exit(1);
		/* Until the test is over. */
		_exit(read(over[0], &byte, 1) != 0);
	}
	ck_assert_int_eq(read(told[0], &byte, 1), 1);
	looker = fork();
	if (looker == 0) {
		void *base = NULL;
		bool good;

		close(over[1]);
		drop_privileges();
		good = batoni_shm_is_here(&meeting->name) &&
		       batoni_shm_map(&meeting->name, 0, 1, &base) ==
		               BATON_ERR_UNSUPPORTED &&
		       batoni_vm_write(hidden, (uintptr_t)target, "x", 1) ==
		               BATON_ERR_UNSUPPORTED &&
		       !base &&
		       !batoni_pidfd_gone(batoni_pidfd_open(hidden));
		_exit(!good);
	}
	await(looker);
	close(over[1]);
	await(hidden);
}
END_TEST

/* A chroot, or a container without it: nobody can be told to be of this host. */
START_TEST(without_proc_nobody_is_here)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	struct batoni_shm shm;
	pid_t child;

	ck_assert_int_eq(batoni_shm_create(BYTES, &shm), BATON_OK);
	child = fork();
	if (child == 0) {
		void *base = NULL;

		if (unshare(CLONE_NEWNS) != 0 ||
		    mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
		    mount("none", "/proc", "tmpfs", 0, NULL) != 0) {
			printf("/proc cannot be hidden here\n");
			_exit(0);
		}
		batoni_shm_name(&shm, &meeting->name);
		_exit(batoni_shm_is_here(&meeting->name) ||
		      batoni_shm_map(&meeting->name, 0, 1, &base) !=
		              BATON_ERR_UNSUPPORTED ||
		      base);
	}
	await(child);
	batoni_shm_destroy(&shm);
}
END_TEST

/* ---- the bell ---- */

START_TEST(there_is_one_bell_and_others_can_map_it)
{
	struct batoni_bell *bell = batoni_bell();
	struct batoni_shm_name name;
	void *base = NULL;

	ck_assert_ptr_eq(bell, batoni_bell());
	ck_assert(batoni_bell_name(&name));
	ck_assert_int_eq(batoni_shm_map(&name, 0, sizeof(*bell), &base),
	                 BATON_OK);
	batoni_bell_ring(base);
	ck_assert_uint_eq(bell->doorbell, 1);
	batoni_shm_unmap(base, sizeof(*bell));
}
END_TEST

static void *
sleep_until_rung(void *argument)
{
	struct batoni_bell *bell = argument;
	uint32_t before = 0;

	atomic_fetch_or(&bell->listening, 1);
	while (atomic_load(&bell->doorbell) == before)
		batoni_bell_sleep(bell, before, UINT64_MAX);
	return NULL;
}

START_TEST(a_ring_wakes_a_thread_whenever_it_comes)
{
	struct batoni_bell *bell = batoni_bell();
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, sleep_until_rung, bell),
	                 0);
	/* The thread listens; it sleeps, or is about to. */
	while (!atomic_load(&bell->listening))
		;
	batoni_bell_ring(bell);
	ck_assert_int_eq(pthread_join(thread, NULL), 0);
}
END_TEST

START_TEST(a_ring_wakes_a_thread_of_another_process)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	struct batoni_bell *bell = (struct batoni_bell *)(void *)meeting->room;
	pid_t child = fork();

	if (child == 0) {
		sleep_until_rung(bell);
		_exit(0);
	}
	while (!atomic_load(&bell->listening))
		;
	batoni_bell_ring(bell);
	await(child);
}
END_TEST

START_TEST(a_nap_ends_unrung_and_a_bell_that_has_rung_lets_nobody_sleep)
{
	struct batoni_bell *bell = batoni_bell();
	uint32_t rung = atomic_load(&bell->doorbell);

	batoni_bell_sleep(bell, rung, 1000);
	batoni_bell_ring(bell);
	batoni_bell_sleep(bell, rung, UINT64_MAX);
	ck_assert_uint_eq(atomic_load(&bell->doorbell), rung + 1);
}
END_TEST

/* A process with a bell and a pipe of its own. */
struct listener {
	struct batoni_shm_name name;
	_Atomic int listens;
};

static void
sleep_on_pipe(struct listener *listener)
{
	struct pollfd readable = {.events = POLLIN};

	if (!batoni_bell_name(&listener->name))
		_exit(2);
	readable.fd = batoni_pipe_fd();
	atomic_store(&batoni_bell()->listening, BATONI_LISTEN_FD);
	atomic_store(&listener->listens, 1);
	if (poll(&readable, 1, -1) != 1 || batoni_pipe_take(5) != 1 ||
	    batoni_pipe_take(5) != 0)
		_exit(3);
	atomic_store(&listener->listens, 2);
	pause();
	_exit(0);
}

START_TEST(a_call_wakes_a_program_that_sleeps_on_its_pipe)
{
	struct listener *listener = shared_alloc(sizeof(*listener));
	struct batoni_pipe *pipe, *again;
	struct batoni_bell wrong;
	pid_t child = fork();
	void *base = NULL;

	if (child == 0)
		sleep_on_pipe(listener);
	while (atomic_load(&listener->listens) < 1)
		sched_yield();
	ck_assert_int_eq(batoni_shm_map(&listener->name, 0, sizeof(wrong), &base),
	                 BATON_OK);
	pipe = batoni_pipe_open(base, child);
	again = batoni_pipe_open(base, child);
	ck_assert_ptr_nonnull(pipe);
	ck_assert_ptr_eq(pipe, again);
	/* One byte, and no ring for the others. */
	for (int i = 0; i < 100; i++)
		batoni_bell_call(base, pipe);
	while (atomic_load(&listener->listens) < 2)
		sched_yield();
	ck_assert_uint_eq(((struct batoni_bell *)base)->doorbell, 0);
	ck_assert_uint_eq(((struct batoni_bell *)base)->listening, 0);
	/* Whoever has no pipe rings the futex. */
	atomic_store(&((struct batoni_bell *)base)->listening, BATONI_LISTEN_FD);
	batoni_bell_call(base, NULL);
	ck_assert_uint_eq(((struct batoni_bell *)base)->doorbell, 1);
	ck_assert_uint_eq(((struct batoni_bell *)base)->listening,
	                  BATONI_LISTEN_FD);
	/* Another file, and none. */
	memcpy(&wrong, base, sizeof(wrong));
	wrong.pipe_inode++;
	ck_assert_ptr_null(batoni_pipe_open(&wrong, child));
	wrong.pipe = listener->name.fd;
	wrong.pipe_inode = listener->name.inode;
	wrong.pipe_device = listener->name.device;
	ck_assert_ptr_null(batoni_pipe_open(&wrong, child));
	wrong.pipe = 100000;
	ck_assert_ptr_null(batoni_pipe_open(&wrong, child));
	wrong.pipe_inode = 0;
	ck_assert_ptr_null(batoni_pipe_open(&wrong, child));
	/* The end of that process is no signal. */
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	batoni_pipe_close(again);
	batoni_bell_call(base, pipe);
	ck_assert_uint_eq(((struct batoni_bell *)base)->listening, 0);
	batoni_pipe_close(pipe);
	batoni_pipe_close(NULL);
	batoni_shm_unmap(base, sizeof(wrong));
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}
END_TEST

START_TEST(a_process_has_one_pipe)
{
	struct batoni_pipe *pipe = batoni_pipe_open(batoni_bell(), getpid());

	ck_assert_ptr_nonnull(pipe);
	ck_assert_ptr_eq(pipe, batoni_pipe_open(batoni_bell(), getpid()));
	ck_assert_int_ge(batoni_pipe_fd(), 0);
	ck_assert_int_eq(fcntl(batoni_pipe_fd(), F_GETFD), FD_CLOEXEC);
	atomic_fetch_or(&batoni_bell()->listening, BATONI_LISTEN_FD | 1);
	batoni_bell_call(batoni_bell(), pipe);
	/* A thread listens too. */
	ck_assert_uint_eq(batoni_bell()->listening, 1);
	ck_assert_uint_eq(batoni_bell()->doorbell, 1);
	ck_assert_uint_eq(batoni_pipe_take(64), 1);
	ck_assert_uint_eq(batoni_pipe_take(64), 0);
	batoni_pipe_close(pipe);
	ck_assert_int_ge(fcntl(batoni_pipe_fd(), F_GETFD), 0);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		memory_is_zeroed_and_can_be_mapped_at_any_offset,
		limit_of_file_sizes_is_a_status_and_no_signal,
		abandoned_memory_stays_mapped,
		a_name_maps_nothing_but_what_it_was_made_of,
		memory_that_cannot_be_had_is_nomem,
		signals_that_never_rest_do_not_hinder_it,
		another_process_maps_by_the_name_alone,
		no_process_changes_the_length_of_memory_that_is_mapped,
		sparse_memory_and_the_bell_are_sealed_too,
		memory_that_could_shrink_is_not_mapped,
		a_child_is_written_into_whole_or_not_at_all,
		a_write_beyond_the_memory_is_invalid,
		the_end_of_a_process_is_noticed,
		all_that_hold_a_process_share_a_descriptor,
		a_process_that_may_not_be_looked_into_is_unsupported,
		without_proc_nobody_is_here,
		there_is_one_bell_and_others_can_map_it,
		a_ring_wakes_a_thread_whenever_it_comes,
		a_ring_wakes_a_thread_of_another_process,
		a_nap_ends_unrung_and_a_bell_that_has_rung_lets_nobody_sleep,
		a_call_wakes_a_program_that_sleeps_on_its_pipe,
		a_process_has_one_pipe,
	};

	return RUN_TESTS("shm", tests);
}
