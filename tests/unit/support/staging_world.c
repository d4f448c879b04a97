/* SPDX-License-Identifier: BSD-3-Clause */
#include "staging_world.h"

#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mem.h"

/* ---- the late layer --------------------------------------------------------- */

struct held {
	struct batoni_transfer *transfer;
	enum baton_status status;
};

struct late {
	struct batoni_transport base; /* must be first */
	struct batoni_transport *lower;
	struct batoni_upcalls lower_upcalls;
	struct held *held;
	uint32_t count;
	unsigned seed;
	unsigned fail_at; /* the n-th receive as long as a piece; 0: none */
};

static struct late *
to_late(struct batoni_path *path)
{
	return batoni_container_of(batoni_transport_of(path), struct late, base);
}

static void
hold(struct late *late, struct batoni_transfer *transfer,
     enum baton_status status)
{
	if (transfer->direction == BATONI_RECV && transfer->bytes == CHUNK &&
	    late->fail_at > 0 && --late->fail_at == 0) {
		transfer->native_call = "MPI_Irecv";
		status = BATON_ERR_MPI;
	}
	late->held[late->count++] = (struct held){transfer, status};
}

static void
late_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
          enum baton_status status)
{
	hold(batoni_container_of(upcalls, struct late, lower_upcalls), transfer,
	     status);
}

static void
late_moves(struct batoni_upcalls *upcalls)
{
	struct late *late = batoni_container_of(upcalls, struct late, lower_upcalls);

	late->base.upcalls->moves(late->base.upcalls);
}

static enum baton_status
late_issue(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct late *late = to_late(path);
	enum baton_status status = batoni_path_issue(&late->lower->messages, transfer);

	if (status != BATON_PENDING)
		hold(late, transfer, status);
	path->load.in_flight++;
	return BATON_PENDING;
}

static size_t
late_test(struct batoni_path *path)
{
	struct late *late = to_late(path);
	size_t events = 0;

	late->lower->messages.ops->test(&late->lower->messages);
	while (late->count > 0 && rand_r(&late->seed) % 3) {
		uint32_t i = (uint32_t)rand_r(&late->seed) % late->count;
		struct held held = late->held[i];

		late->held[i] = late->held[--late->count];
		path->load.in_flight--;
		path->upcalls->done(path->upcalls, held.transfer, held.status);
		events++;
	}
	return events;
}

static enum baton_status
late_take_back(struct batoni_path *path, struct batoni_transfer *transfer)
{
	struct late *late = to_late(path);
	enum baton_status status;

	for (uint32_t i = 0; i < late->count; i++)
		if (late->held[i].transfer == transfer)
			return BATON_ERR_BUSY;
	if (transfer->direction == BATONI_SEND)
		return BATON_ERR_BUSY;
	status = batoni_path_take_back(&late->lower->messages,
	                               transfer);
	/* As MPI: asked, and told later. */
	if (status == BATON_ERR_CANCELED && rand_r(&late->seed) % 2) {
		hold(late, transfer, status);
		return BATON_ERR_BUSY;
	}
	if (status != BATON_ERR_BUSY)
		path->load.in_flight--;
	return status;
}

static void
late_close(struct batoni_transport *transport, bool aborted)
{
	struct late *late = to_late(&transport->messages);

	late->lower->ops->close(late->lower, aborted);
	free(late->held);
	free(late);
}

static const struct batoni_transport_ops late_ops = {
	.name = "late",
	.close = late_close,
};

static const struct batoni_path_ops late_messages = {
	.name = "late",
	.kinds = BATONI_MESSAGES,
	.host_issued = &(const struct batoni_host_issued_ops){
		.issue = late_issue,
		.take_back = late_take_back,
	},
	.test = late_test,
};

static struct batoni_transport *
make_late(struct batoni_transport *lower)
{
	struct late *late = calloc(1, sizeof(*late));

	ck_assert_ptr_nonnull(late);
	late->base = *lower;
	late->base.ops = &late_ops;
	late->base.messages.ops = &late_messages;
	/* Its memory is this process's: staging need not leak what it has below. */
	late->base.messages.load.quiet = true;
	late->lower = lower;
	late->lower_upcalls.done = late_done;
	late->lower_upcalls.moves = late_moves;
	late->held = calloc(lower->slots, sizeof(*late->held));
	ck_assert_ptr_nonnull(late->held);
	late->seed = (unsigned)lower->rank + 1;
	lower->upcalls = lower->messages.upcalls = &late->lower_upcalls;
	return &late->base;
}

/* ---- a path beside ---------------------------------------------------------- */

/* Pairs of an even and an odd rank. */
static bool
serves_odd(struct batoni_path *path, int kind, int peer)
{
	(void)kind;
	return (batoni_transport_of(path)->rank + peer) % 2 != 0;
}

static unsigned connects;

static enum baton_status
count_connect(struct batoni_path *path, int peer)
{
	ck_assert(serves_odd(path, BATON_OPERATION_SEND, peer));
	connects++;
	return BATON_OK;
}

static void
close_beside(struct batoni_path *path, bool aborted)
{
	struct batoni_transport *transport = batoni_transport_of(path);

	transport->ops->close(transport, aborted);
}

/* The messages of another local transport. */
static struct batoni_path *
make_beside(struct batoni_transport *transport)
{
	static const struct batoni_serving_ops serving = {
		.serves = serves_odd, .connect = count_connect};
	static const struct batoni_closing_ops closing = {.close = close_beside};
	static struct batoni_path_ops ops;

	ops = *transport->messages.ops;
	ops.serving = &serving;
	ops.closing = &closing;
	transport->messages.ops = &ops;
	return &transport->messages;
}

unsigned
connects_beside(void)
{
	return connects;
}

/* ---- the world ---------------------------------------------------------------- */

static const struct batoni_staging_config small = {
	.chunk_bytes = CHUNK,
	.chunks = CHUNKS_EACH,
	.eager_bytes = EAGER,
	.eager_slots = EAGERS_EACH,
	.eager_per_peer = EAGER_PEER,
};

static void
record_done(struct batoni_upcalls *upcalls, struct batoni_transfer *transfer,
            enum baton_status status)
{
	struct rank *rank = batoni_container_of(upcalls, struct rank, upcalls);

	ck_assert(!rank->ended[transfer->slot]);
	rank->ended[transfer->slot] = true;
	rank->status[transfer->slot] = status;
	rank->ends++;
}

static void
record_broken(struct batoni_upcalls *upcalls, enum baton_status fatal,
              const char *call, int code, const char *text)
{
	struct rank *rank = batoni_container_of(upcalls, struct rank, upcalls);

	(void)code;
	ck_assert_ptr_nonnull(call);
	ck_assert_uint_gt(strlen(text), 0);
	rank->broken = fatal;
}

static void
record_moves(struct batoni_upcalls *upcalls)
{
	batoni_container_of(upcalls, struct rank, upcalls)->moves++;
}

static void
record_deferred(struct batoni_upcalls *upcalls)
{
	batoni_container_of(upcalls, struct rank, upcalls)->deferred = true;
}

static void
start_rank(struct world *world, int rank, char kind,
           struct batoni_transport *lower, struct batoni_path *beside,
           struct batoni_transport_config above,
           const struct batoni_staging_config *config)
{
	const struct batoni_device_ops *ops = kind == 'd'
	                                              ? &batoni_fake_device_ops
	                                              : &batoni_device_host_ops;
	struct rank *r = &world->ranks[rank];
	struct batoni_staging *staging = NULL;

	ck_assert_int_eq(ops->open(&(struct batoni_device_config){0}, &r->device),
	                 BATON_OK);
	above.device = r->device;
	ck_assert_int_eq(batoni_staging_ops.create(&above, config, world->size,
	                                           &staging),
	                 BATON_OK);
	r->transport = batoni_staging_ops.start(staging, lower, beside);
	/* Local tells its transport's host. */
	if (beside)
		batoni_transport_of(beside)->upcalls = beside->upcalls;
	r->transport->upcalls = r->transport->messages.upcalls = &r->upcalls;
	r->upcalls.done = record_done;
	r->upcalls.broken = record_broken;
	r->upcalls.moves = record_moves;
	r->upcalls.deferred = record_deferred;
}

static void
open_all(struct world *world, const char *devices, bool late, bool has_beside,
         const struct batoni_staging_config *const configs[])
{
	const struct batoni_transport_config above = {
		.slots = SLOTS,
		.slots_most = SLOTS,
		.hidden_tags = HIDDEN_TAGS,
		.segment_bytes = 64,
	};
	struct batoni_transport_config lower = {.slots = 0};
	struct batoni_transport *transports[RANKS_MAX], *others[RANKS_MAX];

	world->size = (int)strlen(devices);
	world->gathers = world->managed = false;
	world->ranks = calloc(RANKS_MAX, sizeof(*world->ranks));
	ck_assert_ptr_nonnull(world->ranks);
	/* The local transport has one configuration for all: the one with most slots. */
	for (int i = 0; i < world->size; i++) {
		struct batoni_transport_config one =
			batoni_staging_ops.lower(&above, configs[i]);

		if (one.slots > lower.slots)
			lower = one;
	}
	ck_assert_int_eq(batoni_local_open(world->size, &lower, transports),
	                 BATON_OK);
	if (has_beside)
		ck_assert_int_eq(batoni_local_open(world->size, &lower, others),
		                 BATON_OK);
	for (int i = 0; i < world->size; i++)
		start_rank(world, i, devices[i],
		           late ? make_late(transports[i]) : transports[i],
		           has_beside ? make_beside(others[i]) : NULL, above,
		           configs[i]);
}

void
open_world_each(struct world *world, const char *devices, bool late,
                const struct batoni_staging_config *const configs[])
{
	open_all(world, devices, late, false, configs);
}

void
open_world_beside(struct world *world, const char *devices, bool late)
{
	const struct batoni_staging_config *configs[RANKS_MAX];

	connects = 0;
	for (int i = 0; i < RANKS_MAX; i++)
		configs[i] = &small;
	open_all(world, devices, late, true, configs);
}

void
open_world_with(struct world *world, const char *devices, bool late,
                const struct batoni_staging_config *config)
{
	const struct batoni_staging_config *configs[RANKS_MAX];

	for (int i = 0; i < RANKS_MAX; i++)
		configs[i] = config;
	open_world_each(world, devices, late, configs);
}

void
open_world(struct world *world, const char *devices, bool late)
{
	open_world_with(world, devices, late, &small);
}

static void
yield(unsigned tries)
{
	(void)tries;
	sched_yield();
}

void
close_rank(struct world *world, int rank)
{
	struct batoni_patience patience = {.until_ns = UINT64_MAX,
		                           .yield = yield};
	struct rank *r = &world->ranks[rank];

	r->transport->patience = &patience;
	r->transport->ops->close(r->transport, true);
	ck_assert(!patience.copies_left);
	r->transport = NULL;
	for (uint32_t slot = 0; slot < SLOTS; slot++) {
		struct batoni_memory_info info = {0};

		if (!r->buffers[slot])
			continue;
		r->device->ops->memory->inspect(r->device, r->buffers[slot], 1, &info);
		if (info.kind == BATONI_MEMORY_DEVICE)
			fake_memory_free(r->buffers[slot]);
		else
			free(r->buffers[slot]);
	}
	r->device->ops->close(r->device);
}

void
close_world(struct world *world)
{
	for (int i = 0; i < world->size; i++)
		if (world->ranks[i].transport)
			close_rank(world, i);
	free(world->ranks);
	ck_assert_int_eq(batoni_mem_blocks(), 0);
	ck_assert_int_eq(fake_device_violations(), 0);
}

struct batoni_staging *
stage_of(const struct world *world, int rank)
{
	return batoni_container_of(world->ranks[rank].transport,
	                           struct batoni_staging, base);
}

void
fail_piece_lower(struct world *world, int rank, unsigned n)
{
	to_late(&stage_of(world, rank)->lower->messages)->fail_at = n;
}

/* ---- transfers ---------------------------------------------------------------- */

void
flush(struct world *world)
{
	for (int i = 0; i < world->size; i++) {
		struct rank *r = &world->ranks[i];

		if (!r->transport || !r->deferred)
			continue;
		r->deferred = false;
		r->transport->messages.ops->deferring->flush(&r->transport->messages);
	}
}

static unsigned char *
pattern(size_t bytes, unsigned seed)
{
	unsigned char *block = malloc(bytes + 1);

	ck_assert_ptr_nonnull(block);
	for (size_t i = 0; i < bytes; i++)
		block[i] = (unsigned char)((131 * seed + i) % 251);
	return block;
}

static enum baton_status
issue_staged(struct world *world, int rank, uint32_t slot, struct batoni_transfer t)
{
	struct rank *r = &world->ranks[rank];
	enum baton_status status;

	t.slot = slot & 0xffffff;
	r->transfers[slot] = t;
	status = batoni_path_issue(&r->transport->messages,
	                           &r->transfers[slot]);
	if (status != BATON_PENDING)
		record_done(&r->upcalls, &r->transfers[slot], status);
	if (!world->gathers)
		flush(world);
	return status;
}

enum baton_status
start_list(struct world *world, int rank, uint32_t slot,
           enum batoni_direction direction, int peer, int tag,
           struct batoni_tensor_list *list)
{
	struct batoni_transfer t = {
		.buffer = list,
		.bytes = list->payload_bytes,
		.peer = peer,
		.tag = tag,
		.location = BATONI_LOCATION_LIST,
	};

	t.direction = direction;
	return issue_staged(world, rank, slot, t);
}

static enum baton_status
start_staged(struct world *world, int rank, uint32_t slot, struct batoni_transfer t,
             const void *content, bool host)
{
	struct rank *r = &world->ranks[rank];

	host |= r->device->ops->memory->host_only;
	ck_assert_uint_lt(slot, SLOTS);
	ck_assert_ptr_null(r->buffers[slot]);
	t.buffer = r->buffers[slot] = host ? malloc(t.bytes + 1)
	                                   : fake_memory_alloc(t.bytes);
	if (host)
		memcpy(t.buffer, content, t.bytes);
	else
		fake_memory_copy(t.buffer, content, t.bytes);
	/* As the engine does at the call. */
	t.location = host             ? BATONI_MEMORY_HOST
	             : world->managed ? BATONI_MEMORY_MANAGED
	                              : BATONI_MEMORY_DEVICE;
	return issue_staged(world, rank, slot, t);
}

enum baton_status
start_send(struct world *world, int rank, uint32_t slot, int peer, int tag,
           size_t bytes, unsigned seed, bool host)
{
	unsigned char *content = pattern(bytes, seed);
	enum baton_status status = start_staged(world, rank, slot,
	                                        (struct batoni_transfer){
							.bytes = bytes,
							.peer = peer,
							.tag = tag,
							.direction = BATONI_SEND,
						},
	                                        content, host);

	free(content);
	return status;
}

enum baton_status
start_recv(struct world *world, int rank, uint32_t slot, int peer, int tag,
           size_t bytes, bool host)
{
	unsigned char *content = malloc(bytes + 1);
	enum baton_status status;

	memset(content, 0xee, bytes + 1);
	status = start_staged(world, rank, slot,
	                      (struct batoni_transfer){
				      .bytes = bytes,
				      .peer = peer,
				      .tag = tag,
				      .direction = BATONI_RECV,
			      },
	                      content, host);
	free(content);
	return status;
}

void
test_once(struct world *world, int rank)
{
	struct batoni_path *path = &world->ranks[rank].transport->messages;

	path->ops->test(path);
}

void
step(struct world *world, int rank)
{
	for (int i = 0; i < 20; i++)
		test_once(world, rank);
}

void
run(struct world *world)
{
	int quiet = 0;

	/* The late layer may hold an event back a few times. */
	while (quiet < 30) {
		size_t events = 0;
		uint32_t in_flight = 0;

		for (int i = 0; i < world->size; i++) {
			struct batoni_transport *t = world->ranks[i].transport;

			if (!t)
				continue;
			events += t->messages.ops->test(&t->messages);
			in_flight += t->messages.load.in_flight;
		}
		if (in_flight == 0)
			return;
		if (events == 0 && fake_memory_copies() > 0)
			usleep(10);
		quiet = events || fake_memory_copies() ? 0 : quiet + 1;
	}
}

enum baton_status
take_back(struct world *world, int rank, uint32_t slot)
{
	struct rank *r = &world->ranks[rank];
	enum baton_status status = batoni_path_take_back(&r->transport->messages, &r->transfers[slot]);

	if (status != BATON_ERR_BUSY)
		record_done(&r->upcalls, &r->transfers[slot], status);
	if (!world->gathers)
		flush(world);
	return status;
}

void
assert_ended(const struct world *world, int rank, uint32_t slot,
             enum baton_status status, size_t bytes)
{
	const struct rank *r = &world->ranks[rank];

	ck_assert_msg(r->ended[slot], "slot %u of rank %d has not ended", slot,
	              rank);
	ck_assert_int_eq(r->status[slot], status);
	ck_assert_uint_eq(r->transfers[slot].done_bytes, bytes);
}

void
assert_pending(const struct world *world, int rank, uint32_t slot)
{
	ck_assert(!world->ranks[rank].ended[slot]);
}

void
assert_content(const struct world *world, int rank, uint32_t slot, size_t bytes,
               unsigned seed)
{
	const struct rank *r = &world->ranks[rank];
	size_t room = r->transfers[slot].bytes;
	unsigned char *want = pattern(bytes, seed);
	unsigned char *got = malloc(room + 1);

	ck_assert_ptr_nonnull(got);
	fake_memory_copy(got, r->buffers[slot], room);
	ck_assert_mem_eq(got, want, bytes);
	for (size_t i = bytes; i < room; i++)
		ck_assert_uint_eq(got[i], 0xee);
	free(want);
	free(got);
}

unsigned
in_use(const struct world *world, int rank, unsigned direction, unsigned kind)
{
	struct batoni_staging *stage = stage_of(world, rank);
	struct batoni_list_node *list = &stage->free[direction][kind];
	unsigned total = kind == CHUNKS ? stage->config.chunks
	                                : stage->config.eager_slots;

	for (struct batoni_list_node *at = list->next; at != list; at = at->next)
		total--;
	return total;
}

void
assert_idle(const struct world *world, int rank)
{
	struct batoni_staging *stage = stage_of(world, rank);

	ck_assert_uint_eq(stage->base.messages.load.in_flight, 0);
	ck_assert_uint_eq(stage->base.messages.load.moving, 0);
	ck_assert_uint_eq(stage->lower->messages.load.in_flight, 0);
	for (unsigned direction = 0; direction < DIRECTIONS; direction++) {
		ck_assert_uint_eq(in_use(world, rank, direction, CHUNKS), 0);
		ck_assert_uint_eq(in_use(world, rank, direction, EAGERS), 0);
		for (int i = 0; i < world->size; i++) {
			const struct stage_share *share =
				&stage->peers[i].shares[direction];

			ck_assert_uint_eq(share->held, 0);
			ck_assert(batoni_list_empty(&share->parked));
			ck_assert_uint_eq(stage->peers[i].eager, 0);
			ck_assert_uint_eq(stage->held[direction], 0);
			ck_assert_uint_eq(stage->holders[direction], 0);
		}
	}
	ck_assert(batoni_list_empty(&stage->lines));
}
