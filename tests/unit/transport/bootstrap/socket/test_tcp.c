/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The side channel's transport over a hub: exchanges, leaving, small messages, ends.  One thread
 * drives all ranks; loops wait for what has to come, and have a limit that only a hang reaches.
 * How the ranks come together: test_tcp_rendezvous.c.  Communicators: test_tcp_jobs.c.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "mem.h"
#include "rank.h"
#include "run_tests.h"
#include "tcp.h"
#include "tcp_world.h"

enum { RANKS = 3, SLOTS = 8 };

struct rank {
	struct batoni_upcalls upcalls; /* must be first */
	struct batoni_tcp *tcp;
	struct batoni_transport *transport;
	struct batoni_transfer transfers[SLOTS];
	enum baton_status status[SLOTS];
	bool ended[SLOTS];
	enum baton_status broken;
	char why[256];
};

static struct rank ranks[RANKS];
static int fds[RANKS]; /* of links that have no transport: -1 in `raw` if there is one */

static void
on_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
        enum baton_status status)
{
	struct rank *rank = (struct rank *)upcalls;

	ck_assert(!rank->ended[transfer->slot]);
	rank->ended[transfer->slot] = true;
	rank->status[transfer->slot] = status;
}

static void
on_broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call,
          int code, const char *text)
{
	struct rank *rank = (struct rank *)upcalls;

	(void)code;
	ck_assert_ptr_null(call);
	ck_assert_int_eq(rank->broken, BATON_OK);
	rank->broken = fatal;
	snprintf(rank->why, sizeof(rank->why), "%s", text);
}

/* Rank `raw` has a socket alone, fds[raw]; -1: none. */
static void
make_ranks(int raw)
{
	const struct batoni_transport_config config = {
		.slots = SLOTS,
		.slots_most = SLOTS,
		.segment_bytes = BATONI_DEPARTURE_BYTES,
	};

	start_hub(RANKS, 1, fds);
	for (int i = 0; i < RANKS; i++) {
		unsigned char go[BATONI_TCP_VERDICT_BYTES];
		const struct batoni_side_link link = {.fd = fds[i], .home = 0};
		struct rank *rank = &ranks[i];

		*rank = (struct rank){
			.upcalls = {.done = on_done, .broken = on_broken}};
		if (i != 0)
			ck_assert_int_eq(recv(fds[i], go, sizeof(go), MSG_WAITALL),
			                 sizeof(go));
		if (i == raw)
			continue;
		ck_assert_int_eq(batoni_tcp_new(i, RANKS, &link, &rank->tcp),
		                 BATON_OK);
		ck_assert_int_eq(batoni_tcp_alloc(rank->tcp, &config), BATON_OK);
		rank->transport = batoni_tcp_transport(rank->tcp);
		rank->transport->upcalls = &rank->upcalls;
	}
}

static void
close_rank(int i, bool aborted)
{
	struct batoni_transport *transport = ranks[i].transport;

	ranks[i].transport = NULL;
	if (transport)
		transport->ops->close(transport, aborted);
}

static void
close_ranks(void)
{
	for (int i = 0; i < RANKS; i++)
		close_rank(i, false);
	await_no_hub();
}

static void
test_all(void)
{
	for (int i = 0; i < RANKS; i++) {
		struct batoni_transport *transport = ranks[i].transport;

		if (transport)
			transport->messages.ops->test(&transport->messages);
	}
}

static enum baton_status
issue_by(int rank, unsigned direction, int peer, int tag, unsigned slot,
         void *buffer, size_t bytes)
{
	struct batoni_transport *transport = ranks[rank].transport;
	struct batoni_transfer *transfer = &ranks[rank].transfers[slot];
	enum baton_status status;

	*transfer = (struct batoni_transfer){.buffer = buffer,
	                                     .bytes = bytes,
	                                     .peer = peer,
	                                     .tag = tag,
	                                     .slot = slot & 0xffffffu,
	                                     .direction = direction & 3u};
	ranks[rank].ended[slot] = false;
	status = batoni_path_issue(&transport->messages, transfer);
	if (status != BATON_PENDING) {
		ranks[rank].ended[slot] = true;
		ranks[rank].status[slot] = status;
	}
	return status;
}

static void
await_end(int rank, unsigned slot, enum baton_status status, size_t bytes)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;

	while (!ranks[rank].ended[slot]) {
		test_all();
		pause_until(limit);
	}
	ck_assert_int_eq(ranks[rank].status[slot], status);
	if (status == BATON_OK)
		ck_assert_uint_eq(ranks[rank].transfers[slot].done_bytes, bytes);
}

/* All ranks call it until it ends; leave: `bytes` is 0. */
static void
exchange_all(const uint64_t whats[RANKS], size_t bytes,
             enum baton_status expected)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	unsigned char mine[RANKS][64], all[RANKS][RANKS * 64];
	bool over[RANKS] = {false};
	int left = RANKS;

	while (left > 0) {
		for (int i = 0; i < RANKS; i++) {
			struct batoni_transport *t = ranks[i].transport;
			enum baton_status status;

			if (over[i])
				continue;
			memset(mine[i], 10 + i, sizeof(mine[i]));
			status = bytes ? t->ops->exchanging->exchange(t, whats[i], mine[i],
			                                              bytes, all[i])
			               : t->ops->leave(t);
			if (status == BATON_PENDING)
				continue;
			ck_assert_int_eq(status, expected);
			over[i] = true;
			left--;
		}
		pause_until(limit);
	}
	for (int i = 0; i < RANKS && bytes && expected == BATON_OK; i++) {
		for (size_t j = 0; j < RANKS * bytes; j++)
			ck_assert_int_eq(all[i][j], 10 + (int)(j / bytes));
	}
}

START_TEST(exchanges_gather_the_parts_of_all)
{
	static const uint64_t alike[] = {7, 7, 7}, unlike[] = {7, 7, 8};

	make_ranks(-1);
	for (size_t bytes = 1; bytes <= 64; bytes = 2 * bytes + 1)
		exchange_all(alike, bytes, BATON_OK);
	exchange_all(unlike, 5, BATON_ERR_INVALID);
	exchange_all(alike, 64, BATON_OK);
	exchange_all(alike, 0, BATON_OK);
	close_ranks();
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(ranks[i].broken, BATON_OK);
}
END_TEST

/* One leaves, the others exchange. */
START_TEST(a_leave_beside_an_exchange_is_told_to_all)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	enum baton_status status[RANKS] = {BATON_PENDING, BATON_PENDING,
	                                   BATON_PENDING};
	char all[RANKS * 4];

	make_ranks(-1);
	while (status[0] == BATON_PENDING || status[1] == BATON_PENDING ||
	       status[2] == BATON_PENDING) {
		for (int i = 0; i < RANKS; i++) {
			struct batoni_transport *t = ranks[i].transport;

			if (status[i] != BATON_PENDING)
				continue;
			status[i] = i == 1 ? t->ops->leave(t)
			                   : t->ops->exchanging->exchange(t, 3, "abcd", 4,
			                                                  all);
		}
		pause_until(limit);
	}
	for (int i = 0; i < RANKS; i++)
		ck_assert_int_eq(status[i], BATON_ERR_INVALID);
	exchange_all((uint64_t[]){1, 1, 1}, 0, BATON_OK);
	close_ranks();
}
END_TEST

START_TEST(a_rank_without_memory_is_told_to_all)
{
	make_ranks(-1);
	batoni_mem_fail_at(1);
	exchange_all((uint64_t[]){1, 1, 1}, 9, BATON_ERR_NOMEM);
	batoni_mem_fail_at(0);
	exchange_all((uint64_t[]){1, 1, 1}, 9, BATON_OK);
	close_ranks();
}
END_TEST

START_TEST(messages_meet_receives_posted_before_or_after)
{
	char out[16] = "sent", in[2][16] = {"", ""};

	make_ranks(-1);
	issue_by(1, BATONI_RECV, 2, 5, 0, in[0], sizeof(in[0]));
	issue_by(2, BATONI_SEND, 1, 5, 0, out, 5);
	await_end(1, 0, BATON_OK, 5);
	await_end(2, 0, BATON_OK, 5);
	ck_assert_str_eq(in[0], "sent");
	/* The send first, and to oneself. */
	ck_assert_int_eq(issue_by(2, BATONI_SEND, 2, 5, 1, out, 5), BATON_PENDING);
	issue_by(2, BATONI_RECV, 2, 5, 2, in[1], sizeof(in[1]));
	await_end(2, 1, BATON_OK, 5);
	await_end(2, 2, BATON_OK, 5);
	ck_assert_str_eq(in[1], "sent");
	close_ranks();
}
END_TEST

/* In order on a tag; a tag that is not received holds up no other. */
START_TEST(messages_keep_their_order_on_a_tag_alone)
{
	char in[4] = "", out[] = "abcx";

	make_ranks(-1);
	issue_by(0, BATONI_SEND, 1, 9, 0, &out[3], 1);
	for (unsigned i = 0; i < 3; i++)
		issue_by(0, BATONI_SEND, 1, 4, 1 + i, &out[i], 1);
	for (unsigned i = 0; i < 3; i++)
		issue_by(1, BATONI_RECV, 0, 4, i, &in[i], 1);
	for (unsigned i = 0; i < 3; i++) {
		await_end(0, 1 + i, BATON_OK, 1);
		await_end(1, i, BATON_OK, 1);
	}
	ck_assert_str_eq(in, "abc");
	ck_assert(!ranks[0].ended[0]);
	issue_by(1, BATONI_RECV, 0, 9, 0, in, 1);
	await_end(1, 0, BATON_OK, 1);
	ck_assert_int_eq(in[0], 'x');
	await_end(0, 0, BATON_OK, 1);
	close_ranks();
}
END_TEST

START_TEST(lengths_are_kept)
{
	static char out[BATONI_TCP_MESSAGE_MAX + 1], in[BATONI_TCP_MESSAGE_MAX];
	char small[4] = "???";

	make_ranks(-1);
	memset(out, 'q', sizeof(out));
	ck_assert_int_eq(issue_by(0, BATONI_SEND, 1, 0, 0, out, sizeof(out)),
	                 BATON_ERR_UNSUPPORTED);
	ck_assert_ptr_nonnull(strstr(baton_last_error(), "needs MPI"));
	issue_by(0, BATONI_SEND, 1, 0, 0, out, sizeof(in));
	issue_by(1, BATONI_RECV, 0, 0, 0, in, sizeof(in));
	await_end(1, 0, BATON_OK, sizeof(in));
	ck_assert_mem_eq(in, out, sizeof(in));
	issue_by(0, BATONI_SEND, 1, 0, 1, out, 100);
	issue_by(1, BATONI_RECV, 0, 0, 1, small, 2);
	await_end(1, 1, BATON_ERR_TRUNCATED, 0);
	ck_assert_uint_eq(ranks[1].transfers[1].done_bytes, 100);
	ck_assert_mem_eq(small, "qq?", 3);
	issue_by(0, BATONI_SEND, 1, 0, 2, NULL, 0);
	issue_by(1, BATONI_RECV, 0, 0, 2, small, 2);
	await_end(1, 2, BATON_OK, 0);
	close_ranks();
}
END_TEST

static enum baton_status
take_back(int rank, unsigned slot)
{
	struct batoni_transport *transport = ranks[rank].transport;

	return batoni_path_take_back(&transport->messages, &ranks[rank].transfers[slot]);
}

START_TEST(transfers_are_taken_back)
{
	char in[2] = "";

	make_ranks(-1);
	issue_by(0, BATONI_SEND, 1, 0, 0, (char[]){'a'}, 1);
	ck_assert_int_eq(take_back(0, 0), BATON_ERR_CANCELED);
	issue_by(1, BATONI_RECV, 0, 0, 0, in, 1);
	ck_assert_int_eq(take_back(1, 0), BATON_ERR_BUSY);
	await_end(1, 0, BATON_ERR_CANCELED, 0);
	/* The next receive gets the next message. */
	issue_by(1, BATONI_RECV, 0, 0, 1, in, 1);
	issue_by(0, BATONI_SEND, 1, 0, 1, (char[]){'b'}, 1);
	await_end(1, 1, BATON_OK, 1);
	ck_assert_str_eq(in, "b");
	close_ranks();
}
END_TEST

/* The message is on its way when the receive is taken back. */
START_TEST(a_scrapped_receive_is_not_written)
{
	struct batoni_path *path;
	char in[4] = "old", none[2];

	make_ranks(-1);
	path = &ranks[1].transport->messages;
	issue_by(1, BATONI_RECV, 0, 0, 0, in, 3);
	/* What comes behind the receive's announcement says that rank 0 has that. */
	issue_by(0, BATONI_RECV, 1, 1, 0, none, 1);
	issue_by(1, BATONI_SEND, 0, 1, 1, (char[]){'x'}, 1);
	await_end(0, 0, BATON_OK, 1);
	ck_assert_int_eq(issue_by(0, BATONI_SEND, 1, 0, 1, "new", 3), BATON_OK);
	ck_assert_int_eq(take_back(1, 0), BATON_ERR_BUSY);
	ck_assert_int_eq(path->ops->scrapping->scrap(path, &ranks[1].transfers[0]),
	                 BATON_OK);
	await_end(1, 0, BATON_OK, 3);
	ck_assert_str_eq(in, "old");
	/* The next one of the slot is written. */
	issue_by(1, BATONI_RECV, 0, 0, 2, in, 3);
	issue_by(0, BATONI_SEND, 1, 0, 2, "new", 3);
	await_end(1, 2, BATON_OK, 3);
	ck_assert_str_eq(in, "new");
	close_ranks();
}
END_TEST

static void
issue_any(unsigned slot, char *in)
{
	ck_assert_int_eq(issue_by(1, BATONI_RECV, ranks[1].transport->any_peer, 7,
	                          slot, in, 2),
	                 BATON_PENDING);
}

/* One at a time; what comes beside the first is for the next ones. */
START_TEST(a_receive_from_any_rank_takes_one_of_each)
{
	char in[3] = "", out[] = "012", all[4] = "";

	make_ranks(-1);
	for (int i = 0; i < RANKS; i++)
		issue_by(i, BATONI_SEND, 1, 7, 1, &out[i], 1);
	for (int n = 0; n < RANKS; n++) {
		issue_any(0, in);
		await_end(1, 0, BATON_OK, 1);
		ck_assert_ptr_null(strchr(all, in[0]));
		all[n] = in[0];
	}
	for (int i = 0; i < RANKS; i++)
		await_end(i, 1, BATON_OK, 1);
	close_ranks();
}
END_TEST

START_TEST(a_receive_from_any_rank_is_taken_back)
{
	char in[3] = "", out[] = "x";

	make_ranks(-1);
	issue_any(0, in);
	ck_assert_int_eq(take_back(1, 0), BATON_ERR_BUSY);
	await_end(1, 0, BATON_ERR_CANCELED, 0);
	/* It meets the next one. */
	issue_by(2, BATONI_SEND, 1, 7, 1, out, 1);
	issue_any(0, in);
	await_end(1, 0, BATON_OK, 1);
	await_end(2, 1, BATON_OK, 1);
	ck_assert_int_eq(in[0], 'x');
	close_ranks();
}
END_TEST

/* Nobody may be there to answer. */
START_TEST(what_is_taken_back_after_leaving_is_over)
{
	char in[3] = "";

	make_ranks(-1);
	issue_any(0, in);
	exchange_all((uint64_t[]){1, 1, 1}, 0, BATON_OK);
	ck_assert_int_eq(take_back(1, 0), BATON_ERR_CANCELED);
	close_ranks();
}
END_TEST

static void
await_broken(int rank, const char *words)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;

	while (ranks[rank].broken == BATON_OK) {
		test_all();
		pause_until(limit);
	}
	ck_assert_int_eq(ranks[rank].broken, BATON_ERR_PEER);
	ck_assert_msg(strstr(ranks[rank].why, words) != NULL, "%s",
	              ranks[rank].why);
}

static void
abort_ranks(void)
{
	for (int i = 0; i < RANKS; i++)
		close_rank(i, true);
	await_no_hub();
}

START_TEST(a_death_is_told_to_all_with_the_rank)
{
	char all[RANKS];

	make_ranks(2);
	close(fds[2]);
	await_broken(0, "rank 2 is gone: its process has ended");
	await_broken(1, "rank 2 is gone: its process has ended");
	ck_assert_int_eq(ranks[0].transport->ops->exchanging->exchange(
				 ranks[0].transport, 1, "a", 1, all),
	                 BATON_ERR_PEER);
	ck_assert_int_eq(issue_by(0, BATONI_SEND, 1, 0, 0, all, 1),
	                 BATON_ERR_PEER);
	abort_ranks();
}
END_TEST

START_TEST(an_abort_is_told_to_all)
{
	make_ranks(-1);
	close_rank(1, true);
	await_broken(0, "rank 1 is gone: it has destroyed its end after an abort");
	await_broken(2, "rank 1 is gone");
	abort_ranks();
}
END_TEST

/* A rank that leaves because of another's end passes on whose; a rank is not told that it is gone
 * itself. */
START_TEST(one_that_leaves_after_a_death_names_the_first)
{
	make_ranks(-1);
	/* As the engine does that has seen a process end. */
	batoni_departure_blame(ranks[2].tcp->segments.segment.base, 1);
	batoni_departure_blame(ranks[2].tcp->segments.segment.base, 0);
	close_rank(2, true);
	await_broken(0, "rank 1 is gone, and then rank 2 left: it has destroyed");
	await_broken(1, "rank 2 is gone: it has destroyed");
	abort_ranks();
	/* What came first is passed on also by one that was told of it. */
	make_ranks(-1);
	close_rank(1, true);
	await_broken(0, "rank 1 is gone");
	ck_assert_uint_eq(
		((struct batoni_departure *)ranks[0].tcp->segments.segment.base)->after,
		1 + 1);
	abort_ranks();
}
END_TEST

/* It has left in order: an exchange is impossible, and messages go on. */
START_TEST(one_that_has_left_breaks_nothing)
{
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	enum baton_status status = BATON_PENDING;
	char all[RANKS], in[2] = "";

	make_ranks(-1);
	close_rank(1, false);
	while (status == BATON_PENDING) {
		status = ranks[0].transport->ops->exchanging->exchange(ranks[0].transport, 1,
		                                                       "a", 1, all);
		pause_until(limit);
	}
	ck_assert_int_eq(status, BATON_ERR_PEER);
	issue_by(0, BATONI_SEND, 2, 0, 0, (char[]){'m'}, 1);
	issue_by(2, BATONI_RECV, 0, 0, 0, in, 1);
	await_end(2, 0, BATON_OK, 1);
	ck_assert_int_eq(ranks[0].broken, BATON_OK);
	ck_assert_int_eq(ranks[2].broken, BATON_OK);
	close_ranks();
}
END_TEST

/* A transport whose hub is the test: *hub_p. */
static void
make_alone(int *hub_p)
{
	const struct batoni_transport_config config = {.slots = SLOTS,
	                                               .slots_most = SLOTS};
	struct batoni_side_link link = {.home = 0};
	int pair[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
	*hub_p = pair[0];
	link.fd = pair[1];
	memset(ranks, 0, sizeof(ranks));
	ranks[1].upcalls = (struct batoni_upcalls){.done = on_done,
	                                           .broken = on_broken};
	ck_assert_int_eq(batoni_tcp_new(1, RANKS, &link, &ranks[1].tcp),
	                 BATON_OK);
	ck_assert_int_eq(batoni_tcp_alloc(ranks[1].tcp, &config), BATON_OK);
	ranks[1].transport = batoni_tcp_transport(ranks[1].tcp);
	ranks[1].transport->upcalls = &ranks[1].upcalls;
}

START_TEST(the_end_of_the_hub_breaks_who_has_not_left)
{
	const struct batoni_tcp_frame all = {.kind = BATONI_TCP_ALL};
	unsigned char bytes[BATONI_TCP_HEAD_BYTES];

	for (int leaves = 0; leaves < 2; leaves++) {
		struct batoni_transport *transport;
		int hub;

		make_alone(&hub);
		transport = ranks[1].transport;
		ck_assert_int_eq(transport->ops->leave(transport),
		                 BATON_PENDING);
		batoni_tcp_frame_encode(&all, bytes);
		if (leaves) {
			send_raw(hub, bytes, sizeof(bytes));
			ck_assert_int_eq(transport->ops->leave(transport),
			                 BATON_OK);
		}
		close(hub);
		test_all();
		ck_assert_int_eq(ranks[1].broken,
		                 leaves ? BATON_OK : BATON_ERR_PEER);
		ck_assert(leaves || strstr(ranks[1].why, "of rank 0, which relays"));
		close_rank(1, !leaves);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
}
END_TEST

/* What one rank sends that is no frame, or is not its own. */
START_TEST(a_rank_that_breaks_the_rules_is_given_up)
{
	static const struct batoni_tcp_frame bad[] = {
		{.kind = BATONI_TCP_KINDS, .from = 2},
		{.kind = BATONI_TCP_READY, .from = 1},
		{.kind = BATONI_TCP_GONE, .from = 2, .status = BATONI_TCP_LOST},
		{.kind = BATONI_TCP_ALL, .from = 2, .bytes = 1, .length = RANKS},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		unsigned char bytes[BATONI_TCP_HEAD_BYTES];

		make_ranks(2);
		batoni_tcp_frame_encode(&bad[i], bytes);
		send_raw(fds[2], bytes, sizeof(bytes));
		await_broken(0, "rank 2 is gone: it has broken the rules");
		await_broken(1, "rank 2 is gone: it has broken the rules");
		abort_ranks();
		close(fds[2]);
	}
}
END_TEST

/* What comes to a rank that it has not asked for ends its end, and so the others'. */
START_TEST(data_that_nobody_waits_for_is_not_taken)
{
	const struct batoni_tcp_frame data = {.kind = BATONI_TCP_DATA,
	                                      .from = 2,
	                                      .to = 1,
	                                      .slot = SLOTS + 1,
	                                      .bytes = 1,
	                                      .length = 1};
	unsigned char bytes[BATONI_TCP_HEAD_BYTES + 1] = {0};

	make_ranks(2);
	batoni_tcp_frame_encode(&data, bytes);
	send_raw(fds[2], bytes, sizeof(bytes));
	await_broken(1, "no record of it");
	close_rank(1, true);
	await_broken(0, "rank 1 is gone");
	close(fds[2]);
	abort_ranks();
}
END_TEST

/* A frame of rank 0 to itself: when it is back, the hub has looked at all links. */
static void
pass_to_self(int fd, uint64_t limit)
{
	static const struct batoni_tcp_frame own = {
		.kind = BATONI_TCP_READY, .from = 0, .to = 0};
	unsigned char bytes[BATONI_TCP_HEAD_BYTES];

	batoni_tcp_frame_encode(&own, bytes);
	send_raw(fd, bytes, sizeof(bytes));
	while (recv(fd, bytes, sizeof(bytes), MSG_DONTWAIT) != sizeof(bytes))
		pause_until(limit);
}

/* Rank 2 reads nothing.  What rank 1 sends to it is held up, within bounds; the others go
 * on. */
START_TEST(a_rank_that_stands_still_holds_up_no_others)
{
	static const struct batoni_tcp_frame ready = {
		.kind = BATONI_TCP_READY, .from = 1, .to = 2};
	unsigned char bytes[BATONI_TCP_HEAD_BYTES];
	uint64_t limit = batoni_real_ns() + LIMIT_NS;
	size_t least = batoni_mem_bytes();
	int mine[RANKS], full = 0;

	start_hub(RANKS, RANKS, mine);
	least = batoni_mem_bytes();
	batoni_tcp_frame_encode(&ready, bytes);
	/* Until the hub takes no more, though it goes on: it has served rank 0 meanwhile. */
	while (full < 10) {
		ssize_t n = send(mine[1], bytes, sizeof(bytes),
		                 MSG_NOSIGNAL | MSG_DONTWAIT);

		ck_assert(n == sizeof(bytes) || n < 0);
		full = n < 0 ? full + 1 : 0;
		if (n < 0)
			pass_to_self(mine[0], limit);
	}
	/* 256 KiB of frames, each in a block with its list and counts. */
	ck_assert_uint_lt(batoni_mem_bytes() - least, (size_t)4 << 20);
	/* Its end is seen, though it is not read. */
	close(mine[1]);
	while (recv(mine[0], bytes, sizeof(bytes), MSG_DONTWAIT) !=
	       sizeof(bytes))
		pause_until(limit);
	close(mine[0]);
	close(mine[2]);
	await_no_hub();
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		exchanges_gather_the_parts_of_all,
		a_leave_beside_an_exchange_is_told_to_all,
		a_rank_without_memory_is_told_to_all,
		messages_meet_receives_posted_before_or_after,
		messages_keep_their_order_on_a_tag_alone,
		lengths_are_kept,
		transfers_are_taken_back,
		a_scrapped_receive_is_not_written,
		a_receive_from_any_rank_takes_one_of_each,
		a_receive_from_any_rank_is_taken_back,
		what_is_taken_back_after_leaving_is_over,
		a_death_is_told_to_all_with_the_rank,
		an_abort_is_told_to_all,
		one_that_leaves_after_a_death_names_the_first,
		one_that_has_left_breaks_nothing,
		the_end_of_the_hub_breaks_who_has_not_left,
		a_rank_that_breaks_the_rules_is_given_up,
		data_that_nobody_waits_for_is_not_taken,
		a_rank_that_stands_still_holds_up_no_others,
	};

	return RUN_TESTS("tcp", tests);
}
