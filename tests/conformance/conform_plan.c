/* SPDX-License-Identifier: BSD-3-Clause */
/* Plans: operations that are recorded once and launched many times. */
#include <string.h>

#include "harness_onesided.h"

static void
begin(struct conform *c)
{
	CHECK_OK(c, baton_plan_begin(c->comm));
}

static struct baton_plan *
end_plan(struct conform *c)
{
	struct baton_plan *plan = NULL;

	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	return plan;
}

static void
note_send(struct conform *c, const void *buffer, size_t bytes, int peer, int tag,
          baton_stream stream, const struct baton_op_options *options)
{
	CHECK_OK(c, baton_send(buffer, bytes, BATON_UINT8, peer, tag, c->comm,
	                       stream, options, NULL));
}

static void
note_recv(struct conform *c, void *buffer, size_t bytes, int peer, int tag,
          baton_stream stream, const struct baton_op_options *options)
{
	CHECK_OK(c, baton_recv(buffer, bytes, BATON_UINT8, peer, tag, c->comm,
	                       stream, options, NULL));
}

static baton_request
launch(struct conform *c, struct baton_plan *plan,
       const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_plan_launch(plan, options, &request));
	CHECK(c, request != BATON_REQUEST_NULL);
	return request;
}

/* One group: to the next rank, and from the previous one. */
static struct baton_plan *
ring(struct conform *c, const void *out, void *in, size_t bytes,
     const struct baton_op_options *options)
{
	begin(c);
	CHECK_OK(c, baton_group_begin(c->comm));
	note_send(c, out, bytes, conform_next(c), 0, c->stream, options);
	note_recv(c, in, bytes, conform_previous(c), 0, c->stream, options);
	CHECK_OK(c, baton_group_end(c->comm));
	return end_plan(c);
}

/* ---- launches ----------------------------------------------------------- */

static void
a_plan_is_launched_many_times(struct conform *c)
{
	static const size_t sizes[] = {8, 3000, 100000};

	for (size_t k = 0; k < 3; k++) {
		unsigned char *in = conform_message(c, sizes[k]);
		unsigned char *out = conform_message(c, sizes[k]);
		struct baton_plan *plan = ring(c, out, in, sizes[k], NULL);

		for (int round = 0; round < conform_turns(40) + 2; round++) {
			struct baton_completion done = {0};
			baton_request request;

			conform_write(c, out, sizes[k],
			              (unsigned)(c->rank + round));
			conform_set(c, in, 0, sizes[k]);
			request = launch(c, plan, NULL);
			FINISH_AS(c, BATON_OK, &request, &done);
			CHECK_EQ(c, done.op, BATON_OPERATION_PLAN);
			CHECK_EQ(c, done.bytes, 2 * sizes[k]);
			CHECK_EQ(c, done.peer, -1);
			CHECK_EQ(c, done.tag, -1);
			CHECK_FILLED(c, in, sizes[k],
			             (unsigned)(conform_previous(c) + round));
		}
		CHECK_OK(c, baton_plan_destroy(plan));
	}
}

/* The plan of rank 0 receives, and only then sends. */
static void
one_stream_runs_in_the_order_of_the_plan(struct conform *c)
{
	unsigned char *in = conform_message(c, 64);
	unsigned char *out = conform_filled(c, 64, 3);
	baton_request requests[2] = {0};
	struct baton_plan *plan = NULL;

	if (c->rank == 0) {
		begin(c);
		note_recv(c, in, 64, 1, 0, c->stream, NULL);
		note_send(c, in, 64, 1, 0, c->stream, NULL);
		plan = end_plan(c);
		requests[0] = launch(c, plan, NULL);
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
		/* The launch needs nothing of it. */
		CHECK_OK(c, baton_plan_destroy(plan));
	} else if (c->rank == 1) {
		requests[1] = RECV(c, in, 64, 0, 0, conform_stream(c), NULL);
	}
	conform_sync(c);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING, baton_test(requests[1], NULL));
		requests[0] = SEND(c, out, 64, 0, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &requests[0]);
	FINISH(c, BATON_OK, &requests[1]);
	if (c->rank < 2)
		CHECK_FILLED(c, in, 64, 3);
}

/* {send, recv}, {send}: the second group is not sent before the first has ended. */
static void
groups_run_in_the_order_of_the_plan(struct conform *c)
{
	unsigned char *out = conform_message(c, 300);
	unsigned char *in = conform_message(c, 100);
	baton_request first = 0, second = 0, request = 0;
	struct baton_plan *plan = NULL;

	if (c->rank == 0) {
		begin(c);
		CHECK_OK(c, baton_group_begin(c->comm));
		note_send(c, out, 100, 1, 0, c->stream, NULL);
		note_recv(c, in, 100, 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		CHECK_OK(c, baton_group_begin(c->comm));
		/* Nested ones are parts of the outer. */
		CHECK_OK(c, baton_group_begin(c->comm));
		note_send(c, out + 200, 100, 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		CHECK_OK(c, baton_group_end(c->comm));
		/* An empty one is nothing. */
		CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_group_end(c->comm));
		plan = end_plan(c);
	}
	for (unsigned round = 0; round < 5; round++) {
		if (c->rank == 0) {
			conform_write(c, out, 100, round);
			conform_write(c, out + 200, 100, round + 50);
			request = launch(c, plan, NULL);
		} else if (c->rank == 1) {
			first = RECV(c, out, 100, 0, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &first);
			second = RECV(c, out + 200, 100, 0, 0, c->stream,
			              &conform_detached);
		}
		conform_sync(c);
		if (c->rank == 1) {
			CHECK_STATUS(c, BATON_PENDING,
			             baton_test(second, NULL));
			conform_write(c, in, 100, round + 100);
			first = SEND(c, in, 100, 0, 0, conform_stream(c), NULL);
			FINISH(c, BATON_OK, &first);
			FINISH(c, BATON_OK, &second);
			CHECK_FILLED(c, out, 100, round);
			CHECK_FILLED(c, out + 200, 100, round + 50);
		}
		FINISH(c, BATON_OK, &request);
		if (c->rank == 0)
			CHECK_FILLED(c, in, 100, round + 100);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
launches_may_be_pending_together(struct conform *c)
{
	enum { N = 12 };
	unsigned char *in = conform_message(c, 500);
	unsigned char *out = conform_filled(c, 500, (unsigned)c->rank);
	struct baton_plan *plan = ring(c, out, in, 500, NULL);
	baton_request requests[N];

	for (int i = 0; i < N; i++)
		requests[i] = launch(c, plan, NULL);
	CHECK_OK(c, baton_plan_destroy(plan));
	FINISH_ALL(c, requests, N);
	CHECK_FILLED(c, in, 500, (unsigned)conform_previous(c));
}

/* Two streams, and detached operations: the launch ends when all have. */
static void
a_plan_may_name_several_streams(struct conform *c)
{
	baton_stream second = conform_stream(c);
	unsigned char *in = conform_message(c, 128);
	unsigned char *out = conform_filled(c, 128, (unsigned)c->rank);
	baton_request request, after = 0;
	struct baton_plan *plan;

	begin(c);
	note_recv(c, in, 128, conform_previous(c), 0, second, &conform_detached);
	note_send(c, out, 128, conform_next(c), 0, c->stream, &conform_detached);
	plan = end_plan(c);
	for (int round = 0; round < 3; round++) {
		request = launch(c, plan, NULL);
		/* Neither stream waits for its operation. */
		CHECK_OK(c, baton_record(c->comm, second, NULL, &after));
		FINISH(c, BATON_OK, &after);
		CHECK_OK(c, baton_stream_wait(c->comm, second, request));
		CHECK_OK(c, baton_record(c->comm, second, NULL, &after));
		FINISH(c, BATON_OK, &after);
		/* The stream waited for the launch. */
		CHECK_OK(c, baton_test(request, NULL));
		CHECK_OK(c, baton_release(&request));
		CHECK_FILLED(c, in, 128, (unsigned)conform_previous(c));
	}
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
an_empty_plan_ends_at_once(struct conform *c)
{
	struct baton_completion done = {0};
	struct baton_plan *plan;
	baton_request request;

	begin(c);
	plan = end_plan(c);
	request = launch(c, plan, NULL);
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK_EQ(c, done.bytes, 0);
	CHECK_OK(c, baton_plan_launch(plan, NULL, NULL));
	CHECK_OK(c, baton_plan_destroy(plan));
	CHECK_OK(c, baton_plan_destroy(NULL));
	conform_sound(c);
}

static void
a_launch_is_delivered_once_to_its_queue(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_queue *queue = NULL;
	struct baton_completion done[2];
	int64_t begun = conform_begin();
	unsigned char *in = conform_message(c, 32);
	unsigned char *out = conform_message(c, 32);
	struct baton_plan *plan = ring(c, out, in, 32, NULL);
	size_t n = 0;

	CHECK_OK(c, baton_queue_create(c->comm, 1, &queue));
	options.queue = queue;
	options.user_data = 99;
	for (int round = 0; round < 3; round++) {
		CHECK_OK(c, baton_plan_launch(plan, &options, NULL));
		/* Its entry is taken. */
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_plan_launch(plan, &options, NULL));
		for (n = 0; n == 0 && STILL(c, begun);)
			n = baton_queue_poll(queue, done, 2);
		CHECK_EQ(c, n, 1);
		CHECK_EQ(c, done[0].user_data, 99);
		CHECK_EQ(c, done[0].op, BATON_OPERATION_PLAN);
		CHECK_EQ(c, done[0].status, BATON_OK);
	}
	baton_queue_destroy(queue);
	CHECK_OK(c, baton_plan_destroy(plan));
}

struct launcher {
	struct conform *c;
	struct baton_plan *plan;
	int turns;
	pthread_t thread;
};

static void *
launch_often(void *arg)
{
	struct launcher *launcher = arg;
	struct conform *c = launcher->c;

	for (int i = 0; i < launcher->turns; i++) {
		baton_request request = launch(c, launcher->plan, NULL);

		FINISH(c, BATON_OK, &request);
	}
	return NULL;
}

/* A launch is one piece: groups of two threads do not mix. */
static void
two_threads_may_launch_one_plan(struct conform *c)
{
	unsigned char *in = conform_message(c, 200);
	unsigned char *out = conform_filled(c, 200, (unsigned)c->rank);
	struct launcher launchers[2] = {{.c = c}, {.c = c}};
	struct baton_plan *plan = ring(c, out, in, 200, NULL);

	for (int i = 0; i < 2; i++) {
		launchers[i].plan = plan;
		launchers[i].turns = conform_turns(40);
		pthread_create(&launchers[i].thread, NULL, launch_often,
		               &launchers[i]);
	}
	for (int i = 0; i < 2; i++)
		pthread_join(launchers[i].thread, NULL);
	CHECK_OK(c, baton_plan_destroy(plan));
	CHECK_FILLED(c, in, 200, (unsigned)conform_previous(c));
}

/* ---- recording ---------------------------------------------------------- */

static void
recording_enqueues_nothing(struct conform *c)
{
	unsigned char *in = conform_message(c, 64);
	unsigned char *out = conform_filled(c, 64, 1);
	struct baton_plan *plan;

	plan = ring(c, out, in, 64, NULL);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* The first message of each rank is one of this. */
	conform_sound(c);
	CHECK_ALL(c, in, 64, 0);
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
what_cannot_be_in_a_plan_voids_it(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	unsigned char *data = conform_message(c, 64);
	struct baton_plan *plan = NULL, *good;
	baton_request request = 77;

	begin(c);
	good = end_plan(c);
	CHECK_OK(c, baton_queue_create(c->comm, 1, &options.queue));
	for (int what = 0; what < 9; what++) {
		begin(c);
		note_send(c, data, 64, 0, 0, c->stream, NULL);
		switch (what) {
		case 0:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_send(data, 64, BATON_UINT8, c->size,
			                         0, c->comm, c->stream, NULL,
			                         NULL),
			              "peer");
			break;
		case 1:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_send(data, 64, BATON_UINT8, 0, 0,
			                         c->comm, c->stream, NULL,
			                         &request),
			              "request_p plan");
			break;
		case 2:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_send(data, 64, BATON_UINT8, 0, 0,
			                         c->comm, c->stream, &options,
			                         NULL),
			              "queue plan");
			break;
		case 3:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_record(c->comm, c->stream, NULL,
			                           &request),
			              "recording plan");
			break;
		case 4:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_plan_begin(c->comm), "recording");
			break;
		case 5:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_plan_launch(good, NULL, &request),
			              "recording");
			break;
		case 6:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_stream_launch(c->comm, c->stream,
			                                  conform_nothing_fn,
			                                  NULL),
			              "recording");
			break;
		case 7:
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_stream_synchronize(c->comm,
			                                       c->stream),
			              "recording");
			break;
		case 8:
			CHECK_OK(c, baton_group_begin(c->comm));
			note_send(c, data, 64, 0, 0, c->stream, NULL);
			CHECK_REFUSED(c, BATON_ERR_INVALID,
			              baton_send(data, 64, BATON_UINT8, 0, 0,
			                         c->comm, c->stream,
			                         &conform_detached, NULL),
			              "DETACHED");
			CHECK_STATUS(c, BATON_ERR_INVALID,
			             baton_group_end(c->comm));
			break;
		}
		/* What follows is refused for the same reason. */
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_send(data, 64, BATON_UINT8, 0, 0, c->comm,
		                        c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_plan_end(c->comm, &plan));
		CHECK(c, plan == NULL && request == 77);
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_plan_end(c->comm, &plan), "records no plan");
	}
	baton_queue_destroy(options.queue);
	CHECK_OK(c, baton_plan_destroy(good));
	conform_sound(c);
}

static void
wrong_ends_of_a_recording_leave_no_plan(struct conform *c)
{
	unsigned char *data = conform_message(c, 64);
	struct baton_plan *plan = NULL;

	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_begin(NULL), "comm");
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_end(NULL, &plan),
	              "records no plan");
	begin(c);
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_end(c->comm, NULL),
	              "plan_p");
	begin(c);
	CHECK_OK(c, baton_group_begin(c->comm));
	note_send(c, data, 64, 0, 0, c->stream, NULL);
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_end(c->comm, &plan),
	              "group is open");
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_group_end(c->comm), "group");
	begin(c);
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_group_end(c->comm), "group");
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_end(c->comm, &plan),
	              "no group is open");
	CHECK(c, plan == NULL);
	begin(c);
	plan = end_plan(c);
	CHECK_OK(c, baton_plan_destroy(plan));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_destroy(plan),
	              "destroyed");
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_launch(plan, NULL, NULL),
	              "destroyed");
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_launch(NULL, NULL, NULL),
	              "NULL");
	plan = NULL;
	/* One record more than there are. */
	begin(c);
	for (uint32_t i = 0; i < c->info.requests_max; i++)
		note_send(c, data, 1, 0, 0, c->stream, NULL);
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_end(c->comm, &plan),
	              "requests_max");
	CHECK(c, plan == NULL);
	conform_sound(c);
}

static void
a_plan_goes_before_its_communicator(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_plan *plan;

	begin(c);
	CHECK_REFUSED(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm), "has 1 plan ");
	plan = end_plan(c);
	CHECK_REFUSED(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm), "has 1 plan ");
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_launch(plan, NULL, NULL),
	              "inside a group");
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_begin(c->comm),
	              "inside a group");
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	options.flags = BATON_OP_DETACHED;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_plan_launch(plan, &options, NULL), "flags");
	CHECK_OK(c, baton_plan_destroy(plan));
	conform_sound(c);
}

/* ---- refusals and ends -------------------------------------------------- */

/* Its fourth operation finds no record: the first three were not enqueued. */
static void
a_refused_launch_has_enqueued_nothing(struct conform *c)
{
	unsigned char *out = conform_filled(c, 64, 5);
	baton_request kept[3] = {0}, requests[3] = {0};
	unsigned char *last = conform_filled(c, 64, 9);
	unsigned char *in = conform_message(c, 64 * 4);
	struct baton_plan *plan = NULL;

	if (c->rank == 0) {
		begin(c);
		for (int i = 0; i < 3; i++)
			note_send(c, out, 64, 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_begin(c->comm));
		note_send(c, out, 64, 1, 0, c->stream, NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		plan = end_plan(c);
		for (int i = 0; i < 3; i++)
			CHECK_OK(c, baton_record(c->comm, c->stream, NULL,
			                         &kept[i]));
		requests[0] = 77;
		/* 8 in all; the launch takes 6. */
		CHECK_REFUSED(c, BATON_ERR_AGAIN,
		              baton_plan_launch(plan, NULL, &requests[0]),
		              "baton_plan_launch requests");
		CHECK(c, requests[0] == 77);
		FINISH_ALL(c, kept, 3);
		requests[0] = SEND(c, last, 64, 1, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &requests[0]);
		requests[0] = launch(c, plan, NULL);
		FINISH(c, BATON_OK, &requests[0]);
		CHECK_OK(c, baton_plan_destroy(plan));
	} else if (c->rank == 1) {
		for (int i = 0; i < 5; i++) {
			requests[0] = RECV(c, in, 64, 0, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &requests[0]);
			CHECK_FILLED(c, in, 64, i == 0 ? 9 : 5);
		}
	}
}

/* Three receives a launch, until the stream takes no more (a device may hold only so many). */
static void
a_launch_goes_on_its_streams_whole(struct conform *c)
{
	unsigned char *last = conform_filled(c, 64, 9);
	unsigned char *out = conform_filled(c, 64, 5);
	unsigned char *in = conform_message(c, 64);
	enum baton_status status = BATON_OK;
	baton_request launches[160], request;
	baton_stream other = conform_stream(c);
	struct baton_plan *plan;
	size_t n = 0;

	begin(c);
	for (int i = 0; i < 3; i++)
		note_recv(c, in, 64, c->rank, 0, c->stream, NULL);
	plan = end_plan(c);
	while (n < 160 && status == BATON_OK) {
		status = baton_plan_launch(plan, NULL, &launches[n]);
		n += status == BATON_OK;
	}
	CHECK(c, status == BATON_OK || status == BATON_ERR_AGAIN);
	CHECK(c, n >= 20);
	for (size_t i = 0; i < 3 * n; i++) {
		request = SEND(c, out, 64, c->rank, 0, other, NULL);
		FINISH(c, BATON_OK, &request);
	}
	FINISH_ALL(c, launches, n);
	CHECK_FILLED(c, in, 64, 5);
	request = RECV(c, in, 64, c->rank, 0, c->stream, NULL);
	launches[0] = SEND(c, last, 64, c->rank, 0, other, NULL);
	FINISH(c, BATON_OK, &request);
	FINISH(c, BATON_OK, &launches[0]);
	CHECK_FILLED(c, in, 64, 9);
	CHECK_OK(c, baton_plan_destroy(plan));
}

/* More than the streams of a device may hold: then there is no plan.  A group is one operation. */
static void
a_plan_that_no_stream_takes_is_none(struct conform *c)
{
	/* A fake device says that it is CUDA, and has no bound. */
	bool bounded = c->info.device == BATON_DEVICE_CUDA &&
	               c->backend->queues > 0;
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	unsigned char *in = conform_message(c, 64);
	struct baton_plan *plan = NULL;

	begin(c);
	for (int i = 0; i < 450; i++)
		note_recv(c, in, 64, c->rank, 0, c->stream, NULL);
	if (bounded)
		CHECK_REFUSED(c, BATON_ERR_INVALID,
		              baton_plan_end(c->comm, &plan),
		              "baton_plan_end: a launch entries CUDA 800");
	else
		CHECK_OK(c, baton_plan_end(c->comm, &plan));
	CHECK(c, bounded == !plan);
	CHECK_OK(c, baton_plan_destroy(plan));
	begin(c);
	CHECK_OK(c, baton_group_begin(c->comm));
	for (int i = 0; i < 450; i++)
		note_recv(c, in, 64, c->rank, 0, c->stream, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	plan = end_plan(c);
	CHECK_OK(c, baton_plan_destroy(plan));
	options.flags = BATON_OP_DETACHED;
	begin(c);
	for (int i = 0; i < 200; i++)
		note_recv(c, in, 64, c->rank, 0, c->stream, &options);
	plan = end_plan(c);
	CHECK_OK(c, baton_plan_destroy(plan));
	conform_sound(c);
}

/* Of one launch: what is pending beside it is asked for at the launch. */
static void
a_plan_has_memory_for_its_lists(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_comm_options small = BATON_COMM_OPTIONS_INIT;
	struct baton_tensor tensors[16] = {{0}};
	struct baton_plan *plan = NULL;
	struct baton_comm *comm;

	small.tensors_max = 16;
	comm = conform_comm(c, &small);
	for (int i = 0; i < 16; i++)
		tensors[i] = (struct baton_tensor){.type = BATON_UINT8,
			                            .rank = 1};
	CHECK_OK(c, baton_plan_begin(comm));
	for (int i = 0; i < 2; i++)
		CHECK_OK(c, baton_send_tensors(tensors, 16, c->rank, 0, comm,
		                               c->stream, &options, NULL));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_end(comm, &plan),
	              "baton_plan_end lists 32 tensors 16 tensors_max");
	CHECK(c, plan == NULL);
	CHECK_OK(c, baton_comm_destroy(comm));
}

static void
a_stream_that_is_gone_is_refused_at_the_launch(struct conform *c)
{
	unsigned char *in = conform_message(c, 64);
	struct baton_plan *plan;
	baton_stream stream = NULL;

	CHECK_OK(c, baton_stream_create(c->comm, &stream));
	begin(c);
	note_recv(c, in, 64, 0, 0, c->stream, NULL);
	note_recv(c, in, 64, 0, 0, stream, NULL);
	plan = end_plan(c);
	CHECK_OK(c, baton_stream_destroy(c->comm, stream));
	CHECK_REFUSED(c, BATON_ERR_INVALID, baton_plan_launch(plan, NULL, NULL),
	              "baton_plan_launch stream");
	CHECK_OK(c, baton_plan_destroy(plan));
	conform_sound(c);
}

static void
a_launch_ends_as_the_first_operation_that_failed(struct conform *c)
{
	unsigned char *in = conform_message(c, 400);
	unsigned char *out = conform_filled(c, 100, 1);
	struct baton_completion done = {0};
	baton_request request;
	struct baton_plan *plan;
	char text[300] = "";

	if (c->rank > 1)
		return;
	for (int i = 0; c->rank == 0 && i < 4; i++) {
		request = SEND(c, out, 100, 1, i, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	}
	if (c->rank == 0)
		return;
	begin(c);
	/* Tag 3 and tag 1 are too short; the one of tag 1 comes first in the plan. */
	note_recv(c, in, 100, 0, 0, c->stream, NULL);
	note_recv(c, in + 100, 50, 0, 1, c->stream, NULL);
	note_recv(c, in + 200, 100, 0, 2, c->stream, NULL);
	note_recv(c, in + 300, 60, 0, 3, c->stream, NULL);
	plan = end_plan(c);
	request = launch(c, plan, NULL);
	CHECK_OK(c, baton_plan_destroy(plan));
	CHECK_STATUS(c, BATON_ERR_TRUNCATED,
	             baton_wait(request, conform_patience(c), &done));
	CHECK_EQ(c, done.peer, 0);
	CHECK_EQ(c, done.tag, 1);
	CHECK_EQ(c, done.bytes, 200);
	CHECK_OK(c, baton_request_error(request, text, sizeof(text)));
	CHECK(c, strstr(text, "plan of 4 operations") != NULL);
	CHECK(c, strstr(text, "operation 1 of the plan, recv, peer 0, tag 1") !=
	                 NULL);
	CHECK(c, strstr(text, "100 bytes, the buffer 50") != NULL);
	CHECK_OK(c, baton_release(&request));
	CHECK_FILLED(c, in, 100, 1);
	CHECK_FILLED(c, in + 200, 100, 1);
	/* Unobserved, it is the stream's. */
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
}

/* Nobody sends.  The first is armed, the second waits for its stream, or its group. */
static void
the_deadline_of_a_launch_ends_what_is_left(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	unsigned char *in = conform_message(c, 200);
	struct baton_completion done = {0};
	int64_t begun = conform_begin();
	struct baton_plan *plan;
	baton_request request;

	begin(c);
	for (int i = 0; i < 2; i++)
		note_recv(c, in + 100 * i, 100, conform_previous(c), i,
		          c->stream, NULL);
	plan = end_plan(c);
	options.timeout_ns = 50 * MS;
	request = launch(c, plan, &options);
	while (baton_test(request, NULL) == BATON_PENDING && STILL(c, begun))
		;
	FINISH_AS(c, BATON_ERR_TIMEOUT, &request, &done);
	CHECK_EQ(c, done.tag, 0);
	CHECK_EQ(c, done.peer, conform_previous(c));
	/* The stream goes on. */
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_plan_destroy(plan));
	conform_sync(c);
	conform_sound(c);
}

static void
a_launch_can_be_canceled(struct conform *c)
{
	unsigned char *in = conform_message(c, 300);
	struct baton_completion done = {0};
	struct baton_plan *plan;
	baton_request request;

	begin(c);
	note_recv(c, in, 100, conform_previous(c), 5, c->stream, NULL);
	CHECK_OK(c, baton_group_begin(c->comm));
	note_recv(c, in + 100, 100, conform_previous(c), 5, c->stream, NULL);
	note_recv(c, in + 200, 100, conform_previous(c), 5, c->stream, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	plan = end_plan(c);
	for (int round = 0; round < 3; round++) {
		request = launch(c, plan, NULL);
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
		CHECK_OK(c, baton_cancel(request));
		FINISH_AS(c, BATON_ERR_CANCELED, &request, &done);
		CHECK_EQ(c, done.tag, 5);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	CHECK_OK(c, baton_plan_destroy(plan));
	conform_sync(c);
	conform_sound(c);
}

static void
an_abort_ends_a_launch(struct conform *c)
{
	unsigned char *in = conform_message(c, 200);
	struct baton_plan *plan;
	baton_request request;

	begin(c);
	note_recv(c, in, 100, conform_previous(c), 0, c->stream, NULL);
	note_recv(c, in + 100, 100, conform_previous(c), 0, c->stream, NULL);
	plan = end_plan(c);
	request = launch(c, plan, NULL);
	CHECK_OK(c, baton_comm_abort(c->comm));
	CHECK_STATUS(c, BATON_ERR_ABORTED, baton_test(request, NULL));
	CHECK_OK(c, baton_release(&request));
	CHECK_STATUS(c, BATON_ERR_ABORTED, baton_plan_launch(plan, NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_BUSY, baton_comm_destroy(c->comm));
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
an_error_that_nobody_observes_is_the_streams(struct conform *c)
{
	unsigned char *in = conform_message(c, 100);
	unsigned char *out = conform_filled(c, 100, 1);
	struct baton_plan *plan;

	if (c->rank > 1)
		return;
	if (c->rank == 0) {
		baton_request request = SEND(c, out, 100, 1, 0, c->stream, NULL);

		FINISH(c, BATON_OK, &request);
		return;
	}
	begin(c);
	note_recv(c, in, 50, 0, 0, c->stream, NULL);
	plan = end_plan(c);
	CHECK_OK(c, baton_plan_launch(plan, NULL, NULL));
	CHECK_STATUS(c, BATON_ERR_TRUNCATED,
	             baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_plan_destroy(plan));
}

/* ---- lists -------------------------------------------------------------- */

/* What a receive has written is not what the next launch declares. */
static void
lists_of_tensors_may_be_in_a_plan(struct conform *c)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_tensor sent[2] = {
		{.type = BATON_INT32, .rank = 1, .shape = {5}},
		{.type = BATON_UINT8, .rank = 2, .shape = {3, 100}},
	};
	struct baton_tensor came[2] = {
		{.type = BATON_INT32, .rank = -1},
		{.type = BATON_UINT8, .rank = 2, .shape = {-1, 100}},
	};
	unsigned char *arena = conform_alloc(c, 1024);
	struct baton_plan *plan;
	baton_request request;

	if (c->rank > 1)
		return;
	sent[0].data = conform_alloc(c, 20);
	sent[1].data = conform_alloc(c, 300);
	options.arena = arena;
	options.arena_bytes = 1024;
	begin(c);
	CHECK_OK(c, c->rank == 0
	                    ? baton_send_tensors(sent, 2, 1, 0, c->comm,
	                                         c->stream, NULL, NULL)
	                    : baton_recv_tensors(came, 2, 0, 0, c->comm,
	                                         c->stream, &options, NULL));
	plan = end_plan(c);
	/* The plan has a copy of what was described. */
	if (c->rank == 0)
		sent[1].shape[1] = 7;
	for (unsigned round = 0; round < 4; round++) {
		conform_fill(sent[0].data, 20, round);
		conform_fill(sent[1].data, 300, round + 1);
		memset(arena, 0, 1024);
		memset(came, 0, sizeof(came));
		request = launch(c, plan, NULL);
		FINISH(c, BATON_OK, &request);
		if (c->rank == 0)
			continue;
		CHECK_EQ(c, came[0].shape[0], 5);
		CHECK_EQ(c, came[1].shape[0], 3);
		CHECK(c, came[0].data == arena && came[1].data == arena + 256);
		CHECK_FILLED(c, came[0].data, 20, round);
		CHECK_FILLED(c, came[1].data, 300, round + 1);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
}

const struct conform_case conform_plan[] = {
	{ CASE(a_plan_is_launched_many_times) },
	{ CASE(one_stream_runs_in_the_order_of_the_plan), .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS, .streams = 2 },
	{ CASE(groups_run_in_the_order_of_the_plan), .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS, .streams = 7, .makes = 7 },
	{ CASE(launches_may_be_pending_together) },
	{ CASE(a_plan_may_name_several_streams), .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS, .streams = 2 },
	{ CASE(an_empty_plan_ends_at_once) },
	{ CASE(a_launch_is_delivered_once_to_its_queue) },
	{ CASE(two_threads_may_launch_one_plan) },
	{ CASE(recording_enqueues_nothing) },
	{ CASE(what_cannot_be_in_a_plan_voids_it) },
	{ CASE(wrong_ends_of_a_recording_leave_no_plan), .requests_max = 64 },
	{ CASE(a_plan_goes_before_its_communicator) },
	{ CASE(a_refused_launch_has_enqueued_nothing), .ranks_min = 2,
	  .requests_max = 8 },
	{ CASE(a_launch_goes_on_its_streams_whole), .streams = 2,
	  .needs = BATON_CAP_SELF | BATON_CAP_CANCEL, .requests_max = 1024 },
	{ CASE(a_plan_that_no_stream_takes_is_none), .requests_max = 1024 },
	{ CASE(a_plan_has_memory_for_its_lists), .needs = BATON_CAP_TENSORS },
	{ CASE(a_stream_that_is_gone_is_refused_at_the_launch),
	  .flags = CONFORM_HOST_DEVICE },
	{ CASE(a_launch_ends_as_the_first_operation_that_failed), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_TRUNCATION },
	{ CASE(the_deadline_of_a_launch_ends_what_is_left), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_CANCEL },
	{ CASE(a_launch_can_be_canceled),
	  .needs = BATON_CAP_TAGS | BATON_CAP_CANCEL },
	{ CASE(an_abort_ends_a_launch), .ranks_min = 2 },
	{ CASE(an_error_that_nobody_observes_is_the_streams), .ranks_min = 2,
	  .needs = BATON_CAP_TRUNCATION },
	{ CASE(lists_of_tensors_may_be_in_a_plan), .ranks_min = 2,
	  .needs = BATON_CAP_TENSORS },
	CASES_END
};

/* ---- signals and puts --------------------------------------------------- */

static void
puts_and_waits_may_be_in_a_plan(struct conform *c)
{
	unsigned char *out = conform_message(c, 256);
	struct conform_part part;
	struct baton_wait_signal_desc desc = {.op_count = 2,
		                               .peer = conform_previous(c)};
	struct baton_plan *plan;
	baton_request request;

	if (!OPEN(c, &part, 512))
		return;
	begin(c);
	CHECK_OK(c, baton_put_signal(out, 256, BATON_UINT8, conform_next(c),
	                             part.window, 128, 0, 0, 0, c->comm,
	                             c->stream, NULL, NULL));
	CHECK_OK(c, baton_signal(conform_next(c), 0, 0, 0, c->comm, c->stream,
	                         NULL, NULL));
	CHECK_OK(c, baton_wait_signal(1, &desc, c->comm, c->stream, NULL, NULL));
	plan = end_plan(c);
	/* The plan has a copy. */
	desc.op_count = 100;
	for (unsigned round = 0; round < 10; round++) {
		conform_write(c, out, 256, (unsigned)c->rank + round);
		request = launch(c, plan, NULL);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, part.base + 128, 256,
		             (unsigned)conform_previous(c) + round);
		/* Nobody writes the next before all have read this. */
		conform_sync(c);
	}
	CHECK_OK(c, baton_plan_destroy(plan));
	CLOSE(c, &part);
}

/* A wait has no tag, and nobody sends this signal. */
static void
a_wait_that_fails_names_its_peer_alone(struct conform *c)
{
	struct baton_op_options deadline = BATON_OP_OPTIONS_INIT;
	struct baton_wait_signal_desc desc = {.op_count = 1,
		                               .peer = conform_previous(c),
		                               .signal_index = 1};
	struct baton_completion done;
	struct baton_plan *plan;
	baton_request request;

	deadline.timeout_ns = 1000000;
	begin(c);
	CHECK_OK(c, baton_wait_signal(1, &desc, c->comm, c->stream, NULL, NULL));
	plan = end_plan(c);
	request = launch(c, plan, &deadline);
	FINISH_AS(c, BATON_ERR_TIMEOUT, &request, &done);
	CHECK_EQ(c, done.peer, conform_previous(c));
	CHECK_EQ(c, done.tag, -1);
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
a_window_stays_while_a_plan_names_it(struct conform *c)
{
	unsigned char *out = conform_filled(c, 64, 1);
	struct baton_plan *plan = NULL;
	struct conform_part part;

	if (!OPEN(c, &part, 64))
		return;
	if (c->rank == 0) {
		begin(c);
		CHECK_OK(c, baton_put_signal(out, 64, BATON_UINT8,
		                             conform_next(c), part.window, 0, 0,
		                             0, 0, c->comm, c->stream, NULL,
		                             NULL));
		plan = end_plan(c);
	}
	conform_sync(c);
	/* On all ranks. */
	CHECK_REFUSED(c, BATON_ERR_BUSY, baton_window_deregister(part.window),
	              "plans");
	conform_sync(c);
	CHECK_OK(c, baton_plan_destroy(plan));
	CLOSE(c, &part);
}

const struct conform_case conform_plan_onesided[] = {
	{ CASE(puts_and_waits_may_be_in_a_plan),
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_WINDOWS },
	{ CASE(a_wait_that_fails_names_its_peer_alone),
	  .needs = BATON_CAP_SIGNALS },
	{ CASE(a_window_stays_while_a_plan_names_it),
	  .needs = BATON_CAP_SIGNALS | BATON_CAP_WINDOWS },
	CASES_END
};
