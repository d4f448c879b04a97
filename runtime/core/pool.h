/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The fixed pool of operation slots of one communicator.  Any thread takes and returns
 * slots.  The free list is a stack of indices under one compare-and-swap, with a tag
 * against ABA.  The driver keeps a few slots in a cache of its own, which needs no
 * atomic read-modify-writes.
 *
 * Separate arrays hold for each slot: the word that streams wait for (device memory),
 * the value at which that word ends the operation's present use, and the three time stamps,
 * if they are kept.
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
	struct batoni_op *cache; /* driver: free slots, linked by next */
	uint32_t cached; /* driver: slots in the cache */
	alignas(64) _Atomic uint64_t free; /* tag << 32 | index + 1 */
};

/* Generations begin after `generation`.  OK, NOMEM; what the device's words_alloc returns, which
 * waits until until_ns. */
enum baton_status batoni_pool_init(struct batoni_pool *pool, uint32_t size,
                                   uint32_t generation, bool stamps,
                                   struct batoni_device *device,
                                   uint64_t until_ns);
/* The highest generation that was in use. */
uint32_t batoni_pool_generation(const struct batoni_pool *pool);
/* Free everything.  OK; BUSY: streams may still read the words, and nothing was
 * freed. */
enum baton_status batoni_pool_fini(struct batoni_pool *pool,
                                   struct batoni_device *device);

/* A free slot, with no holders; NULL: all are taken.  The caller may write its fields
 * at once: readers with an old handle see the new generation. */
struct batoni_op *batoni_pool_take(struct batoni_pool *pool);
/* n free slots, linked by `next`, by one step; NULL: so many are not on the list (some may be
 * in the driver's cache). */
struct batoni_op *batoni_pool_take_many(struct batoni_pool *pool, uint32_t n);
/* The last holder is gone: advance the generation and return the slot to the pool. */
void batoni_pool_return(struct batoni_pool *pool, struct batoni_op *op);

#define BATONI_POOL_CACHE 16u

/* The operation is in no list. */
static inline void
batoni_pool_next_generation(struct batoni_op *op)
{
	uint64_t word = atomic_load_explicit(&op->word, memory_order_relaxed);
	uint64_t next = (word | UINT32_MAX) + 1;

	assert(op->listed == BATONI_UNLISTED && batoni_list_empty(&op->deadline));
	/* Generation 0 would make a null handle seem valid. */
	if (__builtin_expect(next == 0, 0))
		next = UINT64_C(1) << 32;
	atomic_store_explicit(&op->word, next, memory_order_relaxed);
}

/* Take and return on the driver, through its cache. */
static inline struct batoni_op *
batoni_pool_take_driving(struct batoni_pool *pool)
{
	struct batoni_op *op = pool->cache;

	if (!op)
		return batoni_pool_take(pool);
	pool->cache = op->next;
	batoni_op_list_out(op, BATONI_IN_CACHE);
	pool->cached--;
	pool->values[op - pool->ops]++;
	batoni_fence(memory_order_release);
	return op;
}

static inline void
batoni_pool_return_driving(struct batoni_pool *pool, struct batoni_op *op)
{
	if (__builtin_expect(pool->cached == BATONI_POOL_CACHE, 0)) {
		batoni_pool_return(pool, op);
		return;
	}
	batoni_pool_next_generation(op);
	batoni_op_list_in(op, BATONI_IN_CACHE);
	op->next = pool->cache;
	pool->cache = op;
	pool->cached++;
}

static inline void
batoni_pool_start_stamps(struct batoni_pool *pool, uint32_t slot, uint64_t now)
{
	struct batoni_stamps *stamps = &pool->stamps[slot];

	batoni_set(stamps->enqueued_ns, now);
	batoni_set(stamps->armed_ns, 0);
	batoni_set(stamps->completed_ns, 0);
}

static inline uint32_t
batoni_pool_slot(const struct batoni_pool *pool, const struct batoni_op *op)
{
	return (uint32_t)(op - pool->ops);
}

#endif
