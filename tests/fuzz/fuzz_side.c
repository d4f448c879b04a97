/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel after its creation (transport/bootstrap/socket/): a rank's end (tcp.c,
 * message.c) or the hub (hub.c), with link.c and wire.c, as they are, over socket pairs.  The first
 * bit of the input says which; the target is at the other ends of the sockets.
 *
 * The input is a list of commands of six bytes.  A rank's end is also told to issue, to take back,
 * and to exchange, as what lies over it would; the other end says frames whose numbers are small
 * enough to meet what the rank has posted, or any bytes.
 *
 * Each transfer ends once, with a status that its end may have, and nothing is written outside of
 * its buffer (AddressSanitizer); what waits for a peer is bounded; what breaks the rules is told to
 * the host once, as PEER.  The hub's thread ends when all other ends have closed, and leaves no
 * memory.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "log.h"
#include "mem.h"
#include "rank.h"
#include "thread.h"

enum {
	RANK = 1,
	SIZE = 3,
	SLOTS = 12,
	ANY_SLOT = SLOTS - 1, /* of the receive from any rank */
	HIDDEN_TAGS = 3,
	TAGS = 3,
	BYTES_MOST = 80,
	PART_BYTES = 24
};

enum command {
	SAY,
	SAY_BYTES,
	READ,
	TEST,
	ISSUE,
	TAKE_BACK,
	EXCHANGE,
	LEAVE,
	HANG_UP,
	COMMANDS
};

struct unit {
	uint8_t what, from, kind, slot, length, more;
};

/* ---- what the channel needs of others ---- */

int
batoni_thread_start(pthread_t *thread_p, void *(*main)(void *), void *arg)
{
	return pthread_create(thread_p, NULL, main, arg);
}

/* No memory is shared: there are no segments. */
enum baton_status
batoni_segments_make(struct batoni_segments *segments,
                     struct batoni_transport *transport, int size,
                     const struct batoni_transport_config *config)
{
	(void)segments;
	(void)transport;
	(void)size;
	CLAIM(config->segment_bytes == 0);
	return BATON_OK;
}

void
batoni_segments_free(struct batoni_segments *segments,
                     struct batoni_transport *transport)
{
	(void)segments;
	(void)transport;
}

/* ---- the other ends ---- */

static void
open_pair(int *ours_p, int *theirs_p)
{
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)
		exit(EXIT_FAILURE);
	*ours_p = fds[0];
	*theirs_p = fds[1];
}

static void
say_bytes(int fd, const void *bytes, size_t n)
{
	ssize_t ignored = send(fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);

	(void)ignored;
}

static void
read_all(int fd)
{
	char bytes[4096];

	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
		;
}

/* A frame whose body is as long as it says, or as far as it goes. */
static void
say(int fd, const struct unit *unit, uint32_t to)
{
	static const unsigned char body[PART_BYTES * SIZE + BYTES_MOST];
	unsigned char head[BATONI_TCP_HEAD_BYTES];
	struct batoni_tcp_frame frame = {
		.kind = 1 + unit->kind % BATONI_TCP_KINDS,
		.from = unit->from % SIZE,
		.to = to,
		.tag = unit->more % 8 < TAGS ? unit->more % 8
	                                     : (uint32_t)INT32_MAX,
		.slot = unit->slot % (SLOTS + 1),
		.length = unit->length % (BYTES_MOST + 1),
		.bytes = unit->length % (BYTES_MOST + 1),
	};

	if (frame.kind == BATONI_TCP_PART || frame.kind == BATONI_TCP_ALL) {
		frame.what = unit->slot % 3;
		frame.bytes = unit->length & 64 ? PART_BYTES : unit->length;
		frame.status = unit->more & 128 ? (uint32_t)BATON_ERR_NOMEM : 0;
		frame.length = frame.status ? 0 : (uint32_t)frame.bytes;
		if (frame.kind == BATONI_TCP_ALL)
			frame.length *= SIZE;
	} else if (frame.kind != BATONI_TCP_DATA) {
		frame.length = 0;
		frame.status = unit->length % 8;
		frame.what = unit->slot % (SIZE + 2);
	} else if (unit->more & 64) {
		frame.bytes += 5; /* a message that is cut off */
	}
	batoni_tcp_frame_encode(&frame, head);
	say_bytes(fd, head, sizeof(head));
	say_bytes(fd, body,
	          frame.length < sizeof(body) ? frame.length : sizeof(body));
}

/* ---- a rank's end ---- */

static struct rank {
	struct batoni_tcp *tcp;
	struct batoni_transport *transport;
	struct batoni_upcalls upcalls;
	struct batoni_transfer transfers[SLOTS];
	bool held[SLOTS], asked[SLOTS];
	int other;
	bool broken, exchanging, leaving;
	unsigned char mine[PART_BYTES], all[PART_BYTES * SIZE];
} rank;

static void
forget(struct batoni_transfer *transfer, enum baton_status status)
{
	uint32_t slot = transfer->slot;

	CLAIM(slot < SLOTS && transfer == &rank.transfers[slot] &&
	      rank.held[slot]);
	CLAIM(status == BATON_OK || status == BATON_ERR_TRUNCATED ||
	      status == BATON_ERR_CANCELED || status == BATON_ERR_PEER);
	CLAIM(status != BATON_OK || transfer->done_bytes <= transfer->bytes);
	free(transfer->buffer);
	rank.held[slot] = rank.asked[slot] = false;
}

static void
done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
     enum baton_status status)
{
	(void)upcalls;
	forget(transfer, status);
}

static void
broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call,
       int code, const char *text)
{
	(void)upcalls;
	(void)call;
	(void)code;
	CLAIM(!rank.broken && fatal == BATON_ERR_PEER && text[0] != '\0');
	rank.broken = true;
}

static void
begin_rank(void)
{
	const struct batoni_transport_config config = {
		.slots = SLOTS, .slots_most = SLOTS, .hidden_tags = HIDDEN_TAGS};
	struct batoni_side_link link = {.home = 0};

	memset(&rank, 0, sizeof(rank));
	open_pair(&link.fd, &rank.other);
	CLAIM(batoni_tcp_new(RANK, SIZE, &link, &rank.tcp) == BATON_OK);
	CLAIM(batoni_tcp_alloc(rank.tcp, &config) == BATON_OK);
	rank.transport = batoni_tcp_transport(rank.tcp);
	rank.upcalls = (struct batoni_upcalls){.done = done, .broken = broken};
	rank.transport->upcalls = rank.transport->messages.upcalls = &rank.upcalls;
}

static const struct batoni_path_ops *
ops(void)
{
	return rank.transport->messages.ops;
}

static void
issue_unit(const struct unit *unit)
{
	uint32_t slot = unit->slot % SLOTS;
	struct batoni_transfer *transfer = &rank.transfers[slot];
	bool any = slot == ANY_SLOT;
	enum baton_status status;

	if (rank.held[slot] || rank.leaving)
		return;
	memset(transfer, 0, sizeof(*transfer));
	transfer->slot = slot & 0xffffff;
	transfer->direction = any || unit->kind & 1 ? BATONI_RECV : BATONI_SEND;
	transfer->peer = any ? rank.transport->any_peer : unit->from % SIZE;
	transfer->tag = any ? INT32_MAX : unit->more % TAGS;
	transfer->bytes = any ? 12 : unit->length % (BYTES_MOST + 1);
	transfer->buffer = calloc(1, transfer->bytes ? transfer->bytes : 1);
	rank.held[slot] = true;
	status = batoni_path_issue(&rank.transport->messages, transfer);
	if (status != BATON_PENDING)
		forget(transfer, status);
}

static void
take_back(uint32_t slot)
{
	enum baton_status status;

	if (!rank.held[slot] || rank.asked[slot])
		return;
	rank.asked[slot] = true;
	status = batoni_path_take_back(&rank.transport->messages,
	                               &rank.transfers[slot]);
	if (status != BATON_ERR_BUSY)
		forget(&rank.transfers[slot], status);
}

/* An exchange and a leave are not under way at once. */
static void
exchange(void)
{
	enum baton_status status;

	if (rank.leaving)
		return;
	status = rank.transport->ops->exchanging->exchange(rank.transport, 1, rank.mine,
	                                                   sizeof(rank.mine), rank.all);
	CLAIM(status == BATON_OK || status == BATON_PENDING ||
	      status == batoni_error_told(status));
	rank.exchanging = status == BATON_PENDING;
}

static void
leave(void)
{
	enum baton_status status;

	if (rank.exchanging)
		return;
	status = rank.transport->ops->leave(rank.transport);
	CLAIM(status == BATON_OK || status == BATON_PENDING ||
	      status == batoni_error_told(status));
	rank.leaving = true;
}

static void
look_at_rank(void)
{
	uint32_t held = 0;
	int out = 0;

	for (int i = 0; i < SLOTS; i++)
		held += rank.held[i];
	CLAIM(rank.transport->messages.load.in_flight == 1 + held);
	for (int i = 0; i < SIZE; i++) {
		CLAIM(rank.tcp->peers[i].readies_n <= SLOTS);
		out += rank.tcp->peers[i].any_out;
	}
	CLAIM(rank.tcp->any.out == out);
}

static void
finish_rank(bool aborted)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		take_back(i);
	ops()->test(&rank.transport->messages);
	rank.transport->ops->close(rank.transport, aborted);
	close(rank.other);
	for (int i = 0; i < SLOTS; i++)
		if (rank.held[i])
			free(rank.transfers[i].buffer);
}

static const uint8_t *
tell_rank(const struct unit *unit, const uint8_t *at, const uint8_t *end)
{
	size_t n = unit->length < end - at ? unit->length : (size_t)(end - at);

	switch ((enum command)(unit->what % COMMANDS)) {
	case SAY:
		say(rank.other, unit,
		    unit->more & 32 ? unit->more % SIZE : RANK);
		break;
	case SAY_BYTES:
		say_bytes(rank.other, at, n);
		return at + n;
	case READ:
		read_all(rank.other);
		break;
	case TEST:
		ops()->test(&rank.transport->messages);
		break;
	case ISSUE:
		issue_unit(unit);
		break;
	case TAKE_BACK:
		take_back(unit->slot % SLOTS);
		break;
	case EXCHANGE:
		exchange();
		break;
	case LEAVE:
		leave();
		break;
	case HANG_UP:
		shutdown(rank.other, SHUT_WR);
		break;
	case COMMANDS:
		break;
	}
	return at;
}

static void
run_rank(const uint8_t *at, const uint8_t *end, bool aborted)
{
	begin_rank();
	while (end - at >= (int)sizeof(struct unit)) {
		struct unit unit;

		memcpy(&unit, at, sizeof(unit));
		at = tell_rank(&unit, at + sizeof(unit), end);
		look_at_rank();
	}
	finish_rank(aborted);
}

/* ---- the hub ---- */

static const uint8_t *
tell_hub(const int others[], const struct unit *unit, const uint8_t *at,
         const uint8_t *end)
{
	size_t n = unit->length < end - at ? unit->length : (size_t)(end - at);
	int fd = others[unit->from % SIZE];

	switch (unit->what % 4) {
	case 1:
		say_bytes(fd, at, n);
		return at + n;
	case 2:
		for (int i = 0; i < SIZE; i++)
			read_all(others[i]);
		break;
	case 3:
		if (unit->kind % 4 == 0)
			shutdown(fd, SHUT_WR);
		break;
	default:
		for (int i = 0; i <= unit->what / 4; i++)
			say(fd, unit, unit->more % SIZE);
	}
	return at;
}

static void
run_hub(const uint8_t *at, const uint8_t *end, uint8_t kind)
{
	bool local[SIZE];
	int fds[SIZE], others[SIZE];

	for (int i = 0; i < SIZE; i++) {
		open_pair(&fds[i], &others[i]);
		local[i] = kind >> (i + 1) & 1;
	}
	CLAIM(batoni_tcp_hub_start(SIZE, 0, fds, local) == BATON_OK);
	while (end - at >= (int)sizeof(struct unit)) {
		struct unit unit;

		memcpy(&unit, at, sizeof(unit));
		at = tell_hub(others, &unit, at + sizeof(unit), end);
	}
	for (int i = 0; i < SIZE; i++)
		close(others[i]);
	while (batoni_tcp_hubs() > 0)
		sched_yield();
}

/* ---- input ---- */

void
seeds(void)
{
	enum {
		OUR_PART = BATONI_TCP_PART - 1,
		OUR_ALL = BATONI_TCP_ALL - 1,
		OUR_READY = BATONI_TCP_READY - 1,
		OUR_DATA = BATONI_TCP_DATA - 1,
		OUR_RETRACT = BATONI_TCP_RETRACT - 1,
		OUR_RETRACTED = BATONI_TCP_RETRACTED - 1,
		OUR_BYE = BATONI_TCP_BYE - 1,
		OUR_LEFT = BATONI_TCP_LEFT - 1
	};

	SEED(0, {ISSUE, 0, 1, 2, 40, 1}, {SAY, 0, OUR_DATA, 2, 40, 1}, {TEST},
	     {ISSUE, 2, 1, 3, 40, 0}, {TAKE_BACK, 0, 0, 3},
	     {SAY, 2, OUR_RETRACTED, 3, 0, 0}, {TEST});
	SEED(0, {SAY, 0, OUR_READY, 5, 40, 1}, {TEST}, {ISSUE, 0, 0, 1, 40, 1},
	     {ISSUE, 0, 0, 2, 40, 1}, {SAY, 0, OUR_READY, 5, 40, 1}, {TEST},
	     {SAY, 0, OUR_READY, 5, 40, 2}, {SAY, 0, OUR_RETRACT, 5, 0, 2},
	     {TEST}, {READ});
	SEED(0, {ISSUE, 0, 0, ANY_SLOT, 0, 0},
	     {SAY, 0, OUR_DATA, ANY_SLOT, 12, 7},
	     {SAY, 2, OUR_DATA, ANY_SLOT, 12, 7}, {TEST},
	     {ISSUE, 0, 0, ANY_SLOT, 0, 0}, {TEST},
	     {ISSUE, 0, 0, ANY_SLOT, 0, 0}, {TAKE_BACK, 0, 0, ANY_SLOT},
	     {SAY, 0, OUR_RETRACTED, ANY_SLOT, 0, 7}, {TEST});
	SEED(0, {ISSUE, 0, 0, ANY_SLOT, 0, 0},
	     {SAY, 0, OUR_DATA, ANY_SLOT, 12, 7},
	     {SAY, 0, OUR_DATA, ANY_SLOT, 12, 7}, {TEST});
	SEED(0, {EXCHANGE}, {SAY, 0, OUR_ALL, 1, 64, 0}, {EXCHANGE}, {LEAVE},
	     {SAY, 0, OUR_LEFT, 0, 0, 0}, {LEAVE}, {HANG_UP}, {TEST});
	for (uint8_t local = 0; local < 16; local += 2)
		SEED(local | 1, {0, 0, OUR_PART, 1, 64, 0},
		     {0, 1, OUR_PART, 1, 64, 0}, {0, 2, OUR_PART, 1, 64, 0}, {2},
		     {0, 0, OUR_READY, 1, 0, 1}, {0, 1, OUR_DATA, 1, 40, 0},
		     {0, 2, OUR_BYE, 0, 0, 0}, {3, 2, 0}, {2},
		     {0, 0, OUR_PART, 1, 3, 0}, {0, 1, OUR_PART, 1, 64, 0});
}

int
LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
	if (n < 1)
		return 0;
	if (bytes[0] & 1)
		run_hub(bytes + 1, bytes + n, bytes[0]);
	else
		run_rank(bytes + 1, bytes + n, bytes[0] & 2);
	return 0;
}
