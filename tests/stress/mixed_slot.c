/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An operation of the mixed load, from its call to its end.
 *
 * The tag of an operation is its user_data: thread, slot and use.  So a completion that comes twice, or for
 * what was refused, is of no slot that waits for it.
 *
 * A buffer is filled with UNTOUCHED when its operation is over, and looked at again when the slot is
 * used the next time, which is some operations later, or when the communicator is gone.  What nothing
 * tells of (no request and no queue; lent, and polled from a queue) keeps it until then.
 */
#include "mixed.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* An arena has 256 bytes more for each tensor. */
static _Thread_local unsigned char scratch[BYTES_MAX + LIST_MAX * 256 + GUARD];

/* ---- buffers ------------------------------------------------------------ */

static void
set_untouched(struct slot *slot)
{
	memset(scratch, UNTOUCHED, slot->bytes + GUARD);
	memory_write(slot->location, slot->memory, scratch, slot->bytes + GUARD);
}

static void
check_untouched(const struct hand *hand, const struct slot *slot, size_t from,
                const char *when)
{
	size_t bytes = slot->bytes + GUARD;

	memory_read(slot->location, scratch, slot->memory, bytes);
	for (size_t i = from; i < bytes; i++)
		if (scratch[i] != UNTOUCHED)
			mixed_fail(hand->rank,
			           "thread %d: byte %zu of %zu of a buffer (operation "
			           "%d) was written %s",
			           hand->number, i, slot->bytes, slot->kind, when);
}

/* A message says how it goes on.  (Those of plans do not.) */
static void
make_message(struct hand *hand, struct slot *slot)
{
	uint32_t pattern = draw(&hand->draws);
	const uint32_t head[2] = {pattern, ~pattern};

	fill(scratch, slot->bytes, head[0]);
	if (slot->bytes >= sizeof(head))
		memcpy(scratch, head, sizeof(head));
	memory_write(slot->location, slot->memory, scratch, slot->bytes);
}

/* Of what is in scratch. */
static void
check_pattern(const struct hand *hand, const struct slot *slot, size_t bytes)
{
	uint32_t head[2];

	if (bytes < sizeof(head))
		return;
	memcpy(head, scratch, sizeof(head));
	if (head[1] != ~head[0])
		return;
	for (size_t i = sizeof(head); i < bytes; i++)
		if (scratch[i] != (unsigned char)(head[0] + i * 7 + (i >> 8)))
			mixed_fail(hand->rank,
			           "byte %zu of a message of %zu is %u: location %d",
			           i, bytes, scratch[i], slot->location);
}

static void
check_message(const struct hand *hand, const struct slot *slot, size_t bytes)
{
	if (bytes > slot->bytes)
		mixed_fail(hand->rank, "a receive of %zu bytes got %zu",
		           slot->bytes, bytes);
	memory_read(slot->location, scratch, slot->memory, bytes);
	check_pattern(hand, slot, bytes);
}

/* All tensors are open: what they have is the message. */
static size_t
read_list(const struct slot *slot)
{
	size_t at = 0;

	for (uint32_t i = 0; i < slot->info.tensors; i++) {
		const struct baton_tensor *tensor = &slot->tensors[i];
		size_t bytes = (size_t)tensor->shape[0];

		memory_read(slot->location, scratch + at, tensor->data, bytes);
		at += bytes;
	}
	return at;
}

/* Is it the message that the probe has told of? */
static void
check_found(const struct hand *hand, const struct slot *slot,
            const struct baton_completion *end)
{
	size_t bytes = end->bytes;

	if (end->peer != slot->info.peer || end->tag != slot->info.tag)
		mixed_fail(hand->rank,
		           "a message of rank %d, tag %d, was found; its receive "
		           "ended in %s, as of rank %d, tag %d",
		           slot->info.peer, slot->info.tag,
		           baton_status_name(end->status), end->peer, end->tag);
	if (end->status != BATON_OK)
		return;
	if (!slot->plain)
		bytes = read_list(slot);
	if (bytes != slot->info.bytes || bytes != end->bytes)
		mixed_fail(hand->rank, "%zu bytes were found, and %zu received",
		           slot->info.bytes, bytes);
	if (!slot->plain)
		check_pattern(hand, slot, bytes);
}

/* ---- taking ------------------------------------------------------------- */

/* NULL only if there is none of any kind. */
static void
take_memory(struct hand *hand, struct slot *slot, size_t bytes)
{
	const struct rank *rank = hand->rank;
	enum location location = (enum location)(draw(&hand->draws) % LOCATIONS);

	slot->bytes = bytes;
	slot->memory = NULL;
	while (!slot->memory) {
		if (memory_is_there(location) && (location != PAGEABLE || !rank->nccl))
			slot->memory = memory_take(location, rank->rank,
			                           bytes + GUARD);
		slot->location = location;
		location = (enum location)((location + 1) % LOCATIONS);
	}
}

static void
give_memory(struct hand *hand, struct slot *slot)
{
	if (slot->memory)
		memory_give(slot->location, hand->rank->rank, slot->memory);
	slot->memory = NULL;
}

struct slot *
slot_take(struct hand *hand, enum baton_operation kind, size_t bytes)
{
	unsigned at = draw(&hand->draws) % SLOTS, tries = 0;
	struct slot *slot = &hand->slots[at];

	while (slot->state != FREE && slot->state != WATCHED) {
		if (++tries == SLOTS)
			return NULL;
		at = (at + 1) % SLOTS;
		slot = &hand->slots[at];
	}
	if (slot->state == WATCHED && slot->memory)
		check_untouched(hand, slot, 0, "after its operation's end");
	give_memory(hand, slot);
	*slot = (struct slot){
		.state = CALLED,
		.kind = kind,
		.queue = -1,
		.receives = kind == BATON_OPERATION_RECV,
		.plain = true,
		.go = true,
		.tag = (uint64_t)hand->number << 48 | (uint64_t)at << 32 |
		       ++hand->uses[at],
	};
	if (bytes == 0)
		return slot;
	take_memory(hand, slot, bytes);
	set_untouched(slot);
	if (kind == BATON_OPERATION_SEND || kind == BATON_OPERATION_PUT_SIGNAL)
		make_message(hand, slot);
	return slot;
}

/* Can it be taken back?  Else only a deadline ends it for sure. */
static bool
is_cancelled_alone(const struct rank *rank, const struct slot *slot)
{
	return slot->kind != BATON_OPERATION_PLAN &&
	       (rank->info.capabilities & BATON_CAP_CANCEL);
}

static int64_t
draw_deadline(struct hand *hand)
{
	return one_in(hand, 4) ? 1 + draw(&hand->draws) % 20000000
	                       : 1 + draw(&hand->draws) % 300000;
}

struct baton_op_options
slot_options(struct hand *hand, struct slot *slot, bool detached,
             baton_request **request_p)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct rank *rank = hand->rank;
	unsigned way = draw(&hand->draws) % 10;
	bool by_queue = way >= 4 && way < 9, by_request = way < 4 || way >= 7;

	/* A send that nothing tells of may be lent, and a destroy then waits in vain. */
	if (way == 9)
		by_request = slot->kind == BATON_OPERATION_SEND ||
		             slot->kind == BATON_OPERATION_PLAN;
	*request_p = by_request ? &slot->request : NULL;
	options.user_data = slot->tag;
	pthread_rwlock_rdlock(&rank->queues_lock);
	if (by_queue) {
		slot->queue = (int)(draw(&hand->draws) % QUEUES);
		slot->queue_life = rank->queue_lives[slot->queue];
		options.queue = rank->queues[slot->queue];
	}
	if (slot->kind == BATON_OPERATION_RECORD)
		return options;
	slot->timed = !by_request || !is_cancelled_alone(rank, slot) ||
	              one_in(hand, 2);
	/* There a deadline breaks the communicator. */
	if (rank->fixed && rank->sound && slot->kind <= BATON_OPERATION_RECV)
		slot->timed = false;
	options.flags = detached ? BATON_OP_DETACHED : 0;
	options.timeout_ns = slot->timed ? draw_deadline(hand) : -1;
	return options;
}

/* ---- after the call ----------------------------------------------------- */

static bool
may_be_refused_in(const struct rank *rank, enum baton_operation kind,
                  enum baton_status status)
{
	if (status == BATON_ERR_AGAIN || rank->faults)
		return true;
	/* Only where a processor reaches the word. */
	if (status == BATON_ERR_UNSUPPORTED && kind == BATON_OPERATION_ATOMIC)
		return true;
	return !rank->sound && status == baton_comm_status(rank->comm);
}

static void
refuse(struct hand *hand, struct slot *slot, enum baton_status status)
{
	if (!may_be_refused_in(hand->rank, slot->kind, status))
		mixed_fail(hand->rank, "operation %d was refused: %s", slot->kind,
		           baton_status_name(status));
	if (slot->request && baton_test(slot->request, NULL) != BATON_ERR_STALE)
		mixed_fail(hand->rank, "a refused operation's handle lives");
	if (slot->state != CALLED)
		mixed_fail(hand->rank, "a refused operation %d has completed",
		           slot->kind);
	slot->state = FREE;
}

void
slot_begun(struct hand *hand, struct slot *slot, enum baton_status status)
{
	struct rank *rank = hand->rank;

	pthread_mutex_lock(&rank->lock);
	if (slot->found)
		found_received(rank, slot->found, status == BATON_OK);
	slot->found = NULL;
	if (status != BATON_OK) {
		refuse(hand, slot, status);
	} else {
		atomic_fetch_add(&rank->job->operations, 1);
		if (slot->state == CALLED)
			slot->state = slot->queue < 0 && !slot->request ? UNSEEN
			                                                : PENDING;
	}
	pthread_mutex_unlock(&rank->lock);
}

void
slot_called(struct hand *hand, struct slot *slot, enum baton_status status,
            bool in_group)
{
	pthread_rwlock_unlock(&hand->rank->queues_lock);
	if (status != BATON_OK || !in_group)
		slot_begun(hand, slot, status);
}

/* ---- ends --------------------------------------------------------------- */

static bool
may_end_in(const struct rank *rank, const struct slot *slot,
           enum baton_status status)
{
	if (slot->was_found && status == slot->wanted)
		return true;
	if (status == BATON_OK)
		return !slot->was_found;
	if (status == BATON_ERR_MISMATCH && rank->nccl &&
	    slot->kind == BATON_OPERATION_SEND)
		return true;
	if (status == BATON_ERR_TRUNCATED || status == BATON_ERR_MISMATCH)
		return (slot->receives && !slot->was_found) || slot->any_end;
	if (status == BATON_ERR_TIMEOUT && (slot->timed || slot->any_end))
		return true;
	if (status == BATON_ERR_CANCELED)
		return slot->cancelled;
	if (status == BATON_ERR_INVALID && slot->refused_go)
		return true;
	/* Over near a sender that aborts gives up what it had announced and nobody has copied. */
	if (status == BATON_ERR_PEER && slot->receives && !rank->sound &&
	    rank->info.transport != BATON_TRANSPORT_LOCAL)
		return true;
	return rank->faults ||
	       (!rank->sound && status == baton_comm_status(rank->comm));
}

/* Its end, as a request or a queue tells it for the first time. */
static void
judge(const struct hand *hand, struct slot *slot,
      const struct baton_completion *end)
{
	const struct rank *rank = hand->rank;
	bool lent = end->flags & BATON_COMPLETION_LENT;

	atomic_fetch_add(&rank->job->completions, 1);
	atomic_fetch_add(&rank->job->lent, lent);
	if (end->user_data != slot->tag || end->op != (int)slot->kind)
		mixed_fail(rank, "operation %d was completed as %d, %llx as %llx",
		           slot->kind, end->op, (unsigned long long)slot->tag,
		           (unsigned long long)end->user_data);
	if (!may_end_in(rank, slot, end->status))
		mixed_fail(rank, "operation %d%s%s%s ended in %s", slot->kind,
		           slot->was_found ? ", of what was found" : "",
		           slot->timed ? ", with a deadline" : "",
		           slot->cancelled ? ", cancelled" : "",
		           baton_status_name(end->status));
	if (lent && end->status == BATON_OK)
		mixed_fail(rank, "operation %d is lent, in OK", slot->kind);
	if (slot->told != (end->status == BATON_OK) && !slot->plain)
		mixed_fail(rank, "a list ended in %s, and output_signal is %d",
		           baton_status_name(end->status), slot->told);
	if (slot->was_found)
		check_found(hand, slot, end);
	if (slot->plain && slot->receives && end->status == BATON_OK && slot->memory)
		check_message(hand, slot, end->bytes);
	slot->status = end->status;
}

/* Nothing uses the buffer any more. */
static void
over(const struct hand *hand, struct slot *slot)
{
	if (slot->memory) {
		check_untouched(hand, slot, slot->bytes, "behind its end");
		set_untouched(slot);
	}
	slot->state = WATCHED;
}

/* The request has told of an end; it says the same for as long as there is one. */
static void
look_at_end(struct hand *hand, struct slot *slot,
            const struct baton_completion *end)
{
	const struct rank *rank = hand->rank;
	enum baton_status status;

	if (!slot->seen)
		judge(hand, slot, end);
	else if (end->status != slot->status)
		mixed_fail(rank, "operation %d ended in %s, and then in %s",
		           slot->kind, baton_status_name(slot->status),
		           baton_status_name(end->status));
	slot->seen = true;
	slot->state = LENT;
	if (end->flags & BATON_COMPLETION_LENT)
		return;
	status = baton_finish(&slot->request, 0, NULL);
	if (status != slot->status || slot->request)
		mixed_fail(rank, "operation %d ended in %s, and finish says %s",
		           slot->kind, baton_status_name(slot->status),
		           baton_status_name(status));
	over(hand, slot);
}

static void
look_at_request(struct hand *hand, struct slot *slot)
{
	struct baton_completion end = {0};
	enum baton_status status = baton_test(slot->request, &end);

	if (status == BATON_PENDING) {
		if (slot->seen)
			mixed_fail(hand->rank, "operation %d has ended, and is "
			           "pending again", slot->kind);
		return;
	}
	if (status == BATON_ERR_STALE && slot->queue >= 0) {
		/* The queue went with its completion. */
		slot->request = BATON_REQUEST_NULL;
		slot->state = UNSEEN;
		return;
	}
	if (status == BATON_ERR_STALE)
		mixed_fail(hand->rank, "the request of operation %d is stale",
		           slot->kind);
	look_at_end(hand, slot, &end);
}

static void
look_at_told(struct hand *hand, struct slot *slot)
{
	judge(hand, slot, &slot->end);
	if (slot->request && baton_test(slot->request, NULL) != BATON_ERR_STALE)
		mixed_fail(hand->rank, "a request that was polled is not stale");
	slot->request = BATON_REQUEST_NULL;
	slot->lost_sight = slot->end.flags & BATON_COMPLETION_LENT;
	if (slot->lost_sight)
		slot->state = UNSEEN;
	else
		over(hand, slot);
}

/* Its queue is there no more. */
static bool
is_orphan(const struct hand *hand, const struct slot *slot)
{
	return slot->queue >= 0 &&
	       slot->queue_life != hand->rank->queue_lives[slot->queue];
}

static void
examine_slot(struct hand *hand, struct slot *slot)
{
	bool orphan = is_orphan(hand, slot);

	if (slot->state == TOLD)
		look_at_told(hand, slot);
	if (slot->state != PENDING && slot->state != LENT)
		return;
	if (orphan && !slot->request)
		slot->state = UNSEEN;
	else if (orphan || slot->queue < 0)
		look_at_request(hand, slot);
}

unsigned
slots_look(struct hand *hand)
{
	struct rank *rank = hand->rank;
	unsigned pending = 0;

	pthread_rwlock_rdlock(&rank->queues_lock);
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &hand->slots[i];

		pthread_mutex_lock(&rank->lock);
		examine_slot(hand, slot);
		pending += slot->state == PENDING || slot->state == TOLD;
		pthread_mutex_unlock(&rank->lock);
	}
	pthread_rwlock_unlock(&rank->queues_lock);
	return pending;
}

void
queues_poll(struct rank *rank)
{
	struct baton_completion done[4];

	pthread_rwlock_rdlock(&rank->queues_lock);
	for (int q = 0; q < QUEUES; q++) {
		size_t n = baton_queue_poll(rank->queues[q], done, 4);

		pthread_mutex_lock(&rank->lock);
		for (size_t i = 0; i < n; i++) {
			uint64_t tag = done[i].user_data;
			struct slot *slot =
				&rank->hands[tag >> 48].slots[tag >> 32 & 0xffff];

			if (slot->tag != tag || slot->queue != q ||
			    (slot->state != CALLED && slot->state != PENDING))
				mixed_fail(rank, "operation %d (%llx) completed "
				                 "in %s, and its slot is %d of %llx",
				           done[i].op, (unsigned long long)tag,
				           baton_status_name(done[i].status),
				           slot->state,
				           (unsigned long long)slot->tag);
			slot->end = done[i];
			slot->state = TOLD;
		}
		pthread_mutex_unlock(&rank->lock);
	}
	pthread_rwlock_unlock(&rank->queues_lock);
}

void
slot_cancel(struct hand *hand, struct slot *slot)
{
	enum baton_status status;

	if (slot->state != PENDING || !slot->request)
		return;
	/* Another thread may tell of its end meanwhile. */
	pthread_mutex_lock(&hand->rank->lock);
	slot->cancelled = true;
	pthread_mutex_unlock(&hand->rank->lock);
	status = baton_cancel(slot->request);
	if (status != BATON_OK && status != BATON_ERR_UNSUPPORTED &&
	    (status != BATON_ERR_STALE || slot->queue < 0))
		mixed_fail(hand->rank, "cancel of operation %d: %s", slot->kind,
		           baton_status_name(status));
}

/* Pending or not: nothing tells of it any more, unless a queue does. */
void
slot_release(struct hand *hand, struct slot *slot)
{
	enum baton_status status;

	if (slot->state != PENDING || !slot->request || slot->seen ||
	    slot->kind == BATON_OPERATION_SEND || !slot->timed)
		return;
	status = baton_release(&slot->request);
	if (status == BATON_ERR_STALE && slot->queue >= 0)
		return;
	if (status != BATON_OK)
		mixed_fail(hand->rank, "release of operation %d: %s", slot->kind,
		           baton_status_name(status));
	if (slot->queue < 0)
		slot->state = UNSEEN;
}

bool
slots_are_lent(const struct hand *hand)
{
	bool lent = false;

	/* What MPI has it may have for good; anything else is given back soon. */
	for (unsigned i = 0; i < SLOTS; i++)
		lent |= hand->slots[i].state == LENT ||
		        (hand->rank->over_mpi && hand->slots[i].lost_sight);
	return lent;
}

void
slots_end(struct hand *hand, bool leaks)
{
	for (unsigned i = 0; i < SLOTS; i++) {
		struct slot *slot = &hand->slots[i];
		bool in_use = slot->state == UNSEEN || slot->state == LENT;

		if (slot->state == CALLED || slot->state == PENDING ||
		    slot->state == TOLD)
			mixed_fail(hand->rank, "operation %d was lost",
			           slot->kind);
		if (slot->request &&
		    baton_test(slot->request, NULL) != BATON_ERR_STALE)
			mixed_fail(hand->rank,
			           "a request outlives its communicator");
		if (in_use && leaks) {
			memory_leave(slot->location, slot->memory);
			slot->memory = NULL;
		} else if (slot->state == WATCHED && slot->memory) {
			check_untouched(hand, slot, 0,
			                "after its operation's end");
		}
		give_memory(hand, slot);
	}
}
