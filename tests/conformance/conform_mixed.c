/* SPDX-License-Identifier: BSD-3-Clause */
/* Paths of both kinds in one communicator: messages are host-issued, signals, puts and waits
 * are stream-issued, by the fake path, which the cases make fail. */
#include <pthread.h>
#include <string.h>

#include "fake_path.h"
#include "harness_onesided.h"

/* ---- groups ------------------------------------------------------------- */

/* A round to the next rank and from the one before, as one group over two streams. */
static void
round_in_a_group(struct conform *c, baton_stream other,
                 const struct baton_op_options *options, unsigned seed)
{
	int next = conform_next(c);
	int before = conform_previous(c);
	unsigned char *out = conform_filled(c, 5000, seed);
	unsigned char *in = conform_alloc(c, 5000);
	baton_request requests[4];

	CHECK_OK(c, baton_group_begin(c->comm));
	requests[0] = WAIT(c, before, 1, 0, 0, c->stream, options);
	requests[1] = RECV(c, in, 5000, before, 3, c->stream, options);
	requests[2] = SIGNAL_ON(c, next, 0, 0, other, options);
	requests[3] = SEND(c, out, 5000, next, 3, other, options);
	CHECK_OK(c, baton_group_end(c->comm));
	if (!options) {
		CHECK_OK(c, baton_stream_synchronize(c->comm, other));
		for (int i = 0; i < 4; i++)
			CHECK_OK(c, baton_test(requests[i], NULL));
	}
	FINISH_ALL(c, requests, 4);
	CHECK_FILLED(c, in, 5000, seed);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_OK(c, baton_stream_synchronize(c->comm, other));
}

static void
group_of_both_kinds_completes(struct conform *c)
{
	baton_stream other = conform_stream(c);

	for (unsigned i = 0; i < 20; i++)
		round_in_a_group(c, other, i % 2 ? &conform_detached : NULL, i);
}

static void
group_of_both_kinds_starts_when_all_streams_are_there(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	baton_request requests[2];

	conform_gate_launch(c, 0, gated);
	CHECK_OK(c, baton_group_begin(c->comm));
	requests[0] = SIGNAL_ON(c, c->rank, 0, 0, c->stream, NULL);
	requests[1] = SEND(c, NULL, 0, c->rank, 0, gated, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	for (int i = 0; i < 50; i++)
		baton_progress(c->comm);
	COUNTS(c, c->rank, 0, 0, 0);
	CHECK_STATUS(c, BATON_PENDING, baton_test(requests[0], NULL));
	conform_gate_open(c, 0);
	FINISH(c, BATON_OK, &requests[0]);
	/* The stream of the signal waits for the whole group. */
	CHECK_STATUS(c, BATON_PENDING, baton_stream_query(c->comm, c->stream));
	CHECK_OK(c, baton_recv(NULL, 0, BATON_UINT8, c->rank, 0, c->comm,
	                       conform_stream(c), NULL, NULL));
	FINISH(c, BATON_OK, &requests[1]);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
}

/* rank 0 makes the path refuse, in the middle of a group of both kinds. */
static void
group_that_a_path_refuses_is_void(struct conform *c)
{
	baton_request requests[3] = { 0 };

	if (c->rank == 0) {
		fake_path_fail(FAKE_PATH_REFUSES, 1);
		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = RECV(c, NULL, 0, 1, 0, c->stream, NULL);
		requests[1] = SIGNAL_ON(c, 1, 0, 0, conform_stream(c), NULL);
		requests[2] = SEND(c, NULL, 0, 1, 0, c->stream, NULL);
		CHECK_STATUS(c, BATON_ERR_AGAIN, baton_group_end(c->comm));
		for (int i = 0; i < 3; i++)
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(requests[i], NULL));
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	conform_sync(c);
	if (c->rank == 1)
		COUNTS(c, 0, 0, 0, 0);
	conform_sound(c);
	round_in_a_group(c, conform_stream(c), NULL, 1);
}

/* Nothing is left of what a void group had described: neither of its window nor of its
 * waits. */
static void
void_group_keeps_no_window_and_no_units(struct conform *c)
{
	struct baton_wait_signal_desc descs[2] = { { 1, 0, 0, 0 },
		                                   { 1, 0, 1, 0 } };
	const int rounds = (int)c->info.requests_max + 10;
	unsigned char data[8] = { 0 };
	baton_request request;
	struct conform_part part;

	if (!OPEN(c, &part, 64))
		return;
	for (int i = 0; i < rounds; i++) {
		CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_put_signal(data, 8, BATON_UINT8, c->rank,
		                             part.window, 0, 0, 0, 0, c->comm,
		                             c->stream, NULL, NULL));
		CHECK_OK(c, baton_wait_signal(2, descs, c->comm, c->stream,
		                              NULL, NULL));
		if (i % 2)
			CHECK_OK(c, baton_recv(NULL, 0, BATON_UINT8, c->rank, 0,
			                       c->comm, c->stream, NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID,
		             baton_signal(-1, 0, 0, 0, c->comm, c->stream, NULL,
		                          NULL));
		CHECK_STATUS(c, BATON_ERR_INVALID, baton_group_end(c->comm));
	}
	request = WAIT(c, c->rank, 1, 0, 0, conform_stream(c), NULL);
	CHECK_OK(c, baton_put_signal(data, 8, BATON_UINT8, c->rank, part.window,
	                             0, 0, 0, 0, c->comm, c->stream, NULL,
	                             NULL));
	FINISH(c, BATON_OK, &request);
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	/* Which refuses a window that a put has. */
	CLOSE(c, &part);
}

/* ---- what ends alone, and what does not --------------------------------- */

static void
messages_end_alone_beside_waits_that_do_not(struct conform *c)
{
	baton_stream other = conform_stream(c);
	baton_request wait = WAIT(c, c->rank, 1, 0, 0, other, NULL);
	baton_request recv = RECV(c, NULL, 0, c->rank, 0, c->stream, NULL);

	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED, baton_cancel(wait), "fake path");
	CHECK_OK(c, baton_cancel(recv));
	FINISH(c, BATON_ERR_CANCELED, &recv);
	CHECK_STATUS(c, BATON_PENDING, baton_test(wait, NULL));
	recv = SIGNAL_ON(c, c->rank, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &recv);
	FINISH(c, BATON_OK, &wait);
}

static void
deadline_of_a_stream_issued_wait_breaks_the_communicator(struct conform *c)
{
	struct baton_op_options limited = BATON_OP_OPTIONS_INIT;
	struct baton_comm *comm;
	baton_stream other = conform_stream(c);
	struct baton_wait_signal_desc desc = { 1, 0, 0, 0 };
	baton_request wait = 0, recv;
	char text[400];

	limited.timeout_ns = 5 * MS;
	comm = conform_exchange(c, NULL);
	CHECK_OK(c, baton_recv(NULL, 0, BATON_UINT8, c->rank, 0, comm,
	                       c->stream, NULL, &recv));
	CHECK_OK(c, baton_wait_signal(1, &desc, comm, other, &limited, &wait));
	FINISH(c, BATON_ERR_TIMEOUT, &wait);
	/* It says whose deadline it was. */
	CHECK_STATUS(c, BATON_ERR_TIMEOUT,
	             baton_wait(recv, conform_patience(c), NULL));
	CHECK_OK(c, baton_request_error(recv, text, sizeof(text)));
	CHECK(c, strstr(text, "recv from peer") &&
	                 strstr(text, "(wait_signal from peer 0 passed its deadline"));
	CHECK_OK(c, baton_release(&recv));
	CHECK_STATUS(c, BATON_ERR_TIMEOUT, baton_comm_status(comm));
	CHECK(c, strstr(baton_comm_error(comm), "passed its deadline"));
	CHECK_REFUSED(c, BATON_ERR_TIMEOUT,
	              baton_recv(NULL, 0, BATON_UINT8, c->rank, 0, comm,
	                         c->stream, NULL, &recv),
	              "passed its deadline");
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_OK(c, baton_stream_synchronize(c->comm, other));
	conform_sound(c);
}

/* The engine sees their ends by polling marks, and the host must not be earlier. */
static void
synchronized_stream_has_ended_its_requests(struct conform *c)
{
	for (int i = 0; i < 200; i++) {
		baton_request request = BATON_REQUEST_NULL;
		int64_t begin = conform_begin();

		CHECK_OK(c, baton_signal(c->rank, 0, 0, 0, c->comm, c->stream,
		                         NULL, &request));
		if (i % 2)
			CHECK_OK(c, baton_stream_synchronize(c->comm,
			                                     c->stream));
		else
			while (baton_stream_query(c->comm, c->stream) ==
			               BATON_PENDING &&
			       STILL(c, begin))
				;
		CHECK_OK(c, baton_test(request, NULL));
		FINISH(c, BATON_OK, &request);
	}
}

/* The stream goes on while the engine tests its marks. */
static void
operations_of_a_stream_are_seen_to_end_in_order(struct conform *c)
{
	enum { N = 64 };
	baton_request requests[N];

	for (int turn = 0; turn < 50; turn++) {
		for (int i = 0; i < N; i++)
			requests[i] = SIGNAL_ON(c, c->rank, 0, 0, c->stream,
			                        NULL);
		FINISH(c, BATON_OK, &requests[N - 1]);
		for (int i = 0; i < N - 1; i++)
			CHECK_OK(c, baton_test(requests[i], NULL));
		FINISH_ALL(c, requests, N - 1);
	}
}

/* ---- failures of the path ----------------------------------------------- */

static void
enqueue_that_fails_half_way_breaks_the_communicator(struct conform *c)
{
	struct baton_comm *comm;
	baton_request recv;

	comm = conform_exchange(c, NULL);
	CHECK_OK(c, baton_recv(NULL, 0, BATON_UINT8, c->rank, 0, comm,
	                       c->stream, NULL, &recv));
	if (c->rank == 0) {
		fake_path_fail(FAKE_PATH_HALFWAY, 1);
		CHECK_STATUS(c, BATON_ERR_CUDA,
		             baton_signal(0, 0, 0, 0, comm, c->stream, NULL,
		                          NULL));
		FINISH(c, BATON_ERR_CUDA, &recv);
		CHECK(c, strstr(baton_comm_error(comm),
		                "the fake path failed half way") &&
		                 strstr(baton_comm_error(comm),
		                        "fakePut returned 600"));
	} else {
		CHECK_OK(c, baton_comm_abort(comm));
		FINISH(c, BATON_ERR_ABORTED, &recv);
	}
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sound(c);
}

/* Nothing was pending: the path is aborted all the same, and the stream goes on. */
static void
idle_communicator_that_breaks_is_aborted(struct conform *c)
{
	struct baton_wait_signal_desc desc = { 1, 0, 0, 0 };
	struct baton_comm *comm = conform_exchange(c, NULL);

	if (c->rank == 0) {
		fake_path_fail(FAKE_PATH_HALFWAY, 1);
		CHECK_OK(c, baton_group_begin(comm));
		for (int i = 0; i < 2; i++)
			CHECK_OK(c, baton_wait_signal(1, &desc, comm, c->stream,
			                              NULL, NULL));
		CHECK_STATUS(c, BATON_ERR_CUDA, baton_group_end(comm));
		/* Half of it is on the stream. */
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	} else {
		CHECK_OK(c, baton_comm_abort(comm));
	}
	CHECK_OK(c, baton_comm_destroy(comm));
	conform_sound(c);
}

static void
error_that_comes_late_reaches_all_requests(struct conform *c)
{
	struct baton_wait_signal_desc desc = { 1, 0, 0, 0 };
	struct baton_comm *comm;
	char text[256];
	baton_request wait, recv;

	comm = conform_exchange(c, NULL);
	CHECK_OK(c, baton_recv(NULL, 0, BATON_UINT8, c->rank, 0, comm,
	                       c->stream, NULL, &recv));
	if (c->rank == 0) {
		fake_path_fail(FAKE_PATH_LATE, 1);
		CHECK_OK(c, baton_wait_signal(1, &desc, comm, conform_stream(c),
		                              NULL, &wait));
		FINISH(c, BATON_ERR_CUDA, &recv);
		CHECK_STATUS(c, BATON_ERR_CUDA,
		             baton_wait(wait, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(wait, text, sizeof(text)));
		CHECK_OK(c, baton_release(&wait));
	} else {
		CHECK_OK(c, baton_comm_abort(comm));
		FINISH(c, BATON_ERR_ABORTED, &recv);
	}
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sound(c);
}

static void *
abort_main(void *arg)
{
	return baton_comm_abort(arg) == BATON_OK ? NULL : arg;
}

/* Whatever comes first, what was enqueued ends, and the streams go on. */
static void
abort_beside_a_slow_enqueue_ends_what_it_enqueues(struct conform *c)
{
	struct baton_wait_signal_desc desc = { 1, 0, 0, 0 };
	struct baton_comm *comm;
	baton_request wait = BATON_REQUEST_NULL;
	enum baton_status status;
	pthread_t thread;
	void *failed;

	comm = conform_exchange(c, NULL);
	fake_path_fail(FAKE_PATH_SLOW, 1);
	CHECK_EQ(c, pthread_create(&thread, NULL, abort_main, comm), 0);
	status = baton_wait_signal(1, &desc, comm, c->stream, NULL, &wait);
	pthread_join(thread, &failed);
	CHECK(c, !failed);
	if (status == BATON_OK)
		FINISH(c, BATON_ERR_ABORTED, &wait);
	else
		CHECK_EQ(c, status, BATON_ERR_ABORTED);
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sync(c);
	if (c->rank == 0)
		fake_path_fail(FAKE_PATH_SOUND, 0);
	conform_sound(c);
}

struct stuck {
	struct baton_comm *comm;
	baton_stream stream;
	baton_request request;
	enum baton_status status;
};

static void *
enqueue_main(void *arg)
{
	struct baton_wait_signal_desc desc = { 1, 0, 0, 0 };
	struct stuck *stuck = arg;

	stuck->status = baton_wait_signal(1, &desc, stuck->comm, stuck->stream,
	                                  NULL, &stuck->request);
	return NULL;
}

/* rank 0: all other calls return, and what it had enqueued at last ends too. */
static void
abort_beside_an_enqueue_that_is_stuck_returns(struct conform *c)
{
	struct baton_comm *comm = conform_exchange(c, NULL);
	struct stuck stuck = { .comm = comm, .stream = c->stream };
	int64_t begin = conform_begin();
	baton_request recv;
	pthread_t thread;

	CHECK_OK(c, baton_recv(NULL, 0, BATON_UINT8, c->rank, 0, comm,
	                       conform_stream(c), NULL, &recv));
	if (c->rank == 0) {
		fake_path_fail(FAKE_PATH_STUCK, 1);
		CHECK_EQ(c, pthread_create(&thread, NULL, enqueue_main, &stuck),
		         0);
		while (!fake_path_is_stuck() && STILL(c, begin))
			;
	}
	CHECK_OK(c, baton_comm_abort(comm));
	FINISH(c, BATON_ERR_ABORTED, &recv);
	if (c->rank == 0) {
		fake_path_unstick();
		pthread_join(thread, NULL);
		CHECK_OK(c, stuck.status);
		FINISH(c, BATON_ERR_ABORTED, &stuck.request);
	}
	CHECK_OK(c, baton_comm_destroy(comm));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	conform_sound(c);
}

const struct conform_case conform_mixed[] = {
	{ CASE(group_of_both_kinds_completes) },
	{ CASE(group_of_both_kinds_starts_when_all_streams_are_there) },
	{ CASE(group_that_a_path_refuses_is_void), .ranks_min = 2 },
	{ CASE(void_group_keeps_no_window_and_no_units), .requests_max = 32 },
	{ CASE(messages_end_alone_beside_waits_that_do_not) },
	{ CASE(deadline_of_a_stream_issued_wait_breaks_the_communicator) },
	{ CASE(synchronized_stream_has_ended_its_requests) },
	{ CASE(operations_of_a_stream_are_seen_to_end_in_order) },
	{ CASE(enqueue_that_fails_half_way_breaks_the_communicator) },
	{ CASE(idle_communicator_that_breaks_is_aborted) },
	{ CASE(error_that_comes_late_reaches_all_requests) },
	{ CASE(abort_beside_a_slow_enqueue_ends_what_it_enqueues) },
	{ CASE(abort_beside_an_enqueue_that_is_stuck_returns),
	  .timeout_ns = 50 * MS },
	CASES_END,
};
