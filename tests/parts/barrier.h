/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A kind of operation that the library has not: a meeting of streams in one process.  It ends when each rank
 * of a local communicator has one that its stream has reached.  (baton_barrier is for ranks of any
 * transport.)
 */
#ifndef TEST_BARRIER_H
#define TEST_BARRIER_H

/* The line in the list of kinds. */
#define BATONI_KINDS_MORE(KIND)                                               \
	KIND(MEETING, BATON_OPERATION_ATOMIC + 5, batoni_kind_meeting)
#include "kinds.h"

#define TEST_BARRIER_RANKS 4

/* Where the ranks of a communicator meet.  Zeroed but for `ranks`; it outlives the barriers. */
struct test_meeting {
	int ranks;
	/* Driver: by rank, the barriers that wait for other ranks, in the order in which
	 * their streams got there. */
	struct batoni_op *waiting[TEST_BARRIER_RANKS];
};

/* Options and request_p may be NULL.  Returns as baton_send; not in groups. */
enum baton_status test_barrier(struct test_meeting *meeting,
                               struct baton_comm *comm, baton_stream stream,
                               const struct baton_op_options *options,
                               baton_request *request_p);

#endif
