/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: options, the two steps of building one, destroy and abort.
 *
 * destroy drains: it waits for this rank's operations, then leaves the transport
 * together with the other ranks.  It retries each step under the driver lock until the
 * deadline; after a timeout the communicator is unchanged.  abort ends everything at
 * once, on this rank alone; a later destroy waits for no other rank.  It waits for an
 * asynchronous device, but only for GRACE_NS (leave.c): the device may be stuck or sick.
 * What such a device may still touch is then never freed.
 *
 * Request handles are looked up in the table of communicators.  Each index keeps the
 * generation that its next communicator starts from, so that a handle of a destroyed
 * communicator never matches a new one.
 */
#include "core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "announce.h"
#include "config.h"
#include "creation.h"
#include "crowd.h"
#include "dump.h"
#include "engine.h"
#include "engine_thread.h"
#include "group.h"
#include "health.h"
#include "launcher.h"
#include "leave.h"
#include "life.h"
#include "liveness.h"
#include "log.h"
#include "mem.h"
#include "nvtx.h"
#include "open_native.h"
#include "place.h"
#include "registry.h"
#include "sized.h"
#include "sweep.h"
#include "tensor_calls.h"
#include "tensor_store.h"
#include "testing.h"
#include "wake.h"

/* How long a creation waits for what is on streams, if its options name no limit. */
#define PATIENCE_NS INT64_C(10000000000)
/* Of staging below a native transport, in each direction. */
#define NATIVE_CHUNKS 4u

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static bool taken[BATONI_COMMS_MAX];           /* under table_lock */
static uint32_t generations[BATONI_COMMS_MAX]; /* under table_lock */
static struct batoni_handles handles = BATONI_HANDLES(baton_comm);
static struct baton_comm *kept; /* under table_lock: see keep_for_device */

/* ---- options ---- */

void
batoni_comm_plan_on(struct batoni_comm_plan *plan,
                    const struct batoni_device_ops *device)
{
	plan->device = device->id;
	plan->device_ops = device;
	plan->stages = !device->memory->host_only;
}

/* The device that the thread works on, unless the options name one. */
static enum baton_status
plan_number(struct batoni_comm_plan *plan)
{
	if (plan->device_config.cuda_device >= 0)
		return BATON_OK;
	return plan->device_ops->current(&plan->device_config.cuda_device);
}

/* What the environment says that AUTO is. */
static const struct batoni_device_ops *
default_device(void)
{
	const struct batoni_native_ops *native = batoni_native_layer();
	const struct batoni_config *config = batoni_config();

	if (*config->device)
		return batoni_device_named(config->device);
	/* Asking for a native transport means its device. */
	if (strcmp(config->transport, native->name) == 0)
		return batoni_device_of_native(native->id);
	return batoni_device_find(BATON_DEVICE_HOST);
}

static enum baton_status
plan_device(enum baton_device asked, struct batoni_comm_plan *plan)
{
	const struct batoni_device_ops *ops =
		asked == BATON_DEVICE_AUTO ? default_device()
	                                   : batoni_device_find(asked);
	char list[160];

	if (!ops) {
		batoni_device_list(list, sizeof(list));
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->device is %d; it takes "
		                     "BATON_DEVICE_AUTO (0), %s",
		                     (int)asked, list);
	}
	if (!batoni_device_is_whole(ops))
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "%s%s: the %s device of this build of Baton "
		                     "%s is not complete (the log says what it "
		                     "lacks); use BATON_DEVICE_HOST",
		                     asked == BATON_DEVICE_AUTO
		                             ? "the environment asks for "
		                             : "options->device is ",
		                     ops->constant, ops->name, baton_version());
	batoni_comm_plan_on(plan, ops);
	return plan_number(plan);
}

/* What the environment says holds for AUTO, on the device that it is about. */
static void
plan_transport(struct batoni_comm_plan *plan)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (plan->transport == BATON_TRANSPORT_AUTO &&
	    plan->device_ops->native == native->id &&
	    strcmp(batoni_config()->transport, native->name) == 0)
		plan->transport = native->id;
	plan->onesided = true;
}

static enum baton_status
check_transport(const struct batoni_comm_plan *plan)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (plan->transport == BATON_TRANSPORT_AUTO ||
	    plan->transport == BATON_TRANSPORT_LOCAL ||
	    plan->transport == BATON_TRANSPORT_MPI ||
	    batoni_plan_is_native(plan))
		return BATON_OK;
	if (plan->transport == native->id)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "options->transport is %s, which moves %s: "
		                     "it needs %s",
		                     native->constant, native->moves,
		                     native->needs);
	return batoni_refuse(BATON_ERR_INVALID,
	                     "options->transport is %d; it takes "
	                     "BATON_TRANSPORT_AUTO, _LOCAL, _MPI (0 to 2) or "
	                     "%s (%d)",
	                     (int)plan->transport, native->constant,
	                     (int)native->id);
}

static const struct baton_comm_options defaults = BATON_COMM_OPTIONS_INIT;

static const struct batoni_sized sized_options = {
	.name = "options",
	.size_name = "options->size",
	.advice = "use BATON_COMM_OPTIONS_INIT",
	.smallest = BATONI_SIZED_UNTIL(struct baton_comm_options, timeout_ns),
	.bytes = sizeof(struct baton_comm_options),
	.defaults = &defaults,
	.reserved = {BATONI_RESERVED(struct baton_comm_options, reserved)},
};

enum baton_status
batoni_comm_plan(const struct baton_comm_options *options,
                 struct batoni_comm_plan *plan_p)
{
	struct baton_comm_options room;
	enum baton_status status;

	options = options ? batoni_sized_take(&sized_options, NULL, options, &room)
	                  : &defaults;
	if (!options)
		return BATON_ERR_INVALID;
	if (options->requests_max > BATON_REQUESTS_MAX_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->requests_max is %u; it takes 1 to "
		                     "%u, or 0 for %u",
		                     options->requests_max,
		                     BATON_REQUESTS_MAX_LIMIT,
		                     BATON_REQUESTS_MAX_DEFAULT);
	if (options->signals_max < 0 ||
	    options->signals_max > BATON_SIGNALS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->signals_max is %d; it takes 1 to "
		                     "%d, or 0 for %d",
		                     options->signals_max, BATON_SIGNALS_LIMIT,
		                     BATON_SIGNALS_MAX_DEFAULT);
	if (options->contexts_max < 0 ||
	    options->contexts_max > BATON_CONTEXTS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->contexts_max is %d; it takes 1 to "
		                     "%d, or 0 for %d",
		                     options->contexts_max,
		                     BATON_CONTEXTS_LIMIT,
		                     BATON_CONTEXTS_MAX_DEFAULT);
	if (options->tensors_max > BATON_TENSORS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->tensors_max is %u; it takes 1 to "
		                     "%u, or 0 for %u",
		                     options->tensors_max, BATON_TENSORS_LIMIT,
		                     BATON_TENSORS_MAX_DEFAULT);
	if (options->cuda_device < -1)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->cuda_device is %d; it takes the "
		                     "number of a device, or -1",
		                     options->cuda_device);
	if ((unsigned)options->progress > BATON_PROGRESS_CALLS)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->progress is %d; it takes "
		                     "BATON_PROGRESS_AUTO, _THREAD or _CALLS (0 "
		                     "to 2)",
		                     (int)options->progress);
	if (options->nccl_lanes < 0 ||
	    options->nccl_lanes > BATON_NCCL_LANES_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->nccl_lanes is %d; it takes 1 to "
		                     "%d, or 0 for as many as are of use",
		                     options->nccl_lanes,
		                     BATON_NCCL_LANES_LIMIT);
	if (options->nccl_ctas < 0 || options->nccl_ctas > BATON_NCCL_CTAS_LIMIT)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "options->nccl_ctas is %d; it takes 1 to "
		                     "%d, or 0 for half of the GPU among all lanes",
		                     options->nccl_ctas, BATON_NCCL_CTAS_LIMIT);
	*plan_p = (struct batoni_comm_plan){
		.transport = options->transport,
		.requests_max = options->requests_max
		                        ? options->requests_max
		                        : BATON_REQUESTS_MAX_DEFAULT,
		.signals_max = options->signals_max
		                       ? options->signals_max
		                       : BATON_SIGNALS_MAX_DEFAULT,
		.contexts_max = options->contexts_max
		                        ? options->contexts_max
		                        : BATON_CONTEXTS_MAX_DEFAULT,
		.nccl_lanes = options->nccl_lanes
		                      ? options->nccl_lanes
		                      : (int)batoni_config()->nccl_lanes,
		.nccl_ctas = options->nccl_ctas
		                     ? options->nccl_ctas
		                     : (int)batoni_config()->nccl_ctas,
		.nccl_lists = options->nccl_lists || batoni_config()->nccl_lists,
		.tensors_max = options->tensors_max
		                       ? options->tensors_max
		                       : BATON_TENSORS_MAX_DEFAULT,
		.timeout_ns = options->timeout_ns > 0 ? options->timeout_ns : 0,
		.progress = options->progress,
		.timestamps = options->timestamps,
		.check = options->check || batoni_config()->check,
		.device_config = {.cuda_device = options->cuda_device,
		                  .host_rank = batoni_launcher_host_rank()},
	};
	plan_p->requests_most = plan_p->requests_max;
	status = plan_device(options->device, plan_p);
	if (status != BATON_OK)
		return status;
	plan_transport(plan_p);
	return check_transport(plan_p);
}

/* ---- building ---- */

/* Those of requests, which the one-sided layer's follow, and its own. */
static uint64_t
layer_slots(const struct batoni_comm_plan *plan, uint32_t requests)
{
	return requests + batoni_onesided_slots(plan->size, plan->contexts_max);
}

/* A native transport's follow those of the layer. */
static uint64_t
upper_slots(const struct batoni_comm_plan *plan, uint32_t requests)
{
	if (batoni_plan_is_native(plan))
		return (plan->onesided ? layer_slots(plan, requests) : 0) +
		       batoni_native_layer()->slots(plan->size);
	return plan->onesided ? layer_slots(plan, requests) : requests;
}

uint32_t
batoni_comm_native_slot(const struct batoni_comm_plan *plan)
{
	return plan->onesided
	               ? (uint32_t)layer_slots(plan, plan->requests_max)
	               : 0;
}

/* A device whose streams are to store into the counters of ranks of other processes, or NULL. */
static struct batoni_device *
find_storing(const struct baton_comm *comm)
{
	const struct batoni_device_ops *ops = comm->device_ops;

	if (batoni_config()->engine_puts ||
	    batoni_config()->window_path == BATON_WINDOW_PATH_MESSAGE ||
	    !ops->puts || !ops->memory->pins ||
	    ops->puts->why_no_puts(comm->device))
		return NULL;
	return comm->device;
}

/* Of the transport that the engine sees, or that a native one lies over. */
static struct batoni_transport_config
upper_config(const struct batoni_comm_plan *plan, const struct baton_comm *comm)
{
	/* check_slots has found that it fits. */
	struct batoni_transport_config config = {
		.device = comm->device,
		.apart = plan->apart,
		/* A native one's own messages, and those below it, are none of the program's. */
		.check = plan->check && !batoni_plan_is_native(plan),
		.slots = (uint32_t)upper_slots(plan, plan->requests_max),
		.slots_most = (uint32_t)upper_slots(plan, plan->requests_most),
		.until_ns = comm->patience.until_ns,
	};

	if (!plan->onesided)
		return config;
	config.hidden_tags = batoni_onesided_tags(plan->contexts_max);
	config.segment_bytes = batoni_onesided_segment_bytes(
		plan->size, plan->signals_max, plan->contexts_max);
	config.part_at = batoni_onesided_head_bytes(plan->size);
	config.part_bytes = batoni_onesided_source_bytes(plan->signals_max,
	                                                 plan->contexts_max);
	config.stores = find_storing(comm);
	return config;
}

/* Of this process; other ranks may have other chunks. */
static struct batoni_staging_config
staging_config(const struct batoni_comm_plan *plan)
{
	struct batoni_staging_config config = batoni_staging_layer()->defaults;
	const struct batoni_config *environment = batoni_config();

	/* Puts by message alone go this way. */
	if (batoni_plan_is_native(plan))
		config.chunks = NATIVE_CHUNKS;
	if (environment->staging_chunk)
		config.chunk_bytes = environment->staging_chunk;
	if (environment->staging_chunks)
		config.chunks = environment->staging_chunks;
	config.whole_max = plan->message_max;
	if (plan->message_max && config.chunk_bytes > plan->message_max)
		config.chunk_bytes = plan->message_max;
	return config;
}

struct batoni_transport_config
batoni_comm_transport_config(const struct batoni_comm_plan *plan,
                             const struct baton_comm *comm)
{
	const struct batoni_staging_config staging = staging_config(plan);
	struct batoni_transport_config upper = upper_config(plan, comm);

	if (plan->stages)
		return batoni_staging_layer()->below(&upper, &staging);
	/* What a native one lies over sees memory of the host. */
	if (batoni_plan_is_native(plan) || comm->device_ops->memory->host_only)
		upper.device = NULL;
	return upper;
}

static enum baton_status
create_staging(struct baton_comm *comm, const struct batoni_comm_plan *plan)
{
	const struct batoni_staging_config staging = staging_config(plan);
	const struct batoni_transport_config upper = upper_config(plan, comm);

	return batoni_staging_layer()->create(&upper, &staging, plan->size,
	                                      &comm->staging);
}

static uint32_t
take_index(uint32_t *generation_p)
{
	uint32_t index = 1;

	pthread_mutex_lock(&table_lock);
	while (index < BATONI_COMMS_MAX && taken[index])
		index++;
	if (index < BATONI_COMMS_MAX) {
		taken[index] = true;
		*generation_p = generations[index];
	} else {
		index = 0;
	}
	pthread_mutex_unlock(&table_lock);
	return index;
}

static void
give_index(uint32_t index, uint32_t generation)
{
	pthread_mutex_lock(&table_lock);
	taken[index] = false;
	if (generation > generations[index])
		generations[index] = generation;
	pthread_mutex_unlock(&table_lock);
}

/* Streams that were released may have yet to see it.  Anything but OK: the device may still
 * touch records and words; UNSUPPORTED: it cannot tell. */
static enum baton_status
free_pool(struct baton_comm *comm)
{
	enum baton_status status;

	for (unsigned tries = 0;; tries++) {
		status = batoni_pool_fini(&comm->pool, comm->device);
		if (status != BATON_ERR_BUSY ||
		    batoni_real_ns() >= comm->patience.until_ns)
			return status;
		batoni_pause_between(tries);
	}
}

/* What the device may still touch, the communicator and the open of the device stay for
 * good. */
static void
keep_for_device(struct baton_comm *comm, enum batoni_log_level level)
{
	batoni_log(level,
	           "rank %d: communicator destroyed; the %s device may still use "
	           "the memory of its %u requests, which therefore stays "
	           "allocated",
	           comm->rank, comm->device_ops->name, comm->pool.size);
	atomic_store(&comm->handle.alive, 0);
	pthread_mutex_lock(&table_lock);
	comm->work.next = kept;
	kept = comm;
	pthread_mutex_unlock(&table_lock);
	/* The communicator, three or four arrays of its pool, and its locals. */
	batoni_mem_keep(comm->pool.stamps ? 5 : 4);
	/* Late triggers end the locals. */
	batoni_take();
	for (struct batoni_list_node *node = comm->locals.next;
	     node != &comm->locals; node = node->next)
		batoni_mem_keep(1);
	batoni_leave();
}

static void
drop_mark(struct baton_comm *comm, struct batoni_mark *mark)
{
	if (mark->object)
		comm->device_ops->marks->mark_drop(comm->device, mark);
}

/* Of operations that were aborted. */
static void
drop_marks(struct baton_comm *comm)
{
	for (uint32_t i = 0; comm->marks.by_slot && i < comm->pool.size; i++) {
		drop_mark(comm, &comm->marks.by_slot[i].armed);
		drop_mark(comm, &comm->marks.by_slot[i].ended);
	}
}

/* Free everything but the transport, in the reverse order of prepare. */
static void
comm_free(struct baton_comm *comm)
{
	uint32_t generation = batoni_pool_generation(&comm->pool);
	enum baton_status freed = BATON_ERR_BUSY;

	drop_marks(comm);
	if (comm->onesided)
		comm->onesided->ops->close(comm->onesided,
		                           comm->fault.status != BATON_OK);
	if (!batoni_comm_is_gone(comm) && !comm->patience.copies_left)
		freed = free_pool(comm);
	if (comm->staging)
		batoni_staging_layer()->discard(comm->staging);
	batoni_comm_discard_native(comm);
	batoni_fifo_table_fini(&comm->fifos);
	batoni_lists_close(comm);
	batoni_free(comm->marks.by_slot);
	batoni_free(comm->order.observe);
	batoni_free(comm->order.follow);
	batoni_free(comm->order.transfers);
	batoni_nvtx_close(comm->trace);
	comm->trace = NULL;
	give_index(comm->index, generation);
	if (freed != BATON_OK) {
		keep_for_device(comm, freed == BATON_ERR_UNSUPPORTED
		                              ? BATONI_LOG_DEBUG
		                              : BATONI_LOG_WARN);
		return;
	}
	comm->device_ops->close(comm->device);
	pthread_mutex_destroy(&comm->marks.lock);
	pthread_mutex_destroy(&comm->order.lock);
	batoni_handle_retire(&handles, comm);
}

static enum baton_status
alloc_marks(struct baton_comm *comm, uint32_t count)
{
	comm->marks.by_slot = batoni_alloc(count, sizeof(*comm->marks.by_slot));
	comm->order.observe = batoni_alloc(count, sizeof(*comm->order.observe));
	comm->order.follow = batoni_alloc(count, sizeof(*comm->order.follow));
	comm->order.transfers = batoni_alloc(count, sizeof(*comm->order.transfers));
	return comm->marks.by_slot && comm->order.observe && comm->order.follow && comm->order.transfers
	               ? BATON_OK
	               : BATON_ERR_NOMEM;
}

static enum baton_status
comm_init(struct baton_comm *comm, const struct batoni_comm_plan *plan,
          uint32_t generation)
{
	uint32_t count = plan->requests_max;
	enum baton_status status;

	status = batoni_pool_init(&comm->pool, count, generation,
	                          plan->timestamps, comm->device,
	                          comm->patience.until_ns);
	if (status == BATON_OK)
		status = batoni_fifo_table_init(&comm->fifos, count, comm);
	if (status == BATON_OK && plan->device_ops->marks)
		status = alloc_marks(comm, count);
	if (status == BATON_OK && plan->onesided)
		status = batoni_onesided_layer()->open(
			&(struct batoni_onesided_plan){
				.size = plan->size,
				.requests_max = count,
				.signals_max = plan->signals_max,
				.contexts_max = plan->contexts_max,
				.device = comm->device_ops->memory->host_only
				                  ? NULL
				                  : comm->device,
				.until_ns = comm->patience.until_ns,
			},
			&comm->onesided);
	if (status == BATON_OK && plan->stages)
		status = create_staging(comm, plan);
	if (status == BATON_OK && batoni_plan_is_native(plan))
		status = batoni_comm_create_native(comm, plan);
	if (status == BATON_OK && plan->progress != BATON_PROGRESS_CALLS)
		status = batoni_engine_start();
	comm->timeout_ns = plan->timeout_ns;
	comm->tensors_max = plan->tensors_max;
	comm->progress = plan->progress;
	batoni_list_init(&comm->deadlines.list);
	batoni_list_init(&comm->locals);
	comm->deadlines.next_ns = BATONI_NEVER;
	comm->marks.issued_tail = &comm->marks.issued;
	batoni_host_init(comm);
	return status;
}

/* A transfer has so many bits for its slot. */
static enum baton_status
check_slots(const struct batoni_comm_plan *plan)
{
	const struct batoni_staging_config staging = staging_config(plan);
	uint64_t slots = upper_slots(plan, plan->requests_most);
	char mine[64] = "";

	if (plan->stages)
		slots = batoni_staging_slots(slots, &staging);
	if (slots <= BATONI_SLOTS_LIMIT)
		return BATON_OK;
	if (plan->requests_most != plan->requests_max)
		snprintf(mine, sizeof(mine),
		         " (on the rank with most; this one has %u)",
		         plan->requests_max);
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%d ranks with %d contexts each and %u requests%s "
	                     "are %llu transfers; a communicator can have %u: "
	                     "choose a smaller options->contexts_max or "
	                     "requests_max",
	                     plan->size, plan->contexts_max, plan->requests_most,
	                     mine, (unsigned long long)slots,
	                     BATONI_SLOTS_LIMIT);
}

static uint64_t
creation_ends_ns(const struct batoni_comm_plan *plan)
{
	return batoni_real_ns() +
	       (uint64_t)(plan->timeout_ns ? plan->timeout_ns : PATIENCE_NS);
}

enum baton_status
batoni_comm_prepare(const struct batoni_comm_plan *plan,
                    struct baton_comm **comm_p)
{
	struct batoni_device_config config = plan->device_config;
	struct baton_comm *comm;
	enum baton_status status = check_slots(plan);
	uint32_t generation = 0;

	if (status != BATON_OK)
		return status;
	batoni_watch_forks();
	batoni_place_watch();
	comm = batoni_handle_new(&handles);
	if (!comm)
		goto no_memory;
	comm->device_ops = plan->device_ops;
	comm->in_engine = plan->device_ops->in_engine != NULL;
	comm->collects = plan->device_ops->triggers != NULL;
	comm->looks = !plan->device_ops->memory->host_only;
	comm->direct = plan->direct;
	comm->checked = plan->check;
	pthread_mutex_init(&comm->order.lock, NULL);
	pthread_mutex_init(&comm->marks.lock, NULL);
	comm->index = take_index(&generation);
	if (comm->index == 0) {
		status = batoni_refuse(BATON_ERR_AGAIN,
		                       "%u communicators are alive, as many as "
		                       "there can be",
		                       BATONI_COMMS_MAX - 1);
		goto free_comm;
	}
	config.until_ns = comm->patience.until_ns = creation_ends_ns(plan);
	status = plan->device_ops->open(&config, &comm->device);
	if (status != BATON_OK) {
		give_index(comm->index, generation);
		goto free_comm;
	}
	status = comm_init(comm, plan, generation);
	if (status == BATON_OK) {
		*comm_p = comm;
		return BATON_OK;
	}
	comm_free(comm);
	if (status != BATON_ERR_NOMEM)
		return status;
	goto no_memory;
free_comm:
	pthread_mutex_destroy(&comm->marks.lock);
	pthread_mutex_destroy(&comm->order.lock);
	batoni_handle_retire(&handles, comm);
	if (status != BATON_ERR_NOMEM)
		return status;
no_memory:
	return batoni_refuse(BATON_ERR_NOMEM,
	                     "no memory for a communicator of %u requests",
	                     plan->requests_max);
}

void
batoni_comm_add_path(struct baton_comm *comm, struct batoni_path *path)
{
	assert(comm->paths_count < BATONI_PATHS_MAX);
	/* Its marks are the device's. */
	assert(!path->ops->stream_issued || comm->marks.by_slot);
	path->host = &comm->host;
	comm->paths[comm->paths_count++] = path;
	/* The fast way knows the first two. */
	if (comm->paths_count > BATONI_PATH_ONESIDED + 1)
		comm->plain = false;
}

void
batoni_comm_start(struct baton_comm *comm, struct batoni_transport *transport)
{
	if (comm->staging) {
		transport = batoni_staging_layer()->start(comm->staging,
		                                          transport);
		comm->staging = NULL; /* the transport has it */
	}
	comm->transport = transport;
	comm->transport_ops = transport->ops;
	comm->rank = transport->rank;
	comm->size = transport->size;
	comm->tag_max = transport->tag_max;
	comm->driving.drivers = transport->drivers;
	comm->driving.main_thread = transport->main_thread;
	comm->driving.by_any = transport->drivers == BATONI_DRIVERS_ANY;
	comm->driving.by_engine =
		comm->driving.by_any && comm->progress != BATON_PROGRESS_CALLS;
	batoni_observe_comm(comm, batoni_nvtx_observer);
	comm->plain = comm->driving.by_any && comm->in_engine &&
	              comm->timeout_ns == 0 && !comm->observed && !comm->looks &&
	              !comm->checked;
	/* The thread that creates such a communicator is the one that drives it. */
	if (transport->drivers == BATONI_DRIVERS_MAIN)
		batoni_thread.must_drive = true;
	transport->host = &comm->host;
	/* Without peers, other ranks are reachable only by the transport's messages:
	 * no one-sided layer. */
	if (comm->onesided && !batoni_hosts_of(transport)->peers) {
		comm->onesided->ops->close(comm->onesided, false);
		comm->onesided = NULL;
	}
	batoni_comm_add_path(comm, &transport->messages);
	if (comm->onesided) {
		batoni_comm_add_path(comm, &comm->onesided->path);
		/* Its messages, where they are another transport's. */
		if (transport->hosts) {
			comm->hosts_path = &transport->hosts->messages;
			batoni_comm_add_path(comm, comm->hosts_path);
		}
	}
	comm->lists_path = BATONI_PATH_MESSAGES;
	if (transport->lists) {
		comm->lists_path = comm->paths_count;
		batoni_comm_add_path(comm, transport->lists);
	}
	batoni_handle_start(&comm->handle);
	atomic_store_explicit(&batoni_comms[comm->index], comm,
	                      memory_order_release);
	/* From here on the engine may look at it. */
	if (comm->onesided)
		comm->onesided->ops->start(comm->onesided, comm);
	batoni_dump_start();
	batoni_announce(comm);
	batoni_crowd_warn(comm);
}

void
batoni_comm_discard(struct baton_comm *comm)
{
	comm_free(comm);
}

/* No transport of this build has found its launcher.  Warns if the environment names
 * one. */
static void
warn_alone(void)
{
	if (batoni_world_of(BATON_TRANSPORT_MPI))
		batoni_warn_alone("it was started without PMI, so MPI cannot "
		                  "find the others",
		                  "start it by this MPI's mpirun, or by srun "
		                  "--mpi=pmix (srun --mpi=list names others)");
	else
		batoni_warn_alone("this build of Baton has no MPI",
		                  "install an MPI and build Baton again with "
		                  "-DBATON_WITH_MPI=ON (or ask for "
		                  "BATON_TRANSPORT_LOCAL)");
}

/* plan NULL: it was refused on this rank, which only tells the others. */
static enum baton_status
create_in_world(const struct batoni_world *world,
                const struct batoni_comm_plan *plan, enum baton_status refused,
                struct baton_comm **comm_p)
{
	struct batoni_creation creation;
	enum baton_status status;

	batoni_creation_begin(&creation, plan, refused);
	status = world->join(&batoni_engine_calls, plan ? plan->timeout_ns : 0,
	                     &creation.bootstrap);
	return status == BATON_OK ? batoni_creation_run(&creation, comm_p)
	                          : batoni_creation_missed(&creation, status);
}

enum baton_status
baton_comm_create(const struct baton_comm_options *options,
                  struct baton_comm **comm_p)
{
	const struct batoni_world *world;
	struct batoni_comm_plan plan;
	enum baton_status status;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_create");
	if (!comm_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_create: comm_p is NULL");
	status = batoni_comm_plan(options, &plan);
	if (status != BATON_OK) {
		/* The other ranks wait for this one in the collective creation. */
		world = batoni_world_present();
		return world ? create_in_world(world, NULL, status, comm_p)
		             : status;
	}
	if (plan.transport == BATON_TRANSPORT_LOCAL)
		return baton_comm_create_local(1, options, comm_p);
	/* A native transport has no way to find the other ranks: any world is good. */
	world = plan.transport == BATON_TRANSPORT_MPI
	                ? batoni_world_of(plan.transport)
	                : batoni_world_present();
	if (world)
		return create_in_world(world, &plan, BATON_OK, comm_p);
	if (plan.transport == BATON_TRANSPORT_MPI)
		return batoni_refuse(BATON_ERR_UNSUPPORTED,
		                     "options->transport is BATON_TRANSPORT_MPI: "
		                     "this build of Baton has no MPI; install one "
		                     "(Debian: libopenmpi-dev, openmpi-bin) and "
		                     "build again with -DBATON_WITH_MPI=ON");
	/* No launcher: a world of one rank. */
	warn_alone();
	return baton_comm_create_local(1, options, comm_p);
}

enum baton_status
batoni_comm_create_mpi_with(const struct batoni_device_ops *device,
                            const struct baton_comm_options *options,
                            struct baton_comm **comm_p)
{
	const struct batoni_world *world = batoni_world_of(BATON_TRANSPORT_MPI);
	struct batoni_comm_plan plan;
	enum baton_status status = batoni_comm_plan(options, &plan);

	if (status != BATON_OK || !world)
		return status == BATON_OK ? BATON_ERR_UNSUPPORTED : status;
	batoni_comm_plan_on(&plan, device);
	return create_in_world(world, &plan, BATON_OK, comm_p);
}

/* ---- destroy and abort ---- */

static void
close_paths(struct baton_comm *comm, bool aborted)
{
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (path->ops->close)
			path->ops->close(path, aborted);
	}
	comm->paths_count = 0;
	/* What they have left on streams is not looked at any more. */
	comm->marks.issued = NULL;
	comm->marks.issued_tail = &comm->marks.issued;
}

static void
leave_deferred(struct baton_comm *comm)
{
	struct baton_comm **link = &batoni_engine.deferred;

	if (!comm->work.deferred)
		return;
	while (*link != comm)
		link = &(*link)->work.deferred_next;
	*link = comm->work.deferred_next;
	comm->work.deferred = false;
}

static void
leave_working(struct baton_comm *comm)
{
	struct batoni_engine *e = &batoni_engine;
	struct baton_comm **link = &e->working;

	leave_deferred(comm);
	if (!comm->work.listed)
		return;
	while (*link != comm)
		link = &(*link)->work.next;
	*link = comm->work.next;
	batoni_comm_rest(comm);
}

/* The driver gives the others a turn. */
static void
driver_yield(unsigned tries)
{
	batoni_leave();
	batoni_pause_between(tries);
	batoni_take();
}

enum baton_status
baton_comm_destroy(struct baton_comm *comm)
{
	enum baton_status status;
	uint64_t limit_ns = BATONI_NEVER, begun_ns = batoni_real_ns(), now_ns;
	struct batoni_roll_call roll = {.called_ns = begun_ns};
	const char *alive;
	uint32_t alive_n;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_destroy");
	if (!comm)
		return BATON_OK;
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_comm_destroy", comm);
	alive_n = atomic_load(&comm->queues);
	if (alive_n)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_comm_destroy: the communicator still "
		                     "has %u queue%s (baton_queue_destroy)",
		                     alive_n, batoni_s(alive_n));
	alive_n = atomic_load(&comm->plans);
	if (alive_n)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_comm_destroy: the communicator still "
		                     "has %u plan%s (baton_plan_destroy)",
		                     alive_n, batoni_s(alive_n));
	alive = comm->onesided ? comm->onesided->ops->alive(comm->onesided)
	                       : NULL;
	if (alive)
		return batoni_refuse(BATON_ERR_BUSY,
		                     "baton_comm_destroy: the communicator still "
		                     "has %s",
		                     alive);
	if (batoni_group_open(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_destroy was called %s",
		                     batoni_group_where(comm));
	if (!comm->driving.lost && !batoni_may_drive(comm))
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_destroy: MPI runs at "
		                     "MPI_THREAD_FUNNELED; call it on the main "
		                     "thread");
	if (comm->timeout_ns)
		limit_ns = begun_ns + (uint64_t)comm->timeout_ns;
	for (unsigned tries = 0;; tries++) {
		batoni_take();
		batoni_pass();
		batoni_check_device(comm);
		if (comm->fault.status != BATON_OK)
			batoni_comm_end_all(comm);
		batoni_end_and_issue();
		status = batoni_comm_try_to_leave(comm);
		if (status == BATON_ERR_INVALID) {
			batoni_leave();
			return batoni_refuse(status,
			                     "baton_comm_destroy: other ranks "
			                     "make another collective call; the "
			                     "communicator is still there");
		}
		/* One look at the clock: what may be left behind is not refused. */
		now_ns = batoni_real_ns();
		if (status == BATON_PENDING &&
		    batoni_comm_leave_behind(comm, now_ns - begun_ns))
			status = BATON_ERR_ABORTED;
		if (status != BATON_PENDING)
			break;
		if (comm->leave_awaits)
			batoni_check_ranks(comm, &roll, now_ns);
		/* Under the lock, so that what still blocks the destroy can be
		 * named. */
		if (now_ns >= limit_ns)
			status = batoni_comm_refuse_to_leave(comm);
		batoni_leave();
		if (status != BATON_PENDING)
			return status;
		batoni_pause_between(tries);
	}
	comm->patience.yield = driver_yield;
	/* One grace in all: a broken communicator has waited for its device alone. */
	comm->patience.until_ns = (status == BATON_OK ? now_ns : begun_ns) +
	                          (uint64_t)batoni_comm_grace_ns(comm);
	leave_working(comm);
	atomic_store(&batoni_comms[comm->index], NULL);
	/* A dump may be writing to a slow terminal: wait for it without the lock. */
	batoni_leave();
	batoni_dump_await();
	batoni_take();
	close_paths(comm, status != BATON_OK);
	comm->transport->patience = &comm->patience;
	comm->transport_ops->close(comm->transport, status != BATON_OK);
	/* Other ranks' calls, and the close, may have told that something moves. */
	leave_working(comm);
	batoni_leave();
	comm_free(comm);
	return BATON_OK;
}

enum baton_status
baton_comm_abort(struct baton_comm *comm)
{
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_abort");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_comm_abort", comm);
	batoni_take();
	batoni_place_inbox();
	batoni_comm_break(comm, BATON_ERR_ABORTED,
	                  "aborted: baton_comm_abort was called on this rank");
	batoni_comm_end_all_now(comm);
	batoni_end_and_issue();
	batoni_leave();
	return BATON_OK;
}

/* ---- queries ---- */

int
baton_comm_rank(const struct baton_comm *comm)
{
	return batoni_comm_lives(comm) ? comm->rank : -1;
}

int
baton_comm_size(const struct baton_comm *comm)
{
	return batoni_comm_lives(comm) ? comm->size : -1;
}

static const char *
why_not_native(const struct baton_comm *comm)
{
	const struct batoni_native_ops *native = batoni_native_layer();

	if (comm->transport_ops->id == native->id)
		return "";
	return comm->device_ops->native == native->id ? native->why_not_asked
	                                              : native->why_no_device;
}

const char *
batoni_why_engine_puts(const struct baton_comm *comm)
{
	const struct batoni_device_ops *ops = comm->device_ops;
	const struct batoni_transport *hosts;
	const char *why = "";

	for (uint32_t i = 0; i < comm->paths_count; i++) {
		if (comm->paths[i]->ops->takes)
			return "";
	}
	if (!comm->onesided)
		return "the transport has no signals";
	if (comm->in_engine)
		return "the device is the host, whose streams are the engine's";
	if (batoni_config()->engine_puts)
		return "BATON_PUTS=engine says so";
	if (!ops->puts)
		return "streams of the device cannot store a signal";
	why = ops->puts->why_no_puts(comm->device);
	if (why)
		return why;
	if (batoni_config()->window_path == BATON_WINDOW_PATH_MESSAGE)
		return "BATON_WINDOW_PATH=message says that all go by message";
	hosts = batoni_hosts_of(comm->transport);
	if (hosts->why_no_streams)
		return hosts->why_no_streams;
	if (!ops->memory->pins)
		return "streams of the device store into memory of this process "
		       "alone";
	return "there was no pinned memory for the counters";
}

static const struct batoni_sized sized_info = {
	.name = "info_p",
	.size_name = "info_p->size",
	.advice = "set it to sizeof(*info_p)",
	.smallest = BATONI_SIZED_UNTIL(struct baton_comm_info, library),
	.bytes = sizeof(struct baton_comm_info),
};

enum baton_status
baton_comm_query(const struct baton_comm *comm, struct baton_comm_info *info_p)
{
	struct baton_comm_info info;

	BATONI_ENTER("baton_comm_query");
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_comm_query", comm);
	if (!info_p)
		return batoni_refuse(BATON_ERR_INVALID,
		                     "baton_comm_query: info_p is NULL");
	info = (struct baton_comm_info){
		.size = sizeof(info),
		.rank = comm->rank,
		.ranks = comm->size,
		.device = comm->device_ops->id,
		.transport = comm->transport_ops->id,
		.device_name = comm->device_ops->name,
		.transport_name = comm->transport_ops->name,
		.library = comm->transport->library,
		.tag_max = comm->tag_max,
		.capabilities = comm->transport->capabilities |
		                (batoni_tensors_served(comm) ? BATON_CAP_TENSORS
		                                             : 0u),
		.requests_max = comm->pool.size,
		.engine_thread = comm->driving.by_engine,
		.check = comm->checked,
		.nccl_version = comm->transport->nccl_version,
		.nccl_lanes = comm->transport->lanes,
		.nccl_ctas = comm->transport->ctas,
		.nccl_bytes = comm->transport->device_bytes,
		.why_not_nccl = why_not_native(comm),
		.why_engine_puts = batoni_why_engine_puts(comm),
		.cuda_device = comm->device->number,
	};
	if (comm->onesided) {
		info.signals_max = comm->onesided->signals_max;
		info.contexts_max = comm->onesided->contexts_max;
		info.signal_paths = comm->onesided->signal_paths;
		info.window_paths = atomic_load(&comm->onesided->window_paths);
	}
	batoni_crowd_query(comm, &info);
	return batoni_sized_give(&sized_info, "baton_comm_query", &info, info_p);
}

size_t
baton_progress(struct baton_comm *comm)
{
	if (!batoni_comm_lives(comm) || !batoni_may_call())
		return 0;
	return batoni_poll(comm);
}

struct batoni_device *
batoni_comm_device(struct baton_comm *comm)
{
	return comm->device;
}
