/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators from the one of a sound run of the mixed load, on a thread of their own of each rank, while that
 * one's load goes on: dups and splits, on which the ranks meet and talk, and some of which they abort.  Their pools
 * are their own, so nothing is refused there, and nothing of it may end otherwise than it should.
 */
#include "mixed.h"

#define LIMIT_NS INT64_C(60000000000)

enum { CHILDREN_MAX = 3, OPERATIONS = 6, TAG = 7 };

static void
expect(const struct rank *rank, const char *what, enum baton_status status,
       enum baton_status wanted)
{
	if (status != wanted)
		mixed_fail(rank, "a child: %s: %s: %s", what,
		           baton_status_name(status), baton_last_error());
}

static void
finish_all(const struct rank *rank, baton_request *requests, int n,
           enum baton_status wanted)
{
	for (int i = 0; i < n; i++)
		expect(rank, "an operation",
		       baton_finish(&requests[i], LIMIT_NS, NULL), wanted);
}

/* A barrier; a ring of messages that any receive takes; signals of three units; a value of the counter. */
static void
talk(const struct rank *rank, struct baton_comm *child, baton_stream stream)
{
	struct baton_op_options detached = BATON_OP_OPTIONS_INIT;
	int me = baton_comm_rank(child), size = baton_comm_size(child);
	int next = (me + 1) % size, last = (me + size - 1) % size, got = -1;
	const struct baton_wait_signal_desc units = {.op_count = 3, .peer = last};
	baton_request requests[OPERATIONS];

	detached.flags = BATON_OP_DETACHED;
	expect(rank, "barrier",
	       baton_barrier(child, stream, &detached, &requests[0]), BATON_OK);
	expect(rank, "recv",
	       baton_recv(&got, sizeof(got), BATON_UINT8, BATON_ANY_SOURCE,
	                  BATON_ANY_TAG, child, stream, &detached, &requests[1]),
	       BATON_OK);
	expect(rank, "send",
	       baton_send(&me, sizeof(me), BATON_UINT8, next, TAG, child, stream,
	                  &detached, &requests[2]),
	       BATON_OK);
	expect(rank, "signal_add",
	       baton_signal_add(next, 0, 0, 3, 0, child, stream, &detached,
	                        &requests[3]),
	       BATON_OK);
	expect(rank, "wait_signal",
	       baton_wait_signal(1, &units, child, stream, &detached, &requests[4]),
	       BATON_OK);
	expect(rank, "wait_signal_count",
	       baton_wait_signal_count(last, 0, 0, 3, child, stream, &detached,
	                               &requests[5]),
	       BATON_OK);
	finish_all(rank, requests, OPERATIONS, BATON_OK);
	if (got != last)
		mixed_fail(rank, "a child: the message of rank %d, and not of %d",
		           got, last);
}

/* What nobody sends ends with the child, and with nothing else. */
static void
end_by_abort(const struct rank *rank, struct baton_comm *child, baton_stream stream)
{
	baton_request request;
	int got;

	expect(rank, "recv",
	       baton_recv(&got, sizeof(got), BATON_UINT8, BATON_ANY_SOURCE,
	                  BATON_ANY_TAG, child, stream, NULL, &request),
	       BATON_OK);
	expect(rank, "abort", baton_comm_abort(child), BATON_OK);
	finish_all(rank, &request, 1, BATON_ERR_ABORTED);
}

static void
one_child(const struct rank *rank, uint64_t *common)
{
	struct baton_comm *child = NULL;
	baton_stream stream;

	expect(rank, "dup or split",
	       draw(common) % 2
	               ? baton_comm_dup(rank->comm, NULL, &child)
	               : baton_comm_split(rank->comm, rank->rank % 2, -rank->rank,
	                                  NULL, &child),
	       BATON_OK);
	expect(rank, "stream_create", baton_stream_create(child, &stream), BATON_OK);
	talk(rank, child, stream);
	/* Without MPI the child of a rank that has not ended its talk would break. */
	if (draw(common) % 3 == 0 && !rank->job->options.near)
		end_by_abort(rank, child, stream);
	expect(rank, "stream_synchronize", baton_stream_synchronize(child, stream),
	       BATON_OK);
	expect(rank, "stream_destroy", baton_stream_destroy(child, stream), BATON_OK);
	expect(rank, "destroy", baton_comm_destroy(child), BATON_OK);
}

void
children_come_and_go(const struct rank *rank)
{
	const unsigned needed = BATON_CAP_SIGNALS | BATON_CAP_ANY_SOURCE |
	                        BATON_CAP_ANY_TAG | BATON_CAP_CANCEL;
	uint64_t common = mix(rank->seed, 0, 0, 5);
	unsigned n = draw(&common) % (CHILDREN_MAX + 1);

	/* A rank that aborts makes no collective calls, and the others would wait for it. */
	if (!rank->sound || (rank->info.capabilities & needed) != needed)
		return;
	for (unsigned i = 0; i < n; i++)
		one_child(rank, &common);
}
