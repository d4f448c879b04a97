/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What ranks of one node share (segments.h): the areas of pairs, and the agreement on them.  Three
 * ranks of this process open the side channel's transport by turns; what each writes into its card
 * can be changed on its way to the others.
 */
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "config.h"
#include "creation.h"
#include "mem.h"
#include "run_tests.h"
#include "segments.h"
#include "tcp.h"
#include "tcp_world.h"

enum { RANKS = 3, SLOTS = 4, SEGMENT_BYTES = 192, FORMAT = 7 };

#define PAGE ((size_t)sysconf(_SC_PAGESIZE))
#define CONTROL_BYTES 100u
#define AREA_BYTES (3 * PAGE + 8)

static struct batoni_bootstrap bootstraps[RANKS];
static struct batoni_opening openings[RANKS];
static struct rlimit limit; /* of descriptors */
static struct batoni_comm_setup options;

/* With this part of the one-sided layer, and areas of so many bytes. */
static void
join(size_t segment_bytes, size_t pairs_bytes)
{
	int fds[RANKS];

	options.near = options.near_only = true;
	start_hub(RANKS, RANKS, fds);
	for (int i = 0; i < RANKS; i++) {
		const struct batoni_side_link link = {.fd = fds[i], .home = 0};

		ck_assert_int_eq(batoni_side_ops.join(RANKS, i, &link, 0,
		                                      &bootstraps[i]),
		                 BATON_OK);
		openings[i] = (struct batoni_opening){
			.engine = &batoni_engine_calls,
			.bootstrap = &bootstraps[i],
			.setup = &options,
			.config = {.slots = SLOTS,
			           .slots_most = SLOTS,
			           .segment_bytes = segment_bytes,
			           .pairs_bytes = pairs_bytes,
			           .pairs_control =
			                   pairs_bytes ? CONTROL_BYTES : 0,
			           .pairs_format = pairs_bytes ? FORMAT : 0},
		};
	}
}

/* The next step of all ranks, all of which end it so. */
static void
step_all(enum baton_status expected)
{
	static unsigned char all[RANKS][BATONI_CARD_BYTES];
	const struct batoni_cards cards = {all[0], sizeof(all[0])};

	for (int i = 0; i < RANKS; i++)
		memcpy(all[i], openings[i].card, sizeof(all[i]));
	for (int i = 0; i < RANKS; i++) {
		struct batoni_opening *opening = &openings[i];

		ck_assert_int_eq(batoni_opening_tcp_ops.step(
					 opening, opening->round ? &cards : NULL),
		                 expected);
		opening->round++;
	}
}

static struct batoni_peer *
peer_of(int rank, int peer)
{
	return &openings[rank].transport->peers[peer];
}

static void
close_all(void)
{
	for (int i = 0; i < RANKS; i++) {
		if (openings[i].transport)
			batoni_opening_tcp_ops.give_up(&openings[i]);
		bootstraps[i].ops->close(&bootstraps[i]);
	}
	await_no_hub();
}

/* Of this process: mappings of memory that Baton has made. */
static int
count_mappings(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;

	ck_assert_ptr_nonnull(maps);
	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/memfd:baton") != NULL;
	fclose(maps);
	return n;
}

static void
open_all(size_t segment_bytes)
{
	join(segment_bytes, AREA_BYTES);
	for (int i = 0; i < 3; i++)
		step_all(BATON_PENDING);
	step_all(BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		ck_assert(openings[i].transport->all_near);
		ck_assert_int_eq(openings[i].transport->all_store,
		                 segment_bytes > 0 &&
		                         batoni_config()->window_path !=
		                                 BATON_WINDOW_PATH_MESSAGE);
		ck_assert_str_eq(openings[i].transport->why_not_near, "");
	}
}

/* ---- areas ---- */

/* What each rank stores into all areas is there for their owners, and nothing else. */
static void
assert_shared(void)
{
	for (int i = 0; i < RANKS; i++) {
		for (int j = 0; j < RANKS; j++) {
			char *area = peer_of(i, j)->pairs;

			ck_assert_ptr_nonnull(area);
			ck_assert_ptr_eq(peer_of(i, j)->bell, batoni_bell());
			ck_assert_uint_eq((uintptr_t)area % PAGE, 0);
			ck_assert_int_eq(area[i], 0);
			area[i] = (char)(10 * i + j + 1);
		}
	}
	for (int i = 0; i < RANKS; i++) {
		for (int j = 0; j < RANKS; j++)
			ck_assert_int_eq(peer_of(i, i)->pairs[j],
			                 10 * j + i + 1);
	}
}

START_TEST(an_area_is_the_same_memory_for_all_ranks)
{
	int before;

	(void)batoni_bell();
	before = count_mappings();
	open_all(SEGMENT_BYTES);
	assert_shared();
	for (int i = 0; i < RANKS; i++) {
		for (int j = 0; j < RANKS; j++) {
			const struct batoni_peer *peer = peer_of(i, j);
			char *segment = peer->segment;

			ck_assert(peer->reaches_us);
			ck_assert_ptr_nonnull(segment);
			/* The bytes of the ranks lie between. */
			ck_assert(segment + SEGMENT_BYTES + RANKS <= peer->pairs);
			for (size_t at = 0; at < SEGMENT_BYTES; at++)
				ck_assert_int_eq(segment[at], 0);
		}
		ck_assert_uint_ne(openings[i].transport->capabilities &
		                          BATON_CAP_SIGNALS, 0);
	}
	close_all();
	ck_assert_int_eq(count_mappings(), before);
}
END_TEST

/* Is this page allocated? */
static bool
is_there(char *page)
{
	unsigned char there;

	ck_assert_int_eq(mincore(page, PAGE, &there), 0);
	return there & 1;
}

START_TEST(the_control_is_allocated_and_the_rest_of_an_area_is_not)
{
	open_all(SEGMENT_BYTES);
	for (int i = 0; i < RANKS; i++) {
		char *area = peer_of(i, i)->pairs;
		bool sparse = openings[i].transport->sparse_segments;

		ck_assert(is_there(area));
		ck_assert_int_eq(is_there(area + PAGE), !sparse);
		ck_assert(batoni_shm_populate(area + PAGE, PAGE));
		ck_assert(is_there(peer_of(i, i)->pairs + PAGE));
	}
	close_all();
}
END_TEST

START_TEST(areas_need_no_one_sided_layer)
{
	open_all(0);
	assert_shared();
	for (int i = 0; i < RANKS; i++) {
		struct batoni_departure *departure = peer_of(0, i)->segment;

		ck_assert_ptr_nonnull(departure);
		batoni_departure_blame(departure, i);
		departure = peer_of(i, i)->segment;
		ck_assert_uint_eq(departure->after, (uint32_t)i + 1);
		ck_assert_uint_eq(openings[i].transport->capabilities &
		                          (BATON_CAP_SIGNALS | BATON_CAP_WINDOWS),
		                  0);
	}
	close_all();
}
END_TEST

START_TEST(puts_by_message_alone_leave_the_areas)
{
	int before;

	setenv("BATON_WINDOW_PATH", "message", 1);
	(void)batoni_bell();
	before = count_mappings();
	open_all(SEGMENT_BYTES);
	assert_shared();
	for (int i = 0; i < RANKS; i++) {
		const struct batoni_peer *peer = peer_of(i, (i + 1) % RANKS);

		ck_assert_ptr_null(peer->segment);
		ck_assert(!peer->reaches_us);
	}
	close_all();
	ck_assert_int_eq(count_mappings(), before);
}
END_TEST

/* Whether or not puts are to go there. */
START_TEST(a_departure_is_read_by_all_ranks)
{
	if (_i)
		setenv("BATON_WINDOW_PATH", "message", 1);
	open_all(SEGMENT_BYTES);
	for (int i = 0; i < RANKS; i++) {
		atomic_store(&batoni_departure_of(peer_of(i, i))->away,
		             10 + (uint32_t)i);
		for (int j = 0; j < RANKS; j++) {
			struct batoni_departure *departure =
				batoni_departure_of(peer_of(j, i));

			ck_assert_ptr_nonnull(departure);
			ck_assert_uint_eq(atomic_load(&departure->away),
			                  10 + (uint32_t)i);
		}
	}
	close_all();
}
END_TEST

START_TEST(without_areas_there_is_no_further_round)
{
	join(SEGMENT_BYTES, 0);
	step_all(BATON_PENDING);
	step_all(BATON_PENDING);
	step_all(BATON_OK);
	ck_assert_ptr_null(peer_of(0, 0)->pairs);
	ck_assert_ptr_null(peer_of(0, 1)->pairs);
	ck_assert_ptr_nonnull(peer_of(0, 1)->segment);
	close_all();
	join(0, 0);
	step_all(BATON_PENDING);
	step_all(BATON_OK);
	ck_assert_ptr_null(openings[0].transport->peers);
	close_all();
}
END_TEST

/* ---- agreeing ---- */

static struct batoni_segments_card *
card_of(int rank)
{
	return (void *)openings[rank].card;
}

static void
move_away(void)
{
	card_of(2)->segment.node[0] ^= 1;
}

static void
change_format(void)
{
	card_of(1)->pairs++;
}

static void
change_length(void)
{
	card_of(1)->segment.bytes += PAGE;
}

static void
take_bell(void)
{
	card_of(2)->has_bell = 0;
}

/* Another file, as what the kernel does not let this process open. */
static void
hide_memory(void)
{
	card_of(2)->segment.inode++;
}

/* Two are alone: the lowest one is named. */
static void
move_two_away(void)
{
	move_away();
	card_of(1)->segment.node[0] ^= 2;
}

static const struct {
	void (*change)(void);
	unsigned apart; /* 1 << rank: these are not near to any other */
	const char *words;
} changes[] = {
	{move_away, 1 << 2, "rank 2 is on another node than rank 0 (or in a container, "
                            "which counts as one)"},
	{move_two_away, 1 << 1 | 1 << 2, "rank 1 is on another node than rank 0 "},
	{change_format, 1 << 1, "rank 1 runs another version of Baton than rank 0"},
	{change_length, 1 << 1, "rank 1 runs another version of Baton than rank 0"},
	{take_bell, 1 << 2, "the process of rank 2 has no shared memory by which rank 0 "
                            "could wake it"},
	{hide_memory, 1 << 2, "rank 0 may not map the memory of rank 2, which is on the "
                              "same node: another user, a container, or "
                              "a process that may not be dumped"},
};

/* The last step: every rank has the sentence, and what to do instead. */
static void
refuse_all(const char *words)
{
	static unsigned char all[RANKS][BATONI_CARD_BYTES];
	const struct batoni_cards cards = {all[0], sizeof(all[0])};

	for (int i = 0; i < RANKS; i++)
		memcpy(all[i], openings[i].card, sizeof(all[i]));
	for (int i = 0; i < RANKS; i++) {
		const char *said;

		ck_assert_int_eq(
			batoni_opening_tcp_ops.step(&openings[i], &cards),
			BATON_ERR_UNSUPPORTED);
		said = baton_last_error();
		ck_assert_msg(strncmp(said, words, strlen(words)) == 0 &&
		                      strstr(said, ": messages without MPI go "
		                                   "between processes of one "
		                                   "node; start the program by "
		                                   "mpirun"),
		              "rank %d: %s", i, said);
		/* The others are told all of it. */
		ck_assert_uint_lt(strlen(said), BATONI_WHY_BYTES);
	}
}

START_TEST(all_ranks_are_refused_alike_where_two_are_not_near)
{
	join(SEGMENT_BYTES, AREA_BYTES);
	step_all(BATON_PENDING);
	changes[_i].change();
	step_all(BATON_PENDING);
	step_all(BATON_PENDING);
	refuse_all(changes[_i].words);
	close_all();
}
END_TEST

START_TEST(pairs_are_near_where_both_ranks_are_able_to)
{
	const char *words = changes[_i].words;

	join(SEGMENT_BYTES, AREA_BYTES);
	options.near_only = false;
	step_all(BATON_PENDING);
	changes[_i].change();
	step_all(BATON_PENDING);
	step_all(BATON_PENDING);
	step_all(BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		const struct batoni_transport *transport = openings[i].transport;

		ck_assert(!transport->all_near && !transport->all_store);
		ck_assert_str_eq(transport->why_not_near,
		                 openings[0].transport->why_not_near);
		ck_assert_int_eq(strncmp(transport->why_not_near, words,
		                         strlen(words)), 0);
		for (int j = 0; j < RANKS; j++) {
			unsigned pair = 1u << i | 1u << j;

			ck_assert_int_eq(peer_of(i, j)->near,
			                 i == j || !(pair & changes[_i].apart));
		}
	}
	close_all();
}
END_TEST

/* Rank 1 has none while it maps. */
static void
take_descriptors(bool take)
{
	struct rlimit none = limit;

	none.rlim_cur = 0;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, take ? &none : &limit), 0);
}

/* Rank 0 sees only that rank 1 does not reach it. */
START_TEST(the_rank_that_lacks_something_says_what)
{
	static unsigned char all[RANKS][BATONI_CARD_BYTES];
	const struct batoni_cards cards = {all[0], sizeof(all[0])};

	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	join(SEGMENT_BYTES, AREA_BYTES);
	step_all(BATON_PENDING);
	for (int i = 0; i < RANKS; i++)
		memcpy(all[i], openings[i].card, sizeof(all[i]));
	for (int i = 0; i < RANKS; i++) {
		take_descriptors(i == 1);
		ck_assert_int_eq(
			batoni_opening_tcp_ops.step(&openings[i], &cards),
			BATON_PENDING);
		openings[i].round++;
	}
	take_descriptors(false);
	step_all(BATON_PENDING);
	refuse_all("rank 1 has no memory, or no file descriptor, to map the "
	           "memory of rank 0");
	close_all();
}
END_TEST

/* A verdict comes from another process. */
START_TEST(any_verdict_is_read)
{
	static const struct {
		struct batoni_segments_verdict verdict;
		const char *words;
	} cases[] = {
		{{RANKS, BATONI_LACK_RETURN, 1},
	         "rank 3 does not reach the memory of rank 1"},
		{{INT32_MAX, UINT32_MAX, UINT32_MAX},
	         "rank 2147483647 does not reach the memory of rank 1"},
		{{1, BATONI_LACK_RETURN, 0},
	         "rank 1 does not reach the memory of rank 1"},
		{{0, BATONI_LACK_RETURN, 0},
	         "rank 0 does not reach the memory of rank 1"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		join(SEGMENT_BYTES, AREA_BYTES);
		for (int round = 0; round < 3; round++)
			step_all(BATON_PENDING);
		memcpy(openings[1].card, &cases[i].verdict,
		       sizeof(cases[i].verdict));
		refuse_all(cases[i].words);
		close_all();
	}
}
END_TEST

/* One rank has not mapped a segment (BATON_WINDOW_PATH=message of that process alone, say): none stores. */
START_TEST(all_store_where_each_rank_has_said_so)
{
	join(SEGMENT_BYTES, AREA_BYTES);
	for (int round = 0; round < 3; round++)
		step_all(BATON_PENDING);
	((struct batoni_segments_verdict *)(void *)card_of(2))->stores = 0;
	step_all(BATON_OK);
	for (int i = 0; i < RANKS; i++) {
		ck_assert(openings[i].transport->all_near);
		ck_assert(!openings[i].transport->all_store);
	}
	close_all();
}
END_TEST

int
main(void)
{
	Suite *suite = suite_create("segments");
	TCase *tcase = tcase_create("segments");

	tcase_add_test(tcase, an_area_is_the_same_memory_for_all_ranks);
	tcase_add_test(tcase,
	               the_control_is_allocated_and_the_rest_of_an_area_is_not);
	tcase_add_test(tcase, areas_need_no_one_sided_layer);
	tcase_add_test(tcase, puts_by_message_alone_leave_the_areas);
	tcase_add_loop_test(tcase, a_departure_is_read_by_all_ranks, 0, 2);
	tcase_add_test(tcase, without_areas_there_is_no_further_round);
	tcase_add_loop_test(tcase, all_ranks_are_refused_alike_where_two_are_not_near,
	                    0, (int)(sizeof(changes) / sizeof(changes[0])));
	tcase_add_loop_test(tcase, pairs_are_near_where_both_ranks_are_able_to,
	                    0, (int)(sizeof(changes) / sizeof(changes[0])));
	tcase_add_test(tcase, the_rank_that_lacks_something_says_what);
	tcase_add_test(tcase, any_verdict_is_read);
	tcase_add_test(tcase, all_store_where_each_rank_has_said_so);
	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}
