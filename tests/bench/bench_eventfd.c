/* SPDX-License-Identifier: BSD-3-Clause */
#include "bench_eventfd.h"

#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* One descriptor, with one byte. */
union control {
	struct cmsghdr header;
	char bytes[CMSG_SPACE(sizeof(int))];
};

/* Rank 1's, in the abstract name space: nothing is left in a file system. */
static socklen_t
name_socket(struct sockaddr_un *name, int pid)
{
	memset(name, 0, sizeof(*name));
	name->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
	                   (size_t)snprintf(name->sun_path + 1,
	                                    sizeof(name->sun_path) - 1,
	                                    "baton-bench-%d", pid));
}

static void
hand_over(int socket, int pid, int fd)
{
	union control control = {.bytes = {0}};
	struct sockaddr_un name;
	char byte = 0;
	struct iovec part = {&byte, 1};
	struct msghdr message = {
		.msg_name = &name,
		.msg_namelen = name_socket(&name, pid),
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(fd));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	bench_must(sendmsg(socket, &message, 0) == 1);
}

static int
take_over(int socket)
{
	union control control;
	char byte;
	struct iovec part = {&byte, 1};
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = control.bytes,
		.msg_controllen = sizeof(control.bytes),
	};
	int fd;

	bench_must(recvmsg(socket, &message, MSG_CMSG_CLOEXEC) == 1 &&
	           CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}

void
bench_eventfd_open(struct bench *b, struct bench_eventfd *bare)
{
	int link = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	struct epoll_event event = {.events = EPOLLIN};
	struct sockaddr_un name;
	int pid = getpid();

	bench_must(link >= 0);
	if (b->rank == 1) {
		socklen_t bytes = name_socket(&name, pid);

		bench_must(bind(link, (struct sockaddr *)&name, bytes) == 0);
	}
	MPI_Bcast(&pid, 1, MPI_INT, 1, b->raw);
	bare->epoll = -1;
	if (b->rank == 0) {
		bare->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
		bare->epoll = epoll_create1(EPOLL_CLOEXEC);
		bench_must(bare->fd >= 0 && bare->epoll >= 0 &&
		           epoll_ctl(bare->epoll, EPOLL_CTL_ADD, bare->fd,
		                     &event) == 0);
		hand_over(link, pid, bare->fd);
	} else {
		bare->fd = take_over(link);
	}
	close(link);
}

void
bench_eventfd_close(struct bench_eventfd *bare)
{
	close(bare->fd);
	if (bare->epoll >= 0)
		close(bare->epoll);
}

uint64_t
bench_eventfd_write(struct bench_eventfd *bare)
{
	const uint64_t one = 1;
	uint64_t before = bench_now();

	bench_must(write(bare->fd, &one, sizeof(one)) == sizeof(one));
	return before;
}

uint64_t
bench_eventfd_wait(struct bench_eventfd *bare)
{
	struct epoll_event event;
	uint64_t now, one;

	bench_must(epoll_wait(bare->epoll, &event, 1, -1) == 1);
	now = bench_now();
	bench_must(read(bare->fd, &one, sizeof(one)) == sizeof(one));
	return now;
}
