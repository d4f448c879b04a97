/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pinned memory of one GPU: blocks, a reserve of them, and pinning beside streams that wait.
 *
 * CUDA's programming guide counts the allocation of pinned memory among what synchronises
 * implicitly: the driver may let the caller wait for every stream of the context.  A stream may
 * be waiting for a message whose sender first has to create the communicator that needs the
 * block, or for something that the program does after the creation.  Streams on which the
 * program alone waits are not known here, and a stream may begin to wait while the driver
 * pins.  So:
 *
 *   - a job (thread.h) pins each block, and the creator waits for it until its time is over.  Then
 *     the creation is refused, and the block becomes a spare one when the driver is done with it;
 *   - nothing is ever unpinned, which would wait too: a block that is given back is *spare*,
 *     and used again;
 *   - *reserve*: a creation beside which no stream has work of ours pins more, until there are
 *     as many spare blocks as there are in use, of each length, up to RESERVE_BYTES.  So
 *     another communicator like those that there are makes no call that could wait.  It does
 *     not wait for such a block beside a stream that has work of ours.
 *
 * A block is pinned in the list `coming`, then in use, or spare.  While it is coming, at most one
 * creator waits for it (`wanted`).  A block of which no creator waits any more is taken by the
 * next creation that needs one like it, so there are never more threads that pin than
 * creations and kinds of blocks.
 *
 * Locks.  gpu->lock guards the lists, and whether a block is wanted: its job is given up, and taken
 * up again, under it.  No driver call is made under the lock.
 */
#include "cuda_stream.h"

#include <string.h>

#include "clock.h"
#include "mem.h"
#include "thread.h"

#define RESERVE_BYTES ((size_t)64 << 20)
#define POLL_NS 1000000u /* between two polls whether a stream has work of ours */

/* ---- pinning ---- */

bool
batoni_cuda_pinned_in_place(const struct cuda_gpu *gpu, void *at,
                            struct cuda_pinning *pinning)
{
	CUdeviceptr on_device = 0;

	pinning->call = "cuMemHostGetDevicePointer";
	pinning->result = gpu->api->host_device_pointer(&on_device, at, 0);
	pinning->elsewhere = on_device != (CUdeviceptr)(uintptr_t)at;
	return batoni_cuda_is_pinned(pinning);
}

enum baton_status
batoni_cuda_refuse_pinning(const struct cuda_gpu *gpu,
                           const struct cuda_pinning *pinning)
{
	if (pinning->result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(gpu, pinning->call, pinning->result);
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "CUDA device %d has pinned memory at another "
	                     "address than the host",
	                     gpu->number);
}

/* ---- one block ------------------------------------------------------------ */

static struct cuda_block *
block_of(struct batoni_job *job)
{
	return batoni_container_of(job, struct cuda_block, job);
}

static long
heap_blocks(const struct cuda_block *block)
{
	return block->last_wait ? 2 : 1;
}

static void
free_block(struct cuda_block *block)
{
	batoni_mem_keep(-heap_blocks(block));
	batoni_free(block->last_wait);
	batoni_free(block);
}

/* It counts as kept for good. */
static struct cuda_block *
new_block(struct cuda_gpu *gpu, size_t bytes, bool words)
{
	struct cuda_block *block = batoni_alloc(1, sizeof(*block));

	if (!block)
		return NULL;
	block->gpu = gpu;
	block->bytes = bytes;
	block->wanted = true;
	batoni_list_init(&block->link);
	if (words)
		block->last_wait = batoni_alloc(CUDA_STREAMS_MAX,
		                                sizeof(block->last_wait[0]));
	if (words && !block->last_wait) {
		batoni_free(block);
		return NULL;
	}
	batoni_mem_keep(heap_blocks(block));
	return block;
}

/* Pin the block's memory. */
static void
pin(struct batoni_job *job)
{
	struct cuda_block *block = block_of(job);
	const struct cuda_gpu *gpu = block->gpu;
	struct cuda_pinning *pinning = &block->pinning;
	struct cuda_guard guard;

	pinning->call = "cuCtxPushCurrent";
	pinning->result = batoni_cuda_enter(gpu, &guard);
	if (pinning->result != BATONI_CU_SUCCESS)
		return;
	pinning->call = "cuMemHostAlloc";
	pinning->result = gpu->api->host_alloc(
		(void **)&block->base, block->bytes,
		BATONI_CU_HOST_ALLOC_PORTABLE | BATONI_CU_HOST_ALLOC_MAPPED);
	if (pinning->result == BATONI_CU_SUCCESS &&
	    !batoni_cuda_pinned_in_place(gpu, block->base, pinning))
		gpu->api->host_free(block->base);
	batoni_cuda_exit(gpu, &guard);
}

/* ---- blocks that come ------------------------------------------------------ */

/* It has come too late for the creator that wanted it. */
static void
cleanup_pinned(struct batoni_job *job)
{
	struct cuda_block *block = block_of(job);
	struct cuda_gpu *gpu = block->gpu;
	const bool pinned = batoni_cuda_is_pinned(&block->pinning);

	pthread_mutex_lock(&gpu->lock);
	batoni_list_remove(&block->link);
	if (pinned)
		batoni_list_append(&gpu->spare, &block->link);
	pthread_mutex_unlock(&gpu->lock);
	if (!pinned)
		free_block(block);
}

/* It is in `coming`, and wanted.  False: it is gone. */
static bool
start_pinning(struct cuda_block *block)
{
	struct cuda_gpu *gpu = block->gpu;

	block->job = (struct batoni_job){.run = pin, .cleanup = cleanup_pinned};
	if (batoni_job_start(&block->job) == 0)
		return true;
	pthread_mutex_lock(&gpu->lock);
	batoni_list_remove(&block->link);
	pthread_mutex_unlock(&gpu->lock);
	free_block(block);
	return false;
}

/* Wait for a block that the caller wants, and append it to the list.  gives_way: no longer than
 * until a stream has work of ours.  False: it has not come, and is not the caller's any more. */
static bool
await(struct cuda_block *block, struct batoni_list_node *list, uint64_t until_ns,
      bool gives_way)
{
	struct cuda_gpu *gpu = block->gpu;
	bool come;

	if (!gives_way)
		batoni_job_await(&block->job, until_ns);
	while (gives_way && batoni_real_ns() < until_ns &&
	       !batoni_job_await(&block->job, batoni_real_ns() + POLL_NS))
		gives_way = batoni_cuda_streams_passed(gpu);
	pthread_mutex_lock(&gpu->lock);
	come = batoni_job_finish(&block->job, 0);
	block->wanted = come && list != &gpu->spare;
	if (come)
		batoni_list_remove(&block->link);
	if (come && batoni_cuda_is_pinned(&block->pinning))
		batoni_list_append(list, &block->link);
	pthread_mutex_unlock(&gpu->lock);
	return come;
}

/* ---- blocks in use and spare ones ----------------------------------------- */

static struct cuda_block *
to_block(struct batoni_list_node *node)
{
	return batoni_container_of(node, struct cuda_block, link);
}

/* The smallest that is long enough, and not too long. */
static struct cuda_block *
find_locked(struct batoni_list_node *list, size_t bytes, bool words)
{
	struct cuda_block *best = NULL;

	for (struct batoni_list_node *at = list->next; at != list;
	     at = at->next) {
		struct cuda_block *block = to_block(at);

		if (!block->wanted && block->bytes >= bytes &&
		    block->bytes / 2 <= bytes &&
		    (block->last_wait != NULL) == words &&
		    (!best || block->bytes < best->bytes))
			best = block;
	}
	return best;
}

/* A spare block, or else one that comes and is wanted by nobody: the caller's, in no list or in
 * `coming`.  NULL: neither. */
static struct cuda_block *
find_spare(struct cuda_gpu *gpu, size_t bytes, bool words)
{
	struct cuda_block *found;

	pthread_mutex_lock(&gpu->lock);
	found = find_locked(&gpu->spare, bytes, words);
	if (found)
		batoni_list_remove(&found->link);
	else
		found = find_locked(&gpu->coming, bytes, words);
	/* One that has come just now is about to be spare. */
	if (found && !batoni_list_empty(&found->link) &&
	    !batoni_job_take_up(&found->job))
		found = NULL;
	if (found) {
		found->wanted = true;
		found->spares = false;
	}
	pthread_mutex_unlock(&gpu->lock);
	return found;
}

static enum baton_status
make_block(struct cuda_gpu *gpu, size_t bytes, bool words, struct cuda_block **block_p)
{
	struct cuda_block *block = new_block(gpu, bytes, words);

	if (!block)
		return batoni_refuse(BATON_ERR_NOMEM, "out of memory");
	pthread_mutex_lock(&gpu->lock);
	batoni_list_append(&gpu->coming, &block->link);
	pthread_mutex_unlock(&gpu->lock);
	if (!start_pinning(block))
		return batoni_refuse(BATON_ERR_SYSTEM,
		                     "no thread to pin memory on");
	*block_p = block;
	return BATON_OK;
}

enum baton_status
batoni_cuda_block_take(struct cuda_gpu *gpu, size_t bytes, bool words,
                       uint64_t until_ns, struct cuda_block **block_p)
{
	struct cuda_block *block = find_spare(gpu, bytes, words);
	uint64_t begun_ns = batoni_real_ns();
	enum baton_status status = BATON_OK;

	until_ns = batoni_cuda_until(begun_ns, until_ns);
	if (!block)
		status = make_block(gpu, bytes, words, &block);
	if (status != BATON_OK)
		return status;
	if (!await(block, &gpu->blocks, until_ns, false))
		return batoni_cuda_refuse_late(
			gpu, begun_ns, "cuMemHostAlloc has not returned",
			"create communicators");
	if (!batoni_cuda_is_pinned(&block->pinning)) {
		status = batoni_cuda_refuse_pinning(gpu, &block->pinning);
		free_block(block);
		return status;
	}
	memset(block->base, 0, block->bytes);
	*block_p = block;
	return BATON_OK;
}

void
batoni_cuda_block_give(struct cuda_gpu *gpu, struct cuda_block *block)
{
	pthread_mutex_lock(&gpu->lock);
	batoni_list_remove(&block->link);
	block->wanted = false;
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

/* Blocks of this kind in a list, and the bytes of all in it; not those that a creator waits
 * for. */
static unsigned
count_locked(struct cuda_gpu *gpu, struct batoni_list_node *list,
             const struct cuda_block *like, size_t *bytes_p)
{
	unsigned n = 0;

	for (struct batoni_list_node *at = list->next; at != list;
	     at = at->next) {
		const struct cuda_block *block = to_block(at);

		if (list == &gpu->coming && block->wanted && !block->spares)
			continue;
		n += block->bytes == like->bytes &&
		     (block->last_wait != NULL) == (like->last_wait != NULL);
		*bytes_p += block->bytes;
	}
	return n;
}

/* Blocks come of which no creator waits any more: the driver waits for a stream. */
static bool
is_held_up_locked(const struct cuda_gpu *gpu)
{
	bool held_up = false;

	for (struct batoni_list_node *at = gpu->coming.next;
	     at != &gpu->coming && !held_up; at = at->next)
		held_up = !to_block(at)->wanted;
	return held_up;
}

static bool
is_enough_locked(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	size_t used_bytes = 0, spare_bytes = 0;
	unsigned spare = count_locked(gpu, &gpu->spare, like, &spare_bytes) +
	                 count_locked(gpu, &gpu->coming, like, &spare_bytes);

	return spare >= count_locked(gpu, &gpu->blocks, like, &used_bytes) ||
	       spare_bytes + like->bytes > RESERVE_BYTES;
}

/* A block of the reserve that comes; NULL: there are enough, or it does without: the creation
 * has what it needs. */
static struct cuda_block *
begin_spare(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	struct cuda_block *block =
		new_block(gpu, like->bytes, like->last_wait != NULL);
	bool enough;

	if (!block)
		return NULL;
	block->spares = true;
	pthread_mutex_lock(&gpu->lock);
	enough = is_held_up_locked(gpu) || is_enough_locked(gpu, like);
	if (!enough)
		batoni_list_append(&gpu->coming, &block->link);
	pthread_mutex_unlock(&gpu->lock);
	if (enough)
		free_block(block);
	return !enough && start_pinning(block) ? block : NULL;
}

/* False: there is no use in another. */
static bool
pin_spare(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	struct cuda_block *block = begin_spare(gpu, like);
	bool pinned;

	if (!block || !await(block, &gpu->spare,
	                     batoni_real_ns() + CUDA_LEAST_NS, true))
		return false;
	pinned = batoni_cuda_is_pinned(&block->pinning);
	if (!pinned)
		free_block(block);
	return pinned;
}

void
batoni_cuda_block_reserve(struct cuda_gpu *gpu, const struct cuda_block *like)
{
	while (batoni_cuda_streams_passed(gpu) && pin_spare(gpu, like))
		;
}
