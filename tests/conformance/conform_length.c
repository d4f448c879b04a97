/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages that are empty, shorter or longer than their receive: guarantee 5.
 * Sizes lie around the steps of the transports' protocols (2 KiB, 4 KiB, 16 KiB,
 * 64 KiB), and behind every buffer stand canaries. */
#include <string.h>

#include "harness.h"

#define CANARIES 256
#define CANARY 0xa5

/* A buffer of that capacity with canaries behind it. */
static unsigned char *
guarded(struct conform *c, size_t capacity)
{
	unsigned char *buffer = conform_message(c, capacity + CANARIES);

	conform_set(c, buffer, CANARY, capacity + CANARIES);
	return buffer;
}

/* ---- count 0 ------------------------------------------------------------ */

static void
count_0_is_a_matched_message(struct conform *c)
{
	struct baton_completion done = { 0 };
	void *data = conform_message(c, 4);
	baton_request request;

	if (c->rank == 1) {
		request = RECV(c, NULL, 0, 0, 0, c->stream, NULL);
		CHECK_STATUS(c, BATON_PENDING, baton_test(request, NULL));
		conform_sync(c);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.bytes, 0);
		request = RECV(c, data, 4, 0, 0, c->stream, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.bytes, 4);
		CHECK_FILLED(c, data, 4, 11);
		return;
	}
	conform_sync(c);
	if (c->rank == 0) {
		request = SEND(c, NULL, 0, 1, 0, c->stream, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.bytes, 0);
		conform_write(c, data, 4, 11);
		request = SEND(c, data, 4, 1, 0, c->stream, NULL);
		FINISH(c, BATON_OK, &request);
	}
}

static void
count_0_touches_no_bytes(struct conform *c)
{
	void *data = conform_message(c, 64);
	baton_request request = BATON_REQUEST_NULL;

	conform_set(c, data, CANARY, 64);
	if (c->rank == 0)
		request = SEND(c, data, 0, 1, 0, c->stream, NULL);
	else if (c->rank == 1)
		request = RECV(c, data, 0, 0, 0, c->stream, NULL);
	FINISH(c, BATON_OK, &request);
	CHECK_ALL(c, data, 64, CANARY);
}

static void
a_recv_of_count_0_truncates_a_longer_message(struct conform *c)
{
	static const size_t sizes[] = { 1, 2048, 2049, 100000 };

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct baton_completion done = { 0 };
		baton_request request = BATON_REQUEST_NULL;

		if (c->rank == 0) {
			request = SEND(c, conform_message(c, sizes[i]), sizes[i],
			               1, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1) {
			request = RECV(c, NULL, 0, 0, 0, c->stream, NULL);
			FINISH_AS(c, BATON_ERR_TRUNCATED, &request, &done);
			CHECK_EQ(c, done.bytes, sizes[i]);
		}
	}
	conform_sync(c);
	conform_sound(c);
}

/* ---- longer than the buffer --------------------------------------------- */

static void
truncate_once(struct conform *c, size_t bytes, size_t capacity)
{
	struct baton_completion done = { 0 };
	baton_request request;
	char why[200] = "";

	if (c->rank == 0) {
		request = SEND(c, conform_filled(c, bytes, 1), bytes, 1, 0,
		               c->stream, NULL);
		FINISH_AS(c, BATON_OK, &request, &done);
		CHECK_EQ(c, done.bytes, bytes);
	} else if (c->rank == 1) {
		unsigned char *buffer = guarded(c, capacity);

		request = RECV(c, buffer, capacity, 0, 0, c->stream, NULL);
		CHECK_STATUS(c, BATON_ERR_TRUNCATED,
		             baton_wait(request, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(request, why, sizeof(why)));
		CHECK(c, why[0] != '\0');
		FINISH_AS(c, BATON_ERR_TRUNCATED, &request, &done);
		CHECK_EQ(c, done.bytes, bytes);
		CHECK_ALL(c, buffer + capacity, CANARIES, CANARY);
	}
}

static void
a_longer_message_is_truncated_and_writes_nothing_behind(struct conform *c)
{
	static const struct {
		size_t bytes, capacity;
	} all[] = {
		{ 8, 4 },         { 65, 64 },        { 2048, 64 },
		{ 2048, 2047 },   { 2049, 64 },      { 2049, 2048 },
		{ 4096, 64 },     { 4096, 4095 },    { 65536, 64 },
		{ 65536, 2049 },  { 65536, 65535 },  { 8 * MIB, 64 },
		{ 8 * MIB, 4096 }, { 8 * MIB, 8 * MIB - 1 },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		truncate_once(c, all[i].bytes, all[i].capacity);
		conform_sync(c);
		conform_sound(c);
	}
}

static const struct {
	size_t bytes, capacity;
} cuts[] = {
	{ 8, 4 },       { 212, 161 },   { 2047, 64 },    { 2048, 2047 },
	{ 2049, 64 },   { 4096, 4095 }, { 7168, 100 },   { 7169, 7168 },
	{ 16385, 100 }, { 65536, 64 },  { 65536, 65535 }, { MIB, 3000 },
};
#define CUTS (sizeof(cuts) / sizeof(cuts[0]))

static void
check_cut(struct conform *c, baton_request *request_p,
          const unsigned char *buffer, size_t i)
{
	struct baton_completion done = { 0 };

	FINISH_AS(c, BATON_ERR_TRUNCATED, request_p, &done);
	CHECK_EQ(c, done.bytes, cuts[i].bytes);
	CHECK_ALL(c, buffer + cuts[i].capacity, CANARIES, CANARY);
}

/* The message is there when the receive comes; several at once, then one. */
static void
a_message_that_came_first_is_truncated_too(struct conform *c)
{
	baton_request sends[CUTS] = { 0 }, request;

	for (size_t i = 0; i < CUTS && c->rank == 0; i++)
		sends[i] = SEND(c, conform_filled(c, cuts[i].bytes, 1),
		                cuts[i].bytes, 1, 0, c->stream,
		                &conform_detached);
	conform_sync(c);
	for (size_t i = 0; i < CUTS && c->rank == 1; i++) {
		unsigned char *buffer = guarded(c, cuts[i].capacity);

		request = RECV(c, buffer, cuts[i].capacity, 0, 0, c->stream,
		               NULL);
		check_cut(c, &request, buffer, i);
	}
	FINISH_ALL(c, sends, c->rank == 0 ? CUTS : 0);
	conform_sync(c);
	conform_sound(c);
}

static void
a_message_to_oneself_is_truncated(struct conform *c)
{
	for (int send_first = 0; send_first < 2; send_first++) {
		for (size_t i = 0; i < CUTS; i++) {
			unsigned char *buffer = guarded(c, cuts[i].capacity);
			void *data = conform_filled(c, cuts[i].bytes, 1);
			baton_request send = 0, request;

			if (send_first)
				send = SEND(c, data, cuts[i].bytes, c->rank, 0,
				            c->stream, &conform_detached);
			request = RECV(c, buffer, cuts[i].capacity, c->rank, 0,
			               c->stream, &conform_detached);
			if (!send_first)
				send = SEND(c, data, cuts[i].bytes, c->rank, 0,
				            c->stream, &conform_detached);
			FINISH(c, BATON_OK, &send);
			check_cut(c, &request, buffer, i);
		}
	}
}

/* Truncated ones in the middle of a busy FIFO disturb none of their neighbours. */
static void
neighbours_of_a_truncated_message_arrive(struct conform *c)
{
	static const size_t sizes[] = { 100, 5000, 64, 300000, 2048, 9000 };
	enum { N = 48 };
	baton_request requests[N] = { 0 };
	unsigned char *buffers[N] = { 0 };

	for (int i = 0; i < N && c->rank < 2; i++) {
		size_t bytes = sizes[i % 6];
		size_t capacity = i % 3 == 1 ? 32 : bytes;

		if (c->rank == 0) {
			requests[i] = SEND(c,
			                   conform_filled(c, bytes, (unsigned)i),
			                   bytes, 1, 0, c->stream,
			                   &conform_detached);
			continue;
		}
		buffers[i] = guarded(c, capacity);
		requests[i] = RECV(c, buffers[i], capacity, 0, 0, c->stream,
		                   &conform_detached);
	}
	for (int i = 0; i < N && c->rank < 2; i++) {
		bool cut = c->rank == 1 && i % 3 == 1;

		FINISH(c, cut ? BATON_ERR_TRUNCATED : BATON_OK, &requests[i]);
		if (c->rank == 0)
			continue;
		CHECK_ALL(c, buffers[i] + (cut ? 32 : sizes[i % 6]), CANARIES,
		          CANARY);
		if (!cut)
			CHECK_FILLED(c, buffers[i], sizes[i % 6], (unsigned)i);
	}
}

static void
a_truncated_recv_releases_its_stream(struct conform *c)
{
	void *data = conform_message(c, 512);
	baton_request after = BATON_REQUEST_NULL;

	if (c->rank == 0) {
		after = SEND(c, data, 512, 1, 0, c->stream, NULL);
	} else if (c->rank == 1) {
		CHECK_OK(c, baton_recv(data, 8, BATON_UINT8, 0, 0, c->comm,
		                       c->stream, NULL, NULL));
		CHECK_OK(c, baton_record(c->comm, c->stream, NULL, &after));
	}
	FINISH(c, BATON_OK, &after);
	if (c->rank == 1) {
		CHECK_STATUS(c, BATON_ERR_TRUNCATED,
		             baton_stream_synchronize(c->comm, c->stream));
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	conform_sync(c);
	conform_sound(c);
}

/* ---- shorter than the buffer -------------------------------------------- */

static void
a_shorter_message_reports_its_bytes(struct conform *c)
{
	static const struct {
		size_t bytes, capacity;
	} all[] = {
		{ 0, 1 },         { 1, 64 },           { 64, 2048 },
		{ 64, 2049 },     { 2047, 2048 },      { 2048, 4096 },
		{ 2049, 4096 },   { 4096, MIB },       { 16384, 16385 },
		{ 65536, 65537 }, { 100000, 8 * MIB }, { MIB - 1, MIB },
		{ 3, 8 * MIB },   { 0, 8 * MIB },
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		size_t bytes = all[i].bytes, capacity = all[i].capacity;
		struct baton_completion done = { 0 };
		baton_request request = BATON_REQUEST_NULL;
		unsigned char *buffer;

		if (c->rank == 0) {
			request = SEND(c, conform_filled(c, bytes, (unsigned)i),
			               bytes, 1, 0, c->stream, NULL);
			FINISH(c, BATON_OK, &request);
		} else if (c->rank == 1) {
			buffer = guarded(c, capacity);
			request = RECV(c, buffer, capacity, 0, 0, c->stream,
			               NULL);
			FINISH_AS(c, BATON_OK, &request, &done);
			CHECK_EQ(c, done.bytes, bytes);
			CHECK_FILLED(c, buffer, bytes, (unsigned)i);
			CHECK_ALL(c, buffer + bytes, capacity - bytes + CANARIES,
			          CANARY);
		}
	}
}

/* ---- every length ------------------------------------------------------- */

/* Lengths that a protocol may keep for itself must work for the user too. */
static void
sweep(struct conform *c, size_t from, size_t to, size_t (*capacity)(size_t))
{
	enum { WINDOW = 32 };
	baton_request requests[WINDOW] = { 0 };
	unsigned char *data = conform_message(c, WINDOW * (to + CANARIES + 64));
	struct baton_completion done;

	for (size_t i = 0; i < to - from + WINDOW && c->rank < 2; i++) {
		size_t at = i % WINDOW, bytes = from + i;
		unsigned char *buffer = data + at * (to + CANARIES + 64);

		if (i >= WINDOW) {
			size_t old = bytes - WINDOW, room = capacity(old);
			bool cut = c->rank == 1 && room < old;

			FINISH_AS(c, cut ? BATON_ERR_TRUNCATED : BATON_OK,
			          &requests[at], &done);
			CHECK_EQ(c, done.bytes, old);
			if (c->rank == 1 && !cut)
				CHECK_FILLED(c, buffer, old, (unsigned)old);
			if (c->rank == 1)
				CHECK_ALL(c, buffer + (cut ? room : old),
				          CANARIES, CANARY);
		}
		if (bytes >= to)
			continue;
		if (c->rank == 0) {
			conform_write(c, buffer, bytes, (unsigned)bytes);
			requests[at] = SEND(c, buffer, bytes, 1, 0, c->stream,
			                    &conform_detached);
		} else {
			conform_set(c, buffer, CANARY, bytes + CANARIES + 64);
			requests[at] = RECV(c, buffer, capacity(bytes), 0, 0,
			                    c->stream, &conform_detached);
		}
		if (atomic_load(&c->failures) > 40)
			break;
	}
}

static size_t
capacity_equal(size_t bytes)
{
	return bytes;
}

static size_t
capacity_more(size_t bytes)
{
	return bytes + 17;
}

static size_t
capacity_less(size_t bytes)
{
	return bytes ? bytes - 1 : 0;
}

static size_t
capacity_64(size_t bytes)
{
	(void)bytes;
	return 64;
}

/* Up to more than a page; of a short run, those around where protocols change. */
static void
sweep_all(struct conform *c, size_t (*capacity)(size_t))
{
	if (!conform_short()) {
		sweep(c, 0, 4352, capacity);
		return;
	}
	sweep(c, 0, 160, capacity);
	sweep(c, 1984, 2112, capacity);
	sweep(c, 4032, 4160, capacity);
}

static void
every_length_fits_its_buffer(struct conform *c)
{
	sweep_all(c, capacity_equal);
}

static void
every_length_is_reported_in_a_larger_buffer(struct conform *c)
{
	sweep_all(c, capacity_more);
}

static void
every_length_is_truncated_in_a_smaller_buffer(struct conform *c)
{
	sweep_all(c, capacity_less);
	sweep_all(c, capacity_64);
}

/* ---- mixed sizes -------------------------------------------------------- */

/* One FIFO that goes back and forth between the protocols. */
static void
messages_of_mixed_sizes_keep_their_order(struct conform *c)
{
	static const size_t sizes[] = { 8,     65536, 2048, 4 * MIB,
		                        0,     2049,  100,  300000,
		                        16384, 16385, 1,    MIB };
	enum { N = 36 };
	baton_request requests[N] = { 0 };
	unsigned char *data[N];

	for (int i = 0; i < N && c->rank < 2; i++) {
		size_t bytes = sizes[i % 12];

		if (c->rank == 0) {
			data[i] = conform_filled(c, bytes, (unsigned)i + 1);
			requests[i] = SEND(c, data[i], bytes, 1, 0, c->stream,
			                   &conform_detached);
		} else {
			data[i] = conform_message(c, bytes);
			requests[i] = RECV(c, data[i], bytes, 0, 0, c->stream,
			                   &conform_detached);
		}
	}
	for (int i = 0; i < N && c->rank < 2; i++) {
		FINISH(c, BATON_OK, &requests[i]);
		CHECK_FILLED(c, data[i], sizes[i % 12], (unsigned)i + 1);
	}
}

const struct conform_case conform_length[] = {
	{ CASE(count_0_is_a_matched_message), .ranks_min = 2 },
	{ CASE(count_0_touches_no_bytes), .ranks_min = 2 },
	{ CASE(a_recv_of_count_0_truncates_a_longer_message), .ranks_min = 2,
	  .needs = BATON_CAP_TRUNCATION },
	{ CASE(a_longer_message_is_truncated_and_writes_nothing_behind),
	  .ranks_min = 2, .needs = BATON_CAP_TRUNCATION },
	{ CASE(a_message_that_came_first_is_truncated_too), .ranks_min = 2,
	  .needs = BATON_CAP_TRUNCATION },
	{ CASE(a_message_to_oneself_is_truncated),
	  .needs = BATON_CAP_TRUNCATION | BATON_CAP_SELF },
	{ CASE(neighbours_of_a_truncated_message_arrive), .ranks_min = 2,
	  .needs = BATON_CAP_TRUNCATION },
	{ CASE(a_truncated_recv_releases_its_stream), .ranks_min = 2,
	  .needs = BATON_CAP_TRUNCATION },
	{ CASE(a_shorter_message_reports_its_bytes), .ranks_min = 2,
	  .needs = BATON_CAP_SHORT },
	{ CASE(every_length_fits_its_buffer), .ranks_min = 2 },
	{ CASE(every_length_is_reported_in_a_larger_buffer), .ranks_min = 2,
	  .needs = BATON_CAP_SHORT },
	{ CASE(every_length_is_truncated_in_a_smaller_buffer), .ranks_min = 2,
	  .needs = BATON_CAP_TRUNCATION },
	{ CASE(messages_of_mixed_sizes_keep_their_order), .ranks_min = 2 },
	CASES_END,
};
