/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Communicators: what is taken for one before its transport is open (start.c goes on from there), destroy and abort.
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

#include "comm.h"
#include "config.h"
#include "crowd.h"
#include "dump.h"
#include "engine.h"
#include "health.h"
#include "life.h"
#include "liveness.h"
#include "log.h"
#include "mem.h"
#include "nvtx.h"
#include "trace.h"
#include "location.h"
#include "registry.h"
#include "sweep.h"
#include "tables.h"
#include "tensor_store.h"
#include "wake.h"

/* How long a creation waits for what is on streams, if its options name no limit. */
#define PATIENCE_NS INT64_C(10000000000)
/* How many chunks staging has under a native transport, in each direction. */
#define NATIVE_CHUNKS 4u

static pthread_mutex_t table_lock = PTHREAD_MUTEX_INITIALIZER;
static bool taken[BATONI_COMMS_MAX];           /* under table_lock */
static uint32_t generations[BATONI_COMMS_MAX]; /* under table_lock */
static struct batoni_handles handles = BATONI_HANDLES(baton_comm);
static struct baton_comm *kept; /* under table_lock: see keep_for_device */

/* ---- building ---- */

/* How many slots the transport has: those of requests, and behind them those of the one-sided
 * layer. */
static uint64_t
layer_slots(const struct batoni_comm_setup *setup, uint32_t requests)
{
	return requests + batoni_onesided_slots(setup->size, setup->contexts_max);
}

/* The slots of a native transport follow those of the layer. */
static uint64_t
upper_slots(const struct batoni_comm_setup *setup, uint32_t requests)
{
	if (batoni_setup_is_native(setup))
		return (setup->onesided ? layer_slots(setup, requests) : 0) +
		       batoni_native_layer()->slots(setup->size);
	return setup->onesided ? layer_slots(setup, requests) : requests;
}

uint32_t
batoni_comm_native_slot(const struct batoni_comm_setup *setup)
{
	return setup->onesided
	               ? (uint32_t)layer_slots(setup, setup->requests_max)
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

/* The configuration of the transport that the engine sees, or that a native one is layered on. */
static struct batoni_transport_config
upper_config(const struct batoni_comm_setup *setup, const struct baton_comm *comm)
{
	/* check_slots has found that it fits. */
	struct batoni_transport_config config = {
		.device = comm->device,
		.apart = setup->apart,
		/* The messages of a native transport, and of its lower one, are none of the
		 * program's, unless near is there. */
		.check = setup->check &&
		         (!batoni_setup_is_native(setup) || setup->near),
		.slots = (uint32_t)upper_slots(setup, setup->requests_max),
		.slots_most = (uint32_t)upper_slots(setup, setup->requests_most),
		.until_ns = comm->patience.until_ns,
	};

	if (!setup->onesided)
		return config;
	config.hidden_tags = batoni_onesided_tags(setup->contexts_max);
	config.segment_bytes = batoni_onesided_segment_bytes(
		setup->size, setup->signals_max, setup->contexts_max);
	config.part_at = batoni_onesided_head_bytes(setup->size);
	config.part_bytes = batoni_onesided_source_bytes(setup->signals_max,
	                                                 setup->contexts_max);
	config.stores = find_storing(comm);
	return config;
}

/* The configuration of staging in this process; other ranks may have other chunks. */
static struct batoni_staging_config
staging_config(const struct batoni_comm_setup *setup)
{
	struct batoni_staging_config config = batoni_staging_layer()->defaults;
	const struct batoni_config *environment = batoni_config();

	bool only_puts = batoni_setup_is_native(setup) && !setup->near;

	/* Only puts by message go this way. */
	if (only_puts)
		config.chunks = NATIVE_CHUNKS;
	if (environment->staging_chunk)
		config.chunk_bytes = environment->staging_chunk;
	if (environment->staging_chunks)
		config.chunks = environment->staging_chunks;
	config.maps = environment->staging_maps != BATONI_STAGING_MAPS_NONE &&
	              !only_puts;
	config.maps_all = environment->staging_maps == BATONI_STAGING_MAPS_ALL;
	config.whole_max = setup->message_max;
	if (setup->message_max && config.chunk_bytes > setup->message_max)
		config.chunk_bytes = setup->message_max;
	return config;
}

/* The configuration of the lower transport of staging, where ranks stage. */
static struct batoni_transport_config
unstaged_config(const struct batoni_comm_setup *setup, const struct baton_comm *comm)
{
	const struct batoni_staging_config staging = staging_config(setup);
	struct batoni_transport_config upper = upper_config(setup, comm);

	if (setup->stages)
		return batoni_staging_layer()->lower(&upper, &staging);
	/* The lower transport of a native one sees host memory only. */
	if (batoni_setup_is_native(setup) || comm->device_ops->memory->host_only)
		upper.device = NULL;
	return upper;
}

struct batoni_transport_config
batoni_comm_transport_config(const struct batoni_comm_setup *setup,
                             const struct baton_comm *comm)
{
	const struct batoni_transport_config above = unstaged_config(setup, comm);
	const struct batoni_pairs_ops *pairs = batoni_pairs_layer();
	struct batoni_transport_config config;

	if (!setup->near)
		return above;
	/* The lower transport may have to carry the program's messages. */
	config = setup->near_only ? pairs->lower(&above) : above;
	config.pairs_bytes = pairs->area_bytes(setup->size, above.slots_most);
	config.pairs_control = pairs->control_bytes(setup->size);
	config.pairs_format = pairs->format;
	return config;
}

static enum baton_status
create_pairs(struct baton_comm *comm, const struct batoni_comm_setup *setup)
{
	const struct batoni_transport_config config = unstaged_config(setup, comm);

	return batoni_pairs_layer()->create(&config, setup->size, &comm->pairs);
}

static enum baton_status
create_staging(struct baton_comm *comm, const struct batoni_comm_setup *setup)
{
	const struct batoni_staging_config staging = staging_config(setup);
	const struct batoni_transport_config upper = upper_config(setup, comm);

	return batoni_staging_layer()->create(&upper, &staging, setup->size,
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

/* Streams may not have seen yet that they were released.  Anything but OK: the device may still
 * touch operations and words; UNSUPPORTED: it cannot tell. */
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
	batoni_lock();
	for (struct batoni_list_node *node = comm->locals.next;
	     node != &comm->locals; node = node->next)
		batoni_mem_keep(1);
	batoni_unlock();
}

static void
drop_mark(struct baton_comm *comm, struct batoni_mark *mark)
{
	if (mark->object)
		comm->device_ops->marks->mark_drop(comm->device, mark);
}

/* Drop the marks of operations that were aborted. */
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
	if (comm->pairs)
		batoni_pairs_layer()->discard(comm->pairs);
	batoni_comm_discard_native(comm);
	batoni_fifo_table_fini(&comm->fifos);
	batoni_lists_close(comm);
	batoni_free(comm->message_path);
	batoni_free(comm->marks.by_slot);
	batoni_free(comm->order.observe);
	batoni_free(comm->order.follow);
	batoni_free(comm->order.transfers);
	batoni_nvtx_close(comm->nvtx);
	comm->nvtx = NULL;
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
comm_init(struct baton_comm *comm, const struct batoni_comm_setup *setup,
          uint32_t generation)
{
	uint32_t count = setup->requests_max;
	enum baton_status status;

	status = batoni_pool_init(&comm->pool, count, generation,
	                          setup->timestamps, comm->device,
	                          comm->patience.until_ns);
	if (status == BATON_OK)
		status = batoni_fifo_table_init(&comm->fifos, count, comm);
	comm->message_path = batoni_alloc((size_t)setup->size,
	                                  sizeof(*comm->message_path));
	if (!comm->message_path)
		status = BATON_ERR_NOMEM;
	if (status == BATON_OK && setup->device_ops->marks)
		status = alloc_marks(comm, count);
	if (status == BATON_OK && setup->onesided)
		status = batoni_onesided_layer()->open(
			&(struct batoni_onesided_config){
				.size = setup->size,
				.requests_max = count,
				.signals_max = setup->signals_max,
				.contexts_max = setup->contexts_max,
				.device = comm->device_ops->memory->host_only
				                  ? NULL
				                  : comm->device,
				.until_ns = comm->patience.until_ns,
			},
			&comm->onesided);
	if (status == BATON_OK && setup->stages)
		status = create_staging(comm, setup);
	if (status == BATON_OK && setup->near)
		status = create_pairs(comm, setup);
	if (status == BATON_OK && batoni_setup_is_native(setup))
		status = batoni_comm_create_native(comm, setup);
	if (status == BATON_OK && setup->progress != BATON_PROGRESS_CALLS)
		status = batoni_engine_start();
	comm->timeout_ns = setup->timeout_ns;
	comm->tensors_max = setup->tensors_max;
	comm->progress = setup->progress;
	batoni_list_init(&comm->deadlines.list);
	batoni_list_init(&comm->locals);
	batoni_list_init(&comm->claims);
	comm->deadlines.next_ns = BATONI_NEVER;
	comm->marks.issued_tail = &comm->marks.issued;
	batoni_upcalls_init(comm);
	return status;
}

/* Check that all slots fit in the bits that a transfer has for its slot. */
static enum baton_status
check_slots(const struct batoni_comm_setup *setup)
{
	const struct batoni_staging_config staging = staging_config(setup);
	uint64_t slots = upper_slots(setup, setup->requests_most);
	char mine[64] = "";

	if (setup->stages)
		slots = batoni_staging_slots(slots, &staging);
	if (slots <= BATONI_SLOTS_LIMIT)
		return BATON_OK;
	if (setup->requests_most != setup->requests_max)
		snprintf(mine, sizeof(mine),
		         " (on the rank with most; this one has %u)",
		         setup->requests_max);
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "%d ranks with %d contexts each and %u requests%s "
	                     "are %llu transfers; a communicator can have %u: "
	                     "choose a smaller options->contexts_max or "
	                     "requests_max",
	                     setup->size, setup->contexts_max, setup->requests_most,
	                     mine, (unsigned long long)slots,
	                     BATONI_SLOTS_LIMIT);
}

static uint64_t
creation_ends_ns(const struct batoni_comm_setup *setup)
{
	return batoni_real_ns() +
	       (uint64_t)(setup->timeout_ns ? setup->timeout_ns : PATIENCE_NS);
}

enum baton_status
batoni_comm_prepare(const struct batoni_comm_setup *setup,
                    struct baton_comm **comm_p)
{
	struct batoni_device_config config = setup->device_config;
	struct baton_comm *comm;
	enum baton_status status = check_slots(setup);
	uint32_t generation = 0;

	if (status != BATON_OK)
		return status;
	batoni_watch_forks();
	batoni_location_watch();
	comm = batoni_handle_new(&handles);
	if (!comm)
		goto no_memory;
	comm->device_ops = setup->device_ops;
	comm->in_engine = setup->device_ops->in_engine != NULL;
	comm->inspects = !setup->device_ops->memory->host_only;
	comm->direct = setup->direct;
	comm->checked = setup->check;
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
	config.until_ns = comm->patience.until_ns = creation_ends_ns(setup);
	status = setup->device_ops->open(&config, &comm->device);
	if (status != BATON_OK) {
		give_index(comm->index, generation);
		goto free_comm;
	}
	status = comm_init(comm, setup, generation);
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
	                     setup->requests_max);
}

void
batoni_comm_discard(struct baton_comm *comm)
{
	batoni_trace_discard(comm);
	comm_free(comm);
}

/* ---- destroy and abort ---- */

static void
close_paths(struct baton_comm *comm, bool aborted)
{
	for (uint32_t i = 0; i < comm->paths_count; i++) {
		struct batoni_path *path = comm->paths[i];

		if (path->ops->closing)
			path->ops->closing->close(path, aborted);
	}
	comm->paths_count = 0;
	/* What they have left on streams is not looked at any more. */
	comm->marks.issued = NULL;
	comm->marks.issued_tail = &comm->marks.issued;
}

enum baton_status
baton_comm_destroy(struct baton_comm *comm)
{
	enum baton_status status;
	bool gone;
	BATONI_UNCANCELLED;

	BATONI_ENTER("baton_comm_destroy");
	if (!comm)
		return BATON_OK;
	if (!batoni_comm_lives(comm))
		return batoni_refuse_comm("baton_comm_destroy", comm);
	batoni_trace_leaves(comm);
	status = batoni_comm_leave(comm, &gone);
	if (!gone)
		return status;
	/* A dump may be writing to a slow terminal: wait for it without the lock. */
	batoni_dump_await();
	batoni_lock();
	close_paths(comm, status != BATON_OK);
	comm->transport->patience = &comm->patience;
	comm->transport_ops->close(comm->transport, status != BATON_OK);
	/* Other ranks' calls, and the close, may have told that something moves. */
	batoni_comm_unlist(comm);
	comm->observed = false;
	batoni_trace_close(comm, status == BATON_OK);
	batoni_unlock();
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
	batoni_lock();
	batoni_place_inbox();
	batoni_comm_break(comm, BATON_ERR_ABORTED,
	                  "aborted: baton_comm_abort was called on this rank");
	batoni_comm_end_all_now(comm);
	batoni_end_and_issue();
	batoni_unlock();
	return BATON_OK;
}
