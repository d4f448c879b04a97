/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixed pool of operation records of one communicator.  Any thread takes
 * and returns; the free list is a stack of indices under one compare-and-swap,
 * with a tag against ABA.
 *
 * Beside each record, in arrays of their own: the word that streams wait for
 * (device memory), the value of that word at which the record's present use has
 * ended, and the three time stamps, if they are kept.
 */
#ifndef BATONI_POOL_H
#define BATONI_POOL_H

#include "op.h"

struct batoni_stamps {
	uint64_t enqueued_ns, armed_ns, completed_ns;
};

struct batoni_pool {
	struct batoni_op *ops;
	_Atomic uint64_t *words;
	uint64_t *values;
	struct batoni_stamps *stamps; /* NULL: not kept */
	_Atomic uint32_t *next_free;  /* index + 1; 0 ends the list */
	uint32_t size;
	alignas(64) _Atomic uint64_t free; /* tag << 32 | index + 1 */
};

/* Generations begin after `generation`.  OK, NOMEM. */
enum baton_status batoni_pool_init(struct batoni_pool *pool, uint32_t size,
                                   uint32_t generation, bool stamps,
                                   struct batoni_device *device);
/* Returns the highest generation that was in use. */
uint32_t batoni_pool_fini(struct batoni_pool *pool,
                          struct batoni_device *device);

/* A free record, in state NEW with no holders; NULL when all are taken. */
struct batoni_op *batoni_pool_take(struct batoni_pool *pool);
/* Nobody holds it any more: next generation, back to the free ones. */
void batoni_pool_return(struct batoni_pool *pool, struct batoni_op *op);

static inline uint32_t
batoni_pool_slot(const struct batoni_pool *pool, const struct batoni_op *op)
{
	return (uint32_t)(op - pool->ops);
}

#endif
