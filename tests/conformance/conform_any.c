/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives from any rank (BATON_ANY_SOURCE): whose message each gets, and what waits for it
 * (guarantee 3). */
#include "open_receives.h"

static baton_request
recv_any(struct conform *c, int *value, int tag, baton_stream stream)
{
	return conform_recv_int(c, value, ANY, tag, stream);
}

/* ---- whose message ------------------------------------------------------ */

/* All others send, some messages before the receives are posted. */
static void
a_completion_says_whose_message_it_is(struct conform *c)
{
	enum { EACH = 8, MOST = 8 * EACH };
	const int n = EACH * (c->size - 1 < 8 ? c->size - 1 : 8);
	int values[MOST], counts[MOST / EACH + 1] = {0};
	baton_request requests[MOST];

	for (int k = 0; k < EACH && c->rank > 0 && c->rank <= 8; k++)
		conform_send_int(c, 100 * c->rank + k, 0, 7);
	for (int i = 0; i < n && c->rank == 0; i++)
		requests[i] = recv_any(c, &values[i], 7, c->stream);
	for (int i = 0; i < n && c->rank == 0; i++) {
		struct baton_completion done = {.peer = 0};

		if (!FINISH_AS(c, BATON_OK, &requests[i], &done))
			break;
		/* Those of one rank in their order. */
		CHECK(c, done.peer > 0 && done.peer < c->size);
		CHECK_EQ(c, done.tag, 7);
		CHECK_EQ(c, done.bytes, sizeof(int));
		CHECK_EQ(c, values[i], 100 * done.peer + counts[done.peer]++);
	}
}

static void
messages_of_all_lengths_come_behind_their_receive(struct conform *c)
{
	conform_all_lengths(c, true, ANY, 3);
}

static void
messages_of_all_lengths_come_before_their_receive(struct conform *c)
{
	conform_all_lengths(c, false, ANY, 3);
}

static void
a_longer_message_ends_in_truncated(struct conform *c)
{
	const size_t long_ones[] = {16, 4096, MIB};

	for (size_t i = 0; i < 3; i++) {
		size_t bytes = long_ones[i];
		struct baton_completion done = {.peer = 0};
		baton_request request = BATON_REQUEST_NULL;
		unsigned char *buffer;

		if (c->rank == 1) {
			buffer = conform_message(c, bytes);
			request = RECV(c, buffer, bytes / 2, ANY, 3, c->stream,
			               NULL);
			FINISH_AS(c, BATON_ERR_TRUNCATED, &request, &done);
			CHECK_EQ(c, done.bytes, bytes);
			CHECK_EQ(c, done.peer, 0);
			CHECK_ALL(c, buffer + bytes / 2, bytes / 2, 0);
		} else if (c->rank == 0) {
			buffer = conform_filled(c, bytes, 1);
			request = SEND(c, buffer, bytes, 1, 3, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		}
	}
	conform_sound(c);
}

static void
a_message_to_oneself_is_one_from_any(struct conform *c)
{
	int got = 0, sent = 10 + c->rank;
	baton_request in = recv_any(c, &got, 4, c->stream);
	baton_request out = SEND(c, &sent, sizeof(sent), c->rank, 4, c->stream,
	                         &conform_detached);

	conform_finish_as(c, &in, c->rank, 4);
	FINISH(c, BATON_OK, &out);
	CHECK_EQ(c, got, sent);
}

/* ---- places in the order of the calls ----------------------------------- */

/* The first message is the first receive's, although that names nobody. */
static void
a_later_recv_that_names_the_rank_gets_the_next_message(struct conform *c)
{
	int any[2] = {0}, named[2] = {0};
	baton_request requests[4];

	if (c->rank == 0) {
		requests[0] = recv_any(c, &any[0], 5, c->stream);
		requests[1] = RECV(c, &named[0], sizeof(int), 1, 5, c->stream,
		                   &conform_detached);
		requests[2] = recv_any(c, &any[1], 5, c->stream);
		requests[3] = RECV(c, &named[1], sizeof(int), 1, 5, c->stream,
		                   &conform_detached);
	}
	conform_sync(c);
	for (int k = 1; k <= 4 && c->rank == 1; k++)
		conform_send_int(c, k, 0, 5);
	for (int k = 0; k < 4 && c->rank == 0; k++)
		conform_finish_as(c, &requests[k], 1, 5);
	if (c->rank == 0) {
		CHECK_EQ(c, any[0], 1);
		CHECK_EQ(c, named[0], 2);
		CHECK_EQ(c, any[1], 3);
		CHECK_EQ(c, named[1], 4);
	}
}

/* Its message stays, and those of other ranks pass it: here, of the rank itself. */
static void
an_earlier_recv_that_names_its_rank_keeps_its_message(struct conform *c)
{
	int any = 0, named = 0, marker = 0, own = 3;
	baton_request early = 0, late = 0, request = 0;
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		early = RECV(c, &named, sizeof(int), 1, 5, gated, NULL);
		late = recv_any(c, &any, 5, c->stream);
		request = RECV(c, &marker, sizeof(int), 1, 6, c->stream,
		               &conform_detached);
		/* The message on tag 5 is there. */
		FINISH(c, BATON_OK, &request);
		CHECK_STATUS(c, BATON_PENDING, baton_test(late, NULL));
		request = SEND(c, &own, sizeof(int), 0, 5, c->stream,
		               &conform_detached);
		conform_finish_as(c, &late, 0, 5);
		FINISH(c, BATON_OK, &request);
		CHECK_STATUS(c, BATON_PENDING, baton_test(early, NULL));
		conform_gate_open(c, 0);
		conform_finish_as(c, &early, 1, 5);
		CHECK_EQ(c, any, 3);
		CHECK_EQ(c, named, 1);
	} else if (c->rank == 1) {
		conform_send_ints(c, 2, (const int[]){5, 6}, 0);
	}
}

/* The earlier receive has its message, or goes: what else its rank has sent is for any. */
static void
what_an_earlier_recv_leaves_is_for_any(struct conform *c)
{
	int any[2] = {0}, named[2] = {0}, marker = 0;
	baton_request early[2], late[2], request;
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		early[0] = RECV(c, &named[0], sizeof(int), 1, 5, gated,
		                &conform_detached);
		late[0] = recv_any(c, &any[0], 5, c->stream);
		early[1] = RECV(c, &named[1], sizeof(int), 1, 7, gated,
		                &conform_detached);
		late[1] = recv_any(c, &any[1], 7, c->stream);
		request = RECV(c, &marker, sizeof(int), 1, 6, c->stream,
		               &conform_detached);
		FINISH(c, BATON_OK, &request);
		CHECK_STATUS(c, BATON_PENDING, baton_test(late[0], NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(late[1], NULL));
		CHECK_OK(c, baton_cancel(early[1]));
		FINISH(c, BATON_ERR_CANCELED, &early[1]);
		conform_finish_as(c, &late[1], 1, 7);
		CHECK_EQ(c, any[1], 3);
		CHECK_STATUS(c, BATON_PENDING, baton_test(late[0], NULL));
		conform_gate_open(c, 0);
		conform_finish_as(c, &late[0], 1, 5);
		conform_finish_as(c, &early[0], 1, 5);
		CHECK_EQ(c, named[0], 1);
		CHECK_EQ(c, any[0], 2);
	} else if (c->rank == 1) {
		conform_send_ints(c, 4, (const int[]){5, 5, 7, 6}, 0);
	}
}

/* It is not armed: whatever is behind it on its tag waits, and nothing else does. */
static void
an_unarmed_one_holds_up_its_tag_alone(struct conform *c)
{
	int any = 0, named = 0, other = 0;
	baton_request first = 0, second = 0, third = 0;
	baton_stream gated = conform_stream(c);

	if (c->rank == 0) {
		conform_gate_launch(c, 0, gated);
		first = RECV(c, &any, sizeof(int), ANY, 5, gated, NULL);
		second = RECV(c, &named, sizeof(int), 1, 5, c->stream,
		              &conform_detached);
		third = RECV(c, &other, sizeof(int), 1, 6, c->stream,
		             &conform_detached);
		FINISH(c, BATON_OK, &third);
		CHECK_STATUS(c, BATON_PENDING, baton_test(first, NULL));
		CHECK_STATUS(c, BATON_PENDING, baton_test(second, NULL));
		conform_gate_open(c, 0);
		conform_finish_as(c, &first, 1, 5);
		conform_finish_as(c, &second, 1, 5);
		CHECK_EQ(c, any, 1);
		CHECK_EQ(c, named, 2);
		CHECK_EQ(c, other, 3);
	} else if (c->rank == 1) {
		conform_send_ints(c, 3, (const int[]){5, 5, 6}, 0);
	}
}

/* While one waits, other tags, sends and other ranks go on. */
static void
a_pending_one_holds_up_no_other_tag(struct conform *c)
{
	int any = 0, value = c->rank;
	baton_request waiting = 0;

	if (c->rank == 0)
		waiting = recv_any(c, &any, 5, c->stream);
	for (int k = 0; k < 20; k++)
		conform_sound(c);
	if (c->rank == 0)
		CHECK_STATUS(c, BATON_PENDING, baton_test(waiting, NULL));
	conform_sync(c);
	if (c->rank == 1)
		conform_send_int(c, value, 0, 5);
	if (c->rank == 0)
		conform_finish_as(c, &waiting, 1, 5);
}

/* Rank 1 sends for as long as the one message of rank 2 has not been received. */
static void
no_rank_starves_another(struct conform *c)
{
	enum { DEPTH = 16 };
	int values[DEPTH] = {0}, stop = 0;
	baton_request requests[DEPTH] = {0}, told;
	bool quiet[3] = {true, false, false};

	if (c->rank == 0) {
		while (!quiet[1] || !quiet[2]) {
			struct baton_completion done = {.peer = -1};
			baton_request request = recv_any(c, &stop, 1, c->stream);

			if (!FINISH_AS(c, BATON_OK, &request, &done))
				return;
			if (done.peer == 2)
				conform_send_int(c, 1, 1, 2);
			if (stop < 0)
				quiet[done.peer] = true;
		}
	} else if (c->rank == 1) {
		told = RECV(c, &stop, sizeof(stop), 0, 2, c->stream,
		            &conform_detached);
		for (unsigned k = 0; baton_test(told, NULL) == BATON_PENDING; k++) {
			if (requests[k % DEPTH])
				FINISH(c, BATON_OK, &requests[k % DEPTH]);
			requests[k % DEPTH] = SEND(c, &values[0], sizeof(int), 0,
			                           1, c->stream,
			                           &conform_detached);
		}
		FINISH(c, BATON_OK, &told);
		for (int k = 0; k < DEPTH; k++) {
			if (requests[k])
				FINISH(c, BATON_OK, &requests[k]);
		}
		conform_send_int(c, -1, 0, 1);
	} else if (c->rank == 2) {
		conform_send_int(c, -1, 0, 1);
	}
}

static void
many_wait_at_once(struct conform *c)
{
	enum { N = 500, TAGS = 5 };
	int *values = conform_alloc(c, N * sizeof(*values));
	baton_request *requests = conform_alloc(c, N * sizeof(*requests));
	int next[TAGS] = {0};

	for (int k = 0; k < N && c->rank == 0; k++)
		requests[k] = k % 7 ? recv_any(c, &values[k], k % TAGS, c->stream)
		                    : RECV(c, &values[k], sizeof(int), 1,
		                           k % TAGS, c->stream,
		                           &conform_detached);
	conform_sync(c);
	for (int k = 0; k < N && c->rank == 1; k++) {
		values[k] = k / TAGS;
		requests[k] = SEND(c, &values[k], sizeof(int), 0, k % TAGS,
		                   c->stream, &conform_detached);
	}
	for (int k = 0; k < N && c->rank < 2; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		if (c->rank == 0)
			CHECK_EQ(c, values[k], next[k % TAGS]++);
	}
}

/* ---- ends ---------------------------------------------------------------- */

static void
one_that_is_canceled_leaves_its_place(struct conform *c)
{
	struct baton_completion done = {.peer = 0};
	int values[4] = {0};
	baton_request requests[4];

	if (c->rank == 0) {
		for (int k = 0; k < 4; k++)
			requests[k] = k < 3 ? recv_any(c, &values[k], 5, c->stream)
			                    : RECV(c, &values[k], sizeof(int), 1,
			                           5, c->stream,
			                           &conform_detached);
		/* At the head, and behind it. */
		for (int k = 0; k < 3; k += 2) {
			CHECK_OK(c, baton_cancel(requests[k]));
			FINISH_AS(c, BATON_ERR_CANCELED, &requests[k], &done);
			CHECK_EQ(c, done.peer, ANY);
			CHECK_EQ(c, done.flags, 0);
		}
	}
	conform_sync(c);
	for (int k = 1; k <= 2 && c->rank == 1; k++)
		conform_send_int(c, k, 0, 5);
	if (c->rank == 0) {
		conform_finish_as(c, &requests[1], 1, 5);
		conform_finish_as(c, &requests[3], 1, 5);
		CHECK_EQ(c, values[1], 1);
		CHECK_EQ(c, values[3], 2);
	}
}

/* What stood behind it goes on, and so does the message that comes after. */
static void
one_that_times_out_leaves_its_place(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int values[2] = {0};
	baton_request requests[2];

	options.timeout_ns = 5 * MS;
	options.flags = BATON_OP_DETACHED;
	if (c->rank == 0) {
		requests[0] = RECV(c, &values[0], sizeof(int), ANY, 5, c->stream,
		                   &options);
		requests[1] = RECV(c, &values[1], sizeof(int), 1, 5, c->stream,
		                   &conform_detached);
		FINISH(c, BATON_ERR_TIMEOUT, &requests[0]);
	}
	conform_sync(c);
	if (c->rank == 1)
		conform_send_int(c, 9, 0, 5);
	if (c->rank == 0) {
		conform_finish_as(c, &requests[1], 1, 5);
		CHECK_EQ(c, values[1], 9);
	}
}

/* With it goes what a send to oneself was waiting for.  Its message is not for what stood behind it: that names
 * another rank. */
static void
a_recv_behind_a_canceled_one_keeps_its_rank(struct conform *c)
{
	baton_stream stream = conform_stream(c);
	struct baton_plan *plan = NULL;
	baton_request launch = 0, own[2], named;
	int values[4] = {0}, sent = 3;

	if (c->rank == 0) {
		CHECK_OK(c, baton_plan_begin(c->comm));
		CHECK_OK(c, baton_recv(&values[0], sizeof(int), BATON_UINT8, 1, 6,
		                       c->comm, stream, NULL, NULL));
		CHECK_OK(c, baton_recv(&values[1], sizeof(int), BATON_UINT8, ANY,
		                       5, c->comm, c->stream, &conform_detached,
		                       NULL));
		CHECK_OK(c, baton_plan_end(c->comm, &plan));
		CHECK_OK(c, baton_plan_launch(plan, NULL, &launch));
		own[0] = SEND(c, &sent, sizeof(int), 0, 5, stream, NULL);
		named = RECV(c, &values[2], sizeof(int), 1, 5, c->stream,
		             &conform_detached);
		CHECK_OK(c, baton_cancel(launch));
		FINISH(c, BATON_ERR_CANCELED, &launch);
		own[1] = RECV(c, &values[3], sizeof(int), 0, 5, c->stream,
		              &conform_detached);
		conform_finish_as(c, &own[1], 0, 5);
		FINISH(c, BATON_OK, &own[0]);
	}
	conform_sync(c);
	if (c->rank == 1)
		conform_send_int(c, 9, 0, 5);
	if (c->rank == 0) {
		conform_finish_as(c, &named, 1, 5);
		CHECK_EQ(c, values[2], 9);
		CHECK_EQ(c, values[3], 3);
		CHECK_OK(c, baton_plan_destroy(plan));
	}
}

static void
an_abort_ends_those_that_wait(struct conform *c)
{
	struct baton_comm *own = conform_exchange(c, NULL);
	int values[3] = {0};
	baton_request requests[3];

	requests[0] = recv_any(c, &values[0], 5, c->stream);
	requests[1] = recv_any(c, &values[1], 5, c->stream);
	requests[2] = RECV(c, &values[2], sizeof(int), conform_next(c), 5,
	                   c->stream, &conform_detached);
	CHECK_OK(c, baton_comm_abort(c->comm));
	for (int k = 0; k < 3; k++)
		FINISH(c, BATON_ERR_ABORTED, &requests[k]);
	/* A rank that destroys it would be gone to one that has not aborted yet. */
	conform_sync(c);
	RESTORE(c, own);
	conform_sound(c);
}

/* ---- with the rest of the interface --------------------------------------- */

/* Each sends to the next rank and receives from any: its own previous one. */
static void
a_group_may_receive_from_any(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int got = -1, sent = c->rank;
	baton_request in = 0, out = 0;

	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_recv(&got, sizeof(got), BATON_UINT8, ANY, 8, c->comm,
	                       c->stream, &options, &in));
	CHECK_OK(c, baton_send(&sent, sizeof(sent), BATON_UINT8, conform_next(c),
	                       8, c->comm, c->stream, &options, &out));
	CHECK_OK(c, baton_group_end(c->comm));
	conform_finish_as(c, &in, conform_previous(c), 8);
	FINISH(c, BATON_OK, &out);
	CHECK_EQ(c, got, conform_previous(c));
}

static void
a_plan_may_receive_from_any(struct conform *c)
{
	struct baton_plan *plan = NULL;
	int got = -1, sent = c->rank;

	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_recv(&got, sizeof(got), BATON_UINT8, ANY, 8, c->comm,
	                       c->stream, NULL, NULL));
	CHECK_OK(c, baton_send(&sent, sizeof(sent), BATON_UINT8, conform_next(c),
	                       8, c->comm, c->stream, NULL, NULL));
	CHECK_OK(c, baton_group_end(c->comm));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	conform_launch_thrice(c, plan, &got);
	/* Without a group, where a launch takes the fast way. */
	CHECK_OK(c, baton_plan_destroy(plan));
	plan = NULL;
	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_OK(c, baton_send(&sent, sizeof(sent), BATON_UINT8, conform_next(c),
	                       9, c->comm, c->stream, &conform_detached, NULL));
	CHECK_OK(c, baton_recv(&got, sizeof(got), BATON_UINT8, ANY, 9, c->comm,
	                       c->stream, &conform_detached, NULL));
	CHECK_OK(c, baton_plan_end(c->comm, &plan));
	conform_launch_thrice(c, plan, &got);
	CHECK_OK(c, baton_plan_destroy(plan));
}

static void
a_queue_delivers_what_any_has_sent(struct conform *c)
{
	enum { N = 20 };
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct baton_completion done[N];
	struct baton_queue *queue = NULL;
	int values[N] = {0};
	size_t n = 0;

	if (c->rank == 0) {
		CHECK_OK(c, baton_queue_create(c->comm, N, &queue));
		options.queue = queue;
		options.flags = BATON_OP_DETACHED;
		for (int k = 0; k < N; k++)
			CHECK_OK(c, baton_recv(&values[k], sizeof(int),
			                       BATON_UINT8, ANY, 3, c->comm,
			                       c->stream, &options, NULL));
		for (int64_t t = conform_begin(); n < N && STILL(c, t);)
			n += baton_queue_poll(queue, done + n, N - n);
		for (size_t k = 0; k < n; k++) {
			CHECK_EQ(c, done[k].status, BATON_OK);
			CHECK_EQ(c, done[k].peer, 1);
		}
		baton_queue_destroy(queue);
	} else if (c->rank == 1) {
		for (int k = 0; k < N; k++)
			conform_send_int(c, k, 0, 3);
	}
}

static void
a_list_of_tensors_may_come_from_any(struct conform *c)
{
	struct baton_completion done = {.peer = 0};
	float *data = conform_message(c, 6 * sizeof(float));
	struct baton_tensor tensor = {
		.data = data, .type = BATON_FLOAT32, .rank = 2, .shape = {2, 3}};
	baton_request request = 0;

	for (unsigned k = 0; k < 2; k++) {
		if (c->rank == 0) {
			conform_write(c, data, 6 * sizeof(float), k);
			CHECK_OK(c, baton_send_tensors(&tensor, 1, 1, 2, c->comm,
			                               c->stream, NULL,
			                               &request));
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1) {
			CHECK_OK(c, baton_recv_tensors(&tensor, 1, ANY, 2,
			                               c->comm, c->stream, NULL,
			                               &request));
			FINISH_AS(c, BATON_OK, &request, &done);
			CHECK_EQ(c, done.peer, 0);
			CHECK_FILLED(c, data, 6 * sizeof(float), k);
		}
	}
	conform_sync(c);
	/* A plain receive meets it in MISMATCH. */
	if (c->rank == 0) {
		CHECK_OK(c, baton_send_tensors(&tensor, 1, 1, 2, c->comm,
		                               c->stream, NULL, &request));
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		request = RECV(c, data, 6 * sizeof(float), ANY, 2, c->stream,
		               NULL);
		FINISH(c, BATON_ERR_MISMATCH, &request);
	}
	conform_sound(c);
}

/* ---- refusals -------------------------------------------------------------- */

static void
any_source_is_for_receives_where_the_paths_tell_what_came(struct conform *c)
{
	int value = 0;
	baton_request request = 0;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_send(&value, 1, BATON_INT32, ANY, 0, c->comm,
	                         c->stream, NULL, &request),
	              "peer -1 BATON_ANY_SOURCE receives");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv(&value, 1, BATON_INT32, -2, 0, c->comm,
	                         c->stream, NULL, &request),
	              "peer -2 ranks");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv(&value, 1, BATON_INT32, ANY, -2, c->comm,
	                         c->stream, NULL, &request),
	              "tag -2");
	if (!(c->info.capabilities & BATON_CAP_ANY_SOURCE))
		CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
		              baton_recv(&value, 1, BATON_INT32, ANY, 0, c->comm,
		                         c->stream, NULL, &request),
		              "BATON_ANY_SOURCE streams");
	CHECK_EQ(c, request, 0);
}

#define NEEDS .needs = BATON_CAP_ANY_SOURCE

const struct conform_case conform_any[] = {
	{CASE(a_completion_says_whose_message_it_is), .ranks_min = 2, NEEDS},
	{CASE(messages_of_all_lengths_come_behind_their_receive), .ranks_min = 2, NEEDS},
	{CASE(messages_of_all_lengths_come_before_their_receive), .ranks_min = 2, NEEDS},
	{CASE(a_longer_message_ends_in_truncated), .ranks_min = 2, NEEDS},
	{CASE(a_message_to_oneself_is_one_from_any), NEEDS},
	{CASE(a_later_recv_that_names_the_rank_gets_the_next_message), .ranks_min = 2, NEEDS},
	{CASE(an_earlier_recv_that_names_its_rank_keeps_its_message), .ranks_min = 2, NEEDS,
	  .streams = 2},
	{CASE(what_an_earlier_recv_leaves_is_for_any), .ranks_min = 2, NEEDS, .streams = 2},
	{CASE(an_unarmed_one_holds_up_its_tag_alone), .ranks_min = 2, NEEDS, .streams = 2},
	{CASE(a_pending_one_holds_up_no_other_tag), .ranks_min = 2, NEEDS},
	{CASE(no_rank_starves_another), .ranks_min = 3, NEEDS},
	{CASE(many_wait_at_once), .ranks_min = 2, NEEDS},
	{CASE(one_that_is_canceled_leaves_its_place), .ranks_min = 2, NEEDS},
	{CASE(one_that_times_out_leaves_its_place), .ranks_min = 2, NEEDS},
	{CASE(a_recv_behind_a_canceled_one_keeps_its_rank), .ranks_min = 2, NEEDS,
	  .streams = 2},
	{CASE(an_abort_ends_those_that_wait), NEEDS, .comms = 2},
	{CASE(a_group_may_receive_from_any), NEEDS},
	{CASE(a_plan_may_receive_from_any), NEEDS},
	{CASE(a_queue_delivers_what_any_has_sent), .ranks_min = 2, NEEDS},
	{CASE(a_list_of_tensors_may_come_from_any), .ranks_min = 2,
	  .needs = BATON_CAP_ANY_SOURCE | BATON_CAP_TENSORS},
	{CASE(any_source_is_for_receives_where_the_paths_tell_what_came)},
	CASES_END,
};
