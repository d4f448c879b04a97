/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Messages of a rank to itself.
 *
 * NCCL carries one out only with both ends in one group.  Here they may come in separate
 * calls, on any streams, in either order.  The ends match in the order of the calls.  The first
 * one that comes is *kept*; the second brings it along into a group of NCCL's.  (Only one
 * direction can have kept ends at a time: else they would have matched.)
 *
 * Streams.  A kept end is on three of them:
 *   gather     runs behind the streams of the call; a mark there (`armed`) says that they have
 *              all got to it;
 *   waits      waits until the word has grown to the number of this end;
 *   the call's streams, if it is not detached, run behind that wait.
 * The group that has both ends is on the stream of the lane, behind the mark, and behind the
 * streams of the second call.  It has nothing else: of two ends that were kept, the second may be
 * on a stream that waits for the first.  A second mark (`done`) is behind it.  The driver polls
 * this mark and lets the word grow.  So the first end's stream goes on at a poll of the
 * host; the second
 * end's, and those of a group with both, need none.
 *
 * Order.  Numbers begin at 1 and are given in the order of the calls.  NCCL carries out the
 * groups of the lane in series, so ends of one number after the other are done, and one word
 * serves all.
 *
 * Threads.  Enqueuers, under the order lock of the communicator: `direction`, `matched`, and the
 * fields of an end until `launched` has passed it.  The driver: `released`, and `done` of the ends
 * up to `launched`.  The device: `passed`.  An end's entry in the ring is used again when
 * `waits` has passed it.
 *
 * By force: the word grows to the last number, so that all streams go on; what was not launched
 * never is.  What was launched is ended with the lane, and first the word waits for it, for the time that
 * the abort gives.  A group that is over by then has left its buffers; of one that is behind work of the
 * program the kept end's mark does not say that: that end is not lent (semantics.md).
 *
 * Why not a copy of the device in place of NCCL's group: a copy that is on a stream cannot be taken back,
 * and once an abort has returned, the path touches no buffer (path.h).  All but the group would stay.
 */
#include "clock.h"
#include "list.h"
#include "log.h"
#include "mem.h"
#include "nccl_transport.h"

/* A stream of CUDA has about 1,000 entries; each end takes about five of `waits`. */
#define KEPT_MAX 128u

struct kept {
	struct batoni_stream_item item; /* the wait */
	struct batoni_nccl_self *self;
	void *buffer;
	size_t bytes;
	struct batoni_mark armed, done;
};

struct batoni_nccl_self {
	/* Immutable. */
	baton_stream gather, waits;
	_Atomic uint64_t *word;
	/* Order lock. */
	unsigned direction; /* of the ends that have no other end yet */
	uint64_t matched;
	/* Numbers of the last end that was kept (order lock; the driver reads it), put on
	 * the lane's stream with its other end (release: its `done` is set), let go (driver),
	 * passed by its stream. */
	_Atomic uint64_t kept, launched, released, passed;
	struct kept ring[KEPT_MAX];
};

static struct kept *
kept_of(struct batoni_nccl_self *self, uint64_t number)
{
	return &self->ring[(number - 1) % KEPT_MAX];
}

/* ---- life ---- */

enum baton_status
batoni_nccl_self_make(struct batoni_nccl *nccl)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	enum baton_status status;

	nccl->self = batoni_alloc(1, sizeof(*nccl->self));
	if (!nccl->self)
		return BATON_ERR_NOMEM;
	status = batoni_nccl_stream_make(nccl, false, &nccl->self->gather);
	if (status == BATON_OK)
		status = batoni_nccl_stream_make(nccl, false,
		                                 &nccl->self->waits);
	if (status == BATON_OK)
		status = ops->words_alloc(nccl->device, 1,
		                          nccl->config.until_ns,
		                          &nccl->self->word);
	return status;
}

/* The device is done with the word and the ends. */
static bool
is_free(struct batoni_nccl *nccl)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	struct batoni_nccl_self *self = nccl->self;
	enum baton_status status;

	if (atomic_load(&self->passed) != atomic_load(&self->kept))
		return false;
	status = self->word ? ops->words_free(nccl->device, self->word)
	                    : BATON_OK;
	if (status == BATON_ERR_BUSY)
		return false;
	/* UNSUPPORTED: they stay allocated, as the engine's do. */
	self->word = NULL;
	return true;
}

/* Let all streams go on. */
static void
let_all_go(struct batoni_nccl *nccl)
{
	struct batoni_nccl_self *self = nccl->self;
	uint64_t last = atomic_load(&self->kept);

	if (atomic_load(&self->released) >= last)
		return;
	atomic_store(&self->released, last);
	nccl->device->ops->release(nccl->device, self->word, last);
}

void
batoni_nccl_self_free(struct batoni_nccl *nccl)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	struct batoni_nccl_self *self = nccl->self;

	if (!self)
		return;
	nccl->self = NULL;
	for (unsigned i = 0; i < KEPT_MAX; i++) {
		if (self->ring[i].armed.object)
			ops->marks->mark_drop(nccl->device,
			                      &self->ring[i].armed);
		if (self->ring[i].done.object)
			ops->marks->mark_drop(nccl->device,
			                      &self->ring[i].done);
	}
	if (self->word)
		ops->words_free(nccl->device, self->word);
	if (self->waits)
		ops->stream_destroy(nccl->device, self->waits);
	if (self->gather)
		ops->stream_destroy(nccl->device, self->gather);
	batoni_free(self);
}

void
batoni_nccl_self_close(struct batoni_nccl *nccl)
{
	struct batoni_patience *patience = nccl->base.patience;

	let_all_go(nccl);
	for (unsigned tries = 0; !is_free(nccl); tries++) {
		if (batoni_real_ns() >= patience->until_ns) {
			patience->copies_left = true;
			batoni_mem_keep(1);
			nccl->self = NULL;
			return;
		}
		patience->yield(tries);
	}
	batoni_nccl_self_free(nccl);
}

/* ---- matching ---- */

/* The ends of one direction, in their order: those that are kept, then those of the call. */
struct cursor {
	unsigned direction;
	uint64_t number; /* of the next one that is kept */
	uint64_t last;   /* of those */
	size_t at;       /* the next transfer to try */
};

static struct cursor
cursor_of(const struct batoni_nccl_self *self, unsigned direction)
{
	const uint64_t kept = atomic_load(&self->kept);

	return (struct cursor){
		.direction = direction,
		.number = direction == self->direction ? self->matched + 1
		                                       : kept + 1,
		.last = kept,
	};
}

/* False: there is none left. */
static bool
next_end(const struct batoni_nccl *nccl, struct batoni_transfer *const *transfers,
         size_t n, struct cursor *cursor, size_t *bytes_p)
{
	if (cursor->number <= cursor->last) {
		*bytes_p = kept_of(nccl->self, cursor->number++)->bytes;
		return true;
	}
	while (cursor->at < n) {
		const struct batoni_transfer *transfer =
			transfers[cursor->at++];

		if (!batoni_nccl_is_self(nccl, transfer) ||
		    transfer->direction != cursor->direction)
			continue;
		*bytes_p = transfer->bytes;
		return true;
	}
	return false;
}

static enum baton_status
refuse_sizes(size_t sent, size_t received)
{
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "the two ends of a message to the rank itself have "
	                     "%zu and %zu bytes (send, recv): with NCCL they are "
	                     "equal",
	                     sent, received);
}

static enum baton_status
refuse_full(void)
{
	return batoni_refuse(BATON_ERR_AGAIN,
	                     "%u messages to the rank itself wait for their other "
	                     "ends, which is the most; give those first",
	                     KEPT_MAX);
}

static bool
has_self(const struct batoni_nccl *nccl,
         struct batoni_transfer *const *transfers, size_t n)
{
	size_t i = 0;

	while (i < n && !batoni_nccl_is_self(nccl, transfers[i]))
		i++;
	return i < n;
}

enum baton_status
batoni_nccl_self_match(const struct batoni_nccl *nccl,
                       struct batoni_transfer *const *transfers, size_t n,
                       struct batoni_nccl_match *match)
{
	struct batoni_nccl_self *self = nccl->self;
	size_t sent, received, pairs = 0, left = 0;
	struct cursor sends, recvs;
	uint64_t before;

	*match = (struct batoni_nccl_match){.from = self->direction};
	if (!has_self(nccl, transfers, n))
		return BATON_OK;
	sends = cursor_of(self, BATONI_SEND);
	recvs = cursor_of(self, BATONI_RECV);
	before = atomic_load(&self->kept) - self->matched;
	for (;;) {
		bool has_send = next_end(nccl, transfers, n, &sends, &sent);
		bool has_recv = next_end(nccl, transfers, n, &recvs, &received);

		if (!has_send && !has_recv)
			break;
		if (has_send && has_recv && sent != received)
			return refuse_sizes(sent, received);
		pairs += has_send && has_recv;
		left += has_send != has_recv;
		if (has_send != has_recv)
			match->keeps = has_send ? BATONI_SEND : BATONI_RECV;
	}
	match->pairs = pairs;
	match->takes = pairs < before ? pairs : (size_t)before;
	/* What stays kept is no news. */
	match->left = left - (size_t)(before - match->takes);
	if (match->left > 0 && match->left + atomic_load(&self->kept) -
	                                       atomic_load(&self->passed) >
	                               KEPT_MAX)
		return refuse_full();
	return BATON_OK;
}

enum batoni_nccl_role
batoni_nccl_self_role(const struct batoni_nccl_match *match,
                      const struct batoni_transfer *transfer, size_t index)
{
	bool of_kept = transfer->direction == match->from;
	size_t begins = of_kept ? match->pairs - match->takes : match->pairs;

	if (index >= begins)
		return BATONI_NCCL_KEPT;
	return !of_kept && index < match->takes ? BATONI_NCCL_TAKES
	                                        : BATONI_NCCL_CALLED;
}

/* ---- enqueuing, under the lock of the device ---- */

enum baton_status
batoni_nccl_self_gather(struct batoni_nccl *nccl, baton_stream stream)
{
	return nccl->device->ops->events->follow(nccl->device,
	                                         nccl->self->gather, stream);
}

enum baton_status
batoni_nccl_self_hold(struct batoni_nccl *nccl, baton_stream stream)
{
	return nccl->device->ops->events->follow(nccl->device, stream,
	                                         nccl->self->waits);
}

enum baton_status
batoni_nccl_self_take(struct batoni_nccl *nccl, baton_stream lane)
{
	const struct kept *kept =
		kept_of(nccl->self, nccl->self->matched + 1);

	/* Ends that are kept are few: KEPT_MAX. */
	return nccl->device->ops->events->mark_follow(nccl->device, lane,
	                                              &kept->armed, false);
}

void
batoni_nccl_self_taken(const struct batoni_nccl *nccl, void **buffer_p,
                       size_t *bytes_p)
{
	const struct kept *kept =
		kept_of(nccl->self, nccl->self->matched + 1);

	*buffer_p = kept->buffer;
	*bytes_p = kept->bytes;
}

enum baton_status
batoni_nccl_self_launched(struct batoni_nccl *nccl, baton_stream lane)
{
	struct batoni_nccl_self *self = nccl->self;
	enum baton_status status = nccl->device->ops->marks->mark(
		nccl->device, lane, &kept_of(self, self->matched + 1)->done);

	if (status == BATON_OK)
		atomic_store(&self->launched, ++self->matched);
	return status;
}

static void
on_passed(struct batoni_stream_item *item)
{
	const struct kept *kept =
		batoni_container_of(item, struct kept, item);

	atomic_fetch_add(&kept->self->passed, 1);
}

static enum baton_status
keep_end(struct batoni_nccl *nccl, const struct batoni_transfer *transfer)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	struct batoni_nccl_self *self = nccl->self;
	uint64_t number = atomic_load(&self->kept) + 1;
	struct kept *kept = kept_of(self, number);
	enum baton_status status =
		ops->marks->mark(nccl->device, self->gather, &kept->armed);

	if (status != BATON_OK)
		return status;
	kept->self = self;
	kept->buffer = transfer->buffer;
	kept->bytes = transfer->bytes;
	kept->item = (struct batoni_stream_item){
		.reached = on_passed,
		.word = self->word,
		.value = number,
		.flags = BATONI_ITEM_WAIT_FIRST,
	};
	status = ops->enqueue(nccl->device, self->waits, &kept->item);
	if (status == BATON_OK)
		atomic_store(&self->kept, number);
	return status;
}

/* Does `waits` take the items of all that are left?  The one behind the first could not be refused. */
static enum baton_status
check_room(const struct batoni_nccl *nccl, size_t left)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	const struct batoni_need need = {
		.entries = BATONI_ITEM_ENTRIES * (uint32_t)left};

	if (left < 2 || !ops->bounds)
		return BATON_OK;
	if (ops->bounds->holds(&need) != BATON_OK)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%zu messages to the rank itself that have "
		                     "not their other ends are more than a stream "
		                     "takes in one group",
		                     left);
	return batoni_device_ask_room(nccl->device, nccl->self->waits, &need);
}

enum baton_status
batoni_nccl_self_keep(struct batoni_nccl *nccl,
                      const struct batoni_nccl_match *match,
                      struct batoni_transfer *const *transfers, size_t n,
                      baton_stream *observe_p)
{
	enum baton_status room = check_room(nccl, match->left);
	size_t index = 0, kept = 0;

	if (room != BATON_OK)
		return room;
	for (size_t i = 0; i < n && kept < match->left; i++) {
		enum baton_status status;

		if (!batoni_nccl_is_self(nccl, transfers[i]) ||
		    transfers[i]->direction != match->keeps ||
		    batoni_nccl_self_role(match, transfers[i], index++) !=
		            BATONI_NCCL_KEPT)
			continue;
		status = keep_end(nccl, transfers[i]);
		if (status != BATON_OK)
			return kept > 0 ? BATON_ERR_BUSY : status;
		observe_p[i] = nccl->self->waits;
		kept++;
	}
	if (kept > 0)
		nccl->self->direction = match->keeps;
	return BATON_OK;
}

/* ---- the driver ---- */

size_t
batoni_nccl_self_test(struct batoni_nccl *nccl)
{
	const struct batoni_device_ops *ops = nccl->device->ops;
	struct batoni_nccl_self *self = nccl->self;
	uint64_t before = atomic_load(&self->released), number = before;
	uint64_t launched = atomic_load(&self->launched);

	/* A device that cannot tell is asked again; if it has failed, the engine sees that. */
	while (number < launched &&
	       ops->marks->mark_done(nccl->device,
	                             &kept_of(self, number + 1)->done) ==
	               BATON_OK)
		number++;
	if (number == before)
		return 0;
	atomic_store(&self->released, number);
	ops->release(nccl->device, self->word, number);
	return 1;
}

bool
batoni_nccl_self_stop(struct batoni_nccl *nccl, uint64_t until_ns)
{
	struct batoni_nccl_self *self = nccl->self;

	batoni_nccl_self_test(nccl);
	if (atomic_load(&self->released) < atomic_load(&self->launched) &&
	    batoni_real_ns() < until_ns)
		return false;
	let_all_go(nccl);
	return true;
}
