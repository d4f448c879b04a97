/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Creation, in steps that wait for nothing (native.h).  What one rank has to know of the
 * others goes over the lower transport, as exchanges:
 *
 *   HELLO    versions and numbers of lanes, which have to be the same; processes; and rank 0's
 *            ids, one a lane
 *   MAKE     each rank creates its communicators, in one group
 *   CONNECT  each rank connects the pairs of all lanes, in one group
 *   CONNECT_LISTS  the same of the lane for lists, where there is one
 *   PUTS_*   where ranks are on different nodes: what puts need (nccl_windows_open.c)
 *
 * While NCCL makes or connects, the ranks tell each other how far they are, in one exchange
 * after the other (*rounds*): PENDING, OK, or an error.  The step is over when a round has
 * nothing but OK, or an error.  So all ranks end it in the same round with the same status;
 * a rank that fails does not leave the others waiting inside NCCL; and what takes too long
 * on a rank is an error of that rank.  An exchange is given twice that time.
 */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "list.h"
#include "log.h"
#include "mem.h"
#include "nccl_transport.h"

#define PATIENCE_NS ((uint64_t)60 * 1000000000u)

/* Streams that one of NCCL's communicators has: for its buffers and for host functions (init.cc of
 * 2.28 to 2.30), and one for copies or puts where it makes these by the copy engines. */
#define COMM_STREAMS 3u

/* The values of `what` in exchanges. */
#define WHAT_HELLO ((uint64_t)0x6e63636c01)
#define WHAT_MAKE ((uint64_t)0x6e63636c02)
#define WHAT_CONNECT ((uint64_t)0x6e63636c03)
#define WHAT_CONNECT_LISTS ((uint64_t)0x6e63636c09)

/* ---- creating, this rank alone ---- */

/* There will be so many communicators more. */
static void
tell_streams(struct batoni_nccl *nccl, unsigned comms)
{
	struct batoni_device *device = nccl->device;

	nccl->foreign += comms * COMM_STREAMS;
	if (device->ops->shared_queues)
		device->ops->shared_queues->foreign_streams(
			device, (int)(comms * COMM_STREAMS));
}

void
batoni_nccl_free(struct batoni_nccl *nccl)
{
	struct batoni_device *device = nccl->device;

	if (device->ops->shared_queues)
		device->ops->shared_queues->foreign_streams(
			device, -(int)nccl->foreign);
	for (unsigned i = 0; nccl->lanes && i < batoni_nccl_lanes_all(nccl);
	     i++) {
		assert(!nccl->lanes[i].comm);
		if (nccl->lanes[i].connected.object)
			device->ops->marks->mark_drop(
				device, &nccl->lanes[i].connected);
		if (nccl->lanes[i].stream)
			device->ops->stream_destroy(device,
			                            nccl->lanes[i].stream);
	}
	batoni_nccl_self_free(nccl);
	batoni_nccl_peers_free(nccl);
	batoni_nccl_checked_free(nccl);
	batoni_nccl_puts_free(nccl);
	batoni_free(nccl->words);
	batoni_free(nccl->hellos);
	batoni_free(nccl->hello);
	batoni_free(nccl->lanes);
	batoni_free(nccl);
}

static enum baton_status
make_parts(struct batoni_nccl *nccl, int size)
{
	enum baton_status status = BATON_OK;

	nccl->lanes = batoni_alloc(batoni_nccl_lanes_all(nccl),
	                           sizeof(*nccl->lanes));
	nccl->hello = batoni_alloc(1, batoni_nccl_hello_bytes(nccl));
	nccl->hellos = batoni_alloc((size_t)size,
	                            batoni_nccl_hello_bytes(nccl));
	nccl->words = batoni_alloc((size_t)size, sizeof(*nccl->words));
	if (!nccl->lanes || !nccl->hello || !nccl->hellos || !nccl->words)
		return BATON_ERR_NOMEM;
	for (unsigned i = 0; i < nccl->lanes_n && status == BATON_OK; i++)
		status = batoni_nccl_stream_make(nccl, nccl->config.check,
		                                 &nccl->lanes[i].stream);
	if (status == BATON_OK && nccl->has_lists)
		status = batoni_nccl_stream_make(
			nccl, true, &batoni_nccl_lane_of_lists(nccl)->stream);
	if (status == BATON_OK)
		status = batoni_nccl_peers_make(nccl, size);
	if (status == BATON_OK)
		status = batoni_nccl_self_make(nccl);
	return status == BATON_OK && (nccl->config.check || nccl->has_lists)
	               ? batoni_nccl_checked_create(nccl)
	               : status;
}

static enum baton_status
check_device(const struct batoni_device *device)
{
	if (device->ops->memory->library && device->ops->events &&
	    device->ops->marks && device->number < BATONI_NCCL_DEVICES)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "the NCCL transport needs a CUDA device with a number "
	                     "below %d; this is device %d, %s",
	                     BATONI_NCCL_DEVICES, device->number,
	                     device->ops->name);
}

/* With one queue the kernels that connect the ranks would stand behind each other. */
static enum baton_status
check_queues(struct batoni_device *device)
{
	struct batoni_crowd crowd = {.queues = 2};

	if (device->ops->shared_queues)
		device->ops->shared_queues->crowd(device, &crowd);
	if (crowd.queues > 1)
		return BATON_OK;
	return batoni_refuse(BATON_ERR_UNSUPPORTED,
	                     "device %d has one hardware queue: in NCCL a send that "
	                     "waits for its peer would hold up all receives, and "
	                     "receives all sends; start the program with %s (or use "
	                     "another transport)",
	                     device->number, crowd.advice);
}

static enum baton_status
nccl_create(const struct batoni_native_config *config,
            struct batoni_native **native_p)
{
	const struct batoni_nccl_api *api;
	enum baton_status status = check_device(config->device);
	struct batoni_nccl *nccl;

	if (status == BATON_OK)
		status = batoni_nccl_load(&api);
	if (status != BATON_OK)
		return status;
	nccl = batoni_alloc(1, sizeof(*nccl));
	if (!nccl)
		return BATON_ERR_NOMEM;
	nccl->api = api;
	nccl->device = config->device;
	nccl->config = *config;
	nccl->has_lists = !config->check && config->lists;
	nccl->patience_ns = config->timeout_ns > 0
	                            ? (uint64_t)config->timeout_ns
	                            : PATIENCE_NS;
	while (((uint64_t)1 << nccl->bits) < (uint64_t)config->size)
		nccl->bits++;
	nccl->lanes_n = 2 * nccl->bits + 1;
	if (config->lanes > 0 && (unsigned)config->lanes < nccl->lanes_n - 1)
		nccl->lanes_n = (unsigned)config->lanes + 1;
	nccl->lock = batoni_nccl_lock_of(config->device->number);
	tell_streams(nccl, nccl->lanes_n + (nccl->has_lists ? 1 : 0));
	status = check_queues(config->device);
	if (status == BATON_OK)
		status = make_parts(nccl, config->size);
	if (status != BATON_OK) {
		batoni_nccl_free(nccl);
		return status;
	}
	*native_p = (struct batoni_native *)(void *)nccl;
	return BATON_OK;
}

static struct batoni_nccl *
to_nccl(struct batoni_native *native)
{
	return (struct batoni_nccl *)(void *)native;
}

/* NCCL may go on: it writes their handles, and uses their streams.  In a list, so that leak
 * checkers find them. */
static void
leak_lanes(struct batoni_nccl *nccl)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static struct batoni_nccl_lane *leaked;

	batoni_log(BATONI_LOG_WARN,
	           "rank %d: a creation that has failed leaves NCCL's communicators "
	           "behind: GPU %d has failed",
	           nccl->base.rank, nccl->device->number);
	pthread_mutex_lock(&lock);
	nccl->lanes->leaked = leaked;
	leaked = nccl->lanes;
	leaked->kept = nccl->puts;
	pthread_mutex_unlock(&lock);
	/* The array, and what streams are; those of puts and lists are one more each. */
	batoni_mem_keep(1 + (long)nccl->lanes_n + (nccl->puts ? 1 : 0) +
	                (nccl->has_lists ? 1 : 0) +
	                batoni_nccl_puts_blocks(nccl));
	nccl->lanes = NULL;
	nccl->puts = NULL;
}

static void
nccl_discard(struct batoni_native *native)
{
	struct batoni_nccl *nccl = to_nccl(native);
	bool made = false;

	for (unsigned i = 0; i < batoni_nccl_lanes_all(nccl); i++)
		made |= nccl->lanes[i].comm != NULL;
	if (made && !batoni_nccl_do_apart(nccl, batoni_nccl_abort_lanes))
		leak_lanes(nccl);
	batoni_nccl_free(nccl);
}

/* ---- exchanges ---- */

/* The lower transport has the control messages of nccl_control.c, and the messages of the one-sided
 * layer. */
static void
lower_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
           enum baton_status status)
{
	struct batoni_nccl *nccl =
		batoni_container_of(upcalls, struct batoni_nccl, lower_upcalls);

	if (transfer->slot < nccl->config.lower_slot)
		nccl->base.upcalls->done(nccl->base.upcalls, transfer, status);
	else
		batoni_nccl_checked_done(nccl, transfer, status);
}

/* Staging puts copies off.  The engine knows it as the layer's messages. */
static void
lower_deferred(struct batoni_upcalls *upcalls)
{
	struct batoni_upcalls *ours =
		batoni_container_of(upcalls, struct batoni_nccl, lower_upcalls)
			->base.upcalls;

	ours->deferred(ours);
}

static void
lower_moves(struct batoni_upcalls *upcalls)
{
	struct batoni_upcalls *ours =
		batoni_container_of(upcalls, struct batoni_nccl, lower_upcalls)
			->base.upcalls;

	if (ours)
		ours->moves(ours);
}

/* Near's messages are the program's, and the engine matches them. */
static bool
lower_may_meet(struct batoni_upcalls *upcalls, int peer, int tag)
{
	struct batoni_upcalls *ours =
		batoni_container_of(upcalls, struct batoni_nccl, lower_upcalls)
			->base.upcalls;

	return ours->may_meet(ours, peer, tag);
}

static const char *
lower_name(const struct batoni_nccl *nccl)
{
	return nccl->lower->ops->name;
}

static void
lower_broken(struct batoni_upcalls *upcalls, enum baton_status fatal, const char *call,
             int code, const char *text)
{
	const struct batoni_nccl *nccl =
		batoni_container_of(upcalls, struct batoni_nccl, lower_upcalls);
	struct batoni_upcalls *ours = nccl->base.upcalls;

	if (ours)
		ours->broken(ours, fatal, call, code, text);
	else
		batoni_log(BATONI_LOG_WARN,
		           "rank %d: while a communicator was created, %s failed "
		           "with %d: %s",
		           nccl->base.rank, call ? call : lower_name(nccl), code,
		           text);
}

/* NCCL goes on without the lower transport, unless the hosts need that: for checked mode, for messages that go there,
 * for lists, once there was one, or because the process exits, of which its peers have to be told.  Leaving together is
 * not possible any more.  `ours` is set before the creation returns, and a program may not finalise the library
 * while a thread of its own is in the creation: without it there is no engine to tell, and the creation's next
 * call of the lower transport fails. */
static void
lower_lost(struct batoni_upcalls *upcalls, bool exits, const char *why)
{
	struct batoni_nccl *nccl =
		batoni_container_of(upcalls, struct batoni_nccl, lower_upcalls);
	struct batoni_upcalls *ours = nccl->base.upcalls;
	bool ended;

	atomic_store(&nccl->lists_lost, true);
	ended = exits || nccl->config.check || nccl->config.lower_carries ||
	        atomic_load(&nccl->lists_used);
	if (ours && ended)
		ours->lost(ours, exits, why);
	else if (ours)
		ended = ours->lost_lower(ours, why);
	atomic_store(&nccl->lower_lost, true);
	batoni_log(BATONI_LOG_INFO,
	           "rank %d: %s: the NCCL transport %s, and will be destroyed as "
	           "after an abort",
	           nccl->base.rank, why,
	           ended ? "has ended what was pending" : "goes on");
}
/* ---- the steps ---- */

static enum baton_status
step_hello(struct batoni_nccl *nccl)
{
	enum baton_status status;

	if (!nccl->begun)
		batoni_nccl_fill_hello(nccl);
	nccl->begun = true;
	status = batoni_nccl_exchange(nccl, WHAT_HELLO, nccl->hello,
	                              batoni_nccl_hello_bytes(nccl),
	                              nccl->hellos);
	return status == BATON_OK ? batoni_nccl_check_hellos(nccl) : status;
}

/* Under the lock of the device. */
static ncclResult_t
make_lanes(struct batoni_nccl *nccl)
{
	struct batoni_nccl_hello *root = batoni_nccl_hello_of(nccl, 0);
	const struct batoni_nccl_api *api = nccl->api;
	struct batoni_nccl_config config;
	ncclResult_t result = api->group_start();

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	batoni_nccl_configure(nccl, &config);
	for (unsigned i = 0; i < nccl->lanes_n; i++) {
		bool self = i + 1 == nccl->lanes_n;

		/* The group's end returns the error. */
		api->comm_init(&nccl->lanes[i].comm, self ? 1 : nccl->base.size,
		               self ? nccl->alone : root->ids[i],
		               self ? 0 : nccl->base.rank, &config);
	}
	if (nccl->has_lists)
		api->comm_init(&batoni_nccl_lane_of_lists(nccl)->comm,
		               nccl->base.size,
		               *batoni_nccl_lists_id(nccl, root),
		               nccl->base.rank, &config);
	return api->group_end();
}

/* An empty message in each direction; the rank alone has number 0 in its lane. */
static void
connect_peer(struct batoni_nccl *nccl, int peer)
{
	const struct batoni_nccl_api *api = nccl->api;
	int rank = nccl->base.rank;
	struct batoni_nccl_lane *out =
		&nccl->lanes[batoni_nccl_lane_of(nccl, rank, peer)];
	struct batoni_nccl_lane *in =
		&nccl->lanes[batoni_nccl_lane_of(nccl, peer, rank)];
	int to = rank == peer ? 0 : peer;

	api->send(NULL, 0, BATONI_NCCL_INT8, to, out->comm, out->stream);
	api->recv(NULL, 0, BATONI_NCCL_INT8, to, in->comm, in->stream);
}

static ncclResult_t
connect_lanes(struct batoni_nccl *nccl)
{
	ncclResult_t result = nccl->api->group_start();

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	for (int peer = 0; peer < nccl->base.size; peer++)
		connect_peer(nccl, peer);
	return nccl->api->group_end();
}

/* A lane that has all pairs.  In a group of its own: NCCL takes 2048 operations in one. */
static ncclResult_t
connect_lists(struct batoni_nccl *nccl)
{
	const struct batoni_nccl_lane *lane = batoni_nccl_lane_of_lists(nccl);
	const struct batoni_nccl_api *api = nccl->api;
	ncclResult_t result = api->group_start();

	if (result != BATONI_NCCL_SUCCESS)
		return result;
	for (int peer = 0; peer < nccl->base.size; peer++) {
		api->send(NULL, 0, BATONI_NCCL_INT8, peer, lane->comm,
		          lane->stream);
		api->recv(NULL, 0, BATONI_NCCL_INT8, peer, lane->comm,
		          lane->stream);
	}
	return api->group_end();
}

/* NCCL has connected when its kernels are on their streams.  They have to be over before any
 * rank goes on: one that aborts then would leave them to its peers, in front of all messages. */
static enum baton_status
await_lanes(struct batoni_nccl *nccl, struct batoni_nccl_lane *lanes, unsigned n)
{
	struct batoni_device *device = nccl->device;
	enum baton_status status = BATON_OK;

	for (unsigned i = 0; i < n && !nccl->marked && status == BATON_OK; i++)
		status = device->ops->marks->mark(device, lanes[i].stream,
		                                  &lanes[i].connected);
	nccl->marked = true;
	for (unsigned i = 0; i < n && status == BATON_OK; i++)
		status = batoni_nccl_await_lane(nccl, &lanes[i]);
	return status;
}

static enum baton_status
await_kernels(struct batoni_nccl *nccl)
{
	return await_lanes(nccl, nccl->lanes, nccl->lanes_n);
}

static enum baton_status
await_lists(struct batoni_nccl *nccl)
{
	return await_lanes(nccl, batoni_nccl_lane_of_lists(nccl), 1);
}

static enum baton_status
take_step(struct batoni_nccl *nccl)
{
	static const struct batoni_nccl_work make = {
		WHAT_MAKE, make_lanes, NULL, "ncclCommInitRankConfig",
		"created its communicators"};
	static const struct batoni_nccl_work connect = {
		WHAT_CONNECT, connect_lanes, await_kernels,
		"ncclGroupEnd of the connections", "connected the ranks"};
	static const struct batoni_nccl_work lists = {
		WHAT_CONNECT_LISTS, connect_lists, await_lists,
		"ncclGroupEnd of the connections for lists",
		"connected the ranks for lists"};

	switch (nccl->step) {
	case BATONI_NCCL_HELLO:
		return step_hello(nccl);
	case BATONI_NCCL_MAKE:
		return batoni_nccl_do_work(nccl, &make);
	case BATONI_NCCL_CONNECT:
		return batoni_nccl_do_work(nccl, &connect);
	case BATONI_NCCL_CONNECT_LISTS:
		return nccl->has_lists ? batoni_nccl_do_work(nccl, &lists)
		                       : BATON_OK;
	case BATONI_NCCL_PUTS_ID:
	case BATONI_NCCL_PUTS_MAKE:
	case BATONI_NCCL_PUTS_WINDOW:
	case BATONI_NCCL_PUTS_WARM:
		return batoni_nccl_puts_step(nccl);
	}
	return BATON_ERR_INVALID;
}

static void
describe(struct batoni_nccl *nccl)
{
	char version[32];

	batoni_nccl_version_text(nccl->api->version, version, sizeof(version));
	snprintf(nccl->base.library, sizeof(nccl->base.library),
	         "NCCL %s, %u lanes%s", version, nccl->lanes_n - 1,
	         nccl->config.check ? ", checked" : "");
}

/* In plain mode. */
static void
offer_lists(struct batoni_nccl *nccl, const struct batoni_transport *lower)
{
	if (nccl->has_lists) {
		nccl->lists.ops = &batoni_nccl_lists_ops;
		nccl->lists.load.quiet = lower->messages.load.quiet;
		nccl->base.lists = &nccl->lists;
	} else if (!nccl->config.check) {
		nccl->base.why_no_lists =
			"options.nccl_lists, or BATON_NCCL_LISTS=1 in the "
			"environment of all ranks, makes at creation what they "
			"need; checked mode (options.check) has it";
	}
}

static void
take_over(struct batoni_nccl *nccl, struct batoni_transport *lower)
{
	struct batoni_transport *base = &nccl->base;

	base->ops = &batoni_nccl_transport_ops;
	base->messages.ops = nccl->config.check ? &batoni_nccl_checked_ops
	                                        : &batoni_nccl_path_ops;
	base->messages.load.quiet =
		nccl->config.check && lower->messages.load.quiet;
	offer_lists(nccl, lower);
	nccl->lower = lower;
	nccl->lower_upcalls = (struct batoni_upcalls){.done = lower_done,
	                                              .broken = lower_broken,
	                                              .deferred = lower_deferred,
	                                              .moves = lower_moves,
	                                              .may_meet = lower_may_meet,
	                                              .lost = lower_lost};
	lower->upcalls = lower->messages.upcalls = &nccl->lower_upcalls;
	base->rank = lower->rank;
	base->size = lower->size;
	base->hosts = lower;
	base->peers = lower->peers ? lower->peers : nccl->peers;
	base->capabilities = BATON_CAP_SELF;
	if (nccl->config.lower_slot && lower->peers)
		base->capabilities |= lower->capabilities & (BATON_CAP_SIGNALS |
		                                             BATON_CAP_WINDOWS);
	/* In checked mode NCCL is called for what has met. */
	if (nccl->lanes_n - 1 == 2 * nccl->bits || nccl->config.check)
		base->capabilities |= BATON_CAP_DIRECTIONS;
	if (nccl->config.check)
		base->capabilities |= BATON_CAP_CANCEL;
	base->lanes = (int)nccl->lanes_n - 1;
	base->nccl_version = nccl->api->version;
	base->drivers = lower->drivers;
	base->main_thread = lower->main_thread;
	describe(nccl);
}

/* Puts that turn out not to be possible end with their step. */
static bool
is_last(const struct batoni_nccl *nccl)
{
	return nccl->wants_puts ? nccl->step == BATONI_NCCL_PUTS_WARM
	                        : nccl->step >= BATONI_NCCL_CONNECT_LISTS;
}

static uint64_t
available(const struct batoni_nccl *nccl)
{
	const struct batoni_memory_ops *ops = nccl->device->ops->memory;

	return ops->library ? ops->library->available(nccl->device) : 0;
}

static void
offer_figures(struct batoni_nccl *nccl)
{
	uint64_t now = available(nccl);

	nccl->base.ctas = nccl->ctas;
	nccl->base.device_bytes =
		now > 0 && now < nccl->before ? nccl->before - now : 0;
}

static void
offer_puts(struct batoni_nccl *nccl)
{
	if (nccl->puts)
		nccl->base.puts = &batoni_nccl_puts_ops;
	else if (*nccl->why_no_puts)
		nccl->base.why_no_puts = nccl->why_no_puts;
}

static enum baton_status
nccl_step(struct batoni_native *native, struct batoni_transport *lower,
          struct batoni_transport **transport_p)
{
	struct batoni_nccl *nccl = to_nccl(native);
	enum baton_status status;

	if (!nccl->base.ops)
		take_over(nccl, lower);
	status = take_step(nccl);
	if (status != BATON_OK)
		return status;
	if (is_last(nccl)) {
		offer_puts(nccl);
		tell_streams(nccl, nccl->puts ? 1 : 0);
		offer_figures(nccl);
		*transport_p = &nccl->base;
		return BATON_OK;
	}
	if (nccl->step == BATONI_NCCL_HELLO)
		nccl->before = available(nccl);
	nccl->step++;
	nccl->begun = nccl->marked = false;
	nccl->limit_ns = 0;
	return BATON_PENDING;
}

/* Of nccl_control.c: for each peer, what it says and what it is told. */
static uint32_t
nccl_slots(int size)
{
	return 2 * (uint32_t)size;
}

const struct batoni_native_ops batoni_native_ops = {
	.id = BATON_TRANSPORT_NCCL,
	.name = "nccl",
	.constant = "BATON_TRANSPORT_NCCL",
	.moves = "memory of GPUs",
	.needs = "options->device BATON_DEVICE_CUDA (or BATON_DEVICE=cuda in "
		 "the environment)",
	.why_not_near = "NCCL carries the messages (BATON_MESSAGE_PATH=near leaves those "
			"between near ranks to shared memory)",
	.why_not_asked = "it was not asked for (options.transport "
			 "BATON_TRANSPORT_NCCL): it has no tags",
	.why_no_device = "NCCL moves memory of GPUs, and the device is not CUDA "
			 "(options.device BATON_DEVICE_CUDA)",
	.slots = nccl_slots,
	.create = nccl_create,
	.discard = nccl_discard,
	.step = nccl_step,
};
