/* SPDX-License-Identifier: BSD-3-Clause */
/* baton_probe and baton_recv_message: what a probe finds, whose it is then, and what becomes of it. */
#include <string.h>

#include "open_receives.h"

#define TAG BATON_ANY_TAG
#define ANY_CAPS (BATON_CAP_ANY_SOURCE | BATON_CAP_ANY_TAG)

static const struct baton_message_info no_info = {.size = sizeof(no_info)};

/* Probe until there is a message. */
static baton_message
probe_until_found(struct conform *c, int peer, int tag, struct baton_message_info *info)
{
	baton_message message = 0;
	enum baton_status status = BATON_PENDING;

	*info = no_info;
	for (int64_t t = conform_begin(); status == BATON_PENDING && STILL(c, t);)
		status = baton_probe(peer, tag, c->comm, &message, info);
	CHECK_EQ(c, status, BATON_OK);
	return message;
}

static baton_message
find_as(struct conform *c, int peer, int tag, size_t bytes, int from, int with)
{
	struct baton_message_info info;
	baton_message message = probe_until_found(c, peer, tag, &info);

	CHECK_EQ(c, info.bytes, bytes);
	CHECK_EQ(c, info.peer, from);
	CHECK_EQ(c, info.tag, with);
	CHECK_EQ(c, info.list, false);
	CHECK_EQ(c, info.tensors, 0);
	return message;
}

static void
find_none(struct conform *c, int peer, int tag)
{
	baton_message message = 77;

	CHECK_STATUS(c, BATON_PENDING,
	             baton_probe(peer, tag, c->comm, &message, NULL));
	CHECK_EQ(c, message, 77);
}

static baton_request
receive(struct conform *c, void *buffer, size_t bytes, baton_message message,
        baton_stream stream, const struct baton_op_options *options)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_recv_message(buffer, bytes, BATON_UINT8, message,
	                               c->comm, stream, options, &request));
	return request;
}

static void
receive_int(struct conform *c, baton_message message, int want, int from, int tag)
{
	int value = -1;
	baton_request request = receive(c, &value, sizeof(value), message,
	                                c->stream, NULL);

	conform_finish_as(c, &request, from, tag);
	CHECK_EQ(c, value, want);
}

/* ---- what is found ------------------------------------------------------ */

static void
a_message_of_any_length_is_found_and_received(struct conform *c)
{
	const size_t lengths[] = {0, 1, 8, 61, 125, 2047, 2048, 4096, 16385, MIB};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		size_t bytes = lengths[i];
		baton_request request;
		void *buffer;

		if (c->rank == 1) {
			request = SEND(c, conform_filled(c, bytes, (unsigned)i),
			               bytes, 0, 3, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 0) {
			baton_message message = find_as(c, i % 2 ? ANY : 1,
			                                i % 3 ? TAG : 3, bytes,
			                                1, 3);

			find_none(c, ANY, TAG);
			buffer = conform_message(c, bytes + 1);
			request = receive(c, buffer, bytes + 1, message,
			                  c->stream, NULL);
			conform_finish_as(c, &request, 1, 3);
			CHECK_FILLED(c, buffer, bytes, (unsigned)i);
			CHECK_REFUSED(c, BATON_ERR_STALE,
			              baton_recv_message(buffer, bytes,
			                                 BATON_UINT8, message,
			                                 c->comm, c->stream,
			                                 NULL, NULL),
			              "baton_recv_message message received already");
		}
		/* What is sent next is not there before. */
		conform_sync(c);
	}
}

/* Of one peer and tag in the order of the sends; and they may be received in another. */
static void
messages_that_were_found_are_received_in_any_order(struct conform *c)
{
	const size_t bytes[] = {4, MIB, 4, 3000};
	baton_message messages[4];
	baton_request requests[4];
	void *buffers[4];

	for (unsigned k = 0; k < 4 && c->rank == 1; k++)
		requests[k] = SEND(c, conform_filled(c, bytes[k], k), bytes[k], 0, 5,
		                   c->stream, &conform_detached);
	for (unsigned k = 0; k < 4 && c->rank == 0; k++)
		messages[k] = find_as(c, 1, 5, bytes[k], 1, 5);
	for (unsigned k = 4; k-- > 0 && c->rank == 0;) {
		buffers[k] = conform_message(c, bytes[k]);
		requests[k] = receive(c, buffers[k], bytes[k], messages[k],
		                      c->stream, &conform_detached);
	}
	for (unsigned k = 0; k < 4 && c->rank < 2; k++)
		FINISH(c, BATON_OK, &requests[k]);
	for (unsigned k = 0; k < 4 && c->rank == 0; k++)
		CHECK_FILLED(c, buffers[k], bytes[k], k);
}

static void
a_later_receive_gets_the_message_behind_one_that_was_found(struct conform *c)
{
	int value = 0;

	if (c->rank == 1) {
		conform_send_ints(c, 3, (const int[]){4, 4, 4}, 0);
	} else if (c->rank == 0) {
		baton_message first = find_as(c, 1, 4, sizeof(int), 1, 4);
		baton_request second = conform_recv_int(c, &value, 1, 4,
		                                        c->stream);

		FINISH(c, BATON_OK, &second);
		CHECK_EQ(c, value, 2);
		receive_int(c, find_as(c, ANY, 4, sizeof(int), 1, 4), 3, 1, 4);
		receive_int(c, first, 1, 1, 4);
	}
}

/* Receives that were called come first, whether their streams have reached them or not. */
static void
what_an_earlier_receive_may_take_is_not_found(struct conform *c)
{
	const int tags[] = {4, BATON_ANY_TAG};

	for (int k = 0; k < 2; k++) {
		baton_stream gated = conform_stream(c);
		baton_request request = 0;
		int value = 0;

		if (c->rank == 0) {
			conform_gate_launch(c, k, gated);
			request = conform_recv_int(c, &value, 1, tags[k], gated);
		}
		conform_sync(c);
		if (c->rank == 1) {
			conform_send_ints(c, 2, (const int[]){4, k ? 4 : 6}, 0);
		} else if (c->rank == 0) {
			if (k == 0)
				receive_int(c, find_as(c, ANY, TAG, sizeof(int),
				                       1, 6),
				            2, 1, 6);
			find_none(c, 1, 4);
			find_none(c, ANY, TAG);
			conform_gate_open(c, k);
			conform_finish_as(c, &request, 1, 4);
			CHECK_EQ(c, value, 1);
			if (k == 1)
				receive_int(c, find_as(c, ANY, 4, sizeof(int), 1,
				                       4),
				            2, 1, 4);
			find_none(c, ANY, TAG);
		}
	}
}

static void
a_message_to_oneself_is_found(struct conform *c)
{
	int value = 5;
	baton_request out = SEND(c, &value, sizeof(value), c->rank, 1, c->stream,
	                         &conform_detached);

	receive_int(c, find_as(c, ANY, TAG, sizeof(int), c->rank, 1), 5, c->rank,
	            1);
	FINISH(c, BATON_OK, &out);
}

static void
a_list_of_tensors_is_found_and_received(struct conform *c)
{
	const struct baton_tensor shapes[3] = {
		{.type = BATON_INT32, .rank = 1, .shape = {100}},
		{.type = BATON_UINT8, .rank = 0},
		{.type = BATON_UINT8, .rank = 2, .shape = {600, 700}},
	};

	for (size_t n = 0; n <= 3; n++) {
		struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
		struct baton_tensor tensors[3];
		baton_request request = 0;
		size_t bytes = 0;

		memcpy(tensors, shapes, sizeof(tensors));
		for (size_t i = 0; i < n; i++) {
			size_t of = i == 0 ? 400 : i == 1 ? 1 : 420000;

			tensors[i].data = conform_filled(c, of, (unsigned)i);
			bytes += of;
		}
		if (c->rank == 1) {
			CHECK_OK(c, baton_send_tensors(tensors, n, 0, 2, c->comm,
			                               c->stream, NULL,
			                               &request));
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 0) {
			struct baton_message_info info;
			baton_message message = probe_until_found(c, 1, TAG, &info);

			CHECK_EQ(c, info.list, true);
			CHECK_EQ(c, info.bytes, bytes);
			CHECK_EQ(c, info.tensors, n);
			for (size_t i = 0; i < n; i++)
				tensors[i] = (struct baton_tensor){.rank = -1};
			options.arena_bytes = info.bytes + 256 * n;
			options.arena = conform_message(c, options.arena_bytes);
			CHECK_OK(c, baton_recv_message_tensors(
					    tensors, n, message, c->comm,
					    c->stream, &options, &request));
			FINISH(c, BATON_OK, &request);
			for (size_t i = 0; i < n; i++)
				CHECK_FILLED(c, tensors[i].data,
				             i == 0 ? 400 : i == 1 ? 1 : 420000,
				             (unsigned)i);
		}
	}
}

/* ---- how it ends -------------------------------------------------------- */

/* A message of so many bytes to rank 0, whose send ends in OK, and a 9 behind it. */
static void
send_and_nine(struct conform *c, size_t bytes)
{
	baton_request request = SEND(c, conform_filled(c, bytes, 1), bytes, 0, 3,
	                             c->stream, NULL);

	FINISH(c, BATON_OK, &request);
	conform_send_int(c, 9, 0, 3);
}

static void
receive_nine(struct conform *c)
{
	receive_int(c, find_as(c, 1, 3, sizeof(int), 1, 3), 9, 1, 3);
}

/* A receive that is too short, and one of 0 bytes, which is how a program discards a message. */
static void
a_receive_of_less_discards_the_message(struct conform *c)
{
	const size_t lengths[] = {8, 4096, MIB};

	for (size_t i = 0; i < 3; i++) {
		size_t bytes = lengths[i], room = i % 2 ? bytes / 2 : 0;
		baton_request request;

		if (c->rank == 1) {
			send_and_nine(c, bytes);
		} else if (c->rank == 0) {
			struct baton_completion done = {.peer = -5};

			request = receive(c, room ? conform_message(c, room) : NULL,
			                  room, find_as(c, 1, 3, bytes, 1, 3),
			                  c->stream, NULL);
			FINISH_AS(c, BATON_ERR_TRUNCATED, &request, &done);
			CHECK_EQ(c, done.bytes, bytes);
			CHECK_EQ(c, done.peer, 1);
			receive_nine(c);
		}
	}
}

/* Its stream has not reached it: it is gone with its message, and the next one is right. */
static void
a_canceled_receive_discards_its_message(struct conform *c)
{
	const size_t lengths[] = {8, MIB};

	for (int k = 0; k < 2; k++) {
		baton_stream gated = conform_stream(c);
		size_t bytes = lengths[k];
		baton_request request;

		if (c->rank == 1) {
			send_and_nine(c, bytes);
		} else if (c->rank == 0) {
			conform_gate_launch(c, k, gated);
			request = receive(c, conform_message(c, bytes), bytes,
			                  find_as(c, ANY, 3, bytes, 1, 3), gated,
			                  NULL);
			CHECK_OK(c, baton_cancel(request));
			FINISH(c, BATON_ERR_CANCELED, &request);
			receive_nine(c);
			conform_gate_open(c, k);
		}
	}
}

/* What was found is matched: its send is canceled no more. */
static void
a_send_that_was_found_is_not_taken_back(struct conform *c)
{
	baton_request request = 0;
	baton_message message = 0;
	void *buffer = NULL;

	if (c->rank == 1)
		request = SEND(c, conform_filled(c, MIB, 6), MIB, 0, 3, c->stream,
		               NULL);
	else if (c->rank == 0)
		message = find_as(c, 1, 3, MIB, 1, 3);
	conform_sync(c);
	if (c->rank == 1) {
		struct baton_completion done = {0};

		baton_cancel(request);
		/* Its bytes are to be received. */
		if (baton_test(request, &done) == BATON_ERR_CANCELED)
			CHECK(c, done.flags & BATON_COMPLETION_LENT);
	}
	conform_sync(c);
	if (c->rank == 0) {
		buffer = conform_message(c, MIB);
		request = receive(c, buffer, MIB, message, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, buffer, MIB, 6);
	} else if (c->rank == 1) {
		enum baton_status status = baton_finish(&request, -1, NULL);

		CHECK(c, status == BATON_OK || status == BATON_ERR_CANCELED);
	}
}

static void
members_of_a_group_receive_what_was_found(struct conform *c)
{
	int values[2] = {0};
	baton_request requests[2], stale = 0;
	baton_message messages[2];

	if (c->rank == 1)
		conform_send_ints(c, 2, (const int[]){4, 4}, 0);
	if (c->rank != 0)
		return;
	for (int k = 0; k < 2; k++)
		messages[k] = find_as(c, 1, TAG, sizeof(int), 1, 4);
	/* A group that is abandoned leaves them. */
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_recv_message(&values[0], sizeof(int), BATON_UINT8,
	                               messages[0], c->comm, c->stream, NULL,
	                               &stale));
	CHECK_OK(c, baton_group_abandon(c->comm));
	CHECK_OK(c, baton_group_begin(c->comm));
	for (int k = 1; k >= 0; k--)
		requests[k] = receive(c, &values[k], sizeof(int), messages[k],
		                      c->stream, NULL);
	CHECK_OK(c, baton_group_end(c->comm));
	for (int k = 0; k < 2; k++) {
		FINISH(c, BATON_OK, &requests[k]);
		CHECK_EQ(c, values[k], k + 1);
	}
}

/* ---- many, and by several threads --------------------------------------- */

static void
many_messages_are_found_before_one_is_received(struct conform *c)
{
	enum { N = 600 };
	baton_message *messages = conform_alloc(c, N * sizeof(*messages));
	baton_request *requests = conform_alloc(c, N * sizeof(*requests));
	int *values = conform_alloc(c, N * sizeof(*values));

	for (int k = 0; k < N && c->rank == 1; k++) {
		values[k] = k;
		requests[k] = SEND(c, &values[k], sizeof(int), 0, k % 7, c->stream,
		                   &conform_detached);
	}
	for (int k = 0; k < N && c->rank == 0; k++)
		messages[k] = find_as(c, 1, k % 7, sizeof(int), 1, k % 7);
	for (int k = 0; k < N && c->rank == 0; k++)
		requests[k] = receive(c, &values[k], sizeof(int), messages[k],
		                      c->stream, &conform_detached);
	if (c->rank < 2)
		FINISH_ALL(c, requests, N);
	for (int k = 0; k < N && c->rank == 0; k++)
		CHECK_EQ(c, values[k], k);
}

#define EACH 60

struct taker {
	struct conform *c;
	pthread_t thread;
	_Atomic int *left;
	int last[8]; /* by rank: what came from there */
	int count;
};

/* Take messages until all have been taken; of each rank they come in their order. */
static void *
take_all(void *argument)
{
	struct taker *taker = argument;
	struct conform *c = taker->c;
	struct baton_message_info info = no_info;

	for (int64_t t = conform_begin(); *taker->left > 0 && STILL(c, t);) {
		baton_message message = 0;
		enum baton_status status = baton_probe(ANY, TAG, c->comm,
		                                       &message, &info);
		baton_request request = 0;
		int value = -1;

		if (status == BATON_PENDING)
			continue;
		if (!CHECK_EQ(c, status, BATON_OK))
			break;
		CHECK_OK(c, baton_recv_message(&value, 4, BATON_UINT8, message,
		                               c->comm, c->stream,
		                               &conform_detached, &request));
		FINISH(c, BATON_OK, &request);
		CHECK(c, value > taker->last[info.peer]);
		taker->last[info.peer] = value;
		taker->count++;
		--*taker->left;
	}
	return NULL;
}

static void
threads_that_probe_do_not_take_each_others_messages(struct conform *c)
{
	int senders = c->size - 1 < 7 ? c->size - 1 : 7;
	_Atomic int left = EACH * senders;
	struct taker takers[2] = {{.c = c, .left = &left}, {.c = c, .left = &left}};

	for (int k = 1; k <= EACH && c->rank > 0 && c->rank <= senders; k++)
		conform_send_int(c, k, 0, k % 3);
	if (c->rank != 0)
		return;
	for (int i = 0; i < 2; i++)
		CHECK_EQ(c, pthread_create(&takers[i].thread, NULL, take_all,
		                           &takers[i]),
		         0);
	for (int i = 0; i < 2; i++)
		pthread_join(takers[i].thread, NULL);
	CHECK_EQ(c, takers[0].count + takers[1].count, EACH * senders);
	find_none(c, ANY, TAG);
}

/* ---- its end, and refusals ---------------------------------------------- */

/* Of what was found and not received, long and short, the sends end, and so does the communicator. */
static void
a_destroy_discards_what_was_found(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	baton_request requests[2] = {0};

	for (unsigned k = 0; k < 2 && c->rank == 1; k++)
		requests[k] = SEND(c, conform_filled(c, k ? MIB : 8, k),
		                   k ? MIB : 8, 0, 3, c->stream,
		                   &conform_detached);
	for (unsigned k = 0; k < 2 && c->rank == 0; k++)
		find_as(c, 1, 3, k ? MIB : 8, 1, 3);
	/* The long one may end within the destroy alone, which the next call is. */
	if (c->rank == 1)
		FINISH(c, BATON_OK, &requests[0]);
	if (c->rank == 1)
		baton_release(&requests[1]);
	RESTORE(c, first);
}

static void
an_abort_ends_with_messages_found(struct conform *c)
{
	struct baton_comm *first = conform_exchange(c, NULL);
	baton_request requests[2] = {0};
	baton_message message = 0;
	int value = 1;

	if (c->rank == 1) {
		requests[0] = SEND(c, &value, sizeof(int), 0, 3, c->stream,
		                   &conform_detached);
		requests[1] = SEND(c, conform_filled(c, MIB, 1), MIB, 0, 3,
		                   c->stream, &conform_detached);
	} else if (c->rank == 0) {
		message = find_as(c, 1, 3, sizeof(int), 1, 3);
		find_as(c, 1, 3, MIB, 1, 3);
	}
	conform_sync(c);
	CHECK_OK(c, baton_comm_abort(c->comm));
	if (c->rank == 0) {
		CHECK_REFUSED(c, BATON_ERR_ABORTED,
		              baton_recv_message(&value, 4, BATON_UINT8,
		                                 message, c->comm, c->stream,
		                                 NULL, NULL),
		              "broken");
		CHECK_REFUSED(c, BATON_ERR_ABORTED,
		              baton_probe(1, 3, c->comm, &message, NULL),
		              "broken");
	}
	for (int k = 0; k < 2 && c->rank == 1; k++)
		baton_release(&requests[k]);
	RESTORE(c, first);
}

static void
a_probe_that_cannot_be_is_refused(struct conform *c)
{
	struct baton_message_info info = {.size = 3};
	struct baton_plan *plan = NULL;
	baton_message message = 0;
	int value = 0;

	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_probe(c->size, 0, c->comm, &message, NULL),
	              "baton_probe: peer BATON_ANY_SOURCE");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_probe(0, -7, c->comm, &message, NULL),
	              "baton_probe: tag -7 BATON_ANY_TAG");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_probe(0, 0, c->comm, NULL, NULL), "message_p");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_probe(0, 0, c->comm, &message, &info), "size 3");
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_probe(0, 0, NULL, &message, NULL), "baton_probe");
	CHECK_REFUSED(c, BATON_ERR_STALE,
	              baton_recv_message(&value, 4, BATON_UINT8, 0, c->comm,
	                                 c->stream, NULL, NULL),
	              "message is 0 baton_probe BATON_OK");
	CHECK_REFUSED(c, BATON_ERR_STALE,
	              baton_recv_message(&value, 4, BATON_UINT8, UINT64_MAX,
	                                 c->comm, c->stream, NULL, NULL),
	              "0xffffffffffffffff no probe");
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_probe(0, 0, c->comm, &message, NULL), "group");
	CHECK_OK(c, baton_group_end(c->comm));
	CHECK_OK(c, baton_plan_begin(c->comm));
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              baton_recv_message(&value, 4, BATON_UINT8, 1, c->comm,
	                                 c->stream, NULL, NULL),
	              "plan once");
	baton_plan_end(c->comm, &plan);
	baton_plan_destroy(plan);
}

/* The pool of requests is full: the message stays where it is. */
static void
without_a_slot_nothing_is_found(struct conform *c)
{
	baton_request requests[4];
	baton_message message = 0;
	int values[4];

	if (c->rank == 1)
		conform_send_int(c, 7, 0, 3);
	if (c->rank != 0)
		return;
	for (int k = 0; k < 4; k++)
		requests[k] = conform_recv_int(c, &values[k], 1, 10 + k, c->stream);
	CHECK_REFUSED(c, BATON_ERR_AGAIN,
	              baton_probe(1, 3, c->comm, &message, NULL), "requests_max");
	for (int k = 0; k < 4; k++) {
		CHECK_OK(c, baton_cancel(requests[k]));
		FINISH(c, BATON_ERR_CANCELED, &requests[k]);
	}
	/* A stream of a device has to pass what was canceled. */
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	receive_int(c, find_as(c, 1, 3, sizeof(int), 1, 3), 7, 1, 3);
}

/* What was found leaves a slot for the receive that discards it. */
static void
messages_that_were_found_leave_room_for_a_receive(struct conform *c)
{
	baton_message messages[3], message = 0;
	baton_request requests[4];
	int values[4] = {0, 1, 2, 3};

	for (int k = 0; c->rank == 1 && k < 4; k++)
		requests[k] = SEND(c, &values[k], sizeof(int), 0, 3, c->stream,
		                   &conform_detached);
	if (c->rank == 1)
		FINISH_ALL(c, requests, 4);
	if (c->rank != 0)
		return;
	for (int k = 0; k < 3; k++)
		messages[k] = find_as(c, 1, 3, sizeof(int), 1, 3);
	CHECK_REFUSED(c, BATON_ERR_AGAIN,
	              baton_probe(1, 3, c->comm, &message, NULL), "requests_max");
	for (int k = 0; k < 3; k++)
		receive_int(c, messages[k], k, 1, 3);
	receive_int(c, find_as(c, 1, 3, sizeof(int), 1, 3), 3, 1, 3);
}

/* Where streams receive what the calls name.  A peer whose messages go through memory that the ranks share may be
 * probed all the same. */
static void
a_path_that_does_not_tell_refuses_a_probe(struct conform *c)
{
	baton_message message = 0;

	if (c->info.capabilities & BATON_CAP_ANY_SOURCE)
		return;
	for (int peer = 0; peer < c->size; peer++) {
		if (baton_message_path(c->comm, peer) & BATON_MESSAGE_PATH_NEAR)
			find_none(c, peer, 0);
		else
			CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
			              baton_probe(peer, 0, c->comm, &message,
			                          NULL),
			              "does not tell");
	}
	CHECK_REFUSED(c, BATON_ERR_UNSUPPORTED,
	              baton_probe(ANY, 0, c->comm, &message, NULL),
	              "does not tell");
}

const struct conform_case conform_probe[] = {
	{ CASE(a_message_of_any_length_is_found_and_received), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(messages_that_were_found_are_received_in_any_order), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(a_later_receive_gets_the_message_behind_one_that_was_found),
	  .ranks_min = 2, .needs = ANY_CAPS },
	{ CASE(what_an_earlier_receive_may_take_is_not_found), .ranks_min = 2,
	  .needs = ANY_CAPS, .streams = 3 },
	{ CASE(a_message_to_oneself_is_found), .needs = ANY_CAPS | BATON_CAP_SELF },
	{ CASE(a_list_of_tensors_is_found_and_received), .ranks_min = 2,
	  .needs = ANY_CAPS | BATON_CAP_TENSORS },
	{ CASE(a_receive_of_less_discards_the_message), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(a_canceled_receive_discards_its_message), .ranks_min = 2,
	  .needs = ANY_CAPS, .streams = 3 },
	{ CASE(a_send_that_was_found_is_not_taken_back), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(members_of_a_group_receive_what_was_found), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(many_messages_are_found_before_one_is_received), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(threads_that_probe_do_not_take_each_others_messages),
	  .ranks_min = 2, .needs = ANY_CAPS },
	{ CASE(a_destroy_discards_what_was_found), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(an_abort_ends_with_messages_found), .ranks_min = 2,
	  .needs = ANY_CAPS },
	{ CASE(a_probe_that_cannot_be_is_refused), .needs = ANY_CAPS },
	{ CASE(without_a_slot_nothing_is_found), .ranks_min = 2,
	  .needs = ANY_CAPS, .requests_max = 4 },
	{ CASE(messages_that_were_found_leave_room_for_a_receive),
	  .ranks_min = 2, .needs = ANY_CAPS, .requests_max = 4 },
	{ CASE(a_path_that_does_not_tell_refuses_a_probe) },
	CASES_END,
};
