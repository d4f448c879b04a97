/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The NCCL transport: sends and receives of a GPU's memory, put on streams by NCCL.
 *
 * Lanes.  NCCL carries out everything of one of its communicators in series, on whatever
 * streams it was put: a receive that waits would hold up a send.  So each rank has several,
 * the lanes.  The lane of a message is (k, b): k the lowest bit in which source and target
 * differ, b that bit of the source.  In a lane a rank only sends or only receives, since its
 * own bit k says which; so no wait of one direction holds up the other.  There are 2 lanes
 * for each bit of a rank's number.  All ranks are in each; only the pairs that use it are
 * connected.  One more communicator has this rank alone, for messages to itself, whose ends
 * may come in two calls (nccl_self.c).  Within a
 * lane messages wait for each other: a send to a peer that does not receive holds up later
 * sends of that lane, to other peers too.  With fewer lanes (an option) several (k, b) have
 * one, in which a rank sends and receives (BATON_CAP_DIRECTIONS is off).
 *
 * On streams.  Operations of one lane are put on the program's streams as they are (a
 * group's on several: NCCL starts them when all streams have got there, and all go on when
 * all are done).  If a group has several lanes, their kernels on one stream would be in an
 * order, which may be another one on the peer, and so a circle.  Then each lane's go on the
 * lane's own stream, behind all streams of the group, and these go on behind all of its
 * lanes.  Detached operations do the same, except that no stream of the program waits.  All
 * of that is by event edges of the device (`follow`), not by words of the engine, and needs no
 * poll of the engine.
 *
 * Default streams.  NCCL launches each group of a non-blocking communicator on a thread of its
 * own, where the handle of the per-thread default stream means another stream: neither would
 * the kernel wait for the program's work, nor that for the kernel.  So a call with this
 * handle goes on the lanes' streams too, with edges that the caller's thread takes.  NULL is
 * given to NCCL as the legacy handle (`names` of the device).
 *
 * The end of an operation is seen by the engine's marks (pooled events without timing) on
 * the stream that `enqueue` names.  A join of a stream to an operation waits for the
 * operation's word, which the driver releases at its next poll.
 *
 * Threads.  NCCL takes one thread at a time for a communicator, and one for all of a
 * device.  So every call is made under a lock of the device, which all transports of the
 * process share:
 *   - enqueue, on the program's thread, waits for it (up to a bound: then AGAIN), and holds
 *     it until NCCL says that the work is on the stream (`ncclInProgress` is waited for, up
 *     to a bound: then the communicator breaks), since another communicator's call may not
 *     come between;
 *   - test and clear, on the driver, only try it, and come back;
 *   - creation takes it for a call at a time, so that ranks of one process and one device can
 *     wait for each other;
 *   - what ends kernels by force, or frees, is a job (thread.h), and what frees is called
 *     without the lock (nccl_end.c).
 * Order: comm->order, or the driver lock; then the lock of the device.  No lock of the engine is
 * taken under it.
 *
 * States.  Creating (nccl_open.c) -> open -> leaving (all ranks have said so) -> finalizing
 * (NCCL's, of all ranks; polled) -> closed.  Or: open -> aborting (abort: kernels end, and
 * enqueue refuses) -> closed.  An asynchronous error of a lane, found by `test`, and an
 * enqueue that failed half way break the communicator, and so abort it.
 *
 * Refused, since NCCL cannot give it: tags other than 0, messages shorter than the receive,
 * truncation, the end of one operation alone but of a list (BATON_CAP_TAGS, _SHORT, _TRUNCATION,
 * _CANCEL are off); memory of the host that is not pinned, memory of another GPU; a message to the
 * rank itself whose ends have different lengths.
 *
 * Puts into windows, between ranks of different nodes, have a communicator of their own, behind the
 * lanes of messages (nccl_puts.c).
 *
 * In checked mode (nccl_checked.c) another path takes the place of this one.  In plain mode that
 * other one is beside it, for lists of tensors, with a lane of its own behind that of the puts.  A
 * list is deferred: its stream waits for our word.  So a message behind it on its stream, and what
 * was called later in that message's lane, wait for it, as they would for a signal; and it waits for
 * no message but those before it on its stream.
 */
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "list.h"
#include "log.h"
#include "nccl_transport.h"

#define POLL_NS ((uint64_t)1000000) /* between two polls for asynchronous errors */
#define WHAT_LEAVE ((uint64_t)0x6e63636c04)

static struct batoni_nccl *
to_nccl(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct batoni_nccl, base);
}

unsigned
batoni_nccl_lane_of(const struct batoni_nccl *nccl, int source, int target)
{
	unsigned differ = (unsigned)source ^ (unsigned)target;
	unsigned k;

	if (differ == 0)
		return nccl->lanes_n - 1;
	k = (unsigned)__builtin_ctz(differ);
	return (2 * k + ((unsigned)source >> k & 1u)) % (nccl->lanes_n - 1);
}

static struct batoni_nccl_lane *
lane_of(const struct batoni_nccl *nccl, const struct batoni_transfer *transfer)
{
	int rank = nccl->base.rank;

	return &nccl->lanes[transfer->direction == BATONI_SEND
	                            ? batoni_nccl_lane_of(nccl, rank,
	                                                  transfer->peer)
	                            : batoni_nccl_lane_of(nccl, transfer->peer,
	                                                  rank)];
}

/* ---- what is refused ---- */

bool
batoni_nccl_reaches(const struct batoni_nccl *nccl, unsigned location)
{
	int owner = batoni_location_owner(location);

	return location != BATONI_MEMORY_HOST &&
	       (owner < 0 || owner == nccl->device->number);
}

enum baton_status
batoni_nccl_refuse_memory(const struct batoni_nccl *nccl, unsigned location,
                          size_t tensor)
{
	char what[40] = "the buffer";

	if (tensor != BATONI_NCCL_NO_TENSOR)
		snprintf(what, sizeof(what), "tensor %zu", tensor);
	if (location == BATONI_MEMORY_HOST)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s is memory of the host that is not "
		                     "pinned: NCCL reaches memory of the GPU, and "
		                     "pinned memory",
		                     what);
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%s is memory of GPU %d; the communicator is on GPU "
	                     "%d, and NCCL reaches no other",
	                     what, batoni_location_owner(location),
	                     nccl->device->number);
}

enum baton_status
batoni_nccl_check_memory(const struct batoni_nccl *nccl,
                         const struct batoni_transfer *transfer)
{
	return transfer->bytes == 0 ||
	                       batoni_nccl_reaches(nccl, transfer->location)
	               ? BATON_OK
	               : batoni_nccl_refuse_memory(nccl, transfer->location,
	                                           BATONI_NCCL_NO_TENSOR);
}

/* The transfers that one call puts on streams. */
struct batch {
	struct batoni_transfer *const *transfers;
	size_t n;
	const struct batoni_follow *follow; /* NULL: they are not detached */
	baton_stream *observe_p;
	struct batoni_nccl_match self;
	/* NCCL is given the streams of the lanes, and not those of the transfers. */
	bool on_lanes;
	const char *failed; /* the call that has failed */
};

static enum baton_status
check_nccl_batch(const struct batoni_nccl *nccl, struct batch *batch)
{
	enum baton_status status = BATON_OK;

	if (atomic_load(&nccl->aborting))
		return batoni_refuse(BATON_ERR_ABORTED,
		                     "the NCCL transport was aborted");
	for (size_t i = 0; i < batch->n && status == BATON_OK; i++)
		status = batoni_nccl_check_memory(nccl,
		                                  batch->transfers[i]);
	return status == BATON_OK
	               ? batoni_nccl_self_match(nccl, batch->transfers,
	                                        batch->n, &batch->self)
	               : status;
}

/* ---- enqueuing, under the lock of the device ---- */

static struct batoni_nccl_lane *
alone(const struct batoni_nccl *nccl)
{
	return &nccl->lanes[nccl->lanes_n - 1];
}

/* Mark the lanes that the transfers use, and return how many there are.  An end of a message to
 * oneself that is kept uses none. */
static unsigned
mark_lanes(struct batoni_nccl *nccl, const struct batch *batch)
{
	unsigned used = 0;

	for (unsigned i = 0; i < nccl->lanes_n; i++)
		nccl->lanes[i].used = false;
	for (size_t i = 0; i < batch->n; i++) {
		struct batoni_nccl_lane *lane =
			lane_of(nccl, batch->transfers[i]);

		if (lane == alone(nccl) && batch->self.pairs == 0)
			continue;
		used += !lane->used;
		lane->used = true;
	}
	return used;
}

/* Put an edge between the stream and each lane in use, in this direction. */
static enum baton_status
join_lanes(struct batoni_nccl *nccl, const struct batch *batch,
           baton_stream stream, bool lanes_follow)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	enum baton_status status = BATON_OK;

	for (unsigned i = 0; i < nccl->lanes_n && status == BATON_OK; i++) {
		const struct batoni_nccl_lane *lane = &nccl->lanes[i];

		if (!lane->used)
			continue;
		status = ops->events->follow(
			nccl->device, lanes_follow ? lane->stream : stream,
			lanes_follow ? stream : lane->stream);
	}
	if (status != BATON_OK || batch->self.left == 0)
		return status;
	return lanes_follow ? batoni_nccl_self_gather(nccl, stream)
	                    : batoni_nccl_self_hold(nccl, stream);
}

/* The same with each stream of the transfers. */
static enum baton_status
join_streams(struct batoni_nccl *nccl, const struct batch *batch,
             bool lanes_follow)
{
	struct batoni_transfer *const *transfers = batch->transfers;
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < batch->n && status == BATON_OK; i++) {
		size_t first = 0;

		while (transfers[first]->stream != transfers[i]->stream)
			first++;
		if (first == i)
			status = join_lanes(nccl, batch, transfers[i]->stream,
			                    lanes_follow);
	}
	return status;
}

static enum baton_status
begin_lanes(struct batoni_nccl *nccl, const struct batch *batch)
{
	const struct batoni_follow *follow = batch->follow;
	enum baton_status status = BATON_OK;

	if (!follow)
		status = join_streams(nccl, batch, true);
	for (size_t i = 0; follow && i < follow->count && status == BATON_OK;
	     i++)
		status = join_lanes(nccl, batch, follow->streams[i], true);
	return status;
}

/* Call NCCL for one end.  The end of the group returns an error of this call. */
static void
call_one_end(const struct batoni_nccl_api *api, unsigned direction, void *buffer,
             size_t bytes, int peer, const struct batoni_nccl_lane *lane,
             baton_stream stream)
{
	if (direction == BATONI_SEND)
		api->send(buffer, bytes, BATONI_NCCL_INT8, peer, lane->comm,
		          stream);
	else
		api->recv(buffer, bytes, BATONI_NCCL_INT8, peer, lane->comm,
		          stream);
}

void
batoni_nccl_call(const struct batoni_nccl *nccl,
                 const struct batoni_nccl_lane *lane,
                 const struct batoni_transfer *transfer, void *buffer,
                 size_t bytes, baton_stream stream)
{
	call_one_end(nccl->api, transfer->direction, buffer, bytes,
	             lane == alone(nccl) ? 0 : transfer->peer, lane, stream);
}

/* Of a message to oneself: what becomes of this end.  Of others: CALLED. */
static enum batoni_nccl_role
role_of(const struct batoni_nccl *nccl, const struct batch *batch, size_t i,
        size_t to_self[2])
{
	const struct batoni_transfer *transfer = batch->transfers[i];

	if (!batoni_nccl_is_self(nccl, transfer))
		return BATONI_NCCL_CALLED;
	return batoni_nccl_self_role(&batch->self, transfer,
	                             to_self[transfer->direction]++);
}

/* Put the calls of `put` into one group.  SUCCESS: they are on their streams. */
static ncclResult_t
run_group(struct batoni_nccl *nccl, struct batch *batch,
          void (*put_fn)(const struct batoni_nccl *nccl, const struct batch *batch,
                         size_t i),
          size_t i)
{
	ncclResult_t result;

	batch->failed = "ncclGroupStart";
	result = nccl->api->group_start();
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	put_fn(nccl, batch, i);
	batch->failed = "ncclGroupEnd";
	result = nccl->api->group_end();
	return result == BATONI_NCCL_IN_PROGRESS ? batoni_nccl_await(nccl)
	                                         : result;
}

/* observe_p: what NCCL's thread names the streams.  False: one has no name there. */
static bool
name_streams(const struct batoni_nccl *nccl, const struct batch *batch)
{
	const struct batoni_handle_ops *handles = nccl->device->ops->handles;
	bool named = true;

	for (size_t i = 0; i < batch->n && named; i++) {
		baton_stream stream = batch->transfers[i]->stream;

		batch->observe_p[i] = stream;
		named = !handles || handles->names(stream, &batch->observe_p[i]);
	}
	return named;
}

static void
put_called(const struct batoni_nccl *nccl, const struct batch *batch, size_t n)
{
	size_t to_self[2] = {0, 0};

	for (size_t i = 0; i < n; i++) {
		const struct batoni_transfer *transfer = batch->transfers[i];
		const struct batoni_nccl_lane *lane;

		if (role_of(nccl, batch, i, to_self) != BATONI_NCCL_CALLED)
			continue;
		lane = lane_of(nccl, transfer);
		if (batch->on_lanes)
			batch->observe_p[i] = lane->stream;
		batoni_nccl_call(nccl, lane, transfer, transfer->buffer,
		                 transfer->bytes, batch->observe_p[i]);
	}
}

/* Put the transfer and the end that it takes into one group. */
static void
put_taking(const struct batoni_nccl *nccl, const struct batch *batch, size_t i)
{
	const struct batoni_transfer *transfer = batch->transfers[i];
	const struct batoni_nccl_lane *lane = alone(nccl);
	void *buffer;
	size_t bytes;

	batch->observe_p[i] = lane->stream;
	batoni_nccl_self_taken(nccl, &buffer, &bytes);
	call_one_end(nccl->api, batch->self.from, buffer, bytes, 0, lane, lane->stream);
	call_one_end(nccl->api, transfer->direction, transfer->buffer, transfer->bytes,
	             0, lane, lane->stream);
}

static ncclResult_t
put_all(struct batoni_nccl *nccl, struct batch *batch,
        enum baton_status *status_p)
{
	baton_stream lane = alone(nccl)->stream;
	ncclResult_t result = BATONI_NCCL_SUCCESS;
	size_t to_self[2] = {0, 0};
	bool any_called = false;

	for (size_t i = 0; i < batch->n && *status_p == BATON_OK &&
	                   result == BATONI_NCCL_SUCCESS;
	     i++) {
		enum batoni_nccl_role role = role_of(nccl, batch, i, to_self);

		any_called |= role == BATONI_NCCL_CALLED;
		if (role != BATONI_NCCL_TAKES)
			continue;
		*status_p = batoni_nccl_self_take(nccl, lane);
		if (*status_p == BATON_OK)
			result = run_group(nccl, batch, put_taking, i);
		if (*status_p == BATON_OK && result == BATONI_NCCL_SUCCESS)
			*status_p = batoni_nccl_self_launched(nccl, lane);
	}
	if (any_called && *status_p == BATON_OK && result == BATONI_NCCL_SUCCESS)
		result = run_group(nccl, batch, put_called, batch->n);
	return result;
}

/* Do the streams of the lanes take the call?  (The engine has asked for those of the program.) */
static enum baton_status
check_room(const struct batoni_nccl *nccl)
{
	const struct batoni_need call = {.entries = 1};
	bool bounded = nccl->device->ops->bounds != NULL;
	enum baton_status status = BATON_OK;

	for (unsigned i = 0; bounded && i < nccl->lanes_n && status == BATON_OK;
	     i++) {
		if (nccl->lanes[i].used)
			status = batoni_device_ask_room(
				nccl->device, nccl->lanes[i].stream, &call);
	}
	return status;
}

static enum baton_status
enqueue_locked(struct batoni_nccl *nccl, struct batch *batch)
{
	static const char edge[] = "an event between streams";
	unsigned lanes = mark_lanes(nccl, batch);
	ncclResult_t result = BATONI_NCCL_SUCCESS;
	enum baton_status status = BATON_OK;

	batch->on_lanes = lanes > 1 || batch->follow || batch->self.takes > 0 ||
	                  batch->self.left > 0 || !name_streams(nccl, batch);
	if (batch->on_lanes)
		status = check_room(nccl);
	if (batch->on_lanes && status == BATON_OK)
		status = begin_lanes(nccl, batch);
	if (status == BATON_OK)
		status = batoni_nccl_self_keep(nccl, &batch->self,
		                               batch->transfers, batch->n,
		                               batch->observe_p);
	/* The lanes' streams may wait for one more point in time: nothing is lost. */
	if (status != BATON_OK && status != BATON_ERR_BUSY)
		return status;
	if (status == BATON_OK)
		result = put_all(nccl, batch, &status);
	if (result == BATONI_NCCL_SUCCESS)
		batch->failed = edge;
	if (result == BATONI_NCCL_SUCCESS && status == BATON_OK &&
	    batch->on_lanes && !batch->follow)
		status = join_streams(nccl, batch, false);
	if (result == BATONI_NCCL_SUCCESS && status == BATON_OK)
		return BATON_OK;
	batch->transfers[0]->native_call = batch->failed;
	batch->transfers[0]->native_code = (int)result;
	return BATON_ERR_BUSY;
}

static enum baton_status
nccl_enqueue(struct batoni_path *path, struct batoni_transfer *const *transfers,
             size_t n, const struct batoni_follow *follow,
             baton_stream *observe_p)
{
	struct batoni_nccl *nccl = to_nccl(batoni_transport_of(path));
	struct batch batch = {.transfers = transfers, .n = n, .follow = follow,
	                      .observe_p = observe_p};
	struct batoni_memory_guard guard;
	enum baton_status status = check_nccl_batch(nccl, &batch);

	if (status != BATON_OK)
		return status;
	status = batoni_nccl_enter(nccl, &guard,
	                           batoni_real_ns() + nccl->patience_ns);
	if (status != BATON_OK)
		return status;
	/* If an abort has come meanwhile, it has the lanes. */
	if (atomic_load(&nccl->aborting))
		status = batoni_refuse(BATON_ERR_ABORTED,
		                       "the NCCL transport was aborted");
	else
		status = enqueue_locked(nccl, &batch);
	batoni_nccl_leave(nccl, &guard);
	return status;
}

/* ---- the driver ---- */

static void
nccl_place(struct batoni_path *path, struct batoni_transfer *transfer)
{
	(void)transfer;
	path->load.in_flight++;
}

static void
nccl_unplace(struct batoni_path *path, struct batoni_transfer *transfer)
{
	(void)transfer;
	path->load.in_flight--;
}

void
batoni_nccl_poll_lower(struct batoni_nccl *nccl)
{
	struct batoni_path *path = &nccl->lower->messages;

	if (path->load.in_flight > 0 && !atomic_load(&nccl->lower_lost))
		path->ops->test(path);
}

/* The lanes' asynchronous errors.  An enqueue that holds the lock sees its own. */
size_t
batoni_nccl_poll(struct batoni_nccl *nccl)
{
	struct batoni_upcalls *upcalls = nccl->base.upcalls;
	uint64_t now = batoni_coarse_ns();
	struct batoni_nccl_lane *lane;
	struct batoni_memory_guard guard;
	char text[256];
	ncclResult_t state;

	if (now - nccl->polled_ns < POLL_NS || atomic_load(&nccl->aborting))
		return 0;
	batoni_nccl_poll_lower(nccl);
	if (batoni_nccl_try_enter(nccl, &guard) != BATON_OK)
		return 0;
	nccl->polled_ns = now;
	/* If an abort has come meanwhile, it has the lanes. */
	state = atomic_load(&nccl->aborting)
	                ? BATONI_NCCL_SUCCESS
	                : batoni_nccl_state(nccl, false, &lane);
	if (state != BATONI_NCCL_SUCCESS && state != BATONI_NCCL_IN_PROGRESS)
		batoni_nccl_describe(nccl->api, lane->comm, state, text,
		                     sizeof(text));
	batoni_nccl_leave(nccl, &guard);
	if (state == BATONI_NCCL_SUCCESS || state == BATONI_NCCL_IN_PROGRESS)
		return 0;
	upcalls->broken(upcalls, BATON_ERR_NCCL, "ncclCommGetAsyncError", (int)state,
	                text);
	return 1;
}

static size_t
nccl_test(struct batoni_path *path)
{
	struct batoni_nccl *nccl = to_nccl(batoni_transport_of(path));

	if (atomic_load(&nccl->aborting))
		return 0;
	return batoni_nccl_self_test(nccl) + batoni_nccl_poll(nccl);
}

/* Answer the sends that peers have abandoned: their buffers may be lent until then. */
static void
nccl_settle(struct batoni_transport *transport)
{
	struct batoni_nccl *nccl = to_nccl(transport);

	if (nccl->checked && !nccl->all_leave && !atomic_load(&nccl->lower_lost))
		batoni_nccl_checked_poll(nccl);
}

static enum baton_status
nccl_leave(struct batoni_transport *transport)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_transport *lower = nccl->lower;
	const char mine = 0;

	if (atomic_load(&nccl->lower_lost))
		return BATON_ERR_ABORTED;
	nccl_settle(transport);
	if (!nccl->all_leave) {
		enum baton_status status = lower->ops->exchanging->exchange(
			lower, WHAT_LEAVE, &mine, sizeof(mine), nccl->words);

		if (status != BATON_OK)
			return status;
	}
	nccl->all_leave = true;
	if (nccl->checked && batoni_nccl_checked_leave(nccl) != BATON_OK)
		return BATON_PENDING;
	return lower->ops->leave(lower);
}

static void
nccl_error_text(struct batoni_transport *transport, int code, char *text,
                size_t size)
{
	const char *words =
		to_nccl(transport)->api->error_text((ncclResult_t)code);

	if (size == 0)
		return;
	text[0] = '\0';
	strncat(text, words ? words : "", size - 1);
}

const struct batoni_path_ops batoni_nccl_path_ops = {
	.name = "the NCCL transport",
	.kinds = BATONI_MESSAGES,
	.stream_issued = &(const struct batoni_stream_issued_ops){
		.fails_in = BATON_ERR_NCCL,
		.enqueue = nccl_enqueue,
	},
	.placing = &(const struct batoni_placing_ops){
		.place = nccl_place,
		.unplace = nccl_unplace,
	},
	.aborting = &(const struct batoni_aborting_ops){.abort = batoni_nccl_abort},
	.test = nccl_test,
};

const struct batoni_transport_ops batoni_nccl_transport_ops = {
	.name = "nccl",
	.id = BATON_TRANSPORT_NCCL,
	.settling = &(const struct batoni_settling_ops){.settle = nccl_settle},
	.leave = nccl_leave,
	.clearing = &(const struct batoni_clearing_ops){.clear = batoni_nccl_clear},
	.close = batoni_nccl_close,
	.locking = &(const struct batoni_locking_ops){.lock = batoni_nccl_lock},
	.texts = &(const struct batoni_text_ops){.error_text = nccl_error_text},
};
