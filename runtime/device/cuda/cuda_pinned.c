/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Pinned memory of one GPU: blocks, a reserve of them, and pinning beside streams that wait.
 *
 * CUDA's programming guide counts the allocation of pinned memory among what synchronises
 * implicitly: the driver may let the caller wait for every stream of the context.  A stream may
 * be waiting for a message whose sender first has to create the communicator that needs the
 * block, or for something that the program does after the creation.  Waits that the program itself
 * put on its streams are not known here, and a stream may begin to wait while the driver
 * pins.  So:
 *
 *   - a job (thread.h) pins each block, and the creator waits for it until its time is over.  Then
 *     the creation is refused, and the block becomes a spare one when the driver is done with it;
 *   - no block is ever unpinned, since that may wait too: a block that is given back is *spare*,
 *     and used again;
 *   - *reserve*: a creation while no stream has an item of Baton pins more, until there are as many
 *     spare blocks as blocks in use, of each length, up to RESERVE_BYTES.  So the creation of
 *     another communicator of the same sizes makes no call that could wait.  As soon as a stream
 *     has an item of Baton, the creation waits for no block of the reserve any more.
 *
 * A block is in the list `coming` while it is being pinned; then it is in use, or spare.  While it is
 * coming, at most one creator waits for it (`wanted`).  The next creation that needs such a block
 * takes over one for which no creator waits any more, so there are never more threads that pin
 * than creations and kinds of blocks.
 *
 * Locks.  gpu->lock guards the lists, and whether a block is wanted: threads give its job up, and take
 * it up again, under the lock.  No driver call is made under it.
 */
#include "cuda_stream.h"

#include <string.h>

#include "clock.h"
#include "mem.h"
#include "thread.h"

#define RESERVE_BYTES ((size_t)64 << 20)
#define POLL_NS 1000000u /* between two polls of whether a stream has an item of Baton */

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

/* A block counts as kept for good (mem.h). */
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

/* The block has been pinned after its creator had given it up. */
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

/* Start the job of a block that is in `coming`, and wanted.  False: there was no thread for it, and the
 * block is freed. */
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

/* Wait for a block that the caller wants, and append it to the list.  gives_way: only while no stream
 * has an item of Baton.  False: the block has not come, and is not the caller's any more. */
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

/* The smallest block that is long enough, and not too long. */
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

/* A spare block, in no list then, or else one of `coming` that no creator wants; it is the caller's.
 * NULL: there is neither. */
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
	/* A block that has just come is about to be spare. */
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

/* Count the blocks of this kind in a list, and the bytes of all in it, without those that a creator
 * waits for. */
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

/* Is there a block in `coming` for which no creator waits any more?  Then the driver waits for a
 * stream. */
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

/* Begin to pin a block for the reserve.  NULL: there are enough, or that failed, which is no error: the
 * creation has what it needs. */
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

/* False: the reserve gets no other block now. */
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
