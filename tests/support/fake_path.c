/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each call of enqueue makes one kernel (fake_parts.h); each detached transfer has a lane of its
 * own.  A move is over when its put has signaled, or its wait is met.
 *
 * `lock` of the path guards the kernels of its rank and is a leaf but for the device's kick.
 * A kernel frees itself in the poll that ends its last part.
 */
#include "fake_path.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm.h"
#include "core.h"
#include "fake_device.h"
#include "fake_parts.h"
#include "list.h"
#include "log.h"

#define TARGETS_MAX 64

struct fake_path {
	struct batoni_path base; /* must be first */
	struct batoni_onesided *layer;
	struct batoni_device *device; /* its own open of it */
	baton_stream *lanes;          /* by slot; NULL: none yet */
	uint32_t slots;
	pthread_mutex_t lock;
	size_t holders; /* the communicator, and the kernels that the device has */
	bool aborted;
	bool failed;      /* what test will report */
	uint64_t *given;  /* units, by (peer, context, index) */
	uint64_t *called; /* puts, by (peer, context): called, and done */
	uint64_t *done;
};

struct move {
	bool waits, over;
	const void *from;
	size_t bytes;
	uint64_t number; /* of its channel */
	size_t channel;
	size_t n;
	struct batoni_target targets[TARGETS_MAX];
	uint64_t counts[TARGETS_MAX]; /* a wait's: each counter is to reach it */
};

struct kernel {
	struct fake_parts parts; /* must be first */
	struct fake_path *path;
	size_t n;
	struct move moves[];
};

static struct {
	pthread_mutex_t lock;
	enum fake_path_fault fault;
	unsigned faults;
	pthread_cond_t unstuck;
	bool stuck;
} fakes = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .unstuck = PTHREAD_COND_INITIALIZER};

static void let_go(struct fake_path *path);

static struct fake_path *
to_fake(struct batoni_path *path)
{
	return batoni_container_of(path, struct fake_path, base);
}

static struct kernel *
to_kernel(struct fake_kernel *base)
{
	return batoni_container_of(base, struct kernel, parts.base);
}

void
fake_path_fail(enum fake_path_fault fault, unsigned n)
{
	pthread_mutex_lock(&fakes.lock);
	fakes.fault = fault;
	fakes.faults = n;
	pthread_mutex_unlock(&fakes.lock);
}

bool
fake_path_is_stuck(void)
{
	bool stuck;

	pthread_mutex_lock(&fakes.lock);
	stuck = fakes.stuck;
	pthread_mutex_unlock(&fakes.lock);
	return stuck;
}

void
fake_path_unstick(void)
{
	pthread_mutex_lock(&fakes.lock);
	fakes.stuck = false;
	pthread_cond_broadcast(&fakes.unstuck);
	pthread_mutex_unlock(&fakes.lock);
}

static void
be_stuck(void)
{
	pthread_mutex_lock(&fakes.lock);
	fakes.stuck = true;
	while (fakes.stuck)
		pthread_cond_wait(&fakes.unstuck, &fakes.lock);
	pthread_mutex_unlock(&fakes.lock);
}

static enum fake_path_fault
take_fault(void)
{
	enum fake_path_fault fault = FAKE_PATH_SOUND;

	pthread_mutex_lock(&fakes.lock);
	if (fakes.faults) {
		fakes.faults--;
		fault = fakes.fault;
	}
	pthread_mutex_unlock(&fakes.lock);
	return fault;
}

/* ---- on the device's thread ---- */

static bool
is_met(const struct move *move)
{
	for (size_t i = 0; i < move->n; i++) {
		if (atomic_load(move->targets[i].counter) < move->counts[i])
			return false;
	}
	return true;
}

static void
step_locked(struct fake_path *path, struct move *move)
{
	if (move->over)
		return;
	if (move->waits) {
		move->over = is_met(move);
		return;
	}
	if (path->done[move->channel] != move->number)
		return;
	if (move->targets[0].data)
		memcpy(move->targets[0].data, move->from, move->bytes);
	path->layer->ops->beside->signal(path->layer, &move->targets[0]);
	path->done[move->channel]++;
	move->over = true;
	fake_device_kick();
}

/* Is this part of the kernel over? */
static bool
step_part_locked(struct kernel *kernel, size_t part)
{
	bool detached = fake_parts_detached(&kernel->parts);
	bool over = true;

	if (kernel->path->aborted)
		return true;
	if (detached && part < kernel->parts.callers)
		return true;
	if (!fake_parts_all_arrived(&kernel->parts))
		return false;
	for (size_t i = 0; i < kernel->n; i++) {
		struct move *move = &kernel->moves[i];

		if (detached && kernel->parts.of[i] != part)
			continue;
		step_locked(kernel->path, move);
		over &= move->over;
	}
	return over;
}

static bool
kernel_poll(struct fake_kernel *base, size_t part)
{
	struct kernel *kernel = to_kernel(base);
	struct fake_path *path = kernel->path;
	bool over, last;

	pthread_mutex_lock(&path->lock);
	fake_parts_arrive(&kernel->parts, part);
	over = step_part_locked(kernel, part);
	last = over && fake_parts_leave(&kernel->parts);
	pthread_mutex_unlock(&path->lock);
	if (last) {
		fake_parts_free(&kernel->parts);
		let_go(path);
	}
	return over;
}

/* ---- enqueuing ---- */

static size_t
channel_of(const struct fake_path *path, int peer, int context)
{
	return (size_t)peer * (size_t)path->layer->contexts_max +
	       (size_t)context;
}

/* OK; UNSUPPORTED: memory that is not mapped, or too many counters. */
static enum baton_status
fill_move(struct fake_path *path, struct move *move,
          const struct batoni_transfer *transfer)
{
	move->n = path->layer->ops->beside->targets(path->layer, transfer,
	                                    move->targets, TARGETS_MAX);
	if (move->n == 0 || move->n > TARGETS_MAX)
		return BATON_ERR_UNSUPPORTED;
	move->waits = transfer->direction == BATONI_WAIT;
	move->from = transfer->buffer;
	move->bytes = transfer->bytes;
	if (!move->waits)
		move->channel = channel_of(path, transfer->peer, transfer->tag);
	return BATON_OK;
}

/* Give the moves their units and numbers: nothing can fail any more. */
static void
number_locked(struct kernel *kernel)
{
	struct fake_path *path = kernel->path;

	for (size_t i = 0; i < kernel->n; i++) {
		struct move *move = &kernel->moves[i];

		if (!move->waits) {
			move->number = path->called[move->channel]++;
			continue;
		}
		for (size_t t = 0; t < move->n; t++) {
			const struct batoni_target *target = &move->targets[t];
			size_t counter =
				channel_of(path, target->peer,
			                   target->context) *
					(size_t)path->layer->signals_max +
				(size_t)target->signal_index;

			path->given[counter] += target->units;
			move->counts[t] = path->given[counter];
		}
	}
	path->holders++;
}

static enum baton_status
find_lane(void *owner, const struct batoni_transfer *transfer,
          baton_stream *lane_p)
{
	enum baton_status status = BATON_OK;
	struct fake_path *path = owner;
	uint32_t slot = transfer->slot;

	if (!path->lanes[slot])
		status = path->device->ops->stream_create(path->device,
		                                          &path->lanes[slot]);
	*lane_p = path->lanes[slot];
	return status;
}

static enum baton_status
launch(struct fake_path *path, struct batoni_transfer *const *transfers,
       size_t n, const struct batoni_follow *follow, baton_stream *observe_p)
{
	size_t bytes = sizeof(struct kernel) + n * sizeof(struct move);
	struct fake_parts *parts =
		fake_parts_create(bytes, n, follow, kernel_poll);
	enum baton_status status = BATON_ERR_NOMEM;
	struct kernel *kernel;

	if (!parts)
		return status;
	kernel = to_kernel(&parts->base);
	kernel->path = path;
	kernel->n = n;
	status = fake_parts_lay_out(parts, transfers, n, follow, find_lane, path,
	                            observe_p);
	for (size_t i = 0; i < n && status == BATON_OK; i++)
		status = fill_move(path, &kernel->moves[i], transfers[i]);
	if (status != BATON_OK) {
		fake_parts_free(parts);
		return status;
	}
	pthread_mutex_lock(&path->lock);
	number_locked(kernel);
	pthread_mutex_unlock(&path->lock);
	/* The device has room for all parts: the streams are alive. */
	status = fake_parts_launch(parts);
	if (status == BATON_OK)
		return BATON_OK;
	fake_device_violation("a path's kernel was refused");
	fake_parts_free(parts);
	return status;
}

static enum baton_status
fake_enqueue(struct batoni_path *base, struct batoni_transfer *const *transfers,
             size_t n, const struct batoni_follow *follow,
             baton_stream *observe_p)
{
	const struct timespec slow = {.tv_nsec = 20000000};
	struct fake_path *path = to_fake(base);
	enum baton_status status;

	switch (take_fault()) {
	case FAKE_PATH_SLOW:
		nanosleep(&slow, NULL);
		break;
	case FAKE_PATH_STUCK:
		be_stuck();
		break;
	case FAKE_PATH_REFUSES:
		return batoni_refuse(BATON_ERR_AGAIN,
		                     "the fake path refuses it");
	case FAKE_PATH_HALFWAY:
		if (n > 1)
			launch(path, transfers, n / 2, follow, observe_p);
		transfers[0]->native_call = "fakePut";
		transfers[0]->native_code = 600;
		return BATON_ERR_BUSY;
	case FAKE_PATH_LATE:
		status = launch(path, transfers, n, follow, observe_p);
		pthread_mutex_lock(&path->lock);
		path->failed = true;
		pthread_mutex_unlock(&path->lock);
		return status;
	case FAKE_PATH_SOUND:
		break;
	}
	return launch(path, transfers, n, follow, observe_p);
}

/* ---- the other slots ---- */

static void
fake_place(struct batoni_path *base, struct batoni_transfer *transfer)
{
	struct fake_path *path = to_fake(base);

	base->load.in_flight++;
	path->layer->ops->beside->hold(path->layer, transfer);
}

static void
fake_unplace(struct batoni_path *base, struct batoni_transfer *transfer)
{
	struct fake_path *path = to_fake(base);

	base->load.in_flight--;
	path->layer->ops->beside->drop(path->layer, transfer);
}

static size_t
fake_test(struct batoni_path *base)
{
	struct fake_path *path = to_fake(base);
	bool failed;

	pthread_mutex_lock(&path->lock);
	failed = path->failed;
	path->failed = false;
	pthread_mutex_unlock(&path->lock);
	if (failed)
		base->upcalls->broken(base->upcalls, BATON_ERR_CUDA, "fakePut", 700,
		                   "the copy has failed");
	return failed;
}

static bool
fake_abort(struct batoni_path *base)
{
	struct fake_path *path = to_fake(base);

	pthread_mutex_lock(&path->lock);
	path->aborted = true;
	fake_device_kick();
	pthread_mutex_unlock(&path->lock);
	return true;
}

static void
let_go(struct fake_path *path)
{
	bool last;

	pthread_mutex_lock(&path->lock);
	last = --path->holders == 0;
	pthread_mutex_unlock(&path->lock);
	if (!last)
		return;
	pthread_mutex_destroy(&path->lock);
	free(path->given);
	free(path->called);
	free(path->done);
	free(path);
}

static void
fake_close(struct batoni_path *base, bool aborted)
{
	struct fake_path *path = to_fake(base);
	struct batoni_device *device = path->device;

	(void)aborted;
	fake_abort(base);
	for (uint32_t i = 0; i < path->slots; i++)
		fake_lane_destroy(device, path->lanes[i]);
	free(path->lanes);
	device->ops->close(device);
	let_go(path);
}

static const struct batoni_path_ops path_ops = {
	.name = "the fake path",
	.kinds = 1u << BATON_OPERATION_SIGNAL | 1u << BATON_OPERATION_PUT_SIGNAL |
	         1u << BATON_OPERATION_WAIT_SIGNAL,
	.stream_issued = &(const struct batoni_stream_issued_ops){
		.fails_in = BATON_ERR_CUDA,
		.enqueue = fake_enqueue,
	},
	.placing = &(const struct batoni_placing_ops){
		.place = fake_place,
		.unplace = fake_unplace,
	},
	.aborting = &(const struct batoni_aborting_ops){.abort = fake_abort},
	.closing = &(const struct batoni_closing_ops){.close = fake_close},
	.test = fake_test,
};

enum baton_status
fake_path_add(struct baton_comm *comm)
{
	struct fake_path *path = calloc(1, sizeof(*path));
	struct batoni_onesided *layer = comm->onesided;
	size_t channels = (size_t)comm->size * (size_t)layer->contexts_max;

	if (!path)
		return BATON_ERR_NOMEM;
	pthread_mutex_init(&path->lock, NULL);
	path->base.ops = &path_ops;
	path->layer = layer;
	path->holders = 1;
	path->slots = comm->pool.size;
	path->lanes = calloc(path->slots, sizeof(baton_stream));
	path->given = calloc(channels * (size_t)layer->signals_max,
	                     sizeof(*path->given));
	path->called = calloc(channels, sizeof(*path->called));
	path->done = calloc(channels, sizeof(*path->done));
	if (!path->lanes || !path->given || !path->called || !path->done ||
	    batoni_fake_device_ops.open(NULL, &path->device) != BATON_OK) {
		free(path->lanes);
		let_go(path);
		return BATON_ERR_NOMEM;
	}
	batoni_comm_add_path(comm, &path->base);
	return BATON_OK;
}
