/* SPDX-License-Identifier: BSD-3-Clause */
/* Barriers of all ranks, in stream order. */
#include <string.h>

#include "harness.h"

static baton_request
barrier_on(struct conform *c, baton_stream stream,
           const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_barrier(c->comm, stream, options, &request));
	CHECK(c, request != BATON_REQUEST_NULL);
	return request;
}

static baton_request
barrier(struct conform *c)
{
	return barrier_on(c, c->stream, NULL);
}

/* What the others do behind the sync cannot have been seen before it. */
static void
a_barrier_ends_when_all_ranks_have_come(struct conform *c)
{
	for (int last = 0; last < c->size; last++) {
		struct baton_completion done = {0};
		baton_request request = 0;

		if (c->rank != last) {
			request = barrier(c);
			CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
		}
		if (c->size > 1 && c->rank != last)
			CHECK_STATUS(c, BATON_PENDING,
			             baton_wait(request, MS, NULL));
		conform_sync(c);
		if (c->rank == last)
			request = barrier(c);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.op, BATON_OPERATION_BARRIER);
		CHECK_EQ(c, done.peer, -1);
		CHECK_EQ(c, done.tag, -1);
		CHECK_EQ(c, done.bytes, 0);
		CHECK_EQ(c, done.flags, 0);
	}
}

static void
work_behind_a_barrier_starts_when_all_have_come(struct conform *c)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	baton_request behind = 0, request = 0;
	_Atomic int ran = 0;

	detached.flags = BATON_OP_DETACHED;
	if (c->rank == 0) {
		CHECK_OK(c, baton_barrier(c->comm, c->stream, NULL, NULL));
		CHECK_OK(c, baton_stream_launch(c->comm, c->stream,
		                                conform_count_fn, &ran));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &behind));
		CHECK_STATUS(c, BATON_PENDING, baton_wait(behind, MS, NULL));
		CHECK_EQ(c, ran, 0);
	}
	conform_sync(c);
	if (c->rank != 0)
		CHECK_OK(c, baton_barrier(c->comm, c->stream, NULL, NULL));
	else
		FINISH(c, BATON_OK, &behind);
	CHECK_EQ(c, ran, c->rank == 0);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* A detached one holds up nothing behind it. */
	if (c->rank == 0) {
		request = barrier_on(c, c->stream, &detached);
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &behind));
		FINISH(c, BATON_OK, &behind);
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	}
	conform_sync(c);
	if (c->rank != 0)
		request = barrier(c);
	FINISH(c, BATON_OK, &request);
}

/* The second call waits for the first, whose stream has not come to it. */
static void
barriers_are_in_the_order_of_the_calls(struct conform *c)
{
	baton_stream other = conform_stream(c);
	baton_request first, second;

	if (c->rank == 0)
		conform_gate_launch(c, 0, other);
	first = barrier_on(c, other, NULL);
	second = barrier(c);
	CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
	conform_sync(c);
	CHECK_STATUS(c, BATON_PENDING, baton_wait(second, MS, NULL));
	CHECK_STATUS(c, BATON_PENDING, baton_test(first, NULL));
	conform_sync(c);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &first);
	FINISH(c, BATON_OK, &second);
}

static void
one_that_has_not_begun_leaves_its_place(struct conform *c)
{
	baton_stream other = conform_stream(c);
	baton_request first = 0, second;

	if (c->rank == 0) {
		struct baton_completion done = {0};

		conform_gate_launch(c, 0, other);
		first = barrier_on(c, other, NULL);
		second = barrier(c);
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		CHECK_OK(c, baton_cancel(first));
		FINISH_AS(c, BATON_ERR_CANCELED, &first, &done);
		CHECK_EQ(c, done.flags, 0);
	} else {
		second = barrier(c);
	}
	FINISH(c, BATON_OK, &second);
	if (c->rank == 0)
		conform_gate_open(c, 0);
	second = barrier(c);
	FINISH(c, BATON_OK, &second);
}

/* The first rank has come, whatever becomes of its request. */
static void
one_that_has_begun_ends_early_for_its_rank_alone(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	struct baton_completion done = {0};
	baton_request request = 0, behind = 0;
	bool begun = false;
	char why[300] = "";

	soon.timeout_ns = MS;
	for (int round = 0; round < 2; round++) {
		enum baton_status how =
			round == 0 ? BATON_ERR_CANCELED : BATON_ERR_TIMEOUT;

		if (c->rank == 0) {
			request = barrier_on(c, c->stream, round ? &soon : NULL);
			CHECK_OK(c, baton_record(c->comm, c->stream, NULL,
			                         &behind));
			if (round == 0)
				CHECK_OK(c, baton_cancel(request));
			CHECK_STATUS(c, how,
			             baton_wait(request, conform_patience(c),
			                        &done));
			CHECK_OK(c, baton_request_error(request, why,
			                                sizeof(why)));
			CHECK(c, strstr(why, "barrier"));
			/* On an asynchronous device its stream may not have come to it. */
			begun = done.flags & BATON_COMPLETION_BEGUN;
			CHECK_EQ(c, done.flags & BATON_COMPLETION_LENT,
			         begun ? BATON_COMPLETION_LENT : 0);
			FINISH(c, BATON_OK, &behind);
		}
		conform_sync(c);
		if (c->rank != 0 || !begun) {
			if (c->rank == 0)
				CHECK_OK(c, baton_release(&request));
			request = barrier(c);
			FINISH(c, BATON_OK, &request);
		} else {
			int64_t t = conform_begin();

			while (baton_test(request, &done) != BATON_PENDING &&
			       done.flags & BATON_COMPLETION_LENT && STILL(c, t))
				;
			FINISH_AS(c, how, &request, &done);
			CHECK_EQ(c, done.flags, BATON_COMPLETION_BEGUN);
		}
		request = barrier(c);
		FINISH(c, BATON_OK, &request);
	}
}

/* A group, with messages of the same ranks on tag 0 and the largest one. */
static void
a_barrier_in_a_group_meets_no_message(struct conform *c)
{
	int tags[2] = {0, c->info.tag_max}, in[2] = {0}, out[2] = {7, 9};
	baton_request requests[5] = {0};

	CHECK_OK(c, baton_group_begin(c->comm));
	requests[0] = barrier(c);
	for (int i = 0; i < 2; i++) {
		requests[1 + i] = SEND(c, &out[i], sizeof(int), conform_next(c),
		                       tags[i], c->stream, NULL);
		requests[3 + i] = RECV(c, &in[i], sizeof(int),
		                       conform_previous(c), tags[i], c->stream,
		                       NULL);
	}
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 5);
	CHECK_EQ(c, in[0], 7);
	CHECK_EQ(c, in[1], 9);
}

static void
a_plan_has_barriers(struct conform *c)
{
	struct baton_plan *plan = NULL;
	baton_request request;

	CHECK_OK(c, baton_plan_begin(c->comm));
	for (int i = 0; i < 3; i++)
		CHECK_OK(c, baton_barrier(c->comm, c->stream, NULL, NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	for (int round = 0; round < 3; round++) {
		CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
		FINISH(c, BATON_OK, &request);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
many_barriers_are_outstanding(struct conform *c)
{
	enum { N = 64 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_queue *queue = NULL;
	uint64_t next = 0;
	int64_t t;

	CHECK_OK(c, baton_queue_create(c->comm, N, &queue));
	options.queue = queue;
	options.flags = BATON_OP_DETACHED;
	for (uint64_t i = 0; i < N; i++) {
		options.user_data = i;
		CHECK_OK(c, baton_barrier(c->comm, c->stream, &options, NULL));
	}
	t = conform_begin();
	while (next < N && STILL(c, t)) {
		struct baton_completion done[N];
		size_t n = baton_queue_poll(queue, done, N);

		for (size_t i = 0; i < n; i++, next++) {
			CHECK_STATUS(c, BATON_OK, done[i].status);
			CHECK_EQ(c, done[i].user_data, next);
		}
	}
	baton_queue_destroy(queue);
}

static void
an_abort_ends_barriers(struct conform *c)
{
	baton_request first = 0, second = 0;

	if (c->rank == 0) {
		first = barrier(c);
		second = barrier(c);
		CHECK_OK(c, baton_comm_abort(c->comm));
		FINISH(c, BATON_ERR_ABORTED, &first);
		FINISH(c, BATON_ERR_ABORTED, &second);
		CHECK_REFUSED(c, BATON_ERR_ABORTED,
		              baton_barrier(c->comm, c->stream, NULL, &first),
		              "baton_barrier broken");
	}
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(c->comm));
}

static void
bad_arguments_are_refused(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	baton_request request = 99;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_barrier(NULL, c->stream, NULL, &request), "comm");
	if (!(c->info.capabilities & BATON_CAP_SIGNALS)) {
		CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
		              baton_barrier(c->comm, c->stream, NULL, &request),
		              "baton_barrier BATON_CAP_SIGNALS");
		CHECK(c, request == 99);
		return;
	}
	options.flags = 64;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_barrier(c->comm, c->stream, &options, &request),
	              "baton_barrier flags");
	CHECK(c, request == 99);
	request = barrier(c);
	FINISH(c, BATON_OK, &request);
}

#define ON .needs = BATON_CAP_SIGNALS

const struct conform_case conform_barrier[] = {
	{CASE(a_barrier_ends_when_all_ranks_have_come), ON, .ranks_min = 2},
	{CASE(work_behind_a_barrier_starts_when_all_have_come), ON,
	  .ranks_min = 2},
	{CASE(barriers_are_in_the_order_of_the_calls), ON, .ranks_min = 2,
	  .streams = 2},
	{CASE(one_that_has_not_begun_leaves_its_place), ON, .ranks_min = 2,
	  .streams = 2},
	{CASE(one_that_has_begun_ends_early_for_its_rank_alone), ON,
	  .ranks_min = 2},
	{CASE(a_barrier_in_a_group_meets_no_message),
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_TAGS},
	{CASE(a_plan_has_barriers), ON},
	{CASE(many_barriers_are_outstanding), ON},
	{CASE(an_abort_ends_barriers), ON, .ranks_min = 2},
	{CASE(bad_arguments_are_refused)},
	CASES_END,
};
