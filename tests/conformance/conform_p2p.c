/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages arrive: guarantees 1, 2 and 5. */
#include <stdlib.h>
#include <string.h>

#include "harness.h"

/* ---- one way ------------------------------------------------------------ */

static void
a_message_arrives(struct conform *c)
{
	const size_t count = 1u << 20;
	float *values = conform_alloc(c, count * sizeof(*values));
	void *data = conform_message(c, count * sizeof(*values));
	baton_request request = BATON_REQUEST_NULL;
	size_t wrong = 0;

	if (c->rank == 0) {
		for (size_t i = 0; i < count; i++)
			values[i] = 7.0f;
		conform_copy(c, data, values, count * sizeof(*values));
		CHECK_OK(c, baton_send(data, count, BATON_FLOAT32, 1, 0,
		                       c->comm, c->stream, NULL, &request));
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		struct baton_completion completion;

		CHECK_OK(c, baton_recv(data, count, BATON_FLOAT32, 0, 0,
		                       c->comm, c->stream, NULL, &request));
		if (FINISH_AS(c, BATON_OK, &request, &completion))
			CHECK_EQ(c, completion.bytes, count * sizeof(*values));
		conform_copy(c, values, data, count * sizeof(*values));
		for (size_t i = 0; i < count; i++)
			wrong += values[i] < 7.0f || values[i] > 7.0f;
		CHECK_EQ(c, wrong, 0);
	}
}

static const size_t size_classes[] = {
	1, 64, 2048, 2049, 4096, 16384, 16385, 65536, MIB, 5 * MIB + 3,
};
#define SIZE_CLASSES (sizeof(size_classes) / sizeof(size_classes[0]))

/* A receive may not end before its message is sent, nor see half of it. */
static void
a_recv_waits_for_its_send(struct conform *c)
{
	for (size_t i = 0; i < SIZE_CLASSES; i++) {
		size_t bytes = size_classes[i];
		baton_request request = BATON_REQUEST_NULL;

		if (c->rank == 1) {
			void *buffer = conform_message(c, bytes);

			request = RECV(c, buffer, bytes, 0, 0, c->stream, NULL);
			CHECK_STATUS(c, BATON_PENDING,
			             baton_test(request, NULL));
			conform_sync(c);
			FINISH(c, BATON_OK, &request);
			CHECK_FILLED(c, buffer, bytes, (unsigned)i);
		} else {
			conform_sync(c);
		}
		if (c->rank == 0) {
			void *data = conform_filled(c, bytes, (unsigned)i);

			request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		}
		conform_sync(c);
	}
}

/* The message is there (or announced) before anybody asks for it. */
static void
a_send_may_come_first(struct conform *c)
{
	for (size_t i = 0; i < SIZE_CLASSES; i++) {
		size_t bytes = size_classes[i];
		baton_request request = BATON_REQUEST_NULL;
		void *data = conform_filled(c, bytes, (unsigned)i);

		if (c->rank == 0)
			request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
		conform_sync(c);
		if (c->rank == 1) {
			conform_set(c, data, 0, bytes);
			request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
		}
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, data, bytes, (unsigned)i);
	}
}

static void
the_buffer_of_a_completed_send_may_be_reused(struct conform *c)
{
	for (size_t i = 0; i < SIZE_CLASSES; i++) {
		size_t bytes = size_classes[i];
		baton_request request;
		void *data = conform_filled(c, bytes, (unsigned)i);

		if (c->rank == 0) {
			request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
			conform_set(c, data, 0xff, bytes);
		} else if (c->rank == 1) {
			request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
			CHECK_FILLED(c, data, bytes, (unsigned)i);
		}
	}
}

static void
fire_and_forget_arrives(struct conform *c)
{
	unsigned char *in = conform_message(c, 256);
	unsigned char *out = conform_filled(c, 256, 3);

	if (c->rank == 0)
		CHECK_OK(c, baton_send(out, 256, BATON_UINT8, 1, 0, c->comm,
		                       c->stream, NULL, NULL));
	if (c->rank == 1)
		CHECK_OK(c, baton_recv(in, 256, BATON_UINT8, 0, 0, c->comm,
		                       c->stream, NULL, NULL));
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	if (c->rank == 1)
		CHECK_FILLED(c, in, 256, 3);
}

static void
unaligned_buffers_arrive(struct conform *c)
{
	static const size_t sizes[] = { 1, 7, 63, 2047, 4099, 65537, MIB + 1 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		size_t bytes = sizes[i], offset = 1 + 2 * i;
		unsigned char *block = conform_message(c, bytes + 64);
		baton_request request = BATON_REQUEST_NULL;

		if (c->rank == 0) {
			conform_write(c, block + offset, bytes, 9);
			request = SEND(c, block + offset, bytes, 1, 0, c->stream,
			               NULL);
		} else if (c->rank == 1) {
			conform_set(c, block, 0xee, bytes + 64);
			request = RECV(c, block + offset, bytes, 0, 0, c->stream,
			               NULL);
		}
		FINISH(c, BATON_OK, &request);
		if (c->rank != 1)
			continue;
		CHECK_ALL(c, block, offset, 0xee);
		CHECK_FILLED(c, block + offset, bytes, 9);
		CHECK_ALL(c, block + offset + bytes, 64 - offset, 0xee);
	}
}

/* ---- both ways ---------------------------------------------------------- */

static void
a_grouped_exchange_swaps_values(struct conform *c)
{
	float value = 100.0f + (float)c->rank;
	void *out = conform_message(c, sizeof(value));
	void *in = conform_message(c, sizeof(value));
	baton_request requests[2] = { 0, 0 };
	int other = conform_partner(c);

	if (other < 0)
		return;
	conform_copy(c, out, &value, sizeof(value));
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_send(out, 1, BATON_FLOAT32, other, 0, c->comm,
	                       c->stream, NULL, &requests[0]));
	CHECK_OK(c, baton_recv(in, 1, BATON_FLOAT32, other, 0, c->comm,
	                       c->stream, NULL, &requests[1]));
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
	conform_copy(c, &value, in, sizeof(value));
	CHECK_EQ(c, value, 100 + other);
}

static void
ring_step(struct conform *c, enum baton_datatype type, size_t count,
          unsigned char *in, void *out)
{
	size_t bytes = count * baton_datatype_size(type);
	baton_request requests[2] = { 0, 0 };

	conform_write(c, out, bytes, (unsigned)c->rank);
	conform_set(c, in, 0xcc, 1025 * 8 + 8);
	CHECK_OK(c, baton_group_begin(c->comm));
	CHECK_OK(c, baton_send(out, count, type, conform_next(c), 0, c->comm,
	                       c->stream, NULL, &requests[0]));
	CHECK_OK(c, baton_recv(in, count, type, conform_previous(c), 0, c->comm,
	                       c->stream, NULL, &requests[1]));
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2);
	CHECK_FILLED(c, in, bytes, (unsigned)conform_previous(c));
	CHECK_ALL(c, in + bytes, 8, 0xcc);
}

static void
a_ring_of_every_datatype_arrives(struct conform *c)
{
	static const size_t counts[] = { 1,   2,   3,   5,   8,    31,   64,
		                         127, 255, 256, 257, 511,  513,  600,
		                         800, 999, 1000, 1023, 1024, 1025 };

	const size_t step = conform_short() ? 3 : 1;
	unsigned char *in = conform_message(c, 1025 * 8 + 8);
	void *out = conform_message(c, 1025 * 8);

	for (int type = 0; type < BATON_DATATYPE_COUNT; type++)
		for (size_t i = (size_t)type % step;
		     i < sizeof(counts) / sizeof(counts[0]); i += step)
			ring_step(c, (enum baton_datatype)type, counts[i], in,
			          out);
}

static void
all_pairs_exchange_in_one_group(struct conform *c)
{
	const size_t bytes = 3000;
	size_t n = (size_t)c->size;
	unsigned char *in = conform_message(c, n * bytes);
	unsigned char *out = conform_message(c, n * bytes);
	baton_request *requests = conform_alloc(c, 2 * n * sizeof(*requests));

	CHECK_OK(c, baton_group_begin(c->comm));
	for (size_t peer = 0; peer < n; peer++) {
		conform_write(c, out + peer * bytes, bytes,
		              (unsigned)(c->rank * 10 + (int)peer));
		requests[2 * peer] = RECV(c, in + peer * bytes, bytes, (int)peer,
		                          0, c->stream, NULL);
		requests[2 * peer + 1] = SEND(c, out + peer * bytes, bytes,
		                              (int)peer, 0, c->stream, NULL);
	}
	CHECK_OK(c, baton_group_end(c->comm));
	FINISH_ALL(c, requests, 2 * n);
	for (size_t peer = 0; peer < n; peer++)
		CHECK_FILLED(c, in + peer * bytes, bytes,
		             (unsigned)((int)peer * 10 + c->rank));
}

/* Both send first and receive afterwards. */
static void
head_to_head(struct conform *c, size_t bytes, baton_stream receives,
             const struct baton_op_options *options)
{
	baton_request requests[2];
	unsigned char *in, *out;
	int other = conform_partner(c);

	if (other < 0)
		return;
	in = conform_message(c, bytes);
	out = conform_filled(c, bytes, (unsigned)c->rank);
	requests[0] = SEND(c, out, bytes, other, 0, c->stream, options);
	requests[1] = RECV(c, in, bytes, other, 0, receives, NULL);
	FINISH_ALL(c, requests, 2);
	CHECK_FILLED(c, in, bytes, (unsigned)other);
}

static void
head_to_head_detached_sends_of_many_mib_complete(struct conform *c)
{
	head_to_head(c, (conform_short() ? 16 : 64) * MIB, c->stream,
	             &conform_detached);
}

static void
head_to_head_on_two_streams_completes(struct conform *c)
{
	head_to_head(c, 8 * MIB, conform_stream(c), NULL);
}

static void
self_transfer(struct conform *c, size_t bytes)
{
	void *out = conform_filled(c, bytes, 5);
	void *in = conform_message(c, bytes);
	baton_request requests[2];

	requests[0] = SEND(c, out, bytes, c->rank, 0, c->stream,
	                   &conform_detached);
	requests[1] = RECV(c, in, bytes, c->rank, 0, c->stream, NULL);
	FINISH_ALL(c, requests, 2);
	CHECK_FILLED(c, in, bytes, 5);
	conform_set(c, in, 0, bytes);
	requests[1] = RECV(c, in, bytes, c->rank, 0, c->stream,
	                   &conform_detached);
	requests[0] = SEND(c, out, bytes, c->rank, 0, c->stream, NULL);
	FINISH_ALL(c, requests, 2);
	CHECK_FILLED(c, in, bytes, 5);
}

static void
a_self_transfer_of_4_bytes_arrives(struct conform *c)
{
	self_transfer(c, 4);
}

static void
a_self_transfer_of_16_mib_arrives(struct conform *c)
{
	self_transfer(c, 16 * MIB);
}

static void
a_grouped_self_transfer_arrives(struct conform *c)
{
	static const size_t sizes[] = { 0, 4, 4096, MIB };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		void *out = conform_filled(c, sizes[i], 5);
		void *in = conform_message(c, sizes[i]);
		baton_request requests[2];

		CHECK_OK(c, baton_group_begin(c->comm));
		requests[0] = SEND(c, out, sizes[i], c->rank, 0, c->stream,
		                   NULL);
		requests[1] = RECV(c, in, sizes[i], c->rank, 0, c->stream,
		                   NULL);
		CHECK_OK(c, baton_group_end(c->comm));
		FINISH_ALL(c, requests, 2);
		CHECK_FILLED(c, in, sizes[i], 5);
	}
}

static void
ping_pong_returns_what_was_sent(struct conform *c)
{
	int other = conform_partner(c);
	const unsigned rounds = (unsigned)conform_turns(20);
	void *data = conform_message(c, 4 * MIB);

	for (size_t bytes = 1; other >= 0 && bytes <= 4 * MIB; bytes *= 8) {
		for (unsigned round = 0; round < rounds; round++) {
			baton_request request;

			if (c->rank & 1) {
				request = RECV(c, data, bytes, other, 0,
				               c->stream, NULL);
				FINISH(c, BATON_OK, &request);
				request = SEND(c, data, bytes, other, 0,
				               c->stream, NULL);
				FINISH(c, BATON_OK, &request);
				continue;
			}
			conform_write(c, data, bytes, round);
			request = SEND(c, data, bytes, other, 0, c->stream,
			               NULL);
			FINISH(c, BATON_OK, &request);
			conform_set(c, data, 0, bytes);
			request = RECV(c, data, bytes, other, 0, c->stream,
			               NULL);
			FINISH(c, BATON_OK, &request);
			CHECK_FILLED(c, data, bytes, round);
		}
	}
}

/* The same on the stream alone: the host waits once, at the end. */
static void
ping_pong_runs_on_the_stream_alone(struct conform *c)
{
	int other = conform_partner(c);
	unsigned char *data = conform_filled(c, 512, 77);

	if (other < 0)
		return;
	if (c->rank & 1)
		conform_set(c, data, 0, 512);
	for (int round = 0; round < 50; round++) {
		if (!(c->rank & 1))
			CHECK_OK(c, baton_send(data, 512, BATON_UINT8, other, 0,
			                       c->comm, c->stream, NULL, NULL));
		CHECK_OK(c, baton_recv(data, 512, BATON_UINT8, other, 0, c->comm,
		                       c->stream, NULL, NULL));
		if (c->rank & 1)
			CHECK_OK(c, baton_send(data, 512, BATON_UINT8, other, 0,
			                       c->comm, c->stream, NULL, NULL));
	}
	CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	CHECK_FILLED(c, data, 512, 77);
}

/* ---- what the completion says ------------------------------------------- */

static void
a_completion_describes_its_operation(struct conform *c)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	int tag = c->info.capabilities & BATON_CAP_TAGS ? 17 : 0;
	struct baton_completion done;
	void *data = conform_message(c, 100);
	baton_request request = BATON_REQUEST_NULL, kept;

	options.user_data = UINT64_C(0xfedcba9876543210) + (unsigned)c->rank;
	if (c->rank == 0)
		request = SEND(c, data, 100, 1, tag, c->stream, &options);
	else if (c->rank == 1)
		request = RECV(c, data, 100, 0, tag, c->stream, &options);
	else
		return;
	kept = request;
	memset(&done, 0xff, sizeof(done));
	if (!FINISH_AS(c, BATON_OK, &request, &done))
		return;
	CHECK(c, request == BATON_REQUEST_NULL);
	CHECK(c, done.request == kept);
	CHECK_EQ(c, done.status, BATON_OK);
	CHECK_EQ(c, done.peer, 1 - c->rank);
	CHECK_EQ(c, done.tag, tag);
	CHECK_EQ(c, done.bytes, 100);
	CHECK(c, done.user_data == options.user_data);
	CHECK_EQ(c, done.op,
	         c->rank ? BATON_OPERATION_RECV : BATON_OPERATION_SEND);
	CHECK_EQ(c, done.flags, 0);
	CHECK_EQ(c, done.enqueued_ns, 0);
	CHECK_EQ(c, done.armed_ns, 0);
	CHECK_EQ(c, done.completed_ns, 0);
}

static void
timestamps_are_in_order(struct conform *c)
{
	struct baton_completion done = { 0 };
	void *data = conform_message(c, 100);
	baton_request request = BATON_REQUEST_NULL;

	if (c->rank == 0) {
		conform_gate_launch(c, 0, c->stream);
		request = SEND(c, data, 100, 1, 0, c->stream, NULL);
		conform_gate_reached(c, 0);
		conform_gate_open(c, 0);
	} else if (c->rank == 1) {
		request = RECV(c, data, 100, 0, 0, c->stream, NULL);
	} else {
		return;
	}
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK(c, done.enqueued_ns != 0);
	CHECK(c, done.armed_ns >= done.enqueued_ns);
	CHECK(c, done.completed_ns >= done.armed_ns);
}

static void
datatypes_have_the_sizes_of_their_names(struct conform *c)
{
	static const size_t sizes[BATON_DATATYPE_COUNT] = {
		[BATON_INT8] = 1,       [BATON_UINT8] = 1,
		[BATON_INT16] = 2,      [BATON_UINT16] = 2,
		[BATON_INT32] = 4,      [BATON_UINT32] = 4,
		[BATON_INT64] = 8,      [BATON_UINT64] = 8,
		[BATON_FLOAT16] = 2,    [BATON_BFLOAT16] = 2,
		[BATON_FLOAT32] = 4,    [BATON_FLOAT64] = 8,
		[BATON_FLOAT8E4M3] = 1, [BATON_FLOAT8E5M2] = 1,
		[BATON_BOOL] = 1,
	};

	for (int type = 0; type < BATON_DATATYPE_COUNT; type++)
		CHECK_EQ(c, baton_datatype_size((enum baton_datatype)type),
		         sizes[type]);
	CHECK_EQ(c, baton_datatype_size(BATON_DATATYPE_COUNT), 0);
}

/* ---- many and large ----------------------------------------------------- */

/* 64 of random sizes to and from every rank at once; half as many over NCCL, so that all fit
 * on a CUDA stream (800 entries) also if the engine sees none of them pass. */
static void
many_messages_in_flight_arrive(struct conform *c)
{
	const int each = c->info.transport == BATON_TRANSPORT_NCCL ? 32 : 64;
	size_t n = (size_t)(c->size * each);
	baton_request *requests = conform_alloc(c, 2 * n * sizeof(*requests));
	unsigned char **in = conform_alloc(c, n * sizeof(*in));
	size_t *sizes = conform_alloc(c, n * sizeof(*sizes));

	for (int peer = 0; peer < c->size; peer++) {
		for (int i = 0; i < each; i++) {
			size_t at = (size_t)(peer * each + i);
			uint64_t seed = (uint64_t)((c->rank * 64 + peer) * each + i);
			uint64_t theirs = (uint64_t)((peer * 64 + c->rank) * each + i);
			size_t bytes = conform_random(&seed) % 20000;

			sizes[at] = conform_random(&theirs) % 20000;
			in[at] = conform_message(c, sizes[at]);
			requests[2 * at] = RECV(c, in[at], sizes[at], peer, 0,
			                        c->stream, &conform_detached);
			requests[2 * at + 1] = SEND(
				c, conform_filled(c, bytes, (unsigned)i), bytes,
				peer, 0, c->stream, &conform_detached);
		}
	}
	FINISH_ALL(c, requests, 2 * n);
	for (size_t at = 0; at < n; at++)
		CHECK_FILLED(c, in[at], sizes[at], (unsigned)(at % (size_t)each));
}

static void
more_than_2_gib_arrives(struct conform *c)
{
	const size_t bytes = 2 * GIB + 4096 + 3;
	struct baton_completion done = { 0 };
	baton_request request;
	unsigned char *data;

	data = malloc(bytes);
	if (!CHECK(c, data != NULL))
		return;
	if (c->rank == 0)
		conform_fill(data, bytes, 1);
	else
		memset(data, 0, bytes);
	conform_sync(c);
	if (c->rank == 0) {
		request = SEND(c, data, bytes, 1, 0, c->stream, NULL);
	} else {
		request = RECV(c, data, bytes, 0, 0, c->stream, NULL);
	}
	FINISH_AS(c, BATON_OK, &request, &done);
	CHECK(c, done.bytes == bytes);
	CHECK_FILLED(c, data, bytes, 1);
	free(data);
}

const struct conform_case conform_p2p[] = {
	{ CASE(a_message_arrives), .ranks_min = 2 },
	{ CASE(a_recv_waits_for_its_send), .ranks_min = 2 },
	{ CASE(a_send_may_come_first), .ranks_min = 2 },
	{ CASE(the_buffer_of_a_completed_send_may_be_reused), .ranks_min = 2 },
	{ CASE(fire_and_forget_arrives), .ranks_min = 2 },
	{ CASE(unaligned_buffers_arrive), .ranks_min = 2 },
	{ CASE(a_grouped_exchange_swaps_values) },
	{ CASE(a_ring_of_every_datatype_arrives) },
	{ CASE(all_pairs_exchange_in_one_group) },
	{ CASE(head_to_head_detached_sends_of_many_mib_complete), .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS, .memory = GIB },
	{ CASE(head_to_head_on_two_streams_completes), .streams = 2, .ranks_min = 2,
	  .needs = BATON_CAP_DIRECTIONS },
	{ CASE(a_self_transfer_of_4_bytes_arrives), .needs = BATON_CAP_SELF },
	{ CASE(a_self_transfer_of_16_mib_arrives), .needs = BATON_CAP_SELF },
	{ CASE(a_grouped_self_transfer_arrives) },
	{ CASE(ping_pong_returns_what_was_sent), .ranks_min = 2 },
	{ CASE(ping_pong_runs_on_the_stream_alone), .ranks_min = 2 },
	{ CASE(a_completion_describes_its_operation), .ranks_min = 2 },
	{ CASE(timestamps_are_in_order), .ranks_min = 2,
	  .flags = CONFORM_TIMESTAMPS },
	{ CASE(datatypes_have_the_sizes_of_their_names),
	  .flags = CONFORM_BARE },
	{ CASE(many_messages_in_flight_arrive),
	  .needs = BATON_CAP_DIRECTIONS | BATON_CAP_SELF },
	{ CASE(more_than_2_gib_arrives), .ranks_min = 2, .ranks_max = 2,
	  .flags = CONFORM_LONG, .memory = 8 * GIB },
	CASES_END,
};
