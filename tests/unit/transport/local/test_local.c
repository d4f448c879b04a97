/* SPDX-License-Identifier: BSD-3-Clause */
/* The local transport: what it says of itself, small messages, matching. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "local_world.h"
#include "mem.h"
#include "run_tests.h"

/* ---- what it says of itself --------------------------------------------- */

START_TEST(every_rank_has_all_capabilities_and_any_driver)
{
	struct world world;

	open_world(&world, 3, 8);
	for (int rank = 0; rank < 3; rank++) {
		const struct batoni_transport *t = world.transports[rank];

		ck_assert_int_eq(t->rank, rank);
		ck_assert_int_eq(t->size, 3);
		ck_assert_int_eq(t->tag_max, INT_MAX - HIDDEN_TAGS);
		ck_assert_int_eq(t->hidden_tag, t->tag_max + 1);
		ck_assert_int_eq(t->hidden_tags, HIDDEN_TAGS);
		ck_assert_uint_eq(t->slots, 8);
		ck_assert_uint_eq(t->capabilities, 0xff);
		ck_assert_int_eq(t->drivers, BATONI_DRIVERS_ANY);
		ck_assert(t->messages.load.quiet);
		ck_assert(!t->messages.ops->stream_issued);
		ck_assert_int_eq(t->ops->id, BATON_TRANSPORT_LOCAL);
		ck_assert_str_eq(t->ops->name, "local");
		ck_assert_str_eq(t->library, "in process");
		assert_idle(&world, rank);
	}
	close_world(&world);
}
END_TEST

START_TEST(every_failed_allocation_of_open_is_nomem_and_leaks_nothing)
{
	const struct batoni_transport_config config = {
		.slots = 4,
		.segment_bytes = 64,
	};
	struct batoni_transport *transports[3];
	unsigned long allocations, n;

	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_local_open(3, &config, transports),
	                 BATON_OK);
	allocations = batoni_mem_fail_at(0);
	ck_assert_uint_ge(allocations, 10);
	for (int rank = 0; rank < 3; rank++)
		transports[rank]->ops->close(transports[rank], false);
	for (n = 1; n <= allocations; n++) {
		batoni_mem_fail_at(n);
		ck_assert_int_eq(batoni_local_open(3, &config, transports),
		                 BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	batoni_mem_fail_at(0);
}
END_TEST

START_TEST(without_segments_there_are_no_peers)
{
	const struct batoni_transport_config config = {.slots = 4};
	struct batoni_transport *t;

	ck_assert_int_eq(batoni_local_open(1, &config, &t), BATON_OK);
	ck_assert_ptr_null(t->peers);
	ck_assert_int_eq(t->tag_max, INT_MAX);
	ck_assert_int_eq(t->hidden_tags, 0);
	ck_assert_uint_eq(t->capabilities, 0x3f);
	t->ops->close(t, false);
}
END_TEST

START_TEST(segments_are_zeroed_apart_and_seen_by_all_until_the_last_closes)
{
	struct world world;

	open_world(&world, 3, 8);
	for (int rank = 0; rank < 3; rank++) {
		const struct batoni_peer *peers =
			world.transports[rank]->peers;

		for (int peer = 0; peer < 3; peer++) {
			const struct batoni_peer *p = &peers[peer];

			ck_assert_ptr_eq(
				p->segment,
				world.transports[0]->peers[peer].segment);
			ck_assert_uint_eq((uintptr_t)p->segment % 64, 0);
			ck_assert_ptr_eq(p->bell, batoni_bell());
			ck_assert_int_eq(p->pid, getpid());
			ck_assert_int_eq(p->pidfd, -1);
			ck_assert(p->within && p->reaches_us);
		}
		assert_zeros(peers[rank].segment, SEGMENT_BYTES);
		memset(peers[rank].segment, 1 + rank, SEGMENT_BYTES);
	}
	close_rank(&world, 0);
	for (int peer = 0; peer < 3; peer++) {
		const unsigned char *segment =
			world.transports[1]->peers[peer].segment;

		ck_assert_int_eq(segment[0], 1 + peer);
		ck_assert_int_eq(segment[SEGMENT_BYTES - 1], 1 + peer);
	}
	close_world(&world);
}
END_TEST

START_TEST(the_hidden_tags_are_tags_of_their_own)
{
	struct world world;
	int from[] = {1, 2}, to[2] = {0};
	struct batoni_transfer s[2], r[2];
	int hidden;

	open_world(&world, 2, 8);
	hidden = world.transports[0]->hidden_tag + HIDDEN_TAGS - 1;
	for (uint32_t i = 0; i < 2; i++) {
		int tag = i ? hidden : hidden - HIDDEN_TAGS;

		r[i] = transfer(BATONI_RECV, i, 0, tag, &to[i], sizeof(int));
		s[i] = transfer(BATONI_SEND, i, 1, tag, &from[i], sizeof(int));
		ck_assert_int_eq(issue(&world, 1, &r[i]), BATON_PENDING);
	}
	ck_assert_int_eq(issue(&world, 0, &s[1]), BATON_OK);
	ck_assert_int_eq(issue(&world, 0, &s[0]), BATON_OK);
	ck_assert_int_eq(to[0], 1);
	ck_assert_int_eq(to[1], 2);
	close_world(&world);
}
END_TEST

/* ---- exchange ------------------------------------------------------------ */

static enum baton_status
exchange(struct world *world, int rank, int mine, int all[])
{
	struct batoni_transport *transport = world->transports[rank];

	return transport->ops->exchanging->exchange(transport, 5, &mine, sizeof(mine),
	                                            all);
}

START_TEST(an_exchange_gives_all_of_all_once_the_last_has_come)
{
	struct world world;
	int all[3][3] = {{0}};

	open_world(&world, 3, 8);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(exchange(&world, 2, 12, all[2]),
		                 BATON_PENDING);
	ck_assert_int_eq(exchange(&world, 0, 10, all[0]), BATON_PENDING);
	ck_assert_int_eq(exchange(&world, 2, 12, all[2]), BATON_PENDING);
	ck_assert_int_eq(all[2][2], 0);
	ck_assert_int_eq(exchange(&world, 1, 11, all[1]), BATON_OK);
	ck_assert_int_eq(exchange(&world, 2, 12, all[2]), BATON_OK);
	ck_assert_int_eq(exchange(&world, 0, 10, all[0]), BATON_OK);
	for (int rank = 0; rank < 3; rank++) {
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(all[rank][i], 10 + i);
	}
	close_world(&world);
}
END_TEST

/* Any interleaving: a rank may begin the next round before another has taken. */
START_TEST(rounds_of_exchange_do_not_meet_whoever_is_slow)
{
	enum { RANKS = 4, ROUNDS = 200 };
	struct world world;
	int rounds[RANKS] = {0}, ended = 0;
	unsigned seed = 11;

	open_world(&world, RANKS, 8);
	while (ended < RANKS * ROUNDS) {
		int rank = rand_r(&seed) % RANKS;
		int round = rounds[rank];
		int all[RANKS];

		if (round == ROUNDS || exchange(&world, rank,
		                                round * RANKS + rank, all) ==
		                               BATON_PENDING)
			continue;
		for (int i = 0; i < RANKS; i++)
			ck_assert_int_eq(all[i], round * RANKS + i);
		rounds[rank]++;
		ended++;
	}
	close_world(&world);
}
END_TEST

START_TEST(a_rank_that_closed_has_brought_its_part_or_is_missed)
{
	struct world world;
	int all[3] = {0};

	open_world(&world, 3, 8);
	ck_assert_int_eq(exchange(&world, 0, 10, all), BATON_PENDING);
	close_rank(&world, 0);
	ck_assert_int_eq(exchange(&world, 1, 11, all), BATON_PENDING);
	ck_assert_int_eq(exchange(&world, 2, 12, all), BATON_OK);
	ck_assert_int_eq(all[0], 10);
	ck_assert_int_eq(exchange(&world, 2, 22, all), BATON_ERR_PEER);
	ck_assert_int_eq(exchange(&world, 1, 11, all), BATON_OK);
	ck_assert_int_eq(all[2], 12);
	/* Whoever waits is told, and who comes later too. */
	ck_assert_int_eq(exchange(&world, 1, 21, all), BATON_ERR_PEER);
	ck_assert_int_eq(exchange(&world, 2, 22, all), BATON_ERR_PEER);
	close_world(&world);
}
END_TEST

START_TEST(an_exchange_without_memory_fails_on_all_and_the_next_one_works)
{
	struct world world;
	int all[2];

	open_world(&world, 2, 8);
	batoni_mem_fail_at(1);
	ck_assert_int_eq(exchange(&world, 0, 1, all), BATON_PENDING);
	batoni_mem_fail_at(0);
	ck_assert_int_eq(exchange(&world, 1, 2, all), BATON_ERR_NOMEM);
	ck_assert_int_eq(exchange(&world, 1, 4, all), BATON_PENDING);
	ck_assert_int_eq(exchange(&world, 0, 1, all), BATON_ERR_NOMEM);
	ck_assert_int_eq(exchange(&world, 0, 3, all), BATON_OK);
	ck_assert_int_eq(exchange(&world, 1, 4, all), BATON_OK);
	ck_assert_int_eq(all[0], 3);
	close_world(&world);
}
END_TEST

static enum baton_status
exchange_of(struct world *world, int rank, uint64_t what, size_t bytes)
{
	struct batoni_transport *transport = world->transports[rank];
	static char mine[8], all[3 * 8];

	return transport->ops->exchanging->exchange(transport, what, mine, bytes, all);
}

START_TEST(an_exchange_that_ranks_mean_differently_is_refused_on_all)
{
	struct world world;

	open_world(&world, 3, 8);
	for (size_t odd = 0; odd < 6; odd++) {
		uint64_t what[3] = {7, 7, 7};
		size_t bytes[3] = {4, 4, 4};

		what[odd % 3] += odd / 3;
		bytes[odd % 3] += 1 - odd / 3;
		for (int rank = 0; rank < 2; rank++)
			ck_assert_int_eq(exchange_of(&world, rank, what[rank],
			                             bytes[rank]),
			                 BATON_PENDING);
		for (int rank = 2; rank >= 0; rank--)
			ck_assert_int_eq(exchange_of(&world, rank, what[rank],
			                             bytes[rank]),
			                 BATON_ERR_INVALID);
	}
	ck_assert_int_eq(exchange_of(&world, 1, 9, 8), BATON_PENDING);
	ck_assert_int_eq(exchange_of(&world, 2, 9, 8), BATON_PENDING);
	ck_assert_int_eq(exchange_of(&world, 0, 9, 8), BATON_OK);
	close_world(&world);
}
END_TEST

/* ---- small messages ----------------------------------------------------- */

/* A message from rank 0 to rank 1, whose first side waits for the other one. */
static void
meet(bool send_first)
{
	struct world world;
	char from[] = "hello", to[6] = "";
	struct batoni_transfer r = transfer(BATONI_RECV, 3, 0, 5, to, 6);
	struct batoni_transfer s = transfer(BATONI_SEND, 2, 1, 5, from, 6);
	struct batoni_transfer *first = send_first ? &s : &r;
	struct batoni_transfer *second = send_first ? &r : &s;
	int waits = send_first ? 0 : 1;

	open_world(&world, 2, 8);
	ck_assert_int_eq(issue(&world, waits, first), BATON_PENDING);
	ck_assert_uint_eq(world.transports[waits]->messages.load.in_flight, 1);
	ck_assert_uint_eq(world.transports[waits]->messages.load.moving, 0);
	ck_assert_int_eq(issue(&world, !waits, second), BATON_OK);
	ck_assert_uint_eq(s.done_bytes, 6);
	ck_assert_uint_eq(r.done_bytes, 6);
	ck_assert_str_eq(to, "hello");
	assert_last(&world, waits, first, BATON_OK);
	ck_assert_uint_eq(world.recorders[!waits].count, 0);
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	close_world(&world);
}

START_TEST(send_that_finds_its_receive_ends_both_at_once)
{
	meet(false);
}
END_TEST

START_TEST(receive_that_finds_its_send_ends_both_at_once)
{
	meet(true);
}
END_TEST

START_TEST(shorter_message_ends_ok_with_its_own_length)
{
	struct world world;
	char from[] = "abc", to[] = "......";
	struct batoni_transfer r = transfer(BATONI_RECV, 0, 0, 0, to, 6);
	struct batoni_transfer s = transfer(BATONI_SEND, 0, 1, 0, from, 3);

	open_world(&world, 2, 1);
	issue(&world, 0, &s);
	ck_assert_int_eq(issue(&world, 1, &r), BATON_OK);
	ck_assert_uint_eq(r.done_bytes, 3);
	ck_assert_str_eq(to, "abc...");
	close_world(&world);
}
END_TEST

START_TEST(longer_message_truncates_and_writes_nothing_past_the_receive)
{
	struct world world;
	char from[] = "abcdef", to[] = "......";
	struct batoni_transfer r = transfer(BATONI_RECV, 0, 0, 0, to, 3);
	struct batoni_transfer s = transfer(BATONI_SEND, 0, 1, 0, from, 6);

	open_world(&world, 2, 1);
	issue(&world, 1, &r);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_OK);
	ck_assert_uint_eq(s.done_bytes, 6);
	assert_last(&world, 1, &r, BATON_ERR_TRUNCATED);
	ck_assert_uint_eq(r.done_bytes, 6);
	ck_assert_str_eq(to + 3, "...");
	close_world(&world);
}
END_TEST

START_TEST(empty_messages_match_without_buffers)
{
	struct world world;
	struct batoni_transfer r = transfer(BATONI_RECV, 0, 0, 0, NULL, 0);
	struct batoni_transfer s = transfer(BATONI_SEND, 0, 1, 0, NULL, 0);

	open_world(&world, 2, 1);
	ck_assert_int_eq(issue(&world, 1, &r), BATON_PENDING);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_OK);
	assert_last(&world, 1, &r, BATON_OK);
	ck_assert_uint_eq(r.done_bytes, 0);
	close_world(&world);
}
END_TEST

/* ---- matching ----------------------------------------------------------- */

START_TEST(messages_of_one_line_match_in_the_order_of_issue)
{
	struct world world;
	struct batoni_transfer s[50], r[50];
	int from[50], to[50];

	open_world(&world, 2, 50);
	for (int i = 0; i < 50; i++) {
		from[i] = i;
		s[i] = transfer(BATONI_SEND, (uint32_t)i, 1, 9, &from[i],
		                sizeof(int));
		ck_assert_int_eq(issue(&world, 0, &s[i]), BATON_PENDING);
	}
	for (int i = 0; i < 50; i++) {
		r[i] = transfer(BATONI_RECV, (uint32_t)(49 - i), 0, 9, &to[i],
		                sizeof(int));
		ck_assert_int_eq(issue(&world, 1, &r[i]), BATON_OK);
		ck_assert_int_eq(to[i], i);
		assert_last(&world, 0, &s[i], BATON_OK);
	}
	close_world(&world);
}
END_TEST

START_TEST(source_destination_and_tag_keep_lines_apart)
{
	struct world world;
	int value = 1, got = 0;
	struct batoni_transfer s = transfer(BATONI_SEND, 0, 1, 7, &value, 4);
	struct batoni_transfer other_tag =
		transfer(BATONI_RECV, 0, 0, 8, &got, 4);
	struct batoni_transfer other_source =
		transfer(BATONI_RECV, 1, 2, 7, &got, 4);
	struct batoni_transfer other_rank =
		transfer(BATONI_RECV, 0, 0, 7, &got, 4);
	struct batoni_transfer own = transfer(BATONI_RECV, 1, 0, 7, &got, 4);
	struct batoni_transfer back = transfer(BATONI_RECV, 1, 1, 7, &got, 4);
	struct batoni_transfer right = transfer(BATONI_RECV, 2, 0, 7, &got, 4);

	open_world(&world, 3, 4);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_PENDING);
	ck_assert_int_eq(issue(&world, 1, &other_tag), BATON_PENDING);
	ck_assert_int_eq(issue(&world, 1, &other_source), BATON_PENDING);
	ck_assert_int_eq(issue(&world, 2, &other_rank), BATON_PENDING);
	ck_assert_int_eq(issue(&world, 0, &back), BATON_PENDING);
	own.slot = 2;
	ck_assert_int_eq(issue(&world, 0, &own), BATON_PENDING);
	ck_assert_int_eq(got, 0);
	ck_assert_int_eq(issue(&world, 1, &right), BATON_OK);
	ck_assert_int_eq(got, 1);
	close_world(&world);
}
END_TEST

START_TEST(thousands_of_tags_match_in_any_order)
{
	struct world world;
	struct batoni_transfer *s = calloc(SLOTS, sizeof(*s));
	struct batoni_transfer *r = calloc(SLOTS, sizeof(*r));
	int *to = calloc(SLOTS, sizeof(*to));
	int value;

	open_world(&world, 2, SLOTS);
	for (int i = 0; i < SLOTS; i++) {
		r[i] = transfer(BATONI_RECV, (uint32_t)i, 0, i * 1000, &to[i],
		                sizeof(int));
		ck_assert_int_eq(issue(&world, 1, &r[i]), BATON_PENDING);
	}
	ck_assert_uint_eq(world.transports[1]->messages.load.in_flight, SLOTS);
	/* 1021 is coprime to 4096: this visits each tag once. */
	for (int i = 0; i < SLOTS; i++) {
		value = i * 1021 % SLOTS;
		s[0] = transfer(BATONI_SEND, 0, 1, value * 1000, &value,
		                sizeof(int));
		ck_assert_int_eq(issue(&world, 0, &s[0]), BATON_OK);
		assert_last(&world, 1, &r[value], BATON_OK);
		ck_assert_int_eq(to[value], value);
	}
	assert_idle(&world, 1);
	close_world(&world);
	free(s);
	free(r);
	free(to);
}
END_TEST

START_TEST(what_is_taken_back_leaves_the_line_in_order)
{
	struct world world;
	struct batoni_transfer s[6], r;
	int from[6], to;

	open_world(&world, 2, 8);
	for (int i = 0; i < 6; i++) {
		from[i] = i;
		s[i] = transfer(BATONI_SEND, (uint32_t)i, 1, 0, &from[i],
		                sizeof(int));
		issue(&world, 0, &s[i]);
	}
	/* The front, one in the middle, the end. */
	ck_assert_int_eq(take_back(&world, 0, &s[0]), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_back(&world, 0, &s[3]), BATON_ERR_CANCELED);
	ck_assert_int_eq(take_back(&world, 0, &s[5]), BATON_ERR_CANCELED);
	ck_assert_uint_eq(world.transports[0]->messages.load.in_flight, 3);
	for (int k = 0; k < 3; k++) {
		static const int left[] = {1, 2, 4};

		r = transfer(BATONI_RECV, 0, 0, 0, &to, sizeof(int));
		ck_assert_int_eq(issue(&world, 1, &r), BATON_OK);
		ck_assert_int_eq(to, left[k]);
	}
	r = transfer(BATONI_RECV, 0, 0, 0, &to, sizeof(int));
	ck_assert_int_eq(issue(&world, 1, &r), BATON_PENDING);
	ck_assert_uint_eq(world.recorders[0].count, 3);
	assert_idle(&world, 0);
	close_world(&world);
}
END_TEST

/* A model of one rank pair's line: what waits, oldest first. */
struct model {
	bool sends;
	int ids[SLOTS];
	size_t count;
};

static int
model_pop(struct model *model, size_t at)
{
	int id = model->ids[at];

	model->count--;
	memmove(&model->ids[at], &model->ids[at + 1],
	        (model->count - at) * sizeof(int));
	return id;
}

#define MODEL_TAGS 5
#define MODEL_SLOTS 40
#define MODEL_STEPS 20000

struct play {
	struct world world;
	struct model lines[RANKS_MAX][RANKS_MAX][MODEL_TAGS]; /* [to][from] */
	/* By rank and slot; an id is both together. */
	struct batoni_transfer transfers[RANKS_MAX][MODEL_SLOTS];
	int values[RANKS_MAX][MODEL_SLOTS];
	bool used[RANKS_MAX][MODEL_SLOTS];
	int serial;
};

static struct model *
line_of(struct play *play, int rank, const struct batoni_transfer *t)
{
	return t->direction == BATONI_RECV
	               ? &play->lines[rank][t->peer][t->tag]
	               : &play->lines[t->peer][rank][t->tag];
}

static void
play_take_back(struct play *play, int rank, int slot)
{
	struct batoni_transfer *t = &play->transfers[rank][slot];
	struct model *line = line_of(play, rank, t);
	size_t at = 0;

	while (line->ids[at] != rank * MODEL_SLOTS + slot)
		at++;
	ck_assert_uint_lt(at, line->count);
	model_pop(line, at);
	play->used[rank][slot] = false;
	ck_assert_int_eq(take_back(&play->world, rank, t), BATON_ERR_CANCELED);
}

static void
play_issue(struct play *play, int rank, int slot, int peer, int tag, bool send)
{
	struct batoni_transfer *t = &play->transfers[rank][slot];
	int *value = &play->values[rank][slot];
	struct model *line;
	int id, other, other_slot;

	*t = transfer(send ? BATONI_SEND : BATONI_RECV, (uint32_t)slot, peer,
	              tag, value, sizeof(int));
	*value = send ? ++play->serial : 0;
	line = line_of(play, rank, t);
	if (line->count == 0 || line->sends == send) {
		line->sends = send;
		line->ids[line->count++] = rank * MODEL_SLOTS + slot;
		play->used[rank][slot] = true;
		ck_assert_int_eq(issue(&play->world, rank, t), BATON_PENDING);
		return;
	}
	id = model_pop(line, 0);
	other = id / MODEL_SLOTS;
	other_slot = id % MODEL_SLOTS;
	ck_assert_int_eq(other, peer);
	play->world.recorders[other].count = 0;
	ck_assert_int_eq(issue(&play->world, rank, t), BATON_OK);
	assert_last(&play->world, other, &play->transfers[other][other_slot],
	            BATON_OK);
	ck_assert_int_eq(*value, play->values[other][other_slot]);
	play->used[other][other_slot] = false;
}

START_TEST(random_play_matches_as_the_model_does)
{
	struct play *play = calloc(1, sizeof(*play));
	unsigned seed = 20240611;

	ck_assert_ptr_nonnull(play);
	printf("seed %u\n", seed);
	open_world(&play->world, 3, MODEL_SLOTS);
	for (int step = 0; step < MODEL_STEPS; step++) {
		int rank = rand_r(&seed) % 3;
		int slot = rand_r(&seed) % MODEL_SLOTS;
		int peer = rand_r(&seed) % 3;
		int tag = rand_r(&seed) % MODEL_TAGS;

		if (play->used[rank][slot])
			play_take_back(play, rank, slot);
		else
			play_issue(play, rank, slot, peer, tag,
			           rand_r(&seed) % 2);
	}
	close_world(&play->world);
	free(play);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		every_rank_has_all_capabilities_and_any_driver,
		every_failed_allocation_of_open_is_nomem_and_leaks_nothing,
		without_segments_there_are_no_peers,
		segments_are_zeroed_apart_and_seen_by_all_until_the_last_closes,
		the_hidden_tags_are_tags_of_their_own,
		an_exchange_gives_all_of_all_once_the_last_has_come,
		rounds_of_exchange_do_not_meet_whoever_is_slow,
		a_rank_that_closed_has_brought_its_part_or_is_missed,
		an_exchange_without_memory_fails_on_all_and_the_next_one_works,
		an_exchange_that_ranks_mean_differently_is_refused_on_all,
		send_that_finds_its_receive_ends_both_at_once,
		receive_that_finds_its_send_ends_both_at_once,
		shorter_message_ends_ok_with_its_own_length,
		longer_message_truncates_and_writes_nothing_past_the_receive,
		empty_messages_match_without_buffers,
		messages_of_one_line_match_in_the_order_of_issue,
		source_destination_and_tag_keep_lines_apart,
		thousands_of_tags_match_in_any_order,
		what_is_taken_back_leaves_the_line_in_order,
		random_play_matches_as_the_model_does,
	};

	return RUN_TESTS("local", tests);
}
