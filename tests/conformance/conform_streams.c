/* SPDX-License-Identifier: BSD-3-Clause */
/* Streams: launched functions, records and joins (guarantees 2 and 9). */
#include <string.h>

#include "harness.h"

/* Written by launched functions: where each ran in the order of all. */
struct step {
	_Atomic int *clock;
	int at;
	int runs;
};

static void
step_fn(void *arg)
{
	struct step *step = arg;

	step->at = atomic_fetch_add(step->clock, 1) + 1;
	step->runs++;
}

static void
launch_step(struct conform *c, baton_stream stream, struct step *step,
            _Atomic int *clock)
{
	memset(step, 0, sizeof(*step));
	step->clock = clock;
	CHECK_OK(c, baton_stream_launch(c->comm, stream, step_fn, step));
}

/* ---- launch ------------------------------------------------------------- */

static void
launched_functions_run_once_and_in_order(struct conform *c)
{
	enum { N = 300 };
	struct step *steps = conform_alloc(c, N * sizeof(*steps));
	_Atomic int clock = 0;

	for (int i = 0; i < N; i++)
		launch_step(c, c->stream, &steps[i], &clock);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	for (int i = 0; i < N; i++) {
		CHECK_EQ(c, steps[i].at, i + 1);
		CHECK_EQ(c, steps[i].runs, 1);
	}
}

/* The stream goes from function to signal to wait to function by itself. */
static void
functions_alternate_with_signals(struct conform *c)
{
	enum { N = 300 };
	const struct baton_wait_signal_desc desc = {1, c->rank, 1, 0};
	struct step *steps = conform_alloc(c, N * sizeof(*steps));
	_Atomic int clock = 0;

	for (int i = 0; i < N; i++) {
		launch_step(c, c->stream, &steps[i], &clock);
		CHECK_OK(c, baton_signal(c->rank, 1, 0, 0, c->comm, c->stream,
		                         NULL, NULL));
		CHECK_OK(c, baton_wait_signal(1, &desc, c->comm, c->stream,
		                              NULL, NULL));
		if (i % 50 == 49)
			CHECK_OK(c, baton_stream_synchronize(c->comm,
			                                     c->stream));
	}
	for (int i = 0; i < N; i++)
		CHECK_EQ(c, steps[i].at, i + 1);
}

static void
a_blocked_function_blocks_its_stream_alone(struct conform *c)
{
	baton_stream other = conform_stream(c);
	struct step behind, beside;
	_Atomic int clock = 0;

	conform_gate_launch(c, 0, c->stream);
	launch_step(c, c->stream, &behind, &clock);
	launch_step(c, other, &beside, &clock);
	CHECK_OK(c, baton_stream_synchronize(c->comm, other));
	CHECK_EQ(c, beside.at, 1);
	CHECK_STATUS(c, BATON_PENDING, baton_stream_query(c->comm, c->stream));
	conform_gate_open(c, 0);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_EQ(c, behind.at, 2);
	CHECK_OK(c, baton_stream_query(c->comm, c->stream));
}

/* Every call from a launched function is refused, and none hangs. */
struct inside {
	struct conform *c;
	struct baton_queue *queue;
	baton_request ended;
	struct baton_comm *made;
	enum baton_status status[24];
	size_t polled, progressed;
	char text[200];
	int n;
};

static void
call_from_inside(void *arg)
{
	struct inside *in = arg;
	struct baton_comm *comm = in->c->comm;
	baton_stream stream = in->c->stream, made = NULL;
	baton_request request = in->ended, new = 0;
	struct baton_queue *queue = NULL;
	struct baton_completion done;
	size_t index = 0;
	int value = 0, n = 0;

	in->status[n++] = baton_send(&value, 1, BATON_INT32, 0, 0, comm, stream,
	                             NULL, &new);
	in->status[n++] = baton_recv(&value, 1, BATON_INT32, 0, 0, comm, stream,
	                             NULL, &new);
	in->status[n++] = baton_record(comm, stream, NULL, &new);
	in->status[n++] = baton_stream_launch(comm, stream, call_from_inside,
	                                      NULL);
	in->status[n++] = baton_stream_synchronize(comm, stream);
	in->status[n++] = baton_stream_query(comm, stream);
	in->status[n++] = baton_stream_wait(comm, stream, request);
	in->status[n++] = baton_stream_create(comm, &made);
	in->status[n++] = baton_stream_destroy(comm, stream);
	in->status[n++] = baton_group_begin(comm);
	in->status[n++] = baton_group_end(comm);
	in->status[n++] = baton_test(request, &done);
	in->status[n++] = baton_wait(request, -1, &done);
	in->status[n++] = baton_finish(&request, -1, &done);
	in->status[n++] = baton_wait_any(&request, 1, -1, &index, &done);
	in->status[n++] = baton_wait_all(&request, 1, -1);
	in->status[n++] = baton_test_some(&request, 1, &index, 1, &index);
	in->status[n++] = baton_cancel(request);
	in->status[n++] = baton_queue_create(comm, 4, &queue);
	in->status[n++] = baton_queue_arm(in->queue);
	in->status[n++] = baton_comm_abort(comm);
	in->status[n++] = baton_comm_destroy(comm);
	in->status[n++] = baton_comm_create_local(1, NULL, &in->made);
	strncpy(in->text, baton_last_error(), sizeof(in->text) - 1);
	in->polled = baton_queue_poll(in->queue, &done, 1);
	in->progressed = baton_progress(comm);
	in->n = n;
}

static void
calls_from_launched_functions_are_refused(struct conform *c)
{
	struct inside in = { .c = c };

	CHECK_OK(c, baton_queue_create(c->comm, 4, &in.queue));
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &in.ended));
	CHECK_OK(c, baton_wait(in.ended, conform_patience(c), NULL));
	CHECK_OK(c, baton_stream_launch(c->comm, c->stream, call_from_inside,
	                                &in));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_EQ(c, in.n, 23);
	for (int i = 0; i < in.n; i++)
		if (!CHECK_STATUS(c, BATON_ERR_INVALID, in.status[i]))
			CHECK_EQ(c, i, -1); /* says which */
	CHECK(c, strstr(in.text, "launch") != NULL);
	CHECK_EQ(c, in.polled, 0);
	CHECK_EQ(c, in.progressed, 0);
	CHECK(c, in.made == NULL);
	CHECK_OK(c, baton_release(&in.ended));
	baton_queue_destroy(in.queue);
	conform_sync(c);
	conform_sound(c);
}

/* ---- record ------------------------------------------------------------- */

static void
a_record_ends_when_its_stream_gets_there(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion done = { 0 };
	baton_request before = 0, after = 0;

	options.user_data = 77;
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &before));
	conform_gate_launch(c, 0, c->stream);
	CHECK_OK(c, baton_record(c->comm, c->stream, &options, &after));
	FINISH(c, BATON_OK, &before);
	conform_gate_reached(c, 0);
	CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	conform_gate_open(c, 0);
	FINISH_AS(c, BATON_OK, &after, &done);
	CHECK_EQ(c, done.op, BATON_OPERATION_RECORD);
	CHECK_EQ(c, done.user_data, 77);
	CHECK_EQ(c, done.peer, -1);
	CHECK_EQ(c, done.tag, -1);
	CHECK_EQ(c, done.bytes, 0);
}

/* ---- joins -------------------------------------------------------------- */

static void
a_stream_waits_for_a_request_of_another(struct conform *c)
{
	baton_stream other = conform_stream(c);
	baton_request first = 0, after = 0;
	struct step a, b;
	_Atomic int clock = 0;

	conform_gate_launch(c, 0, c->stream);
	launch_step(c, c->stream, &a, &clock);
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &first));
	CHECK_OK(c, baton_stream_wait(c->comm, other, first));
	/* The handle may go at once. */
	CHECK_OK(c, baton_release(&first));
	launch_step(c, other, &b, &clock);
	CHECK_OK(c, baton_record(c->comm, other, NULL, &after));
	CHECK_STATUS(c, BATON_PENDING, baton_stream_query(c->comm, other));
	CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &after);
	CHECK_EQ(c, a.at, 1);
	CHECK_EQ(c, b.at, 2);
}

static void
a_join_of_what_has_ended_passes(struct conform *c)
{
	baton_request request = 0, after = 0;

	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &request));
	CHECK_OK(c, baton_wait(request, conform_patience(c), NULL));
	for (int i = 0; i < 50; i++)
		CHECK_OK(c, baton_stream_wait(c->comm, c->stream, request));
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
	FINISH(c, BATON_OK, &after);
	CHECK_OK(c, baton_release(&request));
}

/* The last stream of a chain runs after the first, whatever the lengths. */
static void
joins_make_chains_and_diamonds(struct conform *c)
{
	enum { N = 12 };
	baton_stream streams[N];
	baton_request done = 0, left = 0, right = 0;
	struct step steps[N], join;
	_Atomic int clock = 0;

	for (int i = 0; i < N; i++)
		streams[i] = conform_stream(c);
	conform_gate_launch(c, 0, streams[0]);
	for (int i = 0; i < N; i++) {
		if (i > 0) {
			CHECK_OK(c, baton_stream_wait(c->comm, streams[i],
			                              done));
			CHECK_OK(c, baton_release(&done));
		}
		launch_step(c, streams[i], &steps[i], &clock);
		CHECK_OK(c, baton_record(c->comm, streams[i], NULL, &done));
	}
	CHECK_STATUS(c, BATON_PENDING, baton_test(done, NULL));
	/* A diamond: the first stream again, behind two of the others. */
	CHECK_OK(c, baton_record(c->comm, streams[4], NULL, &left));
	CHECK_OK(c, baton_record(c->comm, streams[7], NULL, &right));
	CHECK_OK(c, baton_stream_wait(c->comm, streams[0], left));
	CHECK_OK(c, baton_stream_wait(c->comm, streams[0], right));
	launch_step(c, streams[0], &join, &clock);
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &done);
	CHECK_OK(c, baton_stream_synchronize(c->comm, streams[0]));
	for (int i = 1; i < N; i++)
		CHECK(c, steps[i].at > steps[i - 1].at);
	CHECK(c, join.at > steps[7].at);
	CHECK_OK(c, baton_release(&left));
	CHECK_OK(c, baton_release(&right));
}

/* One operation, many streams behind it. */
static void
many_streams_may_wait_for_one_request(struct conform *c)
{
	enum { N = 40 };
	baton_stream streams[N];
	struct step steps[N];
	unsigned char data[16] = { 0 };
	baton_request request = 0;
	_Atomic int clock = 0;

	for (int i = 0; i < N; i++)
		streams[i] = conform_stream(c);
	if (c->rank == 1) {
		request = RECV(c, data, 16, 0, 0, c->stream, &conform_detached);
		for (int i = 0; i < N; i++) {
			CHECK_OK(c, baton_stream_wait(c->comm, streams[i],
			                              request));
			launch_step(c, streams[i], &steps[i], &clock);
		}
		CHECK_OK(c, baton_release(&request));
		CHECK_EQ(c, atomic_load(&clock), 0);
	}
	conform_sync(c);
	if (c->rank == 0) {
		request = SEND(c, data, 16, 1, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	}
	for (int i = 0; i < N; i++)
		CHECK_OK(c, baton_stream_synchronize(c->comm, streams[i]));
	CHECK_EQ(c, atomic_load(&clock), c->rank == 1 ? N : 0);
}

static void
a_join_of_what_fails_lets_the_stream_go_on(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	baton_stream other = conform_stream(c);
	baton_request timed, canceled, after = 0;
	unsigned char data[8];

	soon.timeout_ns = 2 * MS;
	soon.flags = BATON_OP_DETACHED;
	timed = RECV(c, data, 8, c->rank, 0, c->stream, &soon);
	canceled = RECV(c, data, 8, c->rank, 0, c->stream, &conform_detached);
	CHECK_OK(c, baton_stream_wait(c->comm, other, timed));
	CHECK_OK(c, baton_stream_wait(c->comm, other, canceled));
	CHECK_OK(c, baton_record(c->comm, other, NULL, &after));
	CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	CHECK_OK(c, baton_cancel(canceled));
	FINISH(c, BATON_OK, &after);
	FINISH(c, BATON_ERR_TIMEOUT, &timed);
	FINISH(c, BATON_ERR_CANCELED, &canceled);
	CHECK_OK(c, baton_stream_synchronize(c->comm, other));
}

/* Streams and requests go across communicators of one device. */
static void
a_join_may_cross_communicators(struct conform *c)
{
	struct baton_comm *second = conform_comm(c, NULL);
	baton_stream other = conform_stream(c);
	baton_request first = 0, after = 0;
	struct step b;
	_Atomic int clock = 0;

	conform_gate_launch(c, 0, c->stream);
	CHECK_OK(c, baton_record(second, c->stream, NULL, &first));
	CHECK_OK(c, baton_stream_wait(c->comm, other, first));
	launch_step(c, other, &b, &clock);
	CHECK_OK(c, baton_record(c->comm, other, NULL, &after));
	CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &after);
	FINISH(c, BATON_OK, &first);
	CHECK_EQ(c, b.at, 1);
	CHECK_OK(c, baton_comm_destroy(second));
}

/* A release before its end: the join still holds, however often the slot could
 * have been used again. */
static void
a_joined_request_keeps_its_slot(struct conform *c)
{
	baton_stream other = conform_stream(c);
	baton_request request = 0, after = 0, next = 0;

	conform_gate_launch(c, 0, c->stream);
	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &request));
	conform_gate_launch(c, 1, other);
	CHECK_OK(c, baton_stream_wait(c->comm, other, request));
	CHECK_OK(c, baton_record(c->comm, other, NULL, &after));
	CHECK_OK(c, baton_release(&request));
	conform_gate_open(c, 0);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	for (int i = 0; i < 100; i++) {
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &next));
		FINISH(c, BATON_OK, &next);
	}
	CHECK_STATUS(c, BATON_PENDING, baton_test(after, NULL));
	conform_gate_open(c, 1);
	FINISH(c, BATON_OK, &after);
}

/* ---- streams as such ---------------------------------------------------- */

static void
a_stream_with_work_is_busy(struct conform *c)
{
	baton_stream stream = NULL;

	CHECK_OK(c, baton_stream_create(c->comm, &stream));
	conform_gate_launch(c, 0, stream);
	CHECK_STATUS(c, BATON_ERR_BUSY, baton_stream_destroy(c->comm, stream));
	conform_gate_open(c, 0);
	CHECK_OK(c, baton_stream_synchronize(c->comm, stream));
	CHECK_OK(c, baton_stream_destroy(c->comm, stream));
}

static void
streams_come_and_go(struct conform *c)
{
	struct step step;
	_Atomic int clock = 0;

	for (int i = 0; i < 200; i++) {
		baton_stream stream = NULL;

		CHECK_OK(c, baton_stream_create(c->comm, &stream));
		if (i % 4 == 0)
			launch_step(c, stream, &step, &clock);
		CHECK_OK(c, baton_stream_synchronize(c->comm, stream));
		CHECK_OK(c, baton_stream_destroy(c->comm, stream));
	}
	CHECK_EQ(c, atomic_load(&clock), 50);
}

/* Every rank in turn: it is one stream for all of the process. */
static void
the_default_stream_is_a_stream(struct conform *c)
{
	unsigned char out[40], in[40] = { 0 };
	struct step step;
	_Atomic int clock = 0;

	conform_fill(out, sizeof(out), 1);
	for (int turn = 0; turn < c->size; turn++) {
		baton_request requests[2] = { 0 };

		conform_sync(c);
		if (turn != c->rank)
			continue;
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, out, 40, c->rank, 0, NULL, NULL);
		requests[1] = RECV(c, in, 40, c->rank, 0, NULL, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		launch_step(c, NULL, &step, &clock);
		CHECK_OK(c, baton_stream_synchronize(c->comm, NULL));
		CHECK_EQ(c, step.at, 1);
		FINISH_ALL(c, requests, 2);
		CHECK_FILLED(c, in, 40, 1);
	}
	conform_sync(c);
}

/* Streams belong to the process: one outlives the communicator it was made by. */
static void
a_stream_outlives_its_communicator(struct conform *c)
{
	struct baton_comm *second = conform_comm(c, NULL);
	baton_stream stream = NULL;
	struct step step;
	_Atomic int clock = 0;

	CHECK_OK(c, baton_stream_create(second, &stream));
	CHECK_OK(c, baton_comm_destroy(second));
	launch_step(c, stream, &step, &clock);
	CHECK_OK(c, baton_stream_synchronize(c->comm, stream));
	CHECK_EQ(c, step.at, 1);
	CHECK_OK(c, baton_stream_destroy(c->comm, stream));
}

static void
add_one_fn(void *arg)
{
	int *value = arg;

	*value += 1;
}

/* Each stream carries a number around the ring; every rank adds one to it on
 * the stream, between the receive and the send. */
static void
many_streams_work_at_once(struct conform *c)
{
	enum { STREAMS = 32, ROUNDS = 10 };
	baton_stream streams[STREAMS];
	int *values = conform_alloc(c, STREAMS * sizeof(int));
	int to = conform_next(c);
	int from = conform_previous(c);

	for (int i = 0; i < STREAMS; i++)
		streams[i] = conform_stream(c);
	for (int k = 0; k < STREAMS * ROUNDS; k++) {
		int i = k % STREAMS;

		/* Rank 0 begins each round, the others pass it on. */
		for (int half = 0; half < 2; half++) {
			if ((half == 0) == (c->rank == 0)) {
				CHECK_OK(c, baton_stream_launch(
						    c->comm, streams[i],
						    add_one_fn, &values[i]));
				CHECK_OK(c, baton_send(&values[i], 1,
				                       BATON_INT32, to, i,
				                       c->comm, streams[i], NULL,
				                       NULL));
			} else {
				CHECK_OK(c, baton_recv(&values[i], 1,
				                       BATON_INT32, from, i,
				                       c->comm, streams[i], NULL,
				                       NULL));
			}
		}
	}
	for (int i = 0; i < STREAMS; i++) {
		CHECK_OK(c, baton_stream_synchronize(c->comm, streams[i]));
		if (c->rank == 0)
			CHECK_EQ(c, values[i], ROUNDS * c->size);
	}
}

const struct conform_case conform_streams[] = {
	{ CASE(launched_functions_run_once_and_in_order) },
	{ CASE(functions_alternate_with_signals),
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_SELF },
	{ CASE(a_blocked_function_blocks_its_stream_alone), .streams = 2 },
	{ CASE(calls_from_launched_functions_are_refused) },
	{ CASE(a_record_ends_when_its_stream_gets_there) },
	{ CASE(a_stream_waits_for_a_request_of_another), .streams = 2 },
	{ CASE(a_join_of_what_has_ended_passes) },
	{ CASE(joins_make_chains_and_diamonds), .makes = 13, .streams = 2 },
	{ CASE(many_streams_may_wait_for_one_request), .makes = 41, .streams = 2, .ranks_min = 2 },
	{ CASE(a_join_of_what_fails_lets_the_stream_go_on), .streams = 2,
	  .needs = BATON_CAP_CANCEL | BATON_CAP_SELF },
	{ CASE(a_join_may_cross_communicators), .streams = 2 },
	{ CASE(a_joined_request_keeps_its_slot), .streams = 2, .requests_max = 8 },
	{ CASE(a_stream_with_work_is_busy) },
	{ CASE(streams_come_and_go) },
	{ CASE(the_default_stream_is_a_stream) },
	{ CASE(a_stream_outlives_its_communicator) },
	{ CASE(many_streams_work_at_once), .makes = 33, .streams = 32, .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	CASES_END,
};
