/* SPDX-License-Identifier: BSD-3-Clause */
/* Request handles and their pool: guarantees 1, 5 and 10. */
#include <string.h>

#include "harness.h"

/* A request that has ended in OK, on this rank alone. */
static baton_request
ended(struct conform *c)
{
	baton_request request = 0;

	CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &request));
	CHECK_OK(c, baton_wait(request, conform_patience(c), NULL));
	return request;
}

/* Every call but release refuses it; nothing is written. */
static void
check_stale(struct conform *c, baton_request stale)
{
	struct baton_request_info info = { .size = sizeof(info) };
	struct baton_completion kept, untouched;
	baton_request copy = stale;
	size_t index = 9, done = 9, indices[2] = { 9, 9 };
	char text[8] = "keep";

	memset(&kept, 0x33, sizeof(kept));
	memset(&untouched, 0x33, sizeof(untouched));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_test(stale, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_wait(stale, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_finish(&copy, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_cancel(stale));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_release(&copy));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_request_error(stale, text, 8));
	CHECK_STATUS(c, BATON_ERR_STALE, baton_request_info(stale, &info));
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_finish_all(&copy, 1, -1, &kept));
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_finish_some(&copy, 1, -1, indices, &kept, 2, &done));
	CHECK_EQ(c, done, 0);
	CHECK_EQ(c, indices[0], 0);
	done = indices[0] = 9;
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_stream_wait(c->comm, c->stream, stale));
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_wait_any(&stale, 1, -1, &index, &kept));
	CHECK_EQ(c, index, 0);
	CHECK_STATUS(c, BATON_ERR_STALE, baton_wait_all(&stale, 1, -1));
	CHECK_STATUS(c, BATON_ERR_STALE,
	             baton_test_some(&stale, 1, indices, 2, &done));
	CHECK_EQ(c, done, 0);
	CHECK_EQ(c, indices[0], 0);
	CHECK_EQ(c, indices[1], 9);
	CHECK(c, copy == stale);
	CHECK(c, memcmp(&kept, &untouched, sizeof(kept)) == 0);
	CHECK(c, strcmp(text, "keep") == 0);
}

/* A ring: each receives from the one before, which sends when it has looked. */
static void
an_info_tells_what_a_request_is(struct conform *c)
{
	struct baton_request_info info = { .size = sizeof(info) };
	struct baton_op_options marked = BATON_OP_OPTIONS_INIT;
	int from = conform_previous(c), to = conform_next(c);
	int *cells = conform_alloc(c, 2 * sizeof(*cells));
	baton_request requests[2];

	marked.user_data = 4711;
	marked.flags = BATON_OP_DETACHED;
	requests[0] = RECV(c, &cells[0], sizeof(int), from, 0, c->stream,
	                   &marked);
	conform_sync(c);
	CHECK_OK(c, baton_request_info(requests[0], &info));
	CHECK_EQ(c, info.op, BATON_OPERATION_RECV);
	CHECK_EQ(c, info.peer, from);
	CHECK_EQ(c, info.tag, 0);
	CHECK_EQ(c, info.bytes, sizeof(int));
	CHECK_EQ(c, info.user_data, 4711);
	CHECK(c, info.request == requests[0]);
	CHECK(c, info.buffer == &cells[0]);
	CHECK(c, info.stream == c->stream);
	CHECK_EQ(c, info.status, BATON_PENDING);
	CHECK_EQ(c, info.flags, BATON_INFO_DETACHED);
	CHECK(c, info.state >= BATON_STATE_CALLED &&
	                 info.state <= BATON_STATE_ISSUED);
	conform_sync(c);
	requests[1] = SEND(c, &cells[1], sizeof(int), to, 0, c->stream, &marked);
	CHECK_OK(c, baton_wait(requests[0], conform_patience(c), NULL));
	CHECK_OK(c, baton_request_info(requests[0], &info));
	CHECK_EQ(c, info.state, BATON_STATE_ENDED);
	CHECK_EQ(c, info.status, BATON_OK);
	FINISH_ALL(c, requests, 2);
}

static void
a_released_handle_is_stale(struct conform *c)
{
	baton_request request = ended(c), kept = request;

	CHECK_OK(c, baton_release(&request));
	CHECK(c, request == BATON_REQUEST_NULL);
	CHECK_OK(c, baton_release(&request));
	check_stale(c, kept);
}

static void
a_finished_handle_is_stale(struct conform *c)
{
	baton_request request = ended(c), kept = request;

	CHECK_OK(c, baton_finish(&request, 0, NULL));
	CHECK(c, request == BATON_REQUEST_NULL);
	CHECK_STATUS(c, BATON_ERR_INVALID, baton_finish(&request, 0, NULL));
	check_stale(c, kept);
}

/* Its slot is used again at once, many times; the old handle stays told. */
static void
a_handle_stays_stale_when_its_slot_is_used_again(struct conform *c)
{
	const int turns = conform_turns(20000);
	baton_request old = ended(c), kept = old;

	CHECK_OK(c, baton_release(&old));
	for (int i = 0; i < turns; i++) {
		baton_request next = ended(c);

		CHECK(c, next != kept);
		CHECK_STATUS(c, BATON_ERR_STALE, baton_test(kept, NULL));
		CHECK_OK(c, baton_release(&next));
		if (atomic_load(&c->failures))
			break;
	}
}

static void
test_is_repeatable_and_frees_nothing(struct conform *c)
{
	struct baton_completion first, again;
	baton_request request = ended(c), other = ended(c);

	memset(&first, 0, sizeof(first));
	CHECK_OK(c, baton_test(request, &first));
	CHECK_OK(c, baton_release(&other));
	for (int i = 0; i < 100; i++) {
		memset(&again, 0, sizeof(again));
		CHECK_OK(c, baton_test(request, &again));
		CHECK(c, again.request == request);
		CHECK_EQ(c, again.status, first.status);
		CHECK_EQ(c, again.op, BATON_OPERATION_RECORD);
		CHECK_EQ(c, again.peer, -1);
		CHECK_EQ(c, again.tag, -1);
	}
	CHECK_OK(c, baton_release(&request));
}

static void
a_pending_test_describes_the_operation(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion now = { 0 };
	unsigned char data[40] = { 0 };
	baton_request request = 0;
	char text[8] = "full";

	options.user_data = 1234;
	if (c->rank == 1) {
		request = RECV(c, data, 40, 0, 0, c->stream, &options);
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, &now));
		CHECK_EQ(c, now.status, BATON_PENDING);
		CHECK(c, now.request == request);
		CHECK_EQ(c, now.user_data, 1234);
		CHECK_EQ(c, now.peer, 0);
		CHECK_EQ(c, now.op, BATON_OPERATION_RECV);
		CHECK_OK(c, baton_request_error(request, text, sizeof(text)));
		CHECK(c, text[0] == '\0');
	}
	conform_sync(c);
	if (c->rank == 0)
		request = SEND(c, data, 40, 1, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
}

static void
error_texts_are_cut_to_their_size(struct conform *c)
{
	baton_request request = ended(c);
	char text[4] = "abc";

	CHECK_OK(c, baton_request_error(request, text, sizeof(text)));
	CHECK(c, text[0] == '\0');
	CHECK_OK(c, baton_release(&request));
	request = RECV(c, text, 1, c->rank, 0, c->stream, NULL);
	CHECK_OK(c, baton_cancel(request));
	CHECK_STATUS(c, BATON_ERR_CANCELED,
	             baton_wait(request, conform_patience(c), NULL));
	memset(text, 'x', sizeof(text));
	CHECK_OK(c, baton_request_error(request, text, 2));
	CHECK(c, text[0] != 'x' && text[1] == '\0' && text[2] == 'x');
	CHECK_OK(c, baton_release(&request));
}

static void
a_wait_that_runs_out_changes_nothing(struct conform *c)
{
	struct baton_completion now = { 0 };
	unsigned char data[64] = { 0 };
	baton_request request = 0, kept;

	if (c->rank == 1) {
		request = kept = RECV(c, data, 64, 0, 0, c->stream, NULL);
		CHECK_STATUS(c, BATON_PENDING, baton_wait(request, 0, &now));
		CHECK_EQ(c, now.status, BATON_PENDING);
		CHECK_STATUS(c, BATON_PENDING, baton_wait(request, MS, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_finish(&request, 0, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_finish(&request, MS, &now));
		CHECK(c, request == kept);
	}
	conform_sync(c);
	if (c->rank == 0) {
		conform_fill(data, 64, 2);
		request = SEND(c, data, 64, 1, 0, c->stream, NULL);
	}
	FINISH(c, BATON_OK, &request);
	CHECK_FILLED(c, data, c->rank < 2 ? 64 : 0, 2);
}

static void
a_released_pending_operation_goes_on(struct conform *c)
{
	static const size_t sizes[] = { 8, 3000, 200000 };

	for (unsigned i = 0; i < 3; i++) {
		unsigned char *data = conform_alloc(c, sizes[i]);
		baton_request request = 0, kept;

		if (c->rank == 1) {
			kept = request = RECV(c, data, sizes[i], 0, 0, c->stream,
			                      NULL);
			CHECK_OK(c, baton_release(&request));
			CHECK_STATUS(c, BATON_ERR_STALE, baton_test(kept, NULL));
		}
		conform_sync(c);
		if (c->rank == 0) {
			conform_fill(data, sizes[i], i);
			kept = request = SEND(c, data, sizes[i], 1, 0, c->stream,
			                      NULL);
			CHECK_OK(c, baton_release(&request));
		}
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
		CHECK_FILLED(c, data, c->rank < 2 ? sizes[i] : 0, i);
		conform_sync(c);
	}
}

/* ---- the pool ----------------------------------------------------------- */

static void
a_full_pool_is_again_and_recovers(struct conform *c)
{
	baton_request requests[16], request = 12345;
	unsigned char data[1];

	for (int round = 0; round < 3; round++) {
		for (int i = 0; i < 16; i++)
			requests[i] = RECV(c, data, 1, c->rank, 0, c->stream,
			                   &conform_detached);
		for (int i = 0; i < 3; i++)
			CHECK_REFUSED(c, BATON_ERR_AGAIN,
			              baton_send(data, 1, BATON_INT8, c->rank, 0,
			                         c->comm, c->stream, NULL,
			                         &request),
			              "16");
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_record(c->comm, c->stream, NULL, &request));
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_stream_launch(c->comm, c->stream, conform_nothing_fn,
		                                 NULL));
		CHECK_STATUS(c, BATON_ERR_AGAIN,
		             baton_stream_wait(c->comm, c->stream, requests[0]));
		CHECK(c, request == 12345);
		for (int i = 0; i < 16; i++) {
			CHECK_OK(c, baton_cancel(requests[i]));
			FINISH(c, BATON_ERR_CANCELED, &requests[i]);
		}
		/* A slot is free once the stream has passed it, too. */
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	conform_sync(c);
	conform_sound(c);
}

/* A completed request keeps its slot until it is released. */
static void
a_slot_is_free_when_its_request_is_released(struct conform *c)
{
	baton_request requests[8], request = 0;

	for (int i = 0; i < 8; i++)
		requests[i] = ended(c);
	CHECK_STATUS(c, BATON_ERR_AGAIN,
	             baton_record(c->comm, c->stream, NULL, &request));
	CHECK_OK(c, baton_release(&requests[3]));
	requests[3] = ended(c);
	CHECK_STATUS(c, BATON_ERR_AGAIN,
	             baton_record(c->comm, c->stream, NULL, &request));
	for (int i = 0; i < 8; i++)
		CHECK_OK(c, baton_release(&requests[i]));
}

static void
a_hundred_thousand_operations_pass_through_256_requests(struct conform *c)
{
	enum { DEPTH = 256 };
	const int n = conform_turns(CONFORM_SANITIZED ? 10000 : 100000);
	baton_request ring[DEPTH] = { 0 };
	int *values = conform_alloc(c, DEPTH * sizeof(*values));
	int oldest = 0, next = 0, refused = 0;

	while (oldest < n && c->rank < 2) {
		enum baton_status status = BATON_ERR_AGAIN;
		int at = next % DEPTH;

		if (next < n && next - oldest < DEPTH) {
			values[at] = c->rank ? -1 : next;
			status = c->rank ? baton_recv(&values[at], 1, BATON_INT32,
			                              0, 0, c->comm, c->stream,
			                              &conform_detached,
			                              &ring[at])
			                 : baton_send(&values[at], 1, BATON_INT32,
			                              1, 0, c->comm, c->stream,
			                              &conform_detached,
			                              &ring[at]);
		}
		if (status == BATON_OK) {
			next++;
			continue;
		}
		refused++;
		if (!CHECK_STATUS(c, BATON_ERR_AGAIN, status) ||
		    !CHECK(c, oldest < next))
			break;
		at = oldest % DEPTH;
		if (!FINISH(c, BATON_OK, &ring[at]) ||
		    !CHECK_EQ(c, values[at], oldest))
			break;
		oldest++;
	}
	CHECK(c, c->rank >= 2 || refused > 0);
}

/* As many as the pool takes, unmatched, then all at once. */
static void
a_full_pool_of_receives_is_served(struct conform *c)
{
	enum { N = 256 };
	baton_request requests[N] = { 0 };
	int *values = conform_alloc(c, N * sizeof(*values));
	const int rounds = conform_turns(20);

	for (int round = 0; round < rounds; round++) {
		for (int i = 0; i < N && c->rank < 2; i++) {
			values[i] = c->rank ? -1 : i * round;
			requests[i] = c->rank ? RECV(c, &values[i], sizeof(int),
			                             0, 0, c->stream,
			                             &conform_detached)
			                      : SEND(c, &values[i], sizeof(int),
			                             1, 0, c->stream,
			                             &conform_detached);
		}
		for (int i = N - 1; i >= 0 && c->rank < 2; i--) {
			FINISH(c, BATON_OK, &requests[i]);
			CHECK_EQ(c, values[i], i * round);
		}
	}
}

static void
the_smallest_pool_works(struct conform *c)
{
	int value = 0;

	for (int i = 0; i < 200 && c->rank < 2; i++) {
		baton_request request;

		if (c->rank == 0) {
			value = i;
			request = SEND(c, &value, sizeof(int), 1, 0, c->stream,
			               NULL);
		} else {
			request = RECV(c, &value, sizeof(int), 0, 0, c->stream,
			               NULL);
		}
		FINISH(c, BATON_OK, &request);
		CHECK_EQ(c, value, i);
	}
}

const struct conform_case conform_request[] = {
	{ CASE(an_info_tells_what_a_request_is), .ranks_min = 2 },
	{ CASE(a_released_handle_is_stale) },
	{ CASE(a_finished_handle_is_stale) },
	{ CASE(a_handle_stays_stale_when_its_slot_is_used_again),
	  .requests_max = 4 },
	{ CASE(test_is_repeatable_and_frees_nothing) },
	{ CASE(a_pending_test_describes_the_operation), .ranks_min = 2 },
	{ CASE(error_texts_are_cut_to_their_size),
	  .needs = BATON_CAP_CANCEL | BATON_CAP_SELF },
	{ CASE(a_wait_that_runs_out_changes_nothing), .ranks_min = 2 },
	{ CASE(a_released_pending_operation_goes_on), .ranks_min = 2 },
	{ CASE(a_full_pool_is_again_and_recovers), .requests_max = 16,
	  .needs = BATON_CAP_CANCEL | BATON_CAP_SELF },
	{ CASE(a_slot_is_free_when_its_request_is_released),
	  .requests_max = 8 },
	{ CASE(a_hundred_thousand_operations_pass_through_256_requests),
	  .ranks_min = 2, .requests_max = 256 },
	{ CASE(a_full_pool_of_receives_is_served), .ranks_min = 2,
	  .requests_max = 256 },
	{ CASE(the_smallest_pool_works), .ranks_min = 2, .requests_max = 1 },
	CASES_END,
};
