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
 * connected.  One more communicator has this rank alone, for messages to itself.  Within a
 * lane messages wait for each other: a send to a peer that does not receive holds up later
 * sends of that lane, to other peers too.
 *
 * On streams.  Operations of one lane are put on the program's streams as they are (a
 * group's on several: NCCL starts them when all streams have got there, and all go on when
 * all are done).  If a group has several lanes, their kernels on one stream would be in an
 * order, which may be another one on the peer, and so a circle.  Then each lane's go on the
 * lane's own stream, behind all streams of the group, and these go on behind all of its
 * lanes.  Detached operations do the same, except that no stream of the program waits.  All
 * of that is by event edges of the device (`follow`), not by words of ours, and needs no
 * look of the host.
 *
 * The end of an operation is seen by the engine's marks (pooled events without timing) on
 * the stream that `enqueue` names.  A join of a stream to an operation waits for the
 * operation's word, which the driver releases at its next look.
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
 *   - what ends kernels by force, or frees, has a thread of its own (nccl_end.c).
 * Order: comm->order, or the driver lock; then the lock of the device; then end_lock.  No
 * lock of the engine is taken under it.
 *
 * States.  Creating (nccl_open.c) -> open -> leaving (all ranks have said so) -> finalizing
 * (NCCL's, of all ranks; polled) -> closed.  Or: open -> aborting (abort: kernels end, and
 * enqueue refuses) -> closed.  An asynchronous error of a lane, found by `test`, and an
 * enqueue that failed half way break the communicator, and so abort it.
 *
 * Refused, since NCCL cannot give it: tags other than 0, messages shorter than the receive,
 * truncation, the end of one operation alone (BATON_CAP_TAGS, _SHORT, _TRUNCATION, _CANCEL
 * are off); memory of the host that is not pinned, memory of another GPU; a message to the
 * rank itself whose other end is not in the same group (BATON_CAP_SELF is off).
 *
 * In checked mode (nccl_checked.c) another path takes the place of this one.
 */
#include <string.h>

#include "clock.h"
#include "list.h"
#include "log.h"
#include "nccl_transport.h"

#include <time.h>

#define LOOK_NS ((uint64_t)1000000) /* between two looks for asynchronous errors */
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
	return 2 * k + ((unsigned)source >> k & 1u);
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

enum baton_status
batoni_nccl_check_memory(const struct batoni_nccl *nccl,
                         const struct batoni_transfer *transfer)
{
	int owner = batoni_place_owner(transfer->place);

	if (transfer->bytes == 0)
		return BATON_OK;
	if (transfer->place == BATONI_MEMORY_HOST)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the buffer is memory of the host that is not "
		                     "pinned: NCCL reaches memory of the GPU, and "
		                     "pinned memory");
	if (owner >= 0 && owner != nccl->device->number)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the buffer is memory of GPU %d; the "
		                     "communicator is on GPU %d, and NCCL reaches "
		                     "no other",
		                     owner, nccl->device->number);
	return BATON_OK;
}

/* The other end of a message to the rank itself: as NCCL will match them.  NULL: it is not
 * there. */
static const struct batoni_transfer *
find_other_end(const struct batoni_nccl *nccl,
               struct batoni_transfer *const *transfers, size_t n, size_t at)
{
	unsigned direction = transfers[at]->direction;
	size_t before = 0;

	for (size_t i = 0; i < at; i++)
		before += transfers[i]->peer == nccl->base.rank &&
		          transfers[i]->direction == direction;
	for (size_t i = 0; i < n; i++) {
		if (transfers[i]->peer != nccl->base.rank ||
		    transfers[i]->direction == direction)
			continue;
		if (before-- == 0)
			return transfers[i];
	}
	return NULL;
}

static enum baton_status
check_self(const struct batoni_nccl *nccl,
           struct batoni_transfer *const *transfers, size_t n, size_t at)
{
	const struct batoni_transfer *other;

	if (transfers[at]->peer != nccl->base.rank)
		return BATON_OK;
	other = find_other_end(nccl, transfers, n, at);
	if (!other)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "NCCL sends to the rank itself only with both "
		                     "ends in one group");
	if (other->bytes != transfers[at]->bytes)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the two ends of a message to the rank itself "
		                     "have %zu and %zu bytes: with NCCL they are "
		                     "equal",
		                     transfers[at]->bytes, other->bytes);
	return BATON_OK;
}

static enum baton_status
check(const struct batoni_nccl *nccl, struct batoni_transfer *const *transfers,
      size_t n)
{
	enum baton_status status = BATON_OK;

	if (atomic_load(&nccl->aborting))
		return batoni_refuse(BATON_ERR_ABORTED,
		                     "the NCCL transport was aborted");
	for (size_t i = 0; i < n && status == BATON_OK; i++) {
		status = batoni_nccl_check_memory(nccl, transfers[i]);
		if (status == BATON_OK)
			status = check_self(nccl, transfers, n, i);
	}
	return status;
}

/* ---- enqueuing, under the lock of the device ---- */

/* How many lanes these use; marks them. */
static unsigned
mark_lanes(struct batoni_nccl *nccl, struct batoni_transfer *const *transfers,
           size_t n)
{
	unsigned used = 0;

	for (unsigned i = 0; i < nccl->lanes_n; i++)
		nccl->lanes[i].used = false;
	for (size_t i = 0; i < n; i++) {
		struct batoni_nccl_lane *lane = lane_of(nccl, transfers[i]);

		used += !lane->used;
		lane->used = true;
	}
	return used;
}

/* Put an edge between the stream and each lane in use, in this direction. */
static enum baton_status
join_lanes(struct batoni_nccl *nccl, baton_stream stream, bool lanes_follow)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	enum baton_status status = BATON_OK;

	for (unsigned i = 0; i < nccl->lanes_n && status == BATON_OK; i++) {
		const struct batoni_nccl_lane *lane = &nccl->lanes[i];

		if (!lane->used)
			continue;
		status = ops->follow(nccl->device,
		                     lanes_follow ? lane->stream : stream,
		                     lanes_follow ? stream : lane->stream);
	}
	return status;
}

/* The same with each stream of the transfers. */
static enum baton_status
join_streams(struct batoni_nccl *nccl, struct batoni_transfer *const *transfers,
             size_t n, bool lanes_follow)
{
	enum baton_status status = BATON_OK;

	for (size_t i = 0; i < n && status == BATON_OK; i++) {
		size_t first = 0;

		while (transfers[first]->stream != transfers[i]->stream)
			first++;
		if (first == i)
			status = join_lanes(nccl, transfers[i]->stream,
			                    lanes_follow);
	}
	return status;
}

static enum baton_status
begin_lanes(struct batoni_nccl *nccl, struct batoni_transfer *const *transfers,
            size_t n, const struct batoni_follow *follow)
{
	enum baton_status status = BATON_OK;

	if (!follow)
		return join_streams(nccl, transfers, n, true);
	for (size_t i = 0; i < follow->count && status == BATON_OK; i++)
		status = join_lanes(nccl, follow->streams[i], true);
	return status;
}

ncclResult_t
batoni_nccl_call(const struct batoni_nccl *nccl,
                 const struct batoni_transfer *transfer, baton_stream stream)
{
	const struct batoni_nccl_lane *lane = lane_of(nccl, transfer);
	int peer = transfer->peer == nccl->base.rank ? 0 : transfer->peer;

	if (transfer->direction == BATONI_SEND)
		return nccl->api->send(transfer->buffer, transfer->bytes,
		                       BATONI_NCCL_INT8, peer, lane->comm,
		                       stream);
	return nccl->api->recv(transfer->buffer, transfer->bytes,
	                       BATONI_NCCL_INT8, peer, lane->comm, stream);
}

/* NCCL puts the work on the streams in the background.  SUCCESS: it is there. */
static ncclResult_t
await(struct batoni_nccl *nccl)
{
	const struct timespec nap = {.tv_nsec = 20000};
	uint64_t limit = batoni_real_ns() + nccl->patience_ns;
	struct batoni_nccl_lane *lane;
	ncclResult_t state;

	for (;;) {
		state = batoni_nccl_state(nccl, true, &lane);
		if (state != BATONI_NCCL_IN_PROGRESS)
			return state;
		if (atomic_load(&nccl->aborting) || batoni_real_ns() > limit)
			return state;
		nanosleep(&nap, NULL);
	}
}

/* All in one group.  SUCCESS: they are on their streams.  *call_p: what has failed. */
static ncclResult_t
put_all(struct batoni_nccl *nccl, struct batoni_transfer *const *transfers,
        size_t n, bool on_lanes, baton_stream *observe_p, const char **call_p)
{
	ncclResult_t result;

	*call_p = "ncclGroupStart";
	result = nccl->api->group_start();
	if (result != BATONI_NCCL_SUCCESS)
		return result;
	for (size_t i = 0; i < n; i++) {
		observe_p[i] = on_lanes ? lane_of(nccl, transfers[i])->stream
		                        : transfers[i]->stream;
		batoni_nccl_call(nccl, transfers[i], observe_p[i]);
	}
	*call_p = "ncclGroupEnd";
	result = nccl->api->group_end();
	return result == BATONI_NCCL_IN_PROGRESS ? await(nccl) : result;
}

static enum baton_status
enqueue_locked(struct batoni_nccl *nccl,
               struct batoni_transfer *const *transfers, size_t n,
               const struct batoni_follow *follow, baton_stream *observe_p)
{
	bool on_lanes = mark_lanes(nccl, transfers, n) > 1 || follow;
	enum baton_status status = BATON_OK;
	const char *failed = "an event between streams";
	ncclResult_t result;

	if (on_lanes)
		status = begin_lanes(nccl, transfers, n, follow);
	/* The lanes' streams may wait for one more point in time: nothing is lost. */
	if (status != BATON_OK)
		return status;
	result = put_all(nccl, transfers, n, on_lanes, observe_p, &failed);
	if (result == BATONI_NCCL_SUCCESS && on_lanes && !follow) {
		failed = "an event between streams";
		status = join_streams(nccl, transfers, n, false);
	}
	if (result == BATONI_NCCL_SUCCESS && status == BATON_OK)
		return BATON_OK;
	transfers[0]->native_call = failed;
	transfers[0]->native_code = (int)result;
	return BATON_ERR_BUSY;
}

static enum baton_status
nccl_enqueue(struct batoni_path *path, struct batoni_transfer *const *transfers,
             size_t n, const struct batoni_follow *follow,
             baton_stream *observe_p)
{
	struct batoni_nccl *nccl = to_nccl(batoni_transport_of(path));
	struct batoni_memory_guard guard;
	enum baton_status status = check(nccl, transfers, n);

	if (status != BATON_OK)
		return status;
	status = batoni_nccl_enter(nccl, &guard,
	                           batoni_real_ns() + nccl->patience_ns);
	if (status != BATON_OK)
		return status;
	/* An abort that came meanwhile has the lanes. */
	if (atomic_load(&nccl->aborting))
		status = batoni_refuse(BATON_ERR_ABORTED,
		                       "the NCCL transport was aborted");
	else
		status = enqueue_locked(nccl, transfers, n, follow, observe_p);
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
batoni_nccl_look_below(struct batoni_nccl *nccl)
{
	struct batoni_path *path = &nccl->below->messages;

	if (path->load.in_flight > 0 && !atomic_load(&nccl->below_lost))
		path->ops->test(path);
}

/* The lanes' asynchronous errors.  An enqueue that holds the lock sees its own. */
size_t
batoni_nccl_look(struct batoni_nccl *nccl)
{
	struct batoni_host *host = nccl->base.host;
	uint64_t now = batoni_coarse_ns();
	struct batoni_nccl_lane *lane;
	struct batoni_memory_guard guard;
	char text[256];
	ncclResult_t state;

	if (now - nccl->looked_ns < LOOK_NS || atomic_load(&nccl->aborting))
		return 0;
	batoni_nccl_look_below(nccl);
	if (batoni_nccl_try_enter(nccl, &guard) != BATON_OK)
		return 0;
	nccl->looked_ns = now;
	state = batoni_nccl_state(nccl, false, &lane);
	if (state != BATONI_NCCL_SUCCESS && state != BATONI_NCCL_IN_PROGRESS)
		batoni_nccl_describe(nccl->api, lane->comm, state, text,
		                     sizeof(text));
	batoni_nccl_leave(nccl, &guard);
	if (state == BATONI_NCCL_SUCCESS || state == BATONI_NCCL_IN_PROGRESS)
		return 0;
	host->broken(host, BATON_ERR_NCCL, "ncclCommGetAsyncError", (int)state,
	             text);
	return 1;
}

static size_t
nccl_test(struct batoni_path *path)
{
	return batoni_nccl_look(to_nccl(batoni_transport_of(path)));
}

static enum baton_status
nccl_leave(struct batoni_transport *transport)
{
	struct batoni_nccl *nccl = to_nccl(transport);
	struct batoni_transport *below = nccl->below;
	const char mine = 0;

	if (atomic_load(&nccl->below_lost))
		return BATON_ERR_ABORTED;
	if (nccl->checked && !nccl->all_leave)
		batoni_nccl_checked_poll(nccl);
	if (!nccl->all_leave) {
		enum baton_status status = below->ops->exchange(
			below, WHAT_LEAVE, &mine, sizeof(mine), nccl->statuses);

		if (status != BATON_OK)
			return status;
	}
	nccl->all_leave = true;
	if (nccl->checked && batoni_nccl_checked_leave(nccl) != BATON_OK)
		return BATON_PENDING;
	return below->ops->leave(below);
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
	.stream_issued = true,
	.kinds = BATONI_MESSAGES,
	.place = nccl_place,
	.unplace = nccl_unplace,
	.test = nccl_test,
	.enqueue = nccl_enqueue,
	.abort = batoni_nccl_abort,
};

const struct batoni_transport_ops batoni_nccl_transport_ops = {
	.name = "nccl",
	.id = BATON_TRANSPORT_NCCL,
	.leave = nccl_leave,
	.clear = batoni_nccl_clear,
	.close = batoni_nccl_close,
	.lock = batoni_nccl_lock,
	.error_text = nccl_error_text,
};
