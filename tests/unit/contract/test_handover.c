/* SPDX-License-Identifier: BSD-3-Clause */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "forbid_call.h"
#include "handover.h"
#include "mem.h"
#include "run_tests.h"
#include "shared_memory.h"
#include "shm.h"

#define LONG_NS UINT64_C(60000000000)
#define SHORT_NS UINT64_C(120000000)
#define ASKERS 24

/* What two processes share. */
struct meeting {
	struct batoni_handover_name name;
	_Atomic int given;
};

static uint64_t
in(uint64_t ns)
{
	return batoni_real_ns() + ns;
}

/* A descriptor that cannot be found by a name, with a word in it. */
static int
make_file(void)
{
	int fd = memfd_create("handed on", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "baton", 5), 5);
	return fd;
}

static bool
has_the_word(int fd)
{
	char word[5];

	return pread(fd, word, sizeof(word), 0) == (ssize_t)sizeof(word) &&
	       memcmp(word, "baton", sizeof(word)) == 0;
}

static int
count_descriptors(void)
{
	DIR *all = opendir("/proc/self/fd");
	int n = 0;

	ck_assert_ptr_nonnull(all);
	while (readdir(all))
		n++;
	closedir(all);
	return n;
}

static int
ended_with(pid_t child)
{
	int status = -1;

	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A child fetches what this process gives; the status that it ends with. */
static int
fetch_in_child(const struct batoni_handover_name *name,
               int (*before)(unsigned call))
{
	pid_t child = fork();
	int fd = -1, pidfd;

	ck_assert_int_ge(child, 0);
	if (child > 0)
		return ended_with(child);
	pidfd = batoni_pidfd_open(getppid());
	if (before && before(SYS_pidfd_getfd) != 0)
		_exit(9);
	if (batoni_handover_fetch(name, pidfd, in(LONG_NS), &fd) != BATON_OK)
		_exit(1);
	if (!has_the_word(fd))
		_exit(2);
	_exit(fcntl(fd, F_GETFD) == FD_CLOEXEC ? 0 : 3);
}

START_TEST(another_process_gets_the_descriptor)
{
	int fd = make_file(), before = count_descriptors();
	long blocks = batoni_mem_blocks();
	struct batoni_handover_name name;
	struct batoni_handover *handover;

	ck_assert_int_eq(batoni_handover_open(fd, &handover, &name), BATON_OK);
	ck_assert_int_eq(fetch_in_child(&name, NULL), 0);
	ck_assert_int_eq(fetch_in_child(&name, NULL), 0);
	batoni_handover_close(handover);
	batoni_handover_close(NULL);
	ck_assert_int_eq(count_descriptors(), before);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	ck_assert(has_the_word(fd));
}
END_TEST

/* As under yama's ptrace_scope, and in containers. */
START_TEST(where_it_may_not_be_taken_it_is_sent)
{
	struct batoni_handover_name name;
	struct batoni_handover *handover;

	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	ck_assert_uint_ne(name.giver, 0);
	ck_assert_int_eq(fetch_in_child(&name, forbid_call), 0);
	/* Without a pidfd it cannot be taken either. */
	batoni_handover_close(handover);
}
END_TEST

static void *
fetch_one(void *argument)
{
	const struct batoni_handover_name *name = argument;
	int fd = -1;
	enum baton_status status =
		batoni_handover_fetch(name, -1, in(LONG_NS), &fd);
	bool good = status == BATON_OK && has_the_word(fd);

	if (fd >= 0)
		close(fd);
	return good ? argument : NULL;
}

/* More than the kernel keeps for one socket (10, unless it is told otherwise). */
START_TEST(many_may_ask_at_the_same_time)
{
	int file = make_file(), before = count_descriptors();
	struct batoni_handover_name name;
	struct batoni_handover *handover;
	pthread_t askers[ASKERS];
	void *result;

	ck_assert_int_eq(batoni_handover_open(file, &handover, &name), BATON_OK);
	for (int i = 0; i < ASKERS; i++)
		ck_assert_int_eq(pthread_create(&askers[i], NULL, fetch_one,
		                                &name), 0);
	for (int i = 0; i < ASKERS; i++) {
		pthread_join(askers[i], &result);
		ck_assert_ptr_nonnull(result);
	}
	batoni_handover_close(handover);
	ck_assert_int_eq(count_descriptors(), before);
}
END_TEST

START_TEST(a_request_without_the_secret_gets_no_descriptor)
{
	struct batoni_handover_name name;
	struct batoni_handover *handover;
	int before, fd = -1;

	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	before = count_descriptors();
	name.secret[15] ^= 1;
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "no more"));
	ck_assert_int_eq(fd, -1);
	name.secret[15] ^= 1;
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_OK);
	close(fd);
	ck_assert_int_eq(count_descriptors(), before);
	batoni_handover_close(handover);
}
END_TEST

/* The giver socket is open, as another handover has it. */
START_TEST(a_closed_handover_is_answered_at_once)
{
	struct batoni_handover_name name, other;
	struct batoni_handover *handover, *stays;
	int before, fd = -1;

	ck_assert_int_eq(batoni_handover_open(make_file(), &stays, &other),
	                 BATON_OK);
	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	before = count_descriptors();
	batoni_handover_close(handover);
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "no more"));
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_descriptors(), before);
	ck_assert_int_eq(batoni_handover_fetch(&other, -1, in(LONG_NS), &fd),
	                 BATON_OK);
	close(fd);
	batoni_handover_close(stays);
}
END_TEST

/* The process that fetches has one number left, which its socket takes. */
START_TEST(an_answer_without_room_for_its_descriptor_is_told_apart)
{
	struct batoni_handover_name name;
	struct batoni_handover *handover;
	struct rlimit before, few;
	int fd = -1, next, status;
	pid_t child;

	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		next = dup(STDIN_FILENO);
		close(next);
		if (getrlimit(RLIMIT_NOFILE, &before) != 0)
			_exit(1);
		few = before;
		few.rlim_cur = (rlim_t)next + 1;
		if (setrlimit(RLIMIT_NOFILE, &few) != 0)
			_exit(2);
		status = batoni_handover_fetch(&name, -1, in(LONG_NS), &fd);
		_exit(status != BATON_ERR_NOMEM ? 3
		      : !strstr(baton_last_error(), "recvmsg") ? 4 : 0);
	}
	ck_assert_int_eq(ended_with(child), 0);
	batoni_handover_close(handover);
}
END_TEST

/* As any process can, for it takes no secret. */
static void
send_two_descriptors(const struct batoni_handover_name *name)
{
	const int fds[2] = {STDIN_FILENO, STDIN_FILENO};
	struct sockaddr_un to = {.sun_family = AF_UNIX};
	struct iovec body = {(char[]){"?"}, 1};
	union {
		char bytes[CMSG_SPACE(sizeof(fds))];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr message = {
		.msg_name = &to,
		.msg_iov = &body,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	int n = snprintf(to.sun_path + 1, sizeof(to.sun_path) - 1,
	                 "baton-%016llx", (unsigned long long)name->giver);

	message.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
	                                  1 + (size_t)n);
	CMSG_FIRSTHDR(&message)->cmsg_level = SOL_SOCKET;
	CMSG_FIRSTHDR(&message)->cmsg_type = SCM_RIGHTS;
	CMSG_FIRSTHDR(&message)->cmsg_len = CMSG_LEN(sizeof(fds));
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&message)), fds, sizeof(fds));
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sendmsg(fd, &message, 0), 1);
	close(fd);
}

START_TEST(descriptors_from_strangers_are_closed)
{
	struct batoni_handover_name name;
	struct batoni_handover *handover;
	int before, fd = -1;

	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	before = count_descriptors();
	send_two_descriptors(&name);
	/* Requests are answered in their order. */
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_OK);
	close(fd);
	ck_assert_int_eq(count_descriptors(), before);
	batoni_handover_close(handover);
}
END_TEST

/* The number of a descriptor may belong to something else by now. */
START_TEST(only_what_was_named_is_taken)
{
	int pidfd = batoni_pidfd_open(getpid()), before, fd = -1;
	struct batoni_handover_name name;
	struct batoni_handover *handover;

	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	before = count_descriptors();
	name.inode++;
	ck_assert_int_eq(batoni_handover_fetch(&name, pidfd, in(SHORT_NS), &fd),
	                 BATON_ERR_TIMEOUT);
	ck_assert_int_eq(fd, -1);
	ck_assert_int_eq(count_descriptors(), before);
	batoni_handover_close(handover);
	batoni_pidfd_close(pidfd);
}
END_TEST

START_TEST(what_cannot_be_fetched_is_refused_with_the_reason)
{
	struct batoni_handover_name name;
	struct batoni_handover *handover;
	int fd = -1;

	ck_assert_int_eq(batoni_handover_open(make_file(), &handover, &name),
	                 BATON_OK);
	batoni_handover_close(handover);
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "refused"));
	name.giver = 0;
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "no socket"));
	name.node[3] ^= 1;
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "another node"));
}
END_TEST

/* A child that gives, and stops or ends then. */
static pid_t
give_in_child(struct meeting *meeting, bool ends)
{
	pid_t child = fork();
	struct batoni_handover *handover;

	ck_assert_int_ge(child, 0);
	if (child > 0) {
		while (!atomic_load(&meeting->given))
			sched_yield();
		return child;
	}
	if (batoni_handover_open(make_file(), &handover, &meeting->name) !=
	    BATON_OK)
		_exit(1);
	atomic_store(&meeting->given, 1);
	if (!ends)
		raise(SIGSTOP);
	_exit(0);
}

START_TEST(a_giver_that_has_ended_is_told_of)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	pid_t child = give_in_child(meeting, true);
	int pidfd = batoni_pidfd_open(child), fd = -1;

	ck_assert_int_eq(ended_with(child), 0);
	ck_assert(batoni_pidfd_gone(pidfd));
	ck_assert_int_eq(batoni_handover_fetch(&meeting->name, pidfd,
	                                       in(LONG_NS), &fd),
	                 BATON_ERR_PEER);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "has ended"));
	batoni_pidfd_close(pidfd);
}
END_TEST

static void *
kill_it(void *argument)
{
	kill(*(pid_t *)argument, SIGKILL);
	return NULL;
}

/* It stands when it is asked, and dies while an answer is waited for. */
START_TEST(a_giver_that_stands_holds_nobody_up)
{
	struct meeting *meeting = shared_alloc(sizeof(struct meeting));
	pid_t child = give_in_child(meeting, false);
	int pidfd = batoni_pidfd_open(child), fd = -1, status;
	enum baton_status fetched;
	pthread_t killer;

	ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(batoni_handover_fetch(&meeting->name, -1, in(SHORT_NS),
	                                       &fd),
	                 BATON_ERR_TIMEOUT);
	ck_assert_int_eq(pthread_create(&killer, NULL, kill_it, &child), 0);
	/* The socket alone: a descriptor may be taken from a process that stands. */
	meeting->name.fd = -1;
	fetched = batoni_handover_fetch(&meeting->name, pidfd, in(LONG_NS), &fd);
	pthread_join(killer, NULL);
	/* A process that ends closes its socket before its pidfd tells of the end. */
	ck_assert_msg(fetched == BATON_ERR_PEER || fetched == BATON_ERR_UNSUPPORTED,
	              "%s", baton_status_name(fetched));
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	batoni_pidfd_close(pidfd);
}
END_TEST

START_TEST(no_memory_and_no_descriptors_are_statuses)
{
	int file = make_file(), pidfd = batoni_pidfd_open(getpid()), fd = -1;
	struct batoni_handover_name name;
	struct batoni_handover *handover;
	struct rlimit before, few;

	batoni_mem_fail_at(1);
	ck_assert_int_eq(batoni_handover_open(file, &handover, &name),
	                 BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_handover_open(-1, &handover, &name),
	                 BATON_ERR_SYSTEM);
	ck_assert_int_eq(batoni_handover_open(file, &handover, &name), BATON_OK);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &before), 0);
	few = before;
	few.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	ck_assert_int_eq(batoni_handover_fetch(&name, pidfd, in(LONG_NS), &fd),
	                 BATON_ERR_NOMEM);
	ck_assert_int_eq(batoni_handover_fetch(&name, -1, in(LONG_NS), &fd),
	                 BATON_ERR_NOMEM);
	batoni_handover_close(handover);
	/* Without a socket it can only be taken. */
	ck_assert_int_eq(batoni_handover_open(file, &handover, &name), BATON_OK);
	ck_assert_uint_eq(name.giver, 0);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &before), 0);
	batoni_handover_close(handover);
	batoni_pidfd_close(pidfd);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		another_process_gets_the_descriptor,
		where_it_may_not_be_taken_it_is_sent,
		many_may_ask_at_the_same_time,
		a_request_without_the_secret_gets_no_descriptor,
		a_closed_handover_is_answered_at_once,
		an_answer_without_room_for_its_descriptor_is_told_apart,
		descriptors_from_strangers_are_closed,
		only_what_was_named_is_taken,
		what_cannot_be_fetched_is_refused_with_the_reason,
		a_giver_that_has_ended_is_told_of,
		a_giver_that_stands_holds_nobody_up,
		no_memory_and_no_descriptors_are_statuses,
	};

	return RUN_TESTS("handover", tests);
}
