/* SPDX-License-Identifier: BSD-3-Clause */
/* Receives of all kinds, from any rank and of any tag, in many orders of calls, against a reference; and
 * the order in which sends of many tags leave. */
#include <string.h>

#include "open_receives.h"

enum { MIX_SENT = 40, MIX_OPEN = 34, MIX_ALL = MIX_SENT + MIX_OPEN, MIX_BYTES = 20000 };

/* The messages to a rank and its receives, drawn; and which message each receive gets (-1: none). */
struct mix {
	int tags[MIX_SENT];
	size_t bytes[MIX_SENT];
	int peers[MIX_ALL], wants[MIX_ALL], meets[MIX_ALL];
};

static int
draw(uint64_t *state, int n)
{
	*state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (int)((*state >> 33) % (uint64_t)n);
}

/* Each message goes to the first receive that could take it and has none: all are armed at their calls. */
static void
meet_in_order(struct mix *mix)
{
	for (int i = 0; i < MIX_ALL; i++)
		mix->meets[i] = -1;
	for (int k = 0, i; k < MIX_SENT; k++) {
		for (i = 0; mix->meets[i] >= 0 ||
		            (mix->wants[i] != BATON_ANY_TAG && mix->wants[i] != mix->tags[k]);)
			i++;
		mix->meets[i] = k;
	}
}

/* The last receives take all that is left. */
static void
draw_mix(struct mix *mix, uint64_t seed, int from)
{
	static const size_t bytes[] = {4, 60, 600, 2049, 9000, MIX_BYTES};
	uint64_t state = seed * 1000 + (uint64_t)from;
	int tags = 1 + draw(&state, 5);

	for (int k = 0; k < MIX_SENT; k++) {
		mix->tags[k] = draw(&state, tags);
		mix->bytes[k] = bytes[draw(&state, 6)];
	}
	for (int i = 0; i < MIX_ALL; i++) {
		int kind = i < MIX_OPEN ? draw(&state, 6) : 1;

		mix->peers[i] = kind < 3 ? ANY : from;
		mix->wants[i] = kind % 3 == 1 ? BATON_ANY_TAG : draw(&state, tags);
	}
	meet_in_order(mix);
}

static void
finish_mix(struct conform *c, const struct mix *mix, int from, char *const *buffers,
           baton_request *requests)
{
	for (int i = 0; i < MIX_ALL; i++) {
		int meets = mix->meets[i], value = -1;

		if (meets < 0) {
			CHECK_OK(c, baton_cancel(requests[i]));
			FINISH(c, BATON_ERR_CANCELED, &requests[i]);
			continue;
		}
		conform_finish_as(c, &requests[i], from, mix->tags[meets]);
		memcpy(&value, buffers[i], sizeof(value));
		CHECK_EQ(c, value, meets);
	}
}

/* Calls of both sides, as they fall. */
static void
exchange_mix(struct conform *c, uint64_t seed, char *const *buffers)
{
	const int from = conform_previous(c);
	baton_request sends[MIX_SENT], requests[MIX_ALL];
	uint64_t state = seed + 77 * (uint64_t)c->rank;
	int sent = 0, called = 0;
	struct mix out, in;

	draw_mix(&out, seed, c->rank);
	draw_mix(&in, seed, from);
	while (sent < MIX_SENT || called < MIX_ALL) {
		if (sent < MIX_SENT && draw(&state, 2)) {
			memcpy(buffers[MIX_ALL + sent], &sent, sizeof(sent));
			sends[sent] = SEND(c, buffers[MIX_ALL + sent],
			                   out.bytes[sent], conform_next(c),
			                   out.tags[sent], c->stream,
			                   &conform_detached);
			sent++;
		} else if (called < MIX_ALL) {
			requests[called] = RECV(c, buffers[called], MIX_BYTES,
			                        in.peers[called], in.wants[called],
			                        c->stream, &conform_detached);
			called++;
		}
	}
	finish_mix(c, &in, from, buffers, requests);
	for (int k = 0; k < MIX_SENT; k++)
		FINISH(c, BATON_OK, &sends[k]);
}

static void
armed_receives_match_in_order_however_calls_fall(struct conform *c)
{
	char *buffers[MIX_ALL + MIX_SENT];

	for (int i = 0; i < MIX_ALL + MIX_SENT; i++)
		buffers[i] = conform_alloc(c, MIX_BYTES);
	for (uint64_t seed = 1; seed <= 60; seed++) {
		exchange_mix(c, seed, buffers);
		conform_sync(c);
	}
}

/* ---- sends that are armed together -------------------------------------- */

enum { TOGETHER = 12 };
static const int together[TOGETHER] = {2, 5, 2, 3, 5, 5, 3, 2, 9, 2, 5, 3};

/* Rank 0 receives them in the order of their calls. */
static void
receive_together(struct conform *c)
{
	int values[TOGETHER];
	baton_request requests[TOGETHER];

	for (int k = 0; k < TOGETHER; k++)
		requests[k] = conform_recv_int(c, &values[k], k % 2 ? ANY : 1,
		                               BATON_ANY_TAG, c->stream);
	for (int k = 0; k < TOGETHER; k++) {
		conform_finish_as(c, &requests[k], 1, together[k]);
		CHECK_EQ(c, values[k], k);
	}
}

static void
sends_of_a_group_leave_in_the_order_of_their_calls(struct conform *c)
{
	baton_stream streams[2] = {c->stream, conform_stream(c)};
	baton_request requests[TOGETHER];
	int values[TOGETHER];

	if (c->rank == 0) {
		receive_together(c);
		return;
	}
	for (int k = 0; k < TOGETHER && c->rank == 1; k++) {
		values[k] = k;
		if (k == 0)
			CHECK_OK(c, baton_group_begin(c->comm));
		CHECK_OK(c, baton_send(&values[k], sizeof(int), BATON_UINT8, 0,
		                       together[k], c->comm, streams[k / 3 % 2],
		                       NULL, &requests[k]));
	}
	if (c->rank == 1) {
		CHECK_OK(c, baton_group_end(c->comm));
		FINISH_ALL(c, requests, TOGETHER);
	}
}

/* The stream goes on, and reaches all of them. */
static void
detached_sends_leave_in_the_order_of_their_calls(struct conform *c)
{
	baton_stream gated = conform_stream(c);
	baton_request requests[TOGETHER];
	int values[TOGETHER];

	if (c->rank == 1)
		conform_gate_launch(c, 0, gated);
	for (int k = 0; k < TOGETHER && c->rank == 1; k++) {
		values[k] = k;
		requests[k] = SEND(c, &values[k], sizeof(int), 0, together[k],
		                   gated, &conform_detached);
	}
	if (c->rank == 1)
		conform_gate_open(c, 0);
	if (c->rank == 0)
		receive_together(c);
	else if (c->rank == 1)
		FINISH_ALL(c, requests, TOGETHER);
}

const struct conform_case conform_any_mix[] = {
	{CASE(armed_receives_match_in_order_however_calls_fall),
	  .needs = BATON_CAP_ANY_TAG},
	{CASE(sends_of_a_group_leave_in_the_order_of_their_calls), .ranks_min = 2,
	  .needs = BATON_CAP_ANY_TAG, .streams = 2},
	{CASE(detached_sends_leave_in_the_order_of_their_calls), .ranks_min = 2,
	  .needs = BATON_CAP_ANY_TAG, .streams = 2},
	CASES_END,
};
