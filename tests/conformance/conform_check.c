/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checked mode: the two sides of a message are compared.  Each case makes a communicator in that mode,
 * so they run on every transport, whatever BATON_CHECK says.
 *
 * Over NCCL both sides of a mismatch end in MISMATCH, and lengths are compared too; elsewhere the
 * send ends in OK.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"

#define UNTOUCHED 0xa5
#define MESSAGES 12

struct mode {
	struct baton_comm *first; /* the case's communicator, without it */
	enum baton_status sends;  /* how a send of a mismatch ends */
	bool short_ones;          /* a message may be shorter than its receive */
};

/* Go on in checked mode.  False: this backend's transports have none. */
static bool
begin(struct conform *c, struct mode *mode)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm_info info = {.size = sizeof(info)};

	options.check = true;
	mode->first = conform_exchange(c, &options);
	CHECK_OK(c, baton_comm_query(c->comm, &info));
	mode->sends = info.transport == BATON_TRANSPORT_NCCL &&
	                              info.message_paths != BATON_MESSAGE_PATH_NEAR
	                      ? BATON_ERR_MISMATCH
	                      : BATON_OK;
	mode->short_ones = info.capabilities & BATON_CAP_SHORT;
	if (!info.check) {
		RESTORE(c, mode->first);
		c->skip = "its transports are opened without checked mode";
	}
	return info.check;
}

static void
end_mode(struct conform *c, const struct mode *mode)
{
	conform_sound(c);
	RESTORE(c, mode->first);
}

/* Where there are tags, one that is not 0: each tag has its types compared. */
static int
tag_of(const struct conform *c)
{
	return c->info.capabilities & BATON_CAP_TAGS ? 7 : 0;
}

static baton_request
send_as(struct conform *c, const void *buffer, size_t count,
        enum baton_datatype type, int peer)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_send(buffer, count, type, peer, tag_of(c), c->comm,
	                       c->stream, NULL, &request));
	return request;
}

static baton_request
recv_as(struct conform *c, void *buffer, size_t count, enum baton_datatype type,
        int peer)
{
	baton_request request = BATON_REQUEST_NULL;

	CHECK_OK(c, baton_recv(buffer, count, type, peer, tag_of(c), c->comm,
	                       c->stream, NULL, &request));
	return request;
}

static unsigned char *
untouched(struct conform *c, size_t bytes)
{
	unsigned char *buffer = conform_message(c, bytes);

	conform_set(c, buffer, UNTOUCHED, bytes);
	return buffer;
}

/* This rank's receive, or its launch, of so many bytes of int32 has met as many of float64. */
static void
expect_refused(struct conform *c, baton_request *request_p, size_t bytes,
               int peer)
{
	char text[400] = "", sentence[200];

	snprintf(sentence, sizeof(sentence),
	         "rank %d receives %zu bytes of int32, and rank %d sends %zu bytes "
	         "of float64",
	         c->rank, bytes, peer, bytes);
	CHECK_STATUS(c, BATON_ERR_MISMATCH,
	             baton_wait(*request_p, conform_patience(c), NULL));
	CHECK_OK(c, baton_request_error(*request_p, text, sizeof(text)));
	if (!CHECK(c, strstr(text, sentence)))
		fprintf(stderr, "\"%s\" has not \"%s\"\n", text, sentence);
	FINISH(c, BATON_ERR_MISMATCH, request_p);
}

/* ---- one message --------------------------------------------------------- */

/* Rank 0 sends n times float64, rank 1 receives as many bytes of int32. */
static void
refuse_once(struct conform *c, const struct mode *mode, size_t n, bool recv_first)
{
	baton_request request;
	unsigned char *buffer;

	if (c->rank == 0) {
		if (recv_first)
			conform_sync(c);
		request = send_as(c, conform_filled(c, 8 * n, 1), n,
		                  BATON_FLOAT64, 1);
		if (!recv_first)
			conform_sync(c);
		FINISH(c, mode->sends, &request);
	} else if (c->rank == 1) {
		buffer = untouched(c, 8 * n);
		if (!recv_first)
			conform_sync(c);
		request = recv_as(c, buffer, 2 * n, BATON_INT32, 0);
		if (recv_first)
			conform_sync(c);
		expect_refused(c, &request, 8 * n, 0);
		CHECK_ALL(c, buffer, 8 * n, UNTOUCHED);
	} else {
		conform_sync(c);
	}
}

/* Around the steps of the transports' protocols; 0 has a type, too. */
static void
a_receive_of_another_type_ends_in_mismatch(struct conform *c)
{
	static const size_t counts[] = {1, 0, 8, 249, 250, 256, 257, 512, 895,
		                         2048, 8193, 300000};
	struct mode mode;

	if (!begin(c, &mode))
		return;
	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		refuse_once(c, &mode, counts[i], true);
		refuse_once(c, &mode, counts[i], false);
	}
	end_mode(c, &mode);
}

static void
every_type_meets_itself_alone(struct conform *c)
{
	unsigned char *in = conform_message(c, 64), *out = conform_message(c, 64);
	struct mode mode;

	if (!begin(c, &mode))
		return;
	for (int sent = 0; sent < BATON_DATATYPE_COUNT; sent++) {
		for (int taken = 0; taken < BATON_DATATYPE_COUNT; taken++) {
			size_t of_sent = baton_datatype_size(
				(enum baton_datatype)sent);
			size_t of_taken = baton_datatype_size(
				(enum baton_datatype)taken);
			baton_request request = BATON_REQUEST_NULL;
			enum baton_status status = BATON_OK;

			if (c->rank == 0)
				request = send_as(c, out, 64 / of_sent,
				                  (enum baton_datatype)sent, 1);
			else if (c->rank == 1)
				request = recv_as(c, in, 64 / of_taken,
				                  (enum baton_datatype)taken, 0);
			if (sent != taken)
				status = c->rank == 0 ? mode.sends
				                      : BATON_ERR_MISMATCH;
			if (c->rank < 2)
				FINISH(c, status, &request);
		}
	}
	end_mode(c, &mode);
}

/* Lengths are as without it, where the transport gives short ones; the type comes first. */
static void
lengths_are_as_without_it(struct conform *c)
{
	static const struct {
		size_t sent, taken; /* int32 */
		enum baton_datatype type;
		enum baton_status status;
	} tries[] = {
		{3, 5, BATON_INT32, BATON_OK},
		{5, 3, BATON_INT32, BATON_ERR_TRUNCATED},
		{0, 3, BATON_INT32, BATON_OK},
		{3, 0, BATON_INT32, BATON_ERR_TRUNCATED},
		{0, 0, BATON_INT32, BATON_OK},
		{3, 5, BATON_UINT32, BATON_ERR_MISMATCH},
		{5, 3, BATON_UINT32, BATON_ERR_MISMATCH},
		{3, 0, BATON_UINT32, BATON_ERR_MISMATCH},
		{10000, 20000, BATON_INT32, BATON_OK},
		{20000, 10000, BATON_INT32, BATON_ERR_TRUNCATED},
		{20000, 10000, BATON_UINT32, BATON_ERR_MISMATCH},
	};
	struct mode mode;

	if (!begin(c, &mode))
		return;
	for (size_t i = 0; mode.short_ones && i < sizeof(tries) / sizeof(*tries);
	     i++) {
		struct baton_completion done = {0};
		unsigned char *buffer = untouched(c, 80000);
		baton_request request;

		if (c->rank == 0) {
			conform_write(c, buffer, 80000, 3);
			request = send_as(c, buffer, tries[i].sent, BATON_INT32, 1);
			FINISH_AS(c, BATON_OK, &request, &done);
			CHECK_EQ(c, done.bytes, 4 * tries[i].sent);
		} else if (c->rank == 1) {
			request = recv_as(c, buffer, tries[i].taken,
			                  tries[i].type, 0);
			FINISH_AS(c, tries[i].status, &request, &done);
			CHECK_EQ(c, done.bytes,
			         tries[i].status == BATON_ERR_MISMATCH
			                 ? 0
			                 : 4 * tries[i].sent);
			if (tries[i].status == BATON_OK)
				CHECK_FILLED(c, buffer, 4 * tries[i].sent, 3);
			if (tries[i].status == BATON_ERR_MISMATCH)
				CHECK_ALL(c, buffer, 80000, UNTOUCHED);
			CHECK_ALL(c, buffer + 4 * tries[i].taken,
			          80000 - 4 * tries[i].taken, UNTOUCHED);
		}
	}
	end_mode(c, &mode);
}

/* ---- several ------------------------------------------------------------- */

/* One tag, all outstanding at once: message i meets receive i. */
static void
the_next_message_of_the_tag_is_right(struct conform *c)
{
	baton_request requests[MESSAGES];
	unsigned char *buffers[MESSAGES];
	size_t bytes[MESSAGES];
	struct mode mode;

	if (!begin(c, &mode))
		return;
	for (int i = 0; i < MESSAGES && c->rank < 2; i++) {
		bytes[i] = i % 4 == 1 ? 80000 : i % 4 == 2 ? 4000 : 80;
		buffers[i] = untouched(c, bytes[i]);
		if (c->rank == 0) {
			conform_write(c, buffers[i], bytes[i], (unsigned)i);
			requests[i] = send_as(c, buffers[i], bytes[i] / 8,
			                      BATON_FLOAT64, 1);
		} else if (i % 3 == 1) {
			requests[i] = recv_as(c, buffers[i], bytes[i] / 4,
			                      BATON_INT32, 0);
		} else {
			requests[i] = recv_as(c, buffers[i], bytes[i] / 8,
			                      BATON_FLOAT64, 0);
		}
	}
	for (int i = 0; i < MESSAGES && c->rank < 2; i++) {
		bool differs = i % 3 == 1;

		if (c->rank == 0) {
			FINISH(c, differs ? mode.sends : BATON_OK, &requests[i]);
		} else if (differs) {
			expect_refused(c, &requests[i], bytes[i], 0);
			CHECK_ALL(c, buffers[i], bytes[i], UNTOUCHED);
		} else {
			FINISH(c, BATON_OK, &requests[i]);
			CHECK_FILLED(c, buffers[i], bytes[i], (unsigned)i);
		}
	}
	end_mode(c, &mode);
}

static void
a_message_to_oneself_is_compared(struct conform *c)
{
	static const size_t counts[] = {1, 500, 20000};
	baton_stream first = c->stream, second;
	struct mode mode;

	if (!begin(c, &mode))
		return;
	second = conform_stream(c);
	for (size_t i = 0; i < 2 * sizeof(counts) / sizeof(*counts); i++) {
		size_t n = counts[i / 2];
		unsigned char *out = conform_filled(c, 8 * n, 5);
		unsigned char *in = untouched(c, 8 * n);
		baton_request send, receive;

		/* What comes second is on a stream that does not wait for the first. */
		if (i % 2 == 0)
			send = send_as(c, out, n, BATON_FLOAT64, c->rank);
		else
			receive = recv_as(c, in, 2 * n, BATON_INT32, c->rank);
		c->stream = second;
		if (i % 2 == 0)
			receive = recv_as(c, in, 2 * n, BATON_INT32, c->rank);
		else
			send = send_as(c, out, n, BATON_FLOAT64, c->rank);
		c->stream = first;
		expect_refused(c, &receive, 8 * n, c->rank);
		FINISH(c, mode.sends, &send);
		CHECK_ALL(c, in, 8 * n, UNTOUCHED);
	}
	end_mode(c, &mode);
}

/* Both directions at once; the group's streams go on. */
static void
a_group_ends_with_its_mismatch(struct conform *c)
{
	unsigned char *out = conform_filled(c, 800, 1), *in = untouched(c, 800);
	int peer = conform_partner(c);
	baton_request send = BATON_REQUEST_NULL, receive = BATON_REQUEST_NULL;
	struct mode mode;

	if (!begin(c, &mode))
		return;
	if (peer >= 0) {
		CHECK_OK(c, baton_group_begin(c->comm));
		send = send_as(c, out, 100, BATON_FLOAT64, peer);
		receive = recv_as(c, in, 200, BATON_INT32, peer);
		CHECK_OK(c, baton_group_end(c->comm));
		expect_refused(c, &receive, 800, peer);
		FINISH(c, mode.sends, &send);
		CHECK_ALL(c, in, 800, UNTOUCHED);
		CHECK_OK(c, baton_stream_synchronize(c->comm, c->stream));
	}
	end_mode(c, &mode);
}

/* The launch of a plan says which operation it was, and what did not agree. */
static void
a_launch_tells_its_mismatch(struct conform *c)
{
	unsigned char *buffer = untouched(c, 800);
	baton_request request = BATON_REQUEST_NULL;
	struct baton_plan *plan = NULL;
	char text[400] = "";
	struct mode mode;

	if (!begin(c, &mode))
		return;
	if (c->rank == 0) {
		request = send_as(c, buffer, 100, BATON_FLOAT64, 1);
		FINISH(c, mode.sends, &request);
	} else if (c->rank == 1) {
		CHECK_OK(c, baton_plan_begin(c->comm));
		CHECK_OK(c, baton_recv(buffer, 200, BATON_INT32, 0, tag_of(c), c->comm,
		                       c->stream, NULL, NULL));
		CHECK_OK(c, baton_plan_end(c->comm, &plan));
		CHECK_OK(c, baton_plan_launch(plan, NULL, &request));
		CHECK_STATUS(c, BATON_ERR_MISMATCH,
		             baton_wait(request, conform_patience(c), NULL));
		CHECK_OK(c, baton_request_error(request, text, sizeof(text)));
		CHECK(c, strstr(text, "operation 0 of the plan, recv, peer 0"));
		CHECK(c, !strstr(text, "a list of tensors"));
		if (mode.sends == BATON_OK)
			expect_refused(c, &request, 800, 0);
		else
			FINISH(c, BATON_ERR_MISMATCH, &request);
		CHECK_ALL(c, buffer, 800, UNTOUCHED);
		CHECK_OK(c, baton_plan_destroy(plan));
	}
	end_mode(c, &mode);
}

/* A receive that has ended leaves its place to the next one. */
static void
a_canceled_receive_compares_nothing(struct conform *c)
{
	unsigned char *buffer = conform_filled(c, 80, 9);
	baton_request request;
	struct mode mode;

	if (!begin(c, &mode))
		return;
	if (c->rank == 1) {
		request = recv_as(c, buffer, 20, BATON_INT32, 0);
		CHECK_OK(c, baton_cancel(request));
		FINISH(c, BATON_ERR_CANCELED, &request);
	}
	conform_sync(c);
	if (c->rank == 0) {
		request = send_as(c, buffer, 10, BATON_FLOAT64, 1);
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		conform_set(c, buffer, 0, 80);
		request = recv_as(c, buffer, 10, BATON_FLOAT64, 0);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, buffer, 80, 9);
	}
	end_mode(c, &mode);
}

/* ---- the mode ------------------------------------------------------------ */

static void
without_it_types_are_not_compared(struct conform *c)
{
	unsigned char *buffer = conform_filled(c, 8, 1);
	baton_request request;

	if (c->info.check) {
		c->skip = "BATON_CHECK is 1";
	} else if (c->rank == 0) {
		request = send_as(c, buffer, 1, BATON_FLOAT64, 1);
		FINISH(c, BATON_OK, &request);
	} else if (c->rank == 1) {
		conform_set(c, buffer, 0, 8);
		request = recv_as(c, buffer, 2, BATON_INT32, 0);
		FINISH(c, BATON_OK, &request);
		CHECK_FILLED(c, buffer, 8, 1);
	}
}

static void
all_ranks_are_in_checked_mode_or_none(struct conform *c)
{
	struct baton_comm_options options = BATON_COMM_OPTIONS_INIT;
	struct baton_comm *comm = NULL;

	if (getenv("BATON_CHECK")) {
		c->skip = "BATON_CHECK is set, for all";
		return;
	}
	options.check = c->rank == 0;
	CHECK_REFUSED(c, BATON_ERR_INVALID,
	              c->backend->create(c, &options, &comm), "check");
	CHECK(c, !comm);
}

const struct conform_case conform_check[] = {
	{CASE(a_receive_of_another_type_ends_in_mismatch), .ranks_min = 2},
	{CASE(every_type_meets_itself_alone), .ranks_min = 2},
	{CASE(lengths_are_as_without_it), .ranks_min = 2},
	{CASE(the_next_message_of_the_tag_is_right), .ranks_min = 2},
	{CASE(a_message_to_oneself_is_compared), .streams = 2},
	{CASE(a_group_ends_with_its_mismatch), .ranks_min = 2},
	{CASE(a_launch_tells_its_mismatch), .ranks_min = 2},
	{CASE(a_canceled_receive_compares_nothing), .ranks_min = 2},
	{CASE(without_it_types_are_not_compared), .ranks_min = 2},
	{CASE(all_ranks_are_in_checked_mode_or_none), .ranks_min = 2,
	  .flags = CONFORM_BARE | CONFORM_PROCESSES},
	CASES_END,
};
