/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pinned memory of one GPU: blocks, a reserve of them, and pinning beside streams that wait.
 *
 * CUDA's programming guide counts the allocation of pinned memory among what synchronises
 * implicitly: the driver may let the caller wait for every stream of the context.  A stream may
 * be waiting for a message whose sender first has to create the communicator that needs the
 * block.  So:
 *
 *   - nothing is ever unpinned, which would wait too: a block that is given back is *spare*,
 *     and used again;
 *   - *reserve*: a creation beside which no stream has work of ours pins more, until there are
 *     as many spare blocks as there are in use, of each length, up to RESERVE_BYTES.  So
 *     another communicator like those that there are makes no call that could wait;
 *   - where there is no spare block and a stream has work of ours, a thread pins, and the
 *     creator waits for it as long as its options say.  Then the creation is refused, and the
 *     block becomes a spare one when the driver is done with it.
 *
 * Streams on which the program alone waits are not known here: the guide's rule is theirs.
 *
 * Locks.  gpu->lock guards the lists.  No driver call is made under it.
 */
#include "cuda_stream.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "mem.h"
#include "thread.h"

#define RESERVE_BYTES ((size_t)64 << 20)
#define PATIENCE_NS INT64_C(10000000000) /* if the options name none */
#define NAP_NS 50000

/* What came of pinning. */
struct outcome {
	const char *call;
	CUresult result;
	bool elsewhere; /* the device has it at another address */
};

/* A block that a thread of its own pins.  `state` says whose it is. */
enum { PINNING, PINNED, ABANDONED };

struct pinning {
	struct cuda_gpu *gpu;
	struct cuda_block *block;
	struct outcome outcome;
	_Atomic int state;
};

/* ---- one block ------------------------------------------------------------ */

static long
heap_blocks(const struct cuda_block *block)
{
	return block->last_wait ? 2 : 1;
}

static void
free_block(struct cuda_block *block)
{
	if (block)
		batoni_free(block->last_wait);
	batoni_free(block);
}

static struct cuda_block *
new_block(size_t bytes, bool words)
{
	struct cuda_block *block = batoni_alloc(1, sizeof(*block));

	if (!block)
		return NULL;
	block->bytes = bytes;
	batoni_list_init(&block->link);
	if (words)
		block->last_wait = batoni_alloc(CUDA_STREAMS_MAX,
		                                sizeof(block->last_wait[0]));
	if (!words || block->last_wait)
		return block;
	batoni_free(block);
	return NULL;
}

static bool
is_pinned(const struct outcome *outcome)
{
	return outcome->result == BATONI_CU_SUCCESS && !outcome->elsewhere;
}

/* Pin the block's memory. */
static struct outcome
pin(struct cuda_gpu *gpu, struct cuda_block *block)
{
	struct outcome outcome = {.call = "cuCtxPushCurrent"};
	CUdeviceptr on_device = 0;
	struct cuda_guard guard;

	outcome.result = batoni_cuda_enter(gpu, &guard);
	if (outcome.result != BATONI_CU_SUCCESS)
		return outcome;
	outcome.call = "cuMemHostAlloc";
	outcome.result = gpu->api->host_alloc(
		(void **)&block->base, block->bytes,
		BATONI_CU_HOST_ALLOC_PORTABLE | BATONI_CU_HOST_ALLOC_MAPPED);
	if (outcome.result == BATONI_CU_SUCCESS) {
		outcome.call = "cuMemHostGetDevicePointer";
		outcome.result = gpu->api->host_device_pointer(
			&on_device, block->base, 0);
		outcome.elsewhere =
			on_device != (CUdeviceptr)(uintptr_t)block->base;
		if (!is_pinned(&outcome))
			gpu->api->host_free(block->base);
	}
	batoni_cuda_leave(gpu, &guard);
	return outcome;
}

static enum baton_status
refuse(const struct cuda_gpu *gpu, const struct outcome *outcome)
{
	if (outcome->result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, outcome->call, outcome->result);
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "CUDA device %d has pinned memory at another "
	                     "address than the host",
	                     gpu->number);
}

static void
append(struct cuda_gpu *gpu, struct batoni_list_node *list,
       struct cuda_block *block)
{
	pthread_mutex_lock(&gpu->lock);
	batoni_list_append(list, &block->link);
	pthread_mutex_unlock(&gpu->lock);
}

/* ---- beside streams that wait --------------------------------------------- */

static void *
pinning_main(void *argument)
{
	struct pinning *pinning = argument;
	int state = PINNING;

	pinning->outcome = pin(pinning->gpu, pinning->block);
	if (atomic_compare_exchange_strong(&pinning->state, &state, PINNED))
		return NULL;
	/* ABANDONED: all of it is this thread's, and counted as kept. */
	if (is_pinned(&pinning->outcome)) {
		append(pinning->gpu, &pinning->gpu->spare, pinning->block);
	} else {
		batoni_mem_keep(-heap_blocks(pinning->block));
		free_block(pinning->block);
	}
	batoni_mem_keep(-1);
	batoni_free(pinning);
	return NULL;
}

/* Wait for the thread.  False: it still pins, and the block is no longer the caller's. */
static bool
await_pinning(struct pinning *pinning, int64_t patience_ns)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	uint64_t until = batoni_real_ns() + (uint64_t)patience_ns;
	int state = PINNING;

	while (atomic_load(&pinning->state) == PINNING &&
	       batoni_real_ns() < until)
		nanosleep(&nap, NULL);
	return !atomic_compare_exchange_strong(&pinning->state, &state,
	                                       ABANDONED);
}

static enum baton_status
refuse_late(const struct cuda_gpu *gpu, int64_t patience_ns)
{
	return batoni_refuse(
		BATON_ERR_TIMEOUT,
		"cuMemHostAlloc has not returned after %" PRId64
		" ms: the driver waits for the streams of CUDA device %d, and one "
		"of them waits for an operation; create communicators before "
		"streams wait, or let the operations end first",
		patience_ns / 1000000, gpu->number);
}

/* The block is the caller's after OK, and gone otherwise. */
static enum baton_status
pin_on_a_thread(struct cuda_gpu *gpu, struct cuda_block *block)
{
	struct pinning *pinning = batoni_alloc(1, sizeof(*pinning));
	int64_t patience_ns = atomic_load(&gpu->patience_ns);
	struct outcome outcome;
	pthread_t thread;

	if (patience_ns <= 0)
		patience_ns = PATIENCE_NS;
	if (!pinning) {
		free_block(block);
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	}
	pinning->gpu = gpu;
	pinning->block = block;
	if (batoni_thread_start(&thread, pinning_main, pinning)) {
		batoni_free(pinning);
		free_block(block);
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "no thread to pin memory on");
	}
	batoni_mem_keep(1 + heap_blocks(block));
	if (!await_pinning(pinning, patience_ns)) {
		pthread_detach(thread);
		return refuse_late(gpu, patience_ns);
	}
	pthread_join(thread, NULL);
	outcome = pinning->outcome;
	batoni_mem_keep(-1 - heap_blocks(block));
	batoni_free(pinning);
	if (is_pinned(&outcome))
		return BATON_OK;
	free_block(block);
	return refuse(gpu, &outcome);
}

/* ---- blocks in use and spare ones ----------------------------------------- */

static struct cuda_block *
to_block(struct batoni_list_node *node)
{
	return batoni_container_of(node, struct cuda_block, link);
}

static struct cuda_block *
take_spare(struct cuda_gpu *gpu, size_t bytes, bool words)
{
	struct cuda_block *best = NULL;

	pthread_mutex_lock(&gpu->lock);
	for (struct batoni_list_node *at = gpu->spare.next; at != &gpu->spare;
	     at = at->next) {
		struct cuda_block *block = to_block(at);

		if (block->bytes >= bytes && block->bytes / 2 <= bytes &&
		    (block->last_wait != NULL) == words &&
		    (!best || block->bytes < best->bytes))
			best = block;
	}
	if (best) {
		batoni_list_remove(&best->link);
		batoni_list_append(&gpu->blocks, &best->link);
	}
	pthread_mutex_unlock(&gpu->lock);
	return best;
}

static enum baton_status
make_block(struct cuda_gpu *gpu, size_t bytes, bool words,
           struct cuda_block **block_p)
{
	struct cuda_block *block = new_block(bytes, words);
	struct outcome outcome;

	if (!block)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	if (!batoni_cuda_streams_passed(gpu)) {
		enum baton_status status = pin_on_a_thread(gpu, block);

		if (status != BATON_OK)
			return status;
	} else {
		outcome = pin(gpu, block);
		if (!is_pinned(&outcome)) {
			free_block(block);
			return refuse(gpu, &outcome);
		}
	}
	batoni_mem_keep(heap_blocks(block));
	append(gpu, &gpu->blocks, block);
	*block_p = block;
	return BATON_OK;
}

enum baton_status
batoni_cuda_block_take(struct cuda_gpu *gpu, size_t bytes, bool words,
                       struct cuda_block **block_p)
{
	enum baton_status status = BATON_OK;

	*block_p = take_spare(gpu, bytes, words);
	if (!*block_p)
		status = make_block(gpu, bytes, words, block_p);
	if (status == BATON_OK)
		memset((*block_p)->base, 0, (*block_p)->bytes);
	return status;
}

void
batoni_cuda_block_give(struct cuda_gpu *gpu, struct cuda_block *block)
{
	pthread_mutex_lock(&gpu->lock);
	batoni_list_remove(&block->link);
	batoni_list_append(&gpu->spare, &block->link);
	pthread_mutex_unlock(&gpu->lock);
}

struct cuda_block *
batoni_cuda_block_of(struct cuda_gpu *gpu, const void *pointer)
{
	const unsigned char *at = pointer;
	struct cuda_block *found = NULL;

	pthread_mutex_lock(&gpu->lock);
	for (struct batoni_list_node *node = gpu->blocks.next;
	     node != &gpu->blocks && !found; node = node->next) {
		struct cuda_block *block = to_block(node);

		if (at >= block->base && at < block->base + block->bytes)
			found = block;
	}
	pthread_mutex_unlock(&gpu->lock);
	return found;
}

/* ---- the reserve ---------------------------------------------------------- */

/* Blocks of this kind in a list, and the bytes of all in it. */
static unsigned
count_locked(struct batoni_list_node *list, const struct cuda_block *like,
             size_t *bytes_p)
{
	unsigned n = 0;

	for (struct batoni_list_node *at = list->next; at != list;
	     at = at->next) {
		const struct cuda_block *block = to_block(at);

		n += block->bytes == like->bytes &&
		     (block->last_wait != NULL) == (like->last_wait != NULL);
		*bytes_p += block->bytes;
	}
	return n;
}

static bool
is_enough(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	size_t used_bytes = 0, spare_bytes = 0;
	bool enough;

	pthread_mutex_lock(&gpu->lock);
	enough = count_locked(&gpu->spare, like, &spare_bytes) >=
	         count_locked(&gpu->blocks, like, &used_bytes);
	pthread_mutex_unlock(&gpu->lock);
	return enough || spare_bytes + like->bytes > RESERVE_BYTES;
}

/* It does without: the creation has what it needs. */
static bool
pin_spare(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	struct cuda_block *block = new_block(like->bytes, like->last_wait != NULL);
	struct outcome outcome;

	if (!block)
		return false;
	outcome = pin(gpu, block);
	if (!is_pinned(&outcome)) {
		free_block(block);
		return false;
	}
	batoni_mem_keep(heap_blocks(block));
	append(gpu, &gpu->spare, block);
	return true;
}

void
batoni_cuda_block_reserve(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	while (!is_enough(gpu, like) && batoni_cuda_streams_passed(gpu) &&
	       pin_spare(gpu, like))
		;
}
