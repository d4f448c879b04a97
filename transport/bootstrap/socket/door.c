/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listening side of a creation.
 *
 * A listener waits in a table from `listen` on; who connects meanwhile waits in the kernel's
 * queue.  A door is opened over it by the first rank that comes in this process, whose thread
 * attends.  Those who knock (struct knock) go through
 *
 *   FREE -> HELLO -> PROOF -> PROVEN -> in `seats`
 *
 * and are dropped in any state, with a sentence where they have shown that they speak the
 * protocol.  Nothing that one who has not proved itself sends has an effect on others:
 *   - it is read in exactly the bytes of the header that is expected, and in no others;
 *   - it has KNOCK_NS to prove itself;
 *   - there are KNOCKS of them; the next one takes the place of the oldest, whose
 *     program, if it is one of ours, tries again.
 * One that was taken in and is gone ends the creation, for all.
 *
 * Memory: a door of `size` descriptors.  Nothing grows.
 */
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "mem.h"
#include "tcp.h"

#define LISTENERS_MAX 64
#define KNOCKS 64
#define KNOCK_NS ((uint64_t)10 * 1000000000u)

static _Atomic uint64_t knock_ns = KNOCK_NS;

enum knock_state {
	FREE,
	HELLO,
	PROOF,
	PROVEN
};

struct knock {
	enum knock_state state;
	int fd;
	uint64_t came_ns, limit_ns;
	size_t got;
	unsigned char in[BATONI_TCP_HELLO_BYTES];
	struct batoni_tcp_hello hello;
	unsigned char challenge[16];
	char from[BATONI_TCP_TEXT_BYTES];
};

static_assert(BATONI_TCP_PROOF_BYTES <= BATONI_TCP_HELLO_BYTES, "`in` holds either");

struct batoni_door {
	struct batoni_side_key key;
	int listener;
	int bell; /* an eventfd */
	int size;
	struct knock knocks[KNOCKS];
	int *seats;           /* by rank; -1: not of another process, or not here */
	struct pollfd *polls; /* scratch of attend */
	int *polled;          /* whose polls[i] is: a knock, or KNOCKS + rank */
	unsigned refused;     /* sent away */
	char last[160];       /* the last of them, and why */
};

/* ---- listeners ---- */

static pthread_mutex_t listeners_lock = PTHREAD_MUTEX_INITIALIZER;
/* Under it.  The oldest is the next to be given up. */
static struct listener {
	bool used;
	int fd;
	unsigned char nonce[BATONI_SIDE_NONCE_BYTES];
} listeners[LISTENERS_MAX];
static unsigned listeners_next;

void
batoni_tcp_knock_ns(uint64_t ns)
{
	atomic_store(&knock_ns, ns ? ns : KNOCK_NS);
}

enum baton_status
batoni_tcp_listen(struct batoni_side_key *key, int *error_p)
{
	struct listener *listener;
	int fd;

	*error_p = batoni_tcp_address_choose(&key->address);
	if (*error_p == 0)
		*error_p = batoni_tcp_listen_on(&key->address, &fd);
	if (*error_p) {
		key->address.family = 0;
		return batoni_tcp_check_interface("baton_unique_id_create") ==
		                       BATON_OK
		               ? BATON_ERR_SYSTEM
		               : BATON_ERR_INVALID;
	}
	pthread_mutex_lock(&listeners_lock);
	listener = &listeners[listeners_next++ % LISTENERS_MAX];
	if (listener->used)
		close(listener->fd);
	listener->used = true;
	listener->fd = fd;
	memcpy(listener->nonce, key->nonce, sizeof(listener->nonce));
	pthread_mutex_unlock(&listeners_lock);
	return BATON_OK;
}

/* The descriptor, which the caller now owns; -1: nothing listens for the key. */
static int
take_listener(const struct batoni_side_key *key)
{
	int fd = -1;

	pthread_mutex_lock(&listeners_lock);
	for (int i = 0; i < LISTENERS_MAX; i++) {
		if (!listeners[i].used ||
		    memcmp(listeners[i].nonce, key->nonce,
		           sizeof(key->nonce)) != 0)
			continue;
		fd = listeners[i].fd;
		listeners[i].used = false;
	}
	pthread_mutex_unlock(&listeners_lock);
	return fd;
}

void
batoni_tcp_unlisten(const struct batoni_side_key *key)
{
	int fd = take_listener(key);

	if (fd >= 0)
		close(fd);
}

/* ---- a door ---- */

static void
free_door(struct batoni_door *door)
{
	if (door->listener >= 0)
		close(door->listener);
	if (door->bell >= 0)
		close(door->bell);
	batoni_free(door->seats);
	batoni_free(door->polls);
	batoni_free(door->polled);
	batoni_free(door);
}

enum baton_status
batoni_tcp_open_on(int listener, const struct batoni_side_key *key, int size,
                   struct batoni_door **door_p)
{
	struct batoni_door *door = batoni_alloc(1, sizeof(*door));
	size_t most = (size_t)size + KNOCKS + 2;

	if (!door) {
		close(listener);
		return BATON_ERR_NOMEM;
	}
	door->key = *key;
	door->listener = listener;
	door->size = size;
	door->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	door->seats = batoni_alloc((size_t)size, sizeof(*door->seats));
	door->polls = batoni_alloc(most, sizeof(*door->polls));
	door->polled = batoni_alloc(most, sizeof(*door->polled));
	if (door->bell < 0 || !door->seats || !door->polls || !door->polled) {
		free_door(door);
		return BATON_ERR_NOMEM;
	}
	for (int rank = 0; rank < size; rank++)
		door->seats[rank] = -1;
	*door_p = door;
	return BATON_OK;
}

enum baton_status
batoni_tcp_open(const struct batoni_side_key *key, int size,
                struct batoni_door **door_p)
{
	int listener = take_listener(key);

	return listener < 0 ? BATON_ERR_UNSUPPORTED
	                    : batoni_tcp_open_on(listener, key, size, door_p);
}

void
batoni_tcp_ring(struct batoni_door *door)
{
	const uint64_t one = 1;

	/* Full: it is rung already. */
	if (write(door->bell, &one, sizeof(one)) < 0)
		return;
}

/* ---- those who knock ---- */

/* Short, and into an empty buffer of the socket: it goes whole, or the connection is bad. */
static bool
send_whole(int fd, const void *bytes, size_t n)
{
	return send(fd, bytes, n, MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)n;
}

static bool
send_verdict(int fd, enum batoni_tcp_word word, int32_t status, const char *why)
{
	struct batoni_tcp_verdict verdict = {.word = word, .status = status};
	unsigned char bytes[BATONI_TCP_VERDICT_BYTES];

	snprintf(verdict.why, sizeof(verdict.why), "%s", why);
	batoni_tcp_verdict_encode(&verdict, bytes);
	return send_whole(fd, bytes, sizeof(bytes));
}

/* Why: NULL: it is no refusal of ours. */
static void
drop(struct batoni_door *door, struct knock *knock, const char *why)
{
	if (why) {
		door->refused++;
		snprintf(door->last, sizeof(door->last), "%s, %s", knock->from,
		         why);
		batoni_log(BATONI_LOG_INFO,
		           "a connection from %s was refused: %s", knock->from,
		           why);
	}
	close(knock->fd);
	knock->state = FREE;
}

static struct knock *
place_for_one(struct batoni_door *door)
{
	struct knock *oldest = &door->knocks[0];

	for (int i = 0; i < KNOCKS; i++) {
		struct knock *knock = &door->knocks[i];

		if (knock->state == FREE)
			return knock;
		/* One that has proved itself is about to be taken in. */
		if (oldest->state == PROVEN ||
		    (knock->state != PROVEN &&
		     knock->came_ns < oldest->came_ns))
			oldest = knock;
	}
	if (oldest->state == PROVEN)
		return NULL;
	drop(door, oldest, "too many connect at once");
	return oldest;
}

static void
let_come(struct batoni_door *door)
{
	/* Without a descriptor for it, who waits is still there at the next look. */
	const struct timespec pause = {.tv_nsec = 10000000};

	for (int i = 0; i < KNOCKS; i++) {
		struct sockaddr_storage storage = {.ss_family = 0};
		struct batoni_side_address from;
		socklen_t length = sizeof(storage);
		struct knock *knock;
		int fd = accept4(door->listener, (struct sockaddr *)&storage,
		                 &length, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR &&
			    errno != ECONNABORTED)
				nanosleep(&pause, NULL);
			return;
		}
		knock = place_for_one(door);
		if (!knock) {
			close(fd);
			return;
		}
		batoni_tcp_tune(fd);
		*knock = (struct knock){.state = HELLO,
		                        .fd = fd,
		                        .came_ns = batoni_real_ns()};
		knock->limit_ns = knock->came_ns + atomic_load(&knock_ns);
		batoni_tcp_address_from((struct sockaddr *)&storage, &from);
		batoni_tcp_address_text(&from, knock->from,
		                        sizeof(knock->from));
	}
}

/* True: all `n` bytes of what is expected are there. */
static bool
read_part(struct batoni_door *door, struct knock *knock, size_t n)
{
	ssize_t got = recv(knock->fd, knock->in + knock->got, n - knock->got, 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		drop(door, knock, knock->state == PROOF
		                          ? "it closed before it proved that it "
		                            "knows the secret: another secret, or "
		                            "its program has ended"
		                          : "it said nothing");
		return false;
	}
	knock->got += (size_t)got;
	return knock->got == n;
}

static void
hear_hello(struct batoni_door *door, struct knock *knock)
{
	struct batoni_tcp_reply reply = {.version = BATONI_TCP_VERSION,
	                                 .answer = BATONI_TCP_PROVE};
	unsigned char bytes[BATONI_TCP_REPLY_BYTES];

	if (!read_part(door, knock, BATONI_TCP_HELLO_BYTES))
		return;
	if (!batoni_tcp_hello_decode(knock->in, &knock->hello)) {
		drop(door, knock, "it does not speak Baton's protocol");
		return;
	}
	if (knock->hello.version != BATONI_TCP_VERSION)
		reply.answer = BATONI_TCP_OTHER_VERSION;
	else if (memcmp(knock->hello.nonce, door->key.nonce,
	                sizeof(door->key.nonce)) != 0)
		reply.answer = BATONI_TCP_OTHER_ID;
	if (reply.answer == BATONI_TCP_PROVE) {
		if (!batoni_tcp_random(knock->challenge,
		                       sizeof(knock->challenge))) {
			drop(door, knock, "this host has no random numbers");
			return;
		}
		memcpy(reply.challenge, knock->challenge,
		       sizeof(reply.challenge));
		batoni_tcp_prove(&door->key, 'L', &knock->hello,
		                 knock->challenge, reply.proof);
	}
	batoni_tcp_reply_encode(&reply, bytes);
	knock->got = 0;
	knock->state = PROOF;
	if (!send_whole(knock->fd, bytes, sizeof(bytes)))
		drop(door, knock, "it does not take an answer");
	else if (reply.answer == BATONI_TCP_OTHER_VERSION)
		drop(door, knock, "it is another version of Baton");
	else if (reply.answer == BATONI_TCP_OTHER_ID)
		drop(door, knock, "it has another id");
}

static void
hear_proof(struct batoni_door *door, struct knock *knock)
{
	unsigned char proof[BATONI_TCP_PROOF_BYTES];

	if (!read_part(door, knock, BATONI_TCP_PROOF_BYTES))
		return;
	batoni_tcp_prove(&door->key, 'C', &knock->hello, knock->challenge,
	                 proof);
	if (batoni_tcp_same(proof, knock->in, sizeof(proof))) {
		knock->state = PROVEN;
		return;
	}
	send_verdict(knock->fd, BATONI_TCP_REFUSED, BATON_ERR_INVALID,
	             "the secret is another one");
	drop(door, knock, "it has another secret");
}

static void
expire(struct batoni_door *door, uint64_t now)
{
	for (int i = 0; i < KNOCKS; i++) {
		struct knock *knock = &door->knocks[i];

		if ((knock->state == HELLO || knock->state == PROOF) &&
		    now >= knock->limit_ns)
			drop(door, knock, "it did not prove itself in time");
	}
}

/* ---- attending ---- */

static void
add_poll(struct batoni_door *door, nfds_t *n, int fd, short events, int whose)
{
	door->polls[*n] = (struct pollfd){.fd = fd, .events = events};
	door->polled[(*n)++] = whose;
}

/* Fills the array; *until_ns comes down to the first deadline. */
static nfds_t
gather(struct batoni_door *door, uint64_t *until_ns)
{
	nfds_t n = 0;

	add_poll(door, &n, door->bell, POLLIN, -1);
	add_poll(door, &n, door->listener, POLLIN, -1);
	for (int i = 0; i < KNOCKS; i++) {
		struct knock *knock = &door->knocks[i];

		if (knock->state != HELLO && knock->state != PROOF)
			continue;
		add_poll(door, &n, knock->fd, POLLIN, i);
		if (knock->limit_ns < *until_ns)
			*until_ns = knock->limit_ns;
	}
	/* Nobody says anything before it was told to go on. */
	for (int rank = 0; rank < door->size; rank++) {
		if (door->seats[rank] >= 0)
			add_poll(door, &n, door->seats[rank], POLLIN,
			         KNOCKS + rank);
	}
	return n;
}

static int
poll_for(uint64_t now, uint64_t until_ns)
{
	if (until_ns == UINT64_MAX)
		return -1;
	if (until_ns <= now)
		return 0;
	/* Rounded up; at most a minute, for the caller to look again. */
	return until_ns - now > UINT64_C(60000000000)
	               ? 60000
	               : (int)((until_ns - now + 999999) / 1000000);
}

/* True: `admit` has something to do. */
static bool
serve(struct batoni_door *door, nfds_t n)
{
	bool news = false;

	for (nfds_t i = 2; i < n; i++) {
		struct knock *knock;

		if (!door->polls[i].revents)
			continue;
		if (door->polled[i] >= KNOCKS) {
			news = true;
			continue;
		}
		knock = &door->knocks[door->polled[i]];
		if (knock->state == HELLO)
			hear_hello(door, knock);
		else if (knock->state == PROOF)
			hear_proof(door, knock);
		news |= knock->state == PROVEN;
	}
	return news;
}

void
batoni_tcp_attend(struct batoni_door *door, uint64_t until_ns)
{
	for (;;) {
		uint64_t now = batoni_real_ns(), next = until_ns, rung;
		nfds_t n = gather(door, &next);
		bool news;

		if (poll(door->polls, n, poll_for(now, next)) < 0 &&
		    errno != EINTR)
			return;
		news = serve(door, n);
		if (door->polls[1].revents)
			let_come(door);
		now = batoni_real_ns();
		expire(door, now);
		if (read(door->bell, &rung, sizeof(rung)) > 0)
			news = true;
		if (news || now >= until_ns)
			return;
	}
}

/* ---- taking in ---- */

static enum baton_status
take_in(struct batoni_door *door, struct knock *knock, bool here[], int *n_p,
        char why[BATONI_SIDE_WHY_BYTES])
{
	int rank = (int)knock->hello.rank;

	if ((int)knock->hello.size != door->size) {
		snprintf(why, BATONI_SIDE_WHY_BYTES,
		         "rank %d, at %s, has size %u; another rank said %d",
		         rank, knock->from, knock->hello.size, door->size);
		send_verdict(knock->fd, BATONI_TCP_REFUSED, BATON_ERR_INVALID,
		             why);
		drop(door, knock, "it has another size");
		return BATON_ERR_INVALID;
	}
	if (here[rank]) {
		char text[80];

		snprintf(text, sizeof(text), "rank %d is taken", rank);
		send_verdict(knock->fd, BATONI_TCP_REFUSED, BATON_ERR_INVALID,
		             text);
		drop(door, knock, text);
		return BATON_OK;
	}
	if (!send_verdict(knock->fd, BATONI_TCP_SEATED, 0, "")) {
		drop(door, knock, "it does not take an answer");
		return BATON_OK;
	}
	here[rank] = true;
	door->seats[rank] = knock->fd;
	knock->state = FREE;
	++*n_p;
	return BATON_OK;
}

/* Nothing comes from one that waits, but its end. */
static bool
is_gone(int fd)
{
	struct pollfd entry = {.fd = fd, .events = POLLIN};

	return poll(&entry, 1, 0) > 0;
}

enum baton_status
batoni_tcp_admit(struct batoni_door *door, bool here[], int *n_p,
                 char why[BATONI_SIDE_WHY_BYTES])
{
	*n_p = 0;
	for (int rank = 0; rank < door->size; rank++) {
		if (door->seats[rank] < 0 || !is_gone(door->seats[rank]))
			continue;
		snprintf(why, BATONI_SIDE_WHY_BYTES,
		         "rank %d has ended or given up before all ranks had "
		         "come",
		         rank);
		return BATON_ERR_PEER;
	}
	for (int i = 0; i < KNOCKS; i++) {
		enum baton_status status = BATON_OK;

		if (door->knocks[i].state == PROVEN)
			status = take_in(door, &door->knocks[i], here, n_p, why);
		if (status != BATON_OK)
			return status;
	}
	return BATON_OK;
}

/* ---- the end ---- */

/* Socket pairs for the ranks of this process: one end in fds, the other in links. */
static enum baton_status
pair_up(const struct batoni_door *door, int home, int fds[], bool local[],
        struct batoni_side_link links[])
{
	for (int rank = 0; rank < door->size; rank++) {
		int pair[2];

		fds[rank] = door->seats[rank];
		local[rank] = links[rank].fd == 0;
		if (!local[rank])
			continue;
		if (socketpair(AF_UNIX,
		               SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		               pair) != 0) {
			for (int i = rank; i < door->size; i++) {
				if (links[i].fd == 0)
					links[i].fd = fds[i] = -1;
			}
			return BATON_ERR_SYSTEM;
		}
		fds[rank] = pair[0];
		links[rank] = (struct batoni_side_link){.fd = pair[1],
		                                        .home = home};
	}
	return BATON_OK;
}

static void
unpair(const struct batoni_door *door, const int fds[], const bool local[],
       struct batoni_side_link links[])
{
	for (int rank = 0; rank < door->size; rank++) {
		if (!local[rank] || links[rank].fd < 0)
			continue;
		close(fds[rank]);
		close(links[rank].fd);
		links[rank].fd = -1;
	}
}

enum baton_status
batoni_tcp_seat(struct batoni_door *door, int home,
                struct batoni_side_link links[])
{
	size_t n = (size_t)door->size;
	int *fds = batoni_alloc(n, sizeof(*fds));
	bool *local = batoni_alloc(n, sizeof(*local));
	enum baton_status status = BATON_ERR_NOMEM;

	/* First, so that none who is told to go on comes back to this listener. */
	close(door->listener);
	door->listener = -1;
	if (fds && local) {
		status = pair_up(door, home, fds, local, links);
		if (status == BATON_OK)
			status = batoni_tcp_hub_start(door->size, home, fds,
			                              local);
		if (status != BATON_OK)
			unpair(door, fds, local, links);
		for (size_t i = 0; i < n && status == BATON_OK; i++)
			door->seats[i] = -1; /* the hub has them */
	}
	batoni_free(fds);
	batoni_free(local);
	return status;
}

void
batoni_tcp_describe(const struct batoni_door *door, char *text, size_t size)
{
	size_t used = strlen(text);

	if (door->refused == 0)
		return;
	snprintf(text + used, size - used,
	         "; connections that were refused: %u, the last: %s", door->refused,
	         door->last);
}

void
batoni_tcp_close(struct batoni_door *door, enum baton_status status,
                 const char *why)
{
	for (int i = 0; i < KNOCKS; i++) {
		struct knock *knock = &door->knocks[i];

		if (knock->state == PROVEN && status != BATON_OK)
			send_verdict(knock->fd, BATONI_TCP_REFUSED, status, why);
		if (knock->state != FREE)
			close(knock->fd);
	}
	for (int rank = 0; rank < door->size; rank++) {
		if (door->seats[rank] < 0)
			continue;
		if (status != BATON_OK)
			send_verdict(door->seats[rank], BATONI_TCP_REFUSED,
			             status, why);
		close(door->seats[rank]);
	}
	free_door(door);
}
