/* SPDX-License-Identifier: BSD-3-Clause */
/* What a thread of the mixed load does: one step at a time, each drawn. */
#include "mixed.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Of the plan's memory, for one operation; receives have theirs in the second half, since launches may be
 * under way together. */
enum { PLAN_PART = 4096, WORDS_BYTES = 64, PLAN_RECEIVES = MEMBERS_MAX * PLAN_PART };

static baton_stream
any_stream(struct hand *hand)
{
	return hand->streams[draw(&hand->draws) % STREAMS];
}

static int
any_peer(struct hand *hand)
{
	return (int)(draw(&hand->draws) % (uint32_t)hand->rank->size);
}

static int
any_tag(struct hand *hand)
{
	return hand->rank->info.tag_max > 0 ? (int)(draw(&hand->draws) % TAGS)
	                                    : 0;
}

static size_t
any_bytes(struct hand *hand)
{
	if (hand->rank->fixed)
		return FIXED_BYTES;
	return one_in(hand, 4) ? draw_bytes(&hand->draws)
	                       : draw(&hand->draws) % 300;
}

/* NULL: there is none. */
static struct baton_window *
any_window(struct hand *hand)
{
	struct baton_window *const *windows = hand->rank->windows;
	unsigned at = draw(&hand->draws) % WINDOWS;

	return windows[at] ? windows[at] : windows[(at + 1) % WINDOWS];
}

/* ---- operations --------------------------------------------------------- */

static bool
needs_window(enum baton_operation kind)
{
	return kind == BATON_OPERATION_PUT_SIGNAL || kind == BATON_OPERATION_GET ||
	       kind == BATON_OPERATION_ATOMIC;
}

static bool
has_bytes(enum baton_operation kind)
{
	return kind <= BATON_OPERATION_RECV ||
	       kind == BATON_OPERATION_PUT_SIGNAL || kind == BATON_OPERATION_GET;
}

/* Some receives take a message of any rank, or on any tag. */
static void
open_receive(struct hand *hand, struct call *call)
{
	unsigned capabilities = hand->rank->info.capabilities;

	if ((capabilities & BATON_CAP_ANY_SOURCE) && one_in(hand, 3))
		call->peer = BATON_ANY_SOURCE;
	if ((capabilities & BATON_CAP_ANY_TAG) && one_in(hand, 4))
		call->tag = BATON_ANY_TAG;
}

/* many: it is one of several, of a group or a plan. */
static struct call
any_call(struct hand *hand, bool many)
{
	static const enum baton_operation kinds[] = {
		BATON_OPERATION_SEND,   BATON_OPERATION_RECV,
		BATON_OPERATION_SEND,   BATON_OPERATION_RECV,
		BATON_OPERATION_SIGNAL, BATON_OPERATION_PUT_SIGNAL,
		BATON_OPERATION_PUT_SIGNAL, BATON_OPERATION_WAIT_SIGNAL,
		BATON_OPERATION_WAIT_ANY, BATON_OPERATION_WAIT_COUNT,
		BATON_OPERATION_GET, BATON_OPERATION_FLUSH,
		BATON_OPERATION_ATOMIC, BATON_OPERATION_BARRIER,
	};
	const struct rank *rank = hand->rank;
	/* Where what has no partner ends with the communicator, messages come in pairs (exchange). */
	unsigned from = rank->fixed && rank->sound ? 4 : 0;
	/* Barriers have to be as many on all ranks, unless all abort. */
	unsigned n = !rank->onesided ? 4 : rank->sound ? 13 : 14;
	struct call call = {
		.kind = BATON_OPERATION_RECORD,
		.peer = any_peer(hand),
		.tag = any_tag(hand),
		.stream = any_stream(hand),
	};

	if (from < n)
		call.kind = kinds[from + draw(&hand->draws) % (n - from)];
	call.list = call.kind <= BATON_OPERATION_RECV && !rank->fixed &&
	            (rank->info.capabilities & BATON_CAP_TENSORS) &&
	            one_in(hand, 4);
	if (call.kind == BATON_OPERATION_RECV)
		open_receive(hand, &call);
	if (needs_window(call.kind) && !any_window(hand))
		call.kind = BATON_OPERATION_SIGNAL;
	/* A refusal would void a group or a plan. */
	if (call.kind == BATON_OPERATION_ATOMIC && many && !hand->rank->words)
		call.kind = BATON_OPERATION_FLUSH;
	call.silent = call.kind == BATON_OPERATION_PUT_SIGNAL && one_in(hand, 3);
	if (call.kind == BATON_OPERATION_FLUSH && one_in(hand, 2))
		call.peer = BATON_ALL_PEERS;
	if (has_bytes(call.kind))
		call.bytes = any_bytes(hand);
	return call;
}

static enum baton_status
make_list(struct hand *hand, const struct call *call, struct slot *slot,
          const struct baton_op_options *op, baton_request *request_p)
{
	struct baton_tensors_options options = BATON_TENSORS_OPTIONS_INIT;
	size_t n = draw(&hand->draws) % (LIST_MAX + 1), at = 0;
	const struct rank *rank = hand->rank;

	options.op = *op;
	options.op.size = sizeof(options);
	slot->plain = false;
	slot->go = !one_in(hand, 10);
	slot->refused_go = !slot->go;
	options.input_signal = &slot->go;
	options.output_signal = &slot->told;
	for (size_t i = 0; i < n; i++) {
		size_t left = call->bytes - at;
		size_t bytes = i + 1 == n || one_in(hand, 2) ? left : left / 2;

		slot->tensors[i] = (struct baton_tensor){
			.data = slot->memory + at,
			.type = BATON_UINT8,
			.rank = 1,
			.shape = {(int64_t)bytes},
		};
		at += bytes;
	}
	if (call->kind == BATON_OPERATION_SEND)
		return baton_send_tensors(slot->tensors, n, call->peer, call->tag,
		                          rank->comm, call->stream, &options,
		                          request_p);
	if (slot->memory && one_in(hand, 2)) {
		options.arena = slot->memory;
		options.arena_bytes = call->bytes;
		for (size_t i = 0; i < n; i++)
			slot->tensors[i] = (struct baton_tensor){.rank = -1};
	}
	return baton_recv_tensors(slot->tensors, n, call->peer, call->tag,
	                          rank->comm, call->stream, &options, request_p);
}

/* Of a put or get: where, in the part of the peer.  The puts of one source in one context are in order; others
 * must not write there. */
struct target {
	int context;
	size_t at, bytes;
};

static struct target
any_target(struct hand *hand, size_t most)
{
	const struct rank *rank = hand->rank;
	struct target target = {.context = (int)(draw(&hand->draws) % CONTEXTS)};
	size_t area = (WINDOW_BYTES - WORDS_BYTES) / (size_t)(rank->size * CONTEXTS);

	target.bytes = most < area ? most : area;
	target.at = area * (size_t)(rank->rank * CONTEXTS + target.context) +
	            draw(&hand->draws) % (area - target.bytes + 1);
	return target;
}

static enum baton_status
make_put(struct hand *hand, const struct call *call, void *memory,
         const struct baton_op_options *options, baton_request *request_p)
{
	struct target target = any_target(hand, call->bytes);
	struct baton_comm *comm = hand->rank->comm;

	if (call->kind == BATON_OPERATION_GET)
		return baton_get(memory, target.bytes, BATON_UINT8, call->peer,
		                 any_window(hand), target.at, target.context, 0,
		                 comm, call->stream, options, request_p);
	if (call->silent)
		return baton_put(memory, target.bytes, BATON_UINT8, call->peer,
		                 any_window(hand), target.at, target.context, 0,
		                 comm, call->stream, options, request_p);
	return baton_put_signal(memory, target.bytes, BATON_UINT8, call->peer,
	                        any_window(hand), target.at,
	                        (int)(draw(&hand->draws) % INDICES),
	                        target.context, 0, comm, call->stream, options,
	                        request_p);
}

/* On a word behind the areas of the puts, which all ranks change. */
static enum baton_status
make_atomic(struct hand *hand, const struct call *call, uint64_t *result_p,
            const struct baton_op_options *options, baton_request *request_p)
{
	size_t at = WINDOW_BYTES - WORDS_BYTES + draw(&hand->draws) % 4 * sizeof(uint64_t);
	int context = (int)(draw(&hand->draws) % CONTEXTS);
	struct baton_comm *comm = hand->rank->comm;

	if (one_in(hand, 2))
		return baton_compare_swap(result_p, draw(&hand->draws) % 8,
		                          draw(&hand->draws) % 8, call->peer,
		                          any_window(hand), at, context, 0, comm,
		                          call->stream, options, request_p);
	return baton_fetch_add(result_p, 1, call->peer, any_window(hand), at,
	                       context, 0, comm, call->stream, options, request_p);
}

static enum baton_status
make_wait(struct hand *hand, const struct call *call,
          const struct baton_op_options *options, baton_request *request_p)
{
	struct baton_comm *comm = hand->rank->comm;
	struct baton_wait_signal_desc descs[3];
	size_t n = 1 + draw(&hand->draws) % 3;
	int first = any_peer(hand);

	for (size_t i = 0; i < n; i++)
		descs[i] = (struct baton_wait_signal_desc){
			.op_count = 1 + (int)(draw(&hand->draws) % 2),
			.peer = any_peer(hand),
			.signal_index = (int)(draw(&hand->draws) % INDICES),
			.context = (int)(draw(&hand->draws) % CONTEXTS),
		};
	if (call->kind == BATON_OPERATION_WAIT_COUNT)
		return baton_wait_signal_count(descs->peer, descs->signal_index,
		                               descs->context,
		                               draw(&hand->draws) % 200, comm,
		                               call->stream, options, request_p);
	if (call->kind == BATON_OPERATION_WAIT_SIGNAL)
		return baton_wait_signal(n, descs, comm, call->stream, options,
		                         request_p);
	/* Each counter once. */
	for (size_t i = 0; i < n; i++)
		descs[i].peer = (first + (int)i) % hand->rank->info.ranks;
	n = n < (size_t)hand->rank->info.ranks ? n : (size_t)hand->rank->info.ranks;
	return baton_wait_signal_any(n, descs, NULL, comm, call->stream, options,
	                             request_p);
}

/* memory, word: the slot's, or those of the plan that is recorded. */
static enum baton_status
make_hand_call(struct hand *hand, const struct call *call, void *memory, uint64_t *word,
               const struct baton_op_options *options, baton_request *request_p)
{
	struct baton_comm *comm = hand->rank->comm;

	switch (call->kind) {
	case BATON_OPERATION_SEND:
		return baton_send(memory, call->bytes, BATON_UINT8, call->peer,
		                  call->tag, comm, call->stream, options,
		                  request_p);
	case BATON_OPERATION_RECV:
		return baton_recv(memory, call->bytes, BATON_UINT8, call->peer,
		                  call->tag, comm, call->stream, options,
		                  request_p);
	case BATON_OPERATION_SIGNAL:
		return baton_signal_add(call->peer,
		                        (int)(draw(&hand->draws) % INDICES),
		                        (int)(draw(&hand->draws) % CONTEXTS),
		                        1 + draw(&hand->draws) % 3, 0, comm,
		                        call->stream, options, request_p);
	case BATON_OPERATION_PUT_SIGNAL:
	case BATON_OPERATION_GET:
		return make_put(hand, call, memory, options, request_p);
	case BATON_OPERATION_WAIT_SIGNAL:
	case BATON_OPERATION_WAIT_ANY:
	case BATON_OPERATION_WAIT_COUNT:
		return make_wait(hand, call, options, request_p);
	case BATON_OPERATION_RECORD:
		return baton_record(comm, call->stream, options, request_p);
	case BATON_OPERATION_FLUSH:
		return baton_flush(call->peer, 0, comm, call->stream, options,
		                   request_p);
	case BATON_OPERATION_ATOMIC:
		return make_atomic(hand, call, word, options, request_p);
	case BATON_OPERATION_BARRIER:
		return baton_barrier(comm, call->stream, options, request_p);
	case BATON_OPERATION_PLAN:
		break;
	}
	return BATON_ERR_INVALID;
}

static enum baton_status
make_for(struct hand *hand, const struct call *call, struct slot *slot,
         const struct baton_op_options *options, baton_request *request_p)
{
	if (call->found)
		return found_make(hand, call, slot, options, request_p);
	if (call->list)
		return make_list(hand, call, slot, options, request_p);
	return make_hand_call(hand, call, slot->memory, &slot->word, options,
	                      request_p);
}

/* NULL: refused, or there was no slot.  In a group: not begun yet. */
static struct slot *
enqueue(struct hand *hand, const struct call *call, bool detached, bool in_group)
{
	struct slot *slot = slot_take(hand, call->kind, call->bytes);
	struct baton_op_options options;
	enum baton_status status;
	baton_request *request_p;

	if (!slot && call->found) {
		pthread_mutex_lock(&hand->rank->lock);
		found_received(hand->rank, call->found, false);
		pthread_mutex_unlock(&hand->rank->lock);
	}
	if (!slot)
		return NULL;
	options = slot_options(hand, slot, detached, &request_p);
	status = make_for(hand, call, slot, &options, request_p);
	slot_called(hand, slot, status, in_group);
	return status == BATON_OK ? slot : NULL;
}

static void
step_operation(struct hand *hand)
{
	struct call call = any_call(hand, false);

	if (one_in(hand, 5))
		found_call(hand, &call);
	(void)enqueue(hand, &call, one_in(hand, 3), false);
}

static void
step_record(struct hand *hand)
{
	struct call call = {.kind = BATON_OPERATION_RECORD,
	                    .stream = any_stream(hand)};

	(void)enqueue(hand, &call, false, false);
}

/* ---- groups ------------------------------------------------------------- */

/* Its refusal voids the group. */
static void
refused_call(struct hand *hand)
{
	unsigned char byte = 0;

	if (baton_send(&byte, 1, BATON_UINT8, -1, 0, hand->rank->comm,
	               hand->streams[0], NULL, NULL) == BATON_OK)
		mixed_fail(hand->rank, "peer -1 was taken");
}

/* A message to oneself: both ends, of one length. */
static unsigned
add_exchange(struct hand *hand, struct slot *members[], bool detached)
{
	struct call call = {.kind = BATON_OPERATION_SEND,
	                    .peer = hand->rank->rank,
	                    .bytes = any_bytes(hand),
	                    .stream = any_stream(hand)};
	unsigned n = 0;

	members[n] = enqueue(hand, &call, detached, true);
	n += members[n] != NULL;
	if (n == 0)
		return 0;
	call.kind = BATON_OPERATION_RECV;
	call.stream = any_stream(hand);
	members[n] = enqueue(hand, &call, detached, true);
	return n + (members[n] != NULL);
}

/* All members, or none: a sound run has no send to oneself without its receive. */
static void
step_group(struct hand *hand)
{
	bool detached = one_in(hand, 3), is_void = one_in(hand, 4), abandoned;
	unsigned wanted = draw(&hand->draws) % MEMBERS_MAX, n = 0;
	struct slot *members[MEMBERS_MAX + 2];
	struct rank *rank = hand->rank;
	enum baton_status status = baton_group_begin(rank->comm);

	if (status != BATON_OK)
		return;
	if (rank->fixed || one_in(hand, 3)) {
		n = add_exchange(hand, members, detached);
		is_void |= n < 2;
	}
	while (n < wanted) {
		struct call call = any_call(hand, true);

		if (one_in(hand, 8))
			found_call(hand, &call);
		members[n] = call.kind == BATON_OPERATION_RECORD
		                     ? NULL
		                     : enqueue(hand, &call, detached, true);
		if (!members[n])
			break;
		n++;
	}
	abandoned = one_in(hand, 6);
	if (is_void)
		refused_call(hand);
	status = abandoned ? baton_group_abandon(rank->comm)
	                   : baton_group_end(rank->comm);
	if (abandoned && status != BATON_OK)
		mixed_fail(rank, "group_abandon: %s", baton_status_name(status));
	if (abandoned)
		status = BATON_ERR_AGAIN; /* nothing of it was enqueued */
	if (is_void && status == BATON_OK)
		mixed_fail(rank, "a void group was taken");
	if (is_void && status == BATON_ERR_INVALID)
		status = BATON_ERR_AGAIN; /* as was asked for */
	for (unsigned i = 0; i < n; i++)
		slot_begun(hand, members[i], status);
}

/* ---- plans -------------------------------------------------------------- */

static void
forget_plan(struct hand *hand)
{
	if (hand->plan && baton_plan_destroy(hand->plan) != BATON_OK)
		mixed_fail(hand->rank, "plan_destroy");
	hand->plan = NULL;
}

static enum baton_status
record_one(struct hand *hand, unsigned i, bool detached)
{
	struct baton_op_options options = BATON_OP_OPTIONS_INIT;
	struct call call = any_call(hand, true);
	size_t at;

	if (call.kind == BATON_OPERATION_RECORD)
		return BATON_OK;
	if (call.bytes > PLAN_PART)
		call.bytes = PLAN_PART;
	options.flags = detached ? BATON_OP_DETACHED : 0;
	/* What a stream carries out cannot be cancelled, nor can the launch then. */
	options.timeout_ns = 1 + draw(&hand->draws) % 20000000;
	at = (size_t)i * PLAN_PART;
	if (call.kind == BATON_OPERATION_RECV || call.kind == BATON_OPERATION_GET)
		at += PLAN_RECEIVES;
	return make_hand_call(hand, &call, hand->plan_memory + at, NULL, &options, NULL);
}

/* Of none, or of some operations, of which some are a group. */
static void
step_plan(struct hand *hand)
{
	unsigned n = draw(&hand->draws) % MEMBERS_MAX;
	unsigned grouped = draw(&hand->draws) % MEMBERS_MAX;
	bool detached = one_in(hand, 3);
	struct rank *rank = hand->rank;
	enum baton_status status;

	forget_plan(hand);
	if (baton_plan_begin(rank->comm) != BATON_OK)
		return;
	for (unsigned i = 0; i < n; i++) {
		if (i == grouped)
			(void)baton_group_begin(rank->comm);
		(void)record_one(hand, i, detached);
	}
	if (grouped < n)
		(void)baton_group_end(rank->comm);
	status = baton_plan_end(rank->comm, &hand->plan);
	if (status != BATON_OK && rank->sound && !rank->faults &&
	    status != BATON_ERR_AGAIN && status != BATON_ERR_INVALID)
		mixed_fail(rank, "plan_end: %s", baton_status_name(status));
}

static void
step_launch(struct hand *hand)
{
	struct baton_op_options options;
	baton_request *request_p;
	struct slot *slot;

	if (!hand->plan || one_in(hand, 4))
		step_plan(hand);
	if (!hand->plan)
		return;
	slot = slot_take(hand, BATON_OPERATION_PLAN, 0);
	if (!slot)
		return;
	slot->any_end = true;
	options = slot_options(hand, slot, false, &request_p);
	slot_called(hand, slot, baton_plan_launch(hand->plan, &options, request_p),
	            false);
	if (slot->state == PENDING && one_in(hand, 3))
		slot_cancel(hand, slot);
}

/* ---- functions, joins --------------------------------------------------- */

static void
run_function(void *argument)
{
	struct hand *hand = argument;

	atomic_fetch_add(&hand->functions_run, 1);
}

static void
step_function(struct hand *hand)
{
	enum baton_status status = baton_stream_launch(
		hand->rank->comm, any_stream(hand), run_function, hand);

	hand->functions += status == BATON_OK;
}

static struct slot *
any_slot(struct hand *hand)
{
	return &hand->slots[draw(&hand->draws) % SLOTS];
}

static void
step_join(struct hand *hand)
{
	const struct slot *slot = any_slot(hand);

	if (slot->request && hand->rank->joins)
		(void)baton_stream_wait(hand->rank->comm, any_stream(hand),
		                        slot->request);
}

/* ---- requests, queues --------------------------------------------------- */

static void
step_wait(struct hand *hand)
{
	baton_request requests[SLOTS] = {BATON_REQUEST_NULL};
	struct baton_completion done;
	size_t index, n;

	for (unsigned i = 0; i < SLOTS; i++)
		if (hand->slots[i].state == PENDING && hand->slots[i].queue < 0)
			requests[i] = hand->slots[i].request;
	(void)baton_wait_any(requests, SLOTS, draw(&hand->draws) % 300000, &index,
	                     &done);
	(void)baton_test_some(requests, SLOTS, &index, 1, &n);
	(void)baton_wait_all(requests, SLOTS, draw(&hand->draws) % 100000);
}

static void
step_queue(struct hand *hand)
{
	struct rank *rank = hand->rank;
	unsigned q = draw(&hand->draws) % QUEUES;

	if (pthread_rwlock_trywrlock(&rank->queues_lock) != 0)
		return;
	baton_queue_destroy(rank->queues[q]);
	rank->queue_lives[q]++;
	if (baton_queue_create(rank->comm, QUEUE_ENTRIES, &rank->queues[q]) !=
	    BATON_OK)
		mixed_fail(rank, "queue_create");
	pthread_rwlock_unlock(&rank->queues_lock);
}

static void
step_arm(struct hand *hand)
{
	struct rank *rank = hand->rank;

	pthread_rwlock_rdlock(&rank->queues_lock);
	(void)baton_queue_arm(rank->queues[draw(&hand->draws) % QUEUES]);
	pthread_rwlock_unlock(&rank->queues_lock);
}

/* Handles of streams are used again. */
static void
step_stream(struct hand *hand)
{
	baton_stream *stream_p =
		&hand->streams[1 + draw(&hand->draws) % (STREAMS - 1)];
	struct baton_comm *comm = hand->rank->comm;

	/* A plan names it. */
	if (hand->plan || baton_stream_destroy(comm, *stream_p) != BATON_OK)
		return;
	if (baton_stream_create(comm, stream_p) != BATON_OK)
		*stream_p = hand->streams[0];
}

static void
step_dump(struct hand *hand)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	(void)baton_comm_dump(hand->rank->comm, fd);
	close(fd);
}

void
hand_step(struct hand *hand)
{
	unsigned what = draw(&hand->draws) % (100 + hand->rank->probes);

	if (what >= 100)
		step_probe(hand);
	else if (what < 34)
		step_operation(hand);
	else if (what < 44)
		step_group(hand);
	else if (what < 52)
		step_launch(hand);
	else if (what < 55)
		step_record(hand);
	else if (what < 57)
		step_function(hand);
	else if (what < 60)
		step_join(hand);
	else if (what < 70)
		slot_cancel(hand, any_slot(hand));
	else if (what < 72)
		slot_release(hand, any_slot(hand));
	else if (what < 76)
		step_wait(hand);
	else if (what < 78)
		step_queue(hand);
	else if (what < 80)
		step_arm(hand);
	else if (what < 81)
		step_stream(hand);
	else if (what < 82 && one_in(hand, 4))
		step_dump(hand);
	else if (what < 84)
		(void)baton_progress(hand->rank->comm);
	else if (what < 85)
		(void)baton_stream_query(hand->rank->comm, any_stream(hand));
	else if (what < 90)
		queues_poll(hand->rank);
	else
		(void)slots_look(hand);
}
