/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The listening side of a creation.
 *
 * A listener waits in a table from `listen` on; a process that connects meanwhile waits in the kernel's
 * queue.  A rendezvous is opened over it by the first rank that comes in this process, whose thread
 * attends.  A process that connects is an *applicant*; it goes through
 *
 *   FREE -> HELLO -> PROOF -> PROVEN -> in `admitted`
 *
 * and is dropped in any state; it gets a sentence if it has shown that it speaks the protocol.
 * What an applicant sends before it has proved itself has no effect on others:
 *   - it is read in exactly the bytes of the header that is expected, and in no others;
 *   - it has APPLICANT_NS to prove itself;
 *   - there are at most APPLICANTS_MAX; the next one replaces the oldest, which tries
 *     again if it is a process of Baton.
 * When an applicant that was admitted has gone, the creation fails on all ranks.
 *
 * Memory: a rendezvous of `size` descriptors.  Nothing grows.
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
#define APPLICANTS_MAX 64
#define APPLICANT_NS ((uint64_t)10 * 1000000000u)

static _Atomic uint64_t applicant_ns = APPLICANT_NS;

enum applicant_state {
	FREE,
	HELLO,
	PROOF,
	PROVEN
};

struct applicant {
	enum applicant_state state;
	int fd;
	uint64_t came_ns, limit_ns;
	size_t got;
	unsigned char in[BATONI_TCP_HELLO_BYTES];
	struct batoni_tcp_hello hello;
	unsigned char challenge[16];
	char from[BATONI_TCP_TEXT_BYTES];
};

static_assert(BATONI_TCP_PROOF_BYTES <= BATONI_TCP_HELLO_BYTES, "`in` holds either");

struct batoni_rendezvous {
	struct batoni_side_key key;
	int listener;
	int bell; /* an eventfd */
	int size;
	struct applicant applicants[APPLICANTS_MAX];
	int *admitted;        /* descriptors, by rank; -1: not of another process, or not here */
	struct pollfd *polls; /* scratch of attend */
	int *polled;          /* whose polls[i] is: an applicant, or APPLICANTS_MAX + rank */
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
batoni_tcp_applicant_ns(uint64_t ns)
{
	atomic_store(&applicant_ns, ns ? ns : APPLICANT_NS);
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

/* ---- a rendezvous ---- */

static void
free_rendezvous(struct batoni_rendezvous *rendezvous)
{
	if (rendezvous->listener >= 0)
		close(rendezvous->listener);
	if (rendezvous->bell >= 0)
		close(rendezvous->bell);
	batoni_free(rendezvous->admitted);
	batoni_free(rendezvous->polls);
	batoni_free(rendezvous->polled);
	batoni_free(rendezvous);
}

enum baton_status
batoni_tcp_open_on(int listener, const struct batoni_side_key *key, int size,
                   struct batoni_rendezvous **rendezvous_p)
{
	struct batoni_rendezvous *rendezvous = batoni_alloc(1, sizeof(*rendezvous));
	size_t most = (size_t)size + APPLICANTS_MAX + 2;

	if (!rendezvous) {
		close(listener);
		return BATON_ERR_NOMEM;
	}
	rendezvous->key = *key;
	rendezvous->listener = listener;
	rendezvous->size = size;
	rendezvous->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	rendezvous->admitted = batoni_alloc((size_t)size, sizeof(*rendezvous->admitted));
	rendezvous->polls = batoni_alloc(most, sizeof(*rendezvous->polls));
	rendezvous->polled = batoni_alloc(most, sizeof(*rendezvous->polled));
	if (rendezvous->bell < 0 || !rendezvous->admitted || !rendezvous->polls || !rendezvous->polled) {
		free_rendezvous(rendezvous);
		return BATON_ERR_NOMEM;
	}
	for (int rank = 0; rank < size; rank++)
		rendezvous->admitted[rank] = -1;
	*rendezvous_p = rendezvous;
	return BATON_OK;
}

enum baton_status
batoni_tcp_open(const struct batoni_side_key *key, int size,
                struct batoni_rendezvous **rendezvous_p)
{
	int listener = take_listener(key);

	return listener < 0 ? BATON_ERR_UNSUPPORTED
	                    : batoni_tcp_open_on(listener, key, size, rendezvous_p);
}

void
batoni_tcp_ring(struct batoni_rendezvous *rendezvous)
{
	const uint64_t one = 1;

	/* Full: it is rung already. */
	if (write(rendezvous->bell, &one, sizeof(one)) < 0)
		return;
}

/* ---- applicants ---- */

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

/* why: NULL where the applicant itself has hung up. */
static void
drop_applicant(struct batoni_rendezvous *rendezvous, struct applicant *applicant, const char *why)
{
	if (why) {
		rendezvous->refused++;
		snprintf(rendezvous->last, sizeof(rendezvous->last), "%s, %s", applicant->from,
		         why);
		batoni_log(BATONI_LOG_INFO,
		           "a connection from %s was refused: %s", applicant->from,
		           why);
	}
	close(applicant->fd);
	applicant->state = FREE;
}

static struct applicant *
place_for_one(struct batoni_rendezvous *rendezvous)
{
	struct applicant *oldest = &rendezvous->applicants[0];

	for (int i = 0; i < APPLICANTS_MAX; i++) {
		struct applicant *applicant = &rendezvous->applicants[i];

		if (applicant->state == FREE)
			return applicant;
		/* One that has proved itself is about to be taken in. */
		if (oldest->state == PROVEN ||
		    (applicant->state != PROVEN &&
		     applicant->came_ns < oldest->came_ns))
			oldest = applicant;
	}
	if (oldest->state == PROVEN)
		return NULL;
	drop_applicant(rendezvous, oldest, "too many connect at once");
	return oldest;
}

static void
let_come(struct batoni_rendezvous *rendezvous)
{
	/* Without a descriptor for it, the applicant still waits in the queue at the next poll. */
	const struct timespec pause = {.tv_nsec = 10000000};

	for (int i = 0; i < APPLICANTS_MAX; i++) {
		struct sockaddr_storage storage = {.ss_family = 0};
		struct batoni_side_address from;
		socklen_t length = sizeof(storage);
		struct applicant *applicant;
		int fd = accept4(rendezvous->listener, (struct sockaddr *)&storage,
		                 &length, SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno != EAGAIN && errno != EINTR &&
			    errno != ECONNABORTED)
				nanosleep(&pause, NULL);
			return;
		}
		applicant = place_for_one(rendezvous);
		if (!applicant) {
			close(fd);
			return;
		}
		batoni_tcp_tune(fd);
		*applicant = (struct applicant){.state = HELLO,
		                                .fd = fd,
		                                .came_ns = batoni_real_ns()};
		applicant->limit_ns = applicant->came_ns + atomic_load(&applicant_ns);
		batoni_tcp_address_from((struct sockaddr *)&storage, &from);
		batoni_tcp_address_text(&from, applicant->from,
		                        sizeof(applicant->from));
	}
}

/* True: all `n` bytes of what is expected are there. */
static bool
read_part(struct batoni_rendezvous *rendezvous, struct applicant *applicant, size_t n)
{
	ssize_t got = recv(applicant->fd, applicant->in + applicant->got, n - applicant->got, 0);

	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return false;
	if (got <= 0) {
		drop_applicant(rendezvous, applicant, applicant->state == PROOF
		                          ? "it closed before it proved that it "
		                            "knows the secret: another secret, or "
		                            "its program has ended"
		                          : "it said nothing");
		return false;
	}
	applicant->got += (size_t)got;
	return applicant->got == n;
}

static void
hear_hello(struct batoni_rendezvous *rendezvous, struct applicant *applicant)
{
	struct batoni_tcp_reply reply = {.version = BATONI_TCP_VERSION,
	                                 .answer = BATONI_TCP_PROVE};
	unsigned char bytes[BATONI_TCP_REPLY_BYTES];

	if (!read_part(rendezvous, applicant, BATONI_TCP_HELLO_BYTES))
		return;
	if (!batoni_tcp_hello_decode(applicant->in, &applicant->hello)) {
		drop_applicant(rendezvous, applicant, "it does not speak Baton's protocol");
		return;
	}
	if (applicant->hello.version != BATONI_TCP_VERSION)
		reply.answer = BATONI_TCP_OTHER_VERSION;
	else if (memcmp(applicant->hello.nonce, rendezvous->key.nonce,
	                sizeof(rendezvous->key.nonce)) != 0)
		reply.answer = BATONI_TCP_OTHER_ID;
	if (reply.answer == BATONI_TCP_PROVE) {
		if (!batoni_tcp_random(applicant->challenge,
		                       sizeof(applicant->challenge))) {
			drop_applicant(rendezvous, applicant, "this node has no random numbers");
			return;
		}
		memcpy(reply.challenge, applicant->challenge,
		       sizeof(reply.challenge));
		batoni_tcp_prove(&rendezvous->key, 'L', &applicant->hello,
		                 applicant->challenge, reply.proof);
	}
	batoni_tcp_reply_encode(&reply, bytes);
	applicant->got = 0;
	applicant->state = PROOF;
	if (!send_whole(applicant->fd, bytes, sizeof(bytes)))
		drop_applicant(rendezvous, applicant, "it does not take an answer");
	else if (reply.answer == BATONI_TCP_OTHER_VERSION)
		drop_applicant(rendezvous, applicant, "it is another version of Baton");
	else if (reply.answer == BATONI_TCP_OTHER_ID)
		drop_applicant(rendezvous, applicant, "it has another id");
}

static void
hear_proof(struct batoni_rendezvous *rendezvous, struct applicant *applicant)
{
	unsigned char proof[BATONI_TCP_PROOF_BYTES];

	if (!read_part(rendezvous, applicant, BATONI_TCP_PROOF_BYTES))
		return;
	batoni_tcp_prove(&rendezvous->key, 'C', &applicant->hello, applicant->challenge,
	                 proof);
	if (batoni_tcp_same(proof, applicant->in, sizeof(proof))) {
		applicant->state = PROVEN;
		return;
	}
	send_verdict(applicant->fd, BATONI_TCP_REFUSED, BATON_ERR_INVALID,
	             "the secret is another one");
	drop_applicant(rendezvous, applicant, "it has another secret");
}

static void
expire(struct batoni_rendezvous *rendezvous, uint64_t now)
{
	for (int i = 0; i < APPLICANTS_MAX; i++) {
		struct applicant *applicant = &rendezvous->applicants[i];

		if ((applicant->state == HELLO || applicant->state == PROOF) &&
		    now >= applicant->limit_ns)
			drop_applicant(rendezvous, applicant, "it did not prove itself in time");
	}
}

/* ---- attending ---- */

static void
add_poll(struct batoni_rendezvous *rendezvous, nfds_t *n, int fd, short events, int whose)
{
	rendezvous->polls[*n] = (struct pollfd){.fd = fd, .events = events};
	rendezvous->polled[(*n)++] = whose;
}

/* Fills the array; *until_ns comes down to the first deadline. */
static nfds_t
gather(struct batoni_rendezvous *rendezvous, uint64_t *until_ns)
{
	nfds_t n = 0;

	add_poll(rendezvous, &n, rendezvous->bell, POLLIN, -1);
	add_poll(rendezvous, &n, rendezvous->listener, POLLIN, -1);
	for (int i = 0; i < APPLICANTS_MAX; i++) {
		struct applicant *applicant = &rendezvous->applicants[i];

		if (applicant->state != HELLO && applicant->state != PROOF)
			continue;
		add_poll(rendezvous, &n, applicant->fd, POLLIN, i);
		if (applicant->limit_ns < *until_ns)
			*until_ns = applicant->limit_ns;
	}
	/* No admitted process sends anything before it was told to go on. */
	for (int rank = 0; rank < rendezvous->size; rank++) {
		if (rendezvous->admitted[rank] >= 0)
			add_poll(rendezvous, &n, rendezvous->admitted[rank], POLLIN,
			         APPLICANTS_MAX + rank);
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
	/* Rounded up; at most a minute, for the caller to try again. */
	return until_ns - now > UINT64_C(60000000000)
	               ? 60000
	               : (int)((until_ns - now + 999999) / 1000000);
}

/* True: `admit` has something to do. */
static bool
serve(struct batoni_rendezvous *rendezvous, nfds_t n)
{
	bool news = false;

	for (nfds_t i = 2; i < n; i++) {
		struct applicant *applicant;

		if (!rendezvous->polls[i].revents)
			continue;
		if (rendezvous->polled[i] >= APPLICANTS_MAX) {
			news = true;
			continue;
		}
		applicant = &rendezvous->applicants[rendezvous->polled[i]];
		if (applicant->state == HELLO)
			hear_hello(rendezvous, applicant);
		else if (applicant->state == PROOF)
			hear_proof(rendezvous, applicant);
		news |= applicant->state == PROVEN;
	}
	return news;
}

void
batoni_tcp_attend(struct batoni_rendezvous *rendezvous, uint64_t until_ns)
{
	for (;;) {
		uint64_t now = batoni_real_ns(), next = until_ns, rung;
		nfds_t n = gather(rendezvous, &next);
		bool news;

		if (poll(rendezvous->polls, n, poll_for(now, next)) < 0 &&
		    errno != EINTR)
			return;
		news = serve(rendezvous, n);
		if (rendezvous->polls[1].revents)
			let_come(rendezvous);
		now = batoni_real_ns();
		expire(rendezvous, now);
		if (read(rendezvous->bell, &rung, sizeof(rung)) > 0)
			news = true;
		if (news || now >= until_ns)
			return;
	}
}

/* ---- taking in ---- */

static enum baton_status
take_in(struct batoni_rendezvous *rendezvous, struct applicant *applicant, bool here[], int *n_p,
        char why[BATONI_SIDE_WHY_BYTES])
{
	int rank = (int)applicant->hello.rank;

	if ((int)applicant->hello.size != rendezvous->size) {
		snprintf(why, BATONI_SIDE_WHY_BYTES,
		         "rank %d, at %s, has size %u; another rank said %d",
		         rank, applicant->from, applicant->hello.size, rendezvous->size);
		send_verdict(applicant->fd, BATONI_TCP_REFUSED, BATON_ERR_INVALID,
		             why);
		drop_applicant(rendezvous, applicant, "it has another size");
		return BATON_ERR_INVALID;
	}
	if (here[rank]) {
		char text[80];

		snprintf(text, sizeof(text), "rank %d is taken", rank);
		send_verdict(applicant->fd, BATONI_TCP_REFUSED, BATON_ERR_INVALID,
		             text);
		drop_applicant(rendezvous, applicant, text);
		return BATON_OK;
	}
	if (!send_verdict(applicant->fd, BATONI_TCP_ADMITTED, 0, "")) {
		drop_applicant(rendezvous, applicant, "it does not take an answer");
		return BATON_OK;
	}
	here[rank] = true;
	rendezvous->admitted[rank] = applicant->fd;
	applicant->state = FREE;
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
batoni_tcp_admit(struct batoni_rendezvous *rendezvous, bool here[], int *n_p,
                 char why[BATONI_SIDE_WHY_BYTES])
{
	*n_p = 0;
	for (int rank = 0; rank < rendezvous->size; rank++) {
		if (rendezvous->admitted[rank] < 0 || !is_gone(rendezvous->admitted[rank]))
			continue;
		snprintf(why, BATONI_SIDE_WHY_BYTES,
		         "rank %d has ended or given up before all ranks had "
		         "come",
		         rank);
		return BATON_ERR_PEER;
	}
	for (int i = 0; i < APPLICANTS_MAX; i++) {
		enum baton_status status = BATON_OK;

		if (rendezvous->applicants[i].state == PROVEN)
			status = take_in(rendezvous, &rendezvous->applicants[i], here, n_p, why);
		if (status != BATON_OK)
			return status;
	}
	return BATON_OK;
}

/* ---- the end ---- */

/* Socket pairs for the ranks of this process: one end in fds, the other in links. */
static enum baton_status
pair_up(const struct batoni_rendezvous *rendezvous, int home, int fds[], bool local[],
        struct batoni_side_link links[])
{
	for (int rank = 0; rank < rendezvous->size; rank++) {
		int pair[2];

		fds[rank] = rendezvous->admitted[rank];
		local[rank] = links[rank].fd == 0;
		if (!local[rank])
			continue;
		if (socketpair(AF_UNIX,
		               SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		               pair) != 0) {
			for (int i = rank; i < rendezvous->size; i++) {
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
unpair(const struct batoni_rendezvous *rendezvous, const int fds[], const bool local[],
       struct batoni_side_link links[])
{
	for (int rank = 0; rank < rendezvous->size; rank++) {
		if (!local[rank] || links[rank].fd < 0)
			continue;
		close(fds[rank]);
		close(links[rank].fd);
		links[rank].fd = -1;
	}
}

enum baton_status
batoni_tcp_link_all(struct batoni_rendezvous *rendezvous, int home,
                    struct batoni_side_link links[])
{
	size_t n = (size_t)rendezvous->size;
	int *fds = batoni_alloc(n, sizeof(*fds));
	bool *local = batoni_alloc(n, sizeof(*local));
	enum baton_status status = BATON_ERR_NOMEM;

	/* First, so that no process that is told to go on connects to this listener again. */
	close(rendezvous->listener);
	rendezvous->listener = -1;
	if (fds && local) {
		status = pair_up(rendezvous, home, fds, local, links);
		if (status == BATON_OK)
			status = batoni_tcp_hub_start(rendezvous->size, home, fds,
			                              local);
		if (status != BATON_OK)
			unpair(rendezvous, fds, local, links);
		for (size_t i = 0; i < n && status == BATON_OK; i++)
			rendezvous->admitted[i] = -1; /* the hub has them */
	}
	batoni_free(fds);
	batoni_free(local);
	return status;
}

void
batoni_tcp_describe(const struct batoni_rendezvous *rendezvous, char *text, size_t size)
{
	size_t used = strlen(text);

	if (rendezvous->refused == 0)
		return;
	snprintf(text + used, size - used,
	         "; connections that were refused: %u, the last: %s", rendezvous->refused,
	         rendezvous->last);
}

void
batoni_tcp_close(struct batoni_rendezvous *rendezvous, enum baton_status status,
                 const char *why)
{
	for (int i = 0; i < APPLICANTS_MAX; i++) {
		struct applicant *applicant = &rendezvous->applicants[i];

		if (applicant->state == PROVEN && status != BATON_OK)
			send_verdict(applicant->fd, BATONI_TCP_REFUSED, status, why);
		if (applicant->state != FREE)
			close(applicant->fd);
	}
	for (int rank = 0; rank < rendezvous->size; rank++) {
		if (rendezvous->admitted[rank] < 0)
			continue;
		if (status != BATON_OK)
			send_verdict(rendezvous->admitted[rank], BATONI_TCP_REFUSED,
			             status, why);
		close(rendezvous->admitted[rank]);
	}
	free_rendezvous(rendezvous);
}
