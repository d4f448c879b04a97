/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store: the memory of all lists of tensors of a communicator, which the first call with a list
 * allocates, as one block, cut into units of UNIT_BYTES.  Nothing is allocated later.
 *
 * Counting.  A unit has room for UNIT_TENSORS tensors of any rank, with all that a receive
 * needs of them and for the list itself.  So a list takes as many units as its tensors
 * fill, and never more; the store has as many as tensors_max fill.
 *
 * Runs.  A list has a run of units: a struct block, then what it points to.  runs[u] is the
 * length of the run that begins at unit u, or 0.  A list is given the first run that is free.  One
 * lock guards runs; it is a leaf.
 *
 * Spares.  A short run that is given back stays a block, for the next list of as many units: it
 * changes hands by one atomic exchange, without the lock.  For `runs` it is in use.  When no run
 * is free, the spares are given back too, and what was kept for slots that are used again.
 *
 * Kept.  A list whose operation has ended in MISMATCH, TRUNCATED or INVALID is kept, for the
 * sentence of baton_request_error, until its slot is used again: then the slot has another
 * generation.
 *
 * After an abort a transport may still read the header of a list.  A store with lists that are
 * not given back is then leaked on purpose.
 */
#include "tensor_store.h"

#include <string.h>

#include "log.h"
#include "tensors.h"

#define UNIT_TENSORS 8u
#define UNIT_BYTES 1792u
/* How many spares of each length there are, and how long they are at most. */
#define SPARES 2u
#define SPARE_UNITS 4u

struct block {
	struct batoni_tensor_list list; /* must be first */
	/* These two are constant as long as the run is a block. */
	uint32_t first, units;
	/* Kept for the sentence of this operation in this generation; under the lock. */
	bool kept;
	const struct batoni_op *owner;
	uint32_t generation;
};

/* What a list has behind its block: each part begins at a multiple of ALIGNMENT. */
#define ALIGNMENT 16u
#define PARTS 5u
/* For each tensor: a segment, a declaration, a location, and of the header its type, rank and
 * dimensions. */
#define TENSOR_BYTES                                                          \
	(sizeof(struct batoni_segment) + sizeof(struct baton_tensor) + 1 +    \
	 BATONI_TENSORS_ENTRY_MAX)

static_assert(sizeof(struct block) + BATONI_TENSORS_FIXED_BYTES +
                              PARTS * ALIGNMENT +
                              UNIT_TENSORS * TENSOR_BYTES <=
                      UNIT_BYTES,
              "a list fits in as many units as its tensors fill");

struct batoni_tensor_store {
	pthread_mutex_t lock;
	uint32_t units;
	uint16_t *runs;
	unsigned char *memory;
	/* By length, from one unit on. */
	_Atomic(struct block *) spares[SPARE_UNITS][SPARES];
	struct batoni_tensor_store *leaked; /* the one that was leaked before */
};

/* ---- the store ---- */

static uint32_t
units_of(size_t tensors)
{
	size_t units = (tensors + UNIT_TENSORS - 1) / UNIT_TENSORS;

	return units > 0 ? (uint32_t)units : 1;
}

static void
store_free(struct batoni_tensor_store *store)
{
	pthread_mutex_destroy(&store->lock);
	batoni_free(store->memory);
	batoni_free(store->runs);
	batoni_free(store);
}

/* NULL: no memory. */
static struct batoni_tensor_store *
store_new(uint32_t tensors_max)
{
	struct batoni_tensor_store *store = batoni_alloc(1, sizeof(*store));

	if (!store)
		return NULL;
	pthread_mutex_init(&store->lock, NULL);
	store->units = units_of(tensors_max);
	store->runs = batoni_alloc(store->units, sizeof(*store->runs));
	store->memory = batoni_alloc(store->units, UNIT_BYTES);
	if (store->runs && store->memory)
		return store;
	store_free(store);
	return NULL;
}

static struct batoni_tensor_store *
store_of(struct baton_comm *comm)
{
	struct batoni_tensor_store *store = atomic_load(&comm->tensors);
	struct batoni_tensor_store *mine;

	if (likely(store != NULL))
		return store;
	mine = store_new(comm->tensors_max);
	if (!mine || atomic_compare_exchange_strong(&comm->tensors, &store,
	                                            mine))
		return mine;
	store_free(mine);
	return store;
}

static struct block *
block_at(const struct batoni_tensor_store *store, uint32_t unit)
{
	return (struct block *)(void *)(store->memory +
	                                (size_t)unit * UNIT_BYTES);
}

static struct block *
block_of(struct batoni_tensor_list *list)
{
	return (struct block *)(void *)list;
}

static uint32_t
generation_of(const struct batoni_op *op)
{
	return (uint32_t)(atomic_load(&op->word) >> 32);
}

/* ---- spares ---- */

static bool
put_spare(struct batoni_tensor_store *store, struct block *block)
{
	bool put = false;

	if (block->units > SPARE_UNITS)
		return false;
	for (unsigned i = 0; i < SPARES && !put; i++) {
		_Atomic(struct block *) *spare =
			&store->spares[block->units - 1][i];
		struct block *none = NULL;

		/* Release, pairs with the exchange of the thread that takes it. */
		put = !atomic_load_explicit(spare, memory_order_relaxed) &&
		      atomic_compare_exchange_strong(spare, &none, block);
	}
	return put;
}

/* One of n units, or NULL. */
static struct block *
take_spare(struct batoni_tensor_store *store, uint32_t n)
{
	struct block *block = NULL;

	if (n > SPARE_UNITS)
		return NULL;
	for (unsigned i = 0; i < SPARES && !block; i++) {
		_Atomic(struct block *) *spare = &store->spares[n - 1][i];

		if (atomic_load_explicit(spare, memory_order_relaxed))
			block = atomic_exchange(spare, NULL);
	}
	return block;
}

static void
free_spares_locked(struct batoni_tensor_store *store)
{
	for (uint32_t n = 1; n <= SPARE_UNITS; n++) {
		const struct block *block;

		while ((block = take_spare(store, n)) != NULL)
			store->runs[block->first] = 0;
	}
}

/* ---- runs ---- */

static void
free_kept_locked(struct batoni_tensor_store *store)
{
	for (uint32_t u = 0; u < store->units;) {
		uint32_t n = store->runs[u];
		struct block *block = block_at(store, u);

		if (n > 0 && block->kept &&
		    generation_of(block->owner) != block->generation) {
			block->kept = false;
			store->runs[u] = 0;
		}
		u += n > 0 ? n : 1;
	}
}

/* The first free run of n units, or NULL. */
static struct block *
find_locked(struct batoni_tensor_store *store, uint32_t n)
{
	uint32_t free = 0;

	for (uint32_t u = 0; u < store->units;) {
		if (store->runs[u] > 0) {
			free = 0;
			u += store->runs[u];
			continue;
		}
		u++;
		if (++free < n)
			continue;
		store->runs[u - n] = (uint16_t)n;
		return block_at(store, u - n);
	}
	return NULL;
}

/* The run is a block before the lock is given up: others look at all blocks
 * (free_kept_locked), and what was there before may be anything. */
static struct block *
take_run(struct batoni_tensor_store *store, uint32_t n)
{
	struct block *block;

	pthread_mutex_lock(&store->lock);
	block = find_locked(store, n);
	if (!block) {
		free_spares_locked(store);
		free_kept_locked(store);
		block = find_locked(store, n);
	}
	if (block)
		*block = (struct block){
			.first = (uint32_t)(((unsigned char *)block -
			                     store->memory) /
			                    UNIT_BYTES),
			.units = n,
		};
	pthread_mutex_unlock(&store->lock);
	return block;
}

static struct block *
take_block(struct batoni_tensor_store *store, uint32_t n)
{
	struct block *block = take_spare(store, n);

	if (unlikely(!block))
		return take_run(store, n);
	block->list = (struct batoni_tensor_list){.count = 0};
	return block;
}

/* ---- lists ---- */

static size_t
align_up(size_t bytes)
{
	return (bytes + ALIGNMENT - 1) & ~(size_t)(ALIGNMENT - 1);
}

static void
lay_out(struct block *block, size_t count, bool declares, bool inspects)
{
	struct batoni_tensor_list *list = &block->list;
	unsigned char *at = (unsigned char *)block + align_up(sizeof(*block));

	list->segments = (struct batoni_segment *)(void *)at;
	at += align_up(count * sizeof(*list->segments));
	if (declares) {
		list->declared = (struct baton_tensor *)(void *)at;
		at += align_up(count * sizeof(*list->declared));
	}
	if (inspects) {
		list->locations = at;
		memset(at, BATONI_MEMORY_HOST, count);
		at += align_up(count);
	}
	list->header = at;
	list->header_max = BATONI_TENSORS_FIXED_BYTES +
	                   count * BATONI_TENSORS_ENTRY_MAX + ALIGNMENT;
	assert(at + list->header_max <=
	       (unsigned char *)block + (size_t)block->units * UNIT_BYTES);
}

enum baton_status
batoni_tensor_list_take(const char *call, struct baton_comm *comm, size_t count,
                        bool declares, struct batoni_tensor_list **list_p)
{
	struct batoni_tensor_store *store = store_of(comm);
	uint32_t units = units_of(count);
	struct block *block;

	if (unlikely(!store))
		return batoni_refuse(BATON_ERR_NOMEM,
		                     "%s: no memory for the %u tensors of "
		                     "tensors_max",
		                     call, comm->tensors_max);
	if (unlikely(units > store->units))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "%s: count is %zu; the communicator has "
		                     "memory for %u tensors (tensors_max, a "
		                     "multiple of %u)",
		                     call, count, store->units * UNIT_TENSORS,
		                     UNIT_TENSORS);
	block = take_block(store, units);
	if (unlikely(!block))
		return batoni_refuse(BATON_ERR_AGAIN,
		                     "%s: pending lists take the memory of %u "
		                     "tensors (tensors_max), and this one needs %u; "
		                     "finish or release some",
		                     call, store->units * UNIT_TENSORS,
		                     units * UNIT_TENSORS);
	lay_out(block, count, declares, comm->inspects);
	*list_p = &block->list;
	return BATON_OK;
}

uint32_t
batoni_tensor_list_units(struct batoni_tensor_list *list)
{
	return block_of(list)->units;
}

enum baton_status
batoni_lists_fit(const char *call, struct baton_comm *comm, uint64_t units)
{
	struct batoni_tensor_store *store = units > 0 ? store_of(comm) : NULL;

	if (!store || units <= store->units)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "%s: the lists of a launch take the memory of %llu "
	                     "tensors, and the communicator has it for %u "
	                     "(tensors_max; a list counts as the next multiple of "
	                     "%u, and as %u at least)",
	                     call, (unsigned long long)units * UNIT_TENSORS,
	                     store->units * UNIT_TENSORS, UNIT_TENSORS,
	                     UNIT_TENSORS);
}

void
batoni_tensor_list_give(struct baton_comm *comm, struct batoni_tensor_list *list)
{
	struct batoni_tensor_store *store = atomic_load(&comm->tensors);
	struct block *block = block_of(list);

	if (likely(put_spare(store, block)))
		return;
	pthread_mutex_lock(&store->lock);
	store->runs[block->first] = 0;
	pthread_mutex_unlock(&store->lock);
}

void
batoni_tensor_list_keep(struct batoni_op *op, struct batoni_tensor_list *list)
{
	struct batoni_tensor_store *store = atomic_load(&op->comm->tensors);
	struct block *block = block_of(list);

	pthread_mutex_lock(&store->lock);
	block->owner = op;
	block->generation = generation_of(op);
	block->kept = true;
	pthread_mutex_unlock(&store->lock);
}

/* What was leaked on purpose, so that leak checkers find it. */
static void
leak_on_purpose(struct batoni_tensor_store *store)
{
	static _Atomic(struct batoni_tensor_store *) leaked;

	store->leaked = atomic_load(&leaked);
	while (!atomic_compare_exchange_weak(&leaked, &store->leaked, store))
		;
	batoni_mem_keep(3);
}

void
batoni_lists_close(struct baton_comm *comm)
{
	struct batoni_tensor_store *store = atomic_load(&comm->tensors);
	uint32_t n;

	if (!store)
		return;
	free_spares_locked(store);
	for (uint32_t u = 0; u < store->units; u += n) {
		n = store->runs[u];
		if (n > 0 && !block_at(store, u)->kept) {
			leak_on_purpose(store);
			return;
		}
		n = n > 0 ? n : 1;
	}
	store_free(store);
}
