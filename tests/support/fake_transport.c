/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each call of enqueue makes one kernel (fake_parts.h); detached transfers to one peer, or
 * from it, share a lane.  Its moves (one for each transfer) are posted when all callers
 * have reached it; a lane's moves also need the lane to have reached it.
 *
 * A move is numbered at the call, by its place among the moves of its (source,
 * destination) and side.  The two moves of the same number meet, in the order of
 * the numbers, on the device's thread, which copies the bytes.
 *
 * `lock` of the world guards all of it; bytes are copied under it, so that after
 * abort, which takes it, no thread touches the rank's buffers.  It is held while the
 * device is kicked, never while it is called otherwise.  The world and its
 * kernels live until the last rank is closed and the last kernel has left its
 * streams, which may be long after an abort.
 */
#include "fake_transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fake_device.h"
#include "fake_parts.h"
#include "list.h"
#include "log.h"

struct kernel;

struct move {
	struct move *next; /* posted in a pair */
	struct kernel *kernel;
	void *buffer;
	size_t bytes;
	uint64_t number;
	int peer;
	bool sends;
	bool posted;
	bool done;
};

struct kernel {
	struct fake_parts parts; /* must be first */
	struct world *world;
	int rank;
	size_t moves_left;
	size_t n;
	struct move moves[];
};

/* One source and one destination. */
struct pair {
	uint64_t sent, received; /* numbers given out */
	uint64_t met;            /* the number that is due */
	struct move *sends, *receives;
};

struct world {
	pthread_mutex_t lock;
	int size;
	size_t holders; /* ranks not closed, and kernels */
	int leaving;
	bool *aborted;      /* by rank */
	struct pair *pairs; /* source * size + destination */
};

struct fake {
	struct batoni_transport base; /* must be first */
	struct world *world;
	struct batoni_device *device; /* its own open of it */
	bool leaving;
	baton_stream *lanes; /* peer, and size + peer for receives */
};

static struct fake *
to_fake(struct batoni_transport *transport)
{
	return batoni_container_of(transport, struct fake, base);
}

static struct kernel *
to_kernel(struct fake_kernel *base)
{
	return batoni_container_of(base, struct kernel, parts.base);
}

static void
let_go(struct world *world)
{
	bool last;

	pthread_mutex_lock(&world->lock);
	last = --world->holders == 0;
	pthread_mutex_unlock(&world->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&world->lock);
	free(world->aborted);
	free(world->pairs);
	free(world);
}

/* ---- on the device's thread --------------------------------------------- */

static struct pair *
pair_of(const struct move *move)
{
	const struct world *world = move->kernel->world;
	int from = move->sends ? move->kernel->rank : move->peer;
	int to = move->sends ? move->peer : move->kernel->rank;

	return &world->pairs[from * world->size + to];
}

/* Take the posted move of this number, if it is there. */
static struct move *
take_posted(struct move **list, uint64_t number)
{
	struct move *move;

	for (; (move = *list); list = &move->next) {
		if (move->number != number)
			continue;
		*list = move->next;
		return move;
	}
	return NULL;
}

static void
put_posted(struct move **list, struct move *move)
{
	move->next = *list;
	*list = move;
}

static void
end_move(struct move *move)
{
	move->done = true;
	move->kernel->moves_left--;
}

/* Match the due moves that both sides have posted. */
static void
meet_locked(struct pair *pair)
{
	struct move *send, *receive;
	size_t n;

	for (;;) {
		send = take_posted(&pair->sends, pair->met);
		receive = take_posted(&pair->receives, pair->met);
		if (!send || !receive)
			break;
		if (send->bytes != receive->bytes)
			fake_device_violation("transfers of unequal length");
		n = send->bytes < receive->bytes ? send->bytes : receive->bytes;
		if (n > 0)
			memmove(receive->buffer, send->buffer, n);
		end_move(send);
		end_move(receive);
		pair->met++;
		fake_device_kick();
	}
	if (send)
		put_posted(&pair->sends, send);
	if (receive)
		put_posted(&pair->receives, receive);
}

/* Post the moves that sit on these parts, once. */
static void
post_locked(struct kernel *kernel, size_t part, bool all)
{
	for (size_t i = 0; i < kernel->n; i++) {
		struct move *move = &kernel->moves[i];
		struct pair *pair = pair_of(move);

		if (move->posted || (!all && kernel->parts.of[i] != part))
			continue;
		move->posted = true;
		put_posted(move->sends ? &pair->sends : &pair->receives, move);
		meet_locked(pair);
	}
}

static bool
is_over_locked(const struct kernel *kernel, size_t part, bool detached)
{
	if (kernel->world->aborted[kernel->rank])
		return true;
	if (!detached)
		return kernel->moves_left == 0;
	if (part < kernel->parts.callers)
		return true;
	for (size_t i = 0; i < kernel->n; i++) {
		if (kernel->parts.of[i] == part && !kernel->moves[i].done)
			return false;
	}
	return true;
}

static bool
kernel_poll(struct fake_kernel *base, size_t part)
{
	struct kernel *kernel = to_kernel(base);
	struct fake_parts *parts = &kernel->parts;
	struct world *world = kernel->world;
	bool detached = fake_parts_detached(parts);
	bool over, last;

	pthread_mutex_lock(&world->lock);
	fake_parts_arrive(parts, part);
	if (fake_parts_all_arrived(parts) && !world->aborted[kernel->rank] &&
	    (!detached || part >= parts->callers))
		post_locked(kernel, part, !detached);
	over = is_over_locked(kernel, part, detached);
	last = over && fake_parts_leave(parts);
	pthread_mutex_unlock(&world->lock);
	if (last) {
		fake_parts_free(parts);
		let_go(world);
	}
	return over;
}

/* ---- enqueuing ---------------------------------------------------------- */

static enum baton_status
check_transfers(const struct fake *fake, struct batoni_transfer *const *transfers,
                size_t n)
{
	long self = 0;

	for (size_t i = 0; i < n; i++) {
		if (transfers[i]->tag != 0)
			return batoni_refuse(BATON_ERR_UNSUPPORTED,
			                     "the fake transport has no tag %d: "
			                     "0 is allowed",
			                     transfers[i]->tag);
		if (transfers[i]->peer == fake->base.rank)
			self += transfers[i]->direction == BATONI_SEND ? 1 : -1;
	}
	if (self != 0)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "the fake transport sends to the rank "
		                     "itself only with both ends in one group");
	return BATON_OK;
}

static struct kernel *
kernel_create(struct fake *fake, struct batoni_transfer *const *transfers,
              size_t n, const struct batoni_follow *follow)
{
	size_t bytes = sizeof(struct kernel) + n * sizeof(struct move);
	struct fake_parts *parts =
		fake_parts_create(bytes, n, follow, kernel_poll);
	struct kernel *kernel;

	if (!parts)
		return NULL;
	kernel = to_kernel(&parts->base);
	kernel->world = fake->world;
	kernel->rank = fake->base.rank;
	kernel->n = kernel->moves_left = n;
	for (size_t i = 0; i < n; i++) {
		struct move *move = &kernel->moves[i];

		move->kernel = kernel;
		move->buffer = transfers[i]->buffer;
		move->bytes = transfers[i]->bytes;
		move->peer = transfers[i]->peer;
		move->sends = transfers[i]->direction == BATONI_SEND;
	}
	return kernel;
}

static enum baton_status
find_lane(void *owner, const struct batoni_transfer *transfer,
          baton_stream *lane_p)
{
	const struct fake *fake = owner;

	*lane_p = fake->lanes[transfer->direction == BATONI_SEND
	                              ? transfer->peer
	                              : fake->base.size + transfer->peer];
	return BATON_OK;
}

/* Give the moves their numbers, or take them back. */
static void
number(struct kernel *kernel, bool back)
{
	struct world *world = kernel->world;

	pthread_mutex_lock(&world->lock);
	for (size_t i = 0; i < kernel->n; i++) {
		struct pair *pair = pair_of(&kernel->moves[i]);
		uint64_t *next = kernel->moves[i].sends ? &pair->sent
		                                        : &pair->received;

		if (back)
			--*next;
		else
			kernel->moves[i].number = (*next)++;
	}
	world->holders += back ? (size_t)-1 : 1;
	pthread_mutex_unlock(&world->lock);
}

static enum baton_status
fake_enqueue(struct batoni_path *path,
             struct batoni_transfer *const *transfers, size_t n,
             const struct batoni_follow *follow, baton_stream *observe_p)
{
	struct fake *fake = to_fake(batoni_transport_of(path));
	enum baton_status status = check_transfers(fake, transfers, n);
	struct kernel *kernel;

	if (status != BATON_OK)
		return status;
	kernel = kernel_create(fake, transfers, n, follow);
	if (!kernel)
		return BATON_ERR_NOMEM;
	fake_parts_lay_out(&kernel->parts, transfers, n, follow, find_lane, fake,
	                   observe_p);
	number(kernel, false);
	/* From here on the kernel belongs to the device, and may end at once. */
	status = fake_parts_launch(&kernel->parts);
	if (status == BATON_OK)
		return BATON_OK;
	number(kernel, true);
	fake_parts_free(&kernel->parts);
	return status;
}

/* ---- ending ------------------------------------------------------------- */

static bool
fake_abort(struct batoni_path *path)
{
	struct batoni_transport *transport = batoni_transport_of(path);
	struct world *world = to_fake(transport)->world;
	int rank = transport->rank;

	pthread_mutex_lock(&world->lock);
	world->aborted[rank] = true;
	/* The moves that the rank has posted match no others any more. */
	for (int peer = 0; peer < world->size; peer++) {
		world->pairs[rank * world->size + peer].sends = NULL;
		world->pairs[peer * world->size + rank].receives = NULL;
	}
	fake_device_kick();
	pthread_mutex_unlock(&world->lock);
	return true;
}

static enum baton_status
fake_leave(struct batoni_transport *transport)
{
	struct fake *fake = to_fake(transport);
	struct world *world = fake->world;
	bool all;

	pthread_mutex_lock(&world->lock);
	world->leaving += !fake->leaving;
	fake->leaving = true;
	all = world->leaving == world->size;
	pthread_mutex_unlock(&world->lock);
	return all ? BATON_OK : BATON_PENDING;
}

static void
destroy_lanes(struct fake *fake)
{
	struct batoni_device *device = fake->device;

	for (int i = 0; fake->lanes && i < 2 * fake->base.size; i++)
		fake_lane_destroy(device, fake->lanes[i]);
	free(fake->lanes);
}

static void
fake_close(struct batoni_transport *transport, bool aborted)
{
	struct fake *fake = to_fake(transport);
	struct world *world = fake->world;

	(void)aborted;
	fake_abort(&transport->messages);
	destroy_lanes(fake);
	fake->device->ops->close(fake->device);
	free(fake);
	let_go(world);
}

/* What is on streams ends by itself. */
static size_t
fake_test(struct batoni_path *path)
{
	(void)path;
	return 0;
}

static const struct batoni_path_ops messages_ops = {
	.name = "the fake transport",
	.kinds = BATONI_MESSAGES,
	.stream_issued = &(const struct batoni_stream_issued_ops){
		.fails_in = BATON_ERR_NCCL,
		.enqueue = fake_enqueue,
	},
	.aborting = &(const struct batoni_aborting_ops){.abort = fake_abort},
	.test = fake_test,
};

static const struct batoni_transport_ops fake_ops = {
	.name = "fake",
	.id = BATON_TRANSPORT_NCCL,
	.leave = fake_leave,
	.close = fake_close,
};

static struct batoni_transport *
rank_open(struct world *world, int rank)
{
	struct fake *fake = calloc(1, sizeof(*fake));
	int lanes = 2 * world->size;

	if (!fake)
		return NULL;
	fake->world = world;
	fake->base.ops = &fake_ops;
	fake->base.messages.ops = &messages_ops;
	fake->base.rank = rank;
	fake->base.size = world->size;
	fake->base.capabilities = BATON_CAP_DIRECTIONS;
	fake->base.drivers = BATONI_DRIVERS_ANY;
	snprintf(fake->base.library, sizeof(fake->base.library),
	         "fake streams");
	if (batoni_fake_device_ops.open(NULL, &fake->device) != BATON_OK)
		goto free_fake;
	fake->lanes = calloc((size_t)lanes, sizeof(baton_stream));
	if (!fake->lanes)
		goto close_device;
	for (int i = 0; i < lanes; i++) {
		if (batoni_fake_device_ops.stream_create(
			    fake->device, &fake->lanes[i]) != BATON_OK)
			goto destroy_streams;
	}
	world->holders++;
	return &fake->base;

destroy_streams:
	destroy_lanes(fake);
close_device:
	fake->device->ops->close(fake->device);
free_fake:
	free(fake);
	return NULL;
}

static struct world *
world_create(int size)
{
	struct world *world = calloc(1, sizeof(*world));
	size_t n = (size_t)size;

	if (!world)
		return NULL;
	world->aborted = calloc(n, sizeof(*world->aborted));
	world->pairs = calloc(n * n, sizeof(*world->pairs));
	if (!world->aborted || !world->pairs) {
		free(world->aborted);
		free(world->pairs);
		free(world);
		return NULL;
	}
	pthread_mutex_init(&world->lock, NULL);
	world->size = size;
	world->holders = 1; /* while it is being opened */
	return world;
}

enum baton_status
fake_transport_open(int size, struct batoni_transport *transports[])
{
	struct world *world = world_create(size);
	int opened = 0;

	if (!world)
		return BATON_ERR_NOMEM;
	while (opened < size) {
		transports[opened] = rank_open(world, opened);
		if (!transports[opened])
			break;
		opened++;
	}
	for (int rank = 0; rank < opened && opened < size; rank++)
		fake_close(transports[rank], true);
	let_go(world);
	return opened == size ? BATON_OK : BATON_ERR_NOMEM;
}
