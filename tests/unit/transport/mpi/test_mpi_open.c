/* SPDX-License-Identifier: BSD-3-Clause */
/* Opening, exchanging, the tags and segments of a transport, and closing (transport/mpi/open.c). */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"
#include "mpi_world.h"

static enum baton_status
attach_with(uint32_t slots, uint32_t tags, struct batoni_mpi **mpi_p)
{
	struct batoni_transport_config other = config;
	enum baton_status status;

	other.slots = slots;
	ck_assert_int_eq(batoni_mpi_alloc(&other, 2, mpi_p), BATON_OK);
	highest_tag = (int)tags - 1;
	status = batoni_mpi_attach(*mpi_p, world.mpi->comm, MPI_THREAD_MULTIPLE,
	                           BATON_PROGRESS_AUTO);
	highest_tag = 0;
	return status;
}

START_TEST(an_mpi_with_too_few_tags_is_refused)
{
	const uint32_t least = (1u << 20) + HIDDEN_TAGS + (1u << 16);
	struct batoni_mpi *mpi;

	ck_assert_int_eq(attach_with(1000, least - 1, &mpi),
	                 BATON_ERR_UNSUPPORTED);
	batoni_mpi_free(mpi);
	ck_assert_int_eq(attach_with(1u << 15, least, &mpi),
	                 BATON_ERR_UNSUPPORTED);
	batoni_mpi_free(mpi);
	ck_assert_int_eq(attach_with(32000, least, &mpi), BATON_OK);
	/* Segments, a tag for each slot, and those for control, apart. */
	ck_assert_int_eq(mpi->base.hidden_tag + HIDDEN_TAGS,
	                 mpi->body_tag_base);
	ck_assert_int_le(mpi->body_tag_base +
	                         (int)(BATONI_MPI_SEGMENTS * mpi->segment_tags),
	                 mpi->granted_tag);
	ck_assert_int_le(mpi->granted_tag + 32000, mpi->release_tag);
	ck_assert_int_le(mpi->release_tag + (int)BATONI_MPI_SEGMENTS,
	                 mpi->grant_tag);
	ck_assert_int_lt(mpi->grant_tag, mpi->leave_tag);
	ck_assert_int_lt(mpi->leave_tag, (int)least);
	batoni_mpi_free(mpi);
	close_world();
}
END_TEST

static enum baton_status
exchange(const void *mine, size_t bytes, void *all)
{
	return world.transport->ops->exchanging->exchange(world.transport, 5, mine, bytes,
	                                                  all);
}

static enum baton_status
exchange_for(uint64_t what, const void *mine, size_t bytes, void *all)
{
	enum baton_status status;

	do {
		sched_yield();
		status = world.transport->ops->exchanging->exchange(world.transport, what,
		                                                    mine, bytes, all);
	} while (status == BATON_PENDING);
	return status;
}

static void
exchange_whole(const void *mine, size_t bytes, void *all)
{
	ck_assert_int_eq(exchange_for(5, mine, bytes, all), BATON_OK);
}

START_TEST(an_exchange_waits_for_the_other_rank_and_gives_both)
{
	int mine = 10 + world.rank, all[2] = {0};

	if (world.rank == 0) {
		for (int i = 0; i < 100; i++)
			ck_assert_int_eq(exchange(&mine, sizeof(mine), all),
			                 BATON_PENDING);
		ck_assert_int_eq(all[0], 0);
	}
	barrier();
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[0], 10);
	ck_assert_int_eq(all[1], 11);
	close_world();
}
END_TEST

START_TEST(exchanges_follow_one_another_between_messages)
{
	unsigned char *out = message(100000, world.rank);
	unsigned char *in = room(100000);
	struct op *recv = post(in, 100000, world.peer, 3);
	struct op *send = sent(out, 100000, world.peer, 3);
	int mine[100], all[2][100];

	for (int round = 0; round < 50; round++) {
		for (int i = 0; i < 100; i++)
			mine[i] = 1000 * round + 2 * i + world.rank;
		exchange_whole(mine, sizeof(mine), all);
		/* What was brought is not looked at any more. */
		memset(mine, 0, sizeof(mine));
		for (int i = 0; i < 200; i++)
			ck_assert_int_eq(all[i % 2][i / 2],
			                 1000 * round + i);
	}
	finish(recv, BATON_OK, 100000);
	finish(send, BATON_OK, 100000);
	check_message(in, 100000, world.peer);
	free(out);
	free(in);
	close_world();
}
END_TEST

START_TEST(an_exchange_without_memory_is_refused_on_all_and_the_next_works)
{
	long blocks = batoni_mem_blocks();
	int mine = 7 + world.rank, all[2] = {0};

	for (int turn = 0; turn < 2; turn++) {
		if (turn == world.rank)
			batoni_mem_fail_at(1);
		ck_assert_int_eq(exchange_for(5, &mine, sizeof(mine), all),
		                 BATON_ERR_NOMEM);
		batoni_mem_fail_at(0);
		ck_assert_int_eq(all[world.peer], 0);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	}
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[world.peer], 7 + world.peer);
	close_world();
}
END_TEST

START_TEST(an_exchange_that_ranks_mean_differently_is_refused_on_all)
{
	size_t bytes = world.rank ? 8 : 8000;
	char mine[8000] = {0}, all[2 * 8000];

	ck_assert_int_eq(exchange_for(5, mine, bytes, all), BATON_ERR_INVALID);
	ck_assert_int_eq(exchange_for(4 + (uint64_t)world.rank, mine, 8, all),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(exchange_for((uint64_t)INT64_MAX * (world.rank == 0),
	                              mine, 8, all),
	                 BATON_ERR_INVALID);
	mine[3] = (char)(5 + world.rank);
	ck_assert_int_eq(exchange_for(INT64_MAX, mine, 8, all), BATON_OK);
	ck_assert_int_eq(all[3], 5);
	ck_assert_int_eq(all[11], 6);
	close_world();
}
END_TEST

START_TEST(leaving_while_others_exchange_is_refused_on_all)
{
	int mine = 8 + world.rank, all[2] = {0};

	ck_assert_int_eq(world.rank ? exchange_for(5, &mine, sizeof(mine), all)
	                            : whole(world.transport->ops->leave),
	                 BATON_ERR_INVALID);
	/* A leave that is given up is still met by the others, once. */
	if (world.rank == 0)
		ck_assert_int_eq(world.transport->ops->leave(world.transport),
		                 BATON_PENDING);
	else
		ck_assert_int_eq(exchange_for(5, &mine, sizeof(mine), all),
		                 BATON_ERR_INVALID);
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[world.peer], 8 + world.peer);
	close_world();
}
END_TEST

START_TEST(a_rank_of_the_same_host_adds_to_the_others_counter)
{
	struct batoni_peer *peers = world.transport->peers;
	_Atomic uint64_t *own, *theirs;

	ck_assert_uint_eq(world.transport->capabilities, 0xff);
	ck_assert(peers[world.rank].within && !peers[world.peer].within);
	ck_assert(peers[world.rank].reaches_us);
	ck_assert_ptr_eq(peers[world.rank].bell, batoni_bell());
	ck_assert_int_eq(peers[world.rank].pid, getpid());
	ck_assert_int_ne(peers[world.peer].pid, getpid());
	if (!peers[world.peer].segment || !peers[world.peer].reaches_us)
		ck_abort_msg("the other rank's segment is not mapped");
	own = peers[world.rank].segment;
	theirs = peers[world.peer].segment;
	for (size_t i = 0; i < SEGMENT_BYTES / 8; i++)
		ck_assert_uint_eq(own[i], 0);
	barrier();
	for (int i = 0; i < 1000; i++) {
		atomic_fetch_add(&own[7], 1);
		atomic_fetch_add(&theirs[7], 1);
	}
	atomic_fetch_add(&theirs[SEGMENT_BYTES / 8 - 1],
	                 (uint64_t)world.rank + 1);
	batoni_bell_ring(peers[world.peer].bell);
	barrier();
	ck_assert_uint_eq(own[7], 2000);
	ck_assert_uint_eq(own[SEGMENT_BYTES / 8 - 1],
	                  (uint64_t)world.peer + 1);
	ck_assert_uint_ge(batoni_bell()->doorbell, 1);
	ck_assert(!batoni_pidfd_gone(peers[world.peer].pidfd));
	close_world();
}
END_TEST

START_TEST(hidden_tags_and_slots_are_beyond_those_of_requests)
{
	int hidden = world.transport->hidden_tag;
	unsigned char *out = message(10000, world.rank);
	unsigned char *in = room(10000);
	struct op *recv, *send;

	ck_assert_int_eq(hidden, world.transport->tag_max + 1);
	ck_assert_int_ge(world.transport->tag_max, (1 << 20) - 1);
	ck_assert_int_eq(hidden + HIDDEN_TAGS, world.mpi->body_tag_base);
	ck_assert_uint_eq(world.transport->slots, SLOTS + HIDDEN_SLOTS);
	world.used = SLOTS + HIDDEN_SLOTS - 2;
	recv = post(in, 10000, world.peer, hidden + HIDDEN_TAGS - 1);
	send = sent(out, 10000, world.peer, hidden + HIDDEN_TAGS - 1);
	ck_assert_uint_eq(send->transfer.slot, SLOTS + HIDDEN_SLOTS - 1);
	finish(recv, BATON_OK, 10000);
	finish(send, BATON_OK, 10000);
	check_message(in, 10000, world.peer);
	free(out);
	free(in);
	close_world();
}
END_TEST

/* Rank 0 gives up an exchange for which the other rank never comes (parts false), or
 * has brought its terms and no more. */
static void
give_up_exchange(bool parts)
{
	long blocks = batoni_mem_blocks();
	int mine = 5, all[2];

	if (world.rank == 0 || parts)
		ck_assert_int_eq(exchange(&mine, sizeof(mine), all),
		                 BATON_PENDING);
	while (world.rank == 0 && parts &&
	       world.mpi->exchanging != BATONI_MPI_PARTS)
		ck_assert_int_eq(exchange(&mine, sizeof(mine), all),
		                 BATON_PENDING);
	barrier();
	world.transport->ops->close(world.transport, true);
	MPI_Comm_free(&world.side);
	open_world();
	/* A room is left of the transport, and has been lent once more. */
	if (world.rank == 0)
		ck_assert_int_eq(batoni_mem_blocks(), blocks + 1);
	mine = 6 + world.rank;
	exchange_whole(&mine, sizeof(mine), all);
	ck_assert_int_eq(all[world.peer], 6 + world.peer);
}

START_TEST(an_aborted_close_leaves_an_exchange_its_room)
{
	give_up_exchange(false);
	give_up_exchange(true);
	close_world();
}
END_TEST

START_TEST(opening_survives_any_allocation_that_fails)
{
	struct batoni_transport_config shared = config;
	struct batoni_mpi *mpi;
	unsigned long n;
	long blocks = batoni_mem_blocks();

	shared.segment_bytes = SEGMENT_BYTES;
	for (n = 1;; n++) {
		enum baton_status status;

		batoni_mem_fail_at(n);
		mpi = NULL;
		status = batoni_mpi_alloc(&config, 2, &mpi);
		if (status == BATON_OK)
			status = batoni_segments_make(&mpi->segments,
			                              &mpi->base, 2,
			                              &shared);
		if (status == BATON_OK)
			break;
		if (mpi)
			batoni_mpi_free(mpi);
		ck_assert_int_eq(status, BATON_ERR_NOMEM);
		ck_assert_int_eq(batoni_mem_blocks(), blocks);
	}
	batoni_mem_fail_at(0);
	ck_assert_uint_gt(n, 11);
	batoni_mpi_free(mpi);
	ck_assert_int_eq(batoni_mem_blocks(), blocks);
	close_world();
}
END_TEST

START_TEST(the_thread_level_says_who_may_drive)
{
	static const struct {
		int level;
		enum baton_progress progress;
		enum batoni_drivers drivers;
		const char *name;
	} cases[] = {
		{MPI_THREAD_MULTIPLE, BATON_PROGRESS_AUTO, BATONI_DRIVERS_ANY,
	         ", MPI_THREAD_MULTIPLE"},
		{MPI_THREAD_SERIALIZED, BATON_PROGRESS_AUTO,
	         BATONI_DRIVERS_CALLERS, ", MPI_THREAD_SERIALIZED"},
		{MPI_THREAD_SERIALIZED, BATON_PROGRESS_THREAD,
	         BATONI_DRIVERS_ANY, ", MPI_THREAD_SERIALIZED"},
		{MPI_THREAD_FUNNELED, BATON_PROGRESS_THREAD,
	         BATONI_DRIVERS_MAIN, ", MPI_THREAD_FUNNELED"},
		{MPI_THREAD_SINGLE, BATON_PROGRESS_AUTO, BATONI_DRIVERS_MAIN,
	         ", MPI_THREAD_SINGLE"},
	};

	for (size_t i = 0; i < 5; i++) {
		struct batoni_mpi *mpi;

		ck_assert_int_eq(batoni_mpi_alloc(&config, 2, &mpi), BATON_OK);
		ck_assert_int_eq(batoni_mpi_attach(mpi, world.mpi->comm,
		                                   cases[i].level,
		                                   cases[i].progress),
		                 BATON_OK);
		ck_assert_int_eq(mpi->base.drivers, cases[i].drivers);
		ck_assert_ptr_nonnull(
			strstr(mpi->base.library, cases[i].name));
		ck_assert_ptr_nonnull(strstr(mpi->base.library, "MPI"));
		ck_assert_ptr_null(strchr(mpi->base.library, '\n'));
		batoni_mpi_free(mpi);
	}
	close_world();
}
END_TEST

/* Both ranks send before either receives, so that the sends cannot end. */
START_TEST(an_aborted_close_leaves_to_mpi_what_mpi_still_has)
{
	static unsigned char out[1u << 20], in[1u << 20];
	long blocks = batoni_mem_blocks();
	uint64_t word;

	sent(out, sizeof(out), world.peer, 1);
	ck_assert_uint_ge(world.transport->messages.load.moving, 1);
	post(in, sizeof(in), world.peer, 2);
	post(&word, sizeof(word), world.peer, 3);
	close_aborted(blocks);
}
END_TEST

START_TEST(an_aborted_close_takes_unmatched_receives_back)
{
	static unsigned char in[2][100];
	long blocks = batoni_mem_blocks();

	post(in[0], 100, world.peer, 2);
	post(in[1], 8, world.peer, 3);
	for (int i = 0; i < 200; i++)
		post(in[1], 8, world.peer, 4);
	ck_assert_uint_gt(world.mpi->following, 100);
	close_aborted(blocks);
}
END_TEST

void
test_mpi_open(void)
{
	const TTest *const tests[] = {
		an_mpi_with_too_few_tags_is_refused,
		an_exchange_waits_for_the_other_rank_and_gives_both,
		exchanges_follow_one_another_between_messages,
		an_exchange_without_memory_is_refused_on_all_and_the_next_works,
		an_exchange_that_ranks_mean_differently_is_refused_on_all,
		leaving_while_others_exchange_is_refused_on_all,
		a_rank_of_the_same_host_adds_to_the_others_counter,
		hidden_tags_and_slots_are_beyond_those_of_requests,
		an_aborted_close_leaves_an_exchange_its_room,
		opening_survives_any_allocation_that_fails,
		the_thread_level_says_who_may_drive,
		an_aborted_close_leaves_to_mpi_what_mpi_still_has,
		an_aborted_close_takes_unmatched_receives_back,
	};

	run_cases(tests, sizeof(tests) / sizeof(tests[0]));
}
