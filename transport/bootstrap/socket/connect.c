/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The connecting side of a creation.  One attempt:
 *
 *   connect; HELLO, and the listener's proof; our proof, and ADMITTED; then GO
 *
 * An attempt that ends before ADMITTED without a word (a listener that is not there yet or is
 * busy with another creation, a connection that was dropped) is made again after a pause,
 * where more attempts make sense: `again`, for a listener that may not be there yet; else only
 * where a connection was made, or nothing answered.  All within one time limit.  Every read
 * has the length of
 * the header that is expected.  A rank that waits says so in the log (side.h).
 *
 * The thread that creates; no state beyond the call.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "tcp.h"

#define PAUSE_NS 50000000
#define TRIES_CONNECTED 100
/* Then another address is tried, or the same again: the first packet may have been dropped, by
 * a queue that was full or for ever. */
#define CONNECT_NS (UINT64_C(10) * 1000000000)

struct attempt {
	const struct batoni_side_key *key;
	int size, rank, fd;
	bool named; /* MASTER_ADDR says where, not an id */
	uint64_t limit_ns, step_ns; /* of all attempts; of what is waited for now */
	bool connected, admitted;
	bool refused; /* some connection was: nothing listened there */
	int error;  /* of the last connection; an errno code */
	struct batoni_side_wait wait;
	char at[BATONI_TCP_TEXT_BYTES];
	/* What is final: a status, and its sentence. */
	enum baton_status status;
	char why[BATONI_SIDE_WHY_BYTES + 100];
};

static bool
fail_attempt(struct attempt *attempt, enum baton_status status, const char *why)
{
	attempt->status = status;
	snprintf(attempt->why, sizeof(attempt->why), "%s", why);
	return false;
}

/* It is a while that this rank waits.  Where it is connected, the other end knows which ranks
 * are missing, and says so louder. */
static void
tell_of_waiting(struct attempt *attempt, uint64_t now)
{
	unsigned long long ms = (now - attempt->wait.begun_ns) / 1000000;

	if (!batoni_side_tells(&attempt->wait, now))
		return;
	if (attempt->admitted)
		batoni_log(BATONI_LOG_INFO,
		           "rank %d has waited for %llu ms: it is connected with "
		           "%s, and not all ranks have come",
		           attempt->rank, ms, attempt->at);
	else
		batoni_log(BATONI_LOG_WARN,
		           "rank %d has waited for %llu ms: %s %s", attempt->rank,
		           ms, attempt->at,
		           attempt->connected
		                   ? "has not answered yet"
		                   : "is where rank 0, or the process that made the "
				     "id, listens, and it cannot connect yet");
}

/* False: the time is up. */
static bool
wait_for(struct attempt *attempt, short events)
{
	for (;;) {
		struct pollfd entry = {.fd = attempt->fd, .events = events};
		uint64_t now = batoni_real_ns(), next = attempt->step_ns;
		int n;

		if (now >= attempt->step_ns)
			return false;
		tell_of_waiting(attempt, now);
		if (next > batoni_side_tell_at(&attempt->wait))
			next = batoni_side_tell_at(&attempt->wait);
		n = poll(&entry, 1,
		         next - now > UINT64_C(60000000000)
		                 ? 60000
		                 : (int)((next - now + 999999) / 1000000));
		if (n > 0)
			return true;
	}
}

static bool
read_whole(struct attempt *attempt, unsigned char *bytes, size_t n)
{
	for (size_t got = 0; got < n;) {
		ssize_t more;

		if (!wait_for(attempt, POLLIN)) {
			attempt->error = ETIMEDOUT;
			return false;
		}
		more = recv(attempt->fd, bytes + got, n - got, 0);
		if (more < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (more <= 0) {
			attempt->error = more == 0 ? ECONNRESET : errno;
			return false;
		}
		got += (size_t)more;
	}
	return true;
}

static bool
send_whole(struct attempt *attempt, const void *bytes, size_t n)
{
	if (send(attempt->fd, bytes, n, MSG_NOSIGNAL) == (ssize_t)n)
		return true;
	attempt->error = errno;
	return false;
}

static bool
connect_to(struct attempt *attempt, const struct batoni_side_address *address)
{
	socklen_t length = sizeof(attempt->error);

	batoni_tcp_address_text(address, attempt->at, sizeof(attempt->at));
	attempt->fd = -1;
	attempt->error = batoni_tcp_connect_to(address, &attempt->fd);
	if (attempt->error)
		return false;
	attempt->step_ns = batoni_real_ns() + CONNECT_NS;
	if (attempt->step_ns > attempt->limit_ns)
		attempt->step_ns = attempt->limit_ns;
	if (!wait_for(attempt, POLLOUT)) {
		attempt->error = ETIMEDOUT;
		return false;
	}
	getsockopt(attempt->fd, SOL_SOCKET, SO_ERROR, &attempt->error, &length);
	if (attempt->error)
		return false;
	attempt->connected = true;
	attempt->step_ns = attempt->limit_ns;
	batoni_tcp_tune(attempt->fd);
	return true;
}

static bool
hear_reply(struct attempt *attempt, const struct batoni_tcp_hello *hello,
           struct batoni_tcp_reply *reply)
{
	unsigned char bytes[BATONI_TCP_REPLY_BYTES], proof[BATONI_TCP_PROOF_BYTES];

	if (!read_whole(attempt, bytes, sizeof(bytes)))
		return false;
	if (!batoni_tcp_reply_decode(bytes, reply))
		return fail_attempt(attempt, BATON_ERR_INVALID,
		                    "what listens there does not speak Baton's protocol");
	if (reply->version != BATONI_TCP_VERSION)
		return fail_attempt(attempt, BATON_ERR_INVALID,
		                    "the version of Baton is not the same on all ranks");
	if (reply->answer != BATONI_TCP_PROVE)
		return fail_attempt(attempt, BATON_ERR_INVALID,
		                    "the port belongs to another id by now: this one is "
		                    "spent, or was given up");
	batoni_tcp_prove(attempt->key, 'L', hello, reply->challenge, proof);
	if (!batoni_tcp_same(proof, reply->proof, sizeof(proof)))
		return fail_attempt(attempt, BATON_ERR_INVALID,
		                    "what listens there has another secret (BATON_SECRET "
		                    "is the same on all ranks)");
	return true;
}

static bool
hear_verdict(struct attempt *attempt, enum batoni_tcp_word expected,
             struct batoni_tcp_verdict *verdict)
{
	unsigned char bytes[BATONI_TCP_VERDICT_BYTES];

	if (!read_whole(attempt, bytes, sizeof(bytes)))
		return false;
	if (!batoni_tcp_verdict_decode(bytes, verdict) ||
	    (verdict->word != expected && verdict->word != BATONI_TCP_REFUSED))
		return fail_attempt(attempt, BATON_ERR_INVALID,
		                    "what listens there breaks the rules of Baton's "
		                    "protocol");
	if (verdict->word == BATONI_TCP_REFUSED)
		return fail_attempt(attempt, (enum baton_status)verdict->status,
		                    verdict->why);
	return true;
}

/* True: *home_p is set, and attempt->fd is the link. */
static bool
meet_rendezvous(struct attempt *attempt, int *home_p)
{
	struct batoni_tcp_hello hello = {.version = BATONI_TCP_VERSION,
	                                 .rank = (uint32_t)attempt->rank,
	                                 .size = (uint32_t)attempt->size};
	unsigned char bytes[BATONI_TCP_HELLO_BYTES], proof[BATONI_TCP_PROOF_BYTES];
	struct batoni_tcp_verdict verdict;
	struct batoni_tcp_reply reply;

	memcpy(hello.nonce, attempt->key->nonce, sizeof(hello.nonce));
	if (!batoni_tcp_random(hello.challenge, sizeof(hello.challenge)))
		return fail_attempt(attempt, BATON_ERR_SYSTEM,
		                    "getrandom gives no random numbers");
	batoni_tcp_hello_encode(&hello, bytes);
	if (!send_whole(attempt, bytes, sizeof(bytes)) ||
	    !hear_reply(attempt, &hello, &reply))
		return false;
	batoni_tcp_prove(attempt->key, 'C', &hello, reply.challenge, proof);
	if (!send_whole(attempt, proof, sizeof(proof)) ||
	    !hear_verdict(attempt, BATONI_TCP_ADMITTED, &verdict))
		return false;
	attempt->admitted = true;
	if (!hear_verdict(attempt, BATONI_TCP_GO, &verdict))
		return false;
	*home_p = verdict.status;
	return true;
}

/* Why the attempts have come to nothing. */
static enum baton_status
refuse_attempt(const struct attempt *attempt, int64_t timeout_ns)
{
	long long ms = (long long)(timeout_ns / 1000000);
	int rank = attempt->rank;

	if (attempt->status != BATON_OK)
		return batoni_refuse(attempt->status,
		                     "rank %d, which came to %s: %s", rank,
		                     attempt->at, attempt->why);
	if (attempt->admitted && attempt->error == ETIMEDOUT)
		return batoni_refuse(BATON_ERR_TIMEOUT,
		                     "rank %d is connected with %s, but not all "
		                     "ranks came within %lld ms",
		                     rank, attempt->at, ms);
	if (attempt->admitted)
		return batoni_refuse(BATON_ERR_PEER,
		                     "rank %d: the process that listens at %s has "
		                     "ended before all ranks had come: %s",
		                     rank, attempt->at,
		                     strerror(attempt->error));
	if (attempt->connected)
		return batoni_refuse(BATON_ERR_TIMEOUT,
		                     "rank %d: %s does not answer (%s): in the "
		                     "process that listens no rank has called yet",
		                     rank, attempt->at,
		                     strerror(attempt->error));
	if (attempt->named && attempt->refused)
		return batoni_refuse(BATON_ERR_TIMEOUT,
		                     "rank %d: within %lld ms nothing listened at %s, "
		                     "which MASTER_ADDR and BATON_PORT name: has rank "
		                     "0 not started, has it failed, or does it have "
		                     "another BATON_PORT or BATON_INTERFACE?",
		                     rank, ms, attempt->at);
	return batoni_refuse(batoni_real_ns() >= attempt->limit_ns
	                             ? BATON_ERR_TIMEOUT
	                             : BATON_ERR_PEER,
	                     "rank %d cannot connect to %s: %s (has its process "
	                     "ended, or is the id spent? may this node reach it? "
	                     "BATON_INTERFACE names another interface to listen "
	                     "on)",
	                     rank, attempt->at, strerror(attempt->error));
}

static bool
once(struct attempt *attempt, const struct batoni_side_address addresses[], int n,
     int *home_p)
{
	for (int i = 0; i < n; i++) {
		if (connect_to(attempt, &addresses[i]))
			return meet_rendezvous(attempt, home_p);
		attempt->refused |= attempt->error == ECONNREFUSED;
		if (attempt->fd >= 0 && i + 1 < n)
			close(attempt->fd);
	}
	return false;
}

static bool
may_try_again(const struct attempt *attempt, bool again, int tries)
{
	if (attempt->status != BATON_OK || attempt->admitted ||
	    batoni_real_ns() >= attempt->limit_ns)
		return false;
	return again || attempt->error == ETIMEDOUT ||
	       (attempt->connected && tries < TRIES_CONNECTED);
}

enum baton_status
batoni_tcp_connect_at(const struct batoni_side_key *key,
                      const struct batoni_side_address addresses[], int n, int size,
                      int rank, int64_t timeout_ns, bool again,
                      struct batoni_side_link *link_p)
{
	const struct timespec pause = {.tv_nsec = PAUSE_NS};
	struct attempt attempt = {.key = key, .size = size, .rank = rank,
	                          .named = again};
	int tries = 0;

	if (timeout_ns <= 0)
		timeout_ns = BATONI_TCP_PATIENCE_NS;
	attempt.wait.begun_ns = batoni_real_ns();
	attempt.limit_ns = attempt.wait.begun_ns + (uint64_t)timeout_ns;
	for (;;) {
		int home;

		attempt.connected = false;
		if (once(&attempt, addresses, n, &home)) {
			*link_p = (struct batoni_side_link){.fd = attempt.fd,
			                                    .home = home};
			return BATON_OK;
		}
		if (attempt.fd >= 0)
			close(attempt.fd);
		tell_of_waiting(&attempt, batoni_real_ns());
		if (!may_try_again(&attempt, again, tries++))
			return refuse_attempt(&attempt, timeout_ns);
		nanosleep(&pause, NULL);
	}
}

enum baton_status
batoni_tcp_connect(const struct batoni_side_key *key, int size, int rank,
                   int64_t timeout_ns, struct batoni_side_link *link_p)
{
	return batoni_tcp_connect_at(key, &key->address, 1, size, rank, timeout_ns,
	                             false, link_p);
}
