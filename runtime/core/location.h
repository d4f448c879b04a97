/* SPDX-License-Identifier: BSD-3-Clause */
/* What kind of memory a call names (location.c); the calls' own threads. */
#ifndef BATONI_LOCATION_H
#define BATONI_LOCATION_H

#include "core.h"

/* A communicator is created, or a window registered: has a device's library been loaded into
 * this process by now?  May block. */
void batoni_location_watch(void);

/* The location of memory that a call names (memory.h).  Memory of the host that is pinned in part
 * only is pageable.  OK; INVALID: memory of a device, given to a rank on the host; what the
 * device's `inspect` returns. batoni_refuse has said why, without the call's name. */
enum baton_status batoni_location_find(struct baton_comm *comm, const void *pointer,
                                       size_t bytes, unsigned *location_p);

/* Is the memory such as the host must not touch?  Any thread. */
bool batoni_location_is_foreign(const void *pointer);

/* Does a call with this communicator have to ask where its buffer lies?  One relaxed load on the
 * host. */
static inline bool
batoni_location_counts(const struct baton_comm *comm)
{
	return comm->inspects || atomic_load_explicit(&batoni_engine.foreign,
	                                              memory_order_relaxed);
}

/* For the fast path, whose communicators are on the host: may the host touch the buffer?  One
 * relaxed load where no device's library is loaded. */
static inline bool
batoni_location_is_ours(const void *pointer, size_t count)
{
	return likely(!atomic_load_explicit(&batoni_engine.foreign,
	                                    memory_order_relaxed)) ||
	       count == 0 || !batoni_location_is_foreign(pointer);
}

#endif
