/* SPDX-License-Identifier: BSD-3-Clause */
/* Waiting for many requests, and from many threads. */
#include <string.h>

#include "harness.h"

/* N receives on rank 1; each is sent by rank 0 when its number is called. */
enum { N = 8 };

static void
post_all(struct conform *c, baton_request requests[N], int values[N])
{
	for (int i = 0; i < N; i++) {
		values[i] = -1;
		requests[i] = c->rank == 1
		                      ? RECV(c, &values[i], sizeof(int), 0, i,
		                             c->stream, &conform_detached)
		                      : BATON_REQUEST_NULL;
	}
}

static void
send_one(struct conform *c, int i)
{
	baton_request request;

	if (c->rank != 0)
		return;
	request = SEND(c, &i, sizeof(int), 1, i, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
}

static void
wait_any_finds_the_one_that_ended(struct conform *c)
{
	static const int order[N] = { 5, 0, 7, 2, 1, 6, 3, 4 };
	baton_request requests[N];
	struct baton_completion done = { 0 };
	int values[N];
	size_t index = 99;

	post_all(c, requests, values);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING,
		             baton_wait_any(requests, N, 0, &index, &done));
		CHECK_STATUS(c, BATON_PENDING,
		             baton_wait_any(requests, N, MS, &index, NULL));
	}
	for (int k = 0; k < N; k++) {
		conform_sync(c);
		send_one(c, order[k]);
		if (c->rank != 1)
			continue;
		CHECK_OK(c, baton_wait_any(requests, N, conform_patience(c),
		                           &index, &done));
		CHECK_EQ(c, index, order[k]);
		if (index < N) {
			CHECK(c, done.request == requests[index]);
			CHECK_EQ(c, done.bytes, sizeof(int));
			CHECK_OK(c, baton_release(&requests[index]));
		}
	}
	if (c->rank == 1) {
		/* Nothing is left to wait for. */
		CHECK_OK(c, baton_wait_any(requests, N, -1, &index, &done));
		CHECK_EQ(c, index, N);
		CHECK_OK(c, baton_wait_any(NULL, 0, -1, &index, NULL));
		CHECK_EQ(c, index, 0);
	}
}

static void
wait_any_takes_the_lowest_index(struct conform *c)
{
	baton_request requests[N];
	int values[N];
	size_t index = 99;

	post_all(c, requests, values);
	for (int i = 2; i < N; i++)
		send_one(c, i);
	if (c->rank == 1) {
		for (int i = 2; i < N; i++)
			CHECK_OK(c, baton_wait(requests[i], conform_patience(c),
			                       NULL));
		CHECK_OK(c, baton_wait_any(requests, N, -1, &index, NULL));
		CHECK_EQ(c, index, 2);
	}
	conform_sync(c);
	send_one(c, 0);
	send_one(c, 1);
	FINISH_ALL(c, requests, c->rank == 1 ? N : 0);
}

static void
wait_any_gives_the_status_of_its_request(struct conform *c)
{
	baton_request requests[N];
	int values[N];
	size_t index = 99;

	post_all(c, requests, values);
	if (c->rank == 1) {
		CHECK_OK(c, baton_cancel(requests[4]));
		CHECK_STATUS(c, BATON_ERR_CANCELED,
		             baton_wait_any(requests, N, conform_patience(c),
		                            &index, NULL));
		CHECK_EQ(c, index, 4);
		CHECK_OK(c, baton_release(&requests[4]));
		for (int i = 0; i < N; i++) {
			if (i == 4)
				continue;
			CHECK_OK(c, baton_cancel(requests[i]));
			FINISH(c, BATON_ERR_CANCELED, &requests[i]);
		}
	}
}

static void
wait_all_ends_when_all_have(struct conform *c)
{
	baton_request requests[N + 2] = { 0 };
	int values[N];

	/* With holes at both ends. */
	post_all(c, requests + 1, values);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING,
		             baton_wait_all(requests, N + 2, 0));
		CHECK_STATUS(c, BATON_PENDING,
		             baton_wait_all(requests, N + 2, MS));
	}
	conform_sync(c);
	for (int i = N - 1; i > 0; i--)
		send_one(c, i);
	if (c->rank == 1)
		CHECK_STATUS(c, BATON_PENDING,
		             baton_wait_all(requests, N + 2, MS));
	conform_sync(c);
	send_one(c, 0);
	if (c->rank == 1) {
		CHECK_OK(c, baton_wait_all(requests, N + 2,
		                           conform_patience(c)));
		for (int i = 0; i < N; i++) {
			CHECK_EQ(c, values[i], i);
			CHECK_OK(c, baton_test(requests[1 + i], NULL));
		}
		FINISH_ALL(c, requests + 1, N);
		CHECK_OK(c, baton_wait_all(requests, N + 2, -1));
		CHECK_OK(c, baton_wait_all(NULL, 0, -1));
	}
}

/* The lowest index that did not end in OK, and all have ended by then. */
static void
wait_all_tells_the_first_error(struct conform *c)
{
	struct baton_op_options soon = BATON_OP_OPTIONS_INIT;
	baton_request requests[N];
	int values[N];

	soon.timeout_ns = 2 * MS;
	soon.flags = BATON_OP_DETACHED;
	post_all(c, requests, values);
	if (c->rank == 1) {
		CHECK_OK(c, baton_cancel(requests[6]));
		CHECK_OK(c, baton_cancel(requests[3]));
		FINISH(c, BATON_ERR_CANCELED, &requests[3]);
		requests[3] = RECV(c, &values[3], sizeof(int), 0, 3, c->stream,
		                   &soon);
		CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		             baton_wait(requests[3], conform_patience(c), NULL));
	}
	conform_sync(c);
	for (int i = 0; i < N; i++)
		if (i != 3 && i != 6)
			send_one(c, i);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_ERR_TIMEOUT,
		             baton_wait_all(requests, N, conform_patience(c)));
		for (int i = 0; i < N; i++) {
			CHECK(c, baton_test(requests[i], NULL) != BATON_PENDING);
			CHECK_OK(c, baton_release(&requests[i]));
		}
	}
}

static void
a_stale_handle_among_others_is_told(struct conform *c)
{
	baton_request requests[N], stale;
	int values[N];
	size_t index = 99, done = 99, indices[N];

	post_all(c, requests, values);
	conform_sync(c);
	send_one(c, 2);
	if (c->rank == 1) {
		stale = requests[2];
		FINISH(c, BATON_OK, &requests[2]);
		requests[2] = stale;
		CHECK_STATUS(c, BATON_ERR_STALE,
		             baton_wait_any(requests, N, -1, &index, NULL));
		CHECK_EQ(c, index, 2);
		CHECK_STATUS(c, BATON_ERR_STALE,
		             baton_wait_all(requests, N, -1));
		CHECK_STATUS(c, BATON_ERR_STALE,
		             baton_test_some(requests, N, indices, N, &done));
		CHECK_EQ(c, done, 0);
		CHECK_EQ(c, indices[0], 2);
		requests[2] = BATON_REQUEST_NULL;
	}
	conform_sync(c);
	for (int i = 0; i < N; i++)
		if (i != 2)
			send_one(c, i);
	for (int i = 0; i < N; i++)
		FINISH(c, BATON_OK, &requests[i]);
}

static void
test_some_lists_what_has_ended(struct conform *c)
{
	baton_request requests[N];
	size_t indices[N], done = 99;
	int values[N];

	post_all(c, requests, values);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING,
		             baton_test_some(requests, N, indices, N, &done));
		CHECK_EQ(c, done, 0);
	}
	conform_sync(c);
	for (int i = 1; i < N; i += 2)
		send_one(c, i);
	if (c->rank == 1) {
		for (int i = 1; i < N; i += 2)
			CHECK_OK(c, baton_wait(requests[i], conform_patience(c),
			                       NULL));
		CHECK_OK(c, baton_test_some(requests, N, indices, N, &done));
		CHECK_EQ(c, done, N / 2);
		for (size_t k = 0; k < done && k < N; k++)
			CHECK_EQ(c, indices[k], 2 * k + 1);
		/* It frees nothing: again, but at most two. */
		indices[2] = 55;
		CHECK_OK(c, baton_test_some(requests, N, indices, 2, &done));
		CHECK_EQ(c, done, 2);
		CHECK_EQ(c, indices[0], 1);
		CHECK_EQ(c, indices[1], 3);
		CHECK_EQ(c, indices[2], 55);
		for (int i = 1; i < N; i += 2)
			CHECK_OK(c, baton_release(&requests[i]));
		CHECK_STATUS(c, BATON_PENDING,
		             baton_test_some(requests, N, indices, N, &done));
	}
	conform_sync(c);
	for (int i = 0; i < N; i += 2)
		send_one(c, i);
	for (int i = 0; i < N; i++)
		FINISH(c, BATON_OK, &requests[i]);
	if (c->rank == 1) {
		done = 99;
		CHECK_OK(c, baton_test_some(requests, N, indices, N, &done));
		CHECK_EQ(c, done, 0);
		done = 99;
		CHECK_OK(c, baton_test_some(NULL, 0, indices, N, &done));
		CHECK_EQ(c, done, 0);
	}
}

/* Nothing is released before all have ended. */
static void
finish_all_releases_when_all_have_ended(struct conform *c)
{
	struct baton_completion done[N + 1];
	baton_request requests[N + 1] = { 0 }, copies[N];
	int values[N];

	post_all(c, requests, values);
	memcpy(copies, requests, sizeof(copies));
	for (int i = N - 1; i > 0; i--)
		send_one(c, i);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING,
		             baton_finish_all(requests, N + 1, 0, done));
		CHECK(c, memcmp(requests, copies, sizeof(copies)) == 0);
	}
	conform_sync(c);
	send_one(c, 0);
	if (c->rank == 1) {
		CHECK_OK(c, baton_finish_all(requests, N + 1,
		                             conform_patience(c), done));
		for (int i = 0; i < N; i++) {
			CHECK_EQ(c, values[i], i);
			CHECK(c, done[i].request == copies[i]);
			CHECK_EQ(c, done[i].tag, i);
			CHECK(c, requests[i] == BATON_REQUEST_NULL);
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(copies[i], NULL));
		}
		CHECK(c, done[N].request == BATON_REQUEST_NULL);
		CHECK_OK(c, baton_finish_all(requests, N + 1, -1, NULL));
	}
}

static void
finish_some_releases_what_has_ended(struct conform *c)
{
	struct baton_completion ended[N];
	baton_request requests[N], copies[N];
	size_t indices[N], done = 99, seen = 0;
	int values[N];

	post_all(c, requests, values);
	memcpy(copies, requests, sizeof(copies));
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_PENDING,
		             baton_finish_some(requests, N, MS, indices, ended, N,
		                               &done));
		CHECK_EQ(c, done, 0);
	}
	conform_sync(c);
	for (int i = N - 1; i >= 0; i--)
		send_one(c, i);
	while (c->rank == 1 && seen < N) {
		if (!CHECK_OK(c, baton_finish_some(requests, N,
		                                   conform_patience(c), indices,
		                                   ended, 3, &done)) ||
		    !CHECK(c, done >= 1 && done <= 3))
			break;
		for (size_t k = 0; k < done; k++, seen++) {
			CHECK(c, ended[k].request == copies[indices[k]]);
			CHECK_EQ(c, values[indices[k]], indices[k]);
			CHECK_STATUS(c, BATON_ERR_STALE,
			             baton_test(copies[indices[k]], NULL));
		}
	}
	if (c->rank == 1) {
		CHECK_OK(c, baton_finish_some(requests, N, -1, indices, NULL, N,
		                              &done));
		CHECK_EQ(c, done, 0);
	}
}

/* ---- threads ------------------------------------------------------------ */

static void
threads_wait_each_for_its_own(struct conform *c)
{
	struct conform_waiter waiters[N];
	baton_request requests[N];
	int values[N] = { 0 }, started = 0;

	for (int i = 0; i < N && c->rank == 1; i++) {
		requests[i] = RECV(c, &values[i], sizeof(int), 0, i, c->stream,
		                   &conform_detached);
		started += WAITER_START(c, &waiters[i], requests[i]);
	}
	conform_sync(c);
	/* The last one first: whoever drives, drives for all. */
	for (int i = N - 1; i >= 0; i--)
		send_one(c, i);
	for (int i = 0; i < started; i++) {
		WAITER_JOIN(c, BATON_OK, &waiters[i]);
		CHECK_EQ(c, values[i], i);
		CHECK_OK(c, baton_release(&requests[i]));
	}
}

static void
threads_wait_all_for_the_same(struct conform *c)
{
	struct conform_waiter waiters[N];
	baton_request request = 0;
	int value = 0, started = 0;

	if (c->rank == 1)
		request = RECV(c, &value, sizeof(int), 0, 7, c->stream, NULL);
	for (int i = 0; i < N && c->rank == 1; i++)
		started += WAITER_START(c, &waiters[i], request);
	conform_sync(c);
	send_one(c, 7);
	for (int i = 0; i < started; i++)
		WAITER_JOIN(c, BATON_OK, &waiters[i]);
	if (c->rank == 1) {
		CHECK_OK(c, baton_release(&request));
		CHECK_EQ(c, value, 7);
	}
}

/* One thread waits for what never comes; another's messages still arrive. */
static void
a_waiting_thread_holds_up_no_other(struct conform *c)
{
	struct conform_waiter waiter;
	baton_request request = 0, late = 0;
	unsigned char data[3000] = { 0 };
	bool started = false;
	int value;

	if (c->rank == 1) {
		late = RECV(c, &value, sizeof(int), 0, 5, c->stream,
		            &conform_detached);
		started = WAITER_START(c, &waiter, late);
	}
	for (int i = 0; i < 200; i++) {
		if (c->rank == 0)
			request = SEND(c, data, sizeof(data), 1, 6, c->stream,
			               NULL);
		else if (c->rank == 1)
			request = RECV(c, data, sizeof(data), 0, 6, c->stream,
			               NULL);
		FINISH(c, BATON_OK, &request);
	}
	conform_sync(c);
	send_one(c, 5);
	if (started) {
		WAITER_JOIN(c, BATON_OK, &waiter);
		CHECK_OK(c, baton_release(&late));
	}
}

static void
raise_fn(void *arg)
{
	_Atomic bool *flag = arg;

	atomic_store(flag, true);
}

/* Nobody waits at all: the engine's thread makes progress by itself. */
static void
the_engine_needs_no_waiting_thread(struct conform *c)
{
	static const size_t sizes[] = { 8, 3000, 300000 };

	for (unsigned i = 0; i < 3 && c->info.engine_thread; i++) {
		unsigned char *data = conform_alloc(c, sizes[i]);
		int64_t begin = conform_begin();
		_Atomic bool here = false;
		baton_request request = 0;

		if (c->rank == 0) {
			conform_fill(data, sizes[i], i);
			request = SEND(c, data, sizes[i], 1, 0, c->stream,
			               NULL);
		} else if (c->rank == 1) {
			request = RECV(c, data, sizes[i], 0, 0, c->stream,
			               NULL);
			CHECK_OK(c, baton_stream_launch(c->comm, c->stream,
			                                raise_fn, &here));
		}
		/* No call of Baton's here, on either side. */
		while (c->rank == 1 && !atomic_load(&here) && STILL(c, begin))
			;
		conform_sync(c);
		FINISH(c, BATON_OK, &request);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
		CHECK_FILLED(c, data, c->rank < 2 ? sizes[i] : 0, i);
	}
}

static void
progress_alone_drives_where_calls_do(struct conform *c)
{
	void *data = c->rank == 1 ? conform_message(c, 100000)
	                          : conform_filled(c, 100000, 4);
	baton_request request = 0;
	int64_t begin = conform_begin();
	baton_stream second = conform_stream(c);

	if (c->rank == 0)
		request = SEND(c, data, 100000, 1, 0, second, NULL);
	else if (c->rank == 1)
		request = RECV(c, data, 100000, 0, 0, second, NULL);
	while (c->rank < 2 && baton_stream_query(c->comm, second) ==
	                              BATON_PENDING && STILL(c, begin))
		(void)baton_progress(c->comm);
	/* Where the stream itself carries it, the engine looks at it later than
	 * the stream goes on, and another rank may just be driving. */
	while (c->rank < 2 && baton_test(request, NULL) == BATON_PENDING &&
	       STILL(c, begin))
		(void)baton_progress(c->comm);
	CHECK_OK(c, c->rank < 2 ? baton_test(request, NULL) : BATON_OK);
	FINISH(c, BATON_OK, &request);
	CHECK_FILLED(c, data, 100000, 4);
}

const struct conform_case conform_wait[] = {
	{ CASE(wait_any_finds_the_one_that_ended), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(wait_any_takes_the_lowest_index), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(wait_any_gives_the_status_of_its_request), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_CANCEL },
	{ CASE(wait_all_ends_when_all_have), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(wait_all_tells_the_first_error), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS | BATON_CAP_CANCEL },
	{ CASE(a_stale_handle_among_others_is_told), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(test_some_lists_what_has_ended), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(finish_all_releases_when_all_have_ended), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(finish_some_releases_what_has_ended), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(threads_wait_each_for_its_own), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(threads_wait_all_for_the_same), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(a_waiting_thread_holds_up_no_other), .ranks_min = 2,
	  .needs = BATON_CAP_TAGS },
	{ CASE(the_engine_needs_no_waiting_thread), .ranks_min = 2,
	  .flags = CONFORM_HOST_ISSUED | CONFORM_HOST_DEVICE },
	{ CASE(progress_alone_drives_where_calls_do), .ranks_min = 2,
	  .flags = CONFORM_STEP },
	CASES_END,
};
