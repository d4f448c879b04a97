/* SPDX-License-Identifier: BSD-3-Clause */
/* Waits for any of several counters, and for a value of a counter. */
#include <string.h>

#include "harness_onesided.h"

static baton_request
wait_any(struct conform *c, size_t n, const struct baton_wait_signal_desc *descs,
         int *index_p, baton_stream stream, const struct baton_op_options *options)
{
	baton_request request = 0;

	CHECK_OK(c, baton_wait_signal_any(n, descs, index_p, c->comm, stream,
	                                  options, &request));
	return request;
}

static baton_request
wait_count(struct conform *c, int peer, int index, uint64_t value,
           baton_stream stream, const struct baton_op_options *options)
{
	baton_request request = 0;

	CHECK_OK(c, baton_wait_signal_count(peer, index, 0, value, c->comm,
	                                    stream, options, &request));
	return request;
}

struct look {
	const int *index_p;
	int seen;
};

static void
look_fn(void *arg)
{
	struct look *look = arg;

	look->seen = *look->index_p;
}

/* On the stream and by the request. */
static void
a_wait_for_any_says_which(struct conform *c)
{
	const struct baton_wait_signal_desc descs[] = {
		{ 1, c->rank, 0, 0 }, { 2, 0, 1, 1 }, { 1, 0, 2, 0 }
	};
	struct baton_completion done = { 0 };
	struct look look = { 0 };
	baton_request request = 0;
	int index = -7;

	look.index_p = &index;
	if (c->rank == 1) {
		request = wait_any(c, 3, descs, &index, c->stream, NULL);
		CHECK_OK(c, baton_stream_launch(c->comm, c->stream, look_fn,
		                                &look));
	}
	conform_sync(c);
	if (c->rank == 0) {
		SIGNAL(c, 1, 1, 1);
		SIGNAL(c, 1, 1, 1);
	}
	if (c->rank == 1) {
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, index, 1);
		CHECK_EQ(c, done.op, BATON_OPERATION_WAIT_ANY);
		CHECK_EQ(c, done.peer, 0);
		CHECK_EQ(c, done.tag, -1);
		CHECK_EQ(c, done.bytes, 0);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
		CHECK_EQ(c, look.seen, 1);
		/* A signal that came early; no index is asked for. */
		SIGNAL(c, 1, 0, 0);
		COUNTS(c, 1, 0, 0, 1);
		request = wait_any(c, 3, descs, NULL, c->stream, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.peer, 1);
	}
}

/* A worker for each rank: whoever is ready is served, and each of them as often as it says. */
static void
a_rank_serves_whoever_signals(struct conform *c)
{
	enum { ROUNDS = 20 };
	struct baton_wait_signal_desc descs[64];
	baton_request request;
	int served[64] = { 0 }, index = -1;

	for (int i = 0; i < c->size; i++)
		descs[i] = (struct baton_wait_signal_desc){ 1, i, 3, 0 };
	for (int i = 0; i < ROUNDS; i++)
		SIGNAL(c, 0, 3, 0);
	for (int i = 0; i < ROUNDS * c->size && c->rank == 0; i++) {
		request = wait_any(c, (size_t)c->size, descs, &index, c->stream,
		                   NULL);
		FINISH(c, BATON_OK, &request);
		if (!CHECK(c, index >= 0 && index < c->size))
			return;
		served[index]++;
	}
	for (int i = 0; i < c->size && c->rank == 0; i++)
		CHECK_EQ(c, served[i], ROUNDS);
}

/* What it does not use, and all of it where it ends early. */
static void
a_wait_for_any_gives_units_back(struct conform *c)
{
	struct baton_wait_signal_desc descs[] = { { 1, c->rank, 0, 0 },
		                                  { 1, c->rank, 1, 0 } };
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	baton_request any, later;
	int index = -7;

	soon.timeout_ns = 2 * MS;
	soon.flags = BATON_OP_DETACHED;
	any = wait_any(c, 2, descs, &index, c->stream, &conform_detached);
	CHECK_OK(c, baton_cancel(any));
	FINISH(c, BATON_ERR_CANCELED, &any);
	any = wait_any(c, 2, descs, &index, c->stream, &soon);
	FINISH(c, BATON_ERR_TIMEOUT, &any);
	CHECK_EQ(c, index, -7);
	any = wait_any(c, 2, descs, &index, c->stream, &conform_detached);
	later = WAIT(c, c->rank, 1, 0, 0, c->stream, &conform_detached);
	SIGNAL(c, c->rank, 1, 0);
	FINISH(c, BATON_OK, &any);
	CHECK_EQ(c, index, 1);
	CHECK_STATUS(c, BATON_PENDING, baton_test(later, NULL));
	SIGNAL(c, c->rank, 0, 0);
	FINISH(c, BATON_OK, &later);
}

static void
a_wait_for_a_count_takes_no_units(struct conform *c)
{
	int from = conform_previous(c), to = conform_next(c);
	struct baton_completion done = { 0 };
	baton_request request, all;

	request = wait_count(c, from, 0, 3, c->stream, &conform_detached);
	conform_sync(c);
	SIGNAL(c, to, 0, 0);
	SIGNAL(c, to, 0, 0);
	COUNTS(c, from, 0, 0, 2);
	CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
	conform_sync(c);
	SIGNAL(c, to, 0, 0);
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.op, BATON_OPERATION_WAIT_COUNT);
	CHECK_EQ(c, done.peer, from);
	CHECK_EQ(c, done.tag, -1);
	/* All three units are there; and the values that it had. */
	all = WAIT(c, from, 3, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &all);
	for (uint64_t value = 0; value <= 3; value++) {
		request = wait_count(c, from, 0, value, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	}
}

/* Without a request, in a group, from a queue, and in a plan.  Signals to oneself come in the order
 * of the calls. */
static void
such_waits_go_where_others_do(struct conform *c)
{
	int from = c->rank, to = c->rank;
	const struct baton_wait_signal_desc descs[] = { { 1, from, 0, 0 },
		                                        { 1, from, 1, 0 } };
	struct baton_op_options queued = BATON_OP_OPTIONS_INIT;
	struct baton_completion done = { 0 };
	struct baton_plan *plan = NULL;
	int64_t begin = conform_begin();
	baton_request requests[2] = { 0 };
	int index = -1;

	CHECK_OK(c, baton_queue_create(c->comm, 4, &queued.queue));
	SIGNAL(c, to, 1, 0);
	CHECK_OK(c, baton_wait_signal_any(2, descs, &index, c->comm, c->stream,
	                                  &queued, NULL));
	while (baton_queue_poll(queued.queue, &done, 1) == 0 && STILL(c, begin))
		;
	CHECK_STATUS(c, BATON_OK, done.status);
	CHECK_EQ(c, index, 1);
	SIGNAL(c, to, 0, 0);
	CHECK_OK(c, baton_wait_signal_any(2, descs, &index, c->comm, c->stream,
	                                  NULL, NULL));
	CHECK_OK(c, baton_wait_signal_count(from, 1, 0, 1, c->comm, c->stream,
	                                    NULL, NULL));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_EQ(c, index, 0);
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_signal(to, 1, 0, 0, c->comm, c->stream, NULL, NULL));
	requests[0] = wait_any(c, 2, descs, &index, c->stream, NULL);
	requests[1] = wait_count(c, from, 1, 2, c->stream, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
	CHECK_EQ(c, index, 1);
	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_OK(c, baton_signal(to, 0, 0, 0, c->comm, c->stream, NULL, NULL));
	CHECK_OK(c, baton_wait_signal_any(2, descs, &index, c->comm, c->stream,
	                                  NULL, NULL));
	CHECK_OK(c, baton_wait_signal_count(from, 0, 0, 2, c->comm, c->stream,
	                                    NULL, NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	for (int round = 0; round < 3; round++) {
		index = -1;
		CHECK_OK(c, baton_plan_launch(plan, NULL, &requests[0]));
		FINISH(c, BATON_OK, &requests[0]);
		CHECK_EQ(c, index, 0);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
	baton_queue_destroy(queued.queue);
}

/* By one and by many, in any mixture. */
static void
a_signal_may_add_many(struct conform *c)
{
	int from = conform_previous(c), to = conform_next(c);
	struct baton_completion done = { 0 };
	struct baton_plan *plan = NULL;
	baton_request request = 0, wait = 0;

	wait = WAIT(c, from, 6, 0, 1, c->stream, &conform_detached);
	SIGNAL(c, to, 0, 1);
	CHECK_OK(c, baton_signal_add(to, 0, 1, 5, 0, c->comm, c->stream, NULL,
	                             &request));
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.op, BATON_OPERATION_SIGNAL);
	CHECK_EQ(c, done.peer, to);
	FINISH(c, BATON_OK, &wait);
	COUNTS(c, from, 0, 1, 6);
	conform_sync(c);
	/* Behind one another, without a request, in a group and in a plan. */
	CHECK_OK(c, baton_signal_add(to, 0, 1, UINT32_MAX, 0, c->comm, c->stream,
	                             &conform_detached, NULL));
	CHECK_OK(c, baton_signal_add(to, 0, 1, 1, 0, c->comm, c->stream, NULL,
	                             NULL));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_signal_add(to, 0, 1, 7, 0, c->comm, c->stream, NULL,
	                             NULL));
	CHECK_OK(c, baton_group_end(c->comm));
	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_OK(c, baton_signal_add(to, 0, 1, 10, 0, c->comm, c->stream, NULL,
	                             NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	for (int i = 0; i < 2; i++) {
		CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
		FINISH(c, BATON_OK, &request);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
	SIGNAL(c, to, 0, 1);
	COUNTS(c, from, 0, 1, UINT64_C(6) + UINT32_MAX + 1 + 7 + 20 + 1);
	request = 99;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_signal_add(to, 0, 1, 0, 0, c->comm, c->stream, NULL,
	                               &request),
	              "units is 0");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_signal_add(to, 0, 1, 2, 4, c->comm, c->stream, NULL,
	                               &request),
	              "flags");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_signal_add(c->size, 0, 1, 2, 0, c->comm, c->stream,
	                               NULL, &request),
	              "peer");
	CHECK_EQ(c, request, 99);
}

static void
an_abort_ends_such_waits(struct conform *c)
{
	const struct baton_wait_signal_desc descs[] = { { 1, 0, 0, 0 },
		                                        { 1, c->rank, 1, 0 } };
	baton_request requests[3] = { 0 };
	int index = -7;

	requests[0] = wait_any(c, 2, descs, &index, c->stream,
	                       &conform_detached);
	requests[1] = wait_count(c, c->rank, 1, 1, c->stream, NULL);
	requests[2] = wait_any(c, 2, descs, &index, c->stream, NULL);
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int i = 0; i < 3; i++)
		FINISH(c, BATON_ERR_ABORTED, &requests[i]);
	CHECK_EQ(c, index, -7);
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_wait_signal_any(2, descs, &index, c->comm, c->stream,
	                                   NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_ABORTED,
	             baton_wait_signal_count(0, 0, 0, 1, c->comm, c->stream,
	                                     NULL, NULL));
}

static void
bad_waits_of_these_kinds_are_refused(struct conform *c)
{
	struct baton_wait_signal_desc descs[] = { { 1, 0, 0, 0 },
		                                  { 1, c->rank, 1, 0 },
		                                  { 2, 0, 0, 0 } };
	baton_request request = 99;
	int index = -7;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal_any(3, descs, &index, c->comm, c->stream,
	                                    NULL, &request),
	              "descs[2]");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal_any(0, descs, &index, c->comm, c->stream,
	                                    NULL, &request),
	              "desc_count");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal_any(1, NULL, &index, c->comm, c->stream,
	                                    NULL, &request),
	              "descs NULL");
	descs[1].op_count = 0;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal_any(2, descs, &index, c->comm, c->stream,
	                                    NULL, &request),
	              "descs[1].op_count");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal_count(c->size, 0, 0, 1, c->comm,
	                                      c->stream, NULL, &request),
	              "peer");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_wait_signal_count(0, -1, 0, 1, c->comm, c->stream,
	                                      NULL, &request),
	              "signal_index");
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_wait_signal_any(1, descs, &index, NULL, c->stream,
	                                   NULL, &request));
	CHECK_STATUS(c, BATON_ERR_INVALID,
	             baton_wait_signal_count(0, 0, 0, 1, NULL, c->stream, NULL,
	                                     &request));
	CHECK(c, request == 99 && index == -7);
	/* The refused ones were given nothing. */
	SIGNAL(c, c->rank, 1, 0);
	request = WAIT(c, c->rank, 1, 1, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
}

const struct conform_case conform_waits[] = {
	{ CASE(a_wait_for_any_says_which), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_rank_serves_whoever_signals), .needs = BATON_CAP_SIGNALS },
	{ CASE(a_wait_for_any_gives_units_back),
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_CANCEL,
	  .flags = CONFORM_ALONE },
	{ CASE(a_wait_for_a_count_takes_no_units), .ranks_min = 2,
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(such_waits_go_where_others_do), .needs = BATON_CAP_SIGNALS },
	{ CASE(a_signal_may_add_many), .needs = BATON_CAP_SIGNALS },
	{ CASE(an_abort_ends_such_waits), .needs = BATON_CAP_SIGNALS },
	{ CASE(bad_waits_of_these_kinds_are_refused),
	  .needs = BATON_CAP_SIGNALS },
	CASES_END,
};
