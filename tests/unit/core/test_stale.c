/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One thread enqueues and releases, another uses the same handles meanwhile: by every
 * call that takes one.  Each answer must be about the handle that was asked for, or
 * STALE.  The pool is so small that records are used again at once.  Mostly for
 * ThreadSanitizer: it sees a reader that meets another operation's fields even when
 * the moment is not hit.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "baton.h"
#include "run_tests.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define ROUNDS 3000
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
#define ROUNDS 3000
#endif
#endif
#ifndef ROUNDS
#define ROUNDS 30000
#endif

struct published {
	baton_request request;
	uint64_t user_data;
};

static struct baton_comm *comm, *other;
static baton_stream in_order, out_order, joining;
static struct published *all;
static atomic_int count;
static unsigned flags;
static struct baton_plan *plan; /* empty; launched between rounds, unless NULL */

static void
setup(void)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;

	/* One each of receive, send and join. */
	options.requests_max = 3;
	ck_assert_int_eq(baton_comm_create_local(1, &options, &comm), BATON_OK);
	ck_assert_int_eq(baton_comm_create_local(1, NULL, &other), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comm, &in_order), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comm, &out_order), BATON_OK);
	ck_assert_int_eq(baton_stream_create(comm, &joining), BATON_OK);
	all = calloc(ROUNDS, sizeof(*all));
	ck_assert_ptr_nonnull(all);
	atomic_store(&count, 0);
	flags = 0;
}

static void
teardown(void)
{
	baton_stream streams[] = {in_order, out_order, joining};

	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(baton_stream_synchronize(comm, streams[i]),
		                 BATON_OK);
		ck_assert_int_eq(baton_stream_destroy(comm, streams[i]),
		                 BATON_OK);
	}
	ck_assert_int_eq(baton_comm_destroy(comm), BATON_OK);
	ck_assert_int_eq(baton_comm_destroy(other), BATON_OK);
	free(all);
}

/* A receive that this thread's own send ends, published in between or after. */
static void
one_round(int i)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	enum baton_status status;
	int in = -1;

	options.user_data = (uint64_t)i + 1000;
	options.flags = flags;
	do
		status = baton_recv(&in, 1, BATON_INT32, 0, i % 5, comm, in_order,
		                    &options, &all[i].request);
	while (status == BATON_ERR_AGAIN);
	ck_assert_int_eq(status, BATON_OK);
	all[i].user_data = options.user_data;
	if (i % 2)
		atomic_store_explicit(&count, i + 1, memory_order_release);
	do
		status = baton_send(&i, 1, BATON_INT32, 0, i % 5, comm, out_order,
		                    NULL, NULL);
	while (status == BATON_ERR_AGAIN);
	ck_assert_int_eq(status, BATON_OK);
	if (i % 2 == 0)
		atomic_store_explicit(&count, i + 1, memory_order_release);
	/* The receive's buffer is on this stack. */
	while ((status = baton_test(all[i].request, NULL)) == BATON_PENDING)
		;
	ck_assert(status == BATON_OK || status == BATON_ERR_STALE);
	if (status == BATON_OK)
		ck_assert_int_eq(in, i);
	(void)baton_release(&(baton_request){all[i].request});
	if (plan)
		(void)baton_plan_launch(plan, NULL, NULL);
}

static void *
enqueue_and_release(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		one_round(i);
	return arg;
}

static void
check_published(const struct published *p, enum baton_status status, bool may_pend,
                const struct baton_completion *completion)
{
	if (status == BATON_ERR_STALE || (may_pend && status == BATON_PENDING))
		return;
	ck_assert_int_eq(status, BATON_OK);
	if (!completion)
		return;
	ck_assert_uint_eq(completion->request, p->request);
	ck_assert_uint_eq(completion->user_data, p->user_data);
	ck_assert_int_eq(completion->op, BATON_OPERATION_RECV);
	ck_assert_uint_eq(completion->bytes, sizeof(int));
}

static baton_request joined;

static void
ask(const struct published *p, unsigned how)
{
	struct baton_completion completion;
	baton_request request = p->request;
	size_t index, done, indices[1];
	enum baton_status status;
	char text[200];

	switch (how) {
	case 0:
		status = baton_wait(request, -1, &completion);
		check_published(p, status, false, &completion);
		break;
	case 1:
		status = baton_finish(&request, -1, &completion);
		check_published(p, status, false, &completion);
		break;
	case 2:
		status = baton_test(request, &completion);
		check_published(p, status, true, &completion);
		break;
	case 3:
		status = baton_wait_any(&request, 1, -1, &index, &completion);
		check_published(p, status, false, &completion);
		break;
	case 4:
		check_published(p, baton_wait_all(&request, 1, -1), false, NULL);
		break;
	case 5:
		status = baton_test_some(&request, 1, indices, 1, &done);
		check_published(p, status, true, NULL);
		break;
	case 6:
		status = baton_request_error(request, text, sizeof(text));
		check_published(p, status, false, NULL);
		if (status == BATON_OK)
			ck_assert_str_eq(text, "");
		break;
	case 7:
		/* Once: the record of a join is missing until the receive ends.
		 * Often there is none, and the join is given up again. */
		if (joined == request)
			break;
		joined = request;
		status = baton_stream_wait(comm, joining, request);
		if (status != BATON_ERR_AGAIN)
			check_published(p, status, false, NULL);
		break;
	case 8:
		status = baton_wait(request, 0, &completion);
		check_published(p, status, true, &completion);
		break;
	default:
		ck_assert_int_eq(baton_group_begin(other), BATON_OK);
		status = baton_wait_all(&request, 1, 0);
		check_published(p, status, true, NULL);
		ck_assert_int_eq(baton_group_end(other), BATON_OK);
	}
}

static void
use_while_another_releases(void)
{
	pthread_t thread;
	uint32_t random = 1;

	ck_assert_int_eq(
		pthread_create(&thread, NULL, enqueue_and_release, NULL), 0);
	for (;;) {
		int n = atomic_load_explicit(&count, memory_order_acquire);

		random = random * 1664525u + 1013904223u;
		if (n > 0)
			ask(&all[n - 1], (random >> 16) % 10);
		if (n == ROUNDS)
			break;
	}
	pthread_join(thread, NULL);
}

START_TEST(an_answer_is_about_the_handle_that_was_asked_for)
{
	use_while_another_releases();
}
END_TEST

START_TEST(or_about_the_handle_of_a_detached_operation)
{
	flags = BATON_OP_DETACHED;
	use_while_another_releases();
}
END_TEST

/* The launch's record is another kind of one: it is written in other ways. */
START_TEST(or_of_one_whose_slot_a_launch_takes)
{
	ck_assert_int_eq(baton_plan_begin(comm), BATON_OK);
	ck_assert_int_eq(baton_plan_end(comm, &plan), BATON_OK);
	use_while_another_releases();
	baton_plan_destroy(plan);
	plan = NULL;
}
END_TEST

int
main(void)
{
	const TTest *const tests[] = {
		an_answer_is_about_the_handle_that_was_asked_for,
		or_about_the_handle_of_a_detached_operation,
		or_of_one_whose_slot_a_launch_takes,
	};

	return RUN_TESTS_WITH("stale", tests, setup, teardown);
}
