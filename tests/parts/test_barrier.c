/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kind of operation that was added by new files and a line: what the engine gives to all kinds, it
 * gives to this one.  Ranks are driven by one thread, but for the last test.
 */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "barrier.h"
#include "clock.h"
#include "mem.h"
#include "run_tests.h"

#define RANKS 3
#define ROUNDS 50

static struct test_meeting meeting;
static struct baton_comm *comms[RANKS];
static baton_stream streams[RANKS], beside[RANKS];
static uint64_t now;
static char text[1 << 14];

static uint64_t
injected(void)
{
	return now;
}

static void
ok(enum baton_status status)
{
	ck_assert_msg(status == BATON_OK, "%s: %s", baton_status_name(status),
	              baton_last_error());
}

static void
open_ranks(int ranks, enum baton_progress progress)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	options.device = BATON_DEVICE_HOST;
	options.progress = progress;
	options.requests_max = 8;
	meeting = (struct test_meeting){.ranks = ranks};
	ok(baton_comm_create_local(ranks, &options, comms));
	for (int i = 0; i < ranks; i++) {
		ok(baton_stream_create(comms[i], &streams[i]));
		ok(baton_stream_create(comms[i], &beside[i]));
	}
}

/* Nothing is left: not on the streams, in the meeting, or of the memory. */
static void
close_ranks(void)
{
	for (int i = 0; i < meeting.ranks; i++) {
		ck_assert_ptr_null(meeting.waiting[i]);
		ok(baton_stream_destroy(comms[i], streams[i]));
		ok(baton_stream_destroy(comms[i], beside[i]));
	}
	for (int i = 0; i < meeting.ranks; i++)
		ok(baton_comm_destroy(comms[i]));
	ck_assert_int_eq(batoni_mem_blocks(), 0);
}

static void
setup(void)
{
	now = 1000;
	batoni_clock_set(injected);
	open_ranks(2, BATON_PROGRESS_CALLS);
}

static void
teardown(void)
{
	close_ranks();
	batoni_clock_set(NULL);
}

static baton_request
barrier(int rank, int64_t timeout_ns)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request;

	options.timeout_ns = timeout_ns;
	ok(test_barrier(&meeting, comms[rank], streams[rank], &options,
	                &request));
	return request;
}

static void
assert_pending(baton_request request)
{
	ck_assert_int_eq(baton_test(request, NULL), BATON_PENDING);
}

static void
assert_ends(baton_request *request, enum baton_status status)
{
	ck_assert_int_eq(baton_test(*request, NULL), status);
	ck_assert_int_eq(baton_finish(request, 0, NULL), status);
}

/* The line of the communicator's dump that has both in it. */
static void
assert_dumped(struct baton_comm *comm, const char *what, const char *also)
{
	FILE *file = tmpfile();
	char *line, *rest = text;
	size_t n;

	ck_assert_ptr_nonnull(file);
	ok(baton_comm_dump(comm, fileno(file)));
	rewind(file);
	n = fread(text, 1, sizeof(text) - 1, file);
	text[n] = '\0';
	fclose(file);
	while ((line = strsep(&rest, "\n")))
		if (strstr(line, what) && strstr(line, also))
			return;
	ck_abort_msg("no line with \"%s\" and \"%s\"", what, also);
}

START_TEST(it_ends_when_all_ranks_are_there)
{
	baton_request requests[RANKS];

	close_ranks();
	for (int ranks = 2; ranks <= RANKS; ranks++) {
		open_ranks(ranks, BATON_PROGRESS_CALLS);
		for (int last = 0; last < ranks; last++) {
			for (int i = 0; i < ranks; i++)
				if (i != last)
					requests[i] = barrier(i, 0);
			for (int i = 0; i < ranks; i++)
				if (i != last)
					assert_pending(requests[i]);
			requests[last] = barrier(last, 0);
			for (int i = 0; i < ranks; i++)
				assert_ends(&requests[i], BATON_OK);
		}
		if (ranks < RANKS)
			close_ranks();
	}
}
END_TEST

START_TEST(work_behind_it_waits_for_the_other_ranks)
{
	baton_request first = barrier(0, 0), second, send, recv;
	int sent = 7, got = 0;

	ok(baton_send(&sent, 1, BATON_INT32, 1, 5, comms[0], streams[0], NULL,
	              &send));
	ok(baton_recv(&got, 1, BATON_INT32, 0, 5, comms[1], beside[1], NULL,
	              &recv));
	assert_pending(send);
	assert_pending(recv);
	assert_dumped(comms[0], "send to peer 1", "its stream to get there");
	ck_assert_int_eq(baton_stream_query(comms[0], streams[0]),
	                 BATON_PENDING);
	second = barrier(1, 0);
	assert_ends(&first, BATON_OK);
	assert_ends(&second, BATON_OK);
	assert_ends(&send, BATON_OK);
	assert_ends(&recv, BATON_OK);
	ck_assert_int_eq(got, 7);
}
END_TEST

START_TEST(it_is_not_there_before_the_work_in_front_of_it)
{
	baton_request recv, send, first, second;
	int sent = 7, got = 0;

	ok(baton_recv(&got, 1, BATON_INT32, 0, 5, comms[1], streams[1], NULL,
	              &recv));
	second = barrier(1, 0);
	first = barrier(0, 0);
	assert_pending(first);
	assert_dumped(comms[0], "meeting", "the barriers of other ranks");
	assert_dumped(comms[1], "meeting", "its stream to get there");
	ok(baton_send(&sent, 1, BATON_INT32, 1, 5, comms[0], beside[0], NULL,
	              &send));
	assert_ends(&send, BATON_OK);
	assert_ends(&recv, BATON_OK);
	assert_ends(&first, BATON_OK);
	assert_ends(&second, BATON_OK);
}
END_TEST

START_TEST(another_stream_waits_for_it)
{
	baton_request first = barrier(0, 0), second, record;

	ok(baton_stream_wait(comms[0], beside[0], first));
	ok(baton_record(comms[0], beside[0], NULL, &record));
	assert_pending(record);
	assert_dumped(comms[0], "stream_wait", "then the meeting in slot");
	second = barrier(1, 0);
	assert_ends(&second, BATON_OK);
	assert_ends(&record, BATON_OK);
	assert_ends(&first, BATON_OK);
}
END_TEST

START_TEST(deadline_counts_from_where_the_stream_gets_there)
{
	baton_request late = barrier(0, 10), next = barrier(0, 10), other;
	char why[256];

	now += 10;
	ck_assert_int_eq(baton_test(late, NULL), BATON_ERR_TIMEOUT);
	ok(baton_request_error(late, why, sizeof(why)));
	ck_assert_msg(strstr(why, "meeting: BATON_ERR_TIMEOUT") == why, "%s",
	              why);
	assert_ends(&late, BATON_ERR_TIMEOUT);
	/* That has let the stream get to the next one. */
	now += 9;
	assert_pending(next);
	other = barrier(1, 10);
	now += 10;
	assert_ends(&next, BATON_OK);
	assert_ends(&other, BATON_OK);
}
END_TEST

/* Two deadlines of a rank pass at once, and what the first one ends lets the other rank arrive. */
START_TEST(one_that_has_met_the_others_has_no_deadline)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request recv, first, second;

	options.timeout_ns = 10;
	ok(baton_recv(NULL, 0, BATON_INT8, 1, 5, comms[0], beside[0], &options,
	              &recv));
	ok(baton_stream_wait(comms[1], streams[1], recv));
	second = barrier(1, 0);
	first = barrier(0, 10);
	assert_pending(first);
	now += 10;
	assert_ends(&first, BATON_OK);
	assert_ends(&second, BATON_OK);
	assert_ends(&recv, BATON_ERR_TIMEOUT);
}
END_TEST

START_TEST(cancel_ends_one_that_waits_and_one_on_its_stream)
{
	baton_request waits = barrier(0, 0), behind = barrier(0, 0);
	baton_request next = barrier(0, 0), other;

	ok(baton_cancel(behind));
	assert_ends(&behind, BATON_ERR_CANCELED);
	assert_pending(waits);
	ok(baton_cancel(waits));
	assert_ends(&waits, BATON_ERR_CANCELED);
	assert_pending(next);
	other = barrier(1, 0);
	assert_ends(&next, BATON_OK);
	ok(baton_cancel(other));
	assert_ends(&other, BATON_OK);
}
END_TEST

START_TEST(abort_ends_one_that_waits_and_one_on_its_stream)
{
	baton_request waits = barrier(0, 0), behind = barrier(0, 0), other;

	ok(baton_comm_abort(comms[0]));
	assert_ends(&waits, BATON_ERR_ABORTED);
	assert_ends(&behind, BATON_ERR_ABORTED);
	ck_assert_int_eq(test_barrier(&meeting, comms[0], streams[0], NULL,
	                              NULL),
	                 BATON_ERR_ABORTED);
	other = barrier(1, 0);
	assert_pending(other);
	ok(baton_comm_abort(comms[1]));
	assert_ends(&other, BATON_ERR_ABORTED);
}
END_TEST

START_TEST(queue_delivers_it)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion done[2];
	baton_request other;

	ok(baton_queue_create(comms[0], 2, &options.queue));
	options.user_data = 77;
	ok(test_barrier(&meeting, comms[0], streams[0], &options, NULL));
	ck_assert_uint_eq(baton_queue_poll(options.queue, done, 2), 0);
	other = barrier(1, 0);
	assert_ends(&other, BATON_OK);
	ck_assert_uint_eq(baton_queue_poll(options.queue, done, 2), 1);
	ck_assert_int_eq(done[0].op, BATONI_KIND_MEETING);
	ck_assert_int_eq(done[0].status, BATON_OK);
	ck_assert_uint_eq(done[0].user_data, 77);
	ck_assert_int_eq(done[0].peer, -1);
	baton_queue_destroy(options.queue);
}
END_TEST

START_TEST(group_refuses_it)
{
	ok(baton_group_begin(comms[0]));
	ck_assert_int_eq(test_barrier(&meeting, comms[0], streams[0], NULL,
	                              NULL),
	                 BATON_ERR_INVALID);
	ck_assert_int_eq(baton_group_end(comms[0]), BATON_ERR_INVALID);
}
END_TEST

/* ---- ranks that are threads ---- */

static atomic_int arrivals;

static void *
rounds(void *arg)
{
	int rank = *(int *)arg;

	for (int round = 1; round <= ROUNDS; round++) {
		baton_request request;

		atomic_fetch_add(&arrivals, 1);
		request = barrier(rank, 0);
		ok(baton_wait(request, -1, NULL));
		ok(baton_finish(&request, -1, NULL));
		ck_assert_int_ge(atomic_load(&arrivals), round * RANKS);
	}
	return NULL;
}

START_TEST(threads_meet_in_it)
{
	pthread_t threads[RANKS];
	int ranks[RANKS];

	close_ranks();
	batoni_clock_set(NULL);
	open_ranks(RANKS, BATON_PROGRESS_AUTO);
	atomic_store(&arrivals, 0);
	for (int i = 0; i < RANKS; i++) {
		ranks[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, rounds,
		                                &ranks[i]),
		                 0);
	}
	for (int i = 0; i < RANKS; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		it_ends_when_all_ranks_are_there,
		work_behind_it_waits_for_the_other_ranks,
		it_is_not_there_before_the_work_in_front_of_it,
		another_stream_waits_for_it,
		deadline_counts_from_where_the_stream_gets_there,
		one_that_has_met_the_others_has_no_deadline,
		cancel_ends_one_that_waits_and_one_on_its_stream,
		abort_ends_one_that_waits_and_one_on_its_stream,
		queue_delivers_it,
		group_refuses_it,
		threads_meet_in_it,
	};

	return RUN_TESTS_WITH("barrier_kind", tests, setup, teardown);
}
