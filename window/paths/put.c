/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts, gets and signals: their order, and the paths on which this rank writes and reads itself.
 *
 * A channel has the puts and signals to one (peer, context) in the order of the
 * calls, which is also the order of issue, because the engine's FIFO keeps it.  What can be
 * done at once is done within issue.  The rest waits in the channel's queue, of which only
 * the first one moves: it copies a slice at a time, then signals.  A put that has to go by
 * message is handed over whole, or its signal alone if the data has been written already.
 * It leaves the queue then; messages of one channel keep their order (message.c).  From
 * then on all signals of the channel go by message, because a store would overtake them.
 *
 * A get has its place in its channel as a put has.  It copies the other way, and does not signal; one by
 * message makes the channel's later signals go by message too, since a store would tell the target that
 * it was read.
 *
 * Accounting.  load.in_flight: puts issued and not ended.  load.moving: those of them in a
 * queue that may move.  load.awaiting: those in a lane (message_put.c), and those in a
 * queue that have to let what is on a stream end first (channel->behind).  window->pending:
 * puts into it that are placed and not ended; a lent one stays counted until the transport
 * has let go of it.
 *
 * ---- Why one visible signal means that all earlier data is visible ----
 *
 * Claim: when an acquire load of a counter of the target sees the n-th signal of a
 * channel (peer P, context C), on any index, the data of that put and of all puts
 * issued earlier to (P, C), and their signals on any index, are visible to the thread
 * that loaded.
 *
 * 1. One put.  Its data is written by memcpy, plain stores that are sequenced before
 *    the fetch-add on the counter (batoni_signal_store), which is sequentially
 *    consistent and so a release: neither compiler nor processor moves a store below
 *    it.  The reader's acquire load returns that value or a later one.  A counter is
 *    only ever changed by read-modify-writes, so a later value is in the release
 *    sequence headed by this one, and the load synchronizes with it all the same.
 *
 * 2. Earlier ones.  Signals of a channel are given in its order: issue signals only
 *    when the queue is empty, and only the first of a queue moves.  Everything here
 *    runs with the driver's lock held.  Two signals of one channel are given either by
 *    one thread, in this order, or by two, between which the lock was given up (a
 *    sequentially consistent store) and taken (an acquire).  So all copies and
 *    signals of earlier puts happen before this fetch-add, and happens-before is
 *    transitive through step 1.  The index of a signal does not matter.
 *
 * 3. Several threads and streams that put to one peer.  The order is that of the
 *    calls, whatever streams they are on, and it is fixed before anything is issued.
 *    What a thread or a launched function wrote into a buffer before its stream got
 *    to the put happens before the driver reads it there: the operation comes by the
 *    inbox (released, acquired), or under the lock itself.  The rest follows by
 *    steps 1 and 2.  There is no order between different (P, C).
 *
 * 4. Stores that are not plain.  glibc's memcpy may use non-temporal stores for long
 *    copies.  On x86 no release of C11 orders those, since a fetch-add is only a locked
 *    instruction.  The claim still holds: glibc ends such a copy with an sfence before
 *    it returns.  A slice of 1 MiB is usually below its limit anyway
 *    (3/4 of a thread's share of the cache), so that what a reader wants soon stays in
 *    cache.  Fast string stores (rep movsb) may become visible in any order among
 *    themselves, but before any later store.
 *
 * 5. vmwrite.  The kernel writes into the target's pages on this processor, within
 *    the call; when that returns all bytes are written, by plain stores that come
 *    before the fetch-add in this processor's order.  Where the thread moves to
 *    another processor between the two, the kernel's switch is a full barrier.  The
 *    pages are the same physical memory as the target's, and caches are coherent by
 *    physical address.
 *
 * 6. More than 2 GiB.  Lengths are size_t throughout; a put is copied by slices, and
 *    there is one signal, after the last byte.  Between slices the lock may be given
 *    up, which step 2 covers.
 *
 * 7. Mixed paths.  Data written here, signal by message: the bytes are written before
 *    the message is handed to the transport, whose delivery orders them (the target's
 *    driver takes the message and adds to the counter by a fetch-add, which the waiter
 *    loads).  Signals by message are applied in the channel's order.  A signal by
 *    store never follows one by message.  If it precedes one, it was given first, and
 *    the message was sent after it.
 *
 * 8. Copies by the device.  The signal is given after copy_test has reported the end of
 *    the copy, which is visible then to the host and to what a stream is let do
 *    (memory.h).  From there on it is as in step 1.  A put with a bounce (bounce.c) has
 *    several copies; what comes out of the device is then written by memcpy, as in step 1.
 *
 * 9. Puts on streams (mapped.c) are ordered with those here by the channel's counts of both:
 *    the first of a queue moves when none is on a stream.
 *
 * 10. Native puts (native_path.c): the target's driver adds to the counter when the transport says
 *    that the bytes have come, in the channel's order.
 *
 * 11. A put that ends early has not signaled, and leaves the queue; what it has copied
 *    stays.  The claim speaks of puts that have signaled.
 *
 * Threads.  The driver only; the enqueuing thread has filled pending[slot].put in
 * before it published the operation.
 */
#include "carry.h"

#include <errno.h>
#include <string.h>

#include "clock.h"
#include "native_path.h"
#include "wait.h"

/* How many puts of one channel one test moves. */
#define PUTS_MAX 64
/* How many bytes a channel may copy in one test while other channels have puts too. */
#define SHARE_MAX (BATONI_PUT_SLICE_MAX / 4)

static const struct batoni_window_peer *
part_of_peer(const struct batoni_transfer *transfer,
             const struct batoni_pending *put)
{
	return &put->put.window->peers[transfer->peer];
}

static bool
has_data(const struct batoni_transfer *transfer,
         const struct batoni_pending *put)
{
	return put->put.window && transfer->bytes > 0;
}

/* ---- writing into the peer's part ---- */

static bool
is_get(const struct batoni_pending *put)
{
	return put->put.task == BATONI_TASK_GET;
}

static enum baton_status
copy_process(const struct batoni_rma *rma, struct batoni_transfer *transfer,
             bool get, uint64_t address, char *local, size_t bytes)
{
	const struct batoni_peer *peer = &rma->transport->peers[transfer->peer];
	enum baton_status status = BATON_ERR_PEER;

	/* Another process may have the peer's process number by now. */
	if (!batoni_pidfd_gone(peer->pidfd))
		status = get ? batoni_vm_read(peer->pid, address, local, bytes)
		             : batoni_vm_write(peer->pid, address, local, bytes);
	if (status == BATON_OK)
		return BATON_OK;
	transfer->native_call = get ? "process_vm_readv" : "process_vm_writev";
	transfer->native_code = status == BATON_ERR_PEER          ? ESRCH
	                        : status == BATON_ERR_UNSUPPORTED ? EPERM
	                                                          : EFAULT;
	return status == BATON_ERR_PEER ? BATON_ERR_PEER : BATON_ERR_SYSTEM;
}

/* A call of the device's memory has failed. */
static void
note_fault(const struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_fault fault;

	rma->comm->device_ops->memory->why(rma->comm->device, &fault);
	transfer->native_call = fault.call;
	transfer->native_code = fault.code;
}

/* The device that copies: this rank's where it has the source, since it reaches the target
 * (paths.c), and a program need not have mapped its source for any other; else the one that has
 * the target, or the source. */
static int
owner_of(const struct batoni_rma *rma, const struct batoni_transfer *transfer,
         const struct batoni_pending *put)
{
	int target = batoni_location_owner(part_of_peer(transfer, put)->location);
	int source = batoni_location_owner(transfer->location);

	if (source >= 0 && source == rma->comm->device->number)
		return source;
	return target >= 0 ? target : source;
}

/* Write down what carries the data, a native transport or a device, and whether either side is
 * pageable. */
BATONI_ALWAYS_INLINE void
check_locations(const struct batoni_rma *rma,
                const struct batoni_transfer *transfer, struct batoni_pending *put)
{
	const struct batoni_window_peer *part = part_of_peer(transfer, put);

	put->put.native = !is_get(put) && part->path == BATON_WINDOW_PATH_NATIVE &&
	                  batoni_native_takes(rma, transfer->location);
	put->put.device = part->device || !batoni_location_is_host(transfer->location);
	put->put.pageable = transfer->location == BATONI_MEMORY_HOST ||
	                    part->location == BATONI_MEMORY_HOST;
}

/* Let the device copy all bytes.  OK: it has copied them; AGAIN: it is copying them; CUDA. */
static enum baton_status
copy_whole(const struct batoni_rma *rma, struct batoni_transfer *transfer,
           struct batoni_pending *put)
{
	const struct batoni_memory_ops *memory = rma->comm->device_ops->memory;
	char *there = part_of_peer(transfer, put)->base + put->put.offset;
	struct batoni_device *device = rma->comm->device;
	enum baton_status status;

	if (put->put.copying) {
		status = memory->copy_test(device, &put->put.ticket);
		return status == BATON_PENDING ? BATON_ERR_AGAIN : status;
	}
	status = memory->copy_start(device, is_get(put) ? transfer->buffer : there,
	                            is_get(put) ? there : transfer->buffer,
	                            transfer->bytes, owner_of(rma, transfer, put),
	                            &put->put.ticket);
	put->put.copying = status == BATON_OK;
	return status == BATON_OK ? BATON_ERR_AGAIN : status;
}

/* Let device and host copy the bytes, a chunk at a time. */
static enum baton_status
copy_by_bounce(struct batoni_rma *rma, const struct batoni_transfer *transfer,
               struct batoni_pending *put, size_t *budget_p)
{
	const struct batoni_window_peer *part = part_of_peer(transfer, put);
	char *there = part->base + put->put.offset;

	if (!put->put.copying)
		put->put.bounce = batoni_bounce_take(
			rma, is_get(put) ? transfer->buffer : there,
			is_get(put) ? there : transfer->buffer, transfer->bytes,
			owner_of(rma, transfer, put), part->device == is_get(put));
	if (!put->put.bounce)
		return BATON_ERR_AGAIN;
	put->put.copying = true;
	return batoni_bounce_move(put->put.bounce, put->put.canceled, budget_p);
}

/* OK: all is copied; AGAIN: it is being copied; CANCELED: nothing is any more, and the put was to
 * be taken back; CUDA. */
static enum baton_status
copy_by_device(struct batoni_rma *rma, struct batoni_transfer *transfer,
               struct batoni_pending *put, size_t *budget_p)
{
	enum baton_status status =
		put->put.pageable
			? copy_by_bounce(rma, transfer, put, budget_p)
			: copy_whole(rma, transfer, put);

	if (status == BATON_ERR_AGAIN)
		return status;
	put->put.copying = false;
	put->put.copied = transfer->bytes;
	if (status != BATON_OK)
		note_fault(rma, transfer);
	else if (put->put.canceled)
		status = BATON_ERR_CANCELED;
	return status;
}

/* Copy at most *budget_p more bytes.  OK: all bytes are copied; AGAIN: some are left; PEER,
 * SYSTEM. */
static __attribute__((noinline)) enum baton_status
copy_otherwise(struct batoni_rma *rma, struct batoni_transfer *transfer,
               struct batoni_pending *put, size_t *budget_p)
{
	const struct batoni_window_peer *to = part_of_peer(transfer, put);
	char *local = (char *)transfer->buffer + put->put.copied;
	size_t at = put->put.offset + put->put.copied;
	size_t bytes = transfer->bytes - put->put.copied;
	enum baton_status status;

	if (put->put.native) {
		status = batoni_native_copy(rma, transfer, put);
		if (status == BATON_ERR_CUDA)
			note_fault(rma, transfer);
		return status;
	}
	if (put->put.device && to->path == BATON_WINDOW_PATH_DIRECT)
		return copy_by_device(rma, transfer, put, budget_p);
	if (bytes > *budget_p)
		bytes = *budget_p;
	if (to->path == BATON_WINDOW_PATH_DIRECT) {
		memcpy(is_get(put) ? local : to->base + at,
		       is_get(put) ? to->base + at : local, bytes);
	} else {
		status = copy_process(rma, transfer, is_get(put),
		                      to->address + at, local, bytes);
		if (status != BATON_OK)
			return status;
	}
	*budget_p -= bytes;
	put->put.copied += bytes;
	return put->put.copied == transfer->bytes ? BATON_OK : BATON_ERR_AGAIN;
}

/* Copy a short put between memory of the host at once. */
BATONI_ALWAYS_INLINE enum baton_status
copy_short(struct batoni_rma *rma, struct batoni_transfer *transfer,
           struct batoni_pending *put, size_t *budget_p)
{
	const struct batoni_window_peer *to = part_of_peer(transfer, put);

	if (put->put.task != BATONI_TASK_PUT || put->put.device ||
	    put->put.copied > 0 || to->path != BATON_WINDOW_PATH_DIRECT ||
	    transfer->bytes > *budget_p)
		return copy_otherwise(rma, transfer, put, budget_p);
	memcpy(to->base + put->put.offset, transfer->buffer, transfer->bytes);
	*budget_p -= transfer->bytes;
	put->put.copied = transfer->bytes;
	return BATON_OK;
}

/* ---- one put ---- */

/* Does the put's data go with its message? */
static bool
goes_with_message(const struct batoni_transfer *transfer,
                  const struct batoni_pending *put)
{
	unsigned path;

	if (!has_data(transfer, put))
		return false;
	path = part_of_peer(transfer, put)->path;
	return path == BATON_WINDOW_PATH_MESSAGE ||
	       (path == BATON_WINDOW_PATH_NATIVE && !put->put.native);
}

/* Move on the first put of its channel, copying at most *budget_p bytes.  OK: its data is
 * there, and it has signaled, if it does; PENDING: it was handed over to messages; AGAIN: it is to be moved on later; else
 * the error that it failed with. */
BATONI_ALWAYS_INLINE enum baton_status
move(struct batoni_rma *rma, struct batoni_channel *channel,
     struct batoni_transfer *transfer, struct batoni_pending *put,
     size_t *budget_p)
{
	bool with_data = goes_with_message(transfer, put);
	enum baton_status status;

	/* What goes beside the messages would be there before a get has read. */
	if (unlikely(channel->asked > 0) && !with_data && has_data(transfer, put))
		return BATON_ERR_AGAIN;
	if (unlikely(put->put.task >= BATONI_TASK_ADD)) {
		batoni_atomic_carry_out(part_of_peer(transfer, put)->base,
		                        transfer, put);
		return BATON_OK;
	}
	if (has_data(transfer, put) && !with_data && put->put.copied < transfer->bytes) {
		status = copy_short(rma, transfer, put, budget_p);
		if (status != BATON_OK)
			return status;
	}
	/* Its bytes are there. */
	if (put->put.signal_index == BATONI_NO_SIGNAL && !with_data &&
	    !put->put.native)
		return BATON_OK;
	if (!with_data && !put->put.native && !channel->through_messages &&
	    rma->signal_path[channel->peer] == BATON_WINDOW_PATH_DIRECT) {
		batoni_signal_store(rma, channel->peer, put->put.signal_index,
		                    channel->context, batoni_put_adds(put));
		return BATON_OK;
	}
	status = batoni_message_put(rma, transfer->slot, with_data);
	if (status != BATON_ERR_AGAIN)
		channel->through_messages = true;
	channel->asked += is_get(put) && status == BATON_PENDING;
	return status;
}

static void
count_out(struct batoni_rma *rma, struct batoni_pending *put)
{
	batoni_unended_remove(rma, put);
	if (put->put.window)
		put->put.window->pending--;
}

/* It was handed over to messages, if it is a get that is not in its channel. */
static void
let_go_of_get(struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	const struct batoni_pending *put = &rma->pending[transfer->slot];

	if (is_get(put) && put->put.lane)
		batoni_channel_of(rma, transfer->peer, transfer->tag)->asked--;
}

void
batoni_put_ended(struct batoni_rma *rma, struct batoni_transfer *transfer,
                 enum baton_status status)
{
	let_go_of_get(rma, transfer);
	count_out(rma, &rma->pending[transfer->slot]);
	if (rma->mapped)
		batoni_mapped_host_ended(rma, transfer);
	rma->base.path.load.in_flight--;
	if (status == BATON_OK)
		batoni_transfer_moved(transfer, transfer->bytes);
	rma->comm->upcalls.done(&rma->comm->upcalls, transfer, status);
}

/* ---- the queue of a channel ---- */

static void
enter_queue(struct batoni_rma *rma, struct batoni_channel *channel,
            struct batoni_pending *put, bool behind)
{
	if (batoni_list_empty(&channel->queue))
		batoni_list_append(&rma->channels_active, &channel->active);
	batoni_list_append(&channel->queue, &put->link);
	put->put.in_channel = true;
	channel->behind += behind;
	rma->base.path.load.awaiting += behind;
	rma->base.path.load.moving += !behind;
}

void
batoni_puts_let_move(struct batoni_rma *rma, struct batoni_channel *channel)
{
	rma->base.path.load.awaiting -= channel->behind;
	rma->base.path.load.moving += channel->behind;
	channel->behind = 0;
}

static void
leave_queue(struct batoni_rma *rma, struct batoni_channel *channel,
            struct batoni_pending *put)
{
	bool behind = channel->behind > 0;

	batoni_list_remove(&put->link);
	put->put.in_channel = false;
	channel->behind -= behind;
	rma->base.path.load.awaiting -= behind;
	rma->base.path.load.moving -= !behind;
	if (batoni_list_empty(&channel->queue))
		batoni_list_remove(&channel->active);
}

/* Returns events. */
static size_t
move_queue(struct batoni_rma *rma, struct batoni_channel *channel,
           size_t *budget_p)
{
	size_t events = 0, before = *budget_p;

	/* What is on a stream was called before.  Pairs with mapped.c's decrement. */
	if (atomic_load_explicit(&channel->streamed, memory_order_acquire) > 0)
		return 0;
	while (events < PUTS_MAX && *budget_p > 0 &&
	       !batoni_list_empty(&channel->queue)) {
		struct batoni_pending *put = batoni_container_of(
			channel->queue.next, struct batoni_pending, link);
		struct batoni_transfer *transfer = put->transfer;
		enum baton_status status =
			move(rma, channel, transfer, put, budget_p);

		if (status == BATON_ERR_AGAIN)
			break;
		leave_queue(rma, channel, put);
		if (status != BATON_PENDING)
			batoni_put_ended(rma, transfer, status);
		events++;
	}
	return events + (*budget_p < before);
}

/* Each active channel once, round-robin: a channel that had its turn goes to the back,
 * behind the mark. */
size_t
batoni_puts_test(struct batoni_rma *rma)
{
	size_t left = BATONI_PUT_SLICE_MAX, events = 0;
	struct batoni_list_node mark, *at;
	bool alone;

	if (batoni_list_empty(&rma->channels_active))
		return 0;
	alone = rma->channels_active.next == rma->channels_active.prev;
	batoni_list_append(&rma->channels_active, &mark);
	while (left > 0 && (at = rma->channels_active.next) != &mark) {
		struct batoni_channel *channel = batoni_container_of(
			at, struct batoni_channel, active);
		size_t share = alone || left < SHARE_MAX ? left : SHARE_MAX;
		size_t unused = share;

		events += move_queue(rma, channel, &unused);
		left -= share - unused;
		batoni_list_remove(at);
		if (!batoni_list_empty(&channel->queue))
			batoni_list_append(&rma->channels_active, at);
	}
	batoni_list_remove(&mark);
	return events;
}

/* ---- the slots of the contract ---- */

void
batoni_put_count(struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	struct baton_window *window = rma->pending[transfer->slot].put.window;

	if (window)
		window->pending++;
}

void
batoni_put_place(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct baton_window *window = rma->pending[transfer->slot].put.window;

	batoni_put_count(rma, transfer);
	batoni_unended_add(rma, transfer);
	if (window)
		atomic_fetch_sub(&window->entering, 1);
}

void
batoni_put_unplace(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	count_out(rma, &rma->pending[transfer->slot]);
}

static inline void
begin_put_copy(const struct batoni_rma *rma, struct batoni_transfer *transfer,
               struct batoni_pending *put)
{
	put->transfer = transfer;
	put->put.copied = 0;
	put->put.in_channel = false;
	put->put.device = put->put.pageable = put->put.native = false;
	put->put.copying = put->put.canceled = false;
	put->put.bounce = NULL;
	put->put.lane = NULL;
	if (has_data(transfer, put))
		check_locations(rma, transfer, put);
}

enum baton_status
batoni_put_issue_behind(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *put = &rma->pending[transfer->slot];

	begin_put_copy(rma, transfer, put);
	rma->base.path.load.in_flight++;
	enter_queue(rma, batoni_channel_of(rma, transfer->peer, transfer->tag),
	            put, true);
	return BATON_PENDING;
}

enum baton_status
batoni_put_issue(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_channel *channel =
		batoni_channel_of(rma, transfer->peer, transfer->tag);
	struct batoni_pending *put = &rma->pending[transfer->slot];
	size_t budget = BATONI_PUT_INLINE_MAX;
	enum baton_status status = BATON_ERR_AGAIN;

	begin_put_copy(rma, transfer, put);
	if (batoni_list_empty(&channel->queue) &&
	    (!has_data(transfer, put) || transfer->bytes <= budget ||
	     goes_with_message(transfer, put)))
		status = move(rma, channel, transfer, put, &budget);
	if (status == BATON_ERR_AGAIN) {
		enter_queue(rma, channel, put, false);
		status = BATON_PENDING;
	}
	if (status == BATON_PENDING) {
		rma->base.path.load.in_flight++;
		batoni_unended_add(rma, transfer);
		return BATON_PENDING;
	}
	count_out(rma, put);
	if (status == BATON_OK)
		batoni_transfer_moved(transfer, transfer->bytes);
	return status;
}

/* The put of an active channel that the device copies, or NULL.  Only the first one moves. */
static struct batoni_pending *
copying_in(struct batoni_list_node *active)
{
	struct batoni_channel *channel = batoni_container_of(
		active, struct batoni_channel, active);
	struct batoni_pending *put = batoni_container_of(
		channel->queue.next, struct batoni_pending, link);

	return put->put.copying ? put : NULL;
}

bool
batoni_puts_copy_here(const struct batoni_rma *rma,
                      const struct baton_window *window)
{
	for (struct batoni_list_node *at = rma->channels_active.next;
	     at != &rma->channels_active; at = at->next) {
		const struct batoni_pending *put = copying_in(at);

		if (put && put->put.window == window &&
		    put->transfer->peer == rma->rank)
			return true;
	}
	return false;
}

/* Test all copies that were begun; no more of them is started.  True: some are under way. */
static bool
test_copies(struct batoni_rma *rma)
{
	size_t budget = BATONI_PUT_SLICE_MAX;
	bool copies = batoni_trial_test(rma) == BATON_PENDING;

	for (struct batoni_list_node *at = rma->channels_active.next;
	     at != &rma->channels_active; at = at->next) {
		struct batoni_pending *put = copying_in(at);

		/* A native transport is closed by now. */
		if (!put || put->put.native)
			continue;
		put->put.canceled = true;
		copies |= copy_by_device(rma, put->transfer, put, &budget) ==
		          BATON_ERR_AGAIN;
	}
	return copies;
}

static enum baton_status
end_copies(void *argument)
{
	return test_copies(argument) ? BATON_PENDING : BATON_OK;
}

/* The copies that the device makes must end before the buffers go; a device that is not
 * well may never end them. */
void
batoni_puts_close(struct batoni_rma *rma)
{
	struct batoni_patience *patience = &rma->comm->patience;

	if (batoni_drive_until(end_copies, rma, patience->until_ns) ==
	    BATON_PENDING)
		patience->copies_left = true;
}

enum baton_status
batoni_put_take_back(struct batoni_rma *rma, struct batoni_transfer *transfer)
{
	struct batoni_pending *put = &rma->pending[transfer->slot];

	enum baton_status status = BATON_ERR_CANCELED;

	if (put->put.copying) {
		put->put.canceled = true;
		return BATON_ERR_BUSY;
	}
	if (put->put.in_channel)
		leave_queue(rma, batoni_channel_of(rma, transfer->peer, transfer->tag),
		            put);
	else
		status = is_get(put) ? batoni_get_take_back(rma, put->put.lane)
		                     : BATON_ERR_BUSY;
	if (status == BATON_ERR_BUSY)
		return status;
	let_go_of_get(rma, transfer);
	count_out(rma, put);
	rma->base.path.load.in_flight--;
	if (status == BATON_OK)
		batoni_transfer_moved(transfer, transfer->bytes);
	return status;
}
