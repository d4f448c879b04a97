/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Puts and signals on the program's stream, at the call: a copy into the peer's part, which this
 * process reaches, and behind it the store of the signal's count into the peer's counter.  No
 * poll of an engine is between the work in front of the put and that behind it.  A get is a copy the
 * other way, a put without a signal the copy alone.  A flush is nothing at all, where no put of this rank is
 * the engine's: those of its stream are in front of it there.
 *
 * This is a stream-issued path (path.h) beside the layer's own.  It shares the puts and
 * signals with put.c, which is called *the engine's* here, and it never waits.  It is there
 * for peers whose segment the streams of this rank's device reach (batoni_peer.streams),
 * where the device has stream_put; for others, and where BATON_PUTS=engine, all puts are
 * the engine's.  Between the ranks of one process segments are pinned memory (local/open.c);
 * between those of one node each rank has its part of the other's segment pinned
 * (stores.h), or else puts to that one are the engine's.
 *
 * What carries out a put is decided at its call, under comm->order.lock, for its channel (peer,
 * context):
 *
 *   hosted    the engine's puts of the channel that are called and have not ended
 *   streamed  those on a stream whose end the engine has not seen
 *   stream    the number of the stream that those are on (device.h, stream_number)
 *
 *   - a put goes on its stream if hosted is 0, and streamed is 0 or its stream is `stream`;
 *   - also, no signal of the channel has gone by message, and the peer's part and the source are
 *     memory that streams copy without a detour: of a device, or pinned.  Pageable memory the
 *     driver may copy before its call returns, and managed memory it may have to move;
 *   - not in a group and not detached: those are armed together, or let their stream go on, which
 *     takes a word of the engine's.  (On a stream of our own that waits for the program's they
 *     could be without one; but such a stream may stand for as long as a kernel runs, and what
 *     shares its hardware queue would stand with it: copies of other puts and of staging.)
 *   - any other put is the engine's.  put.c moves it, in its channel's order, when streamed is 0,
 *     and its own stream waits for its word.
 *
 * hosted and streamed grow under comm->order.lock only, and are lowered by the driver only.
 * While one of them is above 0, the other does not grow from 0, but for a put of the
 * engine's behind streamed ones, which does nothing before these have ended.
 *
 * ---- Why one visible signal means that all earlier data is visible (docs/design.md, "Puts") ----
 *
 * Claim: as in put.c, for the puts of a channel in the order of the calls, on either path.
 *
 * 1. One writer at a time.  A counter of the peer's segment is written by its source alone: by
 *    stores of put.c, by writes of streams, or by messages that the peer's engine applies.  By the
 *    rules above a write of a stream is never under way together with a put of the engine's; and
 *    put.c sends a message of a channel only when streamed is 0, after which nothing of the channel
 *    goes on a stream.  So the value for a stream to write is known when it is put there: one
 *    more than the larger of what is in the counter and what was last put on a stream for it.
 *    With nothing on streams the counter itself is right, whichever wrote it last; else the latter is.
 * 2. One stream.  The device carries out copy, write, copy, write in this order, and a value that
 *    is read implies the copy before it (stream_put) and all that is before both on the stream.
 *    So does a later value: the writes of a stream are in order, and a counter only grows.
 * 3. Several streams, threads and handles.  Two puts of a channel that are both on streams at a time
 *    are on one stream: streams are told apart by numbers that no other stream has before or
 *    after, so neither a handle that is used again nor the per-thread default streams of two
 *    threads are taken for one.  Where the second comes when streamed is 0, the end of the first was seen:
 *    mark_done has reported OK, its copy and write have been done, and the unplace that lowered
 *    streamed happens before the load (acquire) that found 0, and that before the device's call.
 * 4. On a stream behind the engine's: hosted was 0, so these have ended; their stores (by put.c, or by
 *    the end of a device's copy) happen before the decrement of hosted (release), which this
 *    thread has loaded (acquire) before it calls the device.
 * 5. The engine's behind those on a stream: put.c loads streamed (acquire) and finds 0.  As in 3.
 * 6. The peer's side does not change.  Its waits load counters (wait.c): a thread that has loaded the
 *    value goes on, a stream is let go by its engine after that.  stream_put says that both see
 *    the copy, also in memory of another device, as the write is behind a fence for the whole
 *    system.
 *
 * Ends.  The marks in front of the put and behind it tell when it is armed and when it has
 * ended.  Nothing takes it back.  So a cancel is refused, and a deadline, an abort, or the
 * end of the peer's process ends it with its buffer lent until the second mark is done
 * (path.h, lends).  Its window is counted as pending until then, and keeps its mappings of
 * other processes' parts: a deregister is BUSY, or, after an abort, leaves them to the end
 * of the communicator (paths.c).  close waits for what is left, until the grace of the
 * destroy is over; then segments, mappings, words and the communicator's slots stay for
 * good (copies_left).  The memory of a peer that has died stays for as long as it is mapped
 * here.  If the driver has taken the copy, and refuses the write again and again, the
 * device is sick, and the communicator breaks.
 *
 * Wake-ups.  A write of a stream rings no bell.  When the source's engine sees the end it
 * rings, as batoni_signal_store does.  The peer's engine polls by itself meanwhile, at
 * growing intervals (load.h, unrung): its waits are parked, but not until the bell
 * rings.  It listens for the ring in these sleeps.  So the wait goes on when the source's
 * engine has polled, 0.8 ms later at most, and its wake-up; only where no thread makes
 * progress for the source (BATON_PROGRESS_CALLS) it is the peer's own poll, 6.4 ms later at
 * most.
 *
 * Behind a stream.  A put of the engine's that has to let one on a stream end first counts as
 * awaiting: the marks of that one say when to poll, and the end of the last one lets the queue move.
 *
 * Full streams.  stream_put does not block: it answers PENDING where much is on the stream,
 * or where the driver refuses the copy, and then the put is the engine's.
 *
 * Threads.  takes and enqueue: the enqueuing thread, under comm->order.lock.  The rest: the driver.
 */
#include "carry.h"

#include "clock.h"
#include "comm.h"
#include "mem.h"
#include "sweep.h"

struct batoni_mapped {
	struct batoni_path base; /* must be first */
	struct batoni_rma *rma;
	uint64_t number; /* of the stream that takes has found; under comm->order.lock */
	_Atomic uint32_t hosted; /* of all channels together */
};

static struct batoni_mapped *
to_mapped(struct batoni_path *path)
{
	return batoni_container_of(path, struct batoni_mapped, base);
}

static struct batoni_channel *
channel_of(const struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	return batoni_channel_of(rma, transfer->peer, transfer->tag);
}

static bool
serves(struct batoni_path *path, int kind, int peer)
{
	const struct batoni_rma *rma = to_mapped(path)->rma;

	/* A flush. */
	if (kind == BATON_OPERATION_FLUSH)
		return true;
	return rma->transport->peers[peer].streams &&
	       rma->signal_path[peer] == BATON_WINDOW_PATH_DIRECT;
}

/* ---- the choice ---- */

void
batoni_mapped_host_ended(struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	struct batoni_pending *put = &rma->pending[transfer->slot];

	if (!put->put.hosted)
		return;
	put->put.hosted = false;
	/* Both pair with the loads in takes. */
	if (rma->mapped)
		atomic_fetch_sub_explicit(&rma->mapped->hosted, 1,
		                          memory_order_release);
	atomic_fetch_sub_explicit(&channel_of(rma, transfer)->hosted, 1,
	                          memory_order_release);
}

static void
leave_to_engine(struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	rma->pending[transfer->slot].put.hosted = true;
	atomic_fetch_add_explicit(&rma->mapped->hosted, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&channel_of(rma, transfer)->hosted, 1,
	                          memory_order_relaxed);
}

static bool
streams_copy(unsigned location)
{
	return location == BATONI_MEMORY_REGISTERED || location >= BATONI_MEMORY_DEVICE;
}

/* May a stream carry out this put, whatever else the channel has? */
static bool
is_reached(const struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	const struct batoni_pending *put = &rma->pending[transfer->slot];
	const struct batoni_window_peer *part;

	if (put->put.task >= BATONI_TASK_ADD)
		return false;
	if (!put->put.window || transfer->bytes == 0)
		return true;
	part = &put->put.window->peers[transfer->peer];
	return part->path == BATON_WINDOW_PATH_DIRECT &&
	       streams_copy(part->location) && streams_copy(transfer->location);
}

/* Is nothing of the channel in the way on this stream? */
static bool
is_free_for(const struct batoni_channel *channel, uint64_t number)
{
	/* Pairs with the driver's decrements.  With hosted 0, nothing writes
	 * through_messages. */
	if (atomic_load_explicit(&channel->hosted, memory_order_acquire) != 0 ||
	    channel->through_messages)
		return false;
	return atomic_load_explicit(&channel->streamed, memory_order_acquire) ==
	               0 ||
	       channel->stream == number;
}

/* Is all that it covers in front of it on its stream, if it is there at all?  What has been sent by
 * message, or is LENT, is the layer's to ask for. */
static bool
takes_flush(struct batoni_mapped *mapped, bool alone)
{
	return alone &&
	       atomic_load_explicit(&mapped->hosted, memory_order_acquire) == 0 &&
	       atomic_load_explicit(&mapped->rma->unacked_count,
	                            memory_order_acquire) == 0;
}

static bool
takes(struct batoni_path *path, const struct batoni_transfer *transfer, bool alone)
{
	struct batoni_mapped *mapped = to_mapped(path);
	struct batoni_rma *rma = mapped->rma;
	struct baton_comm *comm = rma->comm;

	if (batoni_is_flush(transfer))
		return takes_flush(mapped, alone);

	/* A device that cannot say which stream it is refuses the engine's item too. */
	if (alone && is_reached(rma, transfer) &&
	    comm->device_ops->puts->stream_number(
		    comm->device, transfer->stream, &mapped->number) ==
	            BATON_OK &&
	    is_free_for(channel_of(rma, transfer), mapped->number))
		return true;
	leave_to_engine(rma, transfer);
	return false;
}

/* ---- on the stream ---- */

/* The other direction of the peer's counters: this rank's to it. */
static uint64_t *
last_written(const struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	const struct batoni_pending *put = &rma->pending[transfer->slot];

	return &batoni_counter_of(rma, batoni_link_of(rma, transfer->peer),
	                          put->put.signal_index, transfer->tag)
	                ->written;
}

static void
fill_signal(const struct batoni_rma *rma, const struct batoni_transfer *transfer,
            const struct batoni_target *target, struct batoni_stream_put *put)
{
	uint64_t count = atomic_load(target->counter);
	uint64_t written = *last_written(rma, transfer);

	put->word = batoni_segment_counter(
		rma, rma->transport->peers[transfer->peer].streams, rma->rank,
		target->signal_index, target->context);
	put->value = (count > written ? count : written) + target->units;
}

static void
turn_round(struct batoni_stream_put *put, void *buffer)
{
	put->from = put->to;
	put->to = buffer;
}

static enum baton_status
enqueue_put(struct batoni_path *path, const struct batoni_transfer *transfer)
{
	struct batoni_mapped *mapped = to_mapped(path);
	struct batoni_rma *rma = mapped->rma;
	struct batoni_channel *channel = channel_of(rma, transfer);
	struct baton_comm *comm = rma->comm;
	struct batoni_target target;
	struct batoni_stream_put put;
	enum baton_status status;

	batoni_elsewhere_targets(&rma->base, transfer, &target, 1);
	put = (struct batoni_stream_put){
		.to = target.data,
		.from = transfer->buffer,
		.bytes = target.data ? transfer->bytes : 0,
	};
	if (rma->pending[transfer->slot].put.task == BATONI_TASK_GET)
		turn_round(&put, transfer->buffer);
	if (target.counter)
		fill_signal(rma, transfer, &target, &put);
	status = comm->device_ops->puts->stream_put(comm->device,
	                                            transfer->stream, &put);
	if (status == BATON_PENDING)
		leave_to_engine(rma, transfer);
	if (status != BATON_OK)
		return status;
	if (put.word)
		*last_written(rma, transfer) = put.value;
	channel->stream = mapped->number;
	atomic_fetch_add_explicit(&channel->streamed, 1, memory_order_relaxed);
	return BATON_OK;
}

static enum baton_status
enqueue(struct batoni_path *path, struct batoni_transfer *const *transfers,
        size_t n, const struct batoni_follow *follow, baton_stream *observe_p)
{
	struct batoni_transfer *transfer = transfers[0];

	assert(n == 1 && !follow);
	(void)n;
	(void)follow;
	observe_p[0] = transfer->stream;
	return batoni_is_flush(transfer) ? BATON_OK
	                                 : enqueue_put(path, transfer);
}

/* ---- the driver ---- */

static bool
is_into_own(const struct batoni_rma *rma, const struct batoni_transfer *transfer)
{
	return transfer->peer == rma->rank &&
	       rma->pending[transfer->slot].put.window;
}

static void
place(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = to_mapped(path)->rma;

	path->load.in_flight++;
	if (batoni_is_flush(transfer))
		return;
	if (is_into_own(rma, transfer))
		rma->pending[transfer->slot].put.window->streamed_here++;
	batoni_elsewhere_hold(&rma->base, transfer);
}

static void
unplace(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct batoni_rma *rma = to_mapped(path)->rma;
	const struct batoni_pending *put = &rma->pending[transfer->slot];
	struct batoni_channel *channel;

	path->load.in_flight--;
	if (batoni_is_flush(transfer))
		return;
	channel = channel_of(rma, transfer);
	if (put->put.signal_index != BATONI_NO_SIGNAL)
		batoni_signal_ring(rma, transfer->peer, put->put.signal_index,
		                   transfer->tag);
	if (is_into_own(rma, transfer))
		put->put.window->streamed_here--;
	batoni_elsewhere_drop(&rma->base, transfer);
	/* Pairs with the loads in is_free_for and put.c. */
	if (atomic_fetch_sub_explicit(&channel->streamed, 1,
	                              memory_order_release) == 1)
		batoni_puts_let_move(rma, channel);
}

/* Only after an abort is anything left. */
static void
close_path(struct batoni_path *path, bool aborted)
{
	struct batoni_mapped *mapped = to_mapped(path);
	struct baton_comm *comm = mapped->rma->comm;
	struct batoni_patience *patience = &comm->patience;

	(void)aborted;
	for (unsigned tries = 0; path->load.in_flight; tries++) {
		batoni_comm_watch(comm);
		if (!path->load.in_flight)
			break;
		if (batoni_real_ns() >= patience->until_ns) {
			patience->copies_left = true;
			break;
		}
		patience->yield(tries);
	}
	mapped->rma->mapped = NULL;
	batoni_free(mapped);
}

/* It carries no messages. */
static enum baton_status
connect_none(struct batoni_path *path, int peer)
{
	(void)path;
	(void)peer;
	return BATON_OK;
}

/* What is on streams ends by itself. */
static size_t
test(struct batoni_path *path)
{
	(void)path;
	return 0;
}

static const struct batoni_path_ops path_ops = {
	.name = "the mapped path",
	.kinds = 1u << BATON_OPERATION_SIGNAL | 1u << BATON_OPERATION_PUT_SIGNAL |
	         1u << BATON_OPERATION_GET | 1u << BATON_OPERATION_FLUSH |
	         1u << BATON_OPERATION_ATOMIC,
	.stream_issued = &(const struct batoni_stream_issued_ops){
		.fails_in = BATON_ERR_CUDA,
		.lends = true,
		.enqueue = enqueue,
	},
	.serving = &(const struct batoni_serving_ops){
		.serves = serves,
		.connect = connect_none,
	},
	.taking = &(const struct batoni_taking_ops){.takes = takes},
	.placing = &(const struct batoni_placing_ops){
		.place = place,
		.unplace = unplace,
	},
	.closing = &(const struct batoni_closing_ops){.close = close_path},
	.test = test,
};

bool
batoni_mapped_copies_here(const struct baton_window *window)
{
	return window->streamed_here > 0;
}

void
batoni_mapped_start(struct batoni_rma *rma)
{
	const struct batoni_device_ops *ops = rma->comm->device_ops;
	const struct batoni_peer *peers = rma->transport->peers;
	struct batoni_mapped *mapped;
	bool reached = false;

	/* Ranks of other devices may have it, where this one has not. */
	for (int peer = 0; peer < rma->size; peer++) {
		reached |= peers[peer].streams != NULL;
		rma->base.path.load.unrung |= peers[peer].streams_here;
	}
	if (!reached || !ops->puts ||
	    ops->puts->why_no_puts(rma->comm->device) ||
	    !(rma->base.signal_paths & BATON_WINDOW_PATH_DIRECT))
		return;
	mapped = batoni_alloc(1, sizeof(*mapped));
	if (!mapped)
		return;
	mapped->base.ops = &path_ops;
	/* Marks say when to poll. */
	mapped->base.load.quiet = true;
	mapped->rma = rma;
	rma->mapped = mapped;
	batoni_comm_add_path(rma->comm, &mapped->base);
}
