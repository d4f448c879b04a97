/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How many entries of Baton a CUDA stream takes (cuda_item.c puts them there).
 *
 * The driver's queue of a stream is finite, and a call that finds it full blocks, perhaps
 * while it holds a lock of the context that the engine's copies need.  So a stream has at most
 * ENTRIES_MAX entries of Baton, and beside them FOLLOWS_MAX waits for events of joins, both scaled
 * as the queue is (CUDA_SCALE_LAUNCH_QUEUES).  Joins beyond that are items.
 *
 * What another library puts there by itself (NCCL) counts too: the marks that the engine puts
 * around it say for how many entries it stands.  No notification tells that the stream has passed a
 * mark, so the mark counts until a poll finds it passed.  Before that only a stream that the driver
 * says is empty has room.  A call that finds such a stream full waits a moment for polls and
 * progress before it returns AGAIN.
 *
 * All of it runs under the lock of the stream, but for batoni_cuda_count, _uncount and _holds.
 */
#include "cuda_stream.h"

#include <sched.h>

#include "clock.h"
#include "log.h"

/* batoni_cuda_scaled scales these.  CUDA's queue has about 1,000 entries by default. */
#define ENTRIES_MAX 800u
#define CALL_ENTRIES 6u  /* the engine counts so many for a call of NCCL with its marks */
#define FOLLOWS_MAX 100u
/* A put has the marks before and behind it, the copy, two writes.  Puts leave room for items. */
#define PUT_ENTRIES 5u
#define PUTS_ENTRIES_MAX 600u
#define STILL_MARKED_NS 50000000u
#define STILL_NS 1000000000u /* a stream that makes no progress for so long is held up */

/* How many waits the stream has not passed; below, how many entries. */
static uint64_t
waits_left(const struct cuda_stream *stream)
{
	return stream->waits -
	       atomic_load(&stream->gpu->passed[stream->index]);
}

static uint64_t
entries_left(const struct cuda_stream *stream)
{
	return stream->triggers - atomic_load(&stream->fired) +
	       PUT_ENTRIES *
	               (stream->puts -
	                atomic_load(&stream->gpu->stored[stream->index])) +
	       atomic_load(&stream->marked) + waits_left(stream);
}

/* How many entries were ever put on the stream. */
static uint64_t
entries_put(const struct cuda_stream *stream)
{
	return stream->triggers + PUT_ENTRIES * stream->puts + stream->waits;
}

/* If the stream has passed the entries of `point`, it has passed the joins' events before them too. */
static void
see_point(struct cuda_stream *stream)
{
	if (stream->point == 0 ||
	    entries_put(stream) - entries_left(stream) < stream->point)
		return;
	stream->follows_passed = stream->point_follows;
	stream->point = 0;
}

void
batoni_cuda_set_point(struct cuda_stream *stream)
{
	see_point(stream);
	if (stream->point != 0 || stream->follows == stream->follows_passed)
		return;
	stream->point = entries_put(stream);
	stream->point_follows = stream->follows;
}

static uint32_t
least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

uint32_t
batoni_cuda_entries(void)
{
	return batoni_cuda_scaled(ENTRIES_MAX);
}

/* The entries of so many operations, where `left` others are on the stream: puts go on the stream as
 * long as it has room for them, and become items after that. */
static uint64_t
entries_of(const struct batoni_need *need, uint64_t left)
{
	uint32_t most = batoni_cuda_scaled(PUTS_ENTRIES_MAX);
	uint32_t room = left < most ? (uint32_t)(most - left) : 0;
	uint32_t puts = least(need->puts, room / PUT_ENTRIES);

	return need->entries + (uint64_t)puts * PUT_ENTRIES +
	       (uint64_t)(need->puts - puts) * BATONI_ITEM_ENTRIES;
}

bool
batoni_cuda_takes_put(const struct cuda_stream *stream)
{
	return entries_left(stream) + PUT_ENTRIES <=
	       batoni_cuda_scaled(PUTS_ENTRIES_MAX);
}

static bool
fits(const struct batoni_need *need, uint64_t left)
{
	return left + entries_of(need, left) <= batoni_cuda_entries();
}

/* An item or a call of a library needs room for one entry: the last may go a little beyond the bound. */
static const struct batoni_need one = {.entries = 1};

static bool
is_one(const struct batoni_need *need)
{
	return need->entries <= 1 && need->puts == 0;
}

/* The stream may have passed a mark that no thread has polled yet, or be about to pass one.  So the
 * caller waits while the stream makes progress (for more than one entry: for STILL_MARKED_NS in all).
 * It does not wait if there was no progress since the stream was last found still. */
static bool
has_room_behind_marks(struct cuda_stream *stream, CUstream handle,
                      const struct batoni_need *need)
{
	uint64_t left = entries_left(stream), before = left;
	uint64_t since = batoni_real_ns();
	bool still = false;

	while (!fits(need, left) && !still &&
	       stream->gpu->api->stream_query(handle) != BATONI_CU_SUCCESS) {
		still = (stream->still && left >= stream->still) ||
		        batoni_real_ns() - since >= STILL_MARKED_NS;
		sched_yield();
		left = entries_left(stream);
		if (left < before && is_one(need))
			since = batoni_real_ns();
		before = left;
	}
	still &= !fits(need, left);
	stream->still = still && !fits(&one, left) ? left : 0;
	return !still;
}

/* If the stream waits for no word of Baton, its host functions end within microseconds, so the caller
 * waits for them; not long for more than one entry, since many may have to end. */
bool
batoni_cuda_has_room(struct cuda_stream *stream, CUstream handle,
                     const struct batoni_need *need)
{
	uint64_t left = entries_left(stream), before = left, since;
	uint64_t most = is_one(need) ? STILL_NS : STILL_MARKED_NS;

	if (fits(need, left))
		return true;
	if (atomic_load(&stream->marked) > 0)
		return has_room_behind_marks(stream, handle, need);
	since = batoni_real_ns();
	while (!fits(need, left) && waits_left(stream) == 0 &&
	       batoni_real_ns() - since < most) {
		sched_yield();
		left = entries_left(stream);
		if (left != before && is_one(need))
			since = batoni_real_ns();
		before = left;
	}
	return fits(need, left);
}

enum baton_status
batoni_cuda_refuse_full(void)
{
	return batoni_refuse(BATON_ERR_AGAIN,
	                     "as many operations are on the stream as a CUDA "
	                     "stream takes (%u entries: an operation that it waits "
	                     "for takes %u, a put or signal of the stream's own %u, "
	                     "a call of NCCL %u); wait for some of them",
	                     batoni_cuda_entries(), BATONI_ITEM_ENTRIES,
	                     PUT_ENTRIES, CALL_ENTRIES);
}

enum baton_status
batoni_cuda_holds(const struct batoni_need *need)
{
	if (fits(need, 0))
		return BATON_OK;
	return batoni_refuse(BATON_ERR_INVALID,
	                     "puts %llu entries on one stream, and a CUDA stream "
	                     "takes %u (an operation that it waits for is %u, a put "
	                     "or signal of the stream's own %u, a call of NCCL %u; a "
	                     "group is one operation on each of its streams)",
	                     (unsigned long long)entries_of(need, 0),
	                     batoni_cuda_entries(),
	                     BATONI_ITEM_ENTRIES, PUT_ENTRIES, CALL_ENTRIES);
}

enum baton_status
batoni_cuda_room(struct cuda_stream *stream, CUstream handle,
                 const struct batoni_need *need)
{
	bool room;

	pthread_mutex_lock(&stream->lock);
	room = batoni_cuda_has_room(stream, handle, need);
	pthread_mutex_unlock(&stream->lock);
	return room ? BATON_OK : batoni_cuda_refuse_full();
}

void
batoni_cuda_count(struct cuda_stream *stream, struct cuda_event *event,
                  uint32_t entries)
{
	event->stream = stream;
	event->entries = entries;
	atomic_fetch_add(&stream->marked, entries);
}

void
batoni_cuda_uncount(struct cuda_event *event)
{
	struct cuda_stream *stream = event->stream;

	event->stream = NULL;
	if (stream)
		atomic_fetch_sub(&stream->marked, event->entries);
}

static bool
may_follow(struct cuda_stream *stream, CUstream handle)
{
	uint32_t most = batoni_cuda_scaled(FOLLOWS_MAX);

	see_point(stream);
	if (stream->follows - stream->follows_passed >= most &&
	    stream->gpu->api->stream_query(handle) == BATONI_CU_SUCCESS)
		stream->follows_passed = stream->follows;
	return stream->follows - stream->follows_passed < most;
}

enum baton_status
batoni_cuda_follow(struct cuda_stream *stream, CUstream handle, CUevent event)
{
	CUresult result = BATONI_CU_SUCCESS;
	bool may;

	pthread_mutex_lock(&stream->lock);
	may = may_follow(stream, handle);
	if (may) {
		result = stream->gpu->api->stream_wait_event(handle, event, 0);
		stream->follows += result == BATONI_CU_SUCCESS;
	}
	pthread_mutex_unlock(&stream->lock);
	if (result != BATONI_CU_SUCCESS)
		return batoni_cuda_refuse(stream->gpu, "cuStreamWaitEvent",
		                          result);
	return may ? BATON_OK : BATON_PENDING;
}
