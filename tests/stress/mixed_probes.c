/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages that probes of the mixed load find.  What was found belongs to the rank, and any of its threads receives it, once:
 * whole, in part, not at all, or as what it is not; in a group that may be abandoned; or it is left to the
 * destroy.
 */
#include <time.h>

#include "mixed.h"

#define LIMIT_NS INT64_C(60000000000)

/* ---- finding ---- */

static struct found *
take_found(struct rank *rank, unsigned first, int state)
{
	struct found *found = NULL;

	pthread_mutex_lock(&rank->lock);
	for (unsigned i = 0; i < FOUND && !found; i++)
		if ((int)rank->found[(first + i) % FOUND].state == state)
			found = &rank->found[(first + i) % FOUND];
	if (found)
		found->state = HELD;
	pthread_mutex_unlock(&rank->lock);
	return found;
}

static void
give_found(struct rank *rank, struct found *found, bool there)
{
	pthread_mutex_lock(&rank->lock);
	found->state = there ? KEPT : NOT_FOUND;
	pthread_mutex_unlock(&rank->lock);
}

static void
check_info(const struct rank *rank, const struct found *found, int peer, int tag)
{
	const struct baton_message_info *info = &found->info;

	if (info->peer < 0 || info->peer >= rank->size || info->tag < 0 ||
	    (peer != BATON_ANY_SOURCE && info->peer != peer) ||
	    (tag != BATON_ANY_TAG && info->tag != tag) || !found->message ||
	    info->bytes > BYTES_MAX || info->tensors > (info->list ? LIST_MAX : 0))
		mixed_fail(rank,
		           "a probe of rank %d, tag %d, has found %llx: rank %d, "
		           "tag %d, %zu bytes, %u tensors",
		           peer, tag, (unsigned long long)found->message,
		           info->peer, info->tag, info->bytes, info->tensors);
}

static bool
may_say(const struct rank *rank, enum baton_status status)
{
	if (status == BATON_OK || status == BATON_PENDING ||
	    status == BATON_ERR_AGAIN || rank->faults)
		return true;
	/* Some peers of NCCL's are reached by another path. */
	if (status == BATON_ERR_UNSUPPORTED)
		return rank->nccl;
	return !rank->sound && status == baton_comm_status(rank->comm);
}

/* Of a rank and tag, or of any. */
void
step_probe(struct hand *hand)
{
	struct rank *rank = hand->rank;
	struct found *found = take_found(rank, 0, NOT_FOUND);
	unsigned tags = rank->info.tag_max > 0 ? TAGS : 1;
	int peer = (int)(draw(&hand->draws) % (uint32_t)rank->size);
	int tag = (int)(draw(&hand->draws) % tags);
	enum baton_status status;

	if (!found)
		return;
	if (one_in(hand, 2))
		peer = BATON_ANY_SOURCE;
	if (one_in(hand, 2))
		tag = BATON_ANY_TAG;
	found->message = 0;
	found->info = (struct baton_message_info){.size = sizeof(found->info)};
	status = baton_probe(peer, tag, rank->comm, &found->message, &found->info);
	if (!may_say(rank, status))
		mixed_fail(rank, "a probe of rank %d, tag %d: %s", peer, tag,
		           baton_status_name(status));
	if (status == BATON_OK)
		check_info(rank, found, peer, tag);
	else if (found->message)
		mixed_fail(rank, "a probe has written, and returned %s",
		           baton_status_name(status));
	atomic_fetch_add(&rank->job->found, status == BATON_OK);
	give_found(rank, found, status == BATON_OK);
}

/* ---- receiving ---- */

void
found_call(struct hand *hand, struct call *call)
{
	struct found *found = take_found(hand->rank, draw(&hand->draws) % FOUND, KEPT);
	const struct baton_message_info *info;
	unsigned way = draw(&hand->draws) % 6;

	if (!found)
		return;
	info = &found->info;
	*call = (struct call){
		.kind = BATON_OPERATION_RECV,
		.stream = call->stream,
		.found = found,
		.bytes = info->bytes,
		.list = info->list,
		.wanted = BATON_OK,
	};
	if (way == 0) {
		call->list = !info->list;
		call->wanted = BATON_ERR_MISMATCH;
	} else if (way == 1 && info->bytes > 1) {
		/* A list that is open needs an arena of a byte. */
		call->bytes = !call->list && one_in(hand, 2) ? 0
		                                             : info->bytes / 2;
		call->wanted = BATON_ERR_TRUNCATED;
	} else if (call->list) {
		call->bytes += 256 * info->tensors;
	}
}

enum baton_status
found_make(struct hand *hand, const struct call *call, struct slot *slot,
           const struct baton_op_options *op, baton_request *request_p)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	struct baton_comm *comm = hand->rank->comm;
	uint32_t n = call->found->info.list ? call->found->info.tensors
	                                    : call->bytes > 0;

	slot->found = call->found;
	slot->was_found = true;
	slot->info = call->found->info;
	slot->wanted = call->wanted;
	if (!call->list)
		return baton_recv_message(slot->memory, call->bytes, BATON_UINT8,
		                          call->found->message, comm,
		                          call->stream, op, request_p);
	slot->plain = false;
	slot->go = !one_in(hand, 10);
	slot->refused_go = !slot->go;
	options.op = *op;
	options.op.size = sizeof(options);
	options.input_signal = &slot->go;
	options.output_signal = &slot->told;
	options.arena = slot->memory;
	options.arena_bytes = call->bytes;
	for (uint32_t i = 0; i < n; i++)
		slot->tensors[i] = (struct baton_tensor){.rank = -1};
	return baton_recv_message_tensors(slot->tensors, n, call->found->message,
	                                  comm, call->stream, &options, request_p);
}

static enum baton_status
receive_nothing(const struct rank *rank, const struct found *found,
                baton_request *request_p)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;

	options.flags = BATON_OP_DETACHED;
	return baton_recv_message(NULL, 0, BATON_UINT8, found->message, rank->comm,
	                          rank->hands[0].streams[0], &options, request_p);
}

void
found_received(struct rank *rank, struct found *found, bool enqueued)
{
	enum baton_status status = BATON_ERR_STALE;
	baton_request request = BATON_REQUEST_NULL;

	found->state = enqueued ? NOT_FOUND : KEPT;
	if (enqueued)
		status = receive_nothing(rank, found, &request);
	if (status != BATON_ERR_STALE && !rank->faults &&
	    (rank->sound || status != baton_comm_status(rank->comm)))
		mixed_fail(rank, "a message was received twice: %s",
		           baton_status_name(status));
}

/* ---- the end ---- */

static void
discard_at_end(struct rank *rank, struct found *found)
{
	enum baton_status status, wanted = BATON_OK;
	baton_request request = BATON_REQUEST_NULL;
	time_t limit = time(NULL) + LIMIT_NS / 1000000000;

	if (found->info.list)
		wanted = BATON_ERR_MISMATCH;
	else if (found->info.bytes > 0)
		wanted = BATON_ERR_TRUNCATED;
	/* What nothing tells of has slots of the pool until its deadline. */
	while ((status = receive_nothing(rank, found, &request)) == BATON_ERR_AGAIN &&
	       time(NULL) < limit)
		(void)baton_progress(rank->comm);
	if (status == BATON_OK)
		status = baton_finish(&request, LIMIT_NS, NULL);
	if (status != wanted && !rank->faults)
		mixed_fail(rank, "a message of %zu bytes was discarded in %s",
		           found->info.bytes, baton_status_name(status));
	found->state = NOT_FOUND;
}

void
found_end(struct rank *rank, bool aborted)
{
	for (int i = 0; i < FOUND; i++) {
		struct found *found = &rank->found[i];
		baton_request request = BATON_REQUEST_NULL;

		if (found->state == KEPT && !aborted)
			discard_at_end(rank, found);
		else if (found->state == KEPT &&
		         receive_nothing(rank, found, &request) == BATON_OK)
			mixed_fail(rank, "a receive behind an abort");
	}
}
