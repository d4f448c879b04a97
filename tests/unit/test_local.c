/* SPDX-License-Identifier: BSD-3-Clause */
/* The local transport: what it says of itself, small messages, matching. */
#include <check.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
		ck_assert_int_eq(t->tag_max, INT_MAX);
		ck_assert_uint_eq(t->capabilities, 0x3f);
		ck_assert_int_eq(t->drivers, BATONI_DRIVERS_ANY);
		ck_assert(t->quiet);
		ck_assert(!t->ops->stream_issued);
		ck_assert_int_eq(t->ops->id, BATON_TRANSPORT_LOCAL);
		ck_assert_str_eq(t->ops->name, "local");
		ck_assert_str_eq(t->library, "in process");
		assert_idle(&world, rank);
	}
	close_world(&world);
}
END_TEST

START_TEST(error_text_is_empty)
{
	struct world world;
	char text[4] = "abc";

	open_world(&world, 1, 1);
	world.transports[0]->ops->error_text(world.transports[0], 7, text, 0);
	ck_assert_str_eq(text, "abc");
	world.transports[0]->ops->error_text(world.transports[0], 7, text, 4);
	ck_assert_str_eq(text, "");
	close_world(&world);
}
END_TEST

START_TEST(every_failed_allocation_of_open_is_nomem_and_leaks_nothing)
{
	struct batoni_transport *transports[3];
	unsigned long allocations, n;

	batoni_mem_fail_at(0);
	ck_assert_int_eq(batoni_local_open(3, 4, transports), BATON_OK);
	allocations = batoni_mem_fail_at(0);
	ck_assert_uint_ge(allocations, 4);
	for (int rank = 0; rank < 3; rank++)
		transports[rank]->ops->close(transports[rank], false);
	for (n = 1; n <= allocations; n++) {
		batoni_mem_fail_at(n);
		ck_assert_int_eq(batoni_local_open(3, 4, transports),
		                 BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), 0);
	}
	batoni_mem_fail_at(0);
}
END_TEST

/* ---- small messages ----------------------------------------------------- */

START_TEST(send_that_finds_its_receive_ends_both_at_once)
{
	struct world world;
	char from[] = "hello", to[6] = "";
	struct batoni_transfer r = transfer(BATONI_RECV, 3, 0, 5, to, 6);
	struct batoni_transfer s = transfer(BATONI_SEND, 2, 1, 5, from, 6);

	open_world(&world, 2, 8);
	ck_assert_int_eq(issue(&world, 1, &r), BATON_PENDING);
	ck_assert_uint_eq(world.transports[1]->in_flight, 1);
	ck_assert_uint_eq(world.transports[1]->moving, 0);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_OK);
	ck_assert_uint_eq(s.done_bytes, 6);
	assert_last(&world, 1, &r, BATON_OK);
	ck_assert_uint_eq(r.done_bytes, 6);
	ck_assert_str_eq(to, "hello");
	ck_assert_uint_eq(world.recorders[0].count, 0);
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	close_world(&world);
}
END_TEST

START_TEST(receive_that_finds_its_send_ends_both_at_once)
{
	struct world world;
	char from[] = "hello", to[6] = "";
	struct batoni_transfer r = transfer(BATONI_RECV, 3, 0, 5, to, 6);
	struct batoni_transfer s = transfer(BATONI_SEND, 2, 1, 5, from, 6);

	open_world(&world, 2, 8);
	ck_assert_int_eq(issue(&world, 0, &s), BATON_PENDING);
	ck_assert_uint_eq(world.transports[0]->in_flight, 1);
	ck_assert_int_eq(issue(&world, 1, &r), BATON_OK);
	ck_assert_uint_eq(r.done_bytes, 6);
	ck_assert_str_eq(to, "hello");
	assert_last(&world, 0, &s, BATON_OK);
	ck_assert_uint_eq(world.recorders[1].count, 0);
	assert_idle(&world, 0);
	assert_idle(&world, 1);
	close_world(&world);
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
	ck_assert_uint_eq(world.transports[1]->in_flight, SLOTS);
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
	ck_assert_uint_eq(world.transports[0]->in_flight, 3);
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
		error_text_is_empty,
		every_failed_allocation_of_open_is_nomem_and_leaks_nothing,
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
