/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A descriptor travels in one of two ways:
 *
 *   - the process that wants it takes it out of the giver's, by pidfd_getfd.  The kernel
 *     permits that as it permits to trace the process (not under yama's ptrace_scope, nor in
 *     most containers);
 *   - the giver sends it (SCM_RIGHTS) as the answer to a request.  For this a process has one
 *     abstract datagram socket, its *giver socket*, whose name ends with the process, and a thread that
 *     answers, while any handover is open.  Both processes must then be of one network namespace.
 *
 * Every process of the node can see the names of abstract sockets.  So a request must have
 * the secret of a handover, which travels in that one's name alone, and come from the same user; an
 * answer is taken from the giver's process only.  The kernel says which process and user a
 * datagram is from (SCM_CREDENTIALS).  The number of a descriptor may be that of another file
 * by the time its name arrives; so what was fetched is compared with the name.
 *
 * Bounds.  The thread waits for requests and for its end, nothing else.  A process that
 * fetches waits for room in the giver's queue and for the answer, until its time is over or
 * the giver has ended.  It repeats its request every REPEAT_NS, as an answer may fail for want
 * of descriptors.  A secret of no handover, which a closed one's is, is answered without a
 * descriptor, and the fetch ends.
 *
 * Locks.  `giver_lock` is held while the giver socket is opened and closed, and guards the number of its
 * handovers; the fields of `giver` are constant while its thread runs, which writing `stop` ends.
 * `lock`, a leaf, guards the list of handovers; an answer is sent under it, so a
 * descriptor is not closed meanwhile.  Order: giver_lock, lock.
 */
#include "handover.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "list.h"
#include "mem.h"
#include "shm.h"
#include "thread.h"

#define REPEAT_NS 50000000u

struct batoni_handover {
	struct batoni_list_node link; /* of handovers, if the giver socket serves it */
	int fd;                       /* the caller's */
	unsigned char secret[16];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct batoni_list_node handovers = {&handovers, &handovers};

/* Of this process. */
static pthread_mutex_t giver_lock = PTHREAD_MUTEX_INITIALIZER;
static struct {
	unsigned uses; /* handovers; 0: it is closed */
	uint64_t number;
	int socket, stop;
	pthread_t thread;
} giver;

/* A request, and the body of its answer. */
struct datagram {
	unsigned char magic[8];
	unsigned char secret[16];
};

static const unsigned char magic_bytes[8] = {'b', 'a', 't', 'o', 'n', 'f', 'd', '1'};

/* ---- datagrams ---- */

/* Length of the address. */
static socklen_t
address_of(uint64_t number, struct sockaddr_un *address)
{
	int n;

	memset(address, 0, sizeof(*address));
	address->sun_family = AF_UNIX;
	/* The first byte of the name stays 0. */
	n = snprintf(address->sun_path + 1, sizeof(address->sun_path) - 1,
	             "baton-%016llx", (unsigned long long)number);
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 +
	                   (size_t)n);
}

/* A datagram socket that the kernel tells the senders' processes; -1, with errno set. */
static int
make_socket(void)
{
	const int on = 1;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int error;

	if (fd < 0 ||
	    setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) == 0)
		return fd;
	error = errno;
	close(fd);
	errno = error;
	return -1;
}

/* Room for one descriptor and the sender's credentials, aligned.  The alignment leaves room for
 * a second descriptor. */
union control {
	char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
	struct cmsghdr align;
};

/* What came with a datagram. */
struct arrival {
	struct sockaddr_un from;
	socklen_t from_bytes;
	struct ucred sender; /* pid 0: not told */
	int fd;              /* -1: none */
	bool cut;            /* the kernel has dropped a descriptor */
};

/* Keep the first.  Any process may send, and as many as there is room for. */
static void
keep_first(struct cmsghdr *part, struct arrival *arrival)
{
	const unsigned char *at = CMSG_DATA(part);
	size_t n = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);

	for (size_t i = 0; i < n; i++) {
		int fd;

		memcpy(&fd, at + i * sizeof(fd), sizeof(fd));
		if (arrival->fd < 0)
			arrival->fd = fd;
		else
			close(fd);
	}
}

static void
read_control(struct msghdr *message, struct arrival *arrival)
{
	for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part;
	     part = CMSG_NXTHDR(message, part)) {
		if (part->cmsg_level != SOL_SOCKET)
			continue;
		if (part->cmsg_type == SCM_CREDENTIALS)
			memcpy(&arrival->sender, CMSG_DATA(part),
			       sizeof(arrival->sender));
		else if (part->cmsg_type == SCM_RIGHTS)
			keep_first(part, arrival);
	}
}

/* Receive one datagram.  False: nothing has come (errno is EAGAIN), or it is none.  A descriptor
 * is the caller's in either case. */
static bool
receive_datagram(int socket_fd, struct datagram *datagram, struct arrival *arrival)
{
	struct iovec body = {datagram, sizeof(*datagram)};
	union control control;
	struct msghdr message = {
		.msg_name = &arrival->from,
		.msg_namelen = sizeof(arrival->from),
		.msg_iov = &body,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	ssize_t n;

	*arrival = (struct arrival){.fd = -1};
	n = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
	if (n < 0)
		return false;
	arrival->from_bytes = message.msg_namelen;
	arrival->cut = (message.msg_flags & MSG_CTRUNC) != 0;
	read_control(&message, arrival);
	return n == (ssize_t)sizeof(*datagram) &&
	       memcmp(datagram->magic, magic_bytes, sizeof(datagram->magic)) == 0;
}

static bool
is_secret(const struct datagram *datagram, const unsigned char secret[16])
{
	return memcmp(datagram->secret, secret, sizeof(datagram->secret)) == 0;
}

/* ---- the giver ---- */

static const struct batoni_handover *
find_locked(const struct datagram *asks)
{
	for (struct batoni_list_node *at = handovers.next; at != &handovers;
	     at = at->next) {
		const struct batoni_handover *handover = batoni_container_of(
			at, struct batoni_handover, link);

		if (is_secret(asks, handover->secret))
			return handover;
	}
	return NULL;
}

/* handover: NULL, if the secret is that of none. */
static void
send_locked(const struct batoni_handover *handover, const struct datagram *asks,
            struct arrival *to)
{
	struct datagram datagram = *asks;
	struct iovec body = {&datagram, sizeof(datagram)};
	union {
		char bytes[CMSG_SPACE(sizeof(int))];
		struct cmsghdr align;
	} control = {{0}};
	struct msghdr message = {
		.msg_name = &to->from,
		.msg_namelen = to->from_bytes,
		.msg_iov = &body,
		.msg_iovlen = 1,
	};

	if (handover) {
		struct cmsghdr *part = &control.align;

		message.msg_control = &control;
		message.msg_controllen = sizeof(control);
		part->cmsg_level = SOL_SOCKET;
		part->cmsg_type = SCM_RIGHTS;
		part->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(part), &handover->fd, sizeof(int));
	}
	/* If it fails, the asker repeats its request. */
	(void)sendmsg(giver.socket, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

static void
answer_request(const struct datagram *asks, struct arrival *to)
{
	pthread_mutex_lock(&lock);
	send_locked(find_locked(asks), asks, to);
	pthread_mutex_unlock(&lock);
}

static void *
giver_main(void *argument)
{
	struct pollfd polls[] = {{.fd = giver.stop, .events = POLLIN},
	                         {.fd = giver.socket, .events = POLLIN}};

	(void)argument;
	for (;;) {
		struct arrival asks;
		struct datagram datagram;

		if (poll(polls, 2, -1) < 0 && errno != EINTR)
			return NULL;
		if (polls[0].revents)
			return NULL;
		if (receive_datagram(giver.socket, &datagram, &asks) &&
		    asks.sender.pid != 0 && asks.sender.uid == geteuid())
			answer_request(&datagram, &asks);
		if (asks.fd >= 0)
			close(asks.fd);
	}
}

/* False: it stays closed. */
static bool
open_giver(void)
{
	struct sockaddr_un address;

	if (getrandom(&giver.number, sizeof(giver.number), 0) !=
	            (ssize_t)sizeof(giver.number) ||
	    giver.number == 0)
		return false;
	giver.socket = make_socket();
	if (giver.socket < 0)
		return false;
	giver.stop = eventfd(0, EFD_CLOEXEC);
	if (giver.stop < 0 ||
	    bind(giver.socket, (struct sockaddr *)&address,
	         address_of(giver.number, &address)) != 0 ||
	    batoni_thread_start(&giver.thread, giver_main, NULL))
		goto close_fds;
	return true;

close_fds:
	if (giver.stop >= 0)
		close(giver.stop);
	close(giver.socket);
	return false;
}

static void
close_giver(void)
{
	const uint64_t one = 1;
	/* An eventfd that was never written takes 1. */
	ssize_t written = write(giver.stop, &one, sizeof(one));

	assert(written == (ssize_t)sizeof(one));
	(void)written;
	pthread_join(giver.thread, NULL);
	close(giver.stop);
	close(giver.socket);
}

/* Answer requests for it.  False: its descriptor can be taken by pidfd_getfd alone.  That is no error:
 * only a process that may not do that asks the giver socket. */
static bool
register_handover(struct batoni_handover *handover, uint64_t *number_p)
{
	bool open;

	if (getrandom(handover->secret, sizeof(handover->secret), 0) !=
	    (ssize_t)sizeof(handover->secret))
		return false;
	pthread_mutex_lock(&giver_lock);
	open = giver.uses > 0 || open_giver();
	giver.uses += open;
	*number_p = giver.number;
	pthread_mutex_unlock(&giver_lock);
	if (!open)
		return false;
	pthread_mutex_lock(&lock);
	batoni_list_append(&handovers, &handover->link);
	pthread_mutex_unlock(&lock);
	return true;
}

static void
unregister_handover(struct batoni_handover *handover)
{
	pthread_mutex_lock(&lock);
	batoni_list_remove(&handover->link);
	pthread_mutex_unlock(&lock);
	pthread_mutex_lock(&giver_lock);
	if (--giver.uses == 0)
		close_giver();
	pthread_mutex_unlock(&giver_lock);
}

enum baton_status
batoni_handover_open(int fd, struct batoni_handover **handover_p,
                     struct batoni_handover_name *name_p)
{
	struct batoni_handover *handover = batoni_alloc(1, sizeof(*handover));
	struct batoni_shm_name here;
	struct stat file;
	uint64_t number;

	if (!handover)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	if (fstat(fd, &file) != 0) {
		batoni_free(handover);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "descriptor %d to hand on: fstat: %s", fd,
		                     strerror(errno));
	}
	memset(name_p, 0, sizeof(*name_p));
	batoni_shm_node(&here);
	memcpy(name_p->node, here.node, sizeof(name_p->node));
	name_p->pid = (int32_t)getpid();
	name_p->fd = fd;
	name_p->device = file.st_dev;
	name_p->inode = file.st_ino;
	handover->fd = fd;
	batoni_list_init(&handover->link);
	if (register_handover(handover, &number)) {
		name_p->giver = number;
		memcpy(name_p->secret, handover->secret,
		       sizeof(name_p->secret));
	}
	*handover_p = handover;
	return BATON_OK;
}

void
batoni_handover_close(struct batoni_handover *handover)
{
	if (!handover)
		return;
	if (!batoni_list_empty(&handover->link))
		unregister_handover(handover);
	batoni_free(handover);
}

/* ---- the process that fetches ---- */

static bool
is_named(const struct batoni_handover_name *name, int fd)
{
	struct stat file;

	return fstat(fd, &file) == 0 && file.st_dev == name->device &&
	       file.st_ino == name->inode;
}

static enum baton_status
refuse_gone(const struct batoni_handover_name *name)
{
	return batoni_refuse(BATON_ERR_PEER,
	                     "process %d has ended before it handed on a "
	                     "descriptor",
	                     (int)name->pid);
}

/* errno says what failed. */
static enum baton_status
refuse_call(const char *call)
{
	enum baton_status status = BATON_ERR_UNSUPPORTED;

	if (errno == EMFILE || errno == ENFILE || errno == ENOMEM)
		status = BATON_ERR_NOMEM;
	return batoni_refuse(status, "fetching a descriptor: %s: %s", call,
	                     strerror(errno));
}

/* OK; UNSUPPORTED: it is to be asked for. */
static enum baton_status
take_descriptor(const struct batoni_handover_name *name, int pidfd, int *fd_p)
{
	int fd;

	if (pidfd < 0)
		return BATON_ERR_UNSUPPORTED;
	fd = (int)syscall(SYS_pidfd_getfd, pidfd, name->fd, 0);
	if (fd < 0 && (errno == EMFILE || errno == ENFILE))
		return refuse_call("pidfd_getfd");
	if (fd < 0)
		return BATON_ERR_UNSUPPORTED;
	if (is_named(name, fd)) {
		*fd_p = fd;
		return BATON_OK;
	}
	close(fd);
	return BATON_ERR_UNSUPPORTED;
}

/* Wait for the socket, but not beyond until_ns, and at most for REPEAT_NS.  False: the giver
 * has ended, and left nothing on the socket. */
static bool
wait_for(int socket_fd, short events, int pidfd, uint64_t until_ns)
{
	struct pollfd polls[] = {{.fd = socket_fd, .events = events},
	                         {.fd = pidfd, .events = POLLIN}};
	uint64_t now_ns = batoni_real_ns(), left_ns = 0;

	if (until_ns > now_ns)
		left_ns = until_ns - now_ns;
	if (left_ns > REPEAT_NS)
		left_ns = REPEAT_NS;
	(void)poll(polls, 2, (int)(left_ns / 1000000u) + 1);
	return polls[0].revents || !polls[1].revents;
}

/* The answer, if it has come.  PENDING: it has not. */
static enum baton_status
take_answer(const struct batoni_handover_name *name, int socket_fd, int *fd_p)
{
	struct arrival arrival;
	struct datagram datagram;
	bool is_answer = receive_datagram(socket_fd, &datagram, &arrival) &&
	                 is_secret(&datagram, name->secret) &&
	                 arrival.sender.pid == name->pid;

	if (is_answer && arrival.fd >= 0 && is_named(name, arrival.fd)) {
		*fd_p = arrival.fd;
		return BATON_OK;
	}
	if (arrival.fd >= 0)
		close(arrival.fd);
	/* The kernel drops descriptors for which the process has no numbers left. */
	if (is_answer && arrival.fd < 0 && arrival.cut) {
		errno = EMFILE;
		return refuse_call("recvmsg");
	}
	if (is_answer && arrival.fd < 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "process %d hands on that descriptor no "
		                     "more",
		                     (int)name->pid);
	return BATON_PENDING;
}

static enum baton_status
ask(const struct batoni_handover_name *name, int socket_fd, int pidfd,
    uint64_t until_ns, int *fd_p)
{
	struct datagram datagram;
	uint64_t next_ns = 0;

	memcpy(datagram.magic, magic_bytes, sizeof(datagram.magic));
	memcpy(datagram.secret, name->secret, sizeof(datagram.secret));
	for (;;) {
		enum baton_status status;
		uint64_t now_ns = batoni_real_ns();
		bool full = false;

		if (now_ns >= next_ns) {
			ssize_t n = send(socket_fd, &datagram, sizeof(datagram),
			                 MSG_DONTWAIT | MSG_NOSIGNAL);

			full = n < 0 && (errno == EAGAIN || errno == ENOBUFS);
			if (n < 0 && !full)
				return batoni_pidfd_gone(pidfd)
				               ? refuse_gone(name)
				               : refuse_call("send");
			if (!full)
				next_ns = now_ns + REPEAT_NS;
		}
		if (!wait_for(socket_fd, full ? POLLOUT : POLLIN, pidfd,
		              until_ns))
			return refuse_gone(name);
		status = take_answer(name, socket_fd, fd_p);
		if (status != BATON_PENDING)
			return status;
		if (batoni_real_ns() >= until_ns)
			return batoni_refuse(BATON_ERR_TIMEOUT,
			                     "process %d does not hand on a "
			                     "descriptor in time",
			                     (int)name->pid);
	}
}

static enum baton_status
fetch_by_socket(const struct batoni_handover_name *name, int pidfd,
                uint64_t until_ns, int *fd_p)
{
	struct sockaddr_un own = {.sun_family = AF_UNIX}, to;
	enum baton_status status;
	int fd = make_socket();

	if (fd < 0)
		return refuse_call("socket");
	/* A name of the kernel's choice, for the answer. */
	if (bind(fd, (struct sockaddr *)&own, sizeof(own.sun_family)) != 0)
		status = refuse_call("bind");
	else if (connect(fd, (struct sockaddr *)&to,
	                 address_of(name->giver, &to)) != 0)
		status = batoni_pidfd_gone(pidfd) ? refuse_gone(name)
		                                  : refuse_call("connect");
	else
		status = ask(name, fd, pidfd, until_ns, fd_p);
	close(fd);
	return status;
}

enum baton_status
batoni_handover_fetch(const struct batoni_handover_name *name, int pidfd,
                      uint64_t until_ns, int *fd_p)
{
	struct batoni_shm_name here;
	enum baton_status status;

	memset(&here, 0, sizeof(here));
	memcpy(here.node, name->node, sizeof(here.node));
	if (!batoni_shm_is_here(&here))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "a descriptor of another node or pid "
		                     "namespace");
	status = take_descriptor(name, pidfd, fd_p);
	if (status != BATON_ERR_UNSUPPORTED)
		return status;
	if (batoni_pidfd_gone(pidfd))
		return refuse_gone(name);
	if (!name->giver)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "pidfd_getfd may not take a descriptor of "
		                     "process %d, which has no socket for "
		                     "requests",
		                     (int)name->pid);
	return fetch_by_socket(name, pidfd, until_ns, fd_p);
}
