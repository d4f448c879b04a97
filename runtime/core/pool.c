/* SPDX-License-Identifier: BSD-3-Clause */
#include "pool.h"

#include "mem.h"

#define INDEX(head) ((uint32_t)(head))
#define TAG_ONE (UINT64_C(1) << 32)
#define TAG(head) ((head) & ~UINT64_C(0xffffffff))

enum baton_status
batoni_pool_init(struct batoni_pool *pool, uint32_t size, uint32_t generation,
                 bool stamps, struct batoni_device *device, uint64_t until_ns)
{
	enum baton_status status;

	pool->size = size;
	pool->ops = batoni_alloc(size, sizeof(*pool->ops));
	pool->values = batoni_alloc(size, sizeof(*pool->values));
	pool->next_free = batoni_alloc(size, sizeof(*pool->next_free));
	if (stamps)
		pool->stamps = batoni_alloc(size, sizeof(*pool->stamps));
	status = device->ops->words_alloc(device, size, until_ns,
	                                  &pool->words);
	if (status != BATON_OK)
		pool->words = NULL;
	if (!pool->ops || !pool->values || !pool->next_free ||
	    (stamps && !pool->stamps))
		status = BATON_ERR_NOMEM;
	if (status != BATON_OK) {
		batoni_pool_fini(pool, device);
		return status;
	}
	for (uint32_t i = 0; i < size; i++) {
		atomic_init(&pool->ops[i].word,
		            (uint64_t)(generation + 1) << 32);
		atomic_init(&pool->next_free[i], i + 1 < size ? i + 2 : 0);
		batoni_list_init(&pool->ops[i].deadline);
	}
	atomic_init(&pool->free, 1);
	return BATON_OK;
}

uint32_t
batoni_pool_generation(const struct batoni_pool *pool)
{
	uint32_t highest = 0;

	for (uint32_t i = 0; pool->ops && i < pool->size; i++) {
		uint32_t generation =
			(uint32_t)(atomic_load(&pool->ops[i].word) >> 32);

		if (generation > highest)
			highest = generation;
	}
	return highest;
}

enum baton_status
batoni_pool_fini(struct batoni_pool *pool, struct batoni_device *device)
{
	enum baton_status status = BATON_OK;

	if (pool->words)
		status = device->ops->words_free(device, pool->words);
	if (status != BATON_OK)
		return status;
	batoni_free(pool->ops);
	batoni_free(pool->values);
	batoni_free(pool->next_free);
	batoni_free(pool->stamps);
	*pool = (struct batoni_pool){0};
	return BATON_OK;
}

struct batoni_op *
batoni_pool_take(struct batoni_pool *pool)
{
	uint64_t head = atomic_load_explicit(&pool->free, memory_order_acquire);
	struct batoni_op *op;
	uint64_t next;

	do {
		if (INDEX(head) == 0)
			return NULL;
		/* Another thread may have taken it: then the tag has changed. */
		next = atomic_load_explicit(&pool->next_free[INDEX(head) - 1],
		                            memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(
		&pool->free, &head, (TAG(head) + TAG_ONE) | next,
		memory_order_acquire, memory_order_acquire));
	op = &pool->ops[INDEX(head) - 1];
	pool->values[INDEX(head) - 1]++;
	batoni_fence(memory_order_release);
	return op;
}

/* The index + 1 behind n slots from `head` on; the list may change meanwhile, which the tag
 * tells the caller.  False: it ended before. */
static bool
walk(const struct batoni_pool *pool, uint32_t head, uint32_t n, uint32_t *behind_p)
{
	uint32_t at = head;

	for (uint32_t i = 0; i < n; i++) {
		/* What is listed for a cancel is linked by the same array. */
		if (at == 0 || at > pool->size)
			return false;
		at = atomic_load_explicit(&pool->next_free[at - 1],
		                          memory_order_relaxed);
	}
	*behind_p = at;
	return true;
}

struct batoni_op *
batoni_pool_take_many(struct batoni_pool *pool, uint32_t n)
{
	uint64_t head = atomic_load_explicit(&pool->free, memory_order_acquire);
	struct batoni_op *first = NULL, **tail = &first;
	uint32_t behind, at;

	do {
		if (!walk(pool, INDEX(head), n, &behind))
			return NULL;
	} while (!atomic_compare_exchange_weak_explicit(
		&pool->free, &head, (TAG(head) + TAG_ONE) | behind,
		memory_order_acquire, memory_order_acquire));
	at = INDEX(head);
	for (uint32_t i = 0; i < n; i++) {
		*tail = &pool->ops[at - 1];
		batoni_op_list_in(*tail, BATONI_IN_LAUNCH);
		tail = &(*tail)->next;
		pool->values[at - 1]++;
		at = atomic_load_explicit(&pool->next_free[at - 1],
		                          memory_order_relaxed);
	}
	*tail = NULL;
	batoni_fence(memory_order_release);
	return first;
}

void
batoni_pool_return(struct batoni_pool *pool, struct batoni_op *op)
{
	uint32_t index = batoni_pool_slot(pool, op);
	uint64_t head;

	batoni_pool_next_generation(op);
	head = atomic_load_explicit(&pool->free, memory_order_relaxed);
	do {
		atomic_store_explicit(&pool->next_free[index], INDEX(head),
		                      memory_order_relaxed);
	} while (!atomic_compare_exchange_weak_explicit(
		&pool->free, &head, (TAG(head) + TAG_ONE) | (index + 1),
		memory_order_release, memory_order_relaxed));
}
