/* SPDX-License-Identifier: BSD-3-Clause */
/* What the files with public calls that enqueue share: calls.c, put_calls.c, wait_calls.c and flush.c. */
#ifndef BATONI_CALLS_H
#define BATONI_CALLS_H

#include "enqueue.h"
#include "life.h"
#include "window.h"

/* calls.c: the checks, in the words of this call.  OK; else what the call returns. */
enum baton_status batoni_check_layer(const char *call,
                                     const struct baton_comm *comm);
enum baton_status batoni_check_channel(const char *call,
                                       const struct baton_comm *comm, int peer,
                                       int context);
enum baton_status batoni_check_counter(const char *call,
                                       const struct baton_comm *comm, int peer,
                                       int signal_index, int context);
enum baton_status
batoni_check_descs(const char *call, const struct baton_comm *comm,
                   size_t desc_count, const struct baton_wait_signal_desc *descs);
/* What batoni_wait_describe has refused, for so many descriptors. */
enum baton_status batoni_refuse_wait(const char *call, const struct batoni_rma *rma,
                                     size_t desc_count, enum baton_status status);
/* The rank that all descriptors name, or -1. */
int batoni_common_peer(size_t desc_count,
                       const struct baton_wait_signal_desc *descs);
enum baton_status batoni_refuse_peer_memory(const char *call, int peer);

/* The same checks without a message, for the fast path. */
BATONI_ALWAYS_INLINE bool
batoni_channel_fine(const struct baton_comm *comm, int peer, int context)
{
	const struct batoni_onesided *layer = comm->onesided;

	return layer && (unsigned)peer < (unsigned)comm->size &&
	       (unsigned)context < (unsigned)layer->contexts_max;
}

BATONI_ALWAYS_INLINE bool
batoni_counter_fine(const struct baton_comm *comm, int peer, int signal_index,
                    int context)
{
	return batoni_channel_fine(comm, peer, context) &&
	       (unsigned)signal_index <
	               (unsigned)comm->onesided->signals_max;
}

#endif
