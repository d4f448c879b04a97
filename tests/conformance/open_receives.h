/* SPDX-License-Identifier: BSD-3-Clause */
/* What the cases of receives from any rank, and of any tag, share. */
#ifndef OPEN_RECEIVES_H
#define OPEN_RECEIVES_H

#include "harness.h"

#define ANY BATON_ANY_SOURCE

/* A detached receive of an int. */
baton_request conform_recv_int(struct conform *c, int *value, int peer, int tag,
                               baton_stream stream);
/* Send an int, and wait for the end. */
void conform_send_int(struct conform *c, int value, int peer, int tag);
/* Values from 1 on, each on its tag; at most 8.  They end when they are received. */
void conform_send_ints(struct conform *c, int n, const int *tags, int peer);
/* The receive ends in OK, with a message of this rank and tag. */
void conform_finish_as(struct conform *c, baton_request *request_p, int peer,
                       int tag);
/* Messages of all lengths from rank 0 to receives of rank 1 that name this peer and tag; of any tag, on two tags in
 * turn.  first: each receive is posted before its message is sent. */
void conform_all_lengths(struct conform *c, bool first, int peer, int tag);
/* Each launch receives the number of the rank before.  plan: NULL, if it could not be made. */
void conform_launch_thrice(struct conform *c, struct baton_plan *plan, int *got_p);

#endif
